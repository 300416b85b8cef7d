// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
)

// slow is what takes the longest of all that may be looked for: it is found nowhere, and each part matches anything.
const slow = "(.*.*.*.*.*.*.*.*.*.*){22}Z"

func filtersOf(patterns ...string) v1alpha1.DrainSpec {
	var spec v1alpha1.DrainSpec
	for _, pattern := range patterns {
		spec.PodEvictionFilters = append(spec.PodEvictionFilters, v1alpha1.PodEvictionFilterEntry{ByResourceNameRegex: pattern})
	}
	return spec
}

// asking returns a pod that requests resources of those names.
func asking(name string, resources ...string) drain.Pod {
	list := corev1.ResourceList{}
	for _, r := range resources {
		list[corev1.ResourceName(r)] = resource.Quantity{}
	}
	return drain.NewPod(&corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web", Controller: new(true)}}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: list}}}},
	})
}

// resourceNames returns that many names of resources.
func resourceNames(prefix string, count int) []string {
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("example.com/%s-%04d", prefix, i))
	}
	return names
}

func podsOf(count, resources int) []drain.Pod {
	var pods []drain.Pod
	for i := range count {
		name := fmt.Sprintf("p-%03d", i)
		pods = append(pods, asking(name, resourceNames(name, resources)...))
	}
	return pods
}

// hostile is a node with many pods that ask for many resources, and a maintenance that drains it of those that no filter finds.
func hostile(pattern string, pods []drain.Pod) Facts {
	patterns := slices.Repeat([]string{pattern}, v1alpha1.MaxPodEvictionFilters)
	for i := range patterns {
		patterns[i] = strings.Replace(pattern, "Z", fmt.Sprintf("Z%d", i), 1)
	}
	w := newWorld(maintenance("a", draining(filtersOf(patterns...))))
	w.run()
	w.schedule(w.Maintenances[0])
	w.PodsKnown = false
	w.run()
	w.PodsKnown, w.Pods = true, pods
	return w.Facts
}

// BenchmarkFilters takes one round with filters that are looked for in the resources of many pods.
func BenchmarkFilters(b *testing.B) {
	for _, of := range []struct {
		name, pattern   string
		pods, resources int
	}{
		{"names", "nvidia.com/rdma_shared_Z*", 110, 1000},
		{"slow", slow, 110, 1000},
		{"slow, as few as anybody needs", slow, 1, 20},
	} {
		b.Run(of.name, func(b *testing.B) {
			RegisterTestingT(b)
			facts := hostile(of.pattern, podsOf(of.pods, of.resources))
			for b.Loop() {
				Decide(facts, begin)
			}
		})
	}
}

var _ = Describe("M5, M17: filters", func() {
	found := "nvidia.com/gpu"

	DescribeTable("M5, M17: should neither evict a pod nor hand its node over where nobody knows whether a filter selects it", func(pod drain.Pod, evicted []string, blocked string) {
		nm := maintenance("a", draining(filtersOf("nvidia.com/gpu")))
		w := scheduled(nm, asking("p", found), pod)
		Expect(w.evicted).To(Equal(evicted))
		Expect(w.phase(nm)).To(Equal("Draining"))
		if blocked == "" {
			Expect(w.message(nm)).NotTo(ContainSubstring("Blocked by"))
		} else {
			Expect(w.message(nm)).To(ContainSubstring("Pods left: shop/p, shop/q. Blocked by: " + blocked))
		}
	},
		Entry("as many resources as are looked at", asking("q", resourceNames("a", 64)...), []string{"p"}, ""),
		Entry("more, behind which the one may be", asking("q", append(resourceNames("a", 64), found)...), nil, "shop/q (its resources were not all compared with spec.drainSpec.podEvictionFilters, because that takes too long)."),
		Entry("more than anybody reads", asking("q", append(resourceNames("a", 1000), found)...), nil, "shop/q (its resources were not all compared with spec.drainSpec.podEvictionFilters, because that takes too long)."),
		Entry("more, but one that is found before", asking("q", append(resourceNames("z", 64), "a"+found)...), []string{"p", "q"}, ""),
		Entry("a name without an end", asking("q", strings.Repeat("a", 10<<20)), nil, "shop/q (its resources were not all compared with spec.drainSpec.podEvictionFilters, because that takes too long)."),
	)

	It("M5, M17: should take pods with too many resources for selected where there is no filter, and wait for those that go", func() {
		nm := maintenance("a", draining(v1alpha1.DrainSpec{}))
		Expect(scheduled(nm, asking("q", resourceNames("a", 1000)...)).evicted).To(HaveExactElements("q"))
		going := asking("q", resourceNames("a", 1000)...)
		going.GraceEnds = begin
		nm = maintenance("a", draining(filtersOf(found)))
		w := scheduled(nm, asking("p", found), going)
		Expect(w.evicted).To(HaveExactElements("p"))
		Expect(w.message(nm)).To(ContainSubstring("Pods left: shop/p, shop/q."))
	})

	It("M5: should select by the same name in all pods that have it", func() {
		nm := maintenance("a", draining(filtersOf(found)))
		w := scheduled(nm, asking("p", "cpu"), asking("q", "cpu"), asking("r", found, "cpu"), asking("s", found))
		Expect(w.evicted).To(HaveExactElements("r", "s"))
		Expect(w.message(nm)).To(And(ContainSubstring("Pods left: shop/r, shop/s."), Not(ContainSubstring("Blocked"))))
	})

	It("M5, M17: should look at each name once in a round, however many pods have it", func() {
		names := resourceNames("a", 20)
		var pods []drain.Pod
		for i := range 110 {
			pods = append(pods, asking(fmt.Sprintf("p-%03d", i), names...))
		}
		looked, steps := Work(filtersOf("nvidia.com/gpu", slow), pods)
		Expect(looked).To(Equal(20))
		Expect(steps).To(BeNumerically(">", 20*len(names[0])*22*20))
		again, same := Work(filtersOf("nvidia.com/gpu", slow), pods[:1])
		Expect([]int{again, same}).To(Equal([]int{looked, steps}))
	})

	It("M5, M17: should look at no more in a round than there is time for, whatever pods ask for", func() {
		for _, pattern := range []string{slow, "nvidia.com/gpu"} {
			_, steps := Work(filtersOf(slices.Repeat([]string{pattern}, 32)...), podsOf(110, 1000))
			Expect(steps).To(And(BeNumerically("<=", MaxSteps), BeNumerically(">", MaxSteps*9/10)), "%s: it is used up", pattern)
		}
		looked, _ := Work(filtersOf("Z"), podsOf(10, 1000))
		Expect(looked).To(Equal(10 * drain.MaxResources))
	})

	It("M5, M17: should have enough time for what there is on a large node", func() {
		var pods []drain.Pod
		for i := range 500 {
			pods = append(pods, asking(fmt.Sprintf("p-%03d", i), resourceNames(fmt.Sprintf("mig-%d", i%10), 20)...))
		}
		looked, steps := Work(filtersOf(slices.Repeat([]string{"^nvidia[.]com/(gpu|mig-.*)$"}, 32)...), pods)
		Expect(looked).To(Equal(200))
		Expect(steps).To(BeNumerically("<", MaxSteps))
	})

	It("M5, M17: should say the same whatever the order of the pods", func() {
		facts := hostile(slow, podsOf(110, 2))
		told := Decide(facts, begin)
		Expect(told.Writes).NotTo(BeEmpty())
		slices.Reverse(facts.Pods)
		Expect(Decide(facts, begin)).To(Equal(told))
	})
})
