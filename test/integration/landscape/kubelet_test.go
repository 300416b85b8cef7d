// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package landscape_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	. "sigs.k8s.io/controller-runtime/pkg/envtest/komega"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/kwok"
)

var _ = Describe("Kubelet of a simulated machine", func() {
	const (
		patient = time.Minute // what is built beside it takes both processors
		aWhile  = 5 * time.Second
		// More than the time after which a node without heartbeat is unknown.
		heartbeatLost = 12 * time.Second
	)

	var node *corev1.Node

	BeforeEach(func(ctx SpecContext) {
		SetClient(c)
		node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{
			GenerateName: "node-",
			Labels:       map[string]string{kwok.LabelKubelet: kwok.KubeletAlive},
		}}
		Expect(c.Create(ctx, node)).To(Succeed())
		DeferCleanup(func(ctx SpecContext) { Expect(client.IgnoreNotFound(c.Delete(ctx, node))).To(Succeed()) })
		Eventually(ready(node), patient).Should(Equal(corev1.ConditionTrue))
	})

	patch := func(ctx SpecContext, change string) {
		GinkgoHelper()
		Expect(c.Patch(ctx, node, client.RawPatch(types.MergePatchType, []byte(change)))).To(Succeed())
	}
	run := func(ctx SpecContext) *corev1.Pod {
		GinkgoHelper()
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "pod-", Namespace: metav1.NamespaceDefault},
			Spec: corev1.PodSpec{
				NodeName: node.Name,
				// The deletion timestamp is in whole seconds, so that the period may be up to one shorter.
				TerminationGracePeriodSeconds: new(int64(3)),
				Containers:                    []corev1.Container{{Name: "container", Image: "image"}},
			},
		}
		Eventually(func() error { return c.Create(ctx, pod) }, patient).Should(Succeed(), "as soon as there is a service account")
		Eventually(Object(pod), patient).Should(HaveField("Status.Phase", corev1.PodRunning))
		return pod
	}

	It("should keep the node ready while it lives", func() {
		Consistently(ready(node), heartbeatLost).Should(Equal(corev1.ConditionTrue))
	})

	It("should report the node as not ready for as long as it is told to", func(ctx SpecContext) {
		patch(ctx, `{"metadata": {"annotations": {"`+kwok.AnnotationReady+`": "false"}}}`)
		Eventually(ready(node), patient).Should(Equal(corev1.ConditionFalse))
		Consistently(ready(node), heartbeatLost).Should(Equal(corev1.ConditionFalse))
		patch(ctx, `{"metadata": {"annotations": {"`+kwok.AnnotationReady+`": null}}}`)
		Eventually(ready(node), patient).Should(Equal(corev1.ConditionTrue))
	})

	It("should terminate pods after their grace period", func(ctx SpecContext) {
		pod := run(ctx)
		asked := time.Now()
		Expect(c.Delete(ctx, pod)).To(Succeed())
		Eventually(Get(pod), patient).Should(MatchError(ContainSubstring("not found")))
		Expect(time.Since(asked)).To(BeNumerically(">=", 2*time.Second))
	})

	It("should leave the node unknown and tainted when it dies, and pods as they are, until it lives again", func(ctx SpecContext) {
		pod := run(ctx)
		patch(ctx, `{"metadata": {"labels": {"`+kwok.LabelKubelet+`": null}}}`)
		Eventually(ready(node), patient).Should(Equal(corev1.ConditionUnknown))
		Eventually(Object(node), patient).Should(HaveField("Spec.Taints", ContainElement(HaveField("Key", corev1.TaintNodeUnreachable))))
		Expect(c.Delete(ctx, pod)).To(Succeed())
		Consistently(Get(pod), aWhile).Should(Succeed())

		patch(ctx, `{"metadata": {"labels": {"`+kwok.LabelKubelet+`": "`+kwok.KubeletAlive+`"}}}`)
		Eventually(ready(node), patient).Should(Equal(corev1.ConditionTrue))
		Eventually(Object(node), patient).Should(HaveField("Spec.Taints", BeEmpty()))
		Eventually(Get(pod), patient).Should(MatchError(ContainSubstring("not found")))
	})
})

// ready returns a function that returns the status of the node's condition Ready.
func ready(node *corev1.Node) func() (corev1.ConditionStatus, error) {
	return func() (corev1.ConditionStatus, error) {
		if err := Get(node)(); err != nil {
			return "", err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady {
				return condition.Status, nil
			}
		}
		return "", nil
	}
}
