// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Pictures draws dashboards as SVG, with what test/demo has recorded: the PromQL engine evaluates the queries of each
// panel. It ends with an error if a query cannot be evaluated, or finds nothing.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
)

func main() {
	mayBeEmpty := flag.String("may-be-empty", "", "panels without data that are no error, as <uid of the dashboard>/<id of the panel>, separated by commas")
	flag.Parse()
	if flag.NArg() < 2 {
		fmt.Fprintln(os.Stderr, "Usage: pictures [-may-be-empty=UID/ID,...] RECORD DASHBOARD=PICTURE ...")
		os.Exit(2)
	}
	if err := run(context.Background(), flag.Arg(0), flag.Args()[1:], strings.Split(*mayBeEmpty, ",")); err != nil {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, dir string, pictures, mayBeEmpty []string) (err error) {
	r, err := load(ctx, dir)
	if err != nil {
		return fmt.Errorf("could not load the record in %s: %w", dir, err)
	}
	defer func() { err = errors.Join(err, r.close()) }()

	var errs []error
	for _, pair := range pictures {
		from, to, ok := strings.Cut(pair, "=")
		if !ok {
			return fmt.Errorf("want DASHBOARD=PICTURE, got %q", pair)
		}
		d, err := readDashboard(from)
		if err != nil {
			return err
		}
		if err := d.evaluate(ctx, r, mayBeEmpty); err != nil {
			errs = append(errs, fmt.Errorf("dashboard %q: %w", d.Title, err))
			continue
		}
		errs = append(errs, os.WriteFile(to, draw(d, r), 0o644))
	}
	return errors.Join(errs...)
}
