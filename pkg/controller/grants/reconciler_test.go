// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package grants_test

import (
	"context"
	"errors"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/grants"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Reconciler", func() {
	var (
		ctx        = context.Background()
		c, cached  client.WithWatch
		asked      int
		clock      *testclock.FakeClock
		reconciler *Reconciler
	)

	create := func(machines ...*machinev1alpha1.Machine) {
		GinkgoHelper()
		for _, m := range machines {
			Expect(cached.Create(ctx, m.DeepCopy())).To(Succeed())
			Expect(c.Create(ctx, m)).To(Succeed())
		}
	}
	grantOf := func(name string) string {
		GinkgoHelper()
		m := &machinev1alpha1.Machine{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: builder.Namespace, Name: name}, m)).To(Succeed())
		Expect(m.Spec.ProviderID).NotTo(BeEmpty(), "nothing else is changed")
		return m.Annotations[grant]
	}
	look := func() (time.Duration, error) {
		result, err := reconciler.Reconcile(ctx, reconcile.Request{})
		return result.RequeueAfter, err
	}

	BeforeEach(func() {
		scheme := runtime.NewScheme()
		Expect(machinev1alpha1.AddToScheme(scheme)).To(Succeed())
		c, cached = fakeclient.NewClientBuilder().WithScheme(scheme).Build(), fakeclient.NewClientBuilder().WithScheme(scheme).Build()
		clock, asked = testclock.NewFakeClock(now), 0
		reconciler = &Reconciler{
			Client: interceptor.NewClient(cached, interceptor.Funcs{
				Patch: func(ctx context.Context, _ client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
					return c.Patch(ctx, object, patch, opts...)
				},
			}),
			APIReader: interceptor.NewClient(c, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					asked++
					Expect(list).To(BeAssignableToTypeOf(&metav1.PartialObjectMetadataList{}), "machines are big")
					return c.List(ctx, list, opts...)
				},
			}),
			Limit: 1,
			Clock: clock,
		}
	})

	It("X8: grants one after the other, for two minutes", func() {
		create(waits("a", time.Second), waits("b", 0))
		Expect(look()).To(Equal(150 * time.Second))
		Expect(grantOf("b")).To(Equal("2026-03-01T13:02:00Z"))
		Expect(grantOf("a")).To(BeEmpty())
		clock.Step(149 * time.Second)
		Expect(look()).To(Equal(time.Second))
		Expect(grantOf("a")).To(BeEmpty())
		clock.Step(time.Second)
		Expect(look()).To(Equal(150 * time.Second))
		Expect(grantOf("a")).To(Equal("2026-03-01T13:04:30Z"))
	})

	It("X8: asks nobody while no machine waits for a grant", func() {
		create(in("a", "PoweringOff"), in("b", "Waiting"), builder.Machine("c"))
		Expect(look()).To(BeZero())
		Expect(asked).To(BeZero())
	})

	It("X8: does not rest on a cache that does not know yet what was granted last", func() {
		create(waits("a", 0), waits("b", time.Second))
		for range 2 { // the cache has neither of the grants
			_, err := look()
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(grantOf("a")).NotTo(BeEmpty())
		Expect(grantOf("b")).To(BeEmpty())
	})

	It("X8: does not count machines without the label", func() {
		m := in("a", "PoweringOff")
		delete(m.Labels, prefix+"power-cycle")
		create(m, waits("b", 0))
		Expect(look()).To(Equal(150 * time.Second))
		Expect(grantOf("b")).NotTo(BeEmpty())
	})

	It("X8: grants nothing to a machine that has changed meanwhile, and tries again", func() {
		create(waits("a", 0), waits("b", time.Second))
		reconciler.APIReader = interceptor.NewClient(c, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if err := c.List(ctx, list, opts...); err != nil {
					return err
				}
				m := &machinev1alpha1.Machine{}
				Expect(c.Get(ctx, client.ObjectKey{Namespace: builder.Namespace, Name: "a"}, m)).To(Succeed())
				if m.Annotations[phase] == "Cancelled" {
					return nil
				}
				m.Annotations[phase] = "Cancelled"
				return c.Update(ctx, m)
			},
		})
		_, err := look()
		Expect(err).To(MatchError(apierrors.IsConflict, "IsConflict"))
		Expect(err).To(MatchError(HavePrefix(`failed to grant a power cycle to Machine "shoot--test--one/a": `)))
		Expect(grantOf("a")).To(BeEmpty())
		Expect(look()).To(Equal(150 * time.Second))
		Expect(grantOf("b")).NotTo(BeEmpty())
	})

	It("X8: grants to others what a machine that is gone cannot have", func() {
		reconciler.Limit = 2
		create(waits("a", 0), waits("b", time.Second))
		listed := reconciler.APIReader
		reconciler.APIReader = interceptor.NewClient(c, interceptor.Funcs{
			List: func(ctx context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if err := listed.List(ctx, list, opts...); err != nil {
					return err
				}
				return client.IgnoreNotFound(c.Delete(ctx, waits("a", 0)))
			},
		})
		Expect(look()).To(Equal(150 * time.Second))
		Expect(grantOf("b")).NotTo(BeEmpty())
	})

	It("X8: grants nothing when it cannot look", func() {
		create(waits("a", 0))
		reconciler.APIReader = interceptor.NewClient(c, interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("fake")
			},
		})
		_, err := look()
		Expect(err).To(MatchError("failed to list Machines: fake"))
		Expect(grantOf("a")).To(BeEmpty())
	})
})

var _ = Describe("#MachinePredicate", func() {
	DescribeTable("X8: selects what is decided on",
		func(change builder.MachineOption, selected bool) {
			Expect(MachinePredicate().Update(event.UpdateEvent{ObjectOld: waits("a", 0), ObjectNew: waits("a", 0, change)})).To(Equal(selected))
		},
		Entry("phase", builder.Annotation(phase, "PoweringOff"), true),
		Entry("what it waits for", waitsFor(0, false), true),
		Entry("grant", granted(time.Minute), true),
		Entry("anything else", builder.Annotation("foo", "bar"), false),
	)

	It("X8: selects Machines that come or go", func() {
		Expect(MachinePredicate().Create(event.CreateEvent{Object: waits("a", 0)})).To(BeTrue())
		Expect(MachinePredicate().Delete(event.DeleteEvent{Object: waits("a", 0)})).To(BeTrue())
	})
})
