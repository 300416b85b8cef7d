// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"

	"github.com/gardener/gardener-extension-machine-preservation/cmd/machine-preservation-controller/app"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/explain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("The controller's settings", func() {
	It("should be read from flags that the controller has, with its defaults", func() {
		read, had := pflag.NewFlagSet("", pflag.ContinueOnError), pflag.NewFlagSet("", pflag.ContinueOnError)
		AddFlags(read)
		(&app.Options{}).AddFlags(had)
		read.VisitAll(func(f *pflag.Flag) {
			flag := had.Lookup(f.Name)
			Expect(flag).NotTo(BeNil(), f.Name)
			Expect(f.DefValue).To(Equal(flag.DefValue), f.Name)
			Expect(f.Value.Type()).To(Equal(flag.Value.Type()), f.Name)
		})
	})

	It("should tell of what cannot be read, and go on", func() {
		s := situations["held-by-share"]
		s.args = []string{"--holder=magic", "--drain-ignored-namespace-pattern=(", "--drain-strategies"}
		sentences, err := Explain(s.snapshot("health-timer"), "m", now)
		Expect(err).NotTo(HaveOccurred())
		Expect(Text(sentences)).To(And(ContainSubstring(`--holder="magic" is not known`), ContainSubstring("--drain-ignored-namespace-pattern"), ContainSubstring("Machine m is preserved")))
	})

	It("should be assumed where they are not known, by what the machines show", func() {
		s := situations["asked"]
		s.machine = append(s.machine, ExpiryInStatus(expiry))
		snapshot := s.snapshot("")
		snapshot.Seed.Controller = nil
		sentences, err := Explain(snapshot, "m", now)
		Expect(err).NotTo(HaveOccurred())
		Expect(Text(sentences)).To(And(ContainSubstring("The configuration of the preservation controller: its defaults are assumed."), ContainSubstring("It is preserved because "+preservation.WhyAskedFor.Text+" (cause now). [T1]")))
	})

	It("should do without a MachineDeployment, or without a machine", func() {
		snapshot := situations["held-by-share"].snapshot("health-timer")
		snapshot.Seed.MachineSets = nil
		sentences, err := Explain(snapshot, "m", now)
		Expect(err).NotTo(HaveOccurred())
		Expect(Text(sentences)).To(And(ContainSubstring("The MachineDeployment of machine m"), ContainSubstring("condition Preserved is True")))
		snapshot.Shoot.Nodes = nil
		sentences, err = Explain(snapshot, "m", now)
		Expect(err).NotTo(HaveOccurred())
		Expect(Text(sentences)).To(HavePrefix("What is not known\n  The MachineDeployment of machine m"))
		snapshot = situations["held-by-share"].snapshot("health-timer")
		snapshot.Seed.Machines = nil
		sentences, err = Explain(snapshot, "m", now)
		Expect(err).NotTo(HaveOccurred())
		Expect(Text(sentences)).To(ContainSubstring("The machine: no machine in namespace shoot--test--one has this node."))
	})

	DescribeTable("P9: should know that a node is not known", func(what observed.Thing) {
		known := situations["asked"].snapshot("health-timer")
		known.Shoot.Nodes = nil
		known.Missing = []observed.Missing{{Thing: what, Reason: "connection refused"}}
		sentences, err := Explain(known, "m", now)
		Expect(err).NotTo(HaveOccurred())
		Expect(Text(sentences)).To(And(ContainSubstring("connection refused"), Not(ContainSubstring("It has no node"))))
	},
		Entry("its own", observed.WhatNode),
		Entry("nor others", observed.WhatNodes),
	)

	It("should know that other machines are not known, which may have the places", func() {
		explain := func(name string, missing observed.Missing) string {
			GinkgoHelper()
			known := situations[name].snapshot("health-timer")
			known.Seed.Machines = known.Seed.Machines[:1]
			missing.Reason = "there is no place"
			known.Missing = []observed.Missing{missing}
			sentences, err := Explain(known, "m", now)
			Expect(err).NotTo(HaveOccurred())
			return Text(sentences)
		}
		others := observed.Missing{Thing: observed.WhatOtherMachines}
		Expect(explain("unhealthy", others)).To(And(
			ContainSubstring("If it does not get healthy before 2026-03-02T12:08:00Z (in 8m), it is preserved if its pool has a free place in its zone, and replaced if not. [P1]"),
			ContainSubstring("The other machines of the MachineDeployment: there is no place."), Not(ContainSubstring("aken"))))
		Expect(explain("refused", others)).To(And(
			ContainSubstring("Machine m failed. It is not known whether its MachineDeployment has a free place for it. [P1]"), Not(ContainSubstring("is preserved")), Not(ContainSubstring("is not preserved"))))
		Expect(explain("held-by-share", others)).To(ContainSubstring("Machine m is preserved."))
		Expect(explain("no-share", others)).To(ContainSubstring("Machine m failed and is not preserved because "+preservation.WhyNoShare.Text+"."), "whoever else there is")
		Expect(explain("ordinary", observed.Missing{Thing: observed.WhatNodeEvents, Partial: true})).To(ContainSubstring("\n  The rest of Events of the node: there is no place."))
	})
})
