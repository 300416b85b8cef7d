// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failuredrain_test

import (
	"testing"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation/failuredrain"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

func TestFailureDrain(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Failure Drain Suite")
}

const until = "Machine preserved until 2026-03-04T13:00:00Z."

var _ = Describe("Owner", func() {
	var (
		failed         = Preserved("Failed:Preserved", "auto", Start.Add(72*time.Hour))
		running        = Preserved("Running:Preserved", "now", Start.Add(72*time.Hour))
		maintained     = Preserved("Failed:Preserved", "maintenance", Start.Add(72*time.Hour))
		alsoMaintained = Annotation("machine-preservation.extensions.gardener.cloud/claims", "auto=2026-03-04T12:00:00Z,maintenance=2026-03-01T13:00:00Z")
		gone           = Deleted(Start)
		tainted        = Taint("node.machine.sapcloud.io/preserved", Start)
		reason         = func(reason string) NodeOption { return Condition("Preserved", corev1.ConditionTrue, reason, until) }
		draining       = reason("Draining")
		inPlace        = func(reason string) NodeOption { return Condition("InPlaceUpdate", corev1.ConditionTrue, reason, "") }
	)

	DescribeTable("P7: who empties a node", func(machine *machinev1alpha1.Machine, node *corev1.Node, want string) {
		Expect(OwnerOf(machine, node, true, false)).To(BeEquivalentTo(want))
	},
		Entry("nobody", Machine("m"), Node("m"), ""),
		Entry("nobody when the machine has not failed", Machine("m", running), Node("m", reason("Preserved")), ""),
		Entry("nobody while the node has no taint", Machine("m", failed), Node("m", draining), ""),
		Entry("nobody while the node has no condition", Machine("m", failed), Node("m", tainted), ""),
		Entry("nobody while the node alone says so", Machine("m"), Node("m", tainted, draining), ""),
		Entry("nobody when the machine is healthy again", Machine("m", running), Node("m", tainted, draining), ""),
		Entry("M12: nobody while the machine is under maintenance", Machine("m", maintained), Node("m", tainted, draining), ""),
		Entry("M12: nobody while it is that beside another reason", Machine("m", failed, alsoMaintained), Node("m", tainted, draining), ""),
		Entry("nobody when it is done", Machine("m", failed), Node("m", tainted, reason("Drained")), ""),
		Entry("the preservation of a failed machine", Machine("m", failed), Node("m", tainted, draining), "preservation"),
		Entry("also while evictions are refused", Machine("m", failed), Node("m", tainted, reason("DrainBlocked")), "preservation"),
		Entry("also while pods are kept", Machine("m", failed), Node("m", tainted, reason("PodsKept")), "preservation"),
		Entry("MCM when the machine terminates", Machine("m", gone), Node("m"), "machine-controller-manager"),
		Entry("MCM before the preservation when the machine terminates", Machine("m", failed, gone), Node("m", tainted, draining), "machine-controller-manager"),
		Entry("MCM when the node is selected for an update in place", Machine("m"), Node("m", inPlace("SelectedForUpdate")), "machine-controller-manager"),
		Entry("MCM before the preservation then", Machine("m", failed), Node("m", tainted, draining, inPlace("SelectedForUpdate")), "machine-controller-manager"),
		Entry("not MCM while the node is a candidate only", Machine("m", failed), Node("m", tainted, draining, inPlace("CandidateForUpdate")), "preservation"),
		Entry("not MCM after the update", Machine("m", failed), Node("m", tainted, draining, inPlace("UpdateFailed")), "preservation"),
	)

	It("P14: should not be stopped by a node that says that it is updated when there is no update", func() {
		node := Node("m", tainted, draining, inPlace("SelectedForUpdate"))
		Expect(OwnerOf(Machine("m", failed), node, false, false)).To(BeEquivalentTo("preservation"))
		Expect(OwnerOf(Machine("m", failed), node, true, false)).To(BeEquivalentTo("machine-controller-manager"))
		Expect(OwnerOf(Machine("m", failed, gone), node, false, false)).To(BeEquivalentTo("machine-controller-manager"))
	})

	DescribeTable("M12: who empties a node whose maintenance goes on although the machine is kept for it no longer", func(machine *machinev1alpha1.Machine, node *corev1.Node, want string) {
		Expect(OwnerOf(machine, node, true, true)).To(BeEquivalentTo(want))
	},
		Entry("the maintenance", Machine("m", failed), Node("m", tainted, draining), "maintenance"),
		Entry("MCM when the machine terminates", Machine("m", failed, gone), Node("m", tainted, draining), "machine-controller-manager"),
		Entry("MCM when the node is selected for an update in place", Machine("m", failed), Node("m", tainted, draining, inPlace("SelectedForUpdate")), "machine-controller-manager"),
	)
})
