// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package podrunner

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/podrunner/podexec"
)

var _ = Describe("command", func() {
	var (
		env       environment
		pod       *corev1.Pod
		container *corev1.Container
	)

	BeforeEach(func() {
		env = environment{
			binaries:      map[string]string{"machine-controller-manager": "/bin/mcm", "sidecar": "/bin/sidecar"},
			apiServerHost: "127.0.0.1",
			apiServerPort: "20443",
			ports:         map[int32]int32{10258: 20001, 8080: 20002},
			volumesDir:    "/dir/volumes",
		}
		pod = &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--local--a", Name: "mcm-1-0", UID: "1234"},
			Spec: corev1.PodSpec{
				ServiceAccountName: "mcm",
				Volumes:            []corev1.Volume{{Name: "kubeconfig"}, {Name: "token"}},
				Containers: []corev1.Container{{
					Name:    "mcm",
					Image:   "registry:5000/a/machine-controller-manager:v0.62.1@sha256:1234",
					Command: []string{"./machine-controller-manager", "--namespace=shoot--local--a"},
					Args:    []string{"--v=3"},
				}},
			},
		}
		container = &pod.Spec.Containers[0]
	})

	It("takes the executable from the name of the image, and all arguments from the container", func() {
		command, err := env.command(pod, container)
		Expect(err).NotTo(HaveOccurred())
		Expect(command.Path).To(Equal("/bin/mcm"))
		Expect(command.Args).To(Equal([]string{"--namespace=shoot--local--a", "--v=3"}))
		Expect(command.Hostname).To(Equal("mcm-1-0"))
	})

	It("takes arguments without command literally", func() {
		container.Command, container.Args = nil, []string{"--a", "b"}
		command, err := env.command(pod, container)
		Expect(err).NotTo(HaveOccurred())
		Expect(command.Args).To(Equal([]string{"--a", "b"}))
	})

	It("names the known images if it does not know one", func() {
		container.Image = "registry/other:v1"
		_, err := env.command(pod, container)
		Expect(err).To(MatchError(errUnknownImage))
		Expect(err).To(MatchError(ContainSubstring(`unknown image "registry/other:v1", known are machine-controller-manager, sidecar`)))
	})

	It("gives the environment of a pod and nothing else", func() {
		GinkgoT().Setenv("LANDSCAPE_TEST", "of the host")
		container.Env = []corev1.EnvVar{
			{Name: "NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}},
			{Name: "GREETING", Value: "I am $(NAME), not $(OTHER)"},
		}
		container.Args = []string{"--name=$(NAME)"}

		command, err := env.command(pod, container)
		Expect(err).NotTo(HaveOccurred())
		Expect(command.Env).To(ConsistOf(
			"HOME=/",
			"HOSTNAME=mcm-1-0",
			HavePrefix("PATH="),
			"KUBERNETES_SERVICE_HOST=127.0.0.1",
			"KUBERNETES_SERVICE_PORT=20443",
			"NAME=mcm-1-0",
			"GREETING=I am mcm-1-0, not $(OTHER)",
		))
		Expect(command.Args).To(ContainElement("--name=mcm-1-0"))
	})

	It("mounts the volumes where the container wants them", func() {
		container.VolumeMounts = []corev1.VolumeMount{{Name: "kubeconfig", MountPath: "/var/run/secrets/a"}, {Name: "token", MountPath: "/b"}}
		command, err := env.command(pod, container)
		Expect(err).NotTo(HaveOccurred())
		Expect(command.Mounts).To(Equal([]podexec.Mount{
			{Source: "/dir/volumes/kubeconfig", Target: "/var/run/secrets/a"},
			{Source: "/dir/volumes/token", Target: "/b"},
		}))
	})

	DescribeTable("refuses what it cannot do", func(change func(), message string) {
		change()
		_, err := env.command(pod, container)
		Expect(err).To(MatchError(ContainSubstring(message)))
		Expect(err).NotTo(MatchError(errUnknownImage))
	},
		Entry("a volume that does not exist", func() { container.VolumeMounts = []corev1.VolumeMount{{Name: "other"}} }, "volume other"),
		Entry("a part of a volume", func() { container.VolumeMounts = []corev1.VolumeMount{{Name: "token", SubPath: "x"}} }, "a part of volume token"),
		Entry("envFrom", func() { container.EnvFrom = []corev1.EnvFromSource{{}} }, "envFrom"),
		Entry("an unknown field", func() {
			container.Env = []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "status.phase"}}}}
		}, `field "status.phase"`),
		Entry("a secret key", func() {
			container.Env = []corev1.EnvVar{{Name: "X", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{}}}}
		}, "environment variable X"),
	)

	DescribeTable("translates declared ports", func(argument string, expected ...string) {
		container.Command, container.Args = nil, []string{argument}
		command, err := env.command(pod, container)
		Expect(err).NotTo(HaveOccurred())
		Expect(command.Args).To(Equal(expected))
	},
		Entry("flag --port", "--port=10258", "--port=20001", "--address=127.0.0.1"),
		Entry("another flag", "--metrics-port=8080", "--metrics-port=20002"),
		Entry("address of all interfaces", "--metrics-bind-address=:8080", "--metrics-bind-address=127.0.0.1:20002"),
		Entry("IPv4 address of all interfaces", "--bind=0.0.0.0:8080", "--bind=127.0.0.1:20002"),
		Entry("IPv6 address of all interfaces", "--bind=[::]:8080", "--bind=127.0.0.1:20002"),
		Entry("a certain address", "--bind=localhost:8080", "--bind=localhost:20002"),
		Entry("an argument of its own", "10258", "20001"),
		Entry("an address of its own", ":8080", "127.0.0.1:20002"),
		Entry("a port that is not declared", "--port=10260", "--port=10260"),
		Entry("a number that ends like a port", "--qps=110258", "--qps=110258"),
		Entry("no number", "--namespace=a", "--namespace=a"),
	)

	It("leaves an address alone that is given", func() {
		container.Command, container.Args = nil, []string{"--port=10258", "--address=1.2.3.4"}
		command, err := env.command(pod, container)
		Expect(err).NotTo(HaveOccurred())
		Expect(command.Args).To(Equal([]string{"--port=20001", "--address=1.2.3.4"}))
	})

	It("finds a port of its own for each declared port", func() {
		container.Ports = []corev1.ContainerPort{{ContainerPort: 1}, {ContainerPort: 2}}
		ports, err := freePorts(pod)
		Expect(err).NotTo(HaveOccurred())
		Expect(ports).To(HaveLen(2))
		Expect(ports[1]).NotTo(Equal(ports[2]))
	})
})
