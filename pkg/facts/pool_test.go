// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	"testing"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

func TestFacts(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Facts Suite")
}

var _ = Describe("MachinesOf", func() {
	It("P3: should have the machines of all its MachineSets, and know whether they are replaced", func() {
		deployment, other := Deployment("d"), Deployment("other")
		sets := []machinev1alpha1.MachineSet{*Set("old", deployment, Revision("1")), *Set("new", deployment, Revision("2")), *Set("foreign", other, Revision("3"))}
		var machines []machinev1alpha1.Machine
		for _, set := range sets {
			machines = append(machines, *Machine("of-"+set.Name, func(m *machinev1alpha1.Machine) {
				m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&set, machinev1alpha1.SchemeGroupVersion.WithKind("MachineSet"))}
			}))
		}
		machines = append(machines, *Machine("orphan"))
		owned, rollout := MachinesOf(deployment, sets, machines)
		Expect(owned).To(HaveExactElements(HaveField("Name", "of-old"), HaveField("Name", "of-new")))
		Expect(rollout).To(BeTrue())
		owned, rollout = MachinesOf(other, sets, machines)
		Expect(owned).To(HaveExactElements(HaveField("Name", "of-foreign")))
		Expect(rollout).To(BeFalse())
		_, rollout = MachinesOf(deployment, nil, machines)
		Expect(rollout).To(BeFalse())
	})

	DescribeTable("P3: when machines are replaced", func(old, newest *machinev1alpha1.MachineSet, want bool, machines ...machinev1alpha1.Machine) {
		_, rollout := MachinesOf(pool, []machinev1alpha1.MachineSet{*old, *newest}, machines)
		Expect(rollout).To(Equal(want))
	},
		Entry("not while an older MachineSet has none, and is to have none", empty("1", "1"), Set("2", pool, Revision("2")), false, *Machine("m", Of(Set("2", pool)))),
		Entry("while it is to have some", Set("1", pool, Revision("1"), SetReplicas(1, 0)), Set("2", pool, Revision("2")), true),
		Entry("while it has some", empty("1", "1"), Set("2", pool, Revision("2")), true, *Machine("m", Of(Set("1", pool)))),
		Entry("not while they are only being deleted", empty("1", "1"), Set("2", pool, Revision("2")), false, *Machine("m", Of(Set("1", pool)), Deleted(Start))),
		Entry("not while only its status counts one that is being deleted", Set("1", pool, Revision("1"), SetReplicas(0, 1)), Set("2", pool, Revision("2")), false, *Machine("m", Of(Set("1", pool)), Deleted(Start))),
		Entry("not while only its status counts one", Set("1", pool, Revision("1"), SetReplicas(0, 1)), Set("2", pool, Revision("2")), false),
		Entry("the tenth is newer than the ninth", Set("1", pool, Revision("9")), empty("2", "10"), true, *Machine("m", Of(Set("1", pool)))),
		Entry("the newest is the one created last where revisions say nothing", Set("1", pool), empty("2", ""), true),
		Entry("and that of the first where nothing does", empty("1", ""), empty("2", ""), false),
	)
})

var _ = Describe("DeploymentOf", func() {
	It("should be the one that owns the machine's MachineSet", func() {
		other := Deployment("other")
		sets := []machinev1alpha1.MachineSet{*Set("others", other), *Set("ours", pool)}
		deployments := []machinev1alpha1.MachineDeployment{*other, *pool}
		Expect(DeploymentOf(Machine("m", Of(&sets[1])), sets, deployments)).To(HaveField("Name", "pool"))
		Expect(DeploymentOf(Machine("m", Of(&sets[1])), sets, deployments[:1])).To(BeNil())
		Expect(DeploymentOf(Machine("m"), sets, deployments)).To(BeNil())
	})
})

var _ = DescribeTable("D1, D2: what a machine of MachineSet 1, created in minute 5, has missed", func(want Missed, sets ...*machinev1alpha1.MachineSet) {
	var all []machinev1alpha1.MachineSet
	for _, s := range sets {
		all = append(all, *s)
	}
	Expect(MissedBy(Machine("m", Of(Set("1", pool)), Created(at(5))), all)).To(Equal(want))
},
	Entry("nothing without MachineSets", Missed{}),
	Entry("nothing", Missed{}, set("1", "1", 0)),
	Entry("an update", Missed{Outdated: true, Since: at(10)}, set("1", "1", 0), set("2", "2", 10)),
	Entry("the first of several: the others begin no drain anew", Missed{Outdated: true, Since: at(10)}, set("3", "3", 70), set("1", "1", 0), set("2", "2", 10)),
	Entry("one that was taken back", Missed{Since: at(10)}, set("1", "3", 0), set("2", "2", 10)),
	Entry("a return to an older MachineSet", Missed{Outdated: true, Since: at(5)}, set("1", "2", 4), set("0", "3", 0)),
	Entry("D1: none, where it was updated in place, and others wait for theirs", Missed{}, set("0", "1", 0), set("2", "2", 10), set("1", "3", 20)),
	Entry("D2: a return to an older one after it was updated in place", Missed{Outdated: true, Since: at(20)}, set("2", "4", 10), set("1", "3", 20)),
	Entry("D2: the first after it was updated in place", Missed{Outdated: true, Since: at(60)}, set("0", "1", 0), set("2", "2", 10), set("1", "3", 20), set("4", "4", 60)),
	Entry("one that came with the machine is none", Missed{Outdated: true, Since: at(5)}, set("1", "1", 0), set("2", "2", 5)),
)

var _ = It("should be of a pool what the MachineDeployment says", func() {
	Expect(PoolOf(Deployment("d", Replicas(5), InPlace, DeploymentAnnotation(forbidden, "true")))).To(Equal(Pool{Replicas: 5, InPlace: true, Forbidden: true}))
	Expect(PoolOf(Deployment("d", DeploymentAnnotation(forbidden, "false")))).To(Equal(Pool{Replicas: 3}))
})

var _ = DescribeTable("P2: should be at its maximum when the cluster-autoscaler adds no machine any more", func(maximum string, replicas int32, expected bool) {
	Expect(PoolOf(Deployment("d", Replicas(replicas), DeploymentAnnotation(maximumKey, maximum))).AtMaximum()).To(Equal(expected))
},
	Entry("with fewer machines", "4", int32(3), false),
	Entry("with as many machines", "4", int32(4), true),
	Entry("with more machines", "4", int32(5), true),
	Entry("without machines, as the shoot is hibernated", "4", int32(0), false),
	Entry("where the cluster-autoscaler changes nothing", "", int32(4), false),
	Entry("where somebody has edited the maximum", "many", int32(4), false),
	Entry("where somebody has made it negative", "-1", int32(4), false),
)

const maximumKey = "machine-preservation.extensions.gardener.cloud/maximum"

const forbidden = "machine-preservation.extensions.gardener.cloud/forbidden"

var pool = Deployment("pool")

func at(minutes int) time.Time { return Start.Add(time.Duration(minutes) * time.Minute) }

func set(name, revision string, created int) *machinev1alpha1.MachineSet {
	return Set(name, pool, Revision(revision), func(s *machinev1alpha1.MachineSet) { s.CreationTimestamp = metav1.NewTime(at(created)) })
}

// empty is a MachineSet without machines that was created after those of Set.
func empty(name, revision string) *machinev1alpha1.MachineSet {
	s := set(name, revision, 1)
	s.Spec.Replicas, s.Status.Replicas = 0, 0
	return s
}
