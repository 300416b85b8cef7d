// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package extension_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/managedresources"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-machine-preservation/charts"
	"github.com/gardener/gardener-extension-machine-preservation/cmd/gardener-extension-machine-preservation/app"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/charts/rollout"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

const (
	namespace = "extension-machine-preservation"
	// full is a control plane with more evidence than the budget of the seed.
	full    = "shoot--test--full"
	sidecar = "machine-preservation-controller"
)

var _ = Describe("The chart of the extension", Ordered, func() {
	var (
		ctx     context.Context
		env     *environment.Environment
		release *rollout.Release
		account *rollout.Account
		granted []rollout.Permission // what the extension lets others do
	)

	BeforeAll(func() {
		ctx = context.Background()
		env = environment.Start(ctx)

		rollout.CreateNamespace(ctx, env.Client, "garden")
		rollout.CreateNamespace(ctx, env.Client, namespace)
		release = rollout.Install(ctx, env.Client, charts.Extension, namespace, map[string]any{
			"config":      map[string]any{"autoPreserveFailedMax": 1, "evidence": map[string]any{"enabled": true, "budget": "1Mi", "seedBudget": "16Mi"}},
			"controllers": map[string]any{"heartbeat": map[string]any{"renewIntervalSeconds": 1}},
		})
		release.CreatePriorityClass(ctx, env.Client)
		account = rollout.NewAccount(ctx, env, namespace, release.Deployment.Spec.Template.Spec.ServiceAccountName)

		// It is to be deleted by the certificate management.
		Expect(env.Client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "stale", Namespace: namespace, Labels: map[string]string{
			"name":             "stale",
			"managed-by":       "secrets-manager",
			"manager-identity": "gardener-extension-machine-preservation-webhook",
		}}})).To(Succeed())
		// The budget of the seed is used up, and one has a cap that is too large for it by now.
		rollout.CreateNamespace(ctx, env.Client, full)
		for _, name := range retention.StoredNames()[:14] { // they count 904 KiB each
			Expect(env.Client.Create(ctx, storedEvidence(full, name, "true"))).To(Succeed())
		}
		Expect(env.Client.Create(ctx, storedEvidence(full, "machine-preservation-evidence-cap", "cap"))).To(Succeed())
		start(ctx, env, release, account)
	})

	It("should cap the evidence of who has most of a budget of the seed that is used up", func() {
		Eventually(func(g Gomega) {
			limit := &corev1.ConfigMap{}
			g.Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: full, Name: "machine-preservation-evidence-cap"}, limit)).To(Succeed())
			g.Expect(limit.Annotations).To(HaveKeyWithValue("machine-preservation.extensions.gardener.cloud/evidence-cap", "10485760"))
			g.Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: full, Name: "machine-preservation-evidence-01"}, &corev1.ConfigMap{})).
				To(MatchError(apierrors.IsNotFound, "IsNotFound"))
			told := &eventsv1.EventList{}
			g.Expect(env.Client.List(ctx, told, client.InNamespace(full))).To(Succeed())
			g.Expect(told.Items).To(ContainElement(HaveField("Reason", retention.EventEvicted)))
		}).WithTimeout(time.Minute).Should(Succeed())
	})

	It("should have pods that are admitted where nothing privileged is", func() {
		Expect(env.Client.Create(ctx, release.Pod(), client.DryRunAll)).To(Succeed())

		privileged := release.Pod()
		privileged.Spec.Containers[0].SecurityContext.AllowPrivilegeEscalation = new(true)
		Expect(env.Client.Create(ctx, privileged, client.DryRunAll)).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
	})

	It("should be registered by an example that gardener-operator accepts", func() {
		directory, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{ .Dir }}", "github.com/gardener/gardener").Output()
		Expect(err).NotTo(HaveOccurred())
		_, err = envtest.InstallCRDs(env.Config, envtest.CRDInstallOptions{
			Paths: []string{filepath.Join(strings.TrimSpace(string(directory)), "example", "operator", "10-crd-operator.gardener.cloud_extensions.yaml")},
		})
		Expect(err).NotTo(HaveOccurred())

		example, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "example", "extension.yaml"))
		Expect(err).NotTo(HaveOccurred())
		registration := &unstructured.Unstructured{}
		Expect(yaml.Unmarshal(example, &registration.Object)).To(Succeed())
		Expect(env.Client.Create(ctx, registration, client.FieldValidation(metav1.FieldValidationStrict))).To(Succeed())
	})

	It("should keep the extension alive, and its certificates tidy", func() {
		Eventually(func() error {
			return env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "stale"}, &corev1.Secret{})
		}).WithTimeout(environment.StartTimeout).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
		renewed := metav1.MicroTime{}
		Eventually(func(g Gomega) {
			lease := &coordinationv1.Lease{}
			g.Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "gardener-extension-heartbeat"}, lease)).To(Succeed())
			if renewed.IsZero() {
				renewed = *lease.Spec.RenewTime
			}
			g.Expect(lease.Spec.RenewTime.Time).To(BeTemporally(">", renewed.Time))
		}).WithTimeout(time.Minute).Should(Succeed())
	})

	It("should enable, reconcile and disable the extension for a shoot", func() {
		shoot := newShoot(ctx, env)
		shoot.createMachine(ctx)
		shoot.enable(ctx)
		shoot.grantAccess(ctx)
		Eventually(func() map[string]string { return shoot.machineDeployment(ctx).Annotations }).WithTimeout(time.Minute).Should(
			HaveKeyWithValue("machine-preservation.extensions.gardener.cloud/auto-preserve-failed-max", "1"), "as the component configuration says")
		Eventually(shoot.containers).WithArguments(ctx).WithTimeout(time.Minute).Should(ContainElement(sidecar))
		Eventually(shoot.autoscaler).WithArguments(ctx).WithTimeout(time.Minute).Should(ContainElement("--max-total-unready-percentage=100"))

		By("Checking the health of the container, whose pod nobody starts here")
		cluster := &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: shoot.namespace}}
		Expect(env.Client.Patch(ctx, cluster, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"check":"now"}}}`)))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(shoot.extension), shoot.extension)).To(Succeed())
			g.Expect(shoot.extension.Status.Conditions).To(ContainElement(HaveField("Message", ContainSubstring("there is no pod"))))
		}).WithTimeout(time.Minute).Should(Succeed())

		By("Enabling evidence")
		shoot.configure(ctx, `,"evidence":{"enabled":true}`)
		role := &rbacv1.Role{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: shoot.namespace, Name: sidecar}, role)).To(Succeed())
		granted = rollout.Permissions(shoot.namespace, role.Rules)
		limit := storedEvidence(shoot.namespace, "machine-preservation-evidence-cap", "cap")
		Expect(env.Client.Create(ctx, limit)).To(Succeed())

		By("Reconciling what somebody else has changed")
		managedResource := &resourcesv1alpha1.ManagedResource{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: shoot.namespace, Name: "extension-machine-preservation-shoot"}, managedResource)).To(Succeed())
		patch := client.MergeFrom(managedResource.DeepCopy())
		managedResource.Spec.SecretRefs = []corev1.LocalObjectReference{{Name: "old"}}
		Expect(env.Client.Patch(ctx, managedResource, patch)).To(Succeed())
		shoot.operate(ctx, "reconcile", gardencorev1beta1.LastOperationTypeReconcile)
		Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(managedResource), managedResource)).To(Succeed())
		Expect(managedResource.Spec.SecretRefs).To(ConsistOf(corev1.LocalObjectReference{Name: "managedresource-extension-machine-preservation-shoot"}))

		By("Enabling node maintenance, changing its limits, and disabling it")
		shoot.grantMaintenance(ctx)
		shoot.configure(ctx, `,"nodeMaintenance":{}`)
		Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(limit), limit)).To(MatchError(apierrors.IsNotFound, "IsNotFound"), "it goes with the evidence")
		Eventually(shoot.arguments).WithArguments(ctx).WithTimeout(time.Minute).Should(ContainElement("--node-maintenance"))
		shoot.configure(ctx, `,"nodeMaintenance":{"maxUnavailable":"10%"}`)
		Expect(shoot.arguments(ctx)).To(ContainElement("--node-maintenance"))
		shoot.configure(ctx, ``)
		Expect(shoot.arguments(ctx)).NotTo(ContainElement("--node-maintenance"))
		Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: shoot.namespace, Name: "extension-machine-preservation-node-maintenance"}, managedResource)).
			To(MatchError(apierrors.IsNotFound, "IsNotFound"))

		By("Disabling the extension")
		Expect(env.Client.Delete(ctx, shoot.extension)).To(Succeed())
		shoot.waitForExtensionGone(ctx)
		Expect(shoot.containers(ctx)).NotTo(ContainElement(sidecar))
		Eventually(shoot.autoscaler).WithArguments(ctx).WithTimeout(time.Minute).ShouldNot(ContainElement("--max-total-unready-percentage=100"))
		machine := &machinev1alpha1.Machine{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: shoot.namespace, Name: "machine"}, machine)).To(Succeed())
		Expect(machine.Annotations).NotTo(HaveKey("machine-preservation.extensions.gardener.cloud/cause"))
		node := &corev1.Node{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Name: "machine"}, node)).To(Succeed())
		Expect(node.Spec.Taints).NotTo(ContainElement(HaveField("Key", "node.machine.sapcloud.io/preserved")))
		Eventually(shoot.reasons).WithArguments(ctx).WithTimeout(time.Minute).Should(ContainElement("MachinePreservationEnded"))
	})

	It("should migrate a control plane and restore it", func() {
		shoot := newShoot(ctx, env)
		shoot.enable(ctx)
		shoot.operate(ctx, "migrate", gardencorev1beta1.LastOperationTypeMigrate)
		Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: shoot.namespace, Name: sidecar}, &rbacv1.Role{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))

		// On another seed, as far as the extension can tell.
		shoot = newShoot(ctx, env)
		// A health check that writes the status meanwhile has the Extension reconciled once more.
		shoot.operate(ctx, "restore", gardencorev1beta1.LastOperationTypeRestore, gardencorev1beta1.LastOperationTypeReconcile)
		Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: shoot.namespace, Name: sidecar}, &rbacv1.Role{})).To(Succeed())
	})

	It("should tell what is wrong with a configuration, and how often", func() {
		shoot := newShoot(ctx, env)
		shoot.extension.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{}`)}
		Expect(env.Client.Create(ctx, shoot.extension)).To(Succeed())
		Eventually(shoot.reasons).WithArguments(ctx).WithTimeout(time.Minute).Should(ContainElement("InvalidConfiguration"))

		// It is the same Event as long as neither the Extension nor the Worker changes.
		deployment := builder.Deployment("pool")
		shoot.create(ctx, deployment)
		Eventually(func(g Gomega) {
			patch := client.MergeFrom(deployment.DeepCopy())
			metav1.SetMetaDataAnnotation(&deployment.ObjectMeta, "now", time.Now().String())
			g.Expect(env.Client.Patch(ctx, deployment, patch)).To(Succeed())
			events := &eventsv1.EventList{}
			g.Expect(env.Client.List(ctx, events, client.InNamespace(shoot.namespace))).To(Succeed())
			g.Expect(slices.ContainsFunc(events.Items, func(event eventsv1.Event) bool {
				return event.Reason == "InvalidConfiguration" && event.Series != nil
			})).To(BeTrue())
		}).WithTimeout(time.Minute).WithPolling(200 * time.Millisecond).Should(Succeed())
	})

	It("should have allowed all that, and no more", func() {
		Expect(account.Refused()).To(BeEmpty())
		// What was asked for last may be seen before its answer is counted.
		Eventually(func() []rollout.Permission {
			return rollout.Unused(release.Permissions, append(account.Requests(), granted...))
		}).Should(BeEmpty())
	})
})

// start runs the extension in this process, as its pod would, until the end of the suite.
func start(ctx context.Context, env *environment.Environment, release *rollout.Release, account *rollout.Account) {
	GinkgoHelper()
	config := &corev1.ConfigMap{}
	Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "gardener-extension-machine-preservation-config"}, config)).To(Succeed())
	configFile := filepath.Join(GinkgoT().TempDir(), "config.yaml")
	Expect(release.Arguments()).To(ContainElement("--config=" + release.MountPath("config", "config.yaml")))
	Expect(os.WriteFile(configFile, []byte(config.Data["config.yaml"]), 0o600)).To(Succeed())
	Expect(release.Arguments()).To(ContainElement("--webhook-config-cert-dir=" + release.MountPath("certificates")))

	release.SetEnvironment()
	GinkgoT().Setenv("GARDENER_SHOOT_CLIENT", "external") // there is no network of a seed
	environment.RunCommand(ctx, app.NewCommand(), func(healthAddress string) []string {
		return release.Arguments(append(environment.WebhookFlags(),
			"--config="+configFile,
			"--kubeconfig="+account.Kubeconfig,
			"--metrics-bind-address=0",
			"--health-bind-address="+healthAddress,
		)...)
	})
}

// shoot is a control plane on the seed. The API server of the seed is that of the shoot as well.
type shoot struct {
	*environment.Environment
	namespace string
	worker    *extensionsv1alpha1.Worker
	extension *extensionsv1alpha1.Extension
}

func newShoot(ctx context.Context, env *environment.Environment) *shoot {
	GinkgoHelper()
	s := &shoot{Environment: env, namespace: env.CreateShootNamespace(ctx, true)}
	env.CreateCluster(ctx, s.namespace, gardencorev1beta1.Worker{Name: "pool", Minimum: 1, Maximum: 3})
	Expect(env.NewMachineControllerManager(ctx, s.namespace, "mcm").Deploy(ctx)).To(Succeed())
	env.DeployClusterAutoscaler(ctx, s.namespace)

	s.worker = env.CreateWorker(ctx, s.namespace, extensionsv1alpha1.WorkerPool{Name: "pool", Minimum: 1, Maximum: 3, Zones: []string{"0"}})
	s.extension = environment.NewExtension(s.namespace)
	return s
}

// grantAccess does what gardener-resource-manager does: it brings the sidecar's permissions into the shoot, and writes a
// token into its access secret.
func (s *shoot) grantAccess(ctx context.Context) {
	GinkgoHelper()
	objects, err := managedresources.GetObjects(ctx, s.Client, s.namespace, "extension-machine-preservation-shoot")
	Expect(err).NotTo(HaveOccurred())
	for _, object := range objects {
		Expect(s.Client.Create(ctx, object)).To(Succeed())
	}
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: sidecar, Namespace: metav1.NamespaceSystem}}
	Expect(s.Client.Create(ctx, serviceAccount)).To(Succeed())
	token := &authenticationv1.TokenRequest{}
	Expect(s.Client.SubResource("token").Create(ctx, serviceAccount, token)).To(Succeed())

	secret := &corev1.Secret{}
	Expect(s.Client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "shoot-access-" + sidecar}, secret)).To(Succeed())
	Expect(secret.Annotations).To(HaveKeyWithValue("serviceaccount.resources.gardener.cloud/inject-ca-bundle", "true"))
	patch := client.MergeFrom(secret.DeepCopy())
	metav1.SetMetaDataAnnotation(&secret.ObjectMeta, "serviceaccount.resources.gardener.cloud/token-renew-timestamp", "2026-01-01T12:00:00Z")
	secret.Data = map[string][]byte{"token": []byte(token.Status.Token), "bundle.crt": s.Config.CAData}
	Expect(s.Client.Patch(ctx, secret, patch)).To(Succeed())
}

// grantMaintenance does what gardener-resource-manager does while node maintenance is enabled and disabled.
func (s *shoot) grantMaintenance(ctx context.Context) {
	GinkgoHelper()
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "maintenance"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"apiextensions.k8s.io"}, Resources: []string{"customresourcedefinitions"}, Verbs: []string{"get"}},
		{APIGroups: []string{"maintenance.nvidia.com"}, Resources: []string{"nodemaintenances"}, Verbs: []string{"list"}},
	}}
	Expect(s.Client.Create(ctx, role)).To(Succeed())
	Expect(s.Client.Create(ctx, &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role.Name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: sidecar, Namespace: metav1.NamespaceSystem}},
	})).To(Succeed())
}

// configure changes the provider configuration, and has it reconciled as gardenlet does.
func (s *shoot) configure(ctx context.Context, fields string) {
	GinkgoHelper()
	Eventually(func() error {
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(s.extension), s.extension); err != nil {
			return err
		}
		s.extension.Spec.ProviderConfig = environment.ProviderConfig(fields)
		return s.Client.Update(ctx, s.extension)
	}).Should(Succeed())
	s.operate(ctx, "reconcile", gardencorev1beta1.LastOperationTypeReconcile)
}

// arguments returns those of the sidecar.
func (s *shoot) arguments(ctx context.Context) []string {
	GinkgoHelper()
	deployment := &appsv1.Deployment{}
	Expect(s.Client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "machine-controller-manager"}, deployment)).To(Succeed())
	for _, container := range deployment.Spec.Template.Spec.Containers {
		if container.Name == sidecar {
			return container.Args
		}
	}
	return nil
}

// createMachine creates a pool with a machine that is preserved.
func (s *shoot) createMachine(ctx context.Context) {
	GinkgoHelper()
	Expect(s.Client.Create(ctx, &machinev1alpha1.MachineClass{
		ObjectMeta:   metav1.ObjectMeta{Name: "class", Namespace: s.namespace},
		NodeTemplate: &machinev1alpha1.NodeTemplate{Zone: "0", InstanceType: "local", Region: "local", Capacity: corev1.ResourceList{"cpu": resource.MustParse("1")}},
		ProviderSpec: runtime.RawExtension{Raw: []byte(`{}`)},
	})).To(Succeed())
	deployment := builder.Deployment("pool")
	deployment.Labels = map[string]string{"worker.gardener.cloud/pool": "pool"}
	deployment.Spec.Template.Spec.Class = machinev1alpha1.ClassSpec{Kind: "MachineClass", Name: "class"}
	s.create(ctx, deployment)
	set := builder.Set("set", deployment)
	s.create(ctx, set)
	expiry := time.Now().Add(time.Hour)
	machine := builder.Machine("machine",
		builder.Phase(machinev1alpha1.MachineFailed, time.Now()),
		builder.Preserved("Failed:Preserved", "auto", expiry),
		builder.ExpiryInStatus(expiry),
	)
	machine.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, machinev1alpha1.SchemeGroupVersion.WithKind("MachineSet"))}
	status := machine.Status
	s.create(ctx, machine)
	machine.Status = status
	Expect(s.Client.Status().Update(ctx, machine)).To(Succeed())

	node := builder.Node("machine", builder.Taint("node.machine.sapcloud.io/preserved", time.Now()))
	node.UID = ""
	Expect(s.Client.Create(ctx, node)).To(Succeed())
}

func (s *shoot) create(ctx context.Context, object client.Object) {
	GinkgoHelper()
	object.SetNamespace(s.namespace)
	object.SetUID("")
	Expect(s.Client.Create(ctx, object)).To(Succeed())
}

func (s *shoot) enable(ctx context.Context) {
	GinkgoHelper()
	s.operate(ctx, "reconcile", gardencorev1beta1.LastOperationTypeCreate)
}

// operate asks for an operation as gardenlet does, and waits until it has succeeded as one of the types. A new Extension carries the
// annotation from the beginning: it would else be reconciled before it is asked for.
func (s *shoot) operate(ctx context.Context, operation string, operationTypes ...gardencorev1beta1.LastOperationType) {
	GinkgoHelper()
	const askedFor = "asked for"
	metav1.SetMetaDataAnnotation(&s.extension.ObjectMeta, "gardener.cloud/operation", operation)
	if s.extension.Status.LastOperation != nil {
		// The annotation goes before anything is written about the operation: the one before must not be taken for it.
		patch := fmt.Appendf(nil, `{"status":{"lastOperation":{"description":%q}}}`, askedFor)
		Expect(s.Client.Status().Patch(ctx, s.extension.DeepCopy(), client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
	}
	if s.extension.ResourceVersion == "" {
		Expect(s.Client.Create(ctx, s.extension)).To(Succeed())
	} else {
		patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": s.extension.Annotations}})
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Client.Patch(ctx, s.extension, client.RawPatch("application/merge-patch+json", patch))).To(Succeed())
	}
	Eventually(func(g Gomega) {
		g.Expect(s.Client.Get(ctx, client.ObjectKeyFromObject(s.extension), s.extension)).To(Succeed())
		g.Expect(s.extension.Annotations).NotTo(HaveKey("gardener.cloud/operation"))
		last := s.extension.Status.LastOperation
		g.Expect(last).NotTo(BeNil())
		g.Expect(last.Description).NotTo(Equal(askedFor))
		g.Expect(last.Type).To(BeElementOf(operationTypes))
		g.Expect(last.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded), last.Description)
	}).WithTimeout(time.Minute).Should(Succeed())
}

func (s *shoot) waitForExtensionGone(ctx context.Context) {
	GinkgoHelper()
	Eventually(func() error {
		return s.Client.Get(ctx, client.ObjectKeyFromObject(s.extension), s.extension)
	}).WithTimeout(time.Minute).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
}

func (s *shoot) machineDeployment(ctx context.Context) *machinev1alpha1.MachineDeployment {
	GinkgoHelper()
	deployment := &machinev1alpha1.MachineDeployment{}
	Expect(s.Client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "pool"}, deployment)).To(Succeed())
	return deployment
}

func (s *shoot) containers(ctx context.Context) []string {
	GinkgoHelper()
	deployment := &appsv1.Deployment{}
	Expect(s.Client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "machine-controller-manager"}, deployment)).To(Succeed())
	var names []string
	for _, container := range deployment.Spec.Template.Spec.Containers {
		names = append(names, container.Name)
	}
	return names
}

// autoscaler returns the command of the cluster-autoscaler.
func (s *shoot) autoscaler(ctx context.Context) []string {
	GinkgoHelper()
	deployment := &appsv1.Deployment{}
	Expect(s.Client.Get(ctx, client.ObjectKey{Namespace: s.namespace, Name: "cluster-autoscaler"}, deployment)).To(Succeed())
	return deployment.Spec.Template.Spec.Containers[0].Command
}

func (s *shoot) reasons(ctx context.Context) ([]string, error) {
	events := &eventsv1.EventList{}
	err := s.Client.List(ctx, events, client.InNamespace(s.namespace))
	var reasons []string
	for _, event := range events.Items {
		reasons = append(reasons, event.Reason)
	}
	return reasons, err
}

// storedEvidence is a ConfigMap with evidence that does not say how large it is, or with a cap.
func storedEvidence(namespace, name, label string) *corev1.ConfigMap {
	const key = "machine-preservation.extensions.gardener.cloud/evidence"
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Namespace: namespace, Name: name, Labels: map[string]string{key: label}, Annotations: map[string]string{key + "-cap": "16777216"},
	}}
}
