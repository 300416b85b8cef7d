// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"context"
	"fmt"
	"time"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	"github.com/gardener/gardener/extensions/pkg/webhook/certificates"
	extensionscmdwebhook "github.com/gardener/gardener/extensions/pkg/webhook/cmd"
	"github.com/gardener/gardener/pkg/utils/retry"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/admission/validator"
)

// addWebhooks serves and registers the webhooks, and has their certificates managed in the runtime cluster.
//
// It is what AddToManager of the completed options does, but for the match conditions, which the library does not know: it
// writes the registration again and again, and would remove what somebody else adds.
func addWebhooks(ctx context.Context, mgr manager.Manager, runtimeCluster cluster.Cluster, opts *options) error {
	config := opts.webhooks.Completed()
	server := config.Server
	if server.Namespace == "" {
		return fmt.Errorf("--%s is not set", extensionscmdwebhook.NamespaceFlag)
	}

	webhooks, err := config.Switch.WebhooksFactory(mgr)
	if err != nil {
		return fmt.Errorf("failed to create webhooks: %w", err)
	}
	for _, webhook := range webhooks {
		mgr.GetWebhookServer().Register("/"+webhook.Path, webhook.Webhook)
	}

	servicePort := cmp.Or(server.ServicePort, opts.manager.WebhookServerPort)
	registrations, _, err := extensionswebhook.BuildWebhookConfigs(webhooks, mgr.GetClient(), server.Namespace, Name, false, servicePort, server.Mode, server.URL, nil, false)
	if err != nil {
		return fmt.Errorf("failed to build the registration: %w", err)
	}
	if registration := registrations.ValidatingWebhookConfig; registration != nil {
		for i := range registration.Webhooks {
			registration.Webhooks[i].MatchConditions = validator.MatchConditions()
		}

		// It needs an owner, which the management of the certificates does not set. That may write it at the same time, so one
		// attempt is not enough.
		owned := registration.DeepCopy()
		if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
			return retry.UntilTimeout(ctx, time.Second, 5*time.Second, func(ctx context.Context) (bool, error) {
				if err := extensionswebhook.ReconcileSeedWebhookConfig(ctx, mgr.GetClient(), owned.DeepCopy(), server.OwnerNamespace, nil); err != nil {
					return retry.MinorError(fmt.Errorf("failed to write the registration: %w", err))
				}
				return retry.Ok()
			})
		})); err != nil {
			return fmt.Errorf("failed to add registration to manager: %w", err)
		}
	}

	// There are no webhooks in shoots.
	return certificates.AddCertificateManagementToManager(ctx, mgr, runtimeCluster, clock.RealClock{}, registrations, nil, nil, nil, "", Name, false, server.Namespace, server.Mode, server.URL)
}
