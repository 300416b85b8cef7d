// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package machinecontrollermanager_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/gardener/gardener/extensions/pkg/webhook/controlplane/genericmutator"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	mcmcomponent "github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/webhook/machinecontrollermanager"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Ensurer", func() {
	const (
		namespace = "shoot--foo--bar"
		name      = "machine-preservation-controller"
	)

	var (
		ctx      = context.Background()
		c        client.Client
		crdError error
		config   *configv1alpha1.ControllerConfiguration
		ensurer  genericmutator.Ensurer

		extension  *extensionsv1alpha1.Extension
		secret     *corev1.Secret
		deployment *appsv1.Deployment
	)

	BeforeEach(func() {
		crdError = nil
		scheme := builder.Scheme(
			appsv1.AddToScheme, rbacv1.AddToScheme, policyv1.AddToScheme, extensionsv1alpha1.AddToScheme, resourcesv1alpha1.AddToScheme,
			apiextensionsv1.AddToScheme, vpaautoscalingv1.AddToScheme, monitoringv1.AddToScheme,
		)
		c = fakeclient.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				if _, ok := object.(*apiextensionsv1.CustomResourceDefinition); ok && crdError != nil {
					return crdError
				}
				return c.Get(ctx, key, object, opts...)
			},
		}).Build()
		config = &configv1alpha1.ControllerConfiguration{}
		configv1alpha1.SetObjectDefaults_ControllerConfiguration(config)
		config.MaxNodeMaintenanceOvertime.Duration = 7 * time.Hour
		ensurer = NewEnsurer(c, &machinecrd.Schemas{Machines: c, MachineDeployments: c}, config)

		extension = &extensionsv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: "machine-preservation", Namespace: namespace}}
		extension.Spec.Type = "machine-preservation"
		Expect(c.Create(ctx, extension)).To(Succeed())
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shoot-access-machine-preservation-controller", Namespace: namespace, Annotations: map[string]string{
			"serviceaccount.resources.gardener.cloud/token-renew-timestamp": "2026-01-01T12:00:00Z",
		}}}
		Expect(c.Create(ctx, secret)).To(Succeed())

		// As gardenlet and provider-local make it, with a flag that the provider's container has been started with otherwise.
		deployment = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "machine-controller-manager", Namespace: namespace}}
		deployment.Spec.Template.Spec.Containers = []corev1.Container{{Name: "machine-controller-manager", Image: "mcm"}}
		Expect(gardenerutils.InjectGenericKubeconfig(deployment, "generic-token-kubeconfig-a1b2", "shoot-access-machine-controller-manager")).To(Succeed())
		provider := mcmcomponent.ProviderSidecarContainer(&gardencorev1beta1.Shoot{}, namespace, "provider-local", "provider-image")
		provider.Args = append(provider.Args, "--machine-health-timeout=12m")
		deployment.Spec.Template.Spec.Containers = append(deployment.Spec.Template.Spec.Containers, provider)
	})

	ensure := func() {
		GinkgoHelper()
		Expect(ensurer.EnsureMachineControllerManagerDeployment(ctx, nil, deployment, nil)).To(Succeed())
	}
	container := func() corev1.Container {
		GinkgoHelper()
		containers := deployment.Spec.Template.Spec.Containers
		Expect(containers).NotTo(BeEmpty())
		Expect(containers[len(containers)-1].Name).To(Equal(name))
		return containers[len(containers)-1]
	}

	// args returns those of the container that contain one of the words, but not those that it always has.
	args := func(words ...string) []string {
		GinkgoHelper()
		return slices.DeleteFunc(slices.Clone(container().Args), func(arg string) bool {
			return strings.HasPrefix(arg, "--namespace=") || strings.HasPrefix(arg, "--machine-drain-timeout=") ||
				!slices.ContainsFunc(words, func(word string) bool { return strings.Contains(arg, word) })
		})
	}
	// configure sets fields of the providerConfig.
	configure := func(fields string) {
		GinkgoHelper()
		extension.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1","kind":"MachinePreservationConfig"` + fields + `}`)}
		Expect(c.Update(ctx, extension)).To(Succeed())
	}
	// grant has the access secret say something of what the shoot has.
	grant := func(what, value string) {
		GinkgoHelper()
		secret.Annotations["machine-preservation.extensions.gardener.cloud/"+what] = value
		Expect(c.Update(ctx, secret)).To(Succeed())
	}

	It("should leave alone what gardenlet makes for a self-hosted shoot, as no kubeconfig is in there", func() {
		for _, object := range []client.Object{extension, secret} {
			object.SetNamespace(metav1.NamespaceSystem)
			object.SetResourceVersion("")
			Expect(c.Create(ctx, object)).To(Succeed())
		}
		Expect(mcmcomponent.New(c, metav1.NamespaceSystem, nil, mcmcomponent.Values{Image: "mcm", Replicas: 1, SelfHostedShoot: true}).Deploy(ctx)).To(Succeed())
		vpa := &vpaautoscalingv1.VerticalPodAutoscaler{}
		for name, object := range map[string]client.Object{"machine-controller-manager": deployment, "machine-controller-manager-vpa": vpa} {
			Expect(c.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceSystem, Name: name}, object)).To(Succeed())
		}
		before, vpaBefore := deployment.DeepCopy(), vpa.DeepCopy()
		ensure()
		Expect(ensurer.EnsureMachineControllerManagerVPA(ctx, nil, vpa, nil)).To(Succeed())
		Expect(deployment).To(Equal(before))
		Expect(vpa).To(Equal(vpaBefore))
		Expect(deployment.Spec.Template.Spec.Volumes).To(BeEmpty())
	})

	Describe("Cluster-autoscaler", func() {
		var autoscaler *appsv1.Deployment

		BeforeEach(func() {
			autoscaler = &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "cluster-autoscaler", Namespace: namespace}}
			autoscaler.Spec.Template.Spec.Containers = []corev1.Container{{Name: "cluster-autoscaler", Command: []string{"./cluster-autoscaler"}}}
		})
		create := func(namespace, share string) {
			GinkgoHelper()
			machineDeployment := builder.Deployment("a", builder.Share(share), builder.DeploymentAnnotation("machine-preservation.extensions.gardener.cloud/machine-preserve-timeout", "72h0m0s"))
			machineDeployment.Namespace = namespace
			Expect(c.Create(ctx, machineDeployment)).To(Succeed())
		}

		It("should go on scaling with unready nodes if there is a share", func() {
			create(namespace, "1")
			for range 2 {
				Expect(ensurer.EnsureClusterAutoscalerDeployment(ctx, nil, autoscaler, nil)).To(Succeed())
				Expect(autoscaler.Spec.Template.Spec.Containers[0].Command).To(Equal([]string{"./cluster-autoscaler", "--max-total-unready-percentage=100"}))
			}
		})

		It("should be left alone if there is none", func() {
			create(namespace, "0")
			create("other", "1")
			expected := autoscaler.DeepCopy()
			Expect(ensurer.EnsureClusterAutoscalerDeployment(ctx, nil, autoscaler, nil)).To(Succeed())
			Expect(autoscaler).To(Equal(expected))
		})
	})

	Describe("Deployment", func() {
		It("should add the container and its volume, and leave everything else as it is", func() {
			expected := deployment.DeepCopy()
			ensure()

			probe := func(path string, delay int32) *corev1.Probe {
				return &corev1.Probe{
					ProbeHandler:        corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(10261), Scheme: "HTTP"}},
					InitialDelaySeconds: delay, PeriodSeconds: 10, TimeoutSeconds: 5, SuccessThreshold: 1, FailureThreshold: 3,
				}
			}
			expected.Spec.Template.Spec.Containers = append(expected.Spec.Template.Spec.Containers, corev1.Container{
				Name:            name,
				Image:           container().Image,
				ImagePullPolicy: "IfNotPresent",
				Args: []string{
					"--namespace=shoot--foo--bar",
					"--control-kubeconfig=inClusterConfig",
					"--target-kubeconfig=/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig/kubeconfig",
					"--holder=health-timer",
					"--max-machine-preserve-timeout=336h0m0s",
					"--machine-health-timeout=12m",
					"--machine-creation-timeout=20m",
					"--machine-drain-timeout=2h",
					"--metrics-bind-address=:10260",
					"--health-probe-bind-address=:10261",
				},
				Ports: []corev1.ContainerPort{
					{Name: "preservemetrics", ContainerPort: 10260, Protocol: "TCP"},
					{Name: "preservehealth", ContainerPort: 10261, Protocol: "TCP"},
				},
				LivenessProbe:  probe("/healthz", 30),
				ReadinessProbe: probe("/readyz", 0),
				Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
					"cpu":    resource.MustParse("5m"),
					"memory": resource.MustParse("32Mi"),
				}},
				SecurityContext: &corev1.SecurityContext{
					AllowPrivilegeEscalation: new(false),
					Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
					ReadOnlyRootFilesystem:   new(true),
					RunAsNonRoot:             new(true),
					SeccompProfile:           &corev1.SeccompProfile{Type: "RuntimeDefault"},
				},
				VolumeMounts: []corev1.VolumeMount{{
					Name:      "kubeconfig-machine-preservation",
					MountPath: "/var/run/secrets/gardener.cloud/shoot/generic-kubeconfig",
					ReadOnly:  true,
				}},
			})
			expected.Spec.Template.Spec.Volumes = append(expected.Spec.Template.Spec.Volumes, corev1.Volume{
				Name: "kubeconfig-machine-preservation",
				VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{
					DefaultMode: new(int32(420)),
					Sources: []corev1.VolumeProjection{
						{Secret: &corev1.SecretProjection{
							LocalObjectReference: corev1.LocalObjectReference{Name: "generic-token-kubeconfig-a1b2"},
							Items:                []corev1.KeyToPath{{Key: "kubeconfig", Path: "kubeconfig"}},
							Optional:             new(true),
						}},
						{Secret: &corev1.SecretProjection{
							LocalObjectReference: corev1.LocalObjectReference{Name: "shoot-access-machine-preservation-controller"},
							Items:                []corev1.KeyToPath{{Key: "token", Path: "token"}},
							Optional:             new(true),
						}},
					},
				}},
			})
			Expect(deployment).To(Equal(expected))
		})

		It("should change nothing the second time", func() {
			ensure()
			once := deployment.DeepCopy()
			ensure()
			Expect(deployment).To(Equal(once))
		})

		It("should choose the holder by what Machines can hold, whenever that changes", func() {
			ensure()
			Expect(container().Args).To(ContainElement("--holder=health-timer"))

			crds, err := mcmcomponent.NewCRD(c)
			Expect(err).NotTo(HaveOccurred())
			Expect(crds.Deploy(ctx)).To(Succeed())
			ensure()
			Expect(container().Args).To(ContainElement("--holder=preserve-expiry"))
			Expect(container().Args).NotTo(ContainElement("--holder=health-timer"))

			Expect(crds.Destroy(ctx)).To(Succeed())
			ensure()
			Expect(container().Args).To(ContainElement("--holder=health-timer"))
		})

		DescribeTable("should hold machines in a way that this machine-controller-manager knows, not only the definition of Machines",
			func(image, holder string) {
				crds, err := mcmcomponent.NewCRD(c)
				Expect(err).NotTo(HaveOccurred())
				Expect(crds.Deploy(ctx)).To(Succeed())
				deployment.Spec.Template.Spec.Containers[0].Image = image
				ensure()
				Expect(container().Args).To(ContainElement("--holder=" + holder))
			},
			Entry("older", "registry/mcm:v0.61.3", "health-timer"),
			Entry("older, without a v", "registry:5000/mcm:0.9.0", "health-timer"),
			Entry("older, with a digest", "registry/mcm:v0.61.3@sha256:0123", "health-timer"),
			Entry("the first that knows", "registry/mcm:v0.62.0", "preserve-expiry"),
			Entry("a development version of it", "registry/mcm:v0.62.0-dev-0123", "preserve-expiry"),
			Entry("newer", "registry:5000/mcm:v1.0.0", "preserve-expiry"),
			Entry("a tag that is no version", "registry/mcm:latest", "preserve-expiry"),
			Entry("no tag", "registry:5000/mcm@sha256:0123", "preserve-expiry"),
		)

		DescribeTable("should hold machines as before when only their definition changes, where the image does not say its version",
			func(before, after, holder string) {
				image := func(image string) { deployment.Spec.Template.Spec.Containers[0].Image = image }
				image(before)
				ensure()
				old := deployment.DeepCopy()
				crds, err := mcmcomponent.NewCRD(c)
				Expect(err).NotTo(HaveOccurred())
				Expect(crds.Deploy(ctx)).To(Succeed())
				image(after)
				Expect(ensurer.EnsureMachineControllerManagerDeployment(ctx, nil, deployment, old)).To(Succeed())
				Expect(container().Args).To(ContainElement("--holder=" + holder))
			},
			Entry("a digest", "registry/mcm@sha256:0123", "registry/mcm@sha256:0123", "health-timer"),
			Entry("another digest", "registry/mcm@sha256:0123", "registry/mcm@sha256:4567", "preserve-expiry"),
			Entry("a tag that is no version", "registry/mcm:latest", "registry/mcm:latest", "health-timer"),
			Entry("a version that knows", "registry/mcm:v0.62.0", "registry/mcm:v0.62.0", "preserve-expiry"),
			Entry("a version that does not, and a digest then", "registry/mcm:v0.61.3", "registry/mcm@sha256:4567", "preserve-expiry"),
		)

		It("should hold machines by their expiry from the first injection on, where the image does not say its version", func() {
			deployment.Spec.Template.Spec.Containers[0].Image = "registry/mcm@sha256:0123"
			old := deployment.DeepCopy()
			crds, err := mcmcomponent.NewCRD(c)
			Expect(err).NotTo(HaveOccurred())
			Expect(crds.Deploy(ctx)).To(Succeed())
			Expect(ensurer.EnsureMachineControllerManagerDeployment(ctx, nil, deployment, old)).To(Succeed())
			Expect(container().Args).To(ContainElement("--holder=preserve-expiry"))
		})

		It("should add the container without the provider's flags, and the flags when the provider's container is there", func() {
			complete := deployment.DeepCopy()
			deployment.Spec.Template.Spec.Containers = deployment.Spec.Template.Spec.Containers[:1]
			ensure()
			Expect(container().Args).NotTo(ContainElement(HavePrefix("--machine-")))

			// The API server calls the webhook again after the provider's.
			deployment.Spec.Template.Spec.Containers = append(deployment.Spec.Template.Spec.Containers, complete.Spec.Template.Spec.Containers[1])
			ensure()
			Expect(container().Args).To(ContainElements("--machine-health-timeout=12m", "--machine-creation-timeout=20m", "--machine-drain-timeout=2h"))

			By("Making the same of a Deployment that has the provider's container already")
			Expect(ensurer.EnsureMachineControllerManagerDeployment(ctx, nil, complete, nil)).To(Succeed())
			Expect(deployment).To(Equal(complete))
		})

		It("should read flags from the command and in two parts as well", func() {
			provider := &deployment.Spec.Template.Spec.Containers[1]
			provider.Command = []string{"/machine-controller", "--machine-drain-timeout", "30m", "--node-conditions=ReadonlyFilesystem,GPUFault"}
			provider.Args = []string{"--machine-health-timeout=", "--machine-creation-timeoutx=1m"}
			ensure()
			Expect(container().Args).To(ContainElements("--machine-health-timeout=", "--machine-drain-timeout=30m", "--node-conditions=ReadonlyFilesystem,GPUFault"))
			Expect(container().Args).NotTo(ContainElement(HavePrefix("--machine-creation-timeout")))
		})

		DescribeTable("D9: should pass on valid drain strategies, with their defaults, and nothing of others", func(fields string, want ...string) {
			configure(fields)
			ensure()
			Expect(args("drain")).To(HaveExactElements(want))
		},
			Entry("none", ``),
			Entry("the defaults", `,"drainStrategies":{}`,
				"--drain-strategies", "--drain-strategies-timeout=45m0s", "--expected-drain-time=8m0s", "--pdb-force-drain-timeout=1h0m0s"),
			Entry("everything", `,"drainStrategies":{"disabled":true,"timeout":"30m","expectedDrainTime":"5m","pdbForceDrainTimeout":"0s","ignoredNamespacePatterns":["kube-system","a{1,3}"]}`,
				"--drain-strategies", "--drain-strategies-timeout=30m0s", "--expected-drain-time=5m0s", "--pdb-force-drain-timeout=0s",
				"--drain-strategies-disabled", "--drain-ignored-namespace-pattern=kube-system", "--drain-ignored-namespace-pattern=a{1,3}"),
			Entry("D13: drains that are shown", `,"drainConditions":true`, "--drain-conditions"),
			Entry("D13: drains that are not shown", `,"drainConditions":false`),
			Entry("D13: drains that are shown beside strategies that are not valid", `,"drainConditions":true,"drainStrategies":{"timeout":"0s"}`, "--drain-conditions"),
			Entry("D13: what cannot be decoded", `,"drainConditions":{}`),
			Entry("a time that is too long", `,"drainStrategies":{"pdbForceDrainTimeout":"2562047h47m"}`),
			Entry("a pattern that does not compile", `,"drainStrategies":{"ignoredNamespacePatterns":["("]}`),
			Entry("what cannot be decoded", `,"drainStrategies":true`),
		)

		DescribeTable("should pass on valid settings of evidence, with their defaults, and nothing of others", func(fields string, want ...string) {
			config.Evidence = &configv1alpha1.Evidence{Enabled: true, Budget: new(resource.MustParse("4Mi")), MaxRetention: &metav1.Duration{Duration: 200 * time.Hour}}
			grant("evidence", "true")
			configure(fields)
			ensure()
			Expect(args("evidence")).To(HaveExactElements(want))
		},
			Entry("none", ``),
			Entry("the defaults", `,"evidence":{}`),
			Entry("disabled", `,"evidence":{"enabled":false,"retention":"24h"}`),
			Entry("enabled", `,"evidence":{"enabled":true}`, "--evidence", "--evidence-retention=168h0m0s", "--evidence-budget=4194304"),
			Entry("with logs of nodes", `,"evidence":{"enabled":true,"nodeLogs":true}`, "--evidence", "--evidence-retention=168h0m0s", "--evidence-budget=4194304", "--evidence-node-logs"),
			Entry("logs of nodes alone", `,"evidence":{"nodeLogs":true}`),
			Entry("another retention", `,"evidence":{"enabled":true,"retention":"24h"}`, "--evidence", "--evidence-retention=24h0m0s", "--evidence-budget=4194304"),
			Entry("a longer retention than operators allow by now", `,"evidence":{"enabled":true,"retention":"201h"}`, "--evidence", "--evidence-retention=200h0m0s", "--evidence-budget=4194304"),
			Entry("what is not valid", `,"evidence":{"enabled":true,"retention":"1s"}`),
		)

		DescribeTable("should have evidence stored only where the access secret says so, and operators allow it", func(annotation string, evidence *configv1alpha1.Evidence, expected bool) {
			grant("evidence", annotation)
			if config.Evidence = evidence; evidence != nil {
				configv1alpha1.SetDefaults_Evidence(evidence)
			}
			configure(`,"evidence":{"enabled":true}`)
			ensure()
			Expect(slices.Contains(container().Args, "--evidence")).To(Equal(expected))
		},
			Entry("both", "true", &configv1alpha1.Evidence{Enabled: true}, true),
			Entry("the permissions are not there yet", "", &configv1alpha1.Evidence{Enabled: true}, false),
			Entry("there is only what was stored", "left", &configv1alpha1.Evidence{Enabled: true}, false),
			Entry("operators have disabled it", "true", &configv1alpha1.Evidence{}, false),
			Entry("operators have never enabled it", "true", nil, false),
		)

		DescribeTable("should have failures told of only where the access secret says so, and operators allow it", func(annotation string, failures *configv1alpha1.Failures, expected bool) {
			grant("failures", annotation)
			config.Failures = failures
			ensure()
			Expect(slices.Contains(container().Args, "--failures")).To(Equal(expected))
		},
			Entry("both, by default", "true", nil, true),
			Entry("both", "true", &configv1alpha1.Failures{Enabled: true}, true),
			Entry("the permissions are not there", "", nil, false),
			Entry("operators have disabled it", "true", &configv1alpha1.Failures{}, false),
		)

		DescribeTable("M17: should pass on valid settings of node maintenance where the shoot has what it takes", func(isOn string, fields string, want ...string) {
			grant("node-maintenance", isOn)
			configure(fields)
			ensure()
			Expect(args("maintenance")).To(HaveExactElements(want))
		},
			Entry("none", "true", ``),
			Entry("not yet, or somebody else's", "", `,"nodeMaintenance":{}`),
			Entry("the defaults", "true", `,"nodeMaintenance":{}`, "--node-maintenance", "--node-maintenance-max-hold-time=24h0m0s", "--node-maintenance-max-overtime=7h0m0s"),
			Entry("everything", "true", `,"nodeMaintenance":{"maxParallelOperations":2,"maxHoldTime":"36h","namespaces":["a","b"]}`,
				"--node-maintenance", "--node-maintenance-max-hold-time=36h0m0s", "--node-maintenance-max-overtime=7h0m0s", "--node-maintenance-namespaces=a,b"),
			Entry("a name that is none", "true", `,"nodeMaintenance":{"namespaces":["a,b"]}`),
			Entry("what cannot be decoded", "true", `,"nodeMaintenance":true`),
		)

		DescribeTable("M17: should change nothing about node maintenance for settings that are not valid", func(fields string) {
			isOn := func(value string) { grant("node-maintenance", value) }
			made := deployment.DeepCopy()
			write := func() *appsv1.Deployment {
				before := deployment
				deployment = made.DeepCopy() // as gardenlet does
				Expect(ensurer.EnsureMachineControllerManagerDeployment(ctx, nil, deployment, before)).To(Succeed())
				return before
			}
			isOn("true")
			configure(`,"nodeMaintenance":{"maxHoldTime":"36h","namespaces":["a"]}`)
			ensure()

			configure(fields)
			before := write()
			Expect(container().Args).To(ContainElements("--node-maintenance", "--node-maintenance-max-hold-time=36h0m0s", "--node-maintenance-max-overtime=7h0m0s", "--node-maintenance-namespaces=a"))
			Expect(deployment).To(Equal(before))

			By("Setting back what is in progress")
			isOn("")
			write()
			Expect(container().Args).NotTo(ContainElement(ContainSubstring("maintenance")))

			By("Having nothing that could stay")
			isOn("true")
			write()
			Expect(container().Args).NotTo(ContainElement(ContainSubstring("maintenance")))
		},
			Entry("a limit", `,"nodeMaintenance":{"maxHoldTime":"-1h"}`),
			Entry("what cannot be decoded", `,"nodeMaintenance":true`),
			Entry("something else that cannot be decoded", `,"workers":true,"nodeMaintenance":{}`),
		)

		It("P16, X21: should have failures counted that come at once, as operators want it", func() {
			config.Storm = &configv1alpha1.Storm{MaxFailing: new(int32(3)), MaxFailingPercent: new(int32(30)), SettlingTime: &metav1.Duration{Duration: 5 * time.Minute}}
			ensure()
			Expect(container().Args).To(ContainElements("--storm-max-failing=3", "--storm-max-failing-percent=30", "--storm-settling-time=5m0s"))
			config.Storm.MaxFailing = nil
			ensure()
			Expect(container().Args).NotTo(ContainElement(HavePrefix("--storm-max-failing=")))
			config.Storm = nil
			ensure()
			Expect(container().Args).NotTo(ContainElement(HavePrefix("--storm")))
		})

		DescribeTable("X15: should have hosts power-cycled where the access secret says so", func(isOn string, hosts *configv1alpha1.Hosts, want ...string) {
			secret.Annotations["machine-preservation.extensions.gardener.cloud/power-cycle"] = isOn
			secret.Annotations["machine-preservation.extensions.gardener.cloud/power-cycle-seed"] = "seed-1"
			Expect(c.Update(ctx, secret)).To(Succeed())
			config.Hosts = hosts
			ensure()
			Expect(args("power", "host", "seed", "quarantine")).To(HaveExactElements(want))

			volume, mount := corev1.Volume{Name: "kubeconfig-machine-preservation-hosts"}, corev1.VolumeMount{
				Name: "kubeconfig-machine-preservation-hosts", MountPath: "/var/run/secrets/gardener.cloud/machine-preservation-hosts", ReadOnly: true,
			}
			volume.Secret = &corev1.SecretVolumeSource{SecretName: "metal", Items: []corev1.KeyToPath{{Key: "kubeconfig", Path: "kubeconfig"}}, Optional: new(true)}
			if len(want) > 0 && hosts.KubeconfigSecretName != "" {
				Expect(container().VolumeMounts).To(ContainElement(mount))
				Expect(deployment.Spec.Template.Spec.Volumes).To(ContainElement(volume))

				By("Switching it off")
				delete(secret.Annotations, "machine-preservation.extensions.gardener.cloud/power-cycle")
				Expect(c.Update(ctx, secret)).To(Succeed())
				ensure()
			}
			Expect(container().VolumeMounts).To(HaveLen(1))
			Expect(deployment.Spec.Template.Spec.Volumes).NotTo(ContainElement(HaveField("Name", volume.Name)))
		},
			Entry("not, or not any more", "", &configv1alpha1.Hosts{Kind: "BareMetalHost"}),
			Entry("no hosts", "true", nil),
			Entry("hosts in the seed", "true", &configv1alpha1.Hosts{Kind: "BareMetalHost", Automatic: true, MaxServicing: &metav1.Duration{Duration: 2 * time.Hour}},
				"--power-cycle", "--host-kind=BareMetalHost", "--seed-name=seed-1", "--power-cycle-max-servicing=2h0m0s"),
			Entry("X8: as many hosts as operators allow", "true",
				&configv1alpha1.Hosts{Kind: "BareMetalHost", MaxPerShoot: new(int32(2)), MaxPerSeed: new(int32(3)), MaxServicing: &metav1.Duration{Duration: time.Hour}},
				"--power-cycle", "--host-kind=BareMetalHost", "--seed-name=seed-1", "--power-cycle-max-servicing=1h0m0s", "--power-cycle-max-per-shoot=2", "--power-cycle-grants"),
			Entry("hosts elsewhere", "true", &configv1alpha1.Hosts{Kind: "ServerClaim", KubeconfigSecretName: "metal", ShootRequests: true, MaxServicing: &metav1.Duration{Duration: 2 * time.Hour}},
				"--power-cycle", "--host-kind=ServerClaim", "--seed-name=seed-1",
				"--power-cycle-max-servicing=2h0m0s", "--host-kubeconfig=/var/run/secrets/gardener.cloud/machine-preservation-hosts/kubeconfig", "--power-cycle-shoot-requests"),
			Entry("hosts on which machines fail again and again", "true",
				&configv1alpha1.Hosts{Kind: "ServerClaim", MaxServicing: &metav1.Duration{Duration: 2 * time.Hour}, Quarantine: &configv1alpha1.Quarantine{Failures: new(int32(3)), Period: &metav1.Duration{Duration: 168 * time.Hour}}},
				"--power-cycle", "--host-kind=ServerClaim", "--seed-name=seed-1", "--power-cycle-max-servicing=2h0m0s", "--quarantine-failures=3", "--quarantine-period=168h0m0s"),
		)

		It("P18: should limit machine-hours as operators configure, once the shoot has what that takes", func() {
			config.MaxMachineHours = new(int32(500))
			ensure()
			Expect(container().Args).NotTo(ContainElement(HavePrefix("--max-machine-hours")))
			grant("machine-hours", "true")
			ensure()
			Expect(container().Args).To(ContainElement("--max-machine-hours=500"))
			config.MaxMachineHours = nil
			ensure()
			Expect(container().Args).NotTo(ContainElement(HavePrefix("--max-machine-hours")))
		})

		It("should follow the generic kubeconfig when it is rotated", func() {
			ensure()
			deployment.Spec.Template.Spec.Volumes[0].Projected.Sources[0].Secret.Name = "generic-token-kubeconfig-c3d4"
			ensure()
			Expect(deployment.Spec.Template.Spec.Volumes).To(HaveLen(2))
			Expect(deployment.Spec.Template.Spec.Volumes[1].Projected.Sources[0].Secret.Name).To(Equal("generic-token-kubeconfig-c3d4"))
		})

		It("should keep the container when Gardener has the token renewed", func() {
			old := deployment.DeepCopy()
			Expect(ensurer.EnsureMachineControllerManagerDeployment(ctx, nil, old, nil)).To(Succeed())
			secret.Annotations = nil
			Expect(c.Update(ctx, secret)).To(Succeed())
			Expect(ensurer.EnsureMachineControllerManagerDeployment(ctx, nil, deployment, old)).To(Succeed())
			Expect(deployment).To(Equal(old))
		})

		DescribeTable("should leave the Deployment as it is",
			func(prepare func(), matcher OmegaMatcher) {
				prepare()
				expected := deployment.DeepCopy()
				Expect(ensurer.EnsureMachineControllerManagerDeployment(ctx, nil, deployment, nil)).To(matcher)
				Expect(deployment).To(Equal(expected))
			},
			Entry("without the access secret", func() { Expect(c.Delete(ctx, secret)).To(Succeed()) }, Succeed()),
			Entry("without a token in the access secret", func() {
				secret.Annotations = nil
				Expect(c.Update(ctx, secret)).To(Succeed())
			}, Succeed()),
			Entry("without an Extension", func() { Expect(c.Delete(ctx, extension)).To(Succeed()) }, Succeed()),
			Entry("while the control plane is migrated to another seed", func() {
				extension.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: "Migrate"}
				Expect(c.Update(ctx, extension)).To(Succeed())
			}, Succeed()),
			Entry("while the Extension is being deleted", func() {
				extension.Finalizers = []string{"extensions.gardener.cloud/machine-preservation"}
				Expect(c.Update(ctx, extension)).To(Succeed())
				Expect(c.Delete(ctx, extension)).To(Succeed())
			}, Succeed()),
			Entry("without a kubeconfig for the shoot", func() { deployment.Spec.Template.Spec.Volumes = nil }, Succeed()),
			Entry("without a kubeconfig for the shoot but our own, which a former mutation has left", func() {
				ensure()
				deployment.Spec.Template.Spec.Volumes = deployment.Spec.Template.Spec.Volumes[1:]
				deployment.Spec.Template.Spec.Containers = deployment.Spec.Template.Spec.Containers[:2]
			}, Succeed()),
			Entry("if the definitions cannot be read", func() { crdError = errors.New("fake") }, MatchError(ContainSubstring("fake"))),
		)
	})

	Describe("VerticalPodAutoscaler", func() {
		var vpa *vpaautoscalingv1.VerticalPodAutoscaler

		BeforeEach(func() {
			vpa = &vpaautoscalingv1.VerticalPodAutoscaler{ObjectMeta: metav1.ObjectMeta{Name: "machine-controller-manager-vpa", Namespace: namespace}}
			vpa.Spec.ResourcePolicy = &vpaautoscalingv1.PodResourcePolicy{ContainerPolicies: []vpaautoscalingv1.ContainerResourcePolicy{
				{ContainerName: "*", Mode: new(vpaautoscalingv1.ContainerScalingModeOff)},
			}}
		})

		It("should add a policy, and nothing the second time", func() {
			expected := vpa.DeepCopy()
			expected.Spec.ResourcePolicy.ContainerPolicies = append(expected.Spec.ResourcePolicy.ContainerPolicies, vpaautoscalingv1.ContainerResourcePolicy{
				ContainerName:    name,
				ControlledValues: new(vpaautoscalingv1.ContainerControlledValuesRequestsOnly),
			})
			for range 2 {
				Expect(ensurer.EnsureMachineControllerManagerVPA(ctx, nil, vpa, nil)).To(Succeed())
				Expect(vpa).To(Equal(expected))
			}
		})

		It("should add a policy where there are none", func() {
			vpa.Spec.ResourcePolicy = nil
			Expect(ensurer.EnsureMachineControllerManagerVPA(ctx, nil, vpa, nil)).To(Succeed())
			Expect(vpa.Spec.ResourcePolicy.ContainerPolicies).To(ConsistOf(MatchFields(IgnoreExtras, Fields{"ContainerName": Equal(name)})))
		})

		It("should leave it as it is without an Extension", func() {
			Expect(c.Delete(ctx, extension)).To(Succeed())
			expected := vpa.DeepCopy()
			Expect(ensurer.EnsureMachineControllerManagerVPA(ctx, nil, vpa, nil)).To(Succeed())
			Expect(vpa).To(Equal(expected))
		})
	})
})
