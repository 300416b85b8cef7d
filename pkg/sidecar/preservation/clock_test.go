// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("A clock that jumps", func() {
	for name, holder := range holders {
		It("P10: should release nothing before its expiry when the clock is set back by an hour "+name, func(ctx SpecContext) {
			node := Node("m", NotReady)
			with("now")(node)
			e := withMachine(holder, Machine("m", near(Start.Add(time.Hour))), node)
			e.settle(ctx)
			expiry := e.machine(ctx, "m").Annotations[prefix+"expiry-time"]
			Expect(expiry).NotTo(BeEmpty())
			ends, err := time.Parse(time.RFC3339, expiry)
			Expect(err).NotTo(HaveOccurred())

			e.pass(-time.Hour)
			e.settle(ctx)
			Expect(e.machine(ctx, "m").Annotations).To(HaveKeyWithValue(prefix+"expiry-time", expiry), "it is neither kept longer nor let go of")
			e.restart()
			e.settle(ctx)
			Expect(e.machine(ctx, "m").Annotations).To(HaveKeyWithValue(prefix+"expiry-time", expiry), "nor by another leader")

			e.clock.SetTime(ends.Add(-time.Second))
			e.settle(ctx)
			Expect(e.machine(ctx, "m").Annotations).To(HaveKeyWithValue(prefix+"expiry-time", expiry))
			e.pass(time.Hour)
			e.settle(ctx)
			Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKeyWithValue(prefix+"expiry-time", expiry), "it is over by then")
		})
	}
})
