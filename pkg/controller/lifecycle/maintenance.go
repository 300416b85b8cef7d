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

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	reconcilerutils "github.com/gardener/gardener/pkg/controllerutils/reconciler"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/helper"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/nodemaintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/shootresources"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/webhook/machinecontrollermanager"
)

// deployWithMaintenance deploys the preservation controller, and the API of NodeMaintenances where the Shoot has it enabled.
//
// Enabling and disabling need the shoot's API server. That the ManagedResource with the API is there is the record that it was
// enabled: it comes after the look for who else has brought the API, and goes after what is in progress was set back. What
// begins or ends while the shoot hibernates goes on when it has woken up, as gardenlet has the Extension reconciled then.
func (a *Actuator) deployWithMaintenance(ctx context.Context, ex *extensionsv1alpha1.Extension, shoot *gardencorev1beta1.Shoot, values preservationcontroller.Values) error {
	// What is not valid is as good as none: nodes would be given away within limits that nobody has set.
	settings, err := helper.ReadNodeMaintenance(ex)
	isWanted := err == nil && settings != nil
	state, err := nodemaintenance.Resources(a.Client, ex.Namespace).State(ctx)
	if err != nil {
		return err
	}

	switch isAwake := hasServer(shoot); {
	case isWanted && state == shootresources.Present:
		values.NodeMaintenance = preservationcontroller.MaintenanceOn
	case isWanted && isAwake:
		values.NodeMaintenance = preservationcontroller.MaintenanceBeginning
	case !isWanted && state == shootresources.Present:
		values.NodeMaintenance = preservationcontroller.MaintenanceEnding
	}
	if err := a.deployController(ctx, ex.Namespace, values); err != nil {
		return err
	}

	switch values.NodeMaintenance {
	case preservationcontroller.MaintenanceOn:
		return nodemaintenance.New(a.Client, ex.Namespace, settings).Deploy(ctx)
	case preservationcontroller.MaintenanceBeginning:
		if err := a.beginMaintenance(ctx, ex.Namespace, settings); err != nil {
			return err
		}
		values.NodeMaintenance = preservationcontroller.MaintenanceOn
	case preservationcontroller.MaintenanceEnding:
		if !hasServer(shoot) {
			return nil
		}
		if err := a.waitForMaintainer(ctx, ex.Namespace); err != nil {
			return err
		}
		if err := a.endMaintenances(ctx, ex.Namespace); err != nil {
			return err
		}
		if err := nodemaintenance.Resources(a.Client, ex.Namespace).Destroy(ctx); err != nil {
			return fmt.Errorf("failed to delete the API of NodeMaintenances: %w", err)
		}
		values.NodeMaintenance = preservationcontroller.MaintenanceOff
	default:
		return nil
	}
	return a.deployController(ctx, ex.Namespace, values)
}

func (a *Actuator) deployController(ctx context.Context, namespace string, values preservationcontroller.Values) error {
	if err := preservationcontroller.New(a.Client, namespace, values).Deploy(ctx); err != nil {
		return fmt.Errorf("failed to deploy the preservation controller: %w", err)
	}
	return nil
}

// hasServer returns whether a shoot can be asked for something, and is to be: one that is being deleted is not.
func hasServer(shoot *gardencorev1beta1.Shoot) bool {
	return shoot != nil && shoot.DeletionTimestamp == nil && !v1beta1helper.HibernationIsEnabled(shoot)
}

// beginMaintenance brings the API into the shoot, unless somebody else has done so: two controllers would work on the same
// objects.
func (a *Actuator) beginMaintenance(ctx context.Context, namespace string, settings *preservation.NodeMaintenance) error {
	shoot, err := a.ShootClient(ctx, namespace)
	if err == nil {
		err = nodemaintenance.Check(ctx, shoot)
	}
	if _, ok := errors.AsType[*nodemaintenance.ForeignError](err); ok {
		return v1beta1helper.NewErrorWithCodes(err, gardencorev1beta1.ErrorConfigurationProblem)
	}
	if errors.Is(err, errNoToken) || apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
		return &reconcilerutils.RequeueAfterError{RequeueAfter: removalInterval, Cause: fmt.Errorf("waiting for access to the shoot: %w", err)}
	}
	if err != nil {
		return fmt.Errorf("failed to look who takes care of NodeMaintenances: %w", err)
	}
	return nodemaintenance.New(a.Client, namespace, settings).Deploy(ctx)
}

// waitForMaintainer waits until no container that takes care of NodeMaintenances is at work or will be: it would begin anew with
// what was set back. The webhook takes the flag away as soon as the access secret says so.
func (a *Actuator) waitForMaintainer(ctx context.Context, namespace string) error {
	wait := &reconcilerutils.RequeueAfterError{
		RequeueAfter: removalInterval,
		Cause:        errors.New("waiting for the preservation controller to let go of node maintenance"),
	}
	deployment, err := a.machineControllerManager(ctx, namespace)
	if err != nil {
		return err
	}
	if deployment != nil && maintains(machinecontrollermanager.Container(deployment)) {
		return wait
	}

	lease := &coordinationv1.Lease{}
	if err := a.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: preservationcontroller.Name}, lease); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil
		}
		return fmt.Errorf("failed to get Lease %q: %w", preservationcontroller.Name, err)
	}
	holder := preservationcontroller.HolderOf(lease, a.Clock.Now())
	if holder == "" {
		return nil
	}
	pods := &corev1.PodList{}
	if err := a.Client.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels{
		v1beta1constants.LabelApp:  v1beta1constants.LabelKubernetes,
		v1beta1constants.LabelRole: v1beta1constants.DeploymentNameMachineControllerManager,
	}); err != nil {
		return fmt.Errorf("failed to list pods: %w", err)
	}
	for _, pod := range pods.Items {
		if strings.HasPrefix(holder, pod.Name+"_") && !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return maintains(&c) }) {
			return nil
		}
	}
	return wait
}

func maintains(container *corev1.Container) bool {
	return container != nil && container.Name == preservationcontroller.Name && slices.Contains(container.Args, preservationcontroller.FlagNodeMaintenance)
}

// endMaintenances sets back what is in progress in a shoot that goes on without node maintenance. Of one that is deleted, the
// nodes go anyway, and of one that hibernates as well.
func (a *Actuator) endMaintenances(ctx context.Context, namespace string) error {
	shoot, err := extensionscontroller.GetShoot(ctx, a.Client, namespace)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("failed to get Shoot: %w", err)
	}
	if !hasServer(shoot) {
		return nil
	}
	state, err := nodemaintenance.Resources(a.Client, namespace).State(ctx)
	if err != nil || state != shootresources.Present {
		return err
	}

	shootClient, err := a.ShootClient(ctx, namespace)
	if err == nil {
		err = a.EndMaintenances(ctx, shootClient)
	}
	if err != nil {
		return fmt.Errorf("failed to set back the maintenances in progress: %w", err)
	}
	return nil
}
