// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package machinecontrollermanager is the webhook that injects the preservation controller into the Deployment of
// machine-controller-manager and into its VerticalPodAutoscaler. The API server also sends it the Deployment of the
// cluster-autoscaler, which belongs to the same control plane: there it puts the flag back that keeps it scaling.
package machinecontrollermanager

import (
	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	"github.com/gardener/gardener/extensions/pkg/webhook/controlplane/genericmutator"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/webhook"
)

// WebhookName is the name of the webhook.
const WebhookName = "machinecontrollermanager"

// New returns the webhook.
func New(mgr manager.Manager, reader client.Reader, schemas *machinecrd.Schemas, config *configv1alpha1.ControllerConfiguration) (*extensionswebhook.Webhook, error) {
	// The serializers are for resources that this webhook is not called for.
	mutator := genericmutator.NewMutator(mgr, NewEnsurer(reader, schemas, config), nil, nil, nil, logf.Log.WithName(WebhookName+"-webhook"))
	return webhook.New(mgr, WebhookName, mutator,
		&metav1.LabelSelector{MatchLabels: map[string]string{v1beta1constants.LabelExtensionProviderMutatedByControlplaneWebhook: "true"}},
		extensionswebhook.Type{Obj: &appsv1.Deployment{}},
		extensionswebhook.Type{Obj: &vpaautoscalingv1.VerticalPodAutoscaler{}},
	)
}
