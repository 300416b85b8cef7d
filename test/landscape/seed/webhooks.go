// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package seed

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strconv"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/provider-local/local"
	localcontrolplanewebhook "github.com/gardener/gardener/pkg/provider-local/webhook/controlplane"
	"github.com/gardener/gardener/pkg/resourcemanager/webhook/projectedtokenmount"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

// webhooks are the webhooks that the manager serves.
type webhooks struct {
	serving      *serving
	controlPlane *extensionswebhook.Webhook
}

// addWebhooks adds provider-local's control-plane webhook, and the webhook of gardener-resource-manager that mounts
// service account tokens into pods.
func addWebhooks(mgr manager.Manager, serving *serving) (*webhooks, error) {
	controlPlane, err := localcontrolplanewebhook.AddToManager(mgr)
	if err != nil {
		return nil, fmt.Errorf("could not add the control-plane webhook of provider-local: %w", err)
	}
	// There are no operating system configurations here.
	controlPlane.Types = slices.DeleteFunc(controlPlane.Types, func(t extensionswebhook.Type) bool {
		_, ok := t.Obj.(*extensionsv1alpha1.OperatingSystemConfig)
		return ok
	})
	mgr.GetWebhookServer().Register("/"+controlPlane.Path, controlPlane.Webhook)

	if err := (&projectedtokenmount.Handler{
		Logger:            mgr.GetLogger().WithName(projectedtokenmount.HandlerName),
		TargetReader:      mgr.GetClient(),
		ExpirationSeconds: 12 * 60 * 60,
	}).AddToManager(mgr); err != nil {
		return nil, fmt.Errorf("could not add the webhook for service account tokens: %w", err)
	}
	return &webhooks{serving: serving, controlPlane: controlPlane}, nil
}

// register makes the API server call the webhooks.
func (w *webhooks) register(ctx context.Context, c client.Client) error {
	address := net.JoinHostPort(loopback, strconv.Itoa(w.serving.port))
	configs, _, err := extensionswebhook.BuildWebhookConfigs([]*extensionswebhook.Webhook{w.controlPlane}, c, "", local.Name,
		false, 0, extensionswebhook.ModeURL, address, w.serving.certPEM, false)
	if err != nil {
		return fmt.Errorf("could not build the configuration of the control-plane webhook: %w", err)
	}
	for _, config := range []client.Object{
		configs.MutatingWebhookConfig,
		tokenMountConfig(extensionswebhook.BuildClientConfigFor(projectedtokenmount.WebhookPath, "", "", false, 0, extensionswebhook.ModeURL, address, w.serving.certPEM)),
	} {
		if err := extensionswebhook.ReconcileSeedWebhookConfig(ctx, c, config, "", w.serving.certPEM); err != nil {
			return fmt.Errorf("could not register webhook %s: %w", config.GetName(), err)
		}
	}
	return nil
}

// tokenMountConfig returns the configuration that gardener-resource-manager has for pods in control-plane namespaces.
func tokenMountConfig(clientConfig admissionregistrationv1.WebhookClientConfig) *admissionregistrationv1.MutatingWebhookConfiguration {
	return &admissionregistrationv1.MutatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "gardener-resource-manager"},
		Webhooks: []admissionregistrationv1.MutatingWebhook{{
			Name: projectedtokenmount.HandlerName + ".resources.gardener.cloud",
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Rule: admissionregistrationv1.Rule{
					APIGroups:   []string{corev1.GroupName},
					APIVersions: []string{corev1.SchemeGroupVersion.Version},
					Resources:   []string{"pods"},
				},
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
			}},
			NamespaceSelector:       &metav1.LabelSelector{MatchLabels: map[string]string{v1beta1constants.GardenRole: v1beta1constants.GardenRoleShoot}},
			ClientConfig:            clientConfig,
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
		}},
	}
}
