// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package app is the command line of the admission component.
//
// It runs in the garden's runtime cluster, where its Secrets and its Lease are, and serves the API servers of the virtual
// garden, where its webhook is registered. Both are the same cluster in a garden that is not split. It is configured by
// its Helm charts. On the machine that the API servers run on, it runs outside of both:
//
//	gardener-extension-machine-preservation-admission \
//	  --kubeconfig=garden.kubeconfig \
//	  --runtime-kubeconfig=runtime.kubeconfig \
//	  --leader-election-namespace=$NAMESPACE \
//	  --webhook-config-namespace=$NAMESPACE \
//	  --webhook-config-owner-namespace=garden \
//	  --webhook-config-mode=url \
//	  --webhook-config-url=127.0.0.1:$WEBHOOK_PORT \
//	  --webhook-config-server-host=127.0.0.1 \
//	  --webhook-config-server-port=$WEBHOOK_PORT \
//	  --webhook-config-cert-dir=$CERT_DIR \
//	  --metrics-bind-address=127.0.0.1:$METRICS_PORT \
//	  --health-bind-address=127.0.0.1:$HEALTH_PORT \
//	  --log-format=text
//
// $NAMESPACE must exist in the runtime cluster, and the owner namespace in the virtual garden: the registration goes with
// it. Instead of --kubeconfig, GARDEN_KUBECONFIG can name the file. Without either, and without --runtime-kubeconfig, it
// is the cluster that KUBECONFIG leads to, or else the one that the process runs in.
package app

import (
	"context"
	"fmt"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	extensionscmdwebhook "github.com/gardener/gardener/extensions/pkg/webhook/cmd"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	"github.com/spf13/cobra"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/component-base/version/verflag"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/admission/validator"
	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/webhook"
)

// Name is the name of the admission component. With the prefix "gardener-extension-" it is that of its Service and of the
// registration of its webhook.
const Name = "machine-preservation-admission"

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	// The limits are filled in before the factories of the webhooks run.
	limits := &configv1alpha1.ControllerConfiguration{}
	opts := newOptions(extensionscmdwebhook.NewSwitchOptions(
		extensionscmdwebhook.Switch(validator.WebhookName, func(mgr manager.Manager) (*extensionswebhook.Webhook, error) {
			return validator.New(mgr, limits)
		}),
	), limits)

	cmd := &cobra.Command{
		Use:           "gardener-extension-" + Name,
		Short:         "Validates the configuration of machine preservation in Shoots",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			if err := opts.Complete(); err != nil {
				return fmt.Errorf("failed to complete options: %w", err)
			}
			logf.SetLogger(opts.manager.Completed().Logger)
			return run(cmd.Context(), opts)
		},
	}
	opts.AddFlags(cmd.Flags())
	verflag.AddFlags(cmd.Flags())
	return cmd
}

// run works without caches: requests bring all that the webhook looks at, and certificates are read every few minutes.
func run(ctx context.Context, opts *options) error {
	managerOptions := opts.manager.Completed().Options()
	managerOptions.Scheme = runtime.NewScheme()
	types := runtime.SchemeBuilder{corev1.AddToScheme, admissionregistrationv1.AddToScheme, gardencorev1beta1.AddToScheme}
	if err := types.AddToScheme(managerOptions.Scheme); err != nil {
		return fmt.Errorf("failed to add types to scheme: %w", err)
	}
	managerOptions.Client = uncached(&corev1.Namespace{}, &admissionregistrationv1.ValidatingWebhookConfiguration{})
	managerOptions.LeaderElectionConfig = opts.runtime.Completed().Config
	mgr, err := manager.New(opts.garden.Completed().Config, managerOptions)
	if err != nil {
		return fmt.Errorf("failed to create manager: %w", err)
	}
	log := mgr.GetLogger()

	runtimeCluster, err := cluster.New(opts.runtime.Completed().Config, func(clusterOptions *cluster.Options) {
		clusterOptions.Logger = log
		clusterOptions.Client = uncached(&corev1.Secret{})
	})
	if err != nil {
		return fmt.Errorf("failed to create runtime cluster: %w", err)
	}
	if err := mgr.Add(runtimeCluster); err != nil {
		return fmt.Errorf("failed to add runtime cluster to manager: %w", err)
	}

	log.Info("Adding health checks to manager")
	if err := mgr.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return fmt.Errorf("failed to add health check: %w", err)
	}
	if err := mgr.AddReadyzCheck("webhook-server", mgr.GetWebhookServer().StartedChecker()); err != nil {
		return fmt.Errorf("failed to add readiness check: %w", err)
	}

	log.Info("Adding webhooks to manager")
	if err := webhook.Register(ctx, mgr, runtimeCluster, Name, opts.webhooks.Completed(), validator.MatchConditions()...); err != nil {
		return fmt.Errorf("failed to add webhooks: %w", err)
	}

	log.Info("Starting manager")
	return mgr.Start(ctx)
}

func uncached(objects ...client.Object) client.Options {
	return client.Options{Cache: &client.CacheOptions{DisableFor: objects}}
}
