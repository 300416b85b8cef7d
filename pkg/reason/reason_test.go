// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package reason_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
)

func TestReason(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Reason Suite")
}

var _ = Describe("Table", func() {
	It("should know its reasons by their IDs", func() {
		var table Table
		used := table.Add("UsedUp", "P1", "the share is used up")
		lowered := table.Add("Lowered", "T9", "the share was lowered")
		Expect(table.Of("UsedUp")).To(Equal(Reason{ID: "UsedUp", Rule: "P1", Text: "the share is used up"}))
		Expect(table.All()).To(Equal([]Reason{used, lowered}))
		Expect(table.Of("the share is used up").IsZero()).To(BeTrue())
		Expect(used.IsZero()).To(BeFalse())
		Expect(used.Is(Reason{ID: "UsedUp", Rule: "P1", Text: "worded in another way"})).To(BeTrue())
		Expect(used.Is(lowered)).To(BeFalse())
	})

	DescribeTable("should have no two", func(id, text string) {
		var table Table
		table.Add("UsedUp", "P1", "the share is used up")
		Expect(func() { table.Add(id, "T9", text) }).To(Panic())
		Expect(table.All()).To(HaveLen(1))
	},
		Entry("with one ID", "UsedUp", "the share was lowered"),
		Entry("with one text", "Lowered", "the share is used up"),
	)
})
