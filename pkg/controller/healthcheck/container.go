// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"fmt"
	"slices"
	"strings"

	extensionshealthcheck "github.com/gardener/gardener/extensions/pkg/controller/healthcheck"
	"github.com/gardener/gardener/extensions/pkg/webhook/controlplane/genericmutator"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/machinecontrollermanager"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controlplane"
)

// Container checks that machine-controller-manager runs with the container of the preservation controller.
type Container struct {
	// Reader should be backed by a cache.
	Reader client.Reader
	// APIReader reads pods, and only while some are not ready.
	APIReader client.Reader
	// Ensurer is that of the webhook.
	Ensurer genericmutator.Ensurer
	// Clock tells for how long there has been no progress.
	Clock clock.PassiveClock
}

// Check returns that the container is missing, not as it should be or not ready. One of another version or configuration of
// the extension works, and is replaced later. Without a machine-controller-manager, and while it is scaled
// down, there is nothing that could be preserved; whether that is right is for Gardener to say.
func (c *Container) Check(ctx context.Context, namespace string) (*extensionshealthcheck.SingleCheckResult, error) {
	if !controlplane.IsSupported(namespace) {
		return healthy(), nil // there is to be no container
	}
	deployment := &appsv1.Deployment{}
	err := c.Reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1beta1constants.DeploymentNameMachineControllerManager}, deployment)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("failed to get Deployment %q: %w", v1beta1constants.DeploymentNameMachineControllerManager, err)
	}

	if err != nil || ptr.Deref(deployment.Spec.Replicas, 1) == 0 {
		return healthy(), nil // nobody runs it
	}

	difference, err := machinecontrollermanager.Compare(ctx, c.Ensurer, deployment)
	if err != nil {
		return nil, err
	}
	if difference.Kind == machinecontrollermanager.None && machinecontrollermanager.Container(deployment) == nil {
		difference = machinecontrollermanager.Difference{
			Kind:   machinecontrollermanager.Missing,
			Reason: "it is missing, and the webhook cannot inject it, because its access secret, the token in there or the kubeconfig of machine-controller-manager is missing",
		}
	}
	switch difference.Kind {
	case machinecontrollermanager.Missing, machinecontrollermanager.Broken:
		return progressing(fmt.Sprintf("container %q in Deployment %q is not as it should be: %s", preservationcontroller.Name, deployment.Name, difference.Reason)), nil
	}
	if machinecontrollermanager.IsComplete(deployment) {
		return healthy(), nil
	}

	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return nil, fmt.Errorf("failed to read the selector of Deployment %q: %w", deployment.Name, err)
	}
	pods := &corev1.PodList{}
	if err := c.APIReader.List(ctx, pods, client.InNamespace(namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, fmt.Errorf("failed to list the pods of Deployment %q: %w", deployment.Name, err)
	}
	problems, works := notReady(pods.Items)
	detail := fmt.Sprintf("container %q of Deployment %q is not ready: %s", preservationcontroller.Name, deployment.Name, strings.Join(problems, ", "))
	switch now := c.Clock.Now(); {
	case !works:
		return progressing(detail), nil
	case len(problems) > 0 && now.Sub(machinecontrollermanager.LastProgress(deployment, now)) >= patience:
		return unhealthy(detail + ". Another pod works, but changes of machine-controller-manager are not rolled out"), nil
	}
	return healthy(), nil
}

// notReady returns in which pods the container is not ready, and why, and whether it is ready in another one. Other
// containers do not count, nor do pods that have ended, as evicted ones have.
func notReady(pods []corev1.Pod) (problems []string, works bool) {
	for _, pod := range pods {
		if pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded {
			continue
		}
		i := slices.IndexFunc(pod.Status.ContainerStatuses, func(s corev1.ContainerStatus) bool { return s.Name == preservationcontroller.Name })
		if i >= 0 && pod.Status.ContainerStatuses[i].Ready {
			works = true
			continue
		}
		why := "it is not there yet"
		if i >= 0 {
			why = stateOf(&pod.Status.ContainerStatuses[i])
		}
		problems = append(problems, fmt.Sprintf("pod %q (%s)", pod.Name, why))
	}
	if len(problems) == 0 && !works {
		problems = append(problems, "there is no pod")
	}
	return problems, works
}

func stateOf(status *corev1.ContainerStatus) string {
	switch {
	case status.State.Waiting != nil:
		return strings.TrimSuffix("it is waiting: "+status.State.Waiting.Reason+": "+status.State.Waiting.Message, ": ")
	case status.State.Terminated != nil:
		return fmt.Sprintf("it has ended with exit code %d", status.State.Terminated.ExitCode)
	default:
		return "it runs, but its readiness probe fails"
	}
}
