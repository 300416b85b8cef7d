// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"

	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
)

const (
	bold   = "\x1b[1m"
	yellow = "\x1b[33m"
	reset  = "\x1b[0m"
	// redraw goes to the upper left corner and clears the screen.
	redraw = "\x1b[H\x1b[2J"
)

// line is a line of a table, and how it is shown where colours are.
type line struct {
	colour string
	cells  []string
}

// table returns lines with aligned columns, the first of them as a head. Empty cells are shown as "-".
func (o *Options) table(lines ...line) string {
	var out bytes.Buffer
	w := printers.GetNewTabWriter(&out)
	for _, l := range lines {
		for i, cell := range l.cells {
			if i > 0 {
				_, _ = io.WriteString(w, "\t")
			}
			_, _ = io.WriteString(w, or(cell))
		}
		_, _ = io.WriteString(w, "\n")
	}
	_ = w.Flush()

	// Colours are put on whole lines, so that they do not count for the columns.
	colours := o.colours()
	var text strings.Builder
	for i, l := range strings.SplitAfter(out.String(), "\n") {
		content := strings.TrimRight(l, " \n")
		switch {
		case content == "":
			continue
		case colours && lines[i].colour != "":
			content = lines[i].colour + content + reset
		}
		text.WriteString(content + "\n")
	}
	return text.String()
}

// colours says that there may be some: on a terminal, unless NO_COLOR is set.
func (o *Options) colours() bool { return o.isTerminal(o.Out) && os.Getenv("NO_COLOR") == "" }

// withHeads returns a text whose heads are shown as those of tables are.
func (o *Options) withHeads(text string, isHead func(line string) bool) string {
	if !o.colours() {
		return text
	}
	var shown strings.Builder
	for l := range strings.Lines(text) {
		if content := strings.TrimRight(l, " \n"); content != "" && isHead(content) {
			l = bold + content + reset + "\n"
		}
		shown.WriteString(l)
	}
	return shown.String()
}

func head(cells ...string) line { return line{colour: bold, cells: cells} }

// or returns a cell, or "-" for an empty one.
func or(cell string) string {
	if cell = brief.Printable(cell); cell == "" {
		return "-"
	}
	return cell
}

// left returns how long it is until a time, as kubectl shows ages.
func left(until, now time.Time) string {
	switch d := until.Sub(now); {
	case until.IsZero():
		return ""
	case d < 0:
		return "0s"
	default:
		return duration.HumanDuration(d)
	}
}

// stamp returns a time as people read it. The expiry of a machine is not always known.
func stamp(t time.Time) string {
	if t.IsZero() {
		return "a time that its node does not show"
	}
	return t.UTC().Format(time.RFC3339)
}

// printEither writes an object in a format, or without one as a text whose heads are shown as those of tables are.
func (o *Options) printEither(format string, object any, text string, isHead func(line string) bool) error {
	if format != "" {
		return o.printObject(object, format)
	}
	return write(o.Out, o.withHeads(text, isHead))
}

// printObject writes an object as JSON or YAML.
func (o *Options) printObject(object any, format string) error {
	out, err := json.MarshalIndent(object, "", "  ")
	out = escaped(out)
	if err == nil && format == outputYAML {
		out, err = yaml.JSONToYAML(out)
	}
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(o.Out, strings.TrimSuffix(string(out), "\n"))
	return err
}

// escaped returns JSON in which what cannot be printed is escaped: others wrote it, and terminals obey it. It is in nothing but strings.
func escaped(text []byte) []byte {
	var b bytes.Buffer
	for _, r := range string(text) {
		if unicode.IsPrint(r) || r == '\n' {
			b.WriteRune(r)
			continue
		}
		for _, unit := range utf16.Encode([]rune{r}) {
			fmt.Fprintf(&b, "\\u%04x", unit)
		}
	}
	return b.Bytes()
}

const (
	outputWide = "wide"
	outputJSON = "json"
	outputYAML = "yaml"
)

func validateOutput(output string, valid ...string) error {
	return oneOf("--output", output, append(valid, "")...)
}

// oneOf says what is valid unless the value of a flag is.
func oneOf(flag, value string, valid ...string) error {
	var names []string
	for _, v := range valid {
		if value == v {
			return nil
		}
		if v != "" {
			names = append(names, v)
		}
	}
	return fmt.Errorf("%s=%s: must be one of %s", flag, value, strings.Join(names, ", "))
}
