// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package operatingsystemconfig is the webhook that makes the nodes of shoots keep their logs over reboots, and their kubelets
// serve these logs, if evidence includes logs of nodes.
package operatingsystemconfig

import (
	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/webhook"
)

// WebhookName is the name of the webhook.
const WebhookName = "operatingsystemconfig"

// New returns the webhook, which is of use only where operators have enabled evidence.
func New(mgr manager.Manager, reader client.Reader) (*extensionswebhook.Webhook, error) {
	return webhook.New(mgr, WebhookName, NewMutator(mgr, reader), nil, extensionswebhook.Type{Obj: &extensionsv1alpha1.OperatingSystemConfig{}})
}
