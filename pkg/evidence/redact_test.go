// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"bytes"
	"errors"
	"strings"
	"testing/iotest"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
)

var _ = Describe("Redaction", func() {
	It("should leave names of variables and where they come from, and no values", func() {
		exec := &corev1.ExecAction{Command: []string{"check", "hunter2"}}
		get := &corev1.HTTPGetAction{Path: "/healthz", HTTPHeaders: []corev1.HTTPHeader{{Name: "Authorization", Value: "hunter2"}}}
		container := func() corev1.Container {
			return corev1.Container{
				Name: "c", Command: []string{"run"}, Args: []string{"--password=hunter2"},
				Env: []corev1.EnvVar{
					{Name: "PASSWORD", Value: "hunter2"},
					{Name: "TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "s"}, Key: "token"}}},
				},
				EnvFrom:        []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "all"}}}},
				LivenessProbe:  &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: exec.DeepCopy()}},
				ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: get.DeepCopy()}},
				StartupProbe:   &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: exec.DeepCopy()}},
				Lifecycle:      &corev1.Lifecycle{PostStart: &corev1.LifecycleHandler{Exec: exec.DeepCopy()}, PreStop: &corev1.LifecycleHandler{HTTPGet: get.DeepCopy()}},
			}
		}
		pod := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Annotations:   map[string]string{corev1.LastAppliedConfigAnnotation: "hunter2", "stays": "x"},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "hunter2"}},
			},
			Spec: corev1.PodSpec{
				InitContainers:      []corev1.Container{container()},
				Containers:          []corev1.Container{container()},
				EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(container())}},
			},
		}
		counts := RedactPod(pod)
		Expect(pod.String()).NotTo(ContainSubstring("hunter2"))
		Expect(pod.Annotations).To(Equal(map[string]string{"stays": "x"}))
		Expect(pod.Spec.EphemeralContainers[0].Env).To(ConsistOf(HaveField("Name", "PASSWORD"), HaveField("ValueFrom.SecretKeyRef.Name", "s")))
		Expect(pod.Spec.Containers[0].EnvFrom).To(HaveLen(1))
		Expect(pod.Spec.Containers[0].ReadinessProbe.HTTPGet.Path).To(Equal("/healthz"))
		Expect(counts).To(HaveKeyWithValue("values of environment variables of containers", 3))
		Expect(counts).To(HaveLen(5))
	})

	DescribeTable("#Scrub", func(text, want string) {
		Expect(Scrub(text)).To(Equal(want))
	},
		Entry("nothing", "Kubelet stopped posting node status.", "Kubelet stopped posting node status."),
		Entry("a token of a service account", "got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl!", "got [redacted]!"),
		Entry("a bearer", "Authorization: Bearer 0123456789abcdef0123", "Authorization: Bearer [redacted]"),
		Entry("not each bearer", "the bearer of bad news", "the bearer of bad news"),
		Entry("a user in a URL", `pull "https://me:hunter2@registry.example.org/x"`, `pull "https://[redacted]@registry.example.org/x"`),
		Entry("not each URL", "https://10.0.0.1:6443/api", "https://10.0.0.1:6443/api"),
		Entry("an assignment", `--password=hunter2 --token=abc,x`, `--password=[redacted] --token=[redacted],x`),
		Entry("a key", "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----\nb", "a\n[redacted]\nb"),
		Entry("a key in JSON", `{"a":"-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n","b":1}`, `{"a":"[redacted]\n","b":1}`),
		Entry("once", "--token=[redacted]", "--token=[redacted]"),
	)

	It("should leave no headers in the kubelet's configuration", func() {
		Expect(RedactConfigz([]byte(`{"kubeletconfig":{"staticPodURLHeader":{"Authorization":["hunter2"]},"maxPods":110}}`))).To(MatchJSON(
			`{"kubeletconfig":{"staticPodURLHeader":{"Authorization":"[redacted]"},"maxPods":110}}`))
		_, err := RedactConfigz([]byte("404 page not found"))
		Expect(err).To(HaveOccurred())
	})
})

var _ = Describe("Logs", func() {
	It("should keep the last whole lines", func() {
		data, cut, err := ReadLog(strings.NewReader("one\ntwo\nthree\nfour"), 12, nil)
		Expect(err).NotTo(HaveOccurred())
		Expect(string(data)).To(Equal("three\nfour\n"))
		Expect(cut).To(BeEquivalentTo(8))
	})

	It("should keep what was read before an error, and the beginning of a line that is too long", func() {
		failure := errors.New("reset")
		data, _, err := ReadLog(iotest.DataErrReader(readers("one\n"+strings.Repeat("x", 1<<20)+"\ntw", failure)), 1<<20, nil)
		Expect(err).To(MatchError(failure))
		Expect(data).To(HavePrefix("one\nxxx"))
		Expect(data).To(HaveSuffix("\ntw\n"))
		Expect(len(data)).To(BeNumerically("<", 20<<10))
	})

	DescribeTable("#Naming", func(line string, want bool) {
		Expect(Naming("m-1", "", "node.m-1.example")([]byte(line))).To(Equal(want))
	},
		Entry("the machine", `"machine"="m-1" gone`, true),
		Entry("at the end", "gone: m-1", true),
		Entry("the node", "node.m-1.example: gone", true),
		Entry("a longer name", "m-10", false),
		Entry("a name with a suffix", "m-1-x", false),
		Entry("a name with a prefix", "x-m-1", false),
		Entry("another one", "m-2", false),
	)

	It("should name nothing without names", func() {
		Expect(Naming("")([]byte("x"))).To(BeFalse())
	})
})

func readers(text string, err error) *failing {
	return &failing{Reader: bytes.NewReader([]byte(text)), err: err}
}

// failing reads a text, then fails.
type failing struct {
	*bytes.Reader
	err error
}

func (f *failing) Read(p []byte) (int, error) {
	if n, _ := f.Reader.Read(p); n > 0 {
		return n, nil
	}
	return 0, f.err
}
