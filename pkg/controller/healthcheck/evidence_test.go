// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck_test

import (
	"context"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/healthcheck"
)

var _ = Describe("Evidence", func() {
	const key = "machine-preservation.extensions.gardener.cloud/evidence"

	It("should tell whose evidence is capped, and of no other", func() {
		object := func(namespace, name, label string) *corev1.ConfigMap {
			return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{key: label}, Annotations: map[string]string{key + "-cap": "1048576"}}}
		}
		scheme := runtime.NewScheme()
		Expect(corev1.AddToScheme(scheme)).To(Succeed())
		check := &Evidence{APIReader: fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(
			object("a", "machine-preservation-evidence-cap", "cap"), object("b", "machine-preservation-evidence-01", "true"), object("b", "other", "cap"),
		).Build()}
		result, err := check.Check(context.Background(), "a")
		Expect(err).NotTo(HaveOccurred())
		Expect(result.Status).To(Equal(gardencorev1beta1.ConditionFalse))
		Expect(result.Detail).To(Equal("The seed's budget for evidence is used up. This control plane stores at most 1024 KiB, because it stores more than others."))
		result, err = check.Check(context.Background(), "b")
		Expect(err).NotTo(HaveOccurred())
		Expect(result.Status).To(Equal(gardencorev1beta1.ConditionTrue))
	})
})
