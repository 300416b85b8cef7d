// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"cmp"
	"os"

	extensionscmdcontroller "github.com/gardener/gardener/extensions/pkg/controller/cmd"
	extensionscmdwebhook "github.com/gardener/gardener/extensions/pkg/webhook/cmd"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
)

// options are the command line.
type options struct {
	garden   *gardenOptions
	runtime  *extensionscmdcontroller.RESTOptions
	manager  *extensionscmdcontroller.ManagerOptions
	webhooks *extensionscmdwebhook.AddToManagerOptions

	extensionscmdcontroller.OptionAggregator
}

func newOptions(webhooks *extensionscmdwebhook.SwitchOptions) *options {
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
