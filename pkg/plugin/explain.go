// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"strings"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/explain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

// newExplainCommand returns kubectl preserve explain.
func newExplainCommand(o *Options) *cobra.Command {
	var from, output string
	cmd := &cobra.Command{
		Use:   "explain NODE",
		Short: "Explain why a machine is preserved or not",
		Long: `Explain why the machine of a node is preserved or not, until when, what the drain of the node waits for, and what would change
that. The ids in brackets name the rules.

You need the right to read nodes. With --seed-namespace, operators also see what only the seed knows, and can name a machine
without a node.`,
		Example: `  kubectl preserve explain shoot--foo--bar-worker-z1-abcde
  kubectl preserve explain shoot--foo--bar-worker-z1-abcde --seed-kubeconfig seed.yaml --seed-namespace shoot--foo--bar
  kubectl preserve explain shoot--foo--bar-worker-z1-abcde --from evidence.tar.gz`,
		Args:              named("explain NODE", 1),
		ValidArgsFunction: o.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := validateOutput(output, outputJSON, outputYAML); err != nil {
				return err
			}
			return o.look(cmd.Context(), from, args[0], readExplained, func(s *observed.Snapshot) error {
				sentences, err := explain.Explain(s, args[0], s.Time)
				if err != nil {
					return missesIn(from, err)
				}
				return o.printEither(output, sentences, explain.Text(sentences), func(l string) bool { return !strings.HasPrefix(l, " ") })
			})
		},
	}
	addFromFlag(cmd, &from)
	addOutputFlag(cmd, &output)
	return cmd
}

func addOutputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "", "Output format: json or yaml")
}

// readExplained reads what explains the machine of a node: the node, its Events, and the maintenances, with three calls. With the seed, it
// reads all nodes, because the nodes of a pool share its places, and the machines. It is an error if the node cannot be read without the
// seed, or the machines with it. Everything else that cannot be read is noted.
func readExplained(ctx context.Context, from evidence.Sources) (*observed.Snapshot, error) {
	s := &observed.Snapshot{Time: from.Clock.Now()}
	node := from.Name
	if from.Seed == nil {
		if err := readNode(ctx, from, s); err != nil {
			return nil, err
		}
	} else {
		if err := readSeed(ctx, from, s); err != nil {
			return nil, err
		}
		s.Note(observed.WhatNodes, evidence.ReadNodes(ctx, from.Shoot, s))
		machine := from.Name
		if m := s.Seed.Machine(from.Name); m != nil {
			machine, node = m.Name, cmp.Or(m.Labels[machinev1alpha1.NodeLabelKey], node)
		}
		events, err := evidence.ReadEvents(ctx, from.Seed, from.SeedNamespace, "Machine", machine)
		s.Seed.Events = events
		s.Note(observed.WhatMachineEvents, err)
	}
	events, err := evidence.ReadEvents(ctx, from.Shoot, metav1.NamespaceDefault, "Node", node)
	s.Shoot.Events = events
	s.Note(observed.WhatNodeEvents, err)
	evidence.ReadMaintenances(ctx, from.Shoot, s)
	return s, nil
}

// readNode fills in the node.
func readNode(ctx context.Context, from evidence.Sources, s *observed.Snapshot) error {
	node, err := getNode(ctx, from.Shoot, from.Name)
	if err != nil {
		return err
	}
	s.Shoot.Nodes = []corev1.Node{*node}
	return nil
}

// readSeed fills in the machines, what owns them, and how the preservation controller runs.
func readSeed(ctx context.Context, from evidence.Sources, s *observed.Snapshot) error {
	if err := evidence.ReadMachines(ctx, from.Seed, from.SeedNamespace, s); err != nil {
		return err
	}
	if err := evidence.ReadMachineSets(ctx, from.Seed, s); err != nil {
		return err
	}
	s.Note(observed.WhatController, evidence.ReadController(ctx, from.Seed, s))
	if explain.CountsHours(s.Seed.Controller) {
		s.Note(observed.WhatMachineHours, evidence.ReadMachineHours(ctx, from.Seed, s))
	}
	return nil
}
