// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/component-base/version"
)

// NewCommand returns kubectl preserve.
func NewCommand(streams genericiooptions.IOStreams) *cobra.Command {
	return newCommand(newOptions(streams))
}

func newCommand(o *Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:           "kubectl-preserve",
		Short:         "Preserve machines that fail, and find out why they failed",
		Annotations:   map[string]string{cobra.CommandDisplayNameAnnotation: "kubectl preserve"},
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       version.Get().GitVersion,
	}
	flags := cmd.PersistentFlags()
	namespace := o.Shoot.Namespace
	o.Shoot.Namespace = nil // nodes have none: only what makes something in one has the flag
	o.Shoot.AddFlags(flags)
	o.Shoot.Namespace = namespace
	flags.StringVar(&o.SeedKubeconfig, "seed-kubeconfig", "", "Path to a kubeconfig of the seed, for operators")
	flags.StringVar(&o.SeedContext, "seed-context", "", "Context of the seed's kubeconfig")
	flags.StringVar(&o.SeedNamespace, "seed-namespace", o.SeedNamespace, "Namespace of the shoot's control plane in the seed. With it, the command also uses what the seed knows")

	cmd.AddCommand(newListCommand(o), newExplainCommand(o), newWhyCommand(o), newHistoryCommand(o), newForecastCommand(o), newEvidenceCommand(o), newMaintenanceCommand(o), newPowerCycleCommand(o))
	for i := range verbs {
		cmd.AddCommand(newRequestCommand(o, &verbs[i]))
	}
	return cmd
}

// named requires names of nodes, at most so many unless most is less than 0.
func named(use string, most int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) == 0 || most >= 0 && len(args) > most {
			return fmt.Errorf("%d names are given: must be 'kubectl preserve %s'", len(args), use)
		}
		return nil
	}
}
