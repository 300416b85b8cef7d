// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/test/conformance"
)

var flags conformance.Flags

func init() { flags.AddTo(flag.CommandLine) }

// TestConformance tries the rules on the shoot that the flags name, see `make conformance`.
func TestConformance(t *testing.T) {
	if !conformance.Given(flag.CommandLine) {
		t.Skip("There is no shoot to run on, see `make conformance`")
	}
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	environment, err := flags.Environment(ctx)
	if err != nil {
		t.Fatal(err)
	}

	report := conformance.Run(ctx, t, environment).Markdown()
	fmt.Fprint(t.Output(), report)
	if flags.Report != "" {
		if err := os.WriteFile(flags.Report, []byte(report), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// TestSuite tests the suite.
func TestSuite(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Test Conformance Suite")
}
