// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// What it is for that too many machines fail at the same time (P16, X21).

// countFailing finds out whether too many machines fail now, for certain, and whether there may be in anybody's eyes.
func (o *oracle) countFailing() {
	var (
		failing  []rules.Failing
		machines int
		now      = time.Now()
	)
	for _, s := range o.machines {
		if s.machine == nil || s.machine.DeletionTimestamp != nil || len(s.machine.Status.Conditions) == 0 || slices.Contains(beingCreated, s.machine.Status.CurrentStatus.Phase) {
			continue
		}
		machines++
		switch {
		case s.node != nil && metav1.HasAnnotation(s.node.ObjectMeta, v1alpha1.AnnotationMaintenance):
		case !s.unhealthy.IsZero():
			failing = append(failing, rules.Failing{From: s.unhealthy})
		case s.machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineUnknown: // the node has just gone
			failing = append(failing, rules.Failing{From: now})
		case s.node != nil: // if it was ready again soon after it was created, it has just joined
			lately, joined := s.lately, s.node.CreationTimestamp.Add(o.storm.Settling)
			ready := v1alpha1.ConditionOf(s.node, corev1.NodeReady)
			// Only of that condition it counts since when it is so.
			lately.Doubtful = lately.Until.Before(joined.Add(soon)) || ready == nil || ready.LastTransitionTime.Time.Before(lately.Until.Add(-soon))
			if lately.Until.After(joined.Add(-soon)) {
				failing = append(failing, lately)
			}
		}
	}
	certain, possible := o.storm.Exceeded(failing, machines, now, soon)
	if o.stormy = rules.Since(o.stormy, certain, now); certain {
		o.seen["storm"]++
	}
	if possible {
		o.happens(rules.Storm)
	}
}

// checkStorm is called with what we write about a machine. It blames that the share begins to preserve it while too many fail.
func (o *oracle) checkStorm(name string, s *subject, was rules.Machine) {
	if was.Kept || !s.record.Kept || !s.record.IsAuto(time.Now()) || s.asked {
		return
	}
	o.countFailing()
	o.judge(name, o.world.BegunInStorm("P16", "begins to be auto-preserved", o.stormy, time.Now(), o.Excuses, s.Excuses))
}
