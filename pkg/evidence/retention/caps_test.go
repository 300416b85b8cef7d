// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package retention_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
)

const (
	mib    = 1 << 20
	budget = 512 * mib
)

var _ = Describe("Caps", func() {
	has := func(bytes int64, caps ...int64) Usage {
		u := Usage{Bytes: bytes}
		for i := range caps {
			u.Cap = &caps[i]
		}
		return u
	}
	total := func(usage map[string]Usage, caps map[string]int64) (sum int64) {
		for namespace, u := range usage {
			if limit, ok := caps[namespace]; ok {
				u.Bytes = min(u.Bytes, limit)
			}
			sum += u.Bytes
		}
		return sum
	}

	It("should keep 190 hostile shoots below the budget, and leave an honest one all that it has", func() {
		usage := map[string]Usage{"honest": has(mib)}
		for i := range 190 {
			usage[fmt.Sprintf("hostile-%d", i)] = has(8 * mib)
		}
		Expect(total(usage, nil)).To(BeEquivalentTo(1521*mib), "so much it is without caps")
		caps, sum := Caps(usage, budget)
		Expect(sum).To(BeEquivalentTo(1521 * mib))
		Expect(caps).To(HaveLen(190))
		Expect(caps).NotTo(HaveKey("honest"))
		Expect(total(usage, caps)).To(And(BeNumerically("<=", budget/8*5), BeNumerically(">", budget/8*5-mib)))

		// What they have is what they may have by now: nothing changes, and nothing flaps.
		for namespace, limit := range caps {
			usage[namespace] = has(limit, limit)
		}
		again, _ := Caps(usage, budget)
		Expect(again).To(Equal(caps))
	})

	It("should leave each at least what one bundle may have", func() {
		usage := map[string]Usage{}
		for i := range 1000 {
			usage[fmt.Sprint(i)] = has(mib)
		}
		caps, _ := Caps(usage, 16*mib)
		Expect(caps).To(And(HaveLen(1000), HaveEach(BeEquivalentTo(64<<10))))
	})

	DescribeTable("who keeps what, in KiB", func(usage map[string]Usage, want map[string]int64) {
		for namespace, u := range usage {
			u.Bytes <<= 10
			if u.Cap != nil {
				u.Cap = new(*u.Cap << 10)
			}
			usage[namespace] = u
		}
		caps, _ := Caps(usage, 8000<<10)
		for namespace := range caps {
			caps[namespace] >>= 10
		}
		Expect(caps).To(Equal(want))
	},
		Entry("nobody has anything", nil, map[string]int64{}),
		Entry("all that they have up to three quarters", map[string]Usage{"a": has(6000)}, map[string]int64{}),
		Entry("one has it all", map[string]Usage{"a": has(6001)}, map[string]int64{"a": 5000}),
		Entry("who has less than the fair share gives nothing up", map[string]Usage{"a": has(5000), "b": has(3000), "c": has(500)}, map[string]int64{"a": 2250, "b": 2250}),
		Entry("who has exactly the fair share gives nothing up", map[string]Usage{"a": has(1000), "b": has(2000), "c": has(4000)}, map[string]int64{"c": 2000}),
		Entry("a cap that nobody can read goes as well", map[string]Usage{"a": {Bytes: 3999, Broken: true}}, map[string]int64{}),
		Entry("or becomes what is there", map[string]Usage{"a": {Bytes: 4000, Broken: true}}, map[string]int64{"a": 4000}),
		Entry("what others do not want is shared", map[string]Usage{"a": has(5000), "b": has(2000), "c": has(500)}, map[string]int64{"a": 2500}),
		Entry("a cap stays while half is used", map[string]Usage{"a": has(2000, 2250), "b": has(2000)}, map[string]int64{"a": 2250}),
		Entry("no other is added then", map[string]Usage{"a": has(1000, 1000), "b": has(4900)}, map[string]int64{"a": 1000}),
		Entry("it falls when it is too much again", map[string]Usage{"a": has(2250, 2250), "b": has(2250, 2250), "c": has(2000)}, map[string]int64{"a": 1666, "b": 1666, "c": 1666}),
		Entry("it goes when less than half is used", map[string]Usage{"a": has(2000, 2250), "b": has(1999)}, map[string]int64{}),
	)
})
