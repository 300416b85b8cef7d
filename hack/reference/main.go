// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// The reference command writes a page of the reference: of the commands of kubectl preserve, or of what the extension puts into objects
// and serves as metrics. It fails if one of these has no description.
package main

import (
	"fmt"
	"io"
	"os"
)

var pages = map[string]func(to io.Writer) error{
	"kubectl-preserve": writeCommands,
	"objects":          func(to io.Writer) error { return writeObjects(to, os.DirFS(".")) },
}

func main() {
	write := pages[os.Args[len(os.Args)-1]]
	if len(os.Args) != 2 || write == nil {
		fmt.Fprintln(os.Stderr, "one page must be named: kubectl-preserve or objects")
		os.Exit(2)
	}
	if err := write(os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
