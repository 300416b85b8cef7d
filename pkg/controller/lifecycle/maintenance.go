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

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/machinecontrollermanager"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/nodemaintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/shootresources"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/worker"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig"
)

// eventActionDeploy is the action of Events about what is deployed.
const eventActionDeploy = "Deploy"

// deployWithMaintenance deploys the preservation controller, and the API of NodeMaintenances where the Shoot has it enabled.
//
// Enabling and disabling need the shoot's API server. That the ManagedResource with the API is there is the record that it was
// enabled: it comes after the check whether something else has brought the API, and goes after what is in progress was set back. What
// begins or ends while the shoot hibernates goes on when it has woken up, as gardenlet has the Extension reconciled then.
//
// What is not valid enables nothing, as nodes would be given away within limits that nobody has set, and disables nothing.
func (a *Actuator) deployWithMaintenance(ctx context.Context, ex *extensionsv1alpha1.Extension, shoot *gardencorev1beta1.Shoot, values preservationcontroller.Values) error {
	state, err := nodemaintenance.Resources(a.Client, ex.Namespace).State(ctx)
	if err != nil {
		return err
	}
	settings, err := providerconfig.ReadNodeMaintenance(ex)
	if err != nil && state == shootresources.Present {
		return a.keepMaintenance(ctx, ex, values, err)
	}

	switch isWanted, isAwake := settings != nil, hasServer(shoot); {
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
		return nodemaintenance.Deploy(ctx, a.Client, ex.Namespace, settings)
	case preservationcontroller.MaintenanceBeginning:
		if err := a.beginMaintenance(ctx, ex.Namespace, settings); err != nil {
			return err
		}
		values.NodeMaintenance = preservationcontroller.MaintenanceOn
	case preservationcontroller.MaintenanceEnding:
		if !hasServer(shoot) {
			return nil
		}
		if err := a.waitForContainer(ctx, ex.Namespace, preservationcontroller.FlagNodeMaintenance, "node maintenance"); err != nil {
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

// keepMaintenance deploys the preservation controller, and leaves the limits, the permissions and the switch of node maintenance
// as they are: what is not valid says neither what is wanted nor that nothing is.
func (a *Actuator) keepMaintenance(ctx context.Context, ex *extensionsv1alpha1.Extension, values preservationcontroller.Values, invalid error) error {
	marks, _, err := a.marks(ctx, ex.Namespace)
	if err != nil {
		return err
	}
	a.Recorder.Eventf(ex, nil, corev1.EventTypeWarning, worker.EventReasonInvalidConfiguration, eventActionDeploy, "%s",
		brief.Note("node maintenance is not changed, because its settings are not valid: "+invalid.Error()))
	values.NodeMaintenance = preservationcontroller.MaintenanceEnding
	if marks[preservationcontroller.AnnotationNodeMaintenance] == "true" {
		values.NodeMaintenance = preservationcontroller.MaintenanceOn
	}
	return a.deployController(ctx, ex.Namespace, values)
}

func (a *Actuator) deployController(ctx context.Context, namespace string, values preservationcontroller.Values) error {
	values.Now = a.Clock.Now()
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
		return lookAgain("waiting for access to the shoot: %w", err)
	}
	if err != nil {
		return fmt.Errorf("failed to look who takes care of NodeMaintenances: %w", err)
	}
	return nodemaintenance.Deploy(ctx, a.Client, namespace, settings)
}

// waitForContainer waits until no container with a flag is at work or will be: it would begin anew with what was set back. The webhook
// takes the flag away when it is called. It is called from here, because gardenlet writes the Deployment only when the Extension is ready,
// and the injection controller may be off, wait for its next wave, or be halted by other shoots.
func (a *Actuator) waitForContainer(ctx context.Context, namespace, flag, of string) error {
	wait := lookAgain("waiting for the preservation controller to release %s", of)
	deployment, err := a.machineControllerManager(ctx, namespace)
	if err != nil {
		return err
	}
	if deployment != nil && hasFlag(machinecontrollermanager.Container(deployment), flag) {
		if err := machinecontrollermanager.Touch(ctx, a.Client, deployment); err != nil {
			return err
		}
		return wait
	}

	holder, err := a.holder(ctx, namespace)
	if err != nil || holder == "" {
		return err
	}
	pods := &corev1.PodList{}
	if err := a.Client.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabels{
		v1beta1constants.LabelApp:  v1beta1constants.LabelKubernetes,
		v1beta1constants.LabelRole: v1beta1constants.DeploymentNameMachineControllerManager,
	}); err != nil {
		return fmt.Errorf("failed to list pods: %w", err)
	}
	for _, pod := range pods.Items {
		if strings.HasPrefix(holder, pod.Name+"_") && !slices.ContainsFunc(pod.Spec.Containers, func(c corev1.Container) bool { return hasFlag(&c, flag) }) {
			return nil
		}
	}
	return wait
}

func hasFlag(container *corev1.Container, flag string) bool {
	return container != nil && container.Name == preservationcontroller.Name && slices.Contains(container.Args, flag)
}

// leaveMaintenances sets back what is in progress in a shoot that goes on without this extension. Of one that is deleted, the
// nodes go anyway, and of one that hibernates as well.
func (a *Actuator) leaveMaintenances(ctx context.Context, namespace string, shoot *gardencorev1beta1.Shoot) error {
	if !hasServer(shoot) {
		return nil
	}
	state, err := nodemaintenance.Resources(a.Client, namespace).State(ctx)
	if err != nil || state != shootresources.Present {
		return err
	}
	return a.endMaintenances(ctx, namespace)
}

// endMaintenances sets back what is in progress.
func (a *Actuator) endMaintenances(ctx context.Context, namespace string) error {
	shoot, err := a.ShootClient(ctx, namespace)
	if err == nil {
		err = a.EndMaintenances(ctx, shoot, a.Clock.Now())
	}
	if err != nil {
		return fmt.Errorf("failed to set back the maintenances in progress: %w", err)
	}
	return nil
}
