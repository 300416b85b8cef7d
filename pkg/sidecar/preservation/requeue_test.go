// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"context"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Requeue", func() {
	var (
		now = Start.Add(time.Hour)
		set = Set("set", Deployment("pool"))

		unknown = func(name string, ago time.Duration, opts ...MachineOption) client.Object {
			return Machine(name, append([]MachineOption{Of(set), Phase(machinev1alpha1.MachineUnknown, now.Add(-ago))}, opts...)...)
		}
	)

	for name, holder := range holders {
		DescribeTable(name+": should look again exactly when something is due", func(ctx SpecContext, machines []client.Object, want time.Duration) {
			e := newEnvironment(holder, append(machines, Deployment("pool", Share("1")), set)...)
			Expect(e.settle(ctx).RequeueAfter).To(Equal(want))
		},
			Entry("never for healthy machines", []client.Object{Machine("a", Of(set)), Machine("b", Of(set))}, time.Duration(0)),
			Entry("T5: at the health deadline minus 30s", []client.Object{unknown("a", time.Minute)}, 8*time.Minute+30*time.Second),
			Entry("T5: at the machine's own deadline minus a tenth", []client.Object{unknown("a", time.Minute, func(m *machinev1alpha1.Machine) {
				m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachineHealthTimeout: &metav1.Duration{Duration: 100 * time.Second}}
			})}, 30*time.Second),
			Entry("T5: at the creation deadline minus 30s", []client.Object{Machine("a", Of(set), Phase(machinev1alpha1.MachinePending, now), Created(now))}, 19*time.Minute+30*time.Second),
			Entry("T1: at the expiry", []client.Object{Machine("a", Of(set), Annotation(preserve, "now"), Annotation(prefix+"timeout", "90m"))}, 90*time.Minute),
			Entry("T2: at the deadline of a preserved machine, if that comes first", []client.Object{unknown("a", time.Minute, Annotation(preserve, "now"))}, 8*time.Minute+30*time.Second),
			Entry("H4: at the deadline of a machine that is held as that is near", []client.Object{unknown("a", 571*time.Second)}, 29*time.Second),
			Entry("T4: at the expiry of a failed machine, not at its deadline", []client.Object{unknown("a", 10*time.Minute, Annotation(preserve, "when-failed"))}, 72*time.Hour),
			Entry("the earliest of many", []client.Object{
				unknown("a", time.Minute), unknown("b", 2*time.Minute), Machine("c", Of(set), Annotation(preserve, "now")),
			}, 7*time.Minute+30*time.Second),
			Entry("T6: never for a machine that must not be preserved", []client.Object{unknown("a", 10*time.Minute, Annotation(preserve, "false"))}, time.Duration(0)),
		)

		It(name+" T6: should not look again for a machine that was refused", func(ctx SpecContext) {
			e := newEnvironment(holder, Deployment("pool", Share("1")), set, unknown("a", 601*time.Second), unknown("b", 600*time.Second))
			Expect(e.settle(ctx).RequeueAfter).To(Equal(72 * time.Hour))
		})

		It(name+" T5 H4: should do nothing when it looks too early, and act when it looks in time", func(ctx SpecContext) {
			e := newEnvironment(holder, Deployment("pool", Share("1")), set, unknown("a", time.Minute))
			wait := e.settle(ctx).RequeueAfter
			for _, state := range []func(context.Context) []string{e.placed, e.held} {
				e.pass(wait - time.Nanosecond)
				Expect(e.settle(ctx).RequeueAfter).To(Equal(time.Millisecond), "no shorter wait, so that it cannot spin")
				Expect(state(ctx)).To(BeEmpty())
				e.pass(time.Nanosecond)
				wait = e.settle(ctx).RequeueAfter
				Expect(state(ctx)).To(ConsistOf("a"))
			}
			Expect(e.now()).To(Equal(now.Add(9 * time.Minute)))
		})

		It(name+" P6: should obey an edited expiry to the second", func(ctx SpecContext) {
			e := newEnvironment(holder, Deployment("pool", Share("1")), set, unknown("a", 10*time.Minute))
			e.settle(ctx)
			e.editMachine(ctx, "a", func(m *machinev1alpha1.Machine) {
				if name == "PreserveExpiry" {
					m.Status.CurrentStatus.PreserveExpiryTime.Time = now.Add(time.Hour)
				} else {
					Annotation(prefix+"expiry-time", "2026-03-01T14:00:00Z")(m)
				}
			})
			Expect(e.settle(ctx).RequeueAfter).To(Equal(time.Hour))
			e.pass(time.Hour - time.Second)
			Expect(e.settle(ctx).RequeueAfter).To(Equal(time.Second))
			Expect(e.held(ctx)).To(ConsistOf("a"))
			e.pass(time.Second)
			e.settle(ctx)
			Expect(e.held(ctx)).To(BeEmpty())
		})
	}
})
