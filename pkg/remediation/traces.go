// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
)

// OffUntil returns by when the host of a machine must be off no longer because of the cycle that is under way, as its pool's
// settings have it; zero if none is (X5, X19). A host that is being serviced may be off for longer (X18).
func OffUntil(machine *machinev1alpha1.Machine, settings *Settings) time.Time {
	s := readState(machine)
	switch {
	case settings == nil || !s.underWay():
		return time.Time{}
	case s.keepsOff():
		return s.record.Began.Add(settings.PowerOff + s.record.Paused)
	}
	return s.record.Since.Add(settings.PowerOn)
}

// AwaitsGrant says that a machine waits for nothing but a grant to be power-cycled, and since when it waits (X8).
func AwaitsGrant(machine *machinev1alpha1.Machine) (since time.Time, awaits bool) {
	s := readState(machine)
	return s.record.Requested, s.phase == v1alpha1.PowerCycleWaiting && s.record.AwaitsGrant
}

// HasGrant says that a machine waits and may be power-cycled, by a grant that is still valid: it counts as if it were (X8).
func HasGrant(machine *machinev1alpha1.Machine, now time.Time) bool {
	until, err := time.Parse(time.RFC3339, machine.Annotations[v1alpha1.AnnotationPowerCycleGrant])
	return err == nil && now.Before(until) && machine.Annotations[v1alpha1.AnnotationPowerCyclePhase] == v1alpha1.PowerCycleWaiting
}

// DryRun returns when the host of a machine would have been power-cycled because of its present failure, if its pool had automatic
// power cycles; zero for never (X9).
func DryRun(machine *machinev1alpha1.Machine) time.Time { return readState(machine).record.DryRun }

// Tainted says that the out-of-service taint of a machine's node, if there is one, is ours (X15).
func Tainted(machine *machinev1alpha1.Machine) bool { return readState(machine).record.Tainted }

// Forget removes from a machine all that is there because of power cycles, and returns whether that was anything (X15). A request
// that nobody has taken note of is somebody else's, and stays. The node is to be cleaned before: it is not known any more what is
// ours there.
func Forget(machine *machinev1alpha1.Machine) bool {
	s := readState(machine)
	return state{needs: s.needs && s.phase == ""}.write(machine)
}

// KeptUntil returns until when a machine is preserved because its power cycle is under way, was stopped, or has failed (X10); zero if it is not.
func KeptUntil(machine *machinev1alpha1.Machine) time.Time {
	s := readState(machine)
	if s.onlyWaits() {
		return time.Time{}
	}
	return s.until
}

// Clean returns the writes that remove from a node all that is there because of power cycles: the condition, and the very taint
// of ours if it is ours (X15).
func Clean(node *corev1.Node, tainted bool) []intent.Write {
	var writes []intent.Write
	if tainted {
		if after := node.DeepCopy(); untaint(after) {
			writes = append(writes, intent.Write{Before: node, After: after, Lock: true})
		}
	}
	if shown := v1alpha1.ConditionOf(node, v1alpha1.ConditionPowerCycle); shown != nil {
		after := node.DeepCopy()
		v1alpha1.RemoveCondition(after, v1alpha1.ConditionPowerCycle)
		writes = append(writes, intent.Write{Before: node, After: after, Status: true})
	}
	return writes
}

// untaint removes the very taint of ours from a node, and returns whether it was there.
func untaint(node *corev1.Node) bool {
	taints := len(node.Spec.Taints)
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return isTaint(t) && t.Value == taintOutOfService.Value })
	return len(node.Spec.Taints) < taints
}

// Orphans returns which of a control plane's hosts are to be released as no cycle needs them off: their Machine is gone, also
// if there is another of its name, no cycle of it is under way, or it has another host now (X2). One whose request somebody else
// has taken back is among them: more than that belongs to a release. The hosts are to be read before the machines: what is
// written on a Machine comes before the request for its host.
func Orphans(hosts []Host, machines []*machinev1alpha1.Machine) []Host {
	keptOff := map[types.UID]types.UID{}
	for _, m := range machines {
		if s := readState(m); s.keepsOff() {
			keptOff[m.UID] = s.record.Host
		}
	}
	return slices.DeleteFunc(slices.Clone(hosts), func(h Host) bool {
		if h.Owner == nil {
			return true
		}
		host, ok := keptOff[h.Owner.UID]
		return ok && host == h.UID
	})
}
