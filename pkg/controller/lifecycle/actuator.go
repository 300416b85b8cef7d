// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	"github.com/gardener/gardener/extensions/pkg/controller/extension"
	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
	"github.com/gardener/gardener/pkg/utils/managedresources"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/machinecontrollermanager"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/machineevidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/machinefailures"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/nodemaintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/shootresources"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controlplane"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

const (
	// removalInterval is how long Delete waits before it looks again for the container.
	removalInterval = 5 * time.Second
	// removalTimeout is how long Delete waits for the container to disappear, counted from the first try to delete the Extension.
	removalTimeout = 5 * time.Minute
	// endTimeout is how long it waits of that for the container to end power cycles: a container that is still there when all else ends
	// would go on with it.
	endTimeout = removalTimeout - time.Minute
)

// Actuator handles Extensions of type machine-preservation.
type Actuator struct {
	// Client should not be backed by a cache: the actuator works rarely and on many kinds of resources.
	Client client.Client
	// Clock tells how long a deletion has taken.
	Clock clock.Clock
	// ShootClient returns a client for the nodes and the maintenances of a shoot, by its control-plane namespace.
	ShootClient func(ctx context.Context, namespace string) (client.Client, error)
	// EndMaintenances sets back what is in progress of the maintenances of a shoot. That there are none, or no API for them, is
	// no error.
	EndMaintenances func(ctx context.Context, shoot client.Client, now time.Time) error
	// Config is the component configuration, and HostDriver returns the driver for those of its hosts that are a shoot's.
	Config     configv1alpha1.ControllerConfiguration
	HostDriver hosts.DriverOf
	// Schemas tells how machines are held.
	Schemas *machinecrd.Schemas
	// Recorder records what becomes of machines.
	Recorder events.EventRecorder
}

var _ extension.Actuator = &Actuator{}

// Reconcile deploys what the preservation controller needs. That it is there lets the webhook inject it, which the
// injection controller sees to. Nothing is deployed for the first time with a configuration that is not valid.
func (a *Actuator) Reconcile(ctx context.Context, log logr.Logger, ex *extensionsv1alpha1.Extension) error {
	shoot, err := a.supportedShoot(ctx, log, ex.Namespace)
	if err != nil || shoot == nil {
		return err
	}
	if _, err := providerconfig.ReadExtension(ex, share.PoolsOfShoot(shoot.Spec.Provider.Workers)); err != nil {
		_, deployed, getErr := a.marks(ctx, ex.Namespace)
		if getErr != nil {
			return getErr
		}
		if !deployed {
			return v1beta1helper.NewErrorWithCodes(fmt.Errorf("invalid configuration: %w", err), gardencorev1beta1.ErrorConfigurationProblem)
		}
		// An error would keep the whole Shoot from being reconciled, while its owner can no longer be asked: admission lets a
		// Shoot pass that is older than a rule. The shares and node maintenance stay what they are, which a health check tells
		// of the shares and Events of both, and there are no drain strategies if these are what is not valid.
		log.Info("Provider configuration is not valid, going on with the shares and node maintenance as they are", "reason", err.Error())
	}
	err = a.deploy(ctx, ex, shoot)
	// Of Reconcile, and of nothing else, Gardener's reconciler forgets after which time it is to be called again. Errors have a
	// back-off.
	if requeue, ok := errors.AsType[*reconcilerutils.RequeueAfterError](err); ok {
		return requeue.Cause
	}
	return err
}

// Delete removes the container from machine-controller-manager, when it has ended its power cycles. When it is gone, all
// preservations end, hosts that are left are released, and what the container needed is deleted. Hosts are tried to be released
// without end, because they would be off for good otherwise (X2).
func (a *Actuator) Delete(ctx context.Context, log logr.Logger, ex *extensionsv1alpha1.Extension) error {
	since, err := a.triedSince(ctx, ex)
	if err != nil {
		return err
	}
	tried := a.Clock.Since(since)
	seed, err := a.switchedOn(ctx, ex.Namespace)
	if err != nil {
		return err
	}
	if seed != "" && tried < endTimeout {
		if err := a.waitForReleases(ctx, ex.Namespace, seed); err != nil {
			return err
		}
		if err := a.waitForMarks(ctx, ex.Namespace); err != nil {
			return err
		}
	}
	removed, err := a.removeContainer(ctx, ex.Namespace)
	if err != nil {
		return err
	}
	holder, err := a.holder(ctx, ex.Namespace)
	if err != nil {
		return err
	}
	if removed || holder != "" {
		// Gardener takes the namespace out of the webhook's selector first, but a replica with an old cache may still have
		// added the container back, or gardenlet may be about to write. It is not waited for without end: that would keep
		// the Shoot from being deleted.
		if tried < removalTimeout {
			return lookAgain("the preservation controller is being removed from machine-controller-manager")
		}
		log.Info("Giving up waiting for the container to be removed", "containerName", preservationcontroller.Name)
	}
	shoot, err := extensionscontroller.GetShoot(ctx, a.Client, ex.Namespace)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("failed to get Shoot: %w", err)
	}
	// Nodes do not wait for hosts, which may be away, or be serviced, for longer than nodes are waited for (P12). Preservations do (X15).
	waitForNodes := tried < nodesTimeout
	errs := []error{a.leavePowerCycles(ctx, ex.Namespace, waitForNodes && hasServer(shoot))}
	if waitForNodes {
		errs = append(errs, a.leaveMaintenances(ctx, ex.Namespace, shoot), a.leaveDrains(ctx, ex, shoot))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	if err := a.endPreservations(ctx, ex.Namespace, shoot, waitForNodes); err != nil {
		return fmt.Errorf("failed to end the preservations: %w", err)
	}
	return a.destroy(ctx, ex.Namespace)
}

// triedSince returns when the extension first tried to delete an Extension, and writes it there. What was away when the deletion was requested
// has not waited for anything by then.
func (a *Actuator) triedSince(ctx context.Context, ex *extensionsv1alpha1.Extension) (time.Time, error) {
	if since, err := time.Parse(time.RFC3339, ex.Annotations[v1alpha1.AnnotationDeletingSince]); err == nil {
		return since, nil
	}
	now, patch := a.Clock.Now(), client.MergeFrom(ex.DeepCopy())
	metav1.SetMetaDataAnnotation(&ex.ObjectMeta, v1alpha1.AnnotationDeletingSince, now.UTC().Format(time.RFC3339))
	if err := a.Client.Patch(ctx, ex, patch); client.IgnoreNotFound(err) != nil {
		return now, fmt.Errorf("failed to write on the Extension since when it is being deleted: %w", err)
	}
	return now, nil
}

// ForceDelete deletes the container and what it needs without waiting for anything: the API server of the shoot may be gone
// for good, and machine-controller-manager with it. Preserved machines are deleted with the shoot. Hosts that cannot be released
// within some time are left off.
func (a *Actuator) ForceDelete(ctx context.Context, log logr.Logger, ex *extensionsv1alpha1.Extension) error {
	if _, err := a.removeContainer(ctx, ex.Namespace); err != nil {
		return err
	}
	if err := a.forceLeavePowerCycles(ctx, log, ex.Namespace); err != nil {
		return err
	}
	for _, resources := range []shootresources.Resources{
		nodemaintenance.Resources(a.Client, ex.Namespace), machinefailures.Resources(a.Client, ex.Namespace), machineevidence.Resources(a.Client, ex.Namespace),
	} {
		if err := resources.Destroy(ctx); err != nil {
			return err
		}
	}
	return preservationcontroller.New(a.Client, ex.Namespace, preservationcontroller.Values{MachineHours: a.Config.MaxMachineHours != nil}).Destroy(ctx)
}

// Migrate deletes the container and the resources in this seed, and leaves those in the shoot to the next one. The state of
// preserved machines is in the machines, that of NodeMaintenances in them. gardenlet deletes machine-controller-manager at the
// same time. Hosts are released, because they know this seed.
func (a *Actuator) Migrate(ctx context.Context, log logr.Logger, ex *extensionsv1alpha1.Extension) error {
	if _, err := a.removeContainer(ctx, ex.Namespace); err != nil {
		return err
	}
	if err := a.migratePowerCycles(ctx, log, ex.Namespace); err != nil {
		return err
	}
	for _, name := range []string{preservationcontroller.ManagedResourceName, machinefailures.ManagedResourceName, machineevidence.ManagedResourceName} {
		if err := managedresources.SetKeepObjects(ctx, a.Client, ex.Namespace, name, true); err != nil {
			return fmt.Errorf("failed to keep the resources in the shoot: %w", err)
		}
	}
	return a.destroy(ctx, ex.Namespace)
}

// Restore deploys in this seed what Migrate has deleted in the other one. That it was there once, nothing here tells, so
// it is deployed whatever the configuration is. What could not be enabled there is none of its concern.
func (a *Actuator) Restore(ctx context.Context, log logr.Logger, ex *extensionsv1alpha1.Extension) error {
	shoot, err := a.supportedShoot(ctx, log, ex.Namespace)
	if err != nil || shoot == nil {
		return err
	}
	err = a.deploy(ctx, ex, shoot)
	if foreign, ok := errors.AsType[*nodemaintenance.ForeignError](err); ok {
		log.Info("Restoring without node maintenance", "reason", foreign.Error())
		return nil
	}
	return err
}

// supportedShoot returns the Shoot for which something is to be deployed, nil if that is self-hosted, which is not supported.
func (a *Actuator) supportedShoot(ctx context.Context, log logr.Logger, namespace string) (*gardencorev1beta1.Shoot, error) {
	if !controlplane.IsSupported(namespace) {
		log.Info("Self-hosted shoots are not supported, nothing is deployed")
		return nil, nil
	}
	shoot, err := extensionscontroller.GetShoot(ctx, a.Client, namespace)
	if err != nil {
		return nil, fmt.Errorf("failed to get Shoot: %w", err)
	}
	if shoot == nil {
		return nil, fmt.Errorf("there is no Shoot in Cluster %q", namespace)
	}
	return shoot, nil
}

// deploy waits until gardener-resource-manager has taken away what a former Extension had in the shoot. In a hibernated shoot
// nothing is needed: when it wakes up, gardenlet has the Extension reconciled again.
func (a *Actuator) deploy(ctx context.Context, ex *extensionsv1alpha1.Extension, shoot *gardencorev1beta1.Shoot) error {
	values := preservationcontroller.Values{MachineHours: a.Config.MaxMachineHours != nil}
	if strategies, err := providerconfig.ReadDrainStrategies(ex); err == nil {
		values.DrainStrategies = strategies
	}
	var err error
	if values.Evidence, values.NodeLogs, err = a.storesEvidence(ctx, ex); err != nil {
		return err
	}
	if values.Failures, err = a.tellsOfFailures(ctx, ex); err != nil {
		return err
	}
	powerCycle, isEnding, err := a.powerCycleOf(ctx, ex)
	if err != nil {
		return err
	}
	var terminating, evidenceTerminating error
	if values.Failures {
		if terminating = machinefailures.Deploy(ctx, a.Client, ex.Namespace); errors.Is(terminating, shootresources.ErrTerminating) {
			values.Failures = false // as long as the former API goes; all else does not wait for that
		} else if terminating != nil {
			return terminating
		}
	}
	if values.Evidence {
		// It is stored in the seed all the same as long as the former namespace in the shoot goes.
		if evidenceTerminating = machineevidence.Deploy(ctx, a.Client, ex.Namespace); evidenceTerminating != nil && !errors.Is(evidenceTerminating, shootresources.ErrTerminating) {
			return evidenceTerminating
		}
	}
	deploy := func(powerCycle *preservationcontroller.PowerCycle) error {
		values.PowerCycle = powerCycle
		return a.deployWithMaintenance(ctx, ex, shoot, values)
	}
	if err = deploy(powerCycle); err == nil && isEnding {
		err = a.endPowerCycles(ctx, ex.Namespace, shoot, powerCycle, deploy)
	}
	if err == nil && !values.Failures && terminating == nil { // nobody may write any by now
		err = machinefailures.Resources(a.Client, ex.Namespace).Destroy(ctx)
	}
	if err == nil && !values.Evidence {
		err = machineevidence.Resources(a.Client, ex.Namespace).Destroy(ctx)
	}
	if err == nil {
		err = errors.Join(terminating, evidenceTerminating)
	}
	if errors.Is(err, shootresources.ErrTerminating) {
		return a.waitForResourceManager(ctx, ex.Namespace, err)
	}
	return err
}

// tellsOfFailures returns whether failures are to be told of, as before if what the Extension says is not valid: all that was told would
// be deleted.
func (a *Actuator) tellsOfFailures(ctx context.Context, ex *extensionsv1alpha1.Extension) (bool, error) {
	if !a.Config.Failures.IsEnabled() {
		return false, nil
	}
	if tells, err := providerconfig.ReadFailures(ex); err == nil {
		return tells, nil
	}
	marks, _, err := a.marks(ctx, ex.Namespace)
	return marks[preservationcontroller.AnnotationFailures] == "true", err
}

// storesEvidence returns whether evidence is to be stored, as before if what the Extension says is not valid: what was stored would
// be deleted. It is not where operators have not enabled it. It also returns whether logs of nodes are part of it.
func (a *Actuator) storesEvidence(ctx context.Context, ex *extensionsv1alpha1.Extension) (stores, nodeLogs bool, err error) {
	if !a.Config.Evidence.IsEnabled() {
		return false, false, nil
	}
	evidence, err := providerconfig.ReadEvidence(ex)
	if err == nil {
		return evidence != nil, evidence != nil && *evidence.NodeLogs, nil
	}
	marks, _, err := a.marks(ctx, ex.Namespace)
	return marks[preservationcontroller.AnnotationEvidence] == "true", false, err
}

// marks returns the annotations of the access secret, which say what is deployed, and whether there is one. It is deployed last.
func (a *Actuator) marks(ctx context.Context, namespace string) (marks map[string]string, deployed bool, err error) {
	secret := &corev1.Secret{}
	err = a.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: preservationcontroller.AccessSecretName}, secret)
	if client.IgnoreNotFound(err) != nil {
		return nil, false, fmt.Errorf("failed to get Secret %q: %w", preservationcontroller.AccessSecretName, err)
	}
	return secret.Annotations, err == nil, nil
}

// machines returns the Machines of a shoot.
func (a *Actuator) machines(ctx context.Context, namespace string) ([]machinev1alpha1.Machine, error) {
	machines := &machinev1alpha1.MachineList{}
	if err := a.Client.List(ctx, machines, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("failed to list Machines: %w", err)
	}
	return machines.Items, nil
}

// destroy deletes what the container needed, and looks once whether gardener-resource-manager has taken away what is in the
// shoot. In a hibernated shoot it does not run, and does so when the shoot wakes up.
func (a *Actuator) destroy(ctx context.Context, namespace string) error {
	if err := preservationcontroller.New(a.Client, namespace, preservationcontroller.Values{MachineHours: a.Config.MaxMachineHours != nil}).Destroy(ctx); err != nil {
		return fmt.Errorf("failed to delete the preservation controller: %w", err)
	}
	maintenance := nodemaintenance.Resources(a.Client, namespace)
	if err := maintenance.Destroy(ctx); err != nil {
		return fmt.Errorf("failed to delete the API of NodeMaintenances: %w", err)
	}
	failures := machinefailures.Resources(a.Client, namespace)
	if err := failures.Destroy(ctx); err != nil {
		return fmt.Errorf("failed to delete the API of MachineFailures: %w", err)
	}
	evidence := machineevidence.Resources(a.Client, namespace)
	if err := evidence.Destroy(ctx); err != nil {
		return fmt.Errorf("failed to delete the namespace of evidence in the shoot: %w", err)
	}
	for _, resources := range []shootresources.Resources{preservationcontroller.Resources(a.Client, namespace), maintenance, failures, evidence} {
		state, err := resources.State(ctx)
		if err != nil {
			return err
		}
		if state != shootresources.Absent {
			return a.waitForResourceManager(ctx, namespace, fmt.Errorf("ManagedResource %q %w", resources.Name, shootresources.ErrTerminating))
		}
	}
	return nil
}

// waitForResourceManager has the ManagedResource that is being deleted looked at again, unless the shoot is hibernated and
// gardener-resource-manager does not run.
func (a *Actuator) waitForResourceManager(ctx context.Context, namespace string, cause error) error {
	shoot, err := extensionscontroller.GetShoot(ctx, a.Client, namespace)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("failed to get Shoot: %w", err)
	}
	if shoot != nil && v1beta1helper.HibernationIsEnabled(shoot) && shoot.Status.IsHibernated {
		return nil
	}
	return lookAgain("%w", cause)
}

// lookAgain returns an error that says what is waited for, and has the Extension looked at again soon.
func lookAgain(format string, args ...any) error {
	return &reconcilerutils.RequeueAfterError{RequeueAfter: removalInterval, Cause: fmt.Errorf(format, args...)}
}

// removeContainer removes the container and its volumes from machine-controller-manager and returns whether they were
// there. Nothing else would, before gardenlet writes the Deployment again.
func (a *Actuator) removeContainer(ctx context.Context, namespace string) (bool, error) {
	deployment, err := a.machineControllerManager(ctx, namespace)
	if err != nil || deployment == nil || machinecontrollermanager.Container(deployment) == nil {
		return false, err
	}

	patch := client.StrategicMergeFrom(deployment.DeepCopy())
	pod := &deployment.Spec.Template.Spec
	pod.Containers = extensionswebhook.EnsureNoContainerWithName(pod.Containers, preservationcontroller.Name)
	machinecontrollermanager.RemoveVolumes(pod)
	if err := a.Client.Patch(ctx, deployment, patch); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("failed to remove the container from Deployment %q: %w", deployment.Name, err)
	}
	return true, nil
}

// machineControllerManager returns the Deployment, nil if there is none.
func (a *Actuator) machineControllerManager(ctx context.Context, namespace string) (*appsv1.Deployment, error) {
	deployment := &appsv1.Deployment{}
	key := client.ObjectKey{Namespace: namespace, Name: v1beta1constants.DeploymentNameMachineControllerManager}
	if err := a.Client.Get(ctx, key, deployment); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("failed to get Deployment %q: %w", key.Name, err)
	}
	return deployment, nil
}
