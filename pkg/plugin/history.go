// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	failuresv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/failures/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/explain"
)

// maxRepeats is how many lines say what failed more than once, at most.
const maxRepeats = 10

var (
	errNoLedger     = errors.New("the shoot has no failure history. It needs the extension machine-preservation in the Shoot without failures: {enabled: false}, and operators can disable it")
	errLedgerDenied = errors.New("you are not allowed to read the failure history. You need ClusterRole view, or the right to list machinefailures." + failuresv1alpha1.GroupName)
)

// readLedger reads the failure history.
func readLedger(ctx context.Context, shoot client.Reader) explain.Ledger {
	list := &failuresv1alpha1.MachineFailureList{}
	err := shoot.List(ctx, list)
	switch {
	case evidence.HasNoAPI(err):
		err = errNoLedger
	case apierrors.IsForbidden(err):
		err = errLedgerDenied
	case err != nil:
		err = fmt.Errorf("failed to read the failure history: %w", err)
	}
	return explain.Ledger{Entries: list.Items, Missing: err}
}

// newHistoryCommand returns kubectl preserve history.
func newHistoryCommand(o *Options) *cobra.Command {
	var (
		filter explain.Filter
		output string
	)
	cmd := &cobra.Command{
		Use:   "history [NODE|MACHINE]",
		Short: "Show which machines failed, and what failed more than once",
		Long: `Show which machines failed, the last one first, whether they were preserved, and how it ended. The lines below the table say what
failed more than once: on the same host, in the same pool, or with the same reason. Machines that are gone are included.

The failure history is in the shoot. You need ClusterRole view.`,
		Example: `  kubectl preserve history
  kubectl preserve history node-1 -o wide
  kubectl preserve history --pool worker-a --reason KernelDeadlock
  kubectl preserve history --host bmh-7`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			return named(cmd.Use, 1)(cmd, args)
		},
		ValidArgsFunction: o.completeFailed,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := validateOutput(output, outputWide, outputJSON, outputYAML); err != nil {
				return err
			}
			filter.Name = strings.Join(args, "")
			return o.history(cmd.Context(), filter, output)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&filter.Pool, "pool", "", "Only failures in this worker pool")
	flags.StringVar(&filter.Host, "host", "", "Only failures on this bare-metal host")
	flags.StringVar(&filter.Reason, "reason", "", "Only failures with this reason, for example KernelDeadlock or NeverJoined")
	flags.StringVarP(&output, "output", "o", "", "Output format: wide, json or yaml")
	return cmd
}

func (o *Options) history(ctx context.Context, filter explain.Filter, output string) error {
	shoot, _, err := o.shootClient()
	if err != nil {
		return err
	}
	ledger := readLedger(ctx, shoot)
	if ledger.Missing != nil {
		return ledger.Missing
	}
	h := explain.HistoryOf(ledger.Entries, filter, o.Clock.Now())
	switch {
	case output == outputJSON || output == outputYAML:
		return o.printObject(h, output)
	case len(ledger.Entries) == 0:
		return write(o.Out, "The failure history is empty: no machine has failed since it began.\n")
	case len(h.Failures) == 0:
		return write(o.Out, fmt.Sprintf("None of the %d failures in the failure history match. 'kubectl preserve history' shows all.\n", len(ledger.Entries)))
	}
	return write(o.Out, o.historyText(&h, output == outputWide))
}

// historyText returns the history as people read it.
func (o *Options) historyText(h *explain.History, wide bool) string {
	first := head("AGE", "NODE", "POOL", "HOST", "FAILURE", "PRESERVED", "WHY", "OUTCOME")
	if wide {
		first.cells = append(first.cells, "FAILED", "ENDED", "ZONE", "MACHINE", "MESSAGE")
	}
	lines := []line{first}
	for i := range h.Failures {
		lines = append(lines, failureLine(&h.Failures[i], h, wide))
	}
	text := o.table(lines...)
	if len(h.Repeats) > 0 {
		text += "\n"
	}
	for i, r := range h.Repeats {
		if i == maxRepeats {
			text += brief.More(len(h.Repeats)-maxRepeats) + "\n"
			break
		}
		text += r.Say("of these") + ".\n"
	}
	return text
}

func failureLine(f *explain.Failure, h *explain.History, wide bool) line {
	s := &f.Spec
	node, kept := s.Node, "no"
	if node == "" && s.Machine != "" {
		node = "machine " + s.Machine
	}
	if s.Decision.Kept {
		kept = cmp.Or(s.Decision.Cause, "yes")
	}
	age, failed, ended, message := "", "", "", ""
	if !s.FailedAt.IsZero() {
		age, failed = left(h.Time.Time, s.FailedAt.Time), stamp(s.FailedAt.Time)
	}
	l := line{cells: []string{age, node, s.Pool, s.Host, s.Reason, kept, s.Decision.Reason, f.Outcome()}}
	if f.Status == nil {
		l.colour = yellow
	} else if !f.Status.EndedAt.IsZero() {
		ended = stamp(f.Status.EndedAt.Time)
	}
	if s.Condition != nil {
		message = s.Condition.Message
	}
	if wide {
		l.cells = append(l.cells, failed, ended, s.Zone, s.Machine, message)
	}
	return l
}
