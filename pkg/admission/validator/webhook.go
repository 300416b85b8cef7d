// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package validator is the webhook that tells a shoot owner at once what is wrong with the provider configuration, and
// what it does not do although it is valid.
package validator

import (
	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// WebhookName is the name of the webhook.
const WebhookName = "validator"

// New returns the webhook. A Shoot is refused while it cannot be reached, but only one that has the extension enabled:
// gardener-apiserver puts the label on these before it calls webhooks, and takes it off others, whatever users write.
//
// It is not made by extensionswebhook.New, whose validators cannot warn.
func New(mgr manager.Manager) (*extensionswebhook.Webhook, error) {
	return &extensionswebhook.Webhook{
		Name:   WebhookName,
		Path:   WebhookName,
		Action: extensionswebhook.ActionValidating,
		Target: extensionswebhook.TargetSeed,
		Types:  []extensionswebhook.Type{{Obj: &gardencorev1beta1.Shoot{}}},
		ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
			v1beta1constants.LabelExtensionExtensionTypePrefix + v1alpha1.ExtensionType: "true",
		}},
		Webhook: admission.WithValidator(mgr.GetScheme(), Shoot{}),
	}, nil
}
