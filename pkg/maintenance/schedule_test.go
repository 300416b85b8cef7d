// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"pgregory.net/rapid"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
)

// begin is when the first object is created.
var begin = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// cluster returns nodes n0, n1, ... of which the last ones are unavailable.
func cluster(count, unavailable int) []ScheduledNode {
	nodes := make([]ScheduledNode, count)
	for i := range nodes {
		nodes[i] = ScheduledNode{Name: fmt.Sprintf("n%d", i), Unavailable: i >= count-unavailable}
	}
	return nodes
}

type requestOption func(*Request)

// wish returns a pending request for a node.
func wish(name, node string, opts ...requestOption) Request {
	r := Request{NamespacedName: types.NamespacedName{Namespace: "default", Name: name}, Node: node, Requestor: "acme", Created: begin, Pending: true}
	for _, opt := range opts {
		opt(&r)
	}
	return r
}

func of(requestor string) requestOption { return func(r *Request) { r.Requestor = requestor } }
func createdAt(minutes int) requestOption {
	return func(r *Request) { r.Created = begin.Add(time.Duration(minutes) * time.Minute) }
}
func inProgress(r *Request) { r.Pending, r.InProgress = false, true }
func ending(r *Request)     { r.Pending, r.InProgress, r.Ending = false, true, true }
func untouched(r *Request)  { r.Pending = false }
func refused(r *Request)    { r.Refused, r.UID = true, types.UID("uid-"+r.Name) }

// wishes returns pending requests for the nodes from one number to before another, in the order of their creation.
func wishes(from, to int) []Request {
	var requests []Request
	for i := from; i < to; i++ {
		requests = append(requests, wish(fmt.Sprintf("m%d", i), fmt.Sprintf("n%d", i), createdAt(i)))
	}
	return requests
}

// handovers returns maintenances that are ending, and the next one of each of these nodes.
func handovers(count int) []Request {
	requests := wishes(0, count)
	for i := range count {
		requests = append(requests, wish(fmt.Sprintf("old-%d", i), fmt.Sprintf("n%d", i), ending))
	}
	return requests
}

// cordoned returns nodes of which the first ones are unavailable because they are cordoned for a maintenance.
func cordoned(count, first int) []ScheduledNode {
	nodes := cluster(count, 0)
	for i := range first {
		nodes[i].Unavailable, nodes[i].CordonedFor = true, types.UID(fmt.Sprintf("uid-old-%d", i))
	}
	return nodes
}

// value parses as YAML is: "" is unset.
func value(s string) *intstr.IntOrString {
	if s == "" {
		return nil
	}
	return new(intstr.Parse(s))
}

func limits(parallel, unavailable string, nodes int) Limits {
	GinkgoHelper()
	l, err := LimitsOf(&v1alpha1.MaintenanceOperatorConfigSpec{MaxParallelOperations: value(parallel), MaxUnavailable: value(unavailable)}, nodes)
	Expect(err).NotTo(HaveOccurred())
	return l
}

func namesOf(requests []Request) []string {
	names := []string{}
	for _, r := range requests {
		names = append(names, r.Name)
	}
	return names
}

var _ = Describe("Schedule", func() {
	DescribeTable("M10: which requests are scheduled", func(nodes []ScheduledNode, requests []Request, parallel, unavailable string, want ...string) {
		chosen, _ := Schedule(nodes, requests, limits(parallel, unavailable, len(nodes)))
		Expect(namesOf(chosen)).To(HaveExactElements(want))
	},
		Entry("example 1: the limit of parallel operations", cluster(10, 0), wishes(0, 5), "2", "5", "m0", "m1"),
		Entry("example 2: the limit of unavailable nodes", cluster(10, 2), wishes(0, 3), "5", "3", "m0"),
		Entry("step 6, first example: two of three target nodes that are unavailable", cluster(4, 2), wishes(1, 4), "3", "3", "m1", "m2", "m3"),
		Entry("step 6, second example: all three target nodes that are available", cluster(4, 0), wishes(1, 4), "3", "1", "m1"),

		Entry("step 1: a slot is in use for each node that is under maintenance", cluster(4, 0),
			append(wishes(1, 4), wish("a", "n0", inProgress)), "3", "", "m1", "m2"),
		Entry("step 1: a node is counted once, however many are in progress on it", cluster(4, 0),
			append(wishes(1, 4), wish("a", "n0", inProgress), wish("b", "n0", inProgress)), "3", "", "m1", "m2"),
		Entry("step 1: one of a node that is gone takes no slot", cluster(4, 0),
			append(wishes(1, 4), wish("a", "gone", inProgress)), "3", "", "m1", "m2", "m3"),
		Entry("step 1: nor does one of a namespace that is not taken, and it is no reason to prefer its requestor", cluster(4, 0),
			[]Request{wish("a", "n0", of("one"), inProgress, refused), wish("b", "n0"), wish("c", "n1", of("one"), createdAt(1))}, "1", "", "b"),
		Entry("step 1: unless its node is still cordoned for it", []ScheduledNode{{Name: "n0", CordonedFor: "uid-a"}, {Name: "n1"}},
			[]Request{wish("a", "n0", inProgress, refused), wish("b", "n1")}, "1", ""),
		Entry("step 1: a percentage is rounded up", cluster(11, 0), wishes(0, 5), "10%", "", "m0", "m1"),
		Entry("step 1: unset stands for 1", cluster(4, 0), wishes(0, 4), "", "", "m0"),
		Entry("step 1: 0 stands for no limit", cluster(4, 0), wishes(0, 4), "0", "", "m0", "m1", "m2", "m3"),
		Entry("step 1: fewer slots than are in use", cluster(4, 0),
			append(wishes(2, 4), wish("a", "n0", inProgress), wish("b", "n1", inProgress)), "1", ""),

		Entry("step 2: a percentage is rounded down", cluster(10, 0), wishes(0, 5), "0", "29%", "m0", "m1"),
		Entry("step 2: but not to 0", cluster(5, 0), wishes(0, 5), "0", "10%", "m0"),
		Entry("step 2: 0 stands for none", cluster(4, 1), wishes(0, 4), "0", "0", "m3"),
		Entry("step 2: 0% as well", cluster(4, 0), wishes(0, 4), "0", "0%"),
		Entry("step 2: a node that is under maintenance and unavailable is counted once", cluster(4, 1),
			append(wishes(0, 3), wish("a", "n3", inProgress)), "0", "2", "m0"),
		Entry("step 2: one that is under maintenance and not unavailable is counted", cluster(4, 1),
			append(wishes(1, 3), wish("a", "n0", inProgress)), "0", "3", "m1"),

		Entry("step 3: a node that is under maintenance is no candidate", cluster(2, 0),
			[]Request{wish("a", "n0", inProgress), wish("b", "n0"), wish("c", "n1")}, "0", "", "c"),
		Entry("step 3: nor is one that is gone, or excluded", append(cluster(1, 0), ScheduledNode{Name: "x", Excluded: true}),
			[]Request{wish("a", "gone"), wish("b", "x"), wish("c", "n0")}, "0", "", "c"),
		Entry("step 4: only what is pending is scheduled", cluster(2, 0),
			[]Request{wish("a", "n0", untouched), wish("b", "n1")}, "0", "", "b"),

		Entry("step 5: a requestor that has one in progress comes first, although it has more", cluster(5, 0),
			[]Request{wish("a", "n0", of("one"), createdAt(0)), wish("b", "n1", of("two"), createdAt(1)), wish("c", "n2", of("two"), createdAt(2)), wish("d", "n3", of("two"), inProgress)}, "2", "", "b"),
		Entry("step 5: also one on a node that is gone", cluster(5, 0),
			[]Request{wish("a", "n0", of("one"), createdAt(0)), wish("b", "n1", of("two"), createdAt(1)), wish("d", "gone", of("two"), inProgress)}, "1", "", "b"),
		Entry("step 5: then one that has fewer pending", cluster(5, 0),
			[]Request{wish("a", "n0", of("many"), createdAt(0)), wish("b", "n1", of("many"), createdAt(1)), wish("c", "n2", of("few"), createdAt(2))}, "1", "", "c"),
		Entry("step 5: then the older one", cluster(5, 0), []Request{wish("a", "n0", createdAt(2)), wish("b", "n1", createdAt(1))}, "1", "", "b"),
		Entry("step 5: then by node", cluster(5, 0), []Request{wish("a", "n1"), wish("b", "n0")}, "1", "", "b"),
		Entry("step 5: then by requestor", cluster(5, 0), []Request{wish("a", "n0", of("two")), wish("b", "n0", of("one"))}, "1", "", "b"),
		Entry("step 5: then by name", cluster(5, 0), []Request{wish("b", "n0"), wish("a", "n0")}, "1", "", "a"),

		Entry("step 6: the best of a node, and no other of it", cluster(3, 0),
			[]Request{wish("a", "n0", createdAt(0)), wish("b", "n0", createdAt(1)), wish("c", "n1", createdAt(2))}, "2", "", "a", "c"),
		Entry("step 6: one that is skipped uses no slot", cluster(3, 1), wishes(0, 3), "1", "1", "m2"),
		Entry("step 6: the whole list is gone through", cluster(6, 2), wishes(0, 6), "2", "2", "m4", "m5"),

		Entry("a maintenance that is ending is followed by the next one of its node, without a slot", cluster(3, 0),
			[]Request{wish("a", "n0", ending), wish("b", "n0"), wish("c", "n0", createdAt(1)), wish("d", "n1", createdAt(2))}, "1", "1", "b"),
		Entry("not while another one of the node goes on", cluster(3, 0),
			[]Request{wish("a", "n0", ending), wish("b", "n0", inProgress), wish("c", "n0")}, "1", ""),
		Entry("in whatever order they are read", cluster(3, 0),
			[]Request{wish("b", "n0", inProgress), wish("a", "n0", ending), wish("c", "n0")}, "1", ""),
		Entry("only as many as the limit allows when it is lowered", cluster(5, 0), handovers(4), "1", "", "m0"),
		Entry("none while as many as that go on", cluster(5, 0), append(handovers(4), wish("a", "n4", inProgress)), "1", ""),
		Entry("all without a limit", cluster(5, 0), handovers(4), "0", "", "m0", "m1", "m2", "m3"),
		Entry("those that end without a next one leave room", cluster(5, 0), append(handovers(2), wish("a", "n4", ending)), "2", "", "m0", "m1"),
		Entry("only as many as may be unavailable", cluster(6, 1), handovers(4), "0", "3", "m0", "m1"),
		Entry("where cordons of ours are no reason to be unavailable", cordoned(5, 4), handovers(4), "0", "2", "m0", "m1"),
		Entry("but nodes that are so by themselves are", cluster(4, 4), handovers(4), "0", "1", "m0", "m1", "m2", "m3"),
	)

	It("M1, M10: should give the slot of one that is not valid to the next one, also for the same node", func() {
		request := func(name, node, pattern string) Request {
			return NewRequest(maintenance(name, draining(v1alpha1.DrainSpec{PodEvictionFilters: []v1alpha1.PodEvictionFilterEntry{{ByResourceNameRegex: pattern}}}),
				func(nm *v1alpha1.NodeMaintenance) {
					nm.Spec.NodeName = node
					SetPhase(&nm.Status, "Pending", "", 0, begin)
				}), nil)
		}
		requests := []Request{request("a", "n0", "("), request("b", "n0", "gpu"), request("c", "n1", "["), request("d", "n2", "gpu"), request("e", "n3", "gpu")}
		chosen, _ := Schedule(cluster(4, 0), requests, limits("2", "", 4))
		Expect(namesOf(chosen)).To(HaveExactElements("b", "d"))
		chosen, _ = Schedule(cluster(4, 0), append(requests, wish("x", "n0", ending)), limits("1", "", 4))
		Expect(namesOf(chosen)).To(HaveExactElements("b"), "which takes over")
	})

	DescribeTable("M10: the slots that are told", func(requests []Request, parallel string, want Slots) {
		_, slots := Schedule(cluster(10, 0), requests, limits(parallel, "", 10))
		Expect(slots).To(Equal(want))
	},
		Entry("none in use", wishes(0, 5), "2", Slots{Free: 2}),
		Entry("one in use", []Request{wish("a", "n0", inProgress)}, "2", Slots{Used: 1, Free: 1}),
		Entry("more than there are", []Request{wish("a", "n0", inProgress), wish("b", "n1", inProgress)}, "1", Slots{Used: 2}),
		Entry("no limit", []Request{wish("a", "n0", inProgress)}, "0", Slots{Used: 1, Free: 9}),
		Entry("more than nodes", nil, "20", Slots{Free: 10}),
	)

	DescribeTable("M10: limits that cannot be read", func(parallel, unavailable, want string) {
		_, err := LimitsOf(&v1alpha1.MaintenanceOperatorConfigSpec{MaxParallelOperations: value(parallel), MaxUnavailable: value(unavailable)}, 10)
		Expect(err).To(MatchError(ContainSubstring(want)))
	},
		Entry("text", "abc", "", "maxParallelOperations: "),
		Entry("below 0", "-1", "", "maxParallelOperations: -1 is below 0"),
		Entry("a percentage below 0", "", "-1%", "maxUnavailable: -1% is below 0"),
		Entry("text in place of a percentage", "1", "x%", "maxUnavailable: "),
	)
})

// TestSchedule looks at whatever may come together.
func TestSchedule(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		nodes := cluster(rapid.IntRange(0, 8).Draw(t, "nodes"), 0)
		for i := range nodes {
			nodes[i].Unavailable = rapid.Bool().Draw(t, "unavailable")
			nodes[i].Excluded = rapid.IntRange(0, 4).Draw(t, "excluded") == 0
		}
		var requests []Request
		for i := range rapid.IntRange(0, 12).Draw(t, "requests") {
			r := wish(fmt.Sprintf("m%d", i), fmt.Sprintf("n%d", rapid.IntRange(0, 8).Draw(t, "node")),
				of(rapid.SampledFrom([]string{"one", "two", "three"}).Draw(t, "requestor")), createdAt(rapid.IntRange(0, 3).Draw(t, "created")))
			rapid.SampledFrom([]requestOption{func(*Request) {}, func(*Request) {}, inProgress, ending, untouched}).Draw(t, "state")(&r)
			requests = append(requests, r)
		}
		for i := range nodes {
			if under := stateOf(nodes, requests).under[nodes[i].Name]; under && nodes[i].Unavailable && rapid.Bool().Draw(t, "cordoned") {
				nodes[i].CordonedFor = "uid"
			}
		}
		percentOrNumber := rapid.SampledFrom([]string{"", "0", "0%", "1", "2", "5", "10%", "30%", "100%"})
		parallel, unavailable := percentOrNumber.Draw(t, "parallel"), percentOrNumber.Draw(t, "max unavailable")
		spec := &v1alpha1.MaintenanceOperatorConfigSpec{MaxParallelOperations: value(parallel), MaxUnavailable: value(unavailable)}
		limits, err := LimitsOf(spec, len(nodes))
		if err != nil {
			t.Fatal(err)
		}
		chosen, _ := Schedule(nodes, requests, limits)

		shuffled := slices.Clone(requests)
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0)).Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if again, _ := Schedule(nodes, shuffled, limits); !reflect.DeepEqual(again, chosen) {
			t.Fatalf("M10: the order in which they are read matters")
		}

		before := stateOf(nodes, requests)
		after := requests
		for _, c := range chosen {
			i := slices.IndexFunc(requests, func(r Request) bool { return r.Name == c.Name })
			if !requests[i].Pending || nodes[slices.IndexFunc(nodes, func(n ScheduledNode) bool { return n.Name == c.Node })].Excluded {
				t.Fatalf("M2, M15: %s must not be scheduled", c.Name)
			}
			after = slices.Clone(after)
			after[i].Pending, after[i].InProgress = false, true
		}
		now := stateOf(nodes, after)
		maxParallel, maxUnavailable := scaled(parallel, 1, len(nodes), true), scaled(unavailable, -1, len(nodes), false)
		if maxParallel == 0 {
			maxParallel = -1
		}
		if maxParallel >= 0 && len(now.under) > max(maxParallel, len(before.under)) {
			t.Fatalf("M10: %d nodes are under maintenance", len(now.under))
		}
		if maxUnavailable >= 0 && now.unavailable > max(maxUnavailable, before.unavailable) {
			t.Fatalf("M10: %d nodes are unavailable", now.unavailable)
		}
		for node, count := range now.active {
			if count > max(1, before.active[node]) {
				t.Fatalf("M10: %d at a time on %s", count, node)
			}
		}
		later := stateOf(givenBack(nodes, after))
		if maxParallel >= 0 && len(chosen) > 0 && len(later.under) > maxParallel {
			t.Fatalf("M10: %d nodes are under maintenance once the others have ended", len(later.under))
		}
		for _, c := range chosen {
			node := nodes[slices.IndexFunc(nodes, func(n ScheduledNode) bool { return n.Name == c.Node })]
			if (!node.Unavailable || node.CordonedFor != "") && maxUnavailable >= 0 && later.unavailable > maxUnavailable {
				t.Fatalf("M10: %d nodes are unavailable once the others have ended", later.unavailable)
			}
		}
		if again, _ := Schedule(nodes, after, limits); len(again) > 0 {
			t.Fatalf("M10: %s could have been scheduled as well", namesOf(again))
		}
		for _, r := range after {
			i := slices.IndexFunc(nodes, func(n ScheduledNode) bool { return n.Name == r.Node })
			if !r.Pending || i < 0 || nodes[i].Excluded || now.under[r.Node] {
				continue
			}
			if (maxParallel < 0 || len(now.under) < maxParallel) && (nodes[i].Unavailable || maxUnavailable < 0 || now.unavailable < maxUnavailable) {
				t.Fatalf("M10: %s is left while a slot is free", r.Name)
			}
		}
	})
}

type state struct {
	under       map[string]bool
	active      map[string]int
	unavailable int
}

// givenBack returns what there is once all that is ending has ended.
func givenBack(nodes []ScheduledNode, requests []Request) ([]ScheduledNode, []Request) {
	nodes, requests = slices.Clone(nodes), slices.DeleteFunc(slices.Clone(requests), func(r Request) bool { return r.InProgress && r.Ending })
	for i := range nodes {
		if nodes[i].CordonedFor != "" && !stateOf(nodes, requests).under[nodes[i].Name] {
			nodes[i].Unavailable, nodes[i].CordonedFor = false, ""
		}
	}
	return nodes, requests
}

// stateOf counts in the plain way.
func stateOf(nodes []ScheduledNode, requests []Request) state {
	s := state{under: map[string]bool{}, active: map[string]int{}}
	for _, n := range nodes {
		for _, r := range requests {
			if r.InProgress && r.Node == n.Name {
				s.under[n.Name] = true
				if !r.Ending {
					s.active[n.Name]++
				}
			}
		}
		if n.Unavailable || s.under[n.Name] {
			s.unavailable++
		}
	}
	return s
}

// scaled is what a limit stands for, -1 for none.
func scaled(text string, unset, nodes int, up bool) int {
	var percent int
	switch _, err := fmt.Sscanf(text, "%d%%", &percent); {
	case text == "":
		return unset
	case err != nil || text[len(text)-1] != '%':
		return value(text).IntValue()
	case percent == 0:
		return 0
	case up:
		return max(1, (percent*nodes+99)/100)
	}
	return max(1, percent*nodes/100)
}

// BenchmarkSchedule is the figure of M11: a round from the objects as they are read. The worst ones have as many and as long
// patterns as a NodeMaintenance can have.
func BenchmarkSchedule(b *testing.B) {
	worst := &v1alpha1.DrainSpec{PodSelector: "app in (" + strings.Repeat("a,", 2000) + "a)"}
	for i := range v1alpha1.MaxPodEvictionFilters {
		worst.PodEvictionFilters = append(worst.PodEvictionFilters, v1alpha1.PodEvictionFilterEntry{ByResourceNameRegex: strings.Repeat("(a|b)[c-e]+?", 21)[i%8*12:]})
	}
	typical := &v1alpha1.DrainSpec{PodSelector: "app=web", PodEvictionFilters: []v1alpha1.PodEvictionFilterEntry{{ByResourceNameRegex: "nvidia.com/gpu-*"}, {ByResourceNameRegex: "nvidia.com/rdma*"}}}
	for _, kind := range []struct {
		name  string
		drain *v1alpha1.DrainSpec
	}{{"without", nil}, {"typical", typical}, {"worst", worst}} {
		for _, pending := range []int{500, 1000, 2000, 4000} {
			nodes := cluster(5000, 50)
			var objects []*v1alpha1.NodeMaintenance
			for i := range pending {
				objects = append(objects, maintenance(fmt.Sprintf("m%d", i), func(nm *v1alpha1.NodeMaintenance) {
					nm.CreationTimestamp = metav1.NewTime(begin.Add(time.Duration((i*31)%997) * time.Minute))
					nm.Spec.NodeName, nm.Spec.RequestorID, nm.Spec.DrainSpec = fmt.Sprintf("n%d", (i*7)%5000), fmt.Sprintf("r%d", i%50), kind.drain
					SetPhase(&nm.Status, "Pending", "", 0, begin)
				}))
			}
			limits, err := LimitsOf(&v1alpha1.MaintenanceOperatorConfigSpec{MaxParallelOperations: value("10%"), MaxUnavailable: value("20%")}, 5000)
			if err != nil {
				b.Fatal(err)
			}
			b.Run(fmt.Sprintf("%s/%d", kind.name, pending), func(b *testing.B) {
				for b.Loop() {
					requests := make([]Request, 0, pending)
					for _, nm := range objects {
						requests = append(requests, NewRequest(nm, nil))
					}
					if chosen, _ := Schedule(nodes, requests, limits); len(chosen) != 500 {
						b.Fatal(len(chosen))
					}
				}
			})
		}
	}
}
