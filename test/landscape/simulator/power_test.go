// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

var _ = Describe("Power", func() {
	newPod := func() *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "infra-shoot--a", Name: "machine-m", UID: "uid", Labels: map[string]string{labelMachine: "m"},
		}}
	}

	It("is there, and the kernel that of the first boot, where no host was switched", func() {
		Expect(PowerOf(newPod())).To(Equal(Power{On: true, BootID: "uid"}))
	})

	It("is read as it was written", func() {
		pod, power := newPod(), Power{Since: time.Date(2026, time.March, 1, 12, 0, 0, 42, time.UTC), BootID: "b"}
		Expect(power.Apply(pod)).To(Succeed())
		Expect(PowerOf(pod)).To(Equal(power))
		pod.Annotations[PowerAnnotation] = "off"
		_, err := PowerOf(pod)
		Expect(err).To(MatchError(ContainSubstring(PowerAnnotation)))
	})

	DescribeTable("ends a hang, and nothing else, by going away", func(on bool, before, after Failure) {
		pod := newPod()
		pod.Annotations = map[string]string{FailureAnnotation: string(before)}
		Expect(Power{On: on}.Apply(pod)).To(Succeed())
		Expect(parseFailure(pod.Annotations)).To(Equal(after))
	},
		Entry("off", false, KernelHang, Healthy),
		Entry("on", true, KernelHang, KernelHang),
		Entry("another failure", false, KubeletDead, KubeletDead),
	)

	It("needs time until the machine is up", func() {
		now := time.Now()
		Expect(Power{Since: now}.boots(now)).To(Equal(BootTime))
		Expect(Power{Since: now}.boots(now.Add(BootTime))).To(BeZero())
		Expect(Power{}.boots(now)).To(BeZero())
	})

	It("is of a machine, which its pod names", func() {
		key, ok := MachineKey(newPod())
		Expect(ok).To(BeTrue())
		Expect(key).To(Equal(client.ObjectKey{Namespace: "shoot--a", Name: "m"}))
		Expect(PodKey(key)).To(Equal(client.ObjectKeyFromObject(newPod())))
		_, ok = MachineKey(&corev1.Pod{})
		Expect(ok).To(BeFalse())
	})
})
