// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package machinedeployment is the webhook that preserves the shares on MachineDeployments when the provider extension writes
// these.
package machinedeployment

import (
	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/controlplane"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/webhook"
)

// WebhookName is the name of the webhook.
const WebhookName = "machinedeployment"

// New returns the webhook.
func New(mgr manager.Manager, planner *controlplane.Planner, schemas *machinecrd.Schemas) (*extensionswebhook.Webhook, error) {
	return webhook.New(mgr, WebhookName, NewMutator(planner, schemas), nil, extensionswebhook.Type{Obj: &machinev1alpha1.MachineDeployment{}})
}
