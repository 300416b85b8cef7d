// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"flag"
	"slices"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/binaries"
)

var upgradeFrom = flag.String("upgrade-from", "", "the revision from which is upgraded; the last release if it is empty")

func TestLongUpgrade061(t *testing.T) { upgrade(t, "0.61") }
func TestLongUpgrade062(t *testing.T) { upgrade(t, "0.62") }

// upgrade upgrades the extension from its last release while machines are preserved. All stay so until the same time, another one is
// preserved afterwards, and nothing is left of them in the end.
func upgrade(t *testing.T, generation string) {
	inTurn(t)
	g := NewWithT(t)
	revision := *upgradeFrom
	if revision == "" {
		var err error
		revision, err = binaries.LastRelease(t.Context())
		g.Expect(err).NotTo(HaveOccurred())
	}
	if revision == "" {
		t.Skip("there is no release yet: name a revision with -upgrade-from")
	}

	s, early, later := startSwitching(t, "upgrade-"+generation, landscape.Options{MCM: generation, Revision: revision})
	all := append(slices.Clone(early), later)
	s.endure(early)

	start := time.Now()
	s.until = start.Add(endurance)
	s.Expect(s.landscape.Upgrade(s.ctx)).To(Succeed())
	t.Logf("Upgraded from %s in %s", revision, time.Since(start).Round(time.Second))
	s.endure(early)

	s.begin(later)
	s.endure(all)
	s.endAll(all)
}
