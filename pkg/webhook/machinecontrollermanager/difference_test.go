// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package machinecontrollermanager_test

import (
	"context"
	"errors"

	extensionscontextwebhook "github.com/gardener/gardener/extensions/pkg/webhook/context"
	"github.com/gardener/gardener/extensions/pkg/webhook/controlplane/genericmutator"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/webhook/machinecontrollermanager"
)

// fakeEnsurer injects the container and the volume, or nothing.
type fakeEnsurer struct {
	genericmutator.NoopEnsurer
	container *corev1.Container
	err       error
}

func (e *fakeEnsurer) EnsureMachineControllerManagerDeployment(_ context.Context, _ extensionscontextwebhook.GardenContext, deployment, _ *appsv1.Deployment) error {
	if e.container != nil {
		pod := &deployment.Spec.Template.Spec
		pod.Containers = []corev1.Container{{Name: "machine-controller-manager"}, *e.container.DeepCopy()}
		pod.Volumes = []corev1.Volume{preservationcontroller.Volume("generic-token-kubeconfig")}
	}
	return e.err
}

var _ = Describe("#Difference", func() {
	var (
		ctx        = context.Background()
		ensurer    *fakeEnsurer
		deployment *appsv1.Deployment
		container  *corev1.Container
	)

	BeforeEach(func() {
		ensurer = &fakeEnsurer{container: new(preservationcontroller.Container(preservationcontroller.ContainerValues{Image: "image:v1", Holder: "health-timer"}))}
		deployment = &appsv1.Deployment{}
		Expect(ensurer.EnsureMachineControllerManagerDeployment(ctx, nil, deployment, nil)).To(Succeed())
		container = &deployment.Spec.Template.Spec.Containers[1]
	})

	DescribeTable("should tell what the ensurer would change, and leave the Deployment as it is",
		func(change func(), matcher OmegaMatcher) {
			change()
			before := deployment.DeepCopy()
			Expect(Difference(ctx, ensurer, deployment)).To(matcher)
			Expect(deployment).To(Equal(before))
		},
		Entry("nothing", func() {}, BeEmpty()),
		Entry("the container", func() { deployment.Spec.Template.Spec.Containers = deployment.Spec.Template.Spec.Containers[:1] }, Equal("it is missing")),
		Entry("the image", func() { container.Image = "image:v0" }, Equal("its image is image:v0 instead of image:v1")),
		Entry("a flag", func() { container.Args = []string{"--holder=preserve-expiry"} },
			Equal(`its arguments are "--holder=preserve-expiry" instead of "--namespace= --control-kubeconfig=inClusterConfig `+
				`--target-kubeconfig=/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/kubeconfig --holder=health-timer `+
				`--max-machine-preserve-timeout=0s --metrics-bind-address=:10260 --health-probe-bind-address=:10261"`)),
		Entry("a flag more", func() { container.Args = append(container.Args, "--foo") }, HavePrefix("its arguments are")),
		Entry("a probe", func() { container.LivenessProbe.HTTPGet.Path = "/" }, Equal("its specification is not that of this version of the extension")),
		Entry("the mount", func() { container.VolumeMounts = nil }, Equal("its specification is not that of this version of the extension")),
		Entry("the kubeconfig", func() {
			deployment.Spec.Template.Spec.Volumes = []corev1.Volume{preservationcontroller.Volume("rotated")}
		}, Equal("its volume is not that of the shoot's current kubeconfig")),
		Entry("the volume", func() { deployment.Spec.Template.Spec.Volumes = nil }, Equal("its volume is not that of the shoot's current kubeconfig")),
		Entry("nothing as it cannot inject, not yet", func() {
			ensurer.container = nil
			deployment.Spec.Template.Spec.Containers = deployment.Spec.Template.Spec.Containers[:1]
		}, BeEmpty()),
		Entry("nothing as it cannot inject, not any more", func() { ensurer.container = nil }, BeEmpty()),
		Entry("nothing but what the API server and other webhooks have added", func() {
			container.TerminationMessagePath, container.TerminationMessagePolicy = "/dev/termination-log", "File"
			container.Env = []corev1.EnvVar{{Name: "HTTP_PROXY", Value: "proxy"}}
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "trust"})
		}, BeEmpty()),
	)

	It("should return the ensurer's error", func() {
		ensurer.err = errors.New("fake")
		_, err := Difference(ctx, ensurer, deployment)
		Expect(err).To(MatchError("failed to determine the container that is to be injected: fake"))
	})
})
