// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	"github.com/gardener/gardener/extensions/pkg/webhook/certificates"
	extensionscmdwebhook "github.com/gardener/gardener/extensions/pkg/webhook/cmd"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// Register serves the webhooks of the options, which are either mutating or validating ones, registers them with the API server and
// manages their certificates: in another cluster if there is one.
//
// Unlike extensionscmdwebhook.AddToManagerConfig.AddToManager it asks for the reinvocation of mutating webhooks: the API server calls
// them in the order of the names of their configurations, which has ours before those of the provider extensions, whose containers we
// look at. Validating ones get match conditions, which the library does not know either: it writes the registration again and again,
// and would remove what somebody else adds.
func Register(ctx context.Context, mgr manager.Manager, certificatesIn cluster.Cluster, name string, options *extensionscmdwebhook.AddToManagerConfig, conditions ...admissionregistrationv1.MatchCondition) error {
	server, ok := mgr.GetWebhookServer().(*webhook.DefaultServer)
	if !ok {
		return fmt.Errorf("unexpected type of webhook server: %T", mgr.GetWebhookServer())
	}
	if options.Server.Namespace == "" {
		return errors.New("--" + extensionscmdwebhook.NamespaceFlag + " must be set")
	}

	webhooks, err := options.Switch.WebhooksFactory(mgr)
	if err != nil {
		return fmt.Errorf("failed to create webhooks: %w", err)
	}
	for _, w := range webhooks {
		server.Register("/"+w.Path, w.Webhook)
	}

	configs, _, err := extensionswebhook.BuildWebhookConfigs(webhooks, mgr.GetClient(), options.Server.Namespace, name, false,
		cmp.Or(options.Server.ServicePort, server.Options.Port), options.Server.Mode, options.Server.URL, nil, options.General.SelfHostedShootCluster)
	if err != nil {
		return fmt.Errorf("failed to build webhook configurations: %w", err)
	}
	var registration client.Object
	if mutating := configs.MutatingWebhookConfig; mutating != nil {
		registration = mutating
		for i := range mutating.Webhooks {
			mutating.Webhooks[i].ReinvocationPolicy = new(admissionregistrationv1.IfNeededReinvocationPolicy)
		}
	} else if validating := configs.ValidatingWebhookConfig; validating != nil {
		registration = validating
		for i := range validating.Webhooks {
			validating.Webhooks[i].MatchConditions = conditions
		}
	} else {
		return nil
	}

	owned := registration.DeepCopyObject().(client.Object) // the other one is changed by the management of the certificates
	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return register(ctx, mgr.GetClient(), owned, options.Server.OwnerNamespace)
	})); err != nil {
		return fmt.Errorf("failed to add registration: %w", err)
	}
	// There are no webhooks in shoots.
	if err := certificates.AddCertificateManagementToManager(ctx, mgr, certificatesIn, clock.RealClock{}, configs, nil, nil,
		nil, "", name, false, options.Server.Namespace, options.Server.Mode, options.Server.URL); err != nil {
		return fmt.Errorf("failed to add certificate management: %w", err)
	}
	return nil
}

// register writes the registration without the CA bundle, which the certificate management adds and renews, and with its owner, which
// that does not set. Both may write it at the same time, so one attempt is not enough.
func register(ctx context.Context, c client.Client, registration client.Object, ownerNamespace string) error {
	var lastErr error
	if err := wait.PollUntilContextTimeout(ctx, time.Second, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		lastErr = extensionswebhook.ReconcileSeedWebhookConfig(ctx, c, registration.DeepCopyObject().(client.Object), ownerNamespace, nil)
		return lastErr == nil, nil
	}); err != nil {
		return fmt.Errorf("failed to register webhooks: %w", errors.Join(err, lastErr))
	}
	return nil
}
