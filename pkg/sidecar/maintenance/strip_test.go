// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// transform returns how the cache of the shoot keeps NodeMaintenances.
func transform() toolscache.TransformFunc {
	for object, by := range ByObject() {
		if _, ok := object.(*v1alpha1.NodeMaintenance); ok {
			return by.Transform
		}
	}
	return nil
}

// large returns a NodeMaintenance with as much as fits into its annotations, labels and managed fields.
func large(name string) *v1alpha1.NodeMaintenance {
	return maintenance(name, "Ready", func(nm *v1alpha1.NodeMaintenance) {
		nm.UID = types.UID(name)
		nm.Annotations["other"] = strings.Repeat("x", 250<<10)
		nm.Annotations["maintenance.nvidia.com/wait-pod-completion-start-time"] = strings.Repeat("x", 1<<10)
		nm.Labels = map[string]string{"team": "a"}
		nm.Finalizers = append(nm.Finalizers, "example.com/other")
		nm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "other", UID: "other"}}
		nm.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl", FieldsV1: metav1.NewFieldsV1(strings.Repeat("x", 1<<10))}}
		nm.Status.Conditions = append(nm.Status.Conditions, metav1.Condition{Type: "Other", Status: "True", Reason: "x", Message: "kept"})
	})
}

var _ = Describe("What is kept of a NodeMaintenance", func() {
	It("P14: should be what is read, and decide alike", func() {
		nm := large("a")
		want := domain.NewRequest(nm.DeepCopy(), nil)
		wantEnds := domain.Bounds{Max: 1}.Ends(nm, Start)
		stripped, err := transform()(nm)
		Expect(err).NotTo(HaveOccurred())
		Expect(transform()(stripped.(*v1alpha1.NodeMaintenance).DeepCopy())).To(Equal(stripped), "a page is stripped before the whole list is")
		nm = stripped.(*v1alpha1.NodeMaintenance)
		Expect(domain.NewRequest(nm, nil)).To(Equal(want))
		Expect(domain.Bounds{Max: 1}.Ends(nm, Start)).To(Equal(wantEnds))
		Expect(nm.Labels).To(BeNil())
		Expect(nm.ManagedFields).To(BeNil())
		Expect(len(fmt.Sprint(nm))).To(BeNumerically("<", 2<<10))
	})

	It("P14: should take nothing from others when it is written", func(ctx SpecContext) {
		for _, edit := range []func(*v1alpha1.NodeMaintenance){
			func(nm *v1alpha1.NodeMaintenance) { // which removes the last of the annotations that are read
				meta.RemoveStatusCondition(&nm.Status.Conditions, "Ready")
				writes := domain.CleanMaintenance(nm, Start)
				Expect(writes).To(HaveLen(1))
				*nm = *writes[0].After.(*v1alpha1.NodeMaintenance)
			},
			func(nm *v1alpha1.NodeMaintenance) {
				metav1.SetMetaDataAnnotation(&nm.ObjectMeta, v1alpha1.AnnotationEnded, "true")
			},
		} {
			stored := large("a")
			stored.ManagedFields = nil // the client sets its own
			delete(stored.Annotations, v1alpha1.AnnotationIgnoreGarbageCollector)
			c := fakeclient.NewClientBuilder().WithScheme(newScheme()).WithObjects(stored).WithStatusSubresource(stored).Build()
			before := &v1alpha1.NodeMaintenance{}
			Expect(c.Get(ctx, client.ObjectKeyFromObject(stored), before)).To(Succeed())
			_, err := transform()(before)
			Expect(err).NotTo(HaveOccurred())
			after := before.DeepCopy()
			edit(after)
			run := executor.Apply(ctx, c, intent.Write{Before: before, After: after, Lock: true})
			Expect(run.Err()).NotTo(HaveOccurred())
			before = executor.Latest(run, before)
			after = before.DeepCopy()
			after.Status.WaitForCompletion, after.Status.Drain = nil, nil
			domain.SetPhase(&after.Status, "Pending", "", 1, Start)
			Expect(executor.Apply(ctx, c, intent.Write{Before: before, After: after, Status: true, Lock: true}).Err()).To(Succeed())

			now := &v1alpha1.NodeMaintenance{}
			Expect(c.Get(ctx, client.ObjectKeyFromObject(stored), now)).To(Succeed())
			Expect(now.Annotations).To(HaveKeyWithValue("other", HaveLen(250<<10)))
			Expect(now.Annotations).NotTo(HaveKey("machine-preservation.extensions.gardener.cloud/stripped"))
			Expect(now.Labels).To(HaveKeyWithValue("team", "a"))
			Expect(now.Finalizers).To(ContainElement("example.com/other"))
			Expect(now.OwnerReferences).To(HaveLen(1))
			Expect(now.Status.Conditions).To(ContainElement(HaveField("Message", "kept")))
		}
	})
})

// BenchmarkCache is of what is kept of NodeMaintenances with 250 KiB of annotations, per 10,000 and 100,000 of them:
//
//	go test -run '^$' -bench Cache -benchtime 1x ./pkg/sidecar/maintenance
func BenchmarkCache(b *testing.B) {
	const count = 500
	for b.Loop() {
		var before, after runtime.MemStats
		kept := make([]any, count)
		runtime.GC()
		runtime.ReadMemStats(&before)
		for i := range kept {
			kept[i], _ = transform()(large(fmt.Sprintf("n-%d", i)))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		each := float64(after.HeapAlloc-before.HeapAlloc) / count
		b.ReportMetric(each*10_000/(1<<20), "MiB/10000")
		b.ReportMetric(each*100_000/(1<<20), "MiB/100000")
		runtime.KeepAlive(kept)
	}
}
