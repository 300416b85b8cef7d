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
				Annotations: map[string]string{
					corev1.LastAppliedConfigAnnotation: "hunter2", "kapp.k14s.io/original": "hunter2", "objectset.rio.cattle.io/applied": "hunter2",
					"node.machine.sapcloud.io/last-applied-anno-labels-taints": ` {"annotations":{"a":"hunter2"}}`, "x.kubernetes.io/token": "hunter2",
					"x.gardener.cloud/large": strings.Repeat("hunter2", 200), "kubernetes.io/config.mirror": "x", "machinepriority.machine.sapcloud.io": "1",
				},
				ManagedFields: []metav1.ManagedFieldsEntry{{Manager: "hunter2"}},
			},
			Status: corev1.PodStatus{
				InitContainerStatuses:      []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "hunter2", Reason: "Error"}}}},
				ContainerStatuses:          []corev1.ContainerStatus{{LastTerminationState: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "hunter2"}}}},
				EphemeralContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Message: "hunter2"}}}},
			},
			Spec: corev1.PodSpec{
				Volumes: []corev1.Volume{
					{VolumeSource: corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "d", VolumeAttributes: map[string]string{"a": "hunter2"}}}},
					{VolumeSource: corev1.VolumeSource{FlexVolume: &corev1.FlexVolumeSource{Options: map[string]string{"a": "hunter2"}}}},
				},
				InitContainers:      []corev1.Container{container()},
				Containers:          []corev1.Container{container()},
				EphemeralContainers: []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon(container())}},
			},
		}
		counts := RedactPod(pod)
		Expect(pod.String()).NotTo(ContainSubstring("hunter2"))
		Expect(pod.Annotations).To(Equal(map[string]string{"kubernetes.io/config.mirror": "x", "machinepriority.machine.sapcloud.io": "1"}))
		Expect(pod.Spec.Volumes[0].CSI.Driver).To(Equal("d"))
		Expect(pod.Status.InitContainerStatuses[0].State.Terminated.Reason).To(Equal("Error"))
		Expect(pod.Spec.EphemeralContainers[0].Env).To(ConsistOf(HaveField("Name", "PASSWORD"), HaveField("ValueFrom.SecretKeyRef.Name", "s")))
		Expect(pod.Spec.Containers[0].EnvFrom).To(HaveLen(1))
		Expect(pod.Spec.Containers[0].ReadinessProbe.HTTPGet.Path).To(Equal("/healthz"))
		Expect(counts).To(HaveKeyWithValue("values of environment variables of containers", 3))
		Expect(counts).To(HaveLen(7))
	})

	DescribeTable("#Scrub", func(text, want string) {
		Expect(Scrub(text)).To(Equal(want))
	},
		Entry("nothing", "Kubelet stopped posting node status.", "Kubelet stopped posting node status."),
		Entry("a token of a service account", "got eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJrdWJlcm5ldGVzIn0.c2lnbmF0dXJl!", "got [redacted]!"),
		Entry("a bearer", "Authorization: Bearer 0123456789abcdef0123", "Authorization: [redacted]"),
		Entry("a bearer alone", "with Bearer 0123456789abcdef0123", "with Bearer [redacted]"),
		Entry("a short basic authentication", "Authorization: Basic dTpw", "Authorization: [redacted]"),
		Entry("a header in Go", `map[X-Vault-Token:[hunter2 x] Accept:[y]]`, `map[X-Vault-Token:[redacted] Accept:[y]]`),
		Entry("a header", "X-Vault-Token: hunter2", "X-Vault-Token: [redacted]"),
		Entry("any other scheme", "Authorization: token hunter2", "Authorization: [redacted]"),
		Entry("a scheme with an account", "Proxy-Authorization: SharedKey acct:hunter2= x", "Proxy-Authorization: [redacted]"),
		Entry("a scheme in quotes", `{"Authorization":"ApiKey hunter2","user":"x"}`, `{"Authorization":[redacted],"user":"x"}`),
		Entry("a scheme in Go", `map[Authorization:[NTLM hunter2] Accept:[y]]`, `map[Authorization:[redacted] Accept:[y]]`),
		Entry("how one is authorized", "authorization-mode: Webhook x", "authorization-mode: [redacted] x"),
		Entry("cookies", "Set-Cookie: a=hunter2; b=hunter2\nc", "Set-Cookie: [redacted]\nc"),
		Entry("a bootstrap token", "kubeadm join x abcdef.0123456789abcdef", "kubeadm join x [redacted]"),
		Entry("a variable", "AWS_SECRET_ACCESS_KEY=hunter2 DB_PASSWORD=hunter2 client_secret=hunter2 access_token=hunter2", "AWS_SECRET_ACCESS_KEY=[redacted] DB_PASSWORD=[redacted] client_secret=[redacted] access_token=[redacted]"),
		Entry("JSON", `{"password":"hunter \"2","user":"x"}`, `{"password":[redacted],"user":"x"}`),
		Entry("JSON in JSON", `{"msg":"{\"password\":\"hunter2\",\"user\":1}"}`, `{"msg":"{\"password\":[redacted],\"user\":1}"}`),
		Entry("YAML", "password: hunter2\nuser: x", "password: [redacted]\nuser: x"),
		Entry("YAML in lines", "a:\n  password: |\n    hunter2\n\n    hunter2\n  user: |\n    x", "a:\n  password: [redacted]\n[redacted]\n[redacted]\n[redacted]\n  user: |\n    x"),
		Entry("YAML in lines of a log", "10:01 password: >-\n10:02   hunter2\n10:03 user: x", "10:01 password: [redacted]\n[redacted]\n10:03 user: x"),
		Entry("YAML in lines, at the end", "password: |", "password: [redacted]"),
		Entry("a short name", "pass: hunter2 DB_PASS=hunter2 passed: 1 bypass: 2", "pass: [redacted] DB_PASS=[redacted] passed: 1 bypass: 2"),
		Entry("a name of two words", "API key: hunter2, Secret Key: hunter2", "API key: [redacted] Secret Key: [redacted]"),
		Entry("an arrow", `password => hunter2 "token"=>"hunter2"`, `password => [redacted] "token"=>[redacted]`),
		Entry("a quoted value", `pwd = 'hunter 2' x`, `pwd = [redacted] x`),
		Entry("a flag and its value", "run --token hunter2 --v 3", "run --token [redacted] --v 3"),
		Entry("a flag and its value in quotes", `run --token 'hunter2 hunter2' --password "hunter\"2 x" --v 3`, `run --token [redacted] --password [redacted] --v 3`),
		Entry("flags without values", `run --insecure-token --v 3 "--use-token" "--v"`, `run --insecure-token --v 3 "--use-token" "--v"`),
		Entry("flags in JSON", `["--registry-password", "hunter2"]`, `["--registry-password", [redacted]]`),
		Entry("a signature in a URL", "https://x/y?sv=1&sig=hunter2%3D&se=2", "https://x/y?sv=1&sig=[redacted]&se=2"),
		Entry("a key of a connection string", "AccountName=x;AccountKey=hunter2==;Suffix=y", "AccountName=x;AccountKey=[redacted];Suffix=y"),
		Entry("what only sounds like it", `signal: killed, author: x, secret "s" not found, key="ns/m-1"`, `signal: killed, author: x, secret "s" not found, key="ns/m-1"`),
		Entry("not each bearer", "the bearer of bad news", "the bearer of bad news"),
		Entry("a user in a URL", `pull "https://me:hunter2@registry.example.org/x"`, `pull "https://[redacted]@registry.example.org/x"`),
		Entry("a password as it must not be in a URL", "postgres://u:hunter@2/w@host/x http://u:123@host", "postgres://[redacted]@host/x http://[redacted]@host"),
		Entry("a user with a domain in a URL", "smtp://u@example.org:hun/ter2@host/x", "smtp://[redacted]@host/x"),
		Entry("not each URL", "https://10.0.0.1:6443/api https://registry:5000/x@sha256:1", "https://10.0.0.1:6443/api https://registry:5000/x@sha256:1"),
		Entry("an assignment", `--password=hunter2 --token=abc,x`, `--password=[redacted] --token=[redacted]`),
		Entry("a key", "a\n-----BEGIN RSA PRIVATE KEY-----\nMIIE\nabc=\n-----END RSA PRIVATE KEY-----\nb", "a\n[redacted]\nb"),
		Entry("a key in JSON", `{"a":"-----BEGIN PRIVATE KEY-----\nMIIE\n-----END PRIVATE KEY-----\n","b":1}`, `{"a":"[redacted]\n","b":1}`),
		Entry("a key in a log", "10:01 a\n10:02 -----BEGIN RSA PRIVATE KEY-----\n10:03 MIIE\n10:04 -----END RSA PRIVATE KEY-----\n10:05 b", "10:01 a\n10:02 [redacted]\n10:05 b"),
		Entry("a key without its end", "a\n-----BEGIN PRIVATE KEY-----\nMIIE\nabc", "a\n[redacted]"),
		Entry("a key without its beginning", "MIIE\nabc\n-----END PRIVATE KEY-----\nb", "[redacted]\nb"),
		Entry("two keys", "-----BEGIN EC PRIVATE KEY-----x-----END EC PRIVATE KEY-----a-----BEGIN PRIVATE KEY-----y-----END PRIVATE KEY-----b", "[redacted]a[redacted]b"),
		Entry("a key without its end after a mark that was only told of", `no "-----BEGIN PRIVATE KEY-----" in x`+"\n-----BEGIN PRIVATE KEY-----\nMIIE\nabc", `no "[redacted][redacted]`),
		Entry("a key whose mark is at the end of what goes without one",
			"-----BEGIN PRIVATE KEY-----"+strings.Repeat("x", 16<<10-40)+"-----BEGIN PRIVATE KEY-----MIIE-----END PRIVATE KEY-----b", "[redacted][redacted]b"),
		Entry("not all of a log without the end of a key", "-----BEGIN PRIVATE KEY-----"+strings.Repeat("x", 16<<10), "[redacted]"+strings.Repeat("x", len("-----BEGIN PRIVATE KEY-----"))),
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
