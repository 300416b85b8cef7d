// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// preservation is the story of machines that fail.
func (d *demo) preservation() []step {
	var held, replaced, expiring *machinev1alpha1.Machine
	return []step{
		{"shoot", "A Shoot is applied: one worker pool over two zones, autoPreserveFailedMax: 2, so one machine in each zone.", d.applyShoot},
		{"shares", "The extension has distributed the maximum over the zones.", func(ctx context.Context) error {
			return d.until(ctx, func(ctx context.Context) (bool, error) {
				deployments := &machinev1alpha1.MachineDeploymentList{}
				if err := d.seed.List(ctx, deployments, client.InNamespace(d.namespace)); err != nil {
					return false, err
				}
				for _, deployment := range deployments.Items {
					if deployment.Annotations[v1alpha1.AnnotationAutoPreserveFailedMax] != "1" {
						return false, nil
					}
				}
				return len(deployments.Items) == 2, nil
			})
		}},
		{"hold", "Two machines of one zone fail: their kubelets die, one a little before the other. The first one is held.", func(ctx context.Context) error {
			running, err := d.running(ctx, "0")
			if err != nil {
				return err
			}
			held, replaced = running[0], running[1]
			if err := d.fail(ctx, held); err != nil {
				return err
			}
			// Who fails first is to be seen on the nodes.
			if err := d.until(ctx, func(ctx context.Context) (bool, error) {
				err := d.seed.Get(ctx, client.ObjectKeyFromObject(held), held)
				return held.Status.CurrentStatus.Phase == machinev1alpha1.MachineUnknown, err
			}); err != nil {
				return err
			}
			if err := d.fail(ctx, replaced); err != nil {
				return err
			}
			return d.untilPhase(ctx, held, preservation.PhaseFailedPreserved)
		}},
		{"replace", "There is no place left for the second one. machine-controller-manager replaces it as usual.", func(ctx context.Context) error {
			if err := d.untilGone(ctx, replaced); err != nil {
				return err
			}
			return d.until(ctx, func(ctx context.Context) (bool, error) {
				running, err := d.running(ctx, "0")
				return len(running) == 1, err
			})
		}},
		{"drain", "The held machine is drained: its pods were asked to go, and start elsewhere.", func(ctx context.Context) error {
			return d.until(ctx, func(ctx context.Context) (bool, error) {
				node := &corev1.Node{}
				if err := d.target.Get(ctx, client.ObjectKey{Name: nodeOf(held)}, node); err != nil {
					return false, err
				}
				condition := preservation.PreservedCondition(node)
				if condition == nil || condition.Reason != v1alpha1.ReasonDrained {
					return false, nil
				}
				say("Node %s: %s", node.Name, condition.Message)
				return d.allPodsRunElsewhere(ctx, node.Name)
			})
		}},
		{"release", "Somebody has seen enough: preserve=false on the node lets the machine go.", func(ctx context.Context) error {
			if err := d.annotate(ctx, held, map[string]string{v1alpha1.AnnotationPreserve: v1alpha1.RequestFalse}); err != nil {
				return err
			}
			if err := d.untilGone(ctx, held); err != nil {
				return err
			}
			return d.until(ctx, func(ctx context.Context) (bool, error) {
				running, err := d.running(ctx, "0")
				return len(running) == 2, err
			})
		}},
		{"expiry", "In the other zone, somebody asks for a machine to be kept for two minutes if it fails. It fails, and goes when the time is up.", func(ctx context.Context) error {
			running, err := d.running(ctx, "1")
			if err != nil {
				return err
			}
			expiring = running[0]
			if err := d.annotate(ctx, expiring, map[string]string{
				v1alpha1.AnnotationPreserve: v1alpha1.RequestWhenFailed,
				v1alpha1.AnnotationTimeout:  "2m",
			}); err != nil {
				return err
			}
			if err := d.fail(ctx, expiring); err != nil {
				return err
			}
			if err := d.untilPhase(ctx, expiring, preservation.PhaseFailedPreserved); err != nil {
				return err
			}
			record := preservation.ReadRecord(expiring)
			if err := d.untilGone(ctx, expiring); err != nil {
				return err
			}
			if early := time.Until(record.Expiry()); early > 0 {
				return fmt.Errorf("machine %s was gone %s before its expiry", expiring.Name, early)
			}
			return nil
		}},
	}
}
