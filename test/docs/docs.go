// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package docs reads the commands of the documents, so that a test runs each of them. What only builds or tests (make, go test) it judges
// without running it. A block that no test can run says why, in the line before it: <!-- not run: REASON -->.
package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
)

var (
	fence  = regexp.MustCompile("^ *```+([a-z]*)$")
	notRun = regexp.MustCompile(`^ *<!-- not run: (\S.*\S) -->$`)
	shells = []string{"bash", "sh", "shell", "console"}
)

// Block is a block of code.
type Block struct {
	// Page is the path of the document, and Line that of the first line of the block.
	Page string
	Line int
	// Language is what the block says that it is written in.
	Language string
	Lines    []string
	// NotRun is why no test runs its commands, empty if one does.
	NotRun string
}

// Command is a command of a block.
type Command struct {
	Page string
	Line int
	// Text is what bash takes, with the names and placeholders of the page, but without comments.
	Text string
	// Exports are the commands of the block before this one that set variables.
	Exports string
	// NotRun is why no test runs it, empty if one does.
	NotRun string
}

// String says where the command is, and what it is.
func (c Command) String() string { return fmt.Sprintf("%s:%d: %s", c.Page, c.Line, c.Text) }

// Read returns the commands of all documents of the repository.
func Read(root string) (commands []Command, err error) {
	files := os.DirFS(root)
	pages := []string{"README.md", "CONTRIBUTING.md"}
	if err := fs.WalkDir(files, "docs", func(name string, _ fs.DirEntry, err error) error {
		if path.Ext(name) == ".md" {
			pages = append(pages, name)
		}
		return err
	}); err != nil {
		return nil, err
	}
	for _, page := range pages {
		content, err := fs.ReadFile(files, page)
		if err != nil {
			return nil, err
		}
		blocks, err := Blocks(page, string(content))
		if err != nil {
			return nil, err
		}
		for _, block := range blocks {
			commands = append(commands, block.Commands()...)
		}
	}
	return commands, nil
}

// Blocks returns the blocks of code of a page.
func Blocks(page, content string) (blocks []Block, err error) {
	var (
		open   *Block
		reason string
	)
	for i, line := range strings.Split(content, "\n") {
		start := fence.FindStringSubmatch(line)
		switch {
		case open != nil && start != nil && start[1] == "":
			blocks = append(blocks, *open)
			open = nil
		case open != nil:
			open.Lines = append(open.Lines, line)
		case start != nil:
			open = &Block{Page: page, Line: i + 2, Language: start[1], NotRun: reason}
			reason = ""
		case reason != "":
			return nil, fmt.Errorf("%s:%d: no block follows the line that says why it is not run", page, i)
		case strings.HasPrefix(strings.TrimLeft(line, " "), "<!-- not run"):
			match := notRun.FindStringSubmatch(line)
			if match == nil {
				return nil, fmt.Errorf("%s:%d: it must be <!-- not run: REASON -->", page, i+1)
			}
			reason = match[1]
		}
	}
	if open != nil {
		return nil, fmt.Errorf("%s:%d: the block has no end", page, open.Line)
	}
	return blocks, nil
}

// Commands returns the commands of a block, nothing if it is not for a shell.
func (b Block) Commands() (commands []Command) {
	// A block with outputs has a prompt before each command.
	prompts := b.Language == "console" || b.Language == "text" && strings.HasPrefix(b.Lines[0], "$ ")
	if !prompts && !slices.Contains(shells, b.Language) {
		return nil
	}
	var (
		current *Command
		quote   byte
		exports []string
	)
	for i, line := range b.Lines {
		if current == nil {
			command, isCommand := strings.CutPrefix(line, "$ ")
			if prompts && !isCommand {
				continue
			}
			line, current = command, &Command{Page: b.Page, Line: b.Line + i, NotRun: b.NotRun, Exports: strings.Join(exports, "\n")}
		}
		text, goesOn := "", false
		text, quote, goesOn = scan(line, quote)
		current.Text += text
		switch {
		case goesOn:
			continue
		case strings.HasPrefix(current.Text, "export "):
			exports = append(exports, current.Text)
		case current.Text != "":
			commands = append(commands, *current)
		}
		current = nil
	}
	return commands
}

// scan returns what a line adds to a command that is in such quotes before it, without comments, the quotes after it, and whether the
// command goes on in the next line.
func scan(line string, quote byte) (text string, after byte, goesOn bool) {
	if quote == 0 {
		line = strings.TrimLeft(line, " ")
	}
	for i := 0; i < len(line); i++ {
		switch c := line[i]; {
		case c == '\\' && quote != '\'' && i == len(line)-1:
			return strings.TrimRight(line[:i], " ") + " ", quote, true
		case c == '\\' && quote != '\'':
			i++
		case quote != 0:
			if c == quote {
				quote = 0
			}
		case c == '\'' || c == '"':
			quote = c
		case c == '#' && (i == 0 || line[i-1] == ' '):
			line = line[:i]
		}
	}
	if quote != 0 {
		return line + "\n", quote, true
	}
	line = strings.TrimRight(line, " ")
	if strings.HasSuffix(line, "|") {
		return line + " ", 0, true
	}
	return line, 0, false
}
