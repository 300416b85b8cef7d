// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package validator is the webhook that tells a shoot owner what is not valid in the provider configuration, and what has no
// effect or a risk although it is valid.
package validator

import (
	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// WebhookName is the name of the webhook.
const WebhookName = "validator"

// New returns the webhook. A Shoot is refused while it cannot be reached, but only one that has the extension enabled:
// gardener-apiserver puts the label on these before it calls webhooks, and takes it off others, whatever users write. It is
// to be registered with MatchConditions.
//
// It is not made by extensionswebhook.New, whose validators cannot warn. Of the configuration of the extension, it knows what
// operators allow at most.
func New(mgr manager.Manager, limits *configv1alpha1.ControllerConfiguration) (*extensionswebhook.Webhook, error) {
	return &extensionswebhook.Webhook{
		Name:   WebhookName,
		Path:   WebhookName,
		Action: extensionswebhook.ActionValidating,
		Target: extensionswebhook.TargetSeed,
		Types:  []extensionswebhook.Type{{Obj: &gardencorev1beta1.Shoot{}}},
		ObjectSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
			v1beta1constants.LabelExtensionExtensionTypePrefix + v1alpha1.ExtensionType: "true",
		}},
		TimeoutSeconds: new(int32(5)),
		Webhook:        admission.WithValidator(mgr.GetScheme(), Shoot{Limits: limits}),
	}, nil
}

// What follows a Shoot in CEL to get the entry of the extension, and of the worker pools what is in a subject.
const (
	ofExtension = `.?spec.?extensions.orValue([]).filter(e, e.type == "` + v1alpha1.ExtensionType + `")`
	ofPools     = `.?spec.?provider.?workers.orValue([]).map(w, [w.?name, w.?maximum, w.?systemComponents.?allow, w.?zones, ` +
		`w.?machineControllerManager.?autoPreserveFailedMachineMax, w.?machineControllerManager.?machinePreserveTimeout, ` +
		`w.?machineControllerManager.?machineDrainTimeout, w.?machineControllerManager.?nodeConditions])`
)

// MatchConditions say which requests are sent to the webhook: those that Shoot looks at. Everybody else does not wait for it,
// so that a Shoot can be maintained, deleted and rid of the extension while it cannot be reached.
//
// If the evaluation fails, the Shoot is refused. So the expressions do without fields that may be absent, and cost little for
// as many worker pools as can be stored.
func MatchConditions() []admissionregistrationv1.MatchCondition {
	return []admissionregistrationv1.MatchCondition{
		{Name: "not-in-deletion", Expression: `!has(object.metadata.deletionTimestamp)`},
		{Name: "enabled", Expression: `object` + ofExtension + `.exists(e, !e.?disabled.orValue(false))`},
		{Name: "changed", Expression: `request.operation == "CREATE" || object` + ofExtension + ` != oldObject` + ofExtension + ` || object` + ofPools + ` != oldObject` + ofPools},
	}
}
