// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"
)

// row is a line of the table.
type row struct{ measure, result string }

func printTable(out io.Writer, rows []row) error {
	w := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(w, "MEASURE\tRESULT")
	for _, row := range rows {
		for i, line := range wrap(row.result) {
			if i > 0 {
				row.measure = ""
			}
			fmt.Fprintf(w, "%s\t%s\n", row.measure, line)
		}
	}
	return w.Flush()
}

// wrap breaks a list into lines.
func wrap(list string) []string {
	const width = 100
	lines := []string{""}
	for _, element := range strings.SplitAfter(list, ", ") {
		if last := &lines[len(lines)-1]; *last == "" || len(*last)+len(element) <= width {
			*last += element
		} else {
			lines = append(lines, element)
		}
	}
	return lines
}

// seconds is for what takes seconds.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

// milliseconds is for what takes milliseconds.
func milliseconds(d time.Duration) string {
	return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
}
