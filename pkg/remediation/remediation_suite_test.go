// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation_test

import (
	"flag"
	"os"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

// TestMain makes every run the same. Run with -rapid.seed=0 to look further.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"checks": "10000", "steps": "25", "seed": "1", "nofailfile": "true"} {
		if err := flag.Set("rapid."+name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

func TestRemediation(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Remediation Suite")
}
