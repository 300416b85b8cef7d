// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package update_test

import (
	"testing"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/drain/update"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

func TestUpdate(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Update Suite")
}

// began is when the machine was deleted.
var began = Start.Add(time.Hour)

// deleted is a machine that machine-controller-manager drains, and updated what it has missed.
var (
	deleted = Machine("m", Deleted(began))
	updated = facts.Missed{Outdated: true, Since: began.Add(-time.Minute)}
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

var _ = DescribeTable("D1, D2: because of what machine-controller-manager drains a node, and since when",
	func(machine *machinev1alpha1.Machine, node *corev1.Node, missed facts.Missed, want string, since time.Time) {
		start, _ := DrainOf(machine, node, missed, Ahead{}, began.Add(time.Hour))
		Expect(start.Cause).To(BeEquivalentTo(want))
		Expect(start.Since).To(BeTemporally("==", since))
	},
	Entry("a rolling update, since the deletion of the machine", deleted, Node("m"), updated, "a rolling update", began),
	Entry("one that came after the deletion, since then", Machine("m", Deleted(began.Add(-time.Hour))), Node("m"), updated, "a rolling update", began.Add(-time.Minute)),
	Entry("one that was taken back, as the deletion cannot be", deleted, Node("m"), facts.Missed{Since: began.Add(-time.Minute)}, "a rolling update", began),
	Entry("a return to an older MachineSet, since the deletion", deleted, Node("m"), facts.Missed{Outdated: true}, "a rolling update", began),
	Entry("an update in place, since the node was selected", Machine("m"), Node("m", selected(began)), updated, "an update in place", began),
	Entry("since the update when that is backdated", Machine("m"), Node("m", selected(Start.Add(-24*time.Hour))), updated, "an update in place", began.Add(-time.Minute)),
	Entry("since the update when that has no time", Machine("m"), Node("m", selected(time.Time{})), updated, "an update in place", began.Add(-time.Minute)),
	Entry("since now when that is ahead", Machine("m"), Node("m", selected(began.Add(2*time.Hour))), updated, "an update in place", began.Add(time.Hour)),
	Entry("not a machine that is deleted for another reason", deleted, Node("m"), facts.Missed{}, "", time.Time{}),
	Entry("not one that was deleted before an update which was taken back", Machine("m", Deleted(began.Add(-time.Hour))), Node("m"), facts.Missed{Since: began}, "", time.Time{}),
	Entry("not the node of another machine with the same name", deleted, Node("m", func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(began.Add(time.Minute)) }), updated, "", time.Time{}),
	Entry("not a node that says that it is selected when there is no update", Machine("m"), Node("m", selected(began)), facts.Missed{}, "", time.Time{}),
	Entry("not one that says so after the update was taken back", Machine("m"), Node("m", selected(began)), facts.Missed{Since: began}, "", time.Time{}),
	Entry("not a node that a person cordoned, although there is an update", Machine("m"), Node("m", cordoned), updated, "", time.Time{}),
	Entry("not a candidate", Machine("m"), Node("m", Condition("InPlaceUpdate", corev1.ConditionTrue, "CandidateForUpdate", "")), updated, "", time.Time{}),
	Entry("not after it was drained", Machine("m"), Node("m", Condition("InPlaceUpdate", corev1.ConditionTrue, "DrainSuccessful", "")), updated, "", time.Time{}),
	Entry("not a node without a machine", nil, Node("m", selected(began)), updated, "", time.Time{}),
	Entry("not a node of the control plane", deleted, Node("m", controlPlane), updated, "", time.Time{}),
)

var _ = It("D2: should count a selection that is dated ahead from when it was seen first, and one that comes after it from then", func() {
	ahead := Ahead{}
	at := func(minutes int) time.Time { return began.Add(time.Duration(minutes) * time.Minute) }
	for _, look := range []struct{ now, claimed, since int }{
		{10, 5, 5},                     // as it says
		{20, 1000, 20}, {30, 1000, 20}, // ahead
		{40, 45, 20}, {50, 45, 20}, // ahead anew, and its time comes
		{60, 58, 58}, {70, 58, 58},
		{80, 90, 80},
	} {
		var start Drain
		start, ahead = DrainOf(Machine("m"), Node("m", selected(at(look.claimed))), updated, ahead, at(look.now))
		Expect(start.Since).To(BeTemporally("==", at(look.since)), "%v", look)
	}
	for shown, want := range map[int]int{15: 15, -5: 20, 25: 20} {
		for _, c := range []corev1.NodeCondition{
			{LastTransitionTime: metav1.NewTime(at(shown)), Message: "in other words"},
			{LastTransitionTime: metav1.NewTime(at(18)), Message: "Drained by machine-controller-manager for an update in place since " + at(shown).Format(time.RFC3339) + "."}, // of an earlier version
		} {
			c.Type = "NodeDrain"
			node := Node("m", selected(at(1000)), func(n *corev1.Node) { n.Status.Conditions = append(n.Status.Conditions, c) })
			start, _ := DrainOf(Machine("m"), node, updated, Ahead{}, at(20))
			Expect(start.Since).To(BeTemporally("==", at(want)), "after a restart, if it can be true: %s", c.Message)
		}
	}
	_, ahead = DrainOf(deleted, Node("m"), updated, ahead, at(85))
	Expect(ahead).To(BeZero(), "it is another drain")
})
