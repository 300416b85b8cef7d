// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/explain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

// newWhyCommand returns kubectl preserve why.
func newWhyCommand(o *Options) *cobra.Command {
	var output string
	cmd := &cobra.Command{
		Use:   "why NODE|MACHINE",
		Short: "Explain why a machine failed, what was done, and what to look at next",
		Long: `Explain on one page why a machine failed, even if the machine is gone: what happened when, the first bad condition, what ran on it,
whether it was preserved and why, whether it happened before, what exists now, and what to look at next.

The failure history is in the shoot. You need ClusterRole view, and the right to read nodes for what exists now. With --seed-namespace,
operators also see what only the seed knows of a machine that still exists.`,
		Example: `  kubectl preserve why node-1
  kubectl preserve why shoot--foo--bar-worker-z1-abcde -o yaml`,
		Args:              named("why NODE|MACHINE", 1),
		ValidArgsFunction: o.completeFailed,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := validateOutput(output, outputJSON, outputYAML); err != nil {
				return err
			}
			return o.why(cmd.Context(), args[0], output)
		},
	}
	addOutputFlag(cmd, &output)
	return cmd
}

func (o *Options) why(ctx context.Context, name, output string) error {
	sources, err := o.sources(name)
	if err != nil {
		return err
	}
	ledger := readLedger(ctx, sources.Shoot)
	if sources.Seed == nil {
		sources.Name = ledger.NodeOf(name)
	}
	known, err := readThere(ctx, sources)
	if err != nil {
		return err
	}
	page, err := explain.PageOf(ledger, known, name, known.Time)
	if err != nil {
		return err
	}
	return o.printEither(output, page, page.String(), func(l string) bool { return !strings.HasPrefix(l, " ") })
}

// readThere reads what explains a machine, if it exists: the failure history knows the machines that are gone.
func readThere(ctx context.Context, from evidence.Sources) (*observed.Snapshot, error) {
	s, err := readExplained(ctx, from)
	if err == nil || from.Seed != nil {
		return s, err
	}
	s = &observed.Snapshot{Time: from.Clock.Now()}
	if !errors.Is(err, errGone) {
		s.Note(observed.WhatNode, err)
	}
	return s, nil
}
