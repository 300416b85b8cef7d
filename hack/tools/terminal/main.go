// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Terminal runs a command in a terminal, and writes what it shows there as an SVG below the prompt. It ends with an error if
// the command does.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"unicode/utf8"

	terminal "github.com/buildkite/terminal-to-html/v3"
	"github.com/creack/pty"
)

const (
	columns = 132

	// In pixels. Most monospaced fonts are 0.6 times as wide as they are high; each line says how wide it is, so that it is
	// with all of them.
	fontSize   = 13
	cellWidth  = 7.8
	lineHeight = 18
	padding    = 16

	indent = "      "
)

// It brings its own background, so it can be read on any. The classes are terminal-to-html's.
const head = `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %[1]d %[2]d" width="%[1]d" height="%[2]d" font-family="ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace" font-size="%[3]d" fill="#d6dbe1" role="img" aria-label="%[4]s">
<style>text{white-space:pre}.term-fg1{font-weight:bold;fill:#fff}.term-fg31{fill:#f47067}.term-fg32{fill:#57ab5a}.term-fg33{fill:#dcbd4e}</style>
<rect x="0.5" y="0.5" width="%[5]d" height="%[6]d" rx="8" fill="#161b22" stroke="#7d8590"/>
`

func main() {
	if len(os.Args) < 4 {
		fmt.Fprintln(os.Stderr, "Usage: terminal PICTURE PROMPT COMMAND [ARGUMENT...]")
		os.Exit(2)
	}
	if err := run(os.Args[1], os.Args[2], os.Args[3:]); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(picture, prompt string, command []string) error {
	cmd := exec.Command(command[0], command[1:]...)
	tty, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: 50, Cols: columns})
	if err != nil {
		return fmt.Errorf("could not start %s: %w", command[0], err)
	}
	defer tty.Close()
	// Reading ends with EIO when the command has closed the terminal.
	output, err := io.ReadAll(tty)
	if err != nil && !errors.Is(err, syscall.EIO) {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w\n%s", prompt, err, output)
	}
	svg, err := draw(prompt, string(output))
	if err != nil {
		return err
	}
	return os.WriteFile(picture, svg, 0o644)
}

// draw returns the picture of what a terminal shows after the output.
func draw(prompt, output string) ([]byte, error) {
	screen, err := terminal.NewScreen(terminal.WithSize(columns, 1))
	if err != nil {
		return nil, err
	}
	for line := range strings.Lines("\x1b[1m$ " + prompt + "\x1b[0m\n" + output) {
		if _, err := io.WriteString(screen, wrap(line)); err != nil {
			return nil, err
		}
	}
	plain := strings.Split(screen.AsPlainText(), "\n")
	styled := strings.Split(screen.AsHTML(), "\n")

	var svg bytes.Buffer
	width, height := int(math.Ceil(columns*cellWidth))+2*padding, len(plain)*lineHeight+2*padding
	fmt.Fprintf(&svg, head, width, height, fontSize, html.EscapeString(prompt), width-1, height-1)
	toSVG := strings.NewReplacer("<span", "<tspan", "</span>", "</tspan>")
	for i, line := range plain {
		if cells := utf8.RuneCountInString(line); cells > 0 {
			fmt.Fprintf(&svg, `<text x="%d" y="%d" textLength="%.1f" xml:space="preserve">%s</text>`+"\n",
				padding, padding+i*lineHeight+fontSize, float64(cells)*cellWidth, toSVG.Replace(styled[i]))
		}
	}
	svg.WriteString("</svg>\n")
	return svg.Bytes(), nil
}

// wrap breaks a line between words where it is wider than the terminal.
func wrap(line string) string {
	var wrapped strings.Builder
	for len(line) > columns {
		end := strings.LastIndexByte(line[:columns], ' ')
		if strings.TrimSpace(line[:max(end, 0)]) == "" {
			break
		}
		wrapped.WriteString(line[:end] + "\n")
		line = indent + line[end+1:]
	}
	return wrapped.String() + line
}
