// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"context"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/evidence"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Early logs", func() {
	unknown := Phase(machinev1alpha1.MachineUnknown, Start)
	names := []string{"m-0", "m-1", "m-2", "m-3", "m-4"}

	var (
		e      *environment
		early  reconcile.Reconciler
		of     func(string) *evidence.NodeLogs
		asked  []string
		isDead bool
	)

	BeforeEach(func() {
		asked, isDead = nil, false
		var objects []client.Object
		for _, name := range names {
			objects = append(objects, Machine(name, unknown))
		}
		e = newEnvironment(objects...)
		logs := NewEarlyLogs(e.seed, func(ctx context.Context, node string) *evidence.NodeLogs {
			deadline, ok := ctx.Deadline()
			Expect(ok).To(BeTrue())
			Expect(time.Until(deadline)).To(BeNumerically("<=", 15*time.Second))
			if asked = append(asked, node); isDead {
				return nil
			}
			return &evidence.NodeLogs{}
		})
		early, of = logs, func(name string) *evidence.NodeLogs { return EarlyLogsOf(logs, name) }
	})

	look := func(ctx context.Context, name string) time.Duration {
		GinkgoHelper()
		result, err := early.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: Namespace, Name: name}})
		Expect(err).NotTo(HaveOccurred())
		return result.RequeueAfter
	}
	change := func(ctx context.Context, name string, options ...MachineOption) {
		GinkgoHelper()
		Expect(e.seed.Delete(ctx, Machine(name))).To(Succeed())
		Expect(e.seed.Create(ctx, Machine(name, options...))).To(Succeed())
	}

	It("should ask a kubelet once when its machine is Unknown, and forget what it said when that has recovered or is gone", func(ctx SpecContext) {
		Expect(look(ctx, "m-0")).To(BeZero())
		Expect(look(ctx, "m-0")).To(BeZero())
		Expect(asked).To(HaveLen(1))
		Expect(of("m-0")).NotTo(BeNil())
		Expect(of("m-1")).To(BeNil())

		change(ctx, "m-0", Phase(machinev1alpha1.MachineRunning, Start))
		look(ctx, "m-0")
		Expect(of("m-0")).To(BeNil())

		look(ctx, "m-1")
		Expect(e.seed.Delete(ctx, Machine("m-1"))).To(Succeed())
		look(ctx, "m-1")
		Expect(of("m-1")).To(BeNil())
	})

	It("should keep no place for a machine that is on its way out and was not kept", func(ctx SpecContext) {
		change(ctx, "m-0", unknown, func(m *machinev1alpha1.Machine) {
			m.Finalizers = []string{"machine.sapcloud.io/machine-controller-manager"}
		})
		look(ctx, "m-0")
		Expect(of("m-0")).NotTo(BeNil())
		Expect(e.seed.Delete(ctx, Machine("m-0"))).To(Succeed())
		look(ctx, "m-0")
		Expect(of("m-0")).To(BeNil())
	})

	It("should ask one that does not answer once a minute, until its machine has failed", func(ctx SpecContext) {
		isDead = true
		Expect(look(ctx, "m-0")).To(Equal(time.Minute))
		Expect(look(ctx, "m-0")).To(Equal(time.Minute))
		change(ctx, "m-0", failed, kept)
		Expect(look(ctx, "m-0")).To(BeZero())
		Expect(asked).To(HaveLen(2))
	})

	DescribeTable("should ask nobody", func(ctx SpecContext, options ...MachineOption) {
		change(ctx, "m-0", options...)
		Expect(look(ctx, "m-0")).To(BeZero())
		Expect(asked).To(BeEmpty())
	},
		Entry("of a machine that runs", Phase(machinev1alpha1.MachineRunning, Start)),
		Entry("of one that has failed", failed),
		Entry("of one that is held in phase Unknown since it has failed", unknown, kept),
	)

	It("should keep those of a machine that has failed, and not those of more than four; stored ones make room", func(ctx SpecContext) {
		for _, name := range names {
			look(ctx, name)
		}
		Expect(asked).To(HaveLen(4))
		Expect(look(ctx, "m-4")).To(Equal(time.Minute), "there may be a place by then")
		Expect(of("m-4")).To(BeNil())

		change(ctx, "m-2", failed, kept)
		look(ctx, "m-2")
		look(ctx, "m-4")
		Expect(of("m-2")).NotTo(BeNil(), "its evidence is not stored yet")
		Expect(of("m-4")).To(BeNil())

		change(ctx, "m-2", failed, kept, Annotation(evidenceKey, failure))
		look(ctx, "m-2")
		Expect(of("m-2")).NotTo(BeNil(), "it may be gathered again")
		look(ctx, "m-4")
		Expect(of("m-4")).NotTo(BeNil())
		Expect(of("m-2")).To(BeNil())
		for _, name := range []string{"m-0", "m-1", "m-3"} {
			Expect(of(name)).NotTo(BeNil(), name)
		}
	})
})
