// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
)

// absence is how long the reboot of a node takes. It is longer than the health timeout of its machine.
const absence = 2 * time.Minute

// maintenance is the story of a node under maintenance.
func (d *demo) maintenance() []step {
	var maintained, next *machinev1alpha1.Machine
	return []step{
		{"shoot", "The demo applies a Shoot with one worker pool over two zones. It has nodeMaintenance: {}, so one node may be under maintenance at a time.", d.applyShoot},
		{"request", "Two NodeMaintenances request two nodes. The first node is cordoned, drained and handed over. The second request is pending.", func(ctx context.Context) error {
			running, err := d.running(ctx, "")
			if err != nil {
				return err
			}
			maintained, next = running[0], running[1]
			for i, machine := range []*machinev1alpha1.Machine{maintained, next} {
				if err := d.apply(ctx, maintenanceOf(fmt.Sprintf("upgrade-%d", i), machine)); err != nil {
					return err
				}
				if i == 0 {
					err = d.untilMaintenance(ctx, "upgrade-0", maintenancev1alpha1.PhaseReady)
				} else {
					err = d.untilMaintenance(ctx, "upgrade-1", maintenancev1alpha1.PhasePending)
				}
				if err != nil {
					return err
				}
			}
			if err := d.until(ctx, func(ctx context.Context) (bool, error) { return d.allPodsRunElsewhere(ctx, nodeOf(maintained)) }); err != nil {
				return err
			}
			return d.kubectl(ctx, "get", "nodemaintenances,nodes")
		}},
		{"reboot", fmt.Sprintf("The node reboots and is away for %s. Without the maintenance, machine-controller-manager would replace its machine after %s.", absence, d.healthTimeout()), func(ctx context.Context) error {
			if err := d.fail(ctx, maintained); err != nil {
				return err
			}
			back := time.Now().Add(absence)
			if err := d.untilPhase(ctx, maintained, preservation.PhaseFailedPreserved); err != nil {
				return err
			}
			if cause := maintained.Annotations[v1alpha1.AnnotationCause]; cause != v1alpha1.CauseMaintenance {
				return fmt.Errorf("machine %s is preserved because of %q", maintained.Name, cause)
			}
			select {
			case <-time.After(time.Until(back)):
			case <-ctx.Done():
				return ctx.Err()
			}
			if err := d.heal(ctx, maintained); err != nil {
				return err
			}
			return d.until(ctx, func(ctx context.Context) (bool, error) {
				fresh := &machinev1alpha1.Machine{}
				err := d.seed.Get(ctx, client.ObjectKeyFromObject(maintained), fresh)
				if err == nil && (fresh.UID != maintained.UID || fresh.DeletionTimestamp != nil) {
					return false, fmt.Errorf("machine %s was replaced", fresh.Name)
				}
				return fresh.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning, err
			})
		}},
		{"give back", "The work is done. The first node takes pods again, and the second node is handed over.", func(ctx context.Context) error {
			if err := d.kubectl(ctx, "delete", "nodemaintenance", "upgrade-0"); err != nil {
				return err
			}
			node := &corev1.Node{}
			if err := d.target.Get(ctx, client.ObjectKey{Name: nodeOf(maintained)}, node); err != nil {
				return err
			}
			if node.Spec.Unschedulable {
				return fmt.Errorf("node %s is still cordoned", node.Name)
			}
			if err := d.untilMaintenance(ctx, "upgrade-1", maintenancev1alpha1.PhaseReady); err != nil {
				return err
			}
			return d.kubectl(ctx, "get", "nodemaintenances,nodes")
		}},
		{"end", "The second node is given back, too. The same four machines run as before.", func(ctx context.Context) error {
			if err := d.kubectl(ctx, "delete", "nodemaintenance", "upgrade-1"); err != nil {
				return err
			}
			running, err := d.running(ctx, "")
			if err == nil && len(running) != 4 {
				err = fmt.Errorf("%d machines run", len(running))
			}
			return errors.Join(err, d.kubectl(ctx, "get", "nodes"))
		}},
	}
}

// maintenanceOf returns the manifest of a NodeMaintenance that requests the node of a machine.
func maintenanceOf(name string, machine *machinev1alpha1.Machine) string {
	return fmt.Sprintf(`apiVersion: maintenance.nvidia.com/v1alpha1
kind: NodeMaintenance
metadata:
  name: %s
  namespace: default
spec:
  requestorID: demo.example.org
  nodeName: %s
  drainSpec:
    deleteEmptyDir: true
`, name, nodeOf(machine))
}

func (d *demo) healthTimeout() time.Duration {
	return d.shoot.Spec.Provider.Workers[0].MachineControllerManagerSettings.MachineHealthTimeout.Duration
}

// untilMaintenance waits until a NodeMaintenance is in a phase.
func (d *demo) untilMaintenance(ctx context.Context, name, phase string) error {
	return d.until(ctx, func(ctx context.Context) (bool, error) {
		output, err := d.runKubectl(ctx, "", "get", "nodemaintenance", name, "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].reason}`)
		return output == phase, err
	})
}

// apply applies a manifest with kubectl, and prints both.
func (d *demo) apply(ctx context.Context, manifest string) error {
	fmt.Println(manifest)
	output, err := d.runKubectl(ctx, manifest, "apply", "-f", "-")
	landscape.Say("%s", strings.TrimSpace(output))
	return err
}

// kubectl runs kubectl with the shoot's kubeconfig, and prints the command and its output.
func (d *demo) kubectl(ctx context.Context, args ...string) error {
	landscape.Say("$ kubectl %s", strings.Join(args, " "))
	output, err := d.runKubectl(ctx, "", args...)
	fmt.Print(output)
	return err
}

func (d *demo) runKubectl(ctx context.Context, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, filepath.Join(d.landscape.Directory.Binaries(), "kubectl"), args...) // #nosec G204 -- it is the landscape's
	cmd.Env = append(os.Environ(), "KUBECONFIG="+d.landscape.Directory.ShootKubeconfig())
	cmd.Stdin = strings.NewReader(input)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("kubectl %s: %w: %s", strings.Join(args, " "), err, output)
	}
	return string(output), nil
}
