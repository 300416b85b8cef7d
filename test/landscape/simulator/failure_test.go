// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/kwok"
)

var _ = Describe("Failure", func() {
	DescribeTable("parseFailure", func(annotations map[string]string, expected Failure) {
		Expect(parseFailure(annotations)).To(Equal(expected))
	},
		Entry("no annotation", nil, Healthy),
		Entry("empty", map[string]string{FailureAnnotation: ""}, Healthy),
		Entry("kubelet-dead", map[string]string{FailureAnnotation: "kubelet-dead"}, KubeletDead),
		Entry("kernel-hang", map[string]string{FailureAnnotation: "kernel-hang"}, KernelHang),
		Entry("node-not-ready", map[string]string{FailureAnnotation: "node-not-ready"}, NodeNotReady),
		Entry("never-joins", map[string]string{FailureAnnotation: "never-joins"}, NeverJoins),
	)

	It("names the valid values", func() {
		_, err := parseFailure(map[string]string{FailureAnnotation: "dead"})
		Expect(err).To(MatchError("annotation " + FailureAnnotation + ` has value "dead", valid are kubelet-dead, kernel-hang, node-not-ready, never-joins`))
	})

	It("takes effect on a node, one after the other", func() {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"a": "b"}, Annotations: map[string]string{"c": "d"}}}

		Healthy.affect(node)
		Expect(node.Labels).To(Equal(map[string]string{"a": "b", kwok.LabelKubelet: kwok.KubeletAlive}))
		Expect(node.Annotations).To(Equal(map[string]string{"c": "d"}))

		NodeNotReady.affect(node)
		Expect(node.Labels).To(HaveKeyWithValue(kwok.LabelKubelet, kwok.KubeletAlive))
		Expect(node.Annotations).To(Equal(map[string]string{"c": "d", kwok.AnnotationReady: "false"}))

		KubeletDead.affect(node)
		Expect(node.Labels).To(Equal(map[string]string{"a": "b"}))
		Expect(node.Annotations).To(Equal(map[string]string{"c": "d"}))

		Healthy.affect(node)
		Expect(node.Labels).To(HaveKeyWithValue(kwok.LabelKubelet, kwok.KubeletAlive))

		KernelHang.affect(node)
		Expect(node.Labels).NotTo(HaveKey(kwok.LabelKubelet))
	})
})
