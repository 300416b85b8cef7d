// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package machinecontrollermanager

import (
	"context"
	"fmt"
	"slices"
	"strings"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	extensionscontextwebhook "github.com/gardener/gardener/extensions/pkg/webhook/context"
	"github.com/gardener/gardener/extensions/pkg/webhook/controlplane/genericmutator"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/secrets"
	versionutils "github.com/gardener/gardener/pkg/utils/version"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gardener/gardener-extension-machine-preservation/imagevector"
	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/clusterautoscaler"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/machinecontrollermanager"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controlplane"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig"
)

// firstWithPreservation is the version of machine-controller-manager that looks at the expiry of Machines first.
const firstWithPreservation = "0.62.0"

// sharedFlags are the flags of the provider's machine controller that the preservation controller has as well.
var sharedFlags = []string{"--machine-health-timeout", "--machine-creation-timeout", "--machine-drain-timeout", "--node-conditions"}

// NewEnsurer returns an ensurer that injects the preservation controller into the Deployment of machine-controller-
// manager. The reader should be backed by a cache: the API server waits for the answer. The configuration must have been
// defaulted.
func NewEnsurer(reader client.Reader, schemas *machinecrd.Schemas, config *configv1alpha1.ControllerConfiguration) genericmutator.Ensurer {
	return &ensurer{reader: reader, schemas: schemas, config: config}
}

type ensurer struct {
	genericmutator.NoopEnsurer

	reader  client.Reader
	schemas *machinecrd.Schemas
	config  *configv1alpha1.ControllerConfiguration
}

// EnsureMachineControllerManagerDeployment adds the container and its volume, and nothing if the container could not
// start. It changes nothing else.
func (e *ensurer) EnsureMachineControllerManagerDeployment(ctx context.Context, _ extensionscontextwebhook.GardenContext, deployment, old *appsv1.Deployment) error {
	pod := &deployment.Spec.Template.Spec
	log := logf.FromContext(ctx).WithValues("deployment", client.ObjectKeyFromObject(deployment))

	extension, err := controlplane.FindExtension(ctx, e.reader, deployment.Namespace)
	if err != nil {
		return err
	}
	if extension == nil {
		log.Info("Skipping injection, there is no Extension")
		return nil
	}
	if operation := extension.Status.LastOperation; operation != nil && operation.Type == gardencorev1beta1.LastOperationTypeMigrate {
		log.Info("Skipping injection, the control plane leaves this seed")
		return nil
	}

	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	if err := e.reader.Get(ctx, client.ObjectKey{Namespace: deployment.Namespace, Name: preservationcontroller.AccessSecretName}, secret); err != nil {
		if apierrors.IsNotFound(err) {
			log.Info("Skipping injection, the access secret does not exist yet", "secretName", preservationcontroller.AccessSecretName)
			return nil
		}
		return fmt.Errorf("failed to get Secret %q: %w", preservationcontroller.AccessSecretName, err)
	}
	// The time of its renewal is written together with a token. Gardener deletes it to have the token renewed, which is no
	// reason to take away a container that is there.
	hasToken := secret.Annotations[resourcesv1alpha1.ServiceAccountTokenRenewTimestamp] != ""
	if !hasToken && (old == nil || machinecontrollermanager.Container(old) == nil) {
		log.Info("Skipping injection, the access secret has no token yet", "secretName", preservationcontroller.AccessSecretName)
		return nil
	}

	kubeconfigSecretName := genericKubeconfigSecretName(pod.Volumes)
	if kubeconfigSecretName == "" {
		log.Info("Skipping injection, machine-controller-manager has no kubeconfig for a shoot")
		return nil
	}

	holder, err := e.holder(ctx, pod.Containers, old)
	if err != nil {
		return err
	}
	image, err := imagevector.MachinePreservationController()
	if err != nil {
		return err
	}

	// What is not valid is not passed on: a namespace that was to be ignored would not be.
	strategies, err := providerconfig.ReadDrainStrategies(extension)
	if err != nil {
		log.Info("Injecting without drain strategies, they are not valid", "reason", err.Error())
	}

	conditions, err := providerconfig.ReadDrainConditions(extension)
	if err != nil {
		log.Info("Injecting without conditions of drains, the configuration is not valid", "reason", err.Error())
	}

	// It is on when the access secret says so, because the permissions are there by then, and as long as operators allow it.
	var (
		evidence       *preservation.Evidence
		evidenceBudget int64
	)
	if e.config.Evidence.IsEnabled() && secret.Annotations[preservationcontroller.AnnotationEvidence] == "true" {
		if evidence, err = providerconfig.ReadEvidence(extension); err != nil {
			log.Info("Injecting without evidence, its settings are not valid", "reason", err.Error())
		}
		if evidence != nil {
			// The Shoot may be older than the ceiling.
			evidence.Retention.Duration = min(evidence.Retention.Duration, e.config.Evidence.MaxRetention.Duration)
			evidenceBudget = e.config.Evidence.Budget.Value()
		}
	}

	// It is on when the shoot has what it takes, not when the Shoot says so. What is not valid changes nothing: without the
	// flags, what is in progress would stand still.
	var maintenanceFlags []string
	if secret.Annotations[preservationcontroller.AnnotationNodeMaintenance] == "true" {
		maintenance, err := providerconfig.ReadNodeMaintenance(extension)
		maintenanceFlags = preservationcontroller.MaintenanceFlags(maintenance, e.config.MaxNodeMaintenanceOvertime.Duration)
		if err != nil {
			log.Info("Injecting with node maintenance as it was, it is not valid", "reason", err.Error())
			maintenanceFlags = formerMaintenanceFlags(old)
		}
	}

	// This, too, is on when the access secret says so. What operators have no hosts for any more is not passed on.
	var hosts *configv1alpha1.Hosts
	if secret.Annotations[preservationcontroller.AnnotationPowerCycle] == "true" {
		hosts = e.config.Hosts
	}

	// The container can keep no account before it has the permission.
	var maxMachineHours *int32
	if secret.Annotations[preservationcontroller.AnnotationMachineHours] == "true" {
		maxMachineHours = e.config.MaxMachineHours
	}

	container := preservationcontroller.Container(preservationcontroller.ContainerValues{
		Image:                     image,
		Namespace:                 deployment.Namespace,
		Holder:                    holder,
		MaxMachinePreserveTimeout: e.config.MaxMachinePreserveTimeout.Duration,
		Storm:                     e.config.Storm,
		MaxMachineHours:           maxMachineHours,
		ProviderFlags:             providerFlags(pod.Containers),
		DrainStrategies:           strategies,
		DrainConditions:           conditions,
		MaintenanceFlags:          maintenanceFlags,
		Evidence:                  evidence,
		EvidenceBudget:            evidenceBudget,
		Failures:                  e.config.Failures.IsEnabled() && secret.Annotations[preservationcontroller.AnnotationFailures] == "true",
		Hosts:                     hosts,
		Seed:                      secret.Annotations[preservationcontroller.AnnotationPowerCycleSeed],
	})
	// They come last. The provider's container is there when we are called for a Deployment that is stored, and comes after ours
	// when gardenlet writes one: another order would be another template, and replace the pod once more.
	machinecontrollermanager.RemoveVolumes(pod)
	pod.Volumes = append(pod.Volumes, preservationcontroller.Volume(kubeconfigSecretName))
	if hosts != nil && hosts.KubeconfigSecretName != "" {
		pod.Volumes = append(pod.Volumes, preservationcontroller.HostVolume(hosts.KubeconfigSecretName))
	}
	pod.Containers = append(extensionswebhook.EnsureNoContainerWithName(pod.Containers, preservationcontroller.Name), container)
	return nil
}

// formerMaintenanceFlags returns the flags for node maintenance that the container has been injected with, none if it has not.
func formerMaintenanceFlags(deployment *appsv1.Deployment) []string {
	if deployment == nil {
		return nil
	}
	container := machinecontrollermanager.Container(deployment)
	if container == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(container.Args), func(arg string) bool {
		return !strings.HasPrefix(arg, preservationcontroller.FlagNodeMaintenance)
	})
}

// EnsureMachineControllerManagerVPA lets the container be scaled. Without a policy of its own it would not be.
func (e *ensurer) EnsureMachineControllerManagerVPA(ctx context.Context, _ extensionscontextwebhook.GardenContext, vpa, _ *vpaautoscalingv1.VerticalPodAutoscaler) error {
	extension, err := controlplane.FindExtension(ctx, e.reader, vpa.Namespace)
	if err != nil || extension == nil {
		return err
	}
	if vpa.Spec.ResourcePolicy == nil {
		vpa.Spec.ResourcePolicy = &vpaautoscalingv1.PodResourcePolicy{}
	}
	policy := vpa.Spec.ResourcePolicy
	policy.ContainerPolicies = extensionswebhook.EnsureVPAContainerResourcePolicyWithName(policy.ContainerPolicies, preservationcontroller.VPAContainerPolicy())
	return nil
}

// EnsureClusterAutoscalerDeployment keeps the cluster-autoscaler scaling while gardenlet writes it, because the controller of it
// would have to do it anew each time. In a shoot without shares it does nothing.
func (e *ensurer) EnsureClusterAutoscalerDeployment(ctx context.Context, _ extensionscontextwebhook.GardenContext, deployment, _ *appsv1.Deployment) error {
	deployments := &machinev1alpha1.MachineDeploymentList{}
	if err := e.reader.List(ctx, deployments, client.InNamespace(deployment.Namespace)); err != nil {
		return fmt.Errorf("failed to list MachineDeployments: %w", err)
	}
	clusterautoscaler.Apply(deployment, clusterautoscaler.Wanted(deployments.Items))
	return nil
}

// holder returns how machines are held. The definition of Machines is replaced for a whole seed at once, and machine-
// controller-manager follows shoot by shoot, maybe a day later. Until then it would not see that a machine is held by its
// expiry.
func (e *ensurer) holder(ctx context.Context, containers []corev1.Container, old *appsv1.Deployment) (string, error) {
	canExpire, err := e.schemas.MachinesCanExpire(ctx)
	if err != nil {
		return "", err
	}
	if canExpire && !isOlder(containers, old) {
		return preservationcontroller.HolderPreserveExpiry, nil
	}
	return preservationcontroller.HolderHealthTimer, nil
}

// isOlder returns whether machine-controller-manager is of a version without preservation of its own, by the tag of its image. A digest
// alone, or a tag that is no version, says nothing. Then it is older if it has the same image as before, and machines were held for one that is
// older: only their definition has changed since.
func isOlder(containers []corev1.Container, old *appsv1.Deployment) bool {
	reference := imageOf(containers)
	image, _, _ := strings.Cut(reference, "@")
	_, tag, _ := strings.Cut(image[strings.LastIndex(image, "/")+1:], ":")
	if older, err := versionutils.CompareVersions(tag, "<", firstWithPreservation); err == nil {
		return older
	}
	if old == nil || imageOf(old.Spec.Template.Spec.Containers) != reference {
		return false
	}
	container := machinecontrollermanager.Container(old)
	return container != nil && slices.Contains(container.Args, preservationcontroller.FlagHolder+"="+preservationcontroller.HolderHealthTimer)
}

// imageOf returns the image of machine-controller-manager, empty if it has no container.
func imageOf(containers []corev1.Container) string {
	container := extensionswebhook.ContainerWithName(containers, v1beta1constants.DeploymentNameMachineControllerManager)
	if container == nil {
		return ""
	}
	return container.Image
}

// genericKubeconfigSecretName returns the name of the Secret with the kubeconfig that machine-controller-manager itself
// uses, empty if it has none. Taken from its own volume, it changes in the same request when Gardener rotates it.
func genericKubeconfigSecretName(volumes []corev1.Volume) string {
	for _, volume := range volumes {
		if volume.Projected == nil || volume.Name == preservationcontroller.VolumeName {
			continue
		}
		for _, source := range volume.Projected.Sources {
			if source.Secret == nil {
				continue
			}
			for _, item := range source.Secret.Items {
				if item.Key == secrets.DataKeyKubeconfig {
					return source.Secret.Name
				}
			}
		}
	}
	return ""
}

// providerFlags returns those of sharedFlags that the provider's machine controller runs with, none if its container has
// not been added yet: then this webhook is called again after the provider's.
func providerFlags(containers []corev1.Container) []string {
	var flags []string
	for _, container := range containers {
		if !strings.HasPrefix(container.Name, v1beta1constants.DeploymentNameMachineControllerManager+"-") {
			continue
		}
		arguments := append(append([]string{}, container.Command...), container.Args...)
		for _, flag := range sharedFlags {
			if value, ok := flagValue(arguments, flag); ok {
				flags = append(flags, flag+"="+value)
			}
		}
		return flags
	}
	return nil
}

// flagValue returns the value of the last occurrence of a flag, which is the one that counts.
func flagValue(arguments []string, flag string) (string, bool) {
	for i := len(arguments) - 1; i >= 0; i-- {
		if value, ok := strings.CutPrefix(arguments[i], flag+"="); ok {
			return value, true
		}
		if arguments[i] == flag && i+1 < len(arguments) {
			return arguments[i+1], true
		}
	}
	return "", false
}
