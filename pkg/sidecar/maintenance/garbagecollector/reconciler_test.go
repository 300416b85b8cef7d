// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package garbagecollector_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance/garbagecollector"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

type shoot struct {
	client.Client
	unknown bool
	config  *v1alpha1.MaintenanceOperatorConfig
}

func (s *shoot) Known() bool { return !s.unknown }

func (s *shoot) Config(context.Context) (*v1alpha1.MaintenanceOperatorConfig, error) {
	return s.config, nil
}

var _ = Describe("Reconcile", func() {
	const readyTime = "maintenance.nvidia.com/ready-time"
	var (
		nm    *v1alpha1.NodeMaintenance
		clock *testclock.FakePassiveClock
		s     *shoot
		r     *Reconciler
	)

	BeforeEach(func() {
		nm = &v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{
			Namespace: "default", Name: "a", Annotations: map[string]string{readyTime: builder.Start.Format(time.RFC3339)}, Finalizers: []string{"maintenance.nvidia.com/finalizer"},
		}}
		domain.SetPhase(&nm.Status, "Ready", "", 0, builder.Start)
		clock = testclock.NewFakePassiveClock(builder.Start.Add(10 * time.Minute))
		s = &shoot{config: &v1alpha1.MaintenanceOperatorConfig{Spec: v1alpha1.MaintenanceOperatorConfigSpec{MaxNodeMaintenanceTimeSeconds: new(int32(1800))}}}
		r = &Reconciler{Clock: clock, Recorder: events.NewFakeRecorder(10)}
	})

	run := func(ctx context.Context) (time.Duration, bool) {
		GinkgoHelper()
		if s.Client == nil {
			scheme := runtime.NewScheme()
			Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
			s.Client, r.Shoot = fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(nm).Build(), s
		}
		result, err := r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(nm)})
		Expect(err).NotTo(HaveOccurred())
		after := &v1alpha1.NodeMaintenance{}
		Expect(s.Get(ctx, client.ObjectKeyFromObject(nm), after)).To(Succeed())
		return result.RequeueAfter, after.DeletionTimestamp != nil
	}

	It("M9: should delete what is ready for too long, to the second, and say so", func(ctx SpecContext) {
		after, deleted := run(ctx)
		Expect(after).To(Equal(20 * time.Minute))
		Expect(deleted).To(BeFalse())
		clock.SetTime(builder.Start.Add(30*time.Minute - time.Second))
		after, deleted = run(ctx)
		Expect(after).To(Equal(time.Second))
		Expect(deleted).To(BeFalse())
		clock.SetTime(builder.Start.Add(30 * time.Minute))
		_, deleted = run(ctx)
		Expect(deleted).To(BeTrue())
		Expect(r.Recorder.(*events.FakeRecorder).Events).To(Receive(Equal("Warning MaintenanceGarbageCollected The NodeMaintenance was deleted, because it was in phase Ready since 2026-03-01T12:00:00Z, longer than 30m0s.")))
	})

	It("M9: should delete nothing before its time when the clock is set back by an hour, and what is due when it is set forward", func(ctx SpecContext) {
		clock.SetTime(builder.Start.Add(-time.Hour))
		after, deleted := run(ctx)
		Expect(deleted).To(BeFalse())
		Expect(after).To(BeNumerically(">=", 30*time.Minute), "not before it has been ready for as long as it may")
		clock.SetTime(builder.Start.Add(29 * time.Minute))
		after, deleted = run(ctx)
		Expect(deleted).To(BeFalse())
		Expect(after).To(Equal(time.Minute))
		clock.SetTime(builder.Start.Add(89 * time.Minute))
		_, deleted = run(ctx)
		Expect(deleted).To(BeTrue())
	})

	It("M7: should end to the second what a requestor that has failed keeps, or additional ones do, whoever is restarted in between", func(ctx SpecContext) {
		const ended = "machine-preservation.extensions.gardener.cloud/ended"
		for _, edit := range []func(){
			func() {
				meta.SetStatusCondition(&nm.Status.Conditions, metav1.Condition{Type: "RequestorFailed", Status: "True", Reason: "x"})
			},
			func() { share(nm) },
		} {
			nm.Status.Conditions, nm.DeletionTimestamp, nm.Spec.AdditionalRequestors, nm.ResourceVersion = nm.Status.Conditions[:1], nil, nil, ""
			edit()
			s.Client, r = nil, &Reconciler{Clock: clock, Recorder: events.NewFakeRecorder(10), MaxOvertime: 2 * time.Hour}
			clock.SetTime(builder.Start.Add(150*time.Minute - time.Second))
			after, deleted := run(ctx)
			Expect(after).To(Equal(time.Second))
			Expect(deleted).To(Equal(nm.DeletionTimestamp != nil))
			Expect(r.Recorder.(*events.FakeRecorder).Events).NotTo(Receive())

			clock.SetTime(builder.Start.Add(150 * time.Minute))
			if !deleted {
				_, deleted = run(ctx)
				Expect(deleted).To(BeTrue())
				Expect(r.Recorder.(*events.FakeRecorder).Events).To(Receive(Equal("Warning MaintenanceGarbageCollected The NodeMaintenance was deleted, because it was in phase Ready since 2026-03-01T12:00:00Z, longer than 2h30m0s.")))
			}
			run(ctx)
			written := &v1alpha1.NodeMaintenance{}
			Expect(s.Get(ctx, client.ObjectKeyFromObject(nm), written)).To(Succeed())
			Expect(written.Annotations).To(HaveKeyWithValue(ended, "true"))
			Expect(domain.IsEnding(written)).To(BeTrue(), "the node is given back")
			Expect(r.Recorder.(*events.FakeRecorder).Events).To(Receive(SatisfyAll(HavePrefix("Warning MaintenanceEnded The maintenance was ended, because"), ContainSubstring(", and it has been in phase Ready since 2026-03-01T12:00:00Z, longer than 2h30m0s. The node is given back."))))
			after, _ = run(ctx)
			Expect(after).To(BeZero())
			Expect(r.Recorder.(*events.FakeRecorder).Events).NotTo(Receive(), "once")
		}
	})

	DescribeTable("M7, M9: when it is over", func(ctx SpecContext, edit func(), want time.Duration) {
		edit()
		after, deleted := run(ctx)
		Expect(after).To(Equal(want))
		Expect(deleted).To(Equal(nm.DeletionTimestamp != nil))
	},
		Entry("when it is to be deleted, by default", func() { s.config.Spec.MaxNodeMaintenanceTimeSeconds = nil }, 50*time.Minute),
		Entry("when one that is deleted is to be ended", func() { r.MaxOvertime = time.Hour; share(nm) }, 80*time.Minute),
		Entry("never for one that is ended already", func() {
			r.MaxOvertime = time.Hour
			share(nm)
			nm.Annotations["machine-preservation.extensions.gardener.cloud/ended"] = "true"
		}, time.Duration(0)),
		Entry("never while nobody knows the limit", func() { s.config = nil }, time.Duration(0)),
		Entry("never while nobody knows the objects", func() { s.unknown = true }, time.Duration(0)),
	)
})

// share has a NodeMaintenance that is deleted wait for an additional requestor.
func share(nm *v1alpha1.NodeMaintenance) {
	nm.DeletionTimestamp, nm.Spec.AdditionalRequestors = new(metav1.NewTime(builder.Start)), []string{"b"}
}
