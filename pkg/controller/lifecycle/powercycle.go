// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	sidecar "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/remediation"
)

// forceTimeout is how long ForceDelete tries to release hosts, and Migrate to clean nodes.
const forceTimeout = 30 * time.Second

// powerCycleOf returns what the container has to do with hosts, nil for nothing, and whether it is to come to its end (X15). That
// the access secret names a seed is the record that it was switched on: it comes before the container can power off a host, and
// goes after all hosts are released.
//
// What is not valid switches nothing on and nothing off.
func (a *Actuator) powerCycleOf(ctx context.Context, ex *extensionsv1alpha1.Extension) (powerCycle *preservationcontroller.PowerCycle, isEnding bool, err error) {
	marks, _, err := a.marks(ctx, ex.Namespace)
	if err != nil {
		return nil, false, err
	}
	seed, isOn := marks[preservationcontroller.AnnotationPowerCycleSeed], marks[preservationcontroller.AnnotationPowerCycle] == "true"
	isWanted, err := providerconfig.HasPowerCycle(ex)
	if err != nil {
		isWanted = isOn
	}
	isWanted = isWanted && a.Config.Hosts != nil && !a.Config.Hosts.Disabled

	switch {
	case seed == "" && !isWanted:
		return nil, false, nil
	case a.Config.Hosts == nil:
		return nil, false, errNoHosts
	case seed == "":
		if seed, err = a.seedName(ctx, ex.Namespace); err != nil {
			return nil, false, err
		}
	}
	return &preservationcontroller.PowerCycle{Hosts: a.Config.Hosts, Seed: seed, Ending: !isWanted && !isOn}, !isWanted, nil
}

func (a *Actuator) seedName(ctx context.Context, namespace string) (string, error) {
	cluster, err := extensionscontroller.GetCluster(ctx, a.Client, namespace)
	if err != nil {
		return "", fmt.Errorf("failed to get Cluster: %w", err)
	}
	if cluster.Seed == nil || cluster.Seed.Name == "" {
		return "", fmt.Errorf("there is no Seed in Cluster %q", namespace)
	}
	return cluster.Seed.Name, nil
}

// endPowerCycles waits until the container has released all hosts, and no longer preserves machines whose nodes are still away: it does so
// only with its flag. Then it takes the flag away, and releases the hosts that are left. deploy deploys the preservation controller. Where
// no container is at work, it is not waited for.
func (a *Actuator) endPowerCycles(ctx context.Context, namespace string, shoot *gardencorev1beta1.Shoot, powerCycle *preservationcontroller.PowerCycle, deploy func(*preservationcontroller.PowerCycle) error) error {
	if !powerCycle.Ending {
		if err := a.waitForReleases(ctx, namespace, powerCycle.Seed); err != nil {
			return err
		}
		if err := a.waitForNodes(ctx, namespace); err != nil {
			return err
		}
		if err := deploy(&preservationcontroller.PowerCycle{Hosts: powerCycle.Hosts, Seed: powerCycle.Seed, Ending: true}); err != nil {
			return err
		}
	}
	// The flag stays on a Deployment that is scaled down, because nobody writes it. Without settings nothing is begun anew with it.
	if shoot == nil || !v1beta1helper.HibernationIsEnabled(shoot) {
		if err := a.waitForContainer(ctx, namespace, preservationcontroller.FlagPowerCycle, "hosts"); err != nil {
			return err
		}
	}
	if err := errors.Join(a.release(ctx, namespace, powerCycle.Seed), a.forgetPowerCycles(ctx, namespace, hasServer(shoot))); err != nil {
		return err
	}
	return deploy(nil)
}

// waitForReleases waits while a container is at work that has hosts to release. It does so as soon as the MachineDeployments have
// no settings any more. A host whose request somebody else has taken back is not waited for: release sees to what is left on it.
func (a *Actuator) waitForReleases(ctx context.Context, namespace, seed string) error {
	holder, err := a.holder(ctx, namespace)
	if err != nil || holder == "" {
		return err
	}
	_, hosts, err := a.ownedHosts(ctx, namespace, seed)
	if err != nil {
		return err
	}
	hosts = slices.DeleteFunc(hosts, func(h remediation.Host) bool { return !h.Requested })
	if len(hosts) > 0 {
		return lookAgain("waiting for the preservation controller to release %s", brief.Count(len(hosts), "host"))
	}
	return nil
}

// waitForNodes waits while a container is at work that preserves machines whose power cycles have been stopped, or have failed, until their nodes
// are back (X10). Until when it does, is on the Machines.
func (a *Actuator) waitForNodes(ctx context.Context, namespace string) error {
	return a.waitForMachines(ctx, namespace, "waiting for the nodes of machines whose power cycles were stopped: %s", func(m *machinev1alpha1.Machine) bool {
		return a.Clock.Now().Before(remediation.KeptUntil(m))
	})
}

// waitForMarks waits while a container is at work that has something of power cycles to remove from Machines, and from their nodes
// before.
func (a *Actuator) waitForMarks(ctx context.Context, namespace string) error {
	return a.waitForMachines(ctx, namespace, "waiting for the preservation controller to end the power cycles of machines: %s", remediation.Forget)
}

// waitForMachines waits while a container is at work, and there is a machine that is waited for. The format has a place for their names.
func (a *Actuator) waitForMachines(ctx context.Context, namespace, format string, isWaitedFor func(*machinev1alpha1.Machine) bool) error {
	holder, err := a.holder(ctx, namespace)
	if err != nil || holder == "" {
		return err
	}
	machines, err := a.machines(ctx, namespace)
	if err != nil {
		return err
	}
	var names []string
	for i := range machines {
		if m := &machines[i]; m.DeletionTimestamp == nil && isWaitedFor(m) {
			names = append(names, m.Name)
		}
	}
	if len(names) > 0 {
		return lookAgain(format, strings.Join(brief.First(names, 3), ", "))
	}
	return nil
}

// forgetPowerCycles removes from nodes what keeps pods away, and then from Machines what would keep them, because nobody else would any
// more (X15). The Machines come last: they are the record of what is ours on the nodes. Only their deletion does not wait (X2).
func (a *Actuator) forgetPowerCycles(ctx context.Context, namespace string, withNodes bool) error {
	machines, err := a.machines(ctx, namespace)
	if err != nil {
		return err
	}
	forget, errs := remediation.Forget, []error(nil)
	if withNodes {
		if err := a.cleanNodes(ctx, namespace, machines); err != nil {
			errs = append(errs, err)
			forget = func(machine *machinev1alpha1.Machine) bool {
				return controllerutil.RemoveFinalizer(machine, v1alpha1.FinalizerHost)
			}
		}
	}
	for i := range machines {
		machine := &machines[i]
		patch := client.MergeFromWithOptions(machine.DeepCopy(), client.MergeFromWithOptimisticLock{})
		if !forget(machine) {
			continue
		}
		if err := a.Client.Patch(ctx, machine, patch); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("failed to patch Machine %q: %w", machine.Name, err))
		}
	}
	return errors.Join(errs...)
}

// cleanNodes removes from all nodes what power cycles have left there: the taint from those whose machines say that it is ours.
func (a *Actuator) cleanNodes(ctx context.Context, namespace string, machines []machinev1alpha1.Machine) error {
	shoot, err := a.ShootClient(ctx, namespace)
	if err != nil {
		return fmt.Errorf("failed to create the client for the shoot: %w", err)
	}
	return sidecar.End(ctx, shoot, machines)
}

// switchedOn returns the name by which hosts know this seed, empty where there is nothing to be ended.
func (a *Actuator) switchedOn(ctx context.Context, namespace string) (string, error) {
	marks, _, err := a.marks(ctx, namespace)
	return marks[preservationcontroller.AnnotationPowerCycleSeed], err
}

// leavePowerCycles releases the hosts of a shoot that has no container any more. Hosts that cannot be released do not
// prevent machines from being deleted: these hosts are found by their owner.
func (a *Actuator) leavePowerCycles(ctx context.Context, namespace string, withNodes bool) error {
	seed, err := a.switchedOn(ctx, namespace)
	if err != nil || seed == "" {
		return err
	}
	return errors.Join(a.release(ctx, namespace, seed), a.forgetPowerCycles(ctx, namespace, withNodes))
}

// migratePowerCycles releases the hosts when no container is at work that could power off one of them again. Nodes are cleaned as
// well as can be: the other seed may have no hosts, and nobody would do so there.
func (a *Actuator) migratePowerCycles(ctx context.Context, log logr.Logger, namespace string) error {
	seed, err := a.switchedOn(ctx, namespace)
	if err != nil || seed == "" {
		return err
	}
	holder, err := a.holder(ctx, namespace)
	if err != nil {
		return err
	}
	if holder != "" {
		return lookAgain("waiting for the preservation controller to stop, so that its hosts can be released")
	}
	if err := a.release(ctx, namespace, seed); err != nil {
		return err
	}
	machines, err := a.machines(ctx, namespace)
	if err != nil {
		return err
	}
	impatient, cancel := context.WithTimeout(ctx, forceTimeout)
	defer cancel()
	if err := a.cleanNodes(impatient, namespace, machines); err != nil {
		log.Error(err, "Migrating although nodes may be left out of service")
	}
	return nil
}

// forceLeavePowerCycles releases as many hosts as it can, within some time, and does without the nodes.
func (a *Actuator) forceLeavePowerCycles(ctx context.Context, log logr.Logger, namespace string) error {
	seed, err := a.switchedOn(ctx, namespace)
	if err != nil || seed == "" {
		return err
	}
	impatient, cancel := context.WithTimeout(ctx, forceTimeout)
	defer cancel()
	if err := a.release(impatient, namespace, seed); err != nil {
		log.Error(err, "Deleting by force although hosts may be left off")
	}
	return a.forgetPowerCycles(ctx, namespace, false)
}
