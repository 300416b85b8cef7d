// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// parts makes several MachineDeployments of one, which share its places. Each has at least one machine.
func parts(t *rapid.T, g Group) []Group {
	groups := make([]Group, min(3, len(g.Members)))
	for i, m := range g.Members {
		at := i
		if i >= len(groups) {
			at = rapid.IntRange(0, len(groups)-1).Draw(t, "zone")
		}
		groups[at].Members = append(groups[at].Members, m)
	}
	for i := range groups {
		members := groups[i].Members
		groups[i] = g
		groups[i].Name, groups[i].SharedIn, groups[i].Members = fmt.Sprintf("zone-%d", i), "pool", members
	}
	return groups
}

// decideAll lets each group decide beside the others, and returns the decisions by the names of the machines. Only the one that decides is told
// of a storm.
func decideAll(groups []Group, now time.Time) map[string]Decision {
	decisions := map[string]Decision{}
	for i, g := range groups {
		g.Elsewhere = slices.Delete(slices.Clone(groups), i, i+1)
		for j := range g.Elsewhere {
			g.Elsewhere[j].Storm = facts.Storm{}
		}
		for _, d := range Decide(g, now) {
			decisions[d.Machine.Name] = d
		}
	}
	return decisions
}

// TestP20 splits MachineDeployments into several that share the same places: what is decided is the same, whichever of them decides.
func TestP20(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := groups(Start).Draw(t, "group")
		decisions := decideAll(parts(t, g), Start)
		for _, one := range Decide(g, Start) {
			d := decisions[one.Machine.Name]
			if d.Rule != one.Rule || d.Why.ID != one.Why.ID || d.Verdict != one.Verdict || d.ConsumeRequest != one.ConsumeRequest || !reflect.DeepEqual(d.Target, one.Target) {
				t.Fatalf("the decision on %s depends on how many MachineDeployments there are:\n%+v\n%+v", one.Machine.Name, one, d)
			}
			if d.TakesPlace() != one.TakesPlace() {
				t.Fatalf("%s takes a place: %t and %t", one.Machine.Name, one.TakesPlace(), d.TakesPlace())
			}
		}
	})
}

// TestP20Order lets groups be decided on whose neighbours come in another order: the decisions are the same.
func TestP20Order(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		all := parts(t, groups(Start).Draw(t, "group"))
		granted := sets.New[types.UID]()
		for _, g := range all {
			for _, m := range g.Members {
				if rapid.Bool().Draw(t, "granted") {
					granted.Insert(m.Machine.UID)
				}
			}
		}
		g := all[0]
		g.Granted, g.Unlocked, g.Elsewhere = granted, rapid.Bool().Draw(t, "unlocked"), all[1:]
		if len(g.Elsewhere) > 0 && rapid.Bool().Draw(t, "one does not know yet") {
			g.Elsewhere[0].SharedIn = ""
		}
		reversed := g
		reversed.Elsewhere = slices.Clone(g.Elsewhere)
		slices.Reverse(reversed.Elsewhere)
		one, other := Decide(g, Start), Decide(reversed, Start)
		for i, d := range one {
			o := other[i]
			if d.Rule != o.Rule || d.Why != o.Why || d.Verdict != o.Verdict || !d.Next.Equal(o.Next) || !reflect.DeepEqual(d.Target, o.Target) {
				t.Fatalf("the decision on %s depends on the order of the MachineDeployments:\n%+v\n%+v", d.Machine.Name, d, o)
			}
			if g.Unlocked && d.TakesPlace() && d.Target.Cause() == "auto" && d.Current == nil {
				t.Fatalf("%s takes a place, and none can be given", d.Machine.Name)
			}
		}
	})
}

var _ = Describe("P20: places that the zones of a pool share", func() {
	var (
		now     = Start.Add(time.Hour)
		later   = now.Add(time.Hour)
		failing = Phase(machinev1alpha1.MachineUnknown, now.Add(-10*time.Minute))
		near    = Phase(machinev1alpha1.MachineUnknown, now.Add(-570*time.Second))
	)
	member := func(name string, opts ...MachineOption) facts.Member {
		return facts.Member{Machine: Machine(name, opts...), Node: Node(name, NotReady)}
	}
	auto := func(name string, opts ...MachineOption) facts.Member {
		return member(name, append([]MachineOption{Phase(machinev1alpha1.MachineUnknown, later.Add(-10*time.Minute)), Preserved("Failed:Preserved", "auto", later), Annotation(share, "2")}, opts...)...)
	}
	zone := func(name string, places int32, members ...facts.Member) Group {
		return Group{
			Name: name, SharedIn: "pool", Holder: HealthTimer{}, Share: &places, Timeout: 72 * time.Hour, MaxTimeout: 336 * time.Hour,
			Pool: facts.Pool{Replicas: 3}, Timeouts: facts.Timeouts{Health: 10 * time.Minute, Creation: 20 * time.Minute, Drain: 2 * time.Hour},
			NodeConditions: facts.DefaultNodeConditions, Members: members,
		}
	}
	beside := func(g Group, others ...Group) Group { g.Elsewhere = others; return g }
	// kept returns the machines that are kept, by what each MachineDeployment decides on its own.
	kept := func(groups ...Group) (names []string) {
		for name, d := range decideAll(groups, now) {
			if d.Target != nil {
				names = append(names, name)
			}
		}
		return names
	}

	It("P1: should be used in one zone, all of them", func() {
		Expect(kept(zone("a", 2, member("a1", failing), member("a2", failing)), zone("b", 2))).To(ConsistOf("a1", "a2"))
	})

	It("P1 T6: should not be exceeded in sum, and go to what fails first", func() {
		first := member("b1", Phase(machinev1alpha1.MachineUnknown, now.Add(-11*time.Minute)))
		a, b := zone("a", 2, member("a1", failing), auto("a2")), zone("b", 2, first)
		Expect(kept(a, b)).To(ConsistOf("a2", "b1"))
		d := Decide(beside(a, b), now)[0]
		Expect(d).To(And(HaveField("Why.ID", "NoPlace"), HaveField("Why.Text", "its pool has no free place"), HaveField("Verdict", Refused)))
	})

	It("T9: should be given back by the oldest machines of the whole pool when there are fewer", func() {
		a := zone("a", 1, auto("a1", Created(Start.Add(2*time.Minute))), auto("a2"))
		b := zone("b", 1, auto("b1", Created(Start.Add(time.Minute))))
		Expect(kept(a, b)).To(ConsistOf("a1"))
		Expect(Decide(beside(a, b), now)[1].Why).To(Equal(reason.Reason{ID: "ShareLowered", Rule: "T9", Text: "its pool has fewer places than before"}))
	})

	It("T9: should be as many as the one says that knows of the fewest", func() {
		a, b := zone("a", 3, member("a1", failing)), zone("b", 1, auto("b1"))
		Expect(Decide(beside(a, b), now)[0].Target).To(BeNil())
		b.Share = nil
		Expect(Decide(beside(a, b), now)[0].Target).NotTo(BeNil())
	})

	It("P15: should go to machines that fail for a new reason in the pool", func() {
		fails := facts.Member{Machine: Machine("b1", failing), Node: Node("b1", Condition("KernelDeadlock", corev1.ConditionTrue, "", ""))}
		failed := func(name string, ago time.Duration) facts.Member {
			return auto(name, Annotation(prefix+"failed-since", stamp(now.Add(-ago))))
		}
		a, b := zone("a", 2, failed("a1", time.Hour), failed("a2", 2*time.Hour)), zone("b", 2, fails)
		a.PrefersNew, b.PrefersNew = true, true
		Expect(kept(a, b)).To(ConsistOf("a2"), "the place of the last one that repeats a reason, once it is free")
		b.Members[0].Node = Node("b1", NotReady)
		Expect(kept(a, b)).To(ConsistOf("a1", "a2"))
	})

	Describe("P16: in a storm, which only the MachineDeployment that decides is told of", func() {
		stormy := func(g Group, others ...Group) Group {
			g.Storm = facts.Storm{Failing: 4, Machines: 9, Limit: 3, Next: now.Add(time.Minute)}
			return beside(g, others...)
		}

		It("P15: should not be taken from a machine for one elsewhere that gets none in the storm", func() {
			fails := facts.Member{Machine: Machine("b1", failing), Node: Node("b1", Condition("KernelDeadlock", corev1.ConditionTrue, "", ""))}
			a, b := zone("a", 2, auto("a1"), auto("a2")), zone("b", 2, fails)
			a.PrefersNew, b.PrefersNew = true, true
			for _, d := range Decide(stormy(a, b), now) {
				Expect(d.Target).NotTo(BeNil(), d.Machine.Name)
			}
		})

		It("should not count as taken by machines elsewhere that get none in the storm", func() {
			first := member("b1", Phase(machinev1alpha1.MachineUnknown, now.Add(-11*time.Minute)))
			d := Decide(stormy(zone("a", 1, member("a1", failing)), zone("b", 1, first)), now)[0]
			Expect(d).To(And(HaveField("Why.ID", "Storm"), HaveField("Verdict", Refused)))
		})
	})

	It("P15: should not be taken from the last machine that shows a reason", func() {
		fresh := func(name string, condition corev1.NodeConditionType) facts.Member {
			m := member(name, failing)
			m.Node = Node(name, Condition(condition, corev1.ConditionTrue, "", ""))
			return m
		}
		a := zone("a", 2, auto("a1"), auto("a2"), fresh("new1", "KernelDeadlock"), fresh("new2", "ReadonlyFilesystem"))
		a.PrefersNew = true
		Expect(kept(a)).To(ConsistOf("a2"), "its place is free once that is written")
	})

	Describe("that were granted", func() {
		It("should not be given away again while they are not written", func() {
			a, b := zone("a", 1, member("a1", failing)), zone("b", 1, well("b1"))
			a.Granted = sets.New[types.UID]("machine-b1")
			Expect(Decide(beside(a, b), now)[0]).To(And(HaveField("Target", BeNil()), HaveField("Why.ID", "NoPlace")))
		})

		It("should count although the machine is not known", func() {
			a := zone("a", 1, member("a1", failing))
			a.Granted = sets.New[types.UID]("somebody")
			Expect(Decide(a, now)[0].Target).To(BeNil())
		})

		It("should be there for the machine that has the grant, before all others", func() {
			earlier := member("a2", Phase(machinev1alpha1.MachineUnknown, now.Add(-11*time.Minute)))
			a := zone("a", 1, member("a1", failing), earlier)
			a.Granted = sets.New[types.UID]("machine-a1")
			decisions := Decide(a, now)
			Expect(decisions[0].TakesPlace()).To(BeTrue())
			Expect(decisions[1].Target).To(BeNil())
		})

		It("should count once when they are written", func() {
			a, b := zone("a", 2, member("a1", failing)), zone("b", 2, auto("b1"))
			a.Granted = sets.New[types.UID]("machine-b1")
			Expect(Decide(beside(a, b), now)[0].TakesPlace()).To(BeTrue())
		})

		It("should count once when they are taken", func() {
			a := zone("a", 2, member("a1", failing), member("a2", failing))
			a.Granted = sets.New[types.UID]("machine-a1")
			Expect(Decide(a, now)).To(HaveEach(HaveField("Target", Not(BeNil()))))
		})

		It("T9: should not be there any more when there are fewer places", func() {
			a, b := zone("a", 1, member("a1", failing)), zone("b", 1, auto("b1", Annotation(share, "1")))
			a.Granted = sets.New[types.UID]("machine-a1")
			Expect(Decide(beside(a, b), now)[0].Target).To(BeNil())
		})
	})

	Describe("that cannot be locked", func() {
		It("P12: should not be given away, and people should be told", func() {
			a := zone("a", 1, member("a1", failing), member("a2", near), member("asked", failing, Annotation(preserve, "now")))
			a.Unlocked = true
			decisions := Decide(a, now)
			Expect(decisions[0]).To(And(HaveField("Target", BeNil()), HaveField("Why", WhyPlacesUnknown), HaveField("Verdict", Refused)))
			Expect(decisions[1]).To(And(HaveField("Target", BeNil()), HaveField("Verdict", Untold), HaveField("Next", BeTemporally("<=", now.Add(30*time.Second)))))
			Expect(decisions[2].Target).NotTo(BeNil())
		})

		It("P12: should be kept by those that have one, until it expires", func() {
			a := zone("a", 1, auto("a1"), auto("a2", Annotation(share, "1"), Preserved("Failed:Preserved", "auto", now)))
			a.Unlocked = true
			Expect(kept(a)).To(ConsistOf("a1"))
		})

		DescribeTable("P15: should not be taken from a machine for one that fails for a new reason", func(unlocked bool, names ...string) {
			fresh := member("new", failing)
			fresh.Node = Node("new", Condition("KernelDeadlock", corev1.ConditionTrue, "", ""))
			a := zone("a", 2, auto("a1"), auto("a2"), fresh)
			a.PrefersNew, a.Unlocked = true, unlocked
			Expect(kept(a)).To(ConsistOf(names))
		},
			Entry("while they cannot be locked", true, "a1", "a2"),
			Entry("but as soon as they can", false, "a2"),
		)

		DescribeTable("T2: should be taken beside a request", func(unlocked bool, causes ...string) {
			a := zone("a", 1, member("a1", failing, Annotation(preserve, "now")))
			a.Unlocked = unlocked
			var has []string
			for _, claim := range Decide(a, now)[0].Target.Claims {
				has = append(has, claim.Cause)
			}
			Expect(has).To(ConsistOf(causes))
		},
			Entry("not while they cannot be locked", true, "now"),
			Entry("but as soon as they can", false, "now", "auto"),
		)
	})

	Describe("and that are just beginning to be shared", func() {
		It("should be left to a MachineDeployment that does not know yet that they are", func() {
			a, b := zone("a", 2, member("a1", failing), member("a2", failing)), zone("b", 1)
			b.SharedIn = ""
			Expect(kept(a, b)).To(ConsistOf("a1"))
			b.Members = []facts.Member{auto("b1", Annotation(share, "1"))}
			Expect(kept(a, b)).To(ConsistOf("a1", "b1"), "it has its place already")
			b.Members = []facts.Member{member("b1", Phase(machinev1alpha1.MachineUnknown, now.Add(-11*time.Minute)))}
			Expect(kept(a, b)).To(ConsistOf("a1", "b1"), "it gives its own place, not the one that is left here")
		})

		It("T9: should cost no machine its place", func() {
			one, two := auto("a1", Annotation(share, "1")), auto("b1", Annotation(share, "1"))
			Expect(kept(zone("a", 2, one), zone("b", 2, two))).To(ConsistOf("a1", "b1"))
		})

		It("T9: should be distributed again by the share of each", func() {
			a, b := zone("a", 1, auto("a1", Created(Start.Add(time.Minute))), auto("a2")), zone("b", 1)
			a.SharedIn, b.SharedIn = "", ""
			Expect(kept(a, b)).To(ConsistOf("a1"))
		})
	})

	It("should have the same reasons by their IDs as those of a zone, without a word of it", func() {
		a := zone("a", 0, member("a1", failing))
		Expect(Decide(a, now)[0].Why.Text).To(Equal("its pool has no places"))
		for _, why := range Reasons() {
			shared := InPool(why)
			if why == WhyNoReplicas || !strings.Contains(why.Text, "in its zone") {
				Expect(shared).To(Equal(why))
				continue
			}
			Expect(shared).To(And(HaveField("ID", why.ID), HaveField("Rule", why.Rule), HaveField("Text", Equal(strings.ReplaceAll(why.Text, " in its zone", "")))))
		}
	})

	It("should be taken by the machines that have failed, wherever they are", func() {
		a, b := zone("a", 2, auto("a1"), well("a2")), zone("b", 2, member("b1", failing), member("b2", failing))
		Expect(Placed(beside(a, b), now)).To(Equal([]string{"a1", "b1"}))
		Expect(Placed(beside(b, a), now)).To(Equal([]string{"a1", "b1"}))
	})

	It("should be told of for one MachineDeployment only", func() {
		a, b := zone("a", 2), zone("b", 2)
		Expect(beside(a, b).CountsPlaces()).To(BeTrue())
		Expect(beside(b, a).CountsPlaces()).To(BeFalse())
		b.SharedIn = ""
		Expect(beside(b, a).CountsPlaces()).To(BeTrue())
	})
})

// well is a healthy machine with its node.
func well(name string) facts.Member { return facts.Member{Machine: Machine(name), Node: Node(name)} }
