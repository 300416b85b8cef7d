// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	"github.com/gardener/gardener/extensions/pkg/webhook/certificates"
	extensionscmdwebhook "github.com/gardener/gardener/extensions/pkg/webhook/cmd"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook"
)

// Register serves the webhooks of the options, registers them with the API server and manages their certificates.
//
// Unlike extensionscmdwebhook.AddToManagerConfig.AddToManager it asks for reinvocation: the API server calls webhooks in
// the order of the names of their configurations, which has ours before those of the provider extensions, whose
// containers we look at.
func Register(ctx context.Context, mgr manager.Manager, name string, options *extensionscmdwebhook.AddToManagerConfig) error {
	server, ok := mgr.GetWebhookServer().(*webhook.DefaultServer)
	if !ok {
		return fmt.Errorf("unexpected type of webhook server: %T", mgr.GetWebhookServer())
	}
	if options.Server.Namespace == "" {
		return errors.New("--" + extensionscmdwebhook.NamespaceFlag + " must be set")
	}
	servicePort := server.Options.Port
	if options.Server.Mode != extensionswebhook.ModeURL && options.Server.ServicePort > 0 {
		servicePort = options.Server.ServicePort
	}

	webhooks, err := options.Switch.WebhooksFactory(mgr)
	if err != nil {
		return fmt.Errorf("failed to create webhooks: %w", err)
	}
	for _, w := range webhooks {
		server.Register("/"+w.Path, w.Webhook)
	}

	configs, _, err := extensionswebhook.BuildWebhookConfigs(webhooks, mgr.GetClient(), options.Server.Namespace, name, false,
		servicePort, options.Server.Mode, options.Server.URL, nil, options.General.SelfHostedShootCluster)
	if err != nil {
		return fmt.Errorf("failed to build webhook configurations: %w", err)
	}
	if configs.MutatingWebhookConfig == nil {
		return nil
	}
	for i := range configs.MutatingWebhookConfig.Webhooks {
		configs.MutatingWebhookConfig.Webhooks[i].ReinvocationPolicy = new(admissionregistrationv1.IfNeededReinvocationPolicy)
	}

	if err := mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
		return register(ctx, mgr.GetClient(), configs.MutatingWebhookConfig.DeepCopy(), options.Server.OwnerNamespace)
	})); err != nil {
		return fmt.Errorf("failed to add registration: %w", err)
	}
	if err := certificates.AddCertificateManagementToManager(ctx, mgr, nil, clock.RealClock{}, configs, &extensionswebhook.Configs{}, &atomic.Value{},
		nil, "", name, false, options.Server.Namespace, options.Server.Mode, options.Server.URL); err != nil {
		return fmt.Errorf("failed to add certificate management: %w", err)
	}
	return nil
}

// register writes the configuration without the CA bundle, which the certificate management adds and renews.
func register(ctx context.Context, c client.Client, config *admissionregistrationv1.MutatingWebhookConfiguration, ownerNamespace string) error {
	var lastErr error
	if err := wait.PollUntilContextTimeout(ctx, time.Second, 10*time.Second, true, func(ctx context.Context) (bool, error) {
		lastErr = extensionswebhook.ReconcileSeedWebhookConfig(ctx, c, config.DeepCopy(), ownerNamespace, nil)
		return lastErr == nil, nil
	}); err != nil {
		return fmt.Errorf("failed to register webhooks: %w", errors.Join(err, lastErr))
	}
	return nil
}
