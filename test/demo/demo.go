// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/simulator"
)

// patience is how long a step may take. machine-controller-manager checks an unhealthy machine once a minute, and replaces one
// machine of a zone at a time.
const patience = 5 * time.Minute

// demo has what the steps of a story need.
type demo struct {
	landscape    *landscape.Landscape
	seedConfig   *rest.Config
	seed, target client.Client
	namespace    string
	shoot        *gardencorev1beta1.Shoot
	table        *table
}

// step is a part of a story.
type step struct {
	name, text string
	run        func(ctx context.Context) error
}

// story is what happens to the machines of a Shoot.
type story struct {
	shoot []byte
	steps func(*demo) []step
	// pause is after each step, so that a graph shows what it has changed.
	pause time.Duration
}

// stories are the stories of the demo, by name.
var stories = map[string]story{
	"preservation": {shoot: shootManifest, steps: (*demo).preservation},
	"maintenance":  {shoot: shootManifest, steps: (*demo).maintenance},
	"pictures":     {shoot: picturesShootManifest, steps: (*demo).pictures, pause: 20 * time.Second},
}

// play runs a story step by step. The error names the step that did not happen.
func (d *demo) play(ctx context.Context, story story) error {
	for _, step := range story.steps(d) {
		fmt.Println()
		landscape.Say("[%s] %s", step.name, step.text)
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("step %q: %w", step.name, err)
		}
		landscape.Say("[%s] seen", step.name)
		select {
		case <-time.After(story.pause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// applyShoot applies the Shoot, and waits until its machines run, and pods run on them.
func (d *demo) applyShoot(ctx context.Context) error {
	if err := seed.ApplyShoot(ctx, d.seedConfig, d.shoot); err != nil {
		return err
	}
	if err := d.until(ctx, func(ctx context.Context) (bool, error) {
		running, err := d.running(ctx, "")
		return len(running) == 4, err
	}); err != nil {
		return err
	}
	return d.workload(ctx)
}

// until polls until the condition is true. If that takes too long, it returns the last error of the condition.
func (d *demo) until(ctx context.Context, condition wait.ConditionWithContextFunc) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, time.Second, patience, true, func(ctx context.Context) (done bool, _ error) {
		done, last = condition(ctx)
		return done && last == nil, nil
	})
	if err != nil && ctx.Err() == nil {
		err = fmt.Errorf("not seen within %s", patience)
	}
	if err != nil {
		return errors.Join(err, last)
	}
	return nil
}

// untilMachine polls until a machine is as it should be.
func (d *demo) untilMachine(ctx context.Context, machine *machinev1alpha1.Machine, is func() bool) error {
	return d.until(ctx, func(ctx context.Context) (bool, error) {
		err := d.seed.Get(ctx, client.ObjectKeyFromObject(machine), machine)
		return is(), err
	})
}

func (d *demo) untilPhase(ctx context.Context, machine *machinev1alpha1.Machine, phase string) error {
	return d.untilMachine(ctx, machine, func() bool { return machine.Annotations[v1alpha1.AnnotationPhase] == phase })
}

// untilUnknown waits until the failure of a machine shows on its node.
func (d *demo) untilUnknown(ctx context.Context, machine *machinev1alpha1.Machine) error {
	return d.untilMachine(ctx, machine, func() bool { return machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineUnknown })
}

func (d *demo) untilGone(ctx context.Context, machine *machinev1alpha1.Machine) error {
	return d.until(ctx, func(ctx context.Context) (bool, error) {
		err := d.seed.Get(ctx, client.ObjectKeyFromObject(machine), &machinev1alpha1.Machine{})
		return err != nil && client.IgnoreNotFound(err) == nil, client.IgnoreNotFound(err)
	})
}

// running returns the running machines of a zone, or of all zones.
func (d *demo) running(ctx context.Context, zone string) ([]*machinev1alpha1.Machine, error) {
	machines, err := zonalMachines(ctx, d.seed, d.namespace)
	if err != nil {
		return nil, err
	}
	var running []*machinev1alpha1.Machine
	for _, m := range machines {
		if m.DeletionTimestamp == nil && m.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning && (zone == "" || m.zone == zone) {
			running = append(running, m.Machine)
		}
	}
	return running, nil
}

// fail stops the machine's kubelet.
func (d *demo) fail(ctx context.Context, machine *machinev1alpha1.Machine) error {
	landscape.Say("The kubelet of machine %s stops.", machine.Name)
	return d.inject(ctx, machine, `"kubelet-dead"`)
}

// heal starts the machine's kubelet again.
func (d *demo) heal(ctx context.Context, machine *machinev1alpha1.Machine) error {
	landscape.Say("The kubelet of machine %s runs again.", machine.Name)
	return d.inject(ctx, machine, "null")
}

func (d *demo) inject(ctx context.Context, machine *machinev1alpha1.Machine, fault string) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "machine-" + machine.Name, Namespace: seed.MachineNamespace(d.shoot.Name)}}
	return d.seed.Patch(ctx, pod, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, simulator.FailureAnnotation, fault)))
}

func (d *demo) annotate(ctx context.Context, machine *machinev1alpha1.Machine, annotations map[string]string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeOf(machine)}}
	patch := client.MergeFrom(node.DeepCopy())
	node.Annotations = annotations
	return d.target.Patch(ctx, node, patch)
}

// workload starts pods on all nodes.
func (d *demo) workload(ctx context.Context) error {
	if err := d.target.Create(ctx, deploymentOf("demo", 8)); err != nil {
		return err
	}
	return d.until(ctx, func(ctx context.Context) (bool, error) { return d.allPodsRunElsewhere(ctx, "") })
}

func deploymentOf(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "pause", Image: "registry.k8s.io/pause:3.10"}}},
			},
		},
	}
}

func (d *demo) allPodsRunElsewhere(ctx context.Context, node string) (bool, error) {
	pods := &corev1.PodList{}
	if err := d.target.List(ctx, pods, client.InNamespace(metav1.NamespaceDefault)); err != nil {
		return false, err
	}
	running := 0
	for _, pod := range pods.Items {
		if pod.Spec.NodeName == node {
			return false, nil
		}
		if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
			running++
		}
	}
	return running == 8, nil
}

func nodeOf(machine *machinev1alpha1.Machine) string {
	return machine.Labels[machinev1alpha1.NodeLabelKey]
}

// zonalMachine is a machine and the zone of its MachineClass.
type zonalMachine struct {
	*machinev1alpha1.Machine
	zone string
}

// zonalMachines returns all machines, in the order of their zones and names.
func zonalMachines(ctx context.Context, seed client.Client, namespace string) ([]zonalMachine, error) {
	classes := &machinev1alpha1.MachineClassList{}
	if err := seed.List(ctx, classes, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	zones := map[string]string{}
	for _, class := range classes.Items {
		if class.NodeTemplate != nil {
			zones[class.Name] = class.NodeTemplate.Zone
		}
	}

	machines := &machinev1alpha1.MachineList{}
	if err := seed.List(ctx, machines, client.InNamespace(namespace)); err != nil {
		return nil, err
	}
	zonal := make([]zonalMachine, 0, len(machines.Items))
	for i := range machines.Items {
		zonal = append(zonal, zonalMachine{Machine: &machines.Items[i], zone: zones[machines.Items[i].Spec.Class.Name]})
	}
	slices.SortFunc(zonal, func(a, b zonalMachine) int {
		return cmp.Or(strings.Compare(a.zone, b.zone), strings.Compare(a.Name, b.Name))
	})
	return zonal, nil
}

// relative returns the path relative to the working directory.
func relative(path string) string {
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, path); err == nil {
			return rel
		}
	}
	return path
}
