// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package share_test

import (
	"fmt"
	"time"

	extensionsworkercontroller "github.com/gardener/gardener/extensions/pkg/controller/worker"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

var _ = Describe("#Distribute", func() {
	created := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

	pool := func(zones ...string) Pool {
		return Pool{Name: "worker-a", Zones: zones}
	}
	// deployment is what a provider creates for a zone.
	deployment := func(name, zone string) Deployment {
		return Deployment{Name: name, Class: name + "-12345", Zone: zone, Created: created}
	}
	distribute := func(pool Pool, maximum int32, deployments ...Deployment) (map[string]int, []Unplaced) {
		shares, unplaced := Distribute(pool, "westeurope", Settings{AutoPreserveFailedMax: maximum, MachinePreserveTimeout: time.Hour}, deployments)
		numbers := map[string]int{}
		for name, share := range shares {
			Expect(share.MachinePreserveTimeout).To(Equal(time.Hour))
			numbers[name] = int(share.AutoPreserveFailedMax)
		}
		return numbers, unplaced
	}

	It("P20: all of it to each, whatever its zone, if the zones share the places", func() {
		settings := Settings{AutoPreserveFailedMax: 2, MachinePreserveTimeout: time.Hour, SharedIn: "worker-a"}
		shares, unplaced := Distribute(pool("a", "b"), "westeurope", settings, []Deployment{deployment("one", "a"), deployment("two", "b"), deployment("three", "a"), deployment("four", "unknown")})
		Expect(unplaced).To(BeEmpty())
		Expect(shares).To(Equal(map[string]Settings{"one": settings, "two": settings, "three": settings, "four": settings}))
	})

	DescribeTable("as Gardener distributes minimum and maximum",
		func(maximum, zones int, expected ...int) {
			var (
				names       []string
				deployments []Deployment
			)
			for i := range zones {
				zone := fmt.Sprintf("zone-%d", i)
				names = append(names, zone)
				deployments = append([]Deployment{deployment("shoot--p--s-worker-a-z"+zone, zone)}, deployments...)
			}

			shares, unplaced := distribute(pool(names...), int32(maximum), deployments...)
			Expect(unplaced).To(BeEmpty())
			for i, zone := range names {
				Expect(shares).To(HaveKeyWithValue("shoot--p--s-worker-a-z"+zone, expected[i]))
			}
		},
		Entry("2 over 2", 2, 2, 1, 1),
		Entry("5 over 3", 5, 3, 2, 2, 1),
		Entry("1 over 3", 1, 3, 1, 0, 0),
		Entry("0 over 2", 0, 2, 0, 0),
		Entry("3 over 1", 3, 1, 3),
		Entry("2147483647 over 2", 2147483647, 2, 1073741824, 1073741823),
	)

	DescribeTable("zones as providers write them",
		func(zones []string, deploymentZones []string, expected map[string]int) {
			var deployments []Deployment
			for i, zone := range deploymentZones {
				deployments = append(deployments, deployment(fmt.Sprintf("z%d", i+1), zone))
			}
			shares, unplaced := distribute(pool(zones...), 5, deployments...)
			Expect(unplaced).To(BeEmpty())
			Expect(shares).To(Equal(expected))
		},
		Entry("the same (aws)", []string{"eu-west-1b", "eu-west-1a"}, []string{"eu-west-1a", "eu-west-1b"}, map[string]int{"z1": 2, "z2": 3}),
		Entry("behind the region (azure), zones not contiguous", []string{"1", "3"}, []string{"westeurope-1", "westeurope-3"}, map[string]int{"z1": 3, "z2": 2}),
		Entry("placeholder in a pool without zones (azure)", nil, []string{"no-zone"}, map[string]int{"z1": 5}),
		Entry("region in a pool without zones (local)", nil, []string{"westeurope"}, map[string]int{"z1": 5}),
		Entry("MachineClass without node template, one zone", []string{"a"}, []string{""}, map[string]int{"z1": 5}),
	)

	It("should give nothing to a MachineDeployment that is in no zone of the pool, and say what is missing", func() {
		shares, unplaced := distribute(pool("1", "2"), 3, deployment("md-1", "westeurope-1"), deployment("md-4", "westeurope-4"), deployment("md-x", ""))
		Expect(shares).To(Equal(map[string]int{"md-1": 2}))
		Expect(unplaced).To(ConsistOf(
			Unplaced{"md-4", `nodeTemplate.zone "westeurope-4" of its MachineClass "md-4-12345" is none of the zones ["1" "2"] of worker pool "worker-a"`},
			Unplaced{"md-x", `nodeTemplate.zone "" of its MachineClass "md-x-12345" is none of the zones ["1" "2"] of worker pool "worker-a"`},
		))
	})

	It("should not take a zone for one with the same beginning", func() {
		shares, unplaced := distribute(pool("1", "11"), 3, deployment("md", "northeurope-1"))
		Expect(shares).To(BeEmpty())
		Expect(unplaced).To(HaveLen(1))
	})

	It("should not hand out a share twice, the oldest keeps it", func() {
		younger := deployment("a-younger", "zone-1")
		younger.Created = created.Add(time.Minute)
		coming := deployment("a-coming", "zone-1")
		coming.Created = time.Time{}

		shares, unplaced := distribute(pool("zone-1", "zone-2"), 3, coming, younger, deployment("z-older", "zone-1"), deployment("other", "zone-2"))
		Expect(shares).To(Equal(map[string]int{"z-older": 2, "a-younger": 0, "a-coming": 0, "other": 1}))
		Expect(unplaced).To(Equal([]Unplaced{
			{"a-younger", `MachineDeployment "z-older" of worker pool "worker-a" is in the same zone and has its share`},
			{"a-coming", `MachineDeployment "z-older" of worker pool "worker-a" is in the same zone and has its share`},
		}))
	})

	It("should distribute over the MachineDeployments where no MachineClass names a zone, also if there are fewer or more of them than zones", func() {
		zones := pool("a", "b", "c")
		shares, unplaced := distribute(zones, 5, deployment("md-z2", ""), deployment("md-z1", ""))
		Expect(shares).To(Equal(map[string]int{"md-z1": 3, "md-z2": 2}))
		Expect(unplaced).To(BeEmpty())

		shares, unplaced = distribute(zones, 5, deployment("md-z4", ""), deployment("md-z3", ""), deployment("md-z2", ""), deployment("md-z1", ""))
		Expect(shares).To(Equal(map[string]int{"md-z1": 2, "md-z2": 1, "md-z3": 1, "md-z4": 1}))
		Expect(unplaced).To(BeEmpty())
	})

	It("should not hand out a share twice in a pool without zones", func() {
		shares, _ := distribute(pool(), 3, deployment("b", "no-zone"), deployment("a", "no-zone"))
		Expect(shares).To(Equal(map[string]int{"a": 3, "b": 0}))
	})

	It("should not hand out a share twice in a pool with one zone that no MachineClass names", func() {
		shares, unplaced := distribute(pool("a"), 3, deployment("second", ""), deployment("first", ""))
		Expect(shares).To(Equal(map[string]int{"first": 3, "second": 0}))
		Expect(unplaced).To(HaveLen(1))
	})

	It("should give each MachineDeployment what is not distributed, also one without a share", func() {
		settings := Settings{AutoPreserveFailedMax: 1, MachinePreserveTimeout: time.Hour, ForceDeletePodsWithVolumes: true}
		shares, _ := Distribute(pool("a", "b"), "", settings, []Deployment{deployment("first", "a"), deployment("second", "a"), deployment("third", "b")})
		for _, name := range []string{"second", "third"} {
			Expect(shares).To(HaveKeyWithValue(name, Settings{MachinePreserveTimeout: time.Hour, ForceDeletePodsWithVolumes: true}))
		}
		Expect(shares).To(HaveKeyWithValue("first", settings))
	})

	It("should never exceed the sum", func() {
		for maximum := range int32(12) {
			for zones := 1; zones <= 5; zones++ {
				var (
					names       []string
					deployments []Deployment
				)
				for i := range zones {
					names = append(names, fmt.Sprint(i))
					deployments = append(deployments, deployment(fmt.Sprintf("a%d", i), fmt.Sprint(i)), deployment(fmt.Sprintf("b%d", i), fmt.Sprint(i)))
				}
				shares, _ := distribute(pool(names...), maximum, deployments...)
				sum := 0
				for _, share := range shares {
					sum += share
				}
				Expect(sum).To(BeEquivalentTo(maximum), "%d over %d", maximum, zones)
			}
		}
	})
})

var _ = Describe("#OverZones", func() {
	It("should give the zones what Gardener gives them", func() {
		for _, number := range []int32{0, 1, 2, 3, 5, 7, 12, 2147483647} {
			for zones := range 6 {
				numbers := OverZones(number, zones)
				Expect(numbers).To(HaveLen(zones))
				for i := range zones {
					Expect(numbers[i]).To(Equal(extensionsworkercontroller.DistributeOverZones(int32(i), number, int32(zones))), "%d, zone %d of %d", number, i, zones)
				}
			}
		}
	})
})
