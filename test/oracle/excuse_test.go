// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package oracle_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

var _ = Describe("excuses", func() {
	It("should be over when the last of them is", func() {
		e := Excuses{}
		Expect(e.Since(now, Fault)).To(Equal(Forever))
		e.Add(Excuse{Kind: Fault, From: ago(time.Hour), Until: ago(time.Minute)})
		e.Add(At(ago(10*time.Minute), Fault))
		Expect(e.Since(now, Fault)).To(Equal(time.Minute))
		Expect(e.Since(now, Fault, Killed)).To(Equal(time.Minute))
		e.Add(Excuse{Kind: Fault, From: now})
		e.Add(At(now, Fault))
		Expect(e.GoesOn(Fault)).To(BeTrue())
		Expect(e.Since(now.Add(time.Hour), Fault)).To(BeZero())
		e.Ends(Fault, now)
		Expect(e.Since(now.Add(time.Hour), Fault)).To(Equal(time.Hour))
		Expect(e.But(Fault)).To(BeEmpty())
	})

	It("should last for as long as the world says, and tell the last one", func() {
		excused := func(w World, kinds []Kind, excuses ...Excuses) string {
			return string(w.Excused(now, nil, kinds, excuses...))
		}
		both := []Kind{Deleted, Killed}
		deleted, killed := excuse(Deleted, 90*time.Second), excuse(Killed, 30*time.Second)
		Expect(excused(world, both, deleted, killed)).To(Equal(string(Killed)))
		Expect(excused(world, both, killed, deleted)).To(Equal(string(Killed)))
		Expect(excused(world, []Kind{Deleted}, deleted, killed)).To(Equal(string(Deleted)))
		Expect(excused(world, both, excuse(Killed, 31*time.Second))).To(BeEmpty())
		Expect(excused(world, both, excuse(Deleted, 91*time.Second))).To(BeEmpty())

		slow := world
		slow.Elapsed = func(from, to time.Time) time.Duration { return to.Sub(from) / 2 }
		Expect(excused(slow, both, excuse(Deleted, 180*time.Second))).NotTo(BeEmpty())
	})
})
