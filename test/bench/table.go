// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// row is a line of the table.
type row struct {
	measure string
	// goal is empty for what is only told.
	goal      string
	ours      string
	manager   string
	goalIsMet bool
}

func (r row) met() string {
	switch {
	case r.goal == "":
		return ""
	case r.goalIsMet:
		return "yes"
	}
	return "NO"
}

func allMet(rows []row) bool {
	for _, row := range rows {
		if row.goal != "" && !row.goalIsMet {
			return false
		}
	}
	return true
}

func printTable(out io.Writer, rows []row) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "MEASURE\tGOAL\tOURS\tMCM'S OWN\tMET")
	for _, row := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\n", row.measure, row.goal, row.ours, row.manager, row.met())
	}
	return w.Flush()
}
