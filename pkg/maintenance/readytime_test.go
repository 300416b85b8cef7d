// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Bounds", func() {
	const (
		readyTime = "maintenance.nvidia.com/ready-time"
		ignore    = "maintenance.nvidia.com/garbage-collector.ignore"
		ended     = "machine-preservation.extensions.gardener.cloud/ended"
	)
	var (
		start  = builder.Start
		now    = start.Add(10 * time.Minute)
		bounds = Bounds{Max: time.Hour, Overtime: 24 * time.Hour}

		ready  = func(*v1alpha1.NodeMaintenance) {}
		failed = func(nm *v1alpha1.NodeMaintenance) {
			meta.SetStatusCondition(&nm.Status.Conditions, metav1.Condition{Type: "RequestorFailed", Status: "True", Reason: "x"})
			SetPhase(&nm.Status, "RequestorFailed", "", 0, start.Add(5*time.Minute))
		}
		deleted = func(nm *v1alpha1.NodeMaintenance) { nm.DeletionTimestamp = new(metav1.NewTime(now)) }
		shared  = func(nm *v1alpha1.NodeMaintenance) { nm.Spec.AdditionalRequestors = []string{"b"} }
		with    = func(key, value string) func(*v1alpha1.NodeMaintenance) {
			return func(nm *v1alpha1.NodeMaintenance) { nm.Annotations[key] = value }
		}
		at = func(phase string) func(*v1alpha1.NodeMaintenance) {
			return func(nm *v1alpha1.NodeMaintenance) { SetPhase(&nm.Status, phase, "", 0, start) }
		}
		maintenanceWith = func(edits ...func(*v1alpha1.NodeMaintenance)) *v1alpha1.NodeMaintenance {
			nm := &v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{
				Finalizers: []string{"maintenance.nvidia.com/finalizer"}, Annotations: map[string]string{readyTime: start.Format(time.RFC3339)},
			}}
			SetPhase(&nm.Status, "Ready", "", 0, start)
			for _, edit := range edits {
				edit(nm)
			}
			return nm
		}
		all = func(edits ...func(*v1alpha1.NodeMaintenance)) []func(*v1alpha1.NodeMaintenance) { return edits }
	)
	hour, bound := start.Add(time.Hour), start.Add(25*time.Hour)

	DescribeTable("M7, M9: when it is over", func(edits []func(*v1alpha1.NodeMaintenance), want Ends) {
		ends := bounds.Ends(maintenanceWith(edits...), now)
		ends.Since = time.Time{}
		Expect(ends).To(Equal(want))
	},
		Entry("Ready", all(ready), Ends{Over: hour, At: hour}),
		Entry("Ready and shared", all(shared), Ends{Over: hour, At: hour}),
		Entry("deleted, while others wait", all(shared, deleted), Ends{Over: hour, At: bound}),
		Entry("deleted, and nobody waits", all(deleted), Ends{Over: hour}),
		Entry("failed", all(failed), Ends{Over: hour, At: bound.Add(5 * time.Minute)}),
		Entry("failed and deleted", all(failed, deleted), Ends{Over: hour, At: bound.Add(5 * time.Minute)}),
		Entry("failed, which nobody has seen yet", all(func(nm *v1alpha1.NodeMaintenance) {
			meta.SetStatusCondition(&nm.Status.Conditions, metav1.Condition{Type: "RequestorFailed", Status: "True", Reason: "x"})
		}), Ends{Over: hour, At: bound}),
		Entry("ended already", all(failed, deleted, shared, with(ended, "true")), Ends{Over: hour}),
		Entry("ignored", all(with(ignore, "true")), Ends{Over: hour}),
		Entry("ignored, failed and deleted", all(failed, deleted, with(ignore, "true")), Ends{Over: hour}),
		Entry("ignored with another value", all(with(ignore, "yes")), Ends{Over: hour, At: hour}),
		Entry("backdated", all(with(readyTime, "2001-01-01T00:00:00Z")), Ends{Over: hour, At: hour}),
		Entry("backdated, while others wait", all(shared, deleted, with(readyTime, "2001-01-01T00:00:00Z")), Ends{Over: hour, At: bound}),
		Entry("backdated and failed: nothing comes earlier but the alert", all(failed, with(readyTime, "2001-01-01T00:00:00Z")),
			Ends{Over: time.Date(2001, 1, 1, 1, 0, 0, 0, time.UTC), At: bound.Add(5 * time.Minute)}),
		Entry("yet to come, counted from the condition", all(with(readyTime, "9999-01-01T00:00:00Z")), Ends{Over: hour, At: hour}),
		Entry("that cannot be read, counted from the condition", all(with(readyTime, "soon")), Ends{Over: hour, At: hour}),
		Entry("without a time that counts, from now on", all(at("Pending"), func(nm *v1alpha1.NodeMaintenance) { SetPhase(&nm.Status, "Ready", "", 0, now.Add(time.Hour)) }, with(readyTime, "soon")),
			Ends{Over: now.Add(time.Hour), At: now.Add(time.Hour)}),
		Entry("draining", all(at("Draining")), Ends{}),
		Entry("pending", all(at("Pending"), deleted, shared), Ends{}),
		Entry("over, but kept by others", all(deleted, shared, func(nm *v1alpha1.NodeMaintenance) { nm.Finalizers = []string{"x"} }), Ends{}),
	)

	It("M7, M9: should have no bound where operators set none", func() {
		for _, edits := range [][]func(*v1alpha1.NodeMaintenance){all(failed), all(failed, deleted), all(shared, deleted)} {
			ends := Bounds{Max: time.Hour}.Ends(maintenanceWith(edits...), now)
			Expect(ends.At).To(BeZero())
			Expect(ends.Over).To(Equal(hour))
		}
	})

	DescribeTable("M7: whether it is ending", func(ending bool, edits ...func(*v1alpha1.NodeMaintenance)) {
		Expect(IsEnding(maintenanceWith(edits...))).To(Equal(ending))
	},
		Entry("one that others wait for", false, deleted, shared),
		Entry("one that others have waited for too long", true, deleted, shared, with(ended, "true")),
		Entry("one that has failed", false, deleted, failed),
		Entry("one that has failed for too long", true, deleted, failed, shared, with(ended, "true")),
		Entry("not one that is not deleted", false, failed, with(ended, "true")),
	)
})
