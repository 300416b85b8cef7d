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
		Short: "Tell why a machine failed, what was done, and what to look at next",
		Long: `Tell on one page why a machine failed, also one that is gone: what happened when, the first bad condition, what was running,
whether it was kept and why, whether it happened before, what is there now, and what to look at next.

The ledger of failures is in the shoot: the rights of a viewer are enough, and those of a viewer of nodes for what is there now. With
--seed-namespace, operators are told what the seed knows of a machine that is still there.`,
		Example: `  kubectl preserve why node-1
  kubectl preserve why shoot--foo--bar-worker-z1-abcde -o yaml`,
		Args:              named("why NODE|MACHINE", 1),
		ValidArgsFunction: o.completeNode,
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

// readThere reads what explains a machine, if it is there: the ledger knows those that are gone.
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
