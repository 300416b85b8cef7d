// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/simulator"
)

const (
	patience = 5 * time.Minute
	// pause lets what a step has changed be seen in a graph.
	pause = 20 * time.Second
)

// story is what happens while the metrics are recorded.
type story struct {
	seedConfig   *rest.Config
	shoot        *gardencorev1beta1.Shoot
	seed, target client.Client
	namespace    string
}

func newStory(l *landscape.Landscape, shoot *gardencorev1beta1.Shoot) (*story, error) {
	seedClient, err := client.New(l.Seed.Config, client.Options{Scheme: kubernetesclient.SeedScheme})
	if err != nil {
		return nil, err
	}
	shootClient, err := client.New(l.Shoot.Config, client.Options{Scheme: kubernetesclient.ShootScheme})
	if err != nil {
		return nil, err
	}
	return &story{
		seedConfig: l.Seed.Config,
		shoot:      shoot,
		seed:       seedClient,
		target:     shootClient,
		namespace:  seed.ControlPlaneNamespace(shoot.Name),
	}, nil
}

// play has each panel of the dashboards show something: of one pool, a machine is kept on request, and another one fails, is
// drained and released; of the other pool, the drain of a failed machine is held up, and the next one is refused.
func (s *story) play(ctx context.Context) error {
	landscape.Say("A Shoot is applied")
	if err := s.reconcile(ctx); err != nil {
		return err
	}
	web, err := s.pool(ctx, "web")
	if err != nil {
		return err
	}
	database, err := s.pool(ctx, "database")
	if err != nil {
		return err
	}
	requested, drained, blocked, refused := &web[0], &web[1], &database[0], &database[1]
	for _, step := range []struct {
		text string
		run  func() error
	}{
		{"The Shoot is reconciled", func() error { return s.reconcile(ctx) }},
		{"Pods start on all nodes", func() error { return s.workload(ctx, "web", 12, nil) }},
		{"A machine is preserved on request", func() error {
			if err := s.request(ctx, requested, v1alpha1.RequestNow); err != nil {
				return err
			}
			return s.untilMachine(ctx, requested, preserved)
		}},
		{"A machine fails, and is preserved and drained", func() error {
			if err := s.fail(ctx, drained); err != nil {
				return err
			}
			return errors.Join(s.untilMachine(ctx, drained, preservedFailed), s.untilDrain(ctx, drained, v1alpha1.ReasonDrained))
		}},
		{"A machine fails whose drain a PodDisruptionBudget holds up, and another one, for which no place is left", func() error {
			if err := s.workload(ctx, "database", 2, blocked); err != nil {
				return err
			}
			if err := s.fail(ctx, blocked); err != nil {
				return err
			}
			if err := s.untilMachine(ctx, blocked, func(machine *machinev1alpha1.Machine) bool {
				return machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineUnknown
			}); err != nil {
				return err
			}
			if err := s.fail(ctx, refused); err != nil {
				return err
			}
			return errors.Join(s.untilMachine(ctx, blocked, preservedFailed),
				s.untilDrain(ctx, blocked, v1alpha1.ReasonDrainBlocked), s.untilMachine(ctx, refused, replaced))
		}},
		{"The drained machine is released", func() error {
			if err := s.request(ctx, drained, v1alpha1.RequestFalse); err != nil {
				return err
			}
			return s.untilMachine(ctx, drained, nil)
		}},
	} {
		landscape.Say("%s", step.text)
		if err := step.run(); err != nil {
			return fmt.Errorf("%s: %w", step.text, err)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(pause):
		}
	}
	return nil
}

// reconcile does what gardenlet does with each Shoot once a day, which calls the webhooks.
func (s *story) reconcile(ctx context.Context) error {
	if err := seed.ApplyShoot(ctx, s.seedConfig, s.shoot); err != nil {
		return err
	}
	return seed.WaitForShoot(ctx, s.seedConfig, s.shoot.Name)
}

// pool returns the machines of a worker pool.
func (s *story) pool(ctx context.Context, name string) ([]machinev1alpha1.Machine, error) {
	machines := &machinev1alpha1.MachineList{}
	if err := s.seed.List(ctx, machines, client.InNamespace(s.namespace)); err != nil {
		return nil, err
	}
	found := slices.DeleteFunc(machines.Items, func(machine machinev1alpha1.Machine) bool {
		return machine.Spec.NodeTemplateSpec.Labels[v1beta1constants.LabelWorkerPool] != name
	})
	if len(found) != 2 {
		return nil, fmt.Errorf("want two machines of worker pool %s, got %d", name, len(found))
	}
	return found, nil
}

// workload starts pods. Those that are bound to a machine must not be evicted.
func (s *story) workload(ctx context.Context, name string, replicas int32, bound *machinev1alpha1.Machine) error {
	selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": name}}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: selector,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: selector.MatchLabels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "pause", Image: "registry.k8s.io/pause:3.10"}}},
			},
		},
	}
	if bound != nil {
		deployment.Spec.Template.Spec.NodeSelector = map[string]string{corev1.LabelHostname: nodeOf(bound)}
		if err := s.target.Create(ctx, &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
			Spec:       policyv1.PodDisruptionBudgetSpec{Selector: selector, MaxUnavailable: new(intstr.FromInt32(0))},
		}); err != nil {
			return err
		}
	}
	if err := s.target.Create(ctx, deployment); err != nil {
		return err
	}
	return s.until(ctx, func(ctx context.Context) (bool, error) {
		err := s.target.Get(ctx, client.ObjectKeyFromObject(deployment), deployment)
		return deployment.Status.ReadyReplicas == replicas, err
	})
}

func (s *story) request(ctx context.Context, machine *machinev1alpha1.Machine, value string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeOf(machine)}}
	patch := client.MergeFrom(node.DeepCopy())
	metav1.SetMetaDataAnnotation(&node.ObjectMeta, v1alpha1.AnnotationPreserve, value)
	return s.target.Patch(ctx, node, patch)
}

// fail makes the machine's kubelet fall silent.
func (s *story) fail(ctx context.Context, machine *machinev1alpha1.Machine) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "machine-" + machine.Name, Namespace: seed.MachineNamespace(s.shoot.Name)}}
	patch := client.MergeFrom(pod.DeepCopy())
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, simulator.FailureAnnotation, "kubelet-dead")
	return s.seed.Patch(ctx, pod, patch)
}

// untilMachine waits until the machine is as it should be, or is gone if that is nil.
func (s *story) untilMachine(ctx context.Context, machine *machinev1alpha1.Machine, is func(*machinev1alpha1.Machine) bool) error {
	return s.until(ctx, func(ctx context.Context) (bool, error) {
		err := s.seed.Get(ctx, client.ObjectKeyFromObject(machine), machine)
		if is == nil {
			return err != nil && client.IgnoreNotFound(err) == nil, client.IgnoreNotFound(err)
		}
		return is(machine), err
	})
}

func (s *story) untilDrain(ctx context.Context, machine *machinev1alpha1.Machine, reason string) error {
	return s.until(ctx, func(ctx context.Context) (bool, error) {
		node := &corev1.Node{}
		err := s.target.Get(ctx, client.ObjectKey{Name: nodeOf(machine)}, node)
		condition := preservation.PreservedCondition(node)
		return condition != nil && condition.Reason == reason, err
	})
}

// until polls until the condition holds. An error of the condition is told if it does not in time.
func (s *story) until(ctx context.Context, condition wait.ConditionWithContextFunc) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (done bool, _ error) {
		done, last = condition(ctx)
		return done && last == nil, nil
	})
	return errors.Join(err, last)
}

func preserved(machine *machinev1alpha1.Machine) bool {
	return preservation.ReadRecord(machine) != nil
}

func preservedFailed(machine *machinev1alpha1.Machine) bool {
	return machine.Annotations[v1alpha1.AnnotationPhase] == preservation.PhaseFailedPreserved
}

func replaced(machine *machinev1alpha1.Machine) bool {
	return machine.DeletionTimestamp != nil
}

func nodeOf(machine *machinev1alpha1.Machine) string {
	return machine.Labels[machinev1alpha1.NodeLabelKey]
}
