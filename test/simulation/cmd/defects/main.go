// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Command defects puts known defects back into the product, one at a time, and lets the known histories of the simulation happen, and then
// random ones, until its oracle blames something. It changes no file: the broken one takes the place of the other in an overlay of the build.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

type options struct {
	histories, seed int
	// tags and overlay are those of the build without a defect.
	tags, overlay string
}

func main() {
	var o options
	flag.IntVar(&o.histories, "n", 60, "how many random histories happen with each defect, at most")
	flag.IntVar(&o.seed, "seed", 1, "what they are made of")
	flag.StringVar(&o.tags, "tags", "", "build tags")
	flag.StringVar(&o.overlay, "overlay", "", "an overlay that the build needs anyway")
	only := flag.String("only", "", "a regular expression of the defects that are put back")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	missed, err := putBack(ctx, o, regexp.MustCompile(*only))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	if missed > 0 {
		os.Exit(1)
	}
}

// tag061 builds the simulation with machine-controller-manager 0.61.
const tag061 = "mcm061"

// putBack returns how many defects no history has shown.
func putBack(ctx context.Context, o options, only *regexp.Regexp) (missed int, err error) {
	found, more := 0, defectsOf062
	if o.tags == tag061 {
		more = defectsOf061
	}
	for _, d := range slices.Concat(defects, more) {
		if !only.MatchString(d.what) {
			continue
		}
		verdict, err := d.happen(ctx, o)
		switch {
		case err != nil:
			return missed, fmt.Errorf("failed to put back %q: %w", d.what, err)
		case verdict == "":
			missed++
			fmt.Printf("missed   %s\n", d.what)
		default:
			found++
			fmt.Printf("found    %s\n           %s\n", d.what, verdict)
		}
	}
	fmt.Printf("%d defects were put back with seed %d: %d found, %d missed\n", found+missed, o.seed, found, missed)
	return missed, nil
}

// blamed is how the simulation tells what is wrong, and failed in which of its tests.
var (
	blamed = regexp.MustCompile(`\n +simulation_test\.go:\d+: ([^\n]*)`)
	failed = regexp.MustCompile(`\n +--- FAIL: ([^\n]*) \(`)
)

// happen returns what was found first, empty for nothing.
func (d defect) happen(ctx context.Context, o options) (verdict string, err error) {
	dir, err := os.MkdirTemp("", "defect")
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	overlay, err := d.writeOverlay(dir, o.overlay)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(dir, "simulation.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-tags", o.tags, "-overlay", overlay, "-o", binary, "./test/simulation")
	if output, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	rule, _, _ := strings.Cut(d.what, ":")
	for _, tests := range []string{"^TestKnown.*/^" + rule + "[:,]", "^Test(Known.*|Histories)$"} { // what is known of the rule takes seconds
		if verdict, err := o.run(ctx, binary, tests); verdict != "" || err != nil {
			return verdict, err
		}
	}
	return "", nil
}

// run returns what some tests of the simulation have found first, empty for nothing.
func (o options) run(ctx context.Context, binary, tests string) (string, error) {
	run := exec.CommandContext(ctx, binary, "-test.run", tests, "-test.failfast", "-test.timeout", "0",
		"-rapid.checks", strconv.Itoa(o.histories), "-rapid.seed", strconv.Itoa(o.seed), "-rapid.shrinktime", "1ms")
	output, err := run.CombinedOutput()
	match, test := blamed.FindSubmatch(output), failed.FindSubmatch(output)
	switch _, panicked, _ := bytes.Cut(output, []byte("panic: ")); {
	case err == nil:
		return "", nil
	case match != nil && test != nil:
		return string(test[1]) + ": " + string(match[1]), nil
	case match != nil:
		return string(match[1]), nil
	case len(panicked) > 0: // a panic of the product is a finding, too
		line, _, _ := bytes.Cut(panicked, []byte("\n"))
		return "panic: " + string(line), nil
	}
	return "", fmt.Errorf("%w: %s", err, output)
}

// writeOverlay writes the broken file, and an overlay with it and with what another one has.
func (d defect) writeOverlay(dir, with string) (string, error) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	if with != "" {
		content, err := os.ReadFile(with)
		if err := errors.Join(err, json.Unmarshal(content, &overlay)); err != nil {
			return "", err
		}
	}
	broken, err := d.broken(".")
	if err != nil {
		return "", err
	}
	original, err := filepath.Abs(d.file)
	if err != nil {
		return "", err
	}
	replace := maps.Clone(overlay.Replace)
	replace[original] = filepath.Join(dir, "broken.go")
	content, err := json.Marshal(map[string]any{"Replace": replace})
	path := filepath.Join(dir, "overlay.json")
	return path, errors.Join(err, os.WriteFile(replace[original], broken, 0o600), os.WriteFile(path, content, 0o600))
}

// broken returns the file with the defect.
func (d defect) broken(root string) ([]byte, error) {
	content, err := os.ReadFile(filepath.Join(root, d.file))
	if err != nil {
		return nil, err
	}
	if n := bytes.Count(content, []byte(d.is)); n != 1 {
		return nil, fmt.Errorf("%s has %q %d times, and must have it once", d.file, d.is, n)
	}
	return bytes.Replace(content, []byte(d.is), []byte(d.becomes), 1), nil
}
