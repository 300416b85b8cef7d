// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
	"github.com/gardener/gardener/pkg/utils/secrets"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/helper"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
)

const (
	// hostTimeout bounds each request to the cluster that the hosts are in.
	hostTimeout = 10 * time.Second
	// forceTimeout is how long ForceDelete tries to release hosts.
	forceTimeout = 30 * time.Second
)

// errNoHosts says that the component configuration has no hosts, where some of a shoot may be off.
var errNoHosts = errors.New("the component configuration has no hosts any more, but some of this shoot may still be off: " +
	"configure them again, with disabled: true, until all Shoots have been reconciled")

// powerCycleOf returns what the container has to do with hosts, nil for nothing, and whether it is to come to its end (X15). That
// the access secret names a seed is the record that it was switched on: it comes before the container can power off a host, and
// goes after all hosts are released.
//
// What is not valid switches nothing on and nothing off.
func (a *Actuator) powerCycleOf(ctx context.Context, ex *extensionsv1alpha1.Extension) (powerCycle *preservationcontroller.PowerCycle, isEnding bool, err error) {
	secret, err := a.accessSecret(ctx, ex.Namespace)
	if err != nil {
		return nil, false, err
	}
	var (
		seed string
		isOn bool
	)
	if secret != nil {
		seed, isOn = secret.Annotations[preservationcontroller.AnnotationPowerCycleSeed], secret.Annotations[preservationcontroller.AnnotationPowerCycle] == "true"
	}
	isWanted, err := helper.HasPowerCycle(ex)
	if err != nil {
		isWanted = isOn
	}
	isWanted = isWanted && a.Hosts != nil && !a.Hosts.Disabled

	switch {
	case seed == "" && !isWanted:
		return nil, false, nil
	case a.Hosts == nil:
		return nil, false, errNoHosts
	case seed == "":
		if seed, err = a.seedName(ctx, ex.Namespace); err != nil {
			return nil, false, err
		}
	}
	return &preservationcontroller.PowerCycle{Hosts: a.Hosts, Seed: seed, Ending: !isWanted && !isOn}, !isWanted, nil
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

// endPowerCycles waits until the container has released all hosts, takes the flag away from it, and releases those that are left.
// deploy deploys the preservation controller. Where no container is at work, it is not waited for.
func (a *Actuator) endPowerCycles(ctx context.Context, namespace string, shoot *gardencorev1beta1.Shoot, powerCycle *preservationcontroller.PowerCycle, deploy func(*preservationcontroller.PowerCycle) error) error {
	if !powerCycle.Ending {
		if err := a.waitForReleases(ctx, namespace, powerCycle.Seed); err != nil {
			return err
		}
		if err := deploy(&preservationcontroller.PowerCycle{Hosts: powerCycle.Hosts, Seed: powerCycle.Seed, Ending: true}); err != nil {
			return err
		}
	}
	// The flag stays on a Deployment that is scaled down, as nobody writes it. Without settings nothing is begun anew with it.
	if shoot == nil || !v1beta1helper.HibernationIsEnabled(shoot) {
		if err := a.waitForContainer(ctx, namespace, preservationcontroller.FlagPowerCycle, "hosts"); err != nil {
			return err
		}
	}
	if err := a.release(ctx, namespace, powerCycle.Seed); err != nil {
		return err
	}
	if err := a.forgetPowerCycles(ctx, namespace, hasServer(shoot)); err != nil {
		return err
	}
	return deploy(nil)
}

// waitForReleases waits while a container is at work that has hosts to release. It does so as soon as the MachineDeployments have
// no settings any more.
func (a *Actuator) waitForReleases(ctx context.Context, namespace, seed string) error {
	holder, err := a.holder(ctx, namespace)
	if err != nil || holder == "" {
		return err
	}
	driver, err := a.hostDriver(ctx, namespace)
	if err != nil || driver == nil {
		return err
	}
	hosts, err := driver.Owned(ctx, seed, namespace)
	if errors.Is(err, host.ErrNoKind) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("failed to list hosts: %w", err)
	}
	if len(hosts) > 0 {
		return &reconcilerutils.RequeueAfterError{
			RequeueAfter: removalInterval,
			Cause:        fmt.Errorf("waiting for the preservation controller to release %d hosts", len(hosts)),
		}
	}
	return nil
}

// release releases all hosts of a shoot (X2). It goes on after an error.
func (a *Actuator) release(ctx context.Context, namespace, seed string) error {
	driver, err := a.hostDriver(ctx, namespace)
	if err != nil || driver == nil {
		return err
	}
	hosts, err := driver.Owned(ctx, seed, namespace)
	if errors.Is(err, host.ErrNoKind) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("failed to list hosts: %w", err)
	}
	var errs []error
	for i := range hosts {
		if err := driver.Release(ctx, &hosts[i]); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("failed to release host %s/%s: %w", hosts[i].Namespace, hosts[i].Name, err))
		}
	}
	return errors.Join(errs...)
}

// hostDriver returns nil if the Secret with the kubeconfig is gone: who took it away has seen to the hosts.
func (a *Actuator) hostDriver(ctx context.Context, namespace string) (host.Driver, error) {
	if a.Hosts == nil {
		return nil, errNoHosts
	}
	driver, err := a.HostDriver(ctx, namespace)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("failed to reach the hosts: %w", err)
	}
	return driver, nil
}

// powerCycleMarks are the annotations of power cycles on Machines that nobody else sets.
var powerCycleMarks = []string{
	v1alpha1.AnnotationPowerCyclePhase,
	v1alpha1.AnnotationPowerCycleAttempt,
	v1alpha1.AnnotationPowerCycleRecord,
	v1alpha1.AnnotationRemediation,
}

// forgetPowerCycles removes from Machines what would keep them, and from nodes what keeps pods away, as nobody else would any
// more. The Machine comes last: it is the record of the taint.
func (a *Actuator) forgetPowerCycles(ctx context.Context, namespace string, withNodes bool) error {
	machines := &machinev1alpha1.MachineList{}
	if err := a.Client.List(ctx, machines, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("failed to list Machines: %w", err)
	}
	for i := range machines.Items {
		machine := &machines.Items[i]
		if withNodes && machine.Annotations[v1alpha1.AnnotationRemediation] != "" {
			if err := a.untaint(ctx, namespace, machine.Labels[machinev1alpha1.NodeLabelKey]); err != nil {
				return err
			}
		}
		patch := client.MergeFromWithOptions(machine.DeepCopy(), client.MergeFromWithOptimisticLock{})
		changed := controllerutil.RemoveFinalizer(machine, v1alpha1.FinalizerHost)
		for _, key := range powerCycleMarks {
			if _, ok := machine.Annotations[key]; ok {
				delete(machine.Annotations, key)
				changed = true
			}
		}
		if !changed {
			continue
		}
		if err := a.Client.Patch(ctx, machine, patch); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("failed to patch Machine %q: %w", machine.Name, err)
		}
	}
	return nil
}

// untaint removes the taint of a node that was made safe.
func (a *Actuator) untaint(ctx context.Context, namespace, name string) error {
	if name == "" {
		return nil
	}
	shoot, err := a.ShootClient(ctx, namespace)
	if err != nil {
		return fmt.Errorf("failed to create the client for the shoot: %w", err)
	}
	node := &corev1.Node{}
	if err := shoot.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("failed to get Node %q: %w", name, err)
	}
	patch := client.MergeFromWithOptions(node.DeepCopy(), client.MergeFromWithOptimisticLock{})
	before := len(node.Spec.Taints)
	node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
	if len(node.Spec.Taints) == before {
		return nil
	}
	if err := shoot.Patch(ctx, node, patch); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("failed to remove the taint of Node %q: %w", name, err)
	}
	return nil
}

// switchedOn returns the name by which hosts know this seed, empty where there is nothing to be ended.
func (a *Actuator) switchedOn(ctx context.Context, namespace string) (string, error) {
	secret, err := a.accessSecret(ctx, namespace)
	if err != nil || secret == nil {
		return "", err
	}
	return secret.Annotations[preservationcontroller.AnnotationPowerCycleSeed], nil
}

// leavePowerCycles releases the hosts of a shoot that has no container any more.
func (a *Actuator) leavePowerCycles(ctx context.Context, namespace string, withNodes bool) error {
	seed, err := a.switchedOn(ctx, namespace)
	if err != nil || seed == "" {
		return err
	}
	if err := a.release(ctx, namespace, seed); err != nil {
		return err
	}
	return a.forgetPowerCycles(ctx, namespace, withNodes)
}

// migratePowerCycles releases the hosts when no container is at work that could power off one of them again.
func (a *Actuator) migratePowerCycles(ctx context.Context, namespace string) error {
	seed, err := a.switchedOn(ctx, namespace)
	if err != nil || seed == "" {
		return err
	}
	holder, err := a.holder(ctx, namespace)
	if err != nil {
		return err
	}
	if holder != "" {
		return &reconcilerutils.RequeueAfterError{
			RequeueAfter: removalInterval,
			Cause:        errors.New("waiting for the preservation controller to stop, so that its hosts can be released"),
		}
	}
	return a.release(ctx, namespace, seed)
}

// tryToLeavePowerCycles does the same as well as it can, within some time.
func (a *Actuator) tryToLeavePowerCycles(ctx context.Context, log logr.Logger, namespace string) {
	ctx, cancel := context.WithTimeout(ctx, forceTimeout)
	defer cancel()
	if err := a.leavePowerCycles(ctx, namespace, false); err != nil {
		log.Error(err, "Deleting by force although hosts may be left off")
	}
}

// NewHostDriver makes the driver of a kind for the hosts of the machines in a namespace.
type NewHostDriver func(kind configv1alpha1.HostKind, namespace string, hosts client.Client) (host.Driver, error)

// hostDriver returns a function that makes the driver for the hosts of a shoot. The error is a NotFound if the Secret with the
// kubeconfig does not exist.
func hostDriver(seed client.Client, hosts *configv1alpha1.Hosts, newDriver NewHostDriver) func(ctx context.Context, namespace string) (host.Driver, error) {
	return func(ctx context.Context, namespace string) (host.Driver, error) {
		if hosts.KubeconfigSecretName == "" {
			return newDriver(hosts.Kind, namespace, seed)
		}
		secret := &corev1.Secret{}
		if err := seed.Get(ctx, client.ObjectKey{Namespace: namespace, Name: hosts.KubeconfigSecretName}, secret); err != nil {
			return nil, fmt.Errorf("failed to get Secret %q: %w", hosts.KubeconfigSecretName, err)
		}
		config, err := kubernetesclient.RESTConfigFromKubeconfig(secret.Data[secrets.DataKeyKubeconfig])
		if err != nil {
			return nil, fmt.Errorf("failed to read the kubeconfig in Secret %q: %w", hosts.KubeconfigSecretName, err)
		}
		config.Timeout = hostTimeout
		c, err := client.New(config, client.Options{})
		if err != nil {
			return nil, fmt.Errorf("failed to create the client for the hosts: %w", err)
		}
		return newDriver(hosts.Kind, namespace, c)
	}
}
