// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package grants_test

import (
	"fmt"
	"math/rand/v2"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/grants"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	prefix = "machine-preservation.extensions.gardener.cloud/"
	phase  = prefix + "power-cycle-phase"
	record = prefix + "power-cycle-record"
	grant  = prefix + "power-cycle-grant"
)

// now is an hour after Start, when the requests were made.
var now = builder.Start.Add(time.Hour)

// in makes a machine one in a phase of its power cycle.
func in(name, of string, opts ...builder.MachineOption) *machinev1alpha1.Machine {
	return builder.Machine(name, append([]builder.MachineOption{builder.Annotation(phase, of), labelled}, opts...)...)
}

// waits makes a machine one that waits for nothing but a grant, for so long after Start.
func waits(name string, after time.Duration, opts ...builder.MachineOption) *machinev1alpha1.Machine {
	return in(name, "Waiting", append([]builder.MachineOption{waitsFor(after, true)}, opts...)...)
}

func waitsFor(after time.Duration, aGrant bool) builder.MachineOption {
	return builder.Annotation(record, fmt.Sprintf(`{"requested":%q,"wait":"something","awaitsGrant":%t}`, builder.Start.Add(after).Format(time.RFC3339), aGrant))
}

// granted gives a machine a grant that ends so long after now.
func granted(after time.Duration) builder.MachineOption {
	return builder.Annotation(grant, now.Add(after).Format(time.RFC3339))
}

// keptFor preserves a machine for its power cycle until so long after now.
func keptFor(after time.Duration) builder.MachineOption {
	return builder.Annotation(prefix+"remediation", now.Add(after).Format(time.RFC3339))
}

// beganBefore lets the cycle of a machine begin so long before now.
func beganBefore(d time.Duration) builder.MachineOption {
	return builder.Annotation(record, fmt.Sprintf(`{"began":%q}`, now.Add(-d).Format(time.RFC3339)))
}

func labelled(m *machinev1alpha1.Machine) { m.Labels[prefix+"power-cycle"] = "true" }

func inNamespace(namespace string) builder.MachineOption {
	return func(m *machinev1alpha1.Machine) { m.Namespace = namespace }
}

var _ = Describe("#Decide", func() {
	DescribeTable("X8: grants",
		func(limit int, expected []string, next time.Duration, machines ...*machinev1alpha1.Machine) {
			decision := Decide(machines, limit, now)
			names := []string{}
			for _, m := range decision.Grants {
				names = append(names, m.Name)
			}
			Expect(names).To(Equal(expected))
			if next == 0 {
				Expect(decision.Next).To(BeZero())
			} else {
				Expect(decision.Next).To(BeTemporally("==", now.Add(next)))
			}
		},
		Entry("none where nobody waits", 1, []string{}, time.Duration(0)),
		Entry("one at a time, the oldest first", 1, []string{"b"}, 150*time.Second, waits("a", time.Minute), waits("b", 0), waits("c", time.Second)),
		Entry("as many as there may be", 2, []string{"b", "c"}, 150*time.Second, waits("a", time.Minute), waits("b", 0), waits("c", time.Second)),
		Entry("of the same age, by namespace and name", 3, []string{"z", "a", "b"}, 150*time.Second, waits("b", 0), waits("a", 0), waits("z", 0, inNamespace("shoot--a"))),
		Entry("none while a cycle is powered off", 1, []string{}, time.Duration(0), waits("a", 0), in("b", "PoweringOff")),
		Entry("none while a node is made safe", 1, []string{}, time.Duration(0), waits("a", 0), in("b", "MakingNodeSafe")),
		Entry("none while one is powered on", 1, []string{}, time.Duration(0), waits("a", 0), in("b", "PoweringOn")),
		Entry("none while one starts", 1, []string{}, time.Duration(0), waits("a", 0), in("b", "Starting")),
		Entry("none as long as a machine is kept for its cycle", 1, []string{}, 90*time.Second, waits("a", 0), in("b", "PoweringOff", keptFor(time.Minute))),
		Entry("none in a short time after that", 1, []string{}, time.Second, waits("a", 0), in("b", "PoweringOff", keptFor(-29*time.Second))),
		Entry("none for as long as a cycle can go on", 1, []string{}, 30*time.Second, waits("a", 0), in("b", "PoweringOff", keptFor(1e6*time.Hour), beganBefore(27*time.Hour))),
		Entry("one after that", 1, []string{"a"}, 150*time.Second, waits("a", 0), in("b", "PoweringOff", keptFor(1e6*time.Hour), beganBefore(27*time.Hour+30*time.Second))),
		Entry("one when nobody ends a cycle that is over", 1, []string{"a"}, 150*time.Second, waits("a", 0), in("b", "PoweringOff", keptFor(-30*time.Second))),
		Entry("none while more are under way than there may be now", 1, []string{}, time.Duration(0), waits("a", 0), in("b", "Starting"), in("c", "Starting")),
		Entry("one when they are over", 1, []string{"a"}, 150*time.Second, waits("a", 0), in("b", "Succeeded"), in("c", "Failed"), in("d", "Cancelled")),
		Entry("what is left", 3, []string{"a"}, 90*time.Second, waits("a", time.Hour), in("b", "Starting"), waits("c", 0, granted(time.Minute))),
		Entry("none while one is valid", 1, []string{}, 31*time.Second, waits("a", 0), waits("b", time.Minute, granted(time.Second))),
		Entry("none while the cycle of one that has just passed may be about to begin", 1, []string{}, time.Second, waits("a", 0), waits("b", 0, granted(-29*time.Second))),
		Entry("one when that is over", 1, []string{"a"}, 150*time.Second, waits("a", 0), waits("b", 0, granted(-30*time.Second))),
		Entry("counts one whose machine waits for something else by now", 1, []string{}, 90*time.Second, waits("a", 0), in("b", "Waiting", waitsFor(0, false), granted(time.Minute))),
		Entry("not one whose request is gone", 1, []string{"a"}, 150*time.Second, waits("a", 0), in("b", "Cancelled", granted(time.Minute))),
		Entry("not one that nobody can read", 1, []string{"a"}, 150*time.Second, waits("a", 0, builder.Annotation(grant, "now"))),
		Entry("none to who waits for something else", 1, []string{"b"}, 150*time.Second, in("a", "Waiting", waitsFor(0, false)), waits("b", time.Minute)),
		Entry("none to who is being deleted", 1, []string{"b"}, 150*time.Second, waits("a", 0, builder.Deleted(now)), waits("b", time.Minute)),
		Entry("last to who has let one pass, who did so longest ago first", 2, []string{"c", "b"}, 150*time.Second,
			waits("a", 0, granted(-time.Minute)), waits("b", time.Second, granted(-time.Hour/2)), waits("c", 2*time.Second)),
		Entry("in turn, whatever was let pass when it waited before", 1, []string{"a"}, 150*time.Second,
			waits("a", 0, granted(-2*time.Hour)), waits("b", time.Second)),
	)

	It("X8: never lets more begin than there may be, and lets all begin in the end", func() {
		random := rand.New(rand.NewPCG(uint64(GinkgoRandomSeed()), 0))
		for range 200 {
			var (
				limit    = 1 + random.IntN(3)
				machines []*machinev1alpha1.Machine
				at       = now
				begun    = map[string]time.Time{}
				left     = 1 + random.IntN(8)
			)
			for i := range left {
				machines = append(machines, waits(fmt.Sprint(i), time.Duration(random.IntN(3))*time.Second))
			}
			for step := 0; left > 0; step++ {
				Expect(step).To(BeNumerically("<", 1000))
				decision := Decide(machines, limit, at)
				for _, m := range decision.Grants {
					m.Annotations[grant] = at.Add(2 * time.Minute).Format(time.RFC3339)
				}
				underWay := 0
				for _, m := range machines {
					switch {
					case remediation.HasGrant(m, at) && random.IntN(3) == 0:
						m.Annotations[phase], begun[m.Name] = "PoweringOff", at
					case remediation.UnderWay(m) && !at.Before(begun[m.Name].Add(5*time.Minute)):
						m.Annotations[phase] = "Succeeded"
						left--
					}
					if remediation.UnderWay(m) || remediation.HasGrant(m, at) {
						underWay++
					}
				}
				Expect(underWay).To(BeNumerically("<=", limit))
				at = at.Add(time.Duration(1+random.IntN(60)) * time.Second)
			}
		}
	})
})
