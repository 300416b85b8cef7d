// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck_test

import (
	"context"
	"errors"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/healthcheck"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/webhook/machinecontrollermanager"
)

var _ = Describe("Container", func() {
	const (
		namespace = "shoot--foo--bar"
		name      = "machine-preservation-controller"
		notReady  = `container "machine-preservation-controller" of Deployment "machine-controller-manager" is not ready: `
		notRight  = `container "machine-preservation-controller" in Deployment "machine-controller-manager" is not as it should be: `
	)

	var (
		ctx        = context.Background()
		c          client.Client
		check      *Container
		secret     *corev1.Secret
		deployment *appsv1.Deployment
		// pods is how often pods were listed.
		pods int
		now  time.Time
	)

	BeforeEach(func() {
		pods = 0
		c = newClient()
		schemas := &machinecrd.Schemas{Machines: c, MachineDeployments: c}
		config := &configv1alpha1.ControllerConfiguration{}
		configv1alpha1.SetObjectDefaults_ControllerConfiguration(config)
		now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		check = &Container{Reader: c, Clock: testclock.NewFakePassiveClock(now), Ensurer: machinecontrollermanager.NewEnsurer(c, schemas, config), APIReader: interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				pods++
				return c.List(ctx, list, opts...)
			},
		})}

		extension := &extensionsv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: "machine-preservation", Namespace: namespace}}
		extension.Spec.Type = "machine-preservation"
		Expect(c.Create(ctx, extension)).To(Succeed())
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shoot-access-machine-preservation-controller", Namespace: namespace, Annotations: map[string]string{
			"serviceaccount.resources.gardener.cloud/token-renew-timestamp": "2026-01-01T12:00:00Z",
		}}}
		Expect(c.Create(ctx, secret)).To(Succeed())

		deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "machine-controller-manager", Namespace: namespace, Generation: 2}}
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"role": "machine-controller-manager"}}
		deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "machine-controller-manager", Image: "mcm"}}
		Expect(gardenerutils.InjectGenericKubeconfig(deployment, "generic-token-kubeconfig", "shoot-access-machine-controller-manager")).To(Succeed())
		Expect(check.Ensurer.EnsureMachineControllerManagerDeployment(ctx, nil, deployment, nil)).To(Succeed())
		Expect(deployment.Spec.Template.Spec.Containers).To(HaveLen(2))
		deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: 2, Replicas: 1, UpdatedReplicas: 1, ReadyReplicas: 1}
	})

	expect := func(matcher types.GomegaMatcher) {
		GinkgoHelper()
		Expect(check.Check(ctx, namespace)).To(matcher)
	}
	createPod := func(podName string, statuses ...corev1.ContainerStatus) *corev1.Pod {
		GinkgoHelper()
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: podName, Namespace: namespace, Labels: deployment.Spec.Selector.MatchLabels}}
		pod.Status.ContainerStatuses = append([]corev1.ContainerStatus{{Name: "machine-controller-manager"}}, statuses...)
		Expect(c.Create(ctx, pod)).To(Succeed())
		return pod
	}
	waiting := func(reason, message string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
	}

	It("should be healthy, and read no pods, when all are ready", func() {
		Expect(c.Create(ctx, deployment)).To(Succeed())
		expect(beHealthy())
		Expect(pods).To(BeZero())
	})

	It("should be healthy without machine-controller-manager", func() {
		expect(beHealthy())
	})

	It("should be healthy while machine-controller-manager is scaled down, whatever is to be injected", func() {
		deployment.Spec.Replicas = new(int32(0))
		deployment.Status = appsv1.DeploymentStatus{ObservedGeneration: 2}
		deployment.Spec.Template.Spec.Containers = deployment.Spec.Template.Spec.Containers[:1]
		Expect(c.Create(ctx, deployment)).To(Succeed())
		expect(beHealthy())
	})

	It("should be healthy in a self-hosted shoot, where there is to be no container", func() {
		deployment.Namespace = "kube-system"
		deployment.Spec.Template.Spec.Containers, deployment.Spec.Template.Spec.Volumes = deployment.Spec.Template.Spec.Containers[:1], nil
		Expect(c.Create(ctx, deployment)).To(Succeed())
		Expect(check.Check(ctx, "kube-system")).To(beHealthy())
	})

	It("should tell that the container is missing", func() {
		deployment.Spec.Template.Spec.Containers = deployment.Spec.Template.Spec.Containers[:1]
		Expect(c.Create(ctx, deployment)).To(Succeed())
		expect(beProgressing(Equal(notRight + "it is missing")))
	})

	It("should tell that the container is missing and cannot be injected", func() {
		Expect(c.Delete(ctx, secret)).To(Succeed())
		deployment.Spec.Template.Spec.Containers = deployment.Spec.Template.Spec.Containers[:1]
		Expect(c.Create(ctx, deployment)).To(Succeed())
		expect(beProgressing(Equal(notRight + "it is missing, and the webhook cannot inject it, because its access secret, the token in there or the kubeconfig of machine-controller-manager is missing")))
	})

	It("should be healthy with a container of another version, as long as that is ready", func() {
		deployment.Spec.Template.Spec.Containers[1].Image = "old"
		Expect(c.Create(ctx, deployment)).To(Succeed())
		expect(beHealthy())

		deployment.Status.ReadyReplicas = 0
		Expect(c.Status().Update(ctx, deployment)).To(Succeed())
		expect(beProgressing(Equal(notReady + "there is no pod")))
	})

	It("should be healthy with a container of another configuration of the operators", func() {
		check.Ensurer = machinecontrollermanager.NewEnsurer(c, &machinecrd.Schemas{Machines: c, MachineDeployments: c}, &configv1alpha1.ControllerConfiguration{
			MaxMachinePreserveTimeout: &metav1.Duration{Duration: time.Hour},
		})
		Expect(c.Create(ctx, deployment)).To(Succeed())
		expect(beHealthy())
	})

	It("should tell that the container of this version is not as it should be", func() {
		container := &deployment.Spec.Template.Spec.Containers[1]
		container.Args = container.Args[:1]
		Expect(c.Create(ctx, deployment)).To(Succeed())
		expect(beProgressing(HavePrefix(notRight + "its arguments are ")))
	})

	DescribeTable("should look at the pods while not all of them are ready, and only at our container",
		func(matcher types.GomegaMatcher, state corev1.ContainerState, ready bool) {
			deployment.Status.ReadyReplicas = 0
			Expect(c.Create(ctx, deployment)).To(Succeed())
			createPod("mcm-1", corev1.ContainerStatus{Name: name, State: state, Ready: ready})
			expect(matcher)
			Expect(pods).To(Equal(1))
		},
		Entry("ready", beHealthy(), corev1.ContainerState{}, true),
		Entry("waiting", beProgressing(Equal(notReady+`pod "mcm-1" (it is waiting: ImagePullBackOff: no such image)`)), waiting("ImagePullBackOff", "no such image"), false),
		Entry("waiting, and nobody says more", beProgressing(Equal(notReady+`pod "mcm-1" (it is waiting: ContainerCreating)`)), waiting("ContainerCreating", ""), false),
		Entry("terminated", beProgressing(Equal(notReady+`pod "mcm-1" (it has ended with exit code 1)`)), corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1}}, false),
		Entry("not ready", beProgressing(Equal(notReady+`pod "mcm-1" (it runs, but its readiness probe fails)`)), corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}, false),
	)

	It("should leave out pods that have ended", func() {
		deployment.Status.UpdatedReplicas = 0
		Expect(c.Create(ctx, deployment)).To(Succeed())
		for podName, phase := range map[string]corev1.PodPhase{"mcm-1": corev1.PodFailed, "mcm-2": corev1.PodSucceeded} {
			pod := createPod(podName)
			pod.Status.Phase = phase
			Expect(c.Status().Update(ctx, pod)).To(Succeed())
		}
		expect(beProgressing(Equal(notReady + "there is no pod")))
	})

	It("should tell that the new pod is not ready, unless the old one still is", func() {
		deployment.Status.UpdatedReplicas = 0
		Expect(c.Create(ctx, deployment)).To(Succeed())
		expect(beProgressing(Equal(notReady + "there is no pod")))

		createPod("mcm-2", corev1.ContainerStatus{Name: name, State: waiting("CrashLoopBackOff", "back-off")})
		old := createPod("mcm-1")
		expect(beProgressing(Equal(notReady + `pod "mcm-1" (it is not there yet), pod "mcm-2" (it is waiting: CrashLoopBackOff: back-off)`)))

		old.Status.ContainerStatuses = append(old.Status.ContainerStatuses, corev1.ContainerStatus{Name: name, Ready: true})
		Expect(c.Status().Update(ctx, old)).To(Succeed())
		expect(beHealthy())

		By("Making no progress")
		stuckSince := func(ago time.Duration) {
			deployment.Status.Conditions = []appsv1.DeploymentCondition{
				{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, LastUpdateTime: metav1.NewTime(now.Add(-ago))},
			}
			Expect(c.Status().Update(ctx, deployment)).To(Succeed())
		}
		stuckSince(5*time.Minute - time.Second)
		expect(beHealthy())
		stuckSince(5 * time.Minute)
		expect(HaveValue(And(
			HaveField("Status", gardencorev1beta1.ConditionFalse),
			HaveField("Detail", notReady+`pod "mcm-2" (it is waiting: CrashLoopBackOff: back-off). Another pod works, but changes of machine-controller-manager are not rolled out`),
		)))

		old.Finalizers = []string{"foo"}
		Expect(c.Update(ctx, old)).To(Succeed())
		Expect(c.Delete(ctx, old)).To(Succeed())
		expect(beProgressing(Equal(notReady + `pod "mcm-2" (it is waiting: CrashLoopBackOff: back-off)`)))
	})

	It("should return that it cannot look", func() {
		deployment.Status.ReadyReplicas = 0
		Expect(c.Create(ctx, deployment)).To(Succeed())
		check.APIReader = interceptor.NewClient(c.(client.WithWatch), interceptor.Funcs{
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return errors.New("fake")
			},
		})
		_, err := check.Check(ctx, namespace)
		Expect(err).To(MatchError(`failed to list the pods of Deployment "machine-controller-manager": fake`))
	})
})
