// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// ledger takes note of what it is told.
type ledger func(deployment *machinev1alpha1.MachineDeployment, decisions []preservation.Decision, now time.Time)

func (l ledger) Observe(deployment *machinev1alpha1.MachineDeployment, decisions []preservation.Decision, now time.Time) {
	l(deployment, decisions, now)
}

func (l ledger) Forget(string, string) {}

// forgetful notes what is forgotten.
type forgetful struct {
	ledger
	forgotten []string
}

func (f *forgetful) Forget(deployment, pool string) {
	f.forgotten = append(f.forgotten, deployment+" "+pool)
	panic("a mistake")
}

var _ = Describe("Ledger", func() {
	failed := Phase(machinev1alpha1.MachineUnknown, Start.Add(50*time.Minute))

	It("P12: should be told when the machines are held, and keep nothing from going on", func(ctx SpecContext) {
		e := withMachine(preservation.HealthTimer{}, Machine("m", failed), Node("m", NotReady))
		told, others := 0, 0
		e.Ledgers = []Ledger{ledger(func(deployment *machinev1alpha1.MachineDeployment, decisions []preservation.Decision, now time.Time) {
			told++
			Expect(deployment.Name).To(Equal("pool"))
			Expect(now).To(Equal(e.now()))
			Expect(decisions).To(HaveLen(1))
			Expect(e.machine(ctx, "m").Annotations).To(HaveKeyWithValue(prefix+"cause", "auto"))
			panic("a mistake")
		}), ledger(func(*machinev1alpha1.MachineDeployment, []preservation.Decision, time.Time) { others++ })}
		result := e.settle(ctx)
		Expect(told).NotTo(BeZero())
		Expect(others).To(Equal(told))
		Expect(result.RequeueAfter).To(Equal(72 * time.Hour))
	})

	It("T6: should be told of a machine that is not kept, of which nothing is written", func(ctx SpecContext) {
		e := withMachine(preservation.HealthTimer{}, Machine("m", failed, Annotation(prefix+"forbidden", "true")), Node("m", NotReady))
		var since time.Time
		e.Ledgers = []Ledger{ledger(func(_ *machinev1alpha1.MachineDeployment, decisions []preservation.Decision, _ time.Time) {
			since, _ = decisions[0].HasFailed()
		})}
		_, err := e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(since).To(BeTemporally("==", Start.Add(50*time.Minute)))
		Expect(e.api.written()).To(BeEmpty())
	})
})
