// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drainstrategy_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/event"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/drainstrategy"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
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

// updated is what a machine has missed when there is an update.
var updated = shoot.Update{Outdated: true, Since: began.Add(-time.Minute)}

var _ = DescribeTable("D1, D2: because of what machine-controller-manager drains a node, and since when",
	func(machine *machinev1alpha1.Machine, node *corev1.Node, update shoot.Update, want string, since time.Time) {
		because, actual := CauseOf(machine, node, update)
		Expect(because).To(BeEquivalentTo(want))
		if want != "" {
			Expect(actual).To(BeTemporally("==", since))
		}
	},
	Entry("a rolling update, since the deletion of the machine", rolling, Node("m"), updated, "a rolling update", began),
	Entry("one that came after the deletion, since then", Machine("m", Of(oldSet), Deleted(began.Add(-time.Hour))), Node("m"), updated, "a rolling update", began.Add(-time.Minute)),
	Entry("one that was taken back, as the deletion cannot be", rolling, Node("m"), shoot.Update{Since: began.Add(-time.Minute)}, "a rolling update", began),
	Entry("a return to an older MachineSet, since the deletion", rolling, Node("m"), shoot.Update{Outdated: true}, "a rolling update", began),
	Entry("an update in place, since the node was selected", Machine("m", Of(oldSet)), Node("m", selected(began)), updated, "an update in place", began),
	Entry("since the update when that is backdated", Machine("m", Of(oldSet)), Node("m", selected(Start.Add(-24*time.Hour))), updated, "an update in place", began.Add(-time.Minute)),
	Entry("since the update when that has no time", Machine("m", Of(oldSet)), Node("m", selected(time.Time{})), updated, "an update in place", began.Add(-time.Minute)),
	Entry("not before the machine when that is backdated and it returns to an older MachineSet", Machine("m", Of(oldSet), Created(began)), Node("m", selected(time.Time{})), shoot.Update{Outdated: true}, "an update in place", began),
	Entry("not a machine that is deleted for another reason", Machine("m", Of(newSet), Deleted(began)), Node("m"), shoot.Update{}, "", time.Time{}),
	Entry("not one that was deleted before an update which was taken back", Machine("m", Of(oldSet), Deleted(began.Add(-time.Hour))), Node("m"), shoot.Update{Since: began}, "", time.Time{}),
	Entry("not the node of another machine with the same name", rolling, Node("m", func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(began.Add(time.Minute)) }), updated, "", time.Time{}),
	Entry("not a node that says that it is selected when there is no update", Machine("m", Of(newSet)), Node("m", selected(began)), shoot.Update{}, "", time.Time{}),
	Entry("not one that says so after the update was taken back", Machine("m", Of(oldSet)), Node("m", selected(began)), shoot.Update{Since: began}, "", time.Time{}),
	Entry("not a node that a person cordoned, although there is an update", Machine("m", Of(oldSet)), Node("m", cordoned), updated, "", time.Time{}),
	Entry("not a candidate", Machine("m", Of(oldSet)), Node("m", Condition("InPlaceUpdate", corev1.ConditionTrue, "CandidateForUpdate", "")), updated, "", time.Time{}),
	Entry("not after it was drained", Machine("m", Of(oldSet)), Node("m", Condition("InPlaceUpdate", corev1.ConditionTrue, "DrainSuccessful", "")), updated, "", time.Time{}),
	Entry("not a node without a machine", nil, Node("m", selected(began)), updated, "", time.Time{}),
	Entry("not a node of the control plane", rolling, Node("m", controlPlane), updated, "", time.Time{}),
)

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
