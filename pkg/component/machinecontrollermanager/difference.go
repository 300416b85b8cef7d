// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package machinecontrollermanager says what this extension adds to the Deployment of machine-controller-manager. The webhook
// adds it, and controllers compare it.
package machinecontrollermanager

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	"github.com/gardener/gardener/extensions/pkg/webhook/controlplane/genericmutator"
	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
)

// Kind says in what way the container is not what the ensurer would make it.
type Kind string

const (
	// None means that the ensurer would change nothing: the container is as it should be, or the ensurer would not inject one.
	None Kind = ""
	// Missing means that there is no container, although there should be one.
	Missing Kind = "Missing"
	// Outdated means that the container is of another version of the extension, or of another configuration of its operators. It
	// works.
	Outdated Kind = "Outdated"
	// Broken means that the container does not fit its shoot: its flags or its kubeconfig are not those that the shoot needs now. It is
	// so, too, after a change of the configuration in the Shoot, for example when node maintenance was disabled and its flag is to go.
	Broken Kind = "Broken"
)

// Difference is what the ensurer would change.
type Difference struct {
	// Kind says in what way.
	Kind Kind
	// Reason says what is different, in words.
	Reason string
}

// Compare returns what the ensurer would change in a Deployment as it is stored. What the API server has defaulted and what
// other webhooks have added to the container does not count: it would be there again after each write.
func Compare(ctx context.Context, ensurer genericmutator.Ensurer, deployment *appsv1.Deployment) (Difference, error) {
	changed := deployment.DeepCopy()
	// Why the ensurer skips the injection is told when the webhook is called.
	if err := ensurer.EnsureMachineControllerManagerDeployment(logf.IntoContext(ctx, logr.Discard()), nil, changed, deployment); err != nil {
		return Difference{}, fmt.Errorf("failed to determine the container that is to be injected: %w", err)
	}
	wanted, actual := Container(changed), Container(deployment)
	switch {
	case wanted == nil:
		return Difference{}, nil
	case actual == nil:
		return Difference{Missing, "it is missing"}, nil
	case actual.Image != wanted.Image:
		return Difference{Outdated, fmt.Sprintf("its image is %s instead of %s", actual.Image, wanted.Image)}, nil
	case !slices.Equal(argsOfShoot(actual), argsOfShoot(wanted)):
		return Difference{Broken, differentArgs(actual, wanted)}, nil
	case !apiequality.Semantic.DeepDerivative(wanted.VolumeMounts, actual.VolumeMounts),
		!apiequality.Semantic.DeepDerivative(volumes(changed), volumes(deployment)):
		return Difference{Broken, "its volume is not that of the shoot's current kubeconfig"}, nil
	case !slices.Equal(actual.Args, wanted.Args):
		return Difference{Outdated, differentArgs(actual, wanted)}, nil
	case !apiequality.Semantic.DeepDerivative(*wanted, *actual):
		return Difference{Outdated, "its specification is not that of this version of the extension"}, nil
	}
	return Difference{}, nil
}

// ownFlags are those that come from the extension's own configuration.
var ownFlags = []string{
	preservationcontroller.FlagMaxMachinePreserveTimeout,
	preservationcontroller.FlagStormMaxFailing,
	preservationcontroller.FlagStormMaxFailingPercent,
	preservationcontroller.FlagStormSettlingTime,
	preservationcontroller.FlagMaxMachineHours,
	preservationcontroller.FlagNodeMaintenanceMaxOvertime,
	preservationcontroller.FlagEvidenceRetention,
	preservationcontroller.FlagEvidenceBudget,
	preservationcontroller.FlagPowerCycleShootRequests,
	preservationcontroller.FlagPowerCycleMaxPerShoot,
	preservationcontroller.FlagPowerCycleGrants,
	preservationcontroller.FlagPowerCycleMaxServicing,
	preservationcontroller.FlagQuarantineFailures,
	preservationcontroller.FlagQuarantinePeriod,
}

// argsOfShoot returns the arguments that do not depend on the extension's own configuration.
func argsOfShoot(container *corev1.Container) []string {
	return slices.DeleteFunc(slices.Clone(container.Args), func(arg string) bool {
		flag, _, _ := strings.Cut(arg, "=")
		return slices.Contains(ownFlags, flag)
	})
}

func differentArgs(actual, wanted *corev1.Container) string {
	return fmt.Sprintf("its arguments are %q instead of %q", strings.Join(actual.Args, " "), strings.Join(wanted.Args, " "))
}

// IsComplete returns whether all pods are of the current template and ready.
func IsComplete(deployment *appsv1.Deployment) bool {
	replicas, status := ptr.Deref(deployment.Spec.Replicas, 1), deployment.Status
	return status.ObservedGeneration >= deployment.Generation &&
		status.Replicas == replicas && status.UpdatedReplicas == replicas && status.ReadyReplicas == replicas
}

// LastProgress returns when a Deployment became complete, or made its last progress towards that, by what the deployment
// controller has written. The zero value is longer ago than is known.
func LastProgress(deployment *appsv1.Deployment, now time.Time) time.Time {
	var (
		latest   time.Time
		complete = IsComplete(deployment)
		known    = complete
	)
	for _, condition := range deployment.Status.Conditions {
		var at metav1.Time
		switch condition.Type {
		case appsv1.DeploymentProgressing:
			// It has given up, by default after ten minutes, and has written over when there was progress.
			if condition.Status == corev1.ConditionFalse && !complete && deployment.Status.ObservedGeneration >= deployment.Generation {
				return time.Time{}
			}
			at, known = condition.LastUpdateTime, true
		case appsv1.DeploymentAvailable:
			at = condition.LastTransitionTime
		}
		if at.After(latest) {
			latest = at.Time
		}
	}
	// What it has written is about a former template, or it has not looked yet.
	if !known || deployment.Status.ObservedGeneration < deployment.Generation {
		return now
	}
	return latest
}

// Container returns the container of the preservation controller, nil if it has not been injected.
func Container(deployment *appsv1.Deployment) *corev1.Container {
	return extensionswebhook.ContainerWithName(deployment.Spec.Template.Spec.Containers, preservationcontroller.Name)
}

// volumeNames are the names of the container's volumes.
var volumeNames = []string{preservationcontroller.VolumeName, preservationcontroller.HostVolumeName}

// RemoveVolumes removes the volumes of the container.
func RemoveVolumes(pod *corev1.PodSpec) {
	for _, name := range volumeNames {
		pod.Volumes = extensionswebhook.EnsureNoVolumeWithName(pod.Volumes, name)
	}
}

// volumes returns those of the container.
func volumes(deployment *appsv1.Deployment) []corev1.Volume {
	return slices.DeleteFunc(slices.Clone(deployment.Spec.Template.Spec.Volumes), func(v corev1.Volume) bool {
		return !slices.Contains(volumeNames, v.Name)
	})
}
