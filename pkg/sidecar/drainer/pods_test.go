// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drainer_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/drainer"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = It("D3: should keep of a pod what decides on it, and no more", func() {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "shop", Name: "web", UID: "1", ResourceVersion: "7",
			Labels:            map[string]string{"app": "web"},
			Annotations:       map[string]string{"kubernetes.io/config.mirror": "hash", "large": strings.Repeat("x", 1<<18)},
			CreationTimestamp: metav1.Time{Time: Start},
			DeletionTimestamp: &metav1.Time{Time: Start}, DeletionGracePeriodSeconds: new(int64(0)),
			Finalizers:      []string{"example.com/finalizer"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "ds", Controller: new(true)}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubelet"}},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{{Name: "web", Env: []corev1.EnvVar{{Name: "large", Value: strings.Repeat("x", 1<<18)}}, Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{"cpu": resource.MustParse("1"), "nvidia.com/gpu": resource.MustParse("1")},
			}}},
			Volumes: []corev1.Volume{{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}, {VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}},
		},
		Status: corev1.PodStatus{Phase: corev1.PodFailed, Message: strings.Repeat("x", 1<<18)},
	}
	want := drain.NewPod(pod)
	Expect(want).To(And(HaveField("EmptyDir", true), HaveField("Created", Start), HaveField("Forced", true), HaveField("Owner", "shop/DaemonSet ds"), HaveField("Managed", true), HaveField("Resources", ConsistOf(corev1.ResourceCPU, corev1.ResourceName("nvidia.com/gpu")))))
	stripped, err := StripPod(pod)
	Expect(err).NotTo(HaveOccurred())
	Expect(drain.NewPod(stripped.(*corev1.Pod))).To(Equal(want))
	Expect(stripped.(*corev1.Pod).Size()).To(BeNumerically("<", 512))
	Expect(StripPod("other")).To(Equal("other"))
})

var _ = It("P14: should keep little of a pod, however many owners and finalizers it has, and however long their names are", func() {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Annotations: map[string]string{"kubernetes.io/config.mirror": strings.Repeat("x", 1<<17)}}}
	for i := range 2000 {
		pod.Finalizers = append(pod.Finalizers, strings.Repeat("x", 1<<10))
		pod.OwnerReferences = append(pod.OwnerReferences, metav1.OwnerReference{APIVersion: "apps/v1", Kind: "DaemonSet", Name: strings.Repeat("x", 1<<10), Controller: new(i == 1999)})
	}
	want := drain.NewPod(pod)
	stripped, err := StripPod(pod)
	Expect(err).NotTo(HaveOccurred())
	Expect(stripped.(*corev1.Pod).Size()).To(BeNumerically("<", 16<<10))
	got := drain.NewPod(stripped.(*corev1.Pod))
	Expect(got.Finalizers).NotTo(BeEmpty())
	Expect(got.DaemonSet).NotTo(BeEmpty())
	got.Finalizers, got.DaemonSet = want.Finalizers, want.DaemonSet
	Expect(got).To(Equal(want))
})

var _ = DescribeTable("M17: should list no more pods of a node than fit", func(ctx SpecContext, count int, edit func(*corev1.Pod), want string) {
	s := newShoot()
	for i := range count {
		s.pods = append(s.pods, Pod(fmt.Sprintf("p-%05d", i), edit))
	}
	pods, err := ListPods(ctx, s, "n")
	if want == "" {
		Expect(err).NotTo(HaveOccurred())
		Expect(pods).To(HaveLen(count))
		return
	}
	Expect(err).To(MatchError(want))
},
	Entry("as many as there may be", 20_000, func(*corev1.Pod) {}, ""),
	Entry("more", 20_001, func(*corev1.Pod) {}, "failed to list the pods of node n: there are more than 20000 objects"),
	Entry("large labels", 60, func(p *corev1.Pod) { p.Labels = map[string]string{"large": strings.Repeat("x", 1<<20)} },
		"failed to list the pods of node n: they have more than 33554432 bytes"),
	Entry("many finalizers", 5000, func(p *corev1.Pod) { p.Finalizers = slices.Repeat([]string{strings.Repeat("x", 512)}, 16) },
		"failed to list the pods of node n: they have more than 33554432 bytes"),
	Entry("large labels of those that have ended", 60, func(p *corev1.Pod) {
		p.Labels, p.Status.Phase = map[string]string{"large": strings.Repeat("x", 1<<20)}, corev1.PodSucceeded
	}, ""),
)

// A page may take callTimeout, and all of them more than that.
func TestListPodsOfSlowShoot(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		s := newShoot()
		for i := range 500 {
			s.pods = append(s.pods, Pod(fmt.Sprintf("p-%03d", i)))
		}
		s.delay = 2 * time.Second
		pods, err := ListPods(t.Context(), s, "n")
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(pods).To(HaveLen(500))

		s.delay = 4 * time.Second
		begin := time.Now()
		_, err = ListPods(t.Context(), s, "n")
		g.Expect(err).To(HaveOccurred())
		g.Expect(time.Since(begin)).To(Equal(30 * time.Second))
	})
}
