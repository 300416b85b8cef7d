// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package podrunner

import (
	"context"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

var _ = Describe("volumes", func() {
	var (
		c        client.Client
		v        *volumes
		pod      *corev1.Pod
		requests int
		lifetime time.Duration
	)

	BeforeEach(func() {
		requests, lifetime = 0, time.Hour
		c = fakeclient.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "access"}, Data: map[string][]byte{"token": []byte("t1"), "other": nil}},
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "ca"}, Data: map[string]string{"ca.crt": "certificate"}},
		).WithInterceptorFuncs(interceptor.Funcs{SubResourceCreate: func(_ context.Context, _ client.Client, _ string, _, subResource client.Object, _ ...client.SubResourceCreateOption) error {
			requests++
			request := subResource.(*authenticationv1.TokenRequest)
			Expect(request.Spec.BoundObjectRef.UID).To(Equal(pod.UID))
			request.Status.Token = "own token"
			request.Status.ExpirationTimestamp = metav1.NewTime(time.Now().Add(lifetime))
			return nil
		}}).Build()
		v = &volumes{client: c, dir: GinkgoT().TempDir(), tokens: map[string]token{}}
		pod = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "b", UID: "1234"},
			Spec: corev1.PodSpec{
				ServiceAccountName: "mcm",
				Volumes: []corev1.Volume{
					{Name: "empty", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
					{Name: "projected", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{
						{Secret: &corev1.SecretProjection{
							LocalObjectReference: corev1.LocalObjectReference{Name: "access"},
							Items:                []corev1.KeyToPath{{Key: "token", Path: "shoot/token"}},
						}},
						{ConfigMap: &corev1.ConfigMapProjection{LocalObjectReference: corev1.LocalObjectReference{Name: "ca"}}},
						{DownwardAPI: &corev1.DownwardAPIProjection{Items: []corev1.DownwardAPIVolumeFile{
							{Path: "namespace", FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.namespace"}},
						}}},
						{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "token"}},
					}}}},
				},
			},
		}
	})

	content := func(name string) string {
		GinkgoHelper()
		content, err := os.ReadFile(filepath.Join(v.dir, name))
		Expect(err).NotTo(HaveOccurred())
		return string(content)
	}

	It("writes all files, and again what has changed", func(ctx SpecContext) {
		refresh, err := v.sync(ctx, pod)
		Expect(err).NotTo(HaveOccurred())
		Expect(refresh).To(BeTemporally("~", time.Now().Add(48*time.Minute), time.Minute))
		Expect(filepath.Join(v.dir, "empty")).To(BeADirectory())
		Expect(content("projected/shoot/token")).To(Equal("t1"))
		Expect(content("projected/ca.crt")).To(Equal("certificate"))
		Expect(content("projected/namespace")).To(Equal("a"))
		Expect(content("projected/token")).To(Equal("own token"))

		Expect(c.Patch(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "access"}},
			client.RawPatch("application/merge-patch+json", []byte(`{"data":{"token":"dDI="}}`)))).To(Succeed())
		_, err = v.sync(ctx, pod)
		Expect(err).NotTo(HaveOccurred())
		Expect(content("projected/shoot/token")).To(Equal("t2"))
		Expect(requests).To(Equal(1))
	})

	It("refreshes its own token in time", func(ctx SpecContext) {
		lifetime = 0
		for range 2 {
			_, err := v.sync(ctx, pod)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(requests).To(Equal(2))
	})

	It("says what is missing", func(ctx SpecContext) {
		pod.Spec.Volumes[1].Projected.Sources[0].Secret.Items[0].Key = "kubeconfig"
		_, err := v.sync(ctx, pod)
		Expect(err).To(MatchError(`volume projected: secret access has no key "kubeconfig"`))

		pod.Spec.Volumes[1].Projected.Sources[0].Secret.Name = "none"
		_, err = v.sync(ctx, pod)
		Expect(err).To(MatchError(ContainSubstring("could not read secret none")))

		pod.Spec.Volumes[1].Projected.Sources[0].Secret.Optional = new(true)
		_, err = v.sync(ctx, pod)
		Expect(err).NotTo(HaveOccurred())
	})

	It("finds the pods that mount an object", func() {
		Expect(mounts(pod, "access", secretNames)).To(BeTrue())
		Expect(mounts(pod, "access", configMapNames)).To(BeFalse())
		Expect(mounts(pod, "ca", configMapNames)).To(BeTrue())
	})
})
