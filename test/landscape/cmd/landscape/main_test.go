// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Command", func() {
	execute := func(ctx SpecContext, args ...string) (string, error) {
		command, out := newCommand(), &bytes.Buffer{}
		command.SetArgs(args)
		command.SetOut(out)
		err := command.ExecuteContext(ctx)
		return out.String(), err
	}

	DescribeTable("invalid arguments",
		func(ctx SpecContext, message string, args ...string) {
			_, err := execute(ctx, append(args, "--dir="+filepath.Join(GinkgoT().TempDir(), "new"))...)
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("an unknown generation to start", `invalid generation "0.63" of machine-controller-manager, valid are: 0.61, 0.62`, "up", "--mcm=0.63"),
		Entry("an empty generation to start", `invalid generation ""`, "up", "--mcm="),
		Entry("an unknown generation to run", `invalid generation "latest"`, "run", "--mcm=latest"),
		Entry("unknown hosts to start", `invalid kind of hosts "vm", valid are: baremetalhost, ironcore-0.3, ironcore-0.7`, "up", "--hosts=vm"),
		Entry("a generation to stop", "unknown flag: --mcm", "down", "--mcm=0.62"),
		Entry("a superfluous argument", `unknown command "now"`, "up", "now"),
		Entry("an unknown command", `unknown command "restart"`, "restart"),
	)

	It("should have nothing to stop where no landscape runs, however often", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		for range 2 {
			Expect(execute(ctx, "down", "--dir="+dir)).To(Equal("The landscape is down already.\n"))
		}
	})
})
