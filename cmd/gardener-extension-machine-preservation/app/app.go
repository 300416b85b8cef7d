// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package app is the command line of the extension.
//
// In a seed it is configured by its Helm chart. It runs outside of the cluster as well, on the machine that the API
// server runs on:
//
//	KUBECONFIG=seed.kubeconfig GARDENER_SHOOT_CLIENT=external gardener-extension-machine-preservation \
//	  --leader-election-namespace=$NAMESPACE \
//	  --heartbeat-namespace=$NAMESPACE \
//	  --webhook-config-namespace=$NAMESPACE \
//	  --webhook-config-mode=url \
//	  --webhook-config-url=127.0.0.1:$WEBHOOK_PORT \
//	  --webhook-config-server-host=127.0.0.1 \
//	  --webhook-config-server-port=$WEBHOOK_PORT \
//	  --webhook-config-cert-dir=$CERT_DIR \
//	  --metrics-bind-address=127.0.0.1:$METRICS_PORT \
//	  --health-bind-address=127.0.0.1:$HEALTH_PORT \
//	  --ignore-operation-annotation \
//	  --log-format=text
//
// $NAMESPACE must exist: it holds the Leases and the Secrets with the webhook's certificates, and it owns the
// registration of the webhooks unless --webhook-config-owner-namespace names another one that exists.
// --ignore-operation-annotation is for a cluster without gardenlet: Extensions are reconciled at every change, rather
// than when gardenlet asks for it. GARDENER_SHOOT_CLIENT=external is for a process that cannot resolve the names of the
// cluster: it reaches a shoot by the address that the Shoot advertises. With --config=FILE, a component configuration
// replaces the defaults. The image of the preservation controller is overwritten with an image vector in the file that
// IMAGEVECTOR_OVERWRITE names.
package app

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	extensionsheartbeatcontroller "github.com/gardener/gardener/extensions/pkg/controller/heartbeat"
	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	extensionscmdwebhook "github.com/gardener/gardener/extensions/pkg/webhook/cmd"
	gardenerhealthz "github.com/gardener/gardener/pkg/healthz"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"github.com/spf13/cobra"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/component-base/version/verflag"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/clusterautoscaler"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/grants"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/healthcheck"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/injection"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/lifecycle"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/worker"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controlplane"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/webhook"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/webhook/machinecontrollermanager"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/webhook/machinedeployment"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/webhook/operatingsystemconfig"
)

// Name is the name of the extension. With the prefix "gardener-extension-" it is that of its Service and of the
// registration of its webhooks.
const Name = "machine-preservation"

// The limits of requests to the API server per second. They are those of Gardener's own components: with client-go's
// defaults, enabling the extension for all shoots of a seed would take more than half an hour.
const (
	qps   = 100
	burst = 130
)

// gcPercent is how much garbage there may be for what is in use, in percent. Nearly all of that are the caches, which are
// large and seldom change: with Go's 100, a seed with many shoots would take a quarter more memory, to save next to no CPU.
const gcPercent = 50

// NewCommand returns the command.
func NewCommand() *cobra.Command {
	var (
		// The planner and the schemas are filled in before the factories of the webhooks run.
		planner  = &controlplane.Planner{}
		schemas  = &machinecrd.Schemas{}
		webhooks = extensionscmdwebhook.NewSwitchOptions(
			extensionscmdwebhook.Switch(machinedeployment.WebhookName, func(mgr manager.Manager) (*extensionswebhook.Webhook, error) {
				return machinedeployment.New(mgr, planner, schemas)
			}),
			extensionscmdwebhook.Switch(machinecontrollermanager.WebhookName, func(mgr manager.Manager) (*extensionswebhook.Webhook, error) {
				return machinecontrollermanager.New(mgr, mgr.GetCache(), schemas, planner.Defaults)
			}),
			extensionscmdwebhook.Switch(operatingsystemconfig.WebhookName, func(mgr manager.Manager) (*extensionswebhook.Webhook, error) {
				return operatingsystemconfig.New(mgr, mgr.GetCache())
			}),
		)
		opts = newOptions(webhooks)
	)

	cmd := &cobra.Command{
		Use:           "gardener-extension-" + Name,
		Short:         "Preserves failed machines of shoots for analysis",
		Args:          cobra.NoArgs,
		SilenceErrors: true,
		SilenceUsage:  true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			if err := opts.Complete(); err != nil {
				return fmt.Errorf("failed to complete options: %w", err)
			}
			logf.SetLogger(opts.manager.Completed().Logger)
			debug.SetGCPercent(gcPercent)
			return run(cmd.Context(), opts, planner, schemas)
		},
	}
	opts.AddFlags(cmd.Flags())
	verflag.AddFlags(cmd.Flags())
	return cmd
}

func run(ctx context.Context, opts *options, planner *controlplane.Planner, schemas *machinecrd.Schemas) error {
	managerOptions := opts.manager.Completed().Options()
	managerOptions.Scheme = runtime.NewScheme()
	if err := addToScheme(managerOptions.Scheme); err != nil {
		return err
	}
	managerOptions.Cache = cacheOptions()
	managerOptions.Client = clientOptions()
	restConfig := opts.rest.Completed().Config
	restConfig.QPS, restConfig.Burst = qps, burst
	mgr, err := manager.New(restConfig, managerOptions)
	if err != nil {
		return fmt.Errorf("failed to create manager: %w", err)
	}
	log := mgr.GetLogger()

	addedSchemas, err := machinecrd.AddToManager(mgr)
	if err != nil {
		return err
	}
	*schemas = *addedSchemas
	*planner = controlplane.Planner{Reader: mgr.GetClient(), Defaults: opts.config.Completed()}
	webhooks, hasEvidence := opts.webhooks.Completed(), planner.Defaults.Evidence.IsEnabled()
	if !hasEvidence {
		webhooks.Switch.WebhooksFactory = without(operatingsystemconfig.WebhookName, webhooks.Switch.WebhooksFactory)
	}
	if err := startInformers(ctx, mgr.GetCache(), hasEvidence); err != nil {
		return err
	}

	log.Info("Adding health checks to manager")
	if err := addHealthChecks(mgr); err != nil {
		return fmt.Errorf("failed to add health checks: %w", err)
	}

	log.Info("Adding webhooks to manager")
	if err := webhook.Register(ctx, mgr, nil, Name, webhooks); err != nil {
		return fmt.Errorf("failed to add webhooks: %w", err)
	}

	log.Info("Adding controllers to manager")
	opts.heartbeat.Completed().Apply(&extensionsheartbeatcontroller.DefaultAddOptions)
	if err := extensionsheartbeatcontroller.AddToManager(ctx, mgr); err != nil {
		return fmt.Errorf("failed to add heartbeat controller: %w", err)
	}
	extensionClasses := opts.general.Completed().ExtensionClasses
	if err := lifecycle.AddToManager(ctx, mgr, lifecycle.AddOptions{
		Controller:                opts.lifecycle.Completed().Options(),
		IgnoreOperationAnnotation: opts.reconciler.Completed().IgnoreOperationAnnotation,
		Schemas:                   schemas,
		Config:                    *planner.Defaults,
		ExtensionClasses:          extensionClasses,
	}); err != nil {
		return fmt.Errorf("failed to add lifecycle controller: %w", err)
	}
	if err := (&worker.Reconciler{Planner: planner, Schemas: schemas}).AddToManager(mgr, opts.worker.Completed().Options()); err != nil {
		return fmt.Errorf("failed to add worker controller: %w", err)
	}
	if err := (&clusterautoscaler.Reconciler{}).AddToManager(mgr); err != nil {
		return fmt.Errorf("failed to add cluster-autoscaler controller: %w", err)
	}
	ensurer := machinecontrollermanager.NewEnsurer(mgr.GetCache(), schemas, planner.Defaults)
	if config := opts.config.Completed(); ptr.Deref(config.Injection, "") == configv1alpha1.InjectionInWaves {
		if err := (&injection.Reconciler{Ensurer: ensurer, Config: config}).AddToManager(mgr, schemas); err != nil {
			return fmt.Errorf("failed to add injection controller: %w", err)
		}
	}
	var finder *hosts.Finder
	if config := planner.Defaults.Hosts; config != nil {
		finder = hosts.NewFinder(mgr, config)
		if err := (&hosts.Reconciler{Finder: *finder}).AddToManager(mgr); err != nil {
			return fmt.Errorf("failed to add hosts controller: %w", err)
		}
		if limit := ptr.Deref(config.MaxPerSeed, 0); limit > 0 {
			if err := (&grants.Reconciler{Limit: limit}).AddToManager(mgr); err != nil {
				return fmt.Errorf("failed to add grants controller: %w", err)
			}
		}
	}
	if config := planner.Defaults.Evidence; config.IsEnabled() {
		if err := (&evidence.Reconciler{Budget: config.SeedBudget.Value()}).AddToManager(mgr); err != nil {
			return fmt.Errorf("failed to add evidence controller: %w", err)
		}
	}
	if err := healthcheck.AddToManager(mgr, healthcheck.AddOptions{
		Controller:       opts.healthcheck.Completed().Options(),
		Ensurer:          ensurer,
		Planner:          planner,
		Schemas:          schemas,
		Hosts:            finder,
		Evidence:         planner.Defaults.Evidence.IsEnabled(),
		ExtensionClasses: extensionClasses,
	}); err != nil {
		return fmt.Errorf("failed to add health check controller: %w", err)
	}

	log.Info("Starting manager")
	return mgr.Start(ctx)
}

// without returns what makes all webhooks but one. The factory of that one must not return nil, which the library does not expect.
func without(name string, factory func(manager.Manager) ([]*extensionswebhook.Webhook, error)) func(manager.Manager) ([]*extensionswebhook.Webhook, error) {
	return func(mgr manager.Manager) ([]*extensionswebhook.Webhook, error) {
		webhooks, err := factory(mgr)
		return slices.DeleteFunc(webhooks, func(w *extensionswebhook.Webhook) bool { return w.Name == name }), err
	}
}

func addToScheme(scheme *runtime.Scheme) error {
	if err := (&runtime.SchemeBuilder{
		extensionscontroller.AddToScheme,
		machinev1alpha1.AddToScheme,
		vpaautoscalingv1.AddToScheme,
		apiextensionsv1.AddToScheme,
		monitoringv1.AddToScheme,
	}).AddToScheme(scheme); err != nil {
		return fmt.Errorf("failed to add types to scheme: %w", err)
	}
	// machine-controller-manager does not add the options of its API version.
	metav1.AddToGroupVersion(scheme, machinev1alpha1.SchemeGroupVersion)
	return nil
}

func addHealthChecks(mgr manager.Manager) error {
	return errors.Join(
		mgr.AddHealthzCheck("ping", healthz.Ping),
		mgr.AddHealthzCheck("informer-sync", gardenerhealthz.NewCacheSyncHealthzWithDeadline(mgr.GetLogger(), clock.RealClock{}, mgr.GetCache(), gardenerhealthz.DefaultCacheSyncDeadline)),
		mgr.AddReadyzCheck("informer-sync", gardenerhealthz.NewCacheSyncHealthz(mgr.GetCache())),
		mgr.AddReadyzCheck("webhook-server", mgr.GetWebhookServer().StartedChecker()),
	)
}
