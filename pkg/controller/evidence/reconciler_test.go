// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/evidence"
)

const (
	prefix = "machine-preservation.extensions.gardener.cloud/"
	mib    = 1 << 20
)

var _ = Describe("Reconciler", func() {
	var (
		ctx      = context.Background()
		limits   []int64
		recorder *events.FakeRecorder
	)
	stored := func(namespace string, number, bytes int, expires time.Time) *corev1.ConfigMap {
		c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: fmt.Sprintf("machine-preservation-evidence-%02d", number), UID: types.UID(fmt.Sprint(namespace, number)),
			Labels:      map[string]string{prefix + "evidence": "true"},
			Annotations: map[string]string{prefix + "evidence-bytes": strconv.Itoa(bytes - 4096), prefix + "evidence-failed-since": fmt.Sprintf("2026-03-01T12:00:%02dZ", number)},
		}}
		if !expires.IsZero() {
			c.Annotations[prefix+"evidence-expires"] = expires.UTC().Format(time.RFC3339)
		}
		return c
	}
	isCap := map[string]string{prefix + "evidence": "cap"}
	capOf := func(namespace, value string, labels map[string]string) *corev1.ConfigMap {
		return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: "machine-preservation-evidence-cap", Labels: labels, Annotations: map[string]string{prefix + "evidence-cap": value},
		}}
	}
	newReconciler := func(objects ...client.Object) (*Reconciler, client.Client) {
		scheme := runtime.NewScheme()
		Expect(corev1.AddToScheme(scheme)).To(Succeed())
		c := fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).Build()
		limits, recorder = nil, events.NewFakeRecorder(100)
		reader := interceptor.NewClient(c, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			limits = append(limits, (&client.ListOptions{}).ApplyOptions(opts).Limit)
			Expect(list).To(BeAssignableToTypeOf(&metav1.PartialObjectMetadataList{}))
			return c.List(ctx, list, opts...)
		}})
		return &Reconciler{Client: c, APIReader: reader, Budget: mib, Recorder: recorder}, c
	}
	names := func(c client.Client) (names []string) {
		list := &corev1.ConfigMapList{}
		Expect(c.List(ctx, list)).To(Succeed())
		for _, item := range list.Items {
			names = append(names, item.Namespace+item.Name[len("machine-preservation-evidence"):])
		}
		return names
	}
	reconcileSeed := func(r *Reconciler) {
		GinkgoHelper()
		Expect(r.Reconcile(ctx, reconcile.Request{})).To(Equal(reconcile.Result{RequeueAfter: time.Minute}))
	}

	It("should cap who has most, delete what is above, also where no sidecar runs, and leave the others alone", func() {
		var objects []client.Object
		for i := range 8 {
			objects = append(objects, stored("large", i+1, mib/8, time.Time{}))
		}
		objects[6] = stored("large", 7, mib/8, time.Now())
		objects = append(objects, stored("small", 1, mib/16, time.Time{}))
		other := stored("large", 51, mib/8, time.Time{})
		r, c := newReconciler(append(objects, other)...)
		reconcileSeed(r)
		Expect(limits).To(HaveExactElements(BeNumerically(">", 0)))
		// 5/8 MiB are left to all, 9/16 of them to the large one: four of its eight, the last ones of machines that are there.
		Expect(names(c)).To(ConsistOf("large-cap", "large-04", "large-05", "large-06", "large-08", "large-51", "small-01"))
		limit := &corev1.ConfigMap{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: "large", Name: "machine-preservation-evidence-cap"}, limit)).To(Succeed())
		Expect(limit.Labels).To(Equal(map[string]string{prefix + "evidence": "cap"}))
		Expect(limit.Annotations).To(Equal(map[string]string{prefix + "evidence-cap": strconv.Itoa(mib / 16 * 9)}))

		reconcileSeed(r)
		Expect(names(c)).To(HaveLen(7), "nothing flaps")

		Expect(c.Delete(ctx, stored("large", 4, 0, time.Time{}))).To(Succeed())
		Expect(r.Reconcile(ctx, reconcile.Request{})).To(Equal(reconcile.Result{RequeueAfter: time.Minute}))
		Expect(names(c)).To(ConsistOf("large-05", "large-06", "large-08", "large-51", "small-01"), "there is no cap while less than half is used")
	})

	It("should delete the incomplete bundle that a complete one has followed first, as the sidecar does", func() {
		complete, before := stored("a", 1, mib/2, time.Time{}), stored("a", 2, mib/2, time.Time{})
		for _, s := range []*corev1.ConfigMap{complete, before} {
			s.Annotations[prefix+"evidence-machine"], s.Annotations[prefix+"evidence-failed-since"] = "m", "2026-03-01T12:00:00Z"
		}
		before.Annotations[prefix+"evidence-incomplete"] = "2026-03-01T12:00:01Z"
		r, c := newReconciler(complete, before)
		reconcileSeed(r)
		Expect(names(c)).To(ConsistOf("a-cap", "a-01"))
		Expect(recorder.Events).To(BeEmpty(), "it was followed, and not evicted")
	})

	It("should tell on what it deletes early why", func() {
		r, c := newReconciler(stored("a", 1, mib/2, time.Time{}), stored("a", 2, mib/2, time.Time{}))
		reconcileSeed(r)
		Expect(names(c)).To(ConsistOf("a-cap", "a-02"))
		Expect(recorder.Events).To(HaveLen(1))
		Expect(<-recorder.Events).To(Equal("Warning EvidenceEvicted Evidence of machine machine-preservation-evidence-01 was deleted early, " +
			"because this control plane may keep 48 bundles and 640 KiB. It may not keep more, because the seed's budget for evidence is used up."))
	})

	It("should tell nothing of what somebody else has deleted or replaced meanwhile", func() {
		r, c := newReconciler(stored("a", 1, mib/2, time.Time{}), stored("a", 2, mib/2, time.Time{}))
		r.Client = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{Delete: func(_ context.Context, _ client.WithWatch, obj client.Object, _ ...client.DeleteOption) error {
			return apierrors.NewConflict(corev1.Resource("configmaps"), obj.GetName(), errors.New("another UID"))
		}})
		reconcileSeed(r)
		Expect(recorder.Events).To(BeEmpty())
	})

	It("should write a cap that has lost its label, and delete what is above it", func() {
		r, c := newReconciler(stored("a", 1, mib/2, time.Time{}), stored("a", 2, mib/2, time.Time{}), capOf("a", "1", nil))
		reconcileSeed(r)
		Expect(names(c)).To(ConsistOf("a-cap", "a-02"))
		limit := &corev1.ConfigMap{}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(capOf("a", "", nil)), limit)).To(Succeed())
		Expect(limit.Labels).To(Equal(map[string]string{prefix + "evidence": "cap"}))
		Expect(limit.Annotations).To(Equal(map[string]string{prefix + "evidence-cap": strconv.Itoa(mib / 8 * 5)}))
	})

	DescribeTable("should delete nothing for a cap that nobody can read, and write it anew", func(value string) {
		r, c := newReconciler(stored("a", 1, mib/2, time.Time{}), stored("b", 1, mib/8, time.Time{}), capOf("a", value, isCap))
		reconcileSeed(r)
		Expect(names(c)).To(ConsistOf("a-cap", "a-01", "b-01"))
		limit := &corev1.ConfigMap{}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(capOf("a", "", nil)), limit)).To(Succeed())
		Expect(limit.Annotations).To(Equal(map[string]string{prefix + "evidence-cap": strconv.Itoa(mib / 2)}), "it keeps what it has")
	},
		Entry("no number", "x"), Entry("nothing", ""), Entry("less than one bundle may have", "1000"), Entry("negative", "-1"),
	)

	It("should count what is on all pages", func() {
		r, c := newReconciler()
		r.APIReader = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			page, number := list.(*metav1.PartialObjectMetadataList), 1
			if next := (&client.ListOptions{}).ApplyOptions(opts).Continue; next == "" {
				page.Continue = "next"
			} else {
				number = 2
			}
			page.Items = []metav1.PartialObjectMetadata{{ObjectMeta: stored("a", number, mib/2, time.Time{}).ObjectMeta}}
			return nil
		}})
		reconcileSeed(r)
		Expect(names(c)).To(ConsistOf("a-cap"))
	})

	It("should lower a cap", func() {
		r, c := newReconciler(stored("a", 1, mib/2, time.Time{}), stored("a", 2, mib/2, time.Time{}), capOf("a", strconv.Itoa(mib), isCap))
		reconcileSeed(r)
		Expect(names(c)).To(ConsistOf("a-cap", "a-02"))
	})
})
