// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation_test

import (
	"errors"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/remediation"
)

var _ = Describe("End", func() {
	It("X15: should clean all nodes, go on after one that cannot be, and leave a taint that is not ours", func(ctx SpecContext) {
		e := newEnvironment("ours", "other")
		e.ask(ctx, "ours")
		e.settle(ctx)
		e.power(ctx, "ours")
		e.settle(ctx)
		Expect(e.tainted(ctx, "ours")).To(BeTrue())
		n := e.node(ctx, "other")
		e.edit(ctx, n, func() {
			n.Spec.Taints = []corev1.Taint{{Key: outOfService, Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}}
		})
		n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "PowerCycle", Status: corev1.ConditionFalse, Reason: "Failed"})
		Expect(e.c.Status().Update(ctx, n)).To(Succeed())
		machines := &machinev1alpha1.MachineList{}
		Expect(e.c.List(ctx, machines)).To(Succeed())

		shown := ContainElement(HaveField("Type", corev1.NodeConditionType("PowerCycle")))
		e.fail = func(call string, _ bool) error {
			if call == "patch Node/ours" {
				return errors.New("denied")
			}
			return nil
		}
		Expect(End(ctx, e.intercept(true), machines.Items)).To(MatchError(ContainSubstring("failed to write Node ours: denied")))
		Expect(e.node(ctx, "other").Status.Conditions).NotTo(shown)
		e.fail = func(string, bool) error { return nil }
		Expect(End(ctx, e.intercept(true), machines.Items)).To(Succeed())
		Expect(e.node(ctx, "ours").Status.Conditions).NotTo(shown)
		Expect(e.tainted(ctx, "ours")).To(BeFalse())
		Expect(e.tainted(ctx, "other")).To(BeTrue(), "it is somebody else's")
		writes := len(e.writes)
		Expect(End(ctx, e.intercept(true), machines.Items)).To(Succeed())
		Expect(e.writes).To(HaveLen(writes), "nothing is left")
	})
})
