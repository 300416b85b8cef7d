// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// table prints the machines whenever one of them changes.
type table struct {
	seed      client.Client
	namespace string
	printed   []string
}

func (t *table) run(ctx context.Context) {
	ticker := time.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			t.print(ctx)
		}
	}
}

func (t *table) print(ctx context.Context) {
	machines, err := zonalMachines(ctx, t.seed, t.namespace)
	if err != nil || len(machines) == 0 {
		return
	}

	// The remaining time changes all the time, so it is no reason to print.
	var rows, left []string
	for _, m := range machines {
		phase, cause, remaining := string(m.Status.CurrentStatus.Phase), "", ""
		if phase == "" {
			phase = "being created"
		}
		if record := preservation.ReadRecord(m.Machine); record != nil {
			phase, cause = record.Phase(m.Status.CurrentStatus.Phase), record.Cause()
			remaining = time.Until(record.Expiry()).Round(time.Second).String()
		}
		if m.DeletionTimestamp != nil {
			phase = "Terminating"
		}
		rows = append(rows, strings.Join([]string{m.zone, m.Name, phase, cause}, "\t"))
		left = append(left, remaining)
	}
	if slices.Equal(rows, t.printed) {
		return
	}
	t.printed = rows

	fmt.Println()
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "          ZONE\tMACHINE\tPHASE\tCAUSE\tTIME LEFT")
	for i, row := range rows {
		fmt.Fprintf(w, "          %s\t%s\n", row, left[i])
	}
	w.Flush()
}
