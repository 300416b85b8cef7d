// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"os"

	extensionscmdcontroller "github.com/gardener/gardener/extensions/pkg/controller/cmd"
	extensionsheartbeatcontroller "github.com/gardener/gardener/extensions/pkg/controller/heartbeat"
	extensionsheartbeatcmd "github.com/gardener/gardener/extensions/pkg/controller/heartbeat/cmd"
	extensionscmdwebhook "github.com/gardener/gardener/extensions/pkg/webhook/cmd"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1/validation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/healthcheck"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/lifecycle"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/worker"
)

// options are the command line.
type options struct {
	rest        *extensionscmdcontroller.RESTOptions
	manager     *extensionscmdcontroller.ManagerOptions
	general     *extensionscmdcontroller.GeneralOptions
	config      *configOptions
	lifecycle   *extensionscmdcontroller.ControllerOptions
	worker      *extensionscmdcontroller.ControllerOptions
	healthcheck *extensionscmdcontroller.ControllerOptions
	reconciler  *extensionscmdcontroller.ReconcilerOptions
	heartbeat   *extensionsheartbeatcmd.Options
	webhooks    *extensionscmdwebhook.AddToManagerOptions

	extensionscmdcontroller.OptionAggregator
}

func newOptions(webhooks *extensionscmdwebhook.SwitchOptions) *options {
	general := &extensionscmdcontroller.GeneralOptions{}
	o := &options{
		rest: &extensionscmdcontroller.RESTOptions{},
		manager: &extensionscmdcontroller.ManagerOptions{
			LeaderElection:          true,
			LeaderElectionID:        extensionscmdcontroller.LeaderElectionNameID(Name),
			LeaderElectionNamespace: os.Getenv("LEADER_ELECTION_NAMESPACE"),
			WebhookServerPort:       443,
			WebhookCertDir:          "/tmp/gardener-extensions-cert",
		},
		general:     general,
		config:      &configOptions{},
		lifecycle:   &extensionscmdcontroller.ControllerOptions{MaxConcurrentReconciles: 5},
		worker:      &extensionscmdcontroller.ControllerOptions{MaxConcurrentReconciles: 5},
		healthcheck: &extensionscmdcontroller.ControllerOptions{MaxConcurrentReconciles: 5},
		reconciler:  &extensionscmdcontroller.ReconcilerOptions{},
		heartbeat: &extensionsheartbeatcmd.Options{
			ExtensionName:        Name,
			Namespace:            os.Getenv("LEADER_ELECTION_NAMESPACE"),
			RenewIntervalSeconds: 30,
		},
		// There are no webhooks in shoots.
		webhooks: extensionscmdwebhook.NewAddToManagerOptions(Name, "", nil, general, &extensionscmdwebhook.ServerOptions{
			Namespace: os.Getenv("WEBHOOK_CONFIG_NAMESPACE"),
		}, webhooks),
	}
	o.OptionAggregator = extensionscmdcontroller.NewOptionAggregator(
		o.rest,
		o.manager,
		o.general,
		o.config,
		extensionscmdcontroller.PrefixOption(lifecycle.ControllerName+"-", o.lifecycle),
		extensionscmdcontroller.PrefixOption(worker.ControllerName+"-", o.worker),
		extensionscmdcontroller.PrefixOption(healthcheck.ControllerName+"-", o.healthcheck),
		o.reconciler,
		extensionscmdcontroller.PrefixOption(extensionsheartbeatcontroller.ControllerName+"-", o.heartbeat),
		o.webhooks,
	)
	return o
}

// Complete reads what the flags point to, and validates.
func (o *options) Complete() error {
	return errors.Join(o.OptionAggregator.Complete(), o.heartbeat.Validate())
}

// configOptions reads the component configuration.
type configOptions struct {
	path   string
	config *configv1alpha1.ControllerConfiguration
}

// AddFlags implements Flagger.AddFlags.
func (o *configOptions) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.path, "config", o.path, "Path to the file with the component configuration. Without the flag, the defaults apply.")
}

// Complete implements Completer.Complete.
func (o *configOptions) Complete() error {
	o.config = &configv1alpha1.ControllerConfiguration{}
	configv1alpha1.SetObjectDefaults_ControllerConfiguration(o.config)
	if o.path == "" {
		return nil
	}

	data, err := os.ReadFile(o.path)
	if err != nil {
		return fmt.Errorf("failed to read --config: %w", err)
	}
	scheme := runtime.NewScheme()
	utilruntime.Must(configv1alpha1.AddToScheme(scheme))
	decoder := serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(configv1alpha1.SchemeGroupVersion)
	object, err := runtime.Decode(decoder, data)
	if err != nil {
		return fmt.Errorf("failed to decode --config: %w", err)
	}
	config, ok := object.(*configv1alpha1.ControllerConfiguration)
	if !ok {
		return fmt.Errorf("unexpected kind in --config: %T", object)
	}
	if err := validation.ValidateControllerConfiguration(config).ToAggregate(); err != nil {
		return fmt.Errorf("invalid --config: %w", err)
	}
	o.config = config
	return nil
}

// Completed returns the configuration. Only call this if Complete was successful.
func (o *configOptions) Completed() *configv1alpha1.ControllerConfiguration {
	return o.config
}
