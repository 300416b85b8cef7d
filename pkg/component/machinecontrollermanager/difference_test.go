// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package machinecontrollermanager_test

import (
	"context"
	"errors"
	"strings"
	"time"

	extensionscontextwebhook "github.com/gardener/gardener/extensions/pkg/webhook/context"
	"github.com/gardener/gardener/extensions/pkg/webhook/controlplane/genericmutator"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/component/machinecontrollermanager"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
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

func be(kind Kind, reason OmegaMatcher) OmegaMatcher {
	return And(HaveField("Kind", kind), HaveField("Reason", reason))
}

// replaceArg gives a flag another value, or takes the flag away if that is empty.
func replaceArg(args []string, prefix, value string) []string {
	var replaced []string
	for _, arg := range args {
		if strings.HasPrefix(arg, prefix) {
			if value == "" {
				continue
			}
			arg = prefix + value
		}
		replaced = append(replaced, arg)
	}
	return replaced
}

var _ = Describe("#Compare", func() {
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
			Expect(Compare(ctx, ensurer, deployment)).To(matcher)
			Expect(deployment).To(Equal(before))
		},
		Entry("nothing", func() {}, be(None, BeEmpty())),
		Entry("the container", func() { deployment.Spec.Template.Spec.Containers = deployment.Spec.Template.Spec.Containers[:1] }, be(Missing, Equal("it is missing"))),
		Entry("the image", func() { container.Image = "image:v0" }, be(Outdated, Equal("its image is image:v0 instead of image:v1"))),
		Entry("the image, and flags of that version", func() { container.Image, container.Args = "image:v0", nil }, be(Outdated, Equal("its image is image:v0 instead of image:v1"))),
		Entry("what operators configure", func() { container.Args = replaceArg(container.Args, "--max-machine-preserve-timeout=", "1h0m0s") },
			be(Outdated, And(HavePrefix("its arguments are"), ContainSubstring("--max-machine-preserve-timeout=1h0m0s")))),
		Entry("what operators configure, not known to a former version", func() { container.Args = replaceArg(container.Args, "--max-machine-preserve-timeout=", "") },
			be(Outdated, HavePrefix("its arguments are"))),
		Entry("what operators configure about node maintenance", func() { container.Args = append(container.Args, "--node-maintenance-max-overtime=1h0m0s") },
			be(Outdated, HavePrefix("its arguments are"))),
		Entry("P18: how many machine-hours there are", func() { container.Args = append(container.Args, "--max-machine-hours=5") },
			be(Outdated, HavePrefix("its arguments are"))),
		Entry("how much evidence is stored, and for how long", func() {
			container.Args = append(container.Args, "--evidence-budget=2097152", "--evidence-retention=24h0m0s")
		},
			be(Outdated, HavePrefix("its arguments are"))),
		Entry("evidence", func() { container.Args = append(container.Args, "--evidence") }, be(Broken, HavePrefix("its arguments are"))),
		Entry("whether those in the shoot may ask for power cycles", func() { container.Args = append(container.Args, "--power-cycle-shoot-requests") },
			be(Outdated, HavePrefix("its arguments are"))),
		Entry("X8: how many power cycles there may be in a shoot", func() { container.Args = append(container.Args, "--power-cycle-max-per-shoot=1") },
			be(Outdated, HavePrefix("its arguments are"))),
		Entry("X8: that power cycles need a grant", func() { container.Args = append(container.Args, "--power-cycle-grants") },
			be(Outdated, HavePrefix("its arguments are"))),
		Entry("X18: for how long hosts are serviced", func() { container.Args = append(container.Args, "--power-cycle-max-servicing=1h0m0s") },
			be(Outdated, HavePrefix("its arguments are"))),
		Entry("P16: when too many machines fail at the same time", func() {
			container.Args = append(container.Args, "--storm-max-failing=3", "--storm-max-failing-percent=30", "--storm-settling-time=10m0s")
		}, be(Outdated, HavePrefix("its arguments are"))),
		Entry("power cycles", func() { container.Args = append(container.Args, "--power-cycle") }, be(Broken, HavePrefix("its arguments are"))),
		Entry("a flag", func() { container.Args = []string{"--holder=preserve-expiry"} },
			be(Broken, Equal(`its arguments are "--holder=preserve-expiry" instead of "--namespace= --control-kubeconfig=inClusterConfig `+
				`--target-kubeconfig=/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/kubeconfig --holder=health-timer `+
				`--max-machine-preserve-timeout=0s --metrics-bind-address=:10260 --health-probe-bind-address=:10261"`))),
		Entry("a flag more", func() { container.Args = append(container.Args, "--foo") }, be(Broken, HavePrefix("its arguments are"))),
		Entry("a flag, and what operators configure", func() {
			container.Args = replaceArg(replaceArg(container.Args, "--max-machine-preserve-timeout=", "1h"), "--holder=", "preserve-expiry")
		}, be(Broken, HavePrefix("its arguments are"))),
		Entry("a probe", func() { container.LivenessProbe.HTTPGet.Path = "/" }, be(Outdated, Equal("its specification is not that of this version of the extension"))),
		Entry("the mount", func() { container.VolumeMounts = nil }, be(Broken, Equal("its volume is not that of the shoot's current kubeconfig"))),
		Entry("the kubeconfig", func() {
			deployment.Spec.Template.Spec.Volumes = []corev1.Volume{preservationcontroller.Volume("rotated")}
		}, be(Broken, Equal("its volume is not that of the shoot's current kubeconfig"))),
		Entry("the kubeconfig, and what operators configure", func() {
			container.Args = replaceArg(container.Args, "--max-machine-preserve-timeout=", "1h")
			deployment.Spec.Template.Spec.Volumes = []corev1.Volume{preservationcontroller.Volume("rotated")}
		}, be(Broken, Equal("its volume is not that of the shoot's current kubeconfig"))),
		Entry("the volume", func() { deployment.Spec.Template.Spec.Volumes = nil }, be(Broken, Equal("its volume is not that of the shoot's current kubeconfig"))),
		Entry("nothing as it cannot inject, not yet", func() {
			ensurer.container = nil
			deployment.Spec.Template.Spec.Containers = deployment.Spec.Template.Spec.Containers[:1]
		}, be(None, BeEmpty())),
		Entry("nothing as it cannot inject, not any more", func() { ensurer.container = nil }, be(None, BeEmpty())),
		Entry("nothing but what the API server and other webhooks have added", func() {
			container.TerminationMessagePath, container.TerminationMessagePolicy = "/dev/termination-log", "File"
			container.Env = []corev1.EnvVar{{Name: "HTTP_PROXY", Value: "proxy"}}
			container.VolumeMounts = append(container.VolumeMounts, corev1.VolumeMount{Name: "trust"})
		}, be(None, BeEmpty())),
	)

	It("should return the ensurer's error", func() {
		ensurer.err = errors.New("fake")
		_, err := Compare(ctx, ensurer, deployment)
		Expect(err).To(MatchError("failed to determine the container that is to be injected: fake"))
	})
})

var _ = Describe("#LastProgress", func() {
	var (
		now  = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		past = func(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }
	)

	DescribeTable("should tell by the conditions of the Deployment",
		func(complete, observed bool, conditions []appsv1.DeploymentCondition, expected time.Time) {
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Generation: 2}}
			deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 2, UpdatedReplicas: 1, ReadyReplicas: 1, Conditions: conditions}
			if complete {
				deployment.Status.Replicas = 1
			}
			if !observed {
				deployment.Status.ObservedGeneration = 1
			}
			Expect(LastProgress(deployment, now)).To(Equal(expected))
		},
		Entry("complete", true, true, []appsv1.DeploymentCondition{{Type: "Progressing", Status: "True", LastUpdateTime: past(time.Hour)}}, past(time.Hour).Time),
		Entry("available again since", true, true, []appsv1.DeploymentCondition{
			{Type: "Progressing", Status: "True", LastUpdateTime: past(time.Hour)}, {Type: "Available", Status: "True", LastTransitionTime: past(time.Minute)},
		}, past(time.Minute).Time),
		Entry("complete for longer than is known", true, true, nil, time.Time{}),
		Entry("the last progress", false, true, []appsv1.DeploymentCondition{
			{Type: "Available", Status: "True", LastTransitionTime: past(time.Hour)}, {Type: "Progressing", Status: "True", LastUpdateTime: past(time.Minute)},
		}, past(time.Minute).Time),
		Entry("given up", false, true, []appsv1.DeploymentCondition{{Type: "Progressing", Status: "False", LastUpdateTime: past(time.Second)}}, time.Time{}),
		Entry("not known", false, true, nil, now),
		Entry("not observed", true, false, []appsv1.DeploymentCondition{{Type: "Progressing", Status: "False", LastUpdateTime: past(time.Hour)}}, now),
	)
})
