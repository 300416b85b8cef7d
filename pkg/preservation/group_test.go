// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Group", func() {
	It("should be what the MachineDeployment says, and the rest as before", func() {
		base := Group{Holder: HealthTimer{}, MaxTimeout: time.Hour, Timeouts: DefaultTimeouts}
		Expect(base.Of(Deployment("d", Share("2"), Replicas(5), InPlace,
			DeploymentAnnotation(prefix+"machine-preserve-timeout", "1h"), DeploymentAnnotation(prefix+"forbidden", "true")))).
			To(Equal(Group{Holder: HealthTimer{}, MaxTimeout: time.Hour, Timeouts: DefaultTimeouts, Share: new(int32(2)), Timeout: time.Hour, Forbidden: true, Replicas: 5, InPlace: true}))
		Expect(base.Of(Deployment("d", Share("-1"), DeploymentAnnotation(prefix+"machine-preserve-timeout", "0s")))).
			To(And(HaveField("Share", BeNil()), HaveField("Timeout", 72*time.Hour)))
	})

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

var _ = Describe("What is shown", func() {
	until := time.Date(2026, 3, 4, 13, 0, 0, 0, time.UTC)

	DescribeTable("P11: should be read from the condition", func(message, drain string, at time.Time) {
		shown, until := ReadCondition(&corev1.NodeCondition{Message: message})
		Expect(shown).To(Equal(drain))
		Expect(until).To(Equal(at))
	},
		Entry("without a drain", "Machine preserved until 2026-03-04T13:00:00Z.", "", until),
		Entry("with one", "Pods: 1 evicted. Machine preserved until 2026-03-04T13:00:00Z.", "Pods: 1 evicted.", until),
		Entry("with what another one wrote", "whatever", "whatever", time.Time{}),
	)
})
