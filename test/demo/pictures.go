// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

// pictures is the story in which each panel of the dashboards has something to show: of one pool, a machine is kept on request, and another
// one fails, is drained and released; of the other pool, the drain of a failed machine is held up, and the next one is refused.
func (d *demo) pictures() []step {
	var requested, drained, blocked, refused *machinev1alpha1.Machine
	return []step{
		{"shoot", "The demo applies a Shoot with the worker pools database and web. Each has one place.", d.applyShoot},
		{"reconcile", "The Shoot is reconciled, as once a day, which calls the webhooks.", func(ctx context.Context) error {
			if err := seed.ApplyShoot(ctx, d.seedConfig, d.shoot); err != nil {
				return err
			}
			return seed.WaitForShoot(ctx, d.seedConfig, d.shoot.Name)
		}},
		{"request", "Somebody sets preserve=now on the node of a machine of web. It is preserved.", func(ctx context.Context) error {
			database, err := d.running(ctx, "0")
			if err != nil {
				return err
			}
			web, err := d.running(ctx, "1")
			if err != nil {
				return err
			}
			blocked, refused, requested, drained = database[0], database[1], web[0], web[1]
			if err := d.annotate(ctx, requested, map[string]string{v1alpha1.AnnotationPreserve: v1alpha1.RequestNow}); err != nil {
				return err
			}
			return d.untilMachine(ctx, requested, func() bool { return preservation.ReadRecord(requested) != nil })
		}},
		{"drain", "The other machine of web fails. It is preserved and drained.", func(ctx context.Context) error {
			if err := d.fail(ctx, drained); err != nil {
				return err
			}
			return errors.Join(d.untilPhase(ctx, drained, preservation.PhaseFailedPreserved), d.untilDrain(ctx, drained, v1alpha1.ReasonDrained))
		}},
		{"block", "A machine of database fails. A PodDisruptionBudget blocks its drain. The other machine finds no place free.", func(ctx context.Context) error {
			if err := d.bindPods(ctx, blocked); err != nil {
				return err
			}
			if err := d.fail(ctx, blocked); err != nil {
				return err
			}
			if err := d.untilUnknown(ctx, blocked); err != nil {
				return err
			}
			if err := d.fail(ctx, refused); err != nil {
				return err
			}
			return errors.Join(
				d.untilPhase(ctx, blocked, preservation.PhaseFailedPreserved),
				d.untilDrain(ctx, blocked, v1alpha1.ReasonDrainBlocked),
				d.untilMachine(ctx, refused, func() bool { return refused.DeletionTimestamp != nil }))
		}},
		{"release", "Somebody sets preserve=false on the node of the drained machine. It is released and replaced.", func(ctx context.Context) error {
			if err := d.annotate(ctx, drained, map[string]string{v1alpha1.AnnotationPreserve: v1alpha1.RequestFalse}); err != nil {
				return err
			}
			return d.untilGone(ctx, drained)
		}},
	}
}

// bindPods starts pods on a machine that must not be evicted.
func (d *demo) bindPods(ctx context.Context, machine *machinev1alpha1.Machine) error {
	deployment := deploymentOf("database", 2)
	deployment.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeOf(machine)}
	if err := d.target.Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: deployment.Name, Namespace: deployment.Namespace},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: deployment.Spec.Selector, MaxUnavailable: new(intstr.FromInt32(0))},
	}); err != nil {
		return err
	}
	if err := d.target.Create(ctx, deployment); err != nil {
		return err
	}
	return d.until(ctx, func(ctx context.Context) (bool, error) {
		err := d.target.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)
		return deployment.Status.ReadyReplicas == 2, err
	})
}

func (d *demo) untilDrain(ctx context.Context, machine *machinev1alpha1.Machine, reason string) error {
	return d.until(ctx, func(ctx context.Context) (bool, error) {
		node := &corev1.Node{}
		err := d.target.Get(ctx, client.ObjectKey{Name: nodeOf(machine)}, node)
		condition := preservation.PreservedCondition(node)
		return condition != nil && condition.Reason == reason, err
	})
}
