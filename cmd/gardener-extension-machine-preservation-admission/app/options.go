// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"os"
	"time"

	extensionscmdcontroller "github.com/gardener/gardener/extensions/pkg/controller/cmd"
	extensionscmdwebhook "github.com/gardener/gardener/extensions/pkg/webhook/cmd"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	"github.com/spf13/pflag"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1/validation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// noLimit is the limit of a number that has none.
const noLimit = -1

// options are the command line.
type options struct {
	garden   *gardenOptions
	runtime  *extensionscmdcontroller.RESTOptions
	manager  *extensionscmdcontroller.ManagerOptions
	webhooks *extensionscmdwebhook.AddToManagerOptions

	extensionscmdcontroller.OptionAggregator
}

func newOptions(webhooks *extensionscmdwebhook.SwitchOptions, limits *configv1alpha1.ControllerConfiguration) *options {
	o := &options{
		garden:  &gardenOptions{},
		runtime: &extensionscmdcontroller.RESTOptions{},
		manager: &extensionscmdcontroller.ManagerOptions{
			LeaderElection:          true,
			LeaderElectionID:        extensionscmdcontroller.LeaderElectionNameID(Name),
			LeaderElectionNamespace: os.Getenv("LEADER_ELECTION_NAMESPACE"),
			WebhookServerPort:       443,
			WebhookCertDir:          "/tmp/gardener-extensions-cert",
		},
		// There are no webhooks in shoots, and no classes of extensions.
		webhooks: extensionscmdwebhook.NewAddToManagerOptions(Name, "", nil, nil, &extensionscmdwebhook.ServerOptions{
			Namespace: os.Getenv("WEBHOOK_CONFIG_NAMESPACE"),
		}, webhooks),
	}
	o.OptionAggregator = extensionscmdcontroller.NewOptionAggregator(
		o.garden,
		extensionscmdcontroller.PrefixOption("runtime-", o.runtime),
		o.manager,
		&limitOptions{limits: limits},
		o.webhooks,
	)
	return o
}

// gardenOptions are about the virtual garden.
type gardenOptions struct {
	extensionscmdcontroller.RESTOptions
}

// Complete implements Completer.Complete. Gardener mounts a kubeconfig into Pods that work with the virtual garden, and
// names it in the environment.
func (o *gardenOptions) Complete() error {
	o.Kubeconfig = cmp.Or(o.Kubeconfig, os.Getenv(v1beta1constants.EnvGenericGardenKubeconfig))
	return o.RESTOptions.Complete()
}

// limitOptions are what operators allow. The component configuration of the extension, which has them as well, is in other
// clusters.
type limitOptions struct {
	limits *configv1alpha1.ControllerConfiguration

	number           int32
	timeout          time.Duration
	hosts, automatic bool
	evidence         bool
	retention        time.Duration
}

// AddFlags implements Flagger.
func (o *limitOptions) AddFlags(flags *pflag.FlagSet) {
	defaults := &configv1alpha1.ControllerConfiguration{}
	configv1alpha1.SetObjectDefaults_ControllerConfiguration(defaults)
	flags.Int32Var(&o.number, "max-auto-preserve-failed", noLimit, "largest number of failed machines of a worker pool that the extension auto-preserves at a time, -1 for no limit")
	flags.DurationVar(&o.timeout, "max-machine-preserve-timeout", defaults.MaxMachinePreserveTimeout.Duration, "longest time for which the extension preserves a machine")
	flags.BoolVar(&o.hosts, "hosts", false, "whether the landscape has hosts that the extension can power-cycle")
	flags.BoolVar(&o.automatic, "hosts-automatic", false, "whether the extension may power-cycle failed machines automatically")
	flags.BoolVar(&o.evidence, "evidence", false, "whether the extension stores evidence of failed machines")
	flags.DurationVar(&o.retention, "evidence-max-retention", v1alpha1.MaxEvidenceRetention, "longest time for which the extension keeps evidence after its machine is gone")
}

// Complete implements Completer.
func (o *limitOptions) Complete() error {
	o.limits.MaxMachinePreserveTimeout = &metav1.Duration{Duration: o.timeout}
	if o.number != noLimit {
		o.limits.MaxAutoPreserveFailed = &o.number
	}
	if o.evidence {
		o.limits.Evidence = &configv1alpha1.Evidence{Enabled: true, MaxRetention: &metav1.Duration{Duration: o.retention}}
		configv1alpha1.SetDefaults_Evidence(o.limits.Evidence) // the budgets, which nobody is warned of
	}
	if err := validation.ValidateControllerConfiguration(o.limits).ToAggregate(); err != nil {
		return err
	}
	if o.hosts {
		o.limits.Hosts = &configv1alpha1.Hosts{Automatic: o.automatic} // of which kind they are, nobody is warned of
	}
	return nil
}
