// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package updatedrain_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/updatedrain"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// selected makes a node one that was selected for an update in place then.
func selected(since time.Time) NodeOption {
	return func(n *corev1.Node) {
		Condition("InPlaceUpdate", corev1.ConditionTrue, "SelectedForUpdate", "")(n)
		n.Status.Conditions[len(n.Status.Conditions)-1].LastTransitionTime = metav1.NewTime(since)
	}
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func controlPlane(n *corev1.Node) {
	n.Labels = map[string]string{"node-role.kubernetes.io/control-plane": ""}
}

var _ = Describe("Watches", func() {
	DescribeTable("D1: changes of a node", func(before, after *corev1.Node, want bool) {
		Expect(NodeChanged().Update(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: before, ObjectNew: after})).To(Equal(want))
	},
		Entry("when it is selected", Node("m"), Node("m", selected(began)), true),
		Entry("when it no longer is", Node("m", selected(began)), Node("m"), true),
		Entry("when it no longer answers", Node("m"), Node("m", NotReady), true),
		Entry("when it gets one of the control plane", Node("m"), Node("m", controlPlane), true),
		Entry("not when it is cordoned", Node("m"), Node("m", cordoned), false),
		Entry("not with what is shown on it", Node("m"), Node("m", Condition("NodeDrain", corev1.ConditionTrue, "DrainTimedOut", "")), false),
	)

	DescribeTable("D1: changes of machines", func(change func() bool, want bool) { Expect(change()).To(Equal(want)) },
		Entry("deletion", func() bool {
			return MachineChanged().Update(event.UpdateEvent{ObjectOld: Machine("m"), ObjectNew: rolling})
		}, true),
		Entry("a node", func() bool {
			return MachineChanged().Update(event.UpdateEvent{ObjectOld: Machine("m"), ObjectNew: Machine("m", func(m *machinev1alpha1.Machine) { m.Labels["node"] = "n" })})
		}, true),
		Entry("not a phase", func() bool {
			return MachineChanged().Update(event.UpdateEvent{ObjectOld: Machine("m"), ObjectNew: Machine("m", Phase(machinev1alpha1.MachineUnknown, began))})
		}, false),
		Entry("a revision", func() bool {
			return MachineSetChanged().Update(event.UpdateEvent{ObjectOld: oldSet, ObjectNew: newSet})
		}, true),
		Entry("not a number of replicas", func() bool {
			return MachineSetChanged().Update(event.UpdateEvent{ObjectOld: Set("s", pool), ObjectNew: Set("s", pool, SetReplicas(1, 1))})
		}, false),
		Entry("whether volumes may be risked", func() bool {
			return DeploymentChanged().Update(event.UpdateEvent{ObjectOld: pool, ObjectNew: Deployment("pool", DeploymentAnnotation("machine-preservation.extensions.gardener.cloud/force-delete-pods-with-volumes", "true"))})
		}, true),
		Entry("not a share", func() bool {
			return DeploymentChanged().Update(event.UpdateEvent{ObjectOld: pool, ObjectNew: Deployment("pool", Share("1"))})
		}, false),
	)
})
