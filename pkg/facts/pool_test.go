// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package facts_test

import (
	"testing"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
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
})

var _ = DescribeTable("P3, M15: what a node says of an update in place", func(reason string, selected, updated bool) {
	node := Node("n", func(n *corev1.Node) {
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "InPlaceUpdate", Status: corev1.ConditionTrue, Reason: reason})
	})
	Expect(IsSelectedForUpdate(node)).To(Equal(selected))
	Expect(IsUpdatedInPlace(node)).To(Equal(updated))
},
	Entry("it may be updated", "CandidateForUpdate", false, false),
	Entry("it is selected", "SelectedForUpdate", true, true),
	Entry("it is drained", "DrainSuccessful", false, true),
	Entry("it may be updated now", "ReadyForUpdate", false, true),
	Entry("it was updated", "UpdateSuccessful", false, false),
	Entry("it was not", "UpdateFailed", false, false),
)

var _ = It("should say nothing of an update in place without a node", func() {
	Expect(IsSelectedForUpdate(nil) || IsUpdatedInPlace(nil)).To(BeFalse())
})
