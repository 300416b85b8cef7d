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
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/simulator"
)

// patience is for how long a step may take. machine-controller-manager looks at an unhealthy machine once a minute, and
// replaces one machine of a zone at a time.
const patience = 5 * time.Minute

// demo is the story that is told.
type demo struct {
	seedConfig   *rest.Config
	seed, target client.Client
	namespace    string
	shoot        *gardencorev1beta1.Shoot
	table        *table
}

// play tells the story step by step. The error names the step that was not seen to happen.
func (d *demo) play(ctx context.Context) error {
	var held, replaced, expiring *machinev1alpha1.Machine
	for _, step := range []struct {
		name, text string
		run        func(ctx context.Context) error
	}{
		{"shoot", "A Shoot is applied: one worker pool over two zones, autoPreserveFailedMax: 2, so one machine in each zone.", func(ctx context.Context) error {
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
		}},
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
	} {
		fmt.Println()
		say("[%s] %s", step.name, step.text)
		if err := step.run(ctx); err != nil {
			return fmt.Errorf("step %q: %w", step.name, err)
		}
		say("[%s] seen", step.name)
	}
	return nil
}

// until polls until the condition holds. An error of the condition is told if it does not in time.
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

func (d *demo) untilPhase(ctx context.Context, machine *machinev1alpha1.Machine, phase string) error {
	return d.until(ctx, func(ctx context.Context) (bool, error) {
		err := d.seed.Get(ctx, client.ObjectKeyFromObject(machine), machine)
		return machine.Annotations[v1alpha1.AnnotationPhase] == phase, err
	})
}

func (d *demo) untilGone(ctx context.Context, machine *machinev1alpha1.Machine) error {
	return d.until(ctx, func(ctx context.Context) (bool, error) {
		err := d.seed.Get(ctx, client.ObjectKeyFromObject(machine), &machinev1alpha1.Machine{})
		return err != nil && client.IgnoreNotFound(err) == nil, client.IgnoreNotFound(err)
	})
}

// running returns the machines of a zone, or of all, that run.
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

// fail makes the machine's kubelet fall silent.
func (d *demo) fail(ctx context.Context, machine *machinev1alpha1.Machine) error {
	say("The kubelet of machine %s dies.", machine.Name)
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "machine-" + machine.Name, Namespace: seed.MachineNamespace(d.shoot.Name)}}
	patch := client.MergeFrom(pod.DeepCopy())
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, simulator.FailureAnnotation, "kubelet-dead")
	return d.seed.Patch(ctx, pod, patch)
}

func (d *demo) annotate(ctx context.Context, machine *machinev1alpha1.Machine, annotations map[string]string) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeOf(machine)}}
	patch := client.MergeFrom(node.DeepCopy())
	node.Annotations = annotations
	return d.target.Patch(ctx, node, patch)
}

// workload starts pods on all nodes.
func (d *demo) workload(ctx context.Context) error {
	labels := map[string]string{"app": "demo"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: metav1.NamespaceDefault},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(8)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "pause", Image: "registry.k8s.io/pause:3.10"}}},
			},
		},
	}
	if err := d.target.Create(ctx, deployment); err != nil {
		return err
	}
	return d.until(ctx, func(ctx context.Context) (bool, error) { return d.allPodsRunElsewhere(ctx, "") })
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

// zonalMachine is a machine and the zone that its MachineClass is for.
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

func say(format string, args ...any) {
	fmt.Printf(time.Now().Format(time.TimeOnly)+"  "+format+"\n", args...)
}

// relative returns the path as seen from the working directory.
func relative(path string) string {
	if wd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(wd, path); err == nil {
			return rel
		}
	}
	return path
}
