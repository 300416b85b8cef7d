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
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
)

// preservation is the story of machines that fail.
func (d *demo) preservation() []step {
	var held, replaced, expiring *machinev1alpha1.Machine
	return []step{
		{"shoot", "The demo applies a Shoot with one worker pool over two zones. It has autoPreserveFailedMax: 2, so each zone has one place.", d.applyShoot},
		{"places", "The extension distributes the places over the zones.", func(ctx context.Context) error {
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
		{"preserve", "Two machines of one zone fail, because their kubelets stop one after the other. The first machine gets the place and is preserved.", func(ctx context.Context) error {
			running, err := d.running(ctx, "0")
			if err != nil {
				return err
			}
			held, replaced = running[0], running[1]
			if err := d.fail(ctx, held); err != nil {
				return err
			}
			if err := d.untilUnknown(ctx, held); err != nil { // before the second failure begins
				return err
			}
			if err := d.fail(ctx, replaced); err != nil {
				return err
			}
			return d.untilPhase(ctx, held, preservation.PhaseFailedPreserved)
		}},
		{"replace", "No place is free for the second machine. machine-controller-manager replaces it as usual.", func(ctx context.Context) error {
			if err := d.untilGone(ctx, replaced); err != nil {
				return err
			}
			return d.until(ctx, func(ctx context.Context) (bool, error) {
				running, err := d.running(ctx, "0")
				return len(running) == 1, err
			})
		}},
		{"drain", "The node of the preserved machine is drained. Its pods start on other nodes.", func(ctx context.Context) error {
			return d.until(ctx, func(ctx context.Context) (bool, error) {
				node := &corev1.Node{}
				if err := d.target.Get(ctx, client.ObjectKey{Name: nodeOf(held)}, node); err != nil {
					return false, err
				}
				condition := preservation.PreservedCondition(node)
				if condition == nil || condition.Reason != v1alpha1.ReasonDrained {
					return false, nil
				}
				landscape.Say("Node %s: %s", node.Name, condition.Message)
				return d.allPodsRunElsewhere(ctx, node.Name)
			})
		}},
		{"release", "Somebody sets preserve=false on the node. The machine is released and replaced.", func(ctx context.Context) error {
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
		{"expiry", "In the other zone, somebody requests to preserve a machine for two minutes when it fails. It fails, and is released at its expiry.", func(ctx context.Context) error {
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
