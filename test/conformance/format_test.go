// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"slices"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/format"
	corev1 "k8s.io/api/core/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = It("should show all Machines and Nodes of which an expectation failed", func() {
	machines := slices.Repeat([]*machinev1alpha1.Machine{Machine("m", Phase(machinev1alpha1.MachineUnknown, Start), Annotation("some", "annotation"))}, 20)
	machines = append(machines, Machine("last"))
	Expect(format.Object(machines, 1)).To(And(ContainSubstring("phase Unknown since 2026-03-01 12:00:00"), ContainSubstring("some:annotation"), ContainSubstring("Machine last\n")))
	node := Node("n", Condition("KernelDeadlock", corev1.ConditionTrue, "Hung", "a task hangs"), Taint("some", Start))
	Expect(format.Object(node, 1)).To(And(ContainSubstring("Node n\n"), ContainSubstring("taints [{some "), ContainSubstring("condition KernelDeadlock True"), ContainSubstring("Hung, a task hangs")))
})
