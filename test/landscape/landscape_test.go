// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

import (
	"context"
	"errors"
	"os"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Landscape", func() {
	Describe("#ValidateMCM", func() {
		It("should accept what it names as valid", func() {
			Expect(ValidateMCM(DefaultMCM)).To(Succeed())
			Expect(ValidateMCM("0.61")).To(Succeed())
			Expect(ValidateMCM("0.62.1")).To(MatchError(ContainSubstring(`"0.62.1" of machine-controller-manager, valid are: 0.61, 0.62`)))
		})
	})

	Describe("#SwitchMCM", func() {
		It("should refuse an unknown generation before it touches anything", func(ctx SpecContext) {
			Expect((&Landscape{}).SwitchMCM(ctx, "0.63")).To(MatchError(ContainSubstring(`invalid generation "0.63"`)))
		})
	})

	Describe("#Start", func() {
		It("should not touch a directory in which another landscape runs", func(ctx SpecContext) {
			dir := GinkgoT().TempDir()
			owned, err := Directory(dir).own(ctx)
			Expect(err).NotTo(HaveOccurred())
			DeferCleanup(owned.Release)
			Expect(os.WriteFile(Directory(dir).SeedKubeconfig(), nil, 0o600)).To(Succeed())

			_, err = Start(ctx, Options{Dir: dir, MCM: DefaultMCM, Out: GinkgoWriter})
			Expect(err).To(MatchError(ContainSubstring("another landscape runs in " + dir)))
			Expect(Directory(dir).SeedKubeconfig()).To(BeARegularFile())
		})
	})

	Describe("#Watch", func() {
		It("should end the context with the error of the first component that ends by itself", func(ctx SpecContext) {
			l := &Landscape{failed: make(chan error, 1), abortStart: func() {}}
			watched := l.Watch(ctx)
			Consistently(watched.Done()).ShouldNot(BeClosed())
			l.fail(errors.New("etcd ended"))
			l.fail(errors.New("all else ended"))
			Eventually(watched.Done()).Should(BeClosed())
			Expect(context.Cause(watched)).To(MatchError("the landscape failed: etcd ended"))
		})
	})

	Describe("Directory", func() {
		It("should have an owner as long as a process owns it", func(ctx SpecContext) {
			directory := Directory(GinkgoT().TempDir())
			_, running, err := directory.Owner()
			Expect(err).NotTo(HaveOccurred())
			Expect(running).To(BeFalse())

			owned, err := directory.own(ctx)
			Expect(err).NotTo(HaveOccurred())
			pid, running, err := directory.Owner()
			Expect(err).NotTo(HaveOccurred())
			Expect(running).To(BeTrue())
			Expect(pid).To(Equal(os.Getpid()))

			owned.Release()
			_, running, err = directory.Owner()
			Expect(err).NotTo(HaveOccurred())
			Expect(running).To(BeFalse())
		})

		It("should be ready until it is cleared, which leaves the logs", func() {
			directory := Directory(GinkgoT().TempDir())
			Expect(directory.Ready()).To(BeEmpty())
			Expect(os.WriteFile(directory.readyFile(), []byte("0.62"), 0o600)).To(Succeed())
			Expect(os.Mkdir(directory.Logs(), 0o700)).To(Succeed())
			Expect(directory.Ready()).To(Equal("0.62"))

			Expect(directory.Clear()).To(Succeed())
			Expect(directory.Ready()).To(BeEmpty())
			Expect(directory.Logs()).To(BeADirectory())
		})
	})
})
