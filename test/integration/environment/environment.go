// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package environment is a seed for integration tests: a real kube-apiserver with the resource definitions of Gardener,
// and the extension as it is run in a seed.
package environment

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/Masterminds/semver/v3"
	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	resourcemanagerconfigv1alpha1 "github.com/gardener/gardener/pkg/apis/config/resourcemanager/v1alpha1"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/component/autoscaling/clusterautoscaler"
	"github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"
	"github.com/gardener/gardener/pkg/controller/tokenrequestor"
	"github.com/gardener/gardener/pkg/resourcemanager/controller/managedresource"
	resourcemanagerpredicate "github.com/gardener/gardener/pkg/resourcemanager/predicate"
	fakesecretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager/fake"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gardener/gardener-extension-machine-preservation/cmd/gardener-extension-machine-preservation/app"
	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed/crds"
)

// Environment is a running seed.
type Environment struct {
	// Config is the configuration of an administrator's client.
	Config *rest.Config
	// Client is not backed by a cache.
	Client client.Client

	kubeconfig string
}

// StartAll starts an Environment with the extension, which gets the flags, and ends both with the suite.
func StartAll(flags ...string) *Environment {
	GinkgoHelper()
	ctx := context.Background()
	e := Start(ctx)
	e.StartTokenRequestor(ctx)
	e.StartExtension(ctx, flags...)
	return e
}

// StartTokenRequestor runs the controller of gardener-resource-manager that writes tokens into access secrets, until the end
// of the suite. The API server is that of the shoots as well.
func (e *Environment) StartTokenRequestor(ctx context.Context) {
	GinkgoHelper()
	mgr, err := manager.New(e.Config, manager.Options{Scheme: e.Client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
	Expect(err).NotTo(HaveOccurred())
	Expect((&tokenrequestor.Reconciler{ConcurrentSyncs: 1, Class: new(resourcesv1alpha1.ResourceManagerClassShoot)}).AddToManager(mgr, mgr, mgr)).To(Succeed())
	Run(ctx, mgr.Start)
}

// StartResourceManager runs the controller of gardener-resource-manager that brings ManagedResources into shoots, until the end
// of the suite. It looks every second for what has changed there. The clock may be nil.
func (e *Environment) StartResourceManager(ctx context.Context, clock clock.Clock) {
	GinkgoHelper()
	shoot, err := cluster.New(e.Config, func(options *cluster.Options) { options.Scheme = e.Client.Scheme() })
	Expect(err).NotTo(HaveOccurred())
	mgr, err := manager.New(e.Config, manager.Options{Scheme: e.Client.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}})
	Expect(err).NotTo(HaveOccurred())
	Expect(mgr.Add(shoot)).To(Succeed())
	Expect((&managedresource.Reconciler{
		Config: resourcemanagerconfigv1alpha1.ManagedResourceControllerConfig{
			ConcurrentSyncs:     new(1),
			SyncPeriod:          &metav1.Duration{Duration: time.Second},
			AlwaysUpdate:        new(false),
			ManagedByLabelValue: new(resourcesv1alpha1.GardenerManager),
		},
		Clock:       clock,
		ClassFilter: resourcemanagerpredicate.NewClassFilter(resourcemanagerconfigv1alpha1.DefaultResourceClass),
	}).AddToManager(mgr, mgr, shoot)).To(Succeed())
	Run(ctx, mgr.Start)
}

// Start sets logging up, starts the API server and deploys the resource definitions. It stops at the end of the suite.
func Start(ctx context.Context) *Environment {
	GinkgoHelper()
	SetLogger()
	testEnv := &envtest.Environment{ControlPlaneStartTimeout: StartTimeout}
	config, err := testEnv.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(testEnv.Stop)

	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(kubeconfig, testEnv.KubeConfig, 0o600)).To(Succeed())

	c, err := client.New(config, client.Options{Scheme: newScheme()})
	Expect(err).NotTo(HaveOccurred())

	Expect(crds.Deploy(ctx, c, "")).To(Succeed())
	return &Environment{Config: config, Client: c, kubeconfig: kubeconfig}
}

// StartExtension runs the extension with the flags until the end of the suite, and waits until the API server calls its webhooks.
func (e *Environment) StartExtension(ctx context.Context, flags ...string) {
	GinkgoHelper()

	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "extension-machine-preservation"}}
	Expect(e.Client.Create(ctx, namespace)).To(Succeed())
	RunCommand(ctx, app.NewCommand(), func(healthAddress string) []string {
		return slices.Concat([]string{
			"--kubeconfig=" + e.kubeconfig,
			"--leader-election-namespace=" + namespace.Name,
			"--heartbeat-namespace=" + namespace.Name,
			"--webhook-config-namespace=" + namespace.Name,
			"--metrics-bind-address=0",
			"--health-bind-address=" + healthAddress,
			"--ignore-operation-annotation",
			"--log-format=text",
		}, WebhookFlags(), flags)
	}, func(g Gomega) {
		config := &admissionregistrationv1.MutatingWebhookConfiguration{}
		g.Expect(e.Client.Get(ctx, client.ObjectKey{Name: "gardener-extension-machine-preservation"}, config)).To(Succeed())
		g.Expect(config.Webhooks).NotTo(BeEmpty())
		for _, webhook := range config.Webhooks {
			g.Expect(webhook.ClientConfig.CABundle).NotTo(BeEmpty())
		}
	})
}

// CreateShootNamespace creates the namespace of a shoot's control plane, as gardenlet does if the extension is enabled.
func (e *Environment) CreateShootNamespace(ctx context.Context, enabled bool) string {
	GinkgoHelper()
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "shoot--foo--", Labels: map[string]string{
		"gardener.cloud/role":           "shoot",
		"shoot.gardener.cloud/provider": "local",
	}}}
	if enabled {
		namespace.Labels["extensions.gardener.cloud/machine-preservation"] = "true"
	}
	Expect(e.Client.Create(ctx, namespace)).To(Succeed())
	return namespace.Name
}

// CreateCluster creates the Cluster that gardenlet creates for a shoot. The API server is that of the shoot as well.
func (e *Environment) CreateCluster(ctx context.Context, namespace string, workers ...gardencorev1beta1.Worker) {
	GinkgoHelper()
	raw := func(object any) runtime.RawExtension {
		data, err := json.Marshal(object)
		Expect(err).NotTo(HaveOccurred())
		return runtime.RawExtension{Raw: data}
	}
	typeMeta := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: kind}
	}

	shoot := &gardencorev1beta1.Shoot{TypeMeta: typeMeta("Shoot")}
	shoot.Spec.Kubernetes.Version = "1.35.0"
	shoot.Spec.Provider.Workers = workers
	server, _, err := rest.DefaultServerUrlFor(e.Config)
	Expect(err).NotTo(HaveOccurred())
	shoot.Status.AdvertisedAddresses = []gardencorev1beta1.ShootAdvertisedAddress{{Name: v1beta1constants.AdvertisedAddressExternal, URL: server.String()}}
	Expect(e.Client.Create(ctx, &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec: extensionsv1alpha1.ClusterSpec{
			CloudProfile: raw(&gardencorev1beta1.CloudProfile{TypeMeta: typeMeta("CloudProfile")}),
			Seed:         new(raw(&gardencorev1beta1.Seed{TypeMeta: typeMeta("Seed"), ObjectMeta: metav1.ObjectMeta{Name: "seed"}})),
			Shoot:        raw(shoot),
		},
	})).To(Succeed())
}

// CreateExtension creates an Extension, and waits until it is seen. One that the extension sees before its Cluster is overlooked for good:
// the caches of both are filled independently of each other. A spec that says the same in more words brings it up again.
func (e *Environment) CreateExtension(ctx context.Context, extension *extensionsv1alpha1.Extension) {
	GinkgoHelper()
	Expect(e.Client.Create(ctx, extension)).To(Succeed())
	Eventually(func(g Gomega) {
		g.Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(Succeed())
		if extension.Status.LastOperation == nil {
			patch := client.MergeFrom(extension.DeepCopy())
			if extension.Spec.Class == nil {
				extension.Spec.Class = new(extensionsv1alpha1.ExtensionClassShoot)
			} else {
				extension.Spec.Class = nil
			}
			g.Expect(e.Client.Patch(ctx, extension, patch)).To(Succeed())
		}
		g.Expect(extension.Status.LastOperation).NotTo(BeNil())
	}).WithTimeout(StartTimeout).WithPolling(time.Second).Should(Succeed())
}

// NewExtension returns the Extension of a shoot, to be created.
func NewExtension(namespace string) *extensionsv1alpha1.Extension {
	return &extensionsv1alpha1.Extension{
		ObjectMeta: metav1.ObjectMeta{Name: "machine-preservation", Namespace: namespace},
		Spec:       extensionsv1alpha1.ExtensionSpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "machine-preservation"}},
	}
}

// ProviderConfig returns the configuration of an Extension with fields, each after a comma.
func ProviderConfig(fields string) *runtime.RawExtension {
	return &runtime.RawExtension{Raw: fmt.Appendf(nil,
		`{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1","kind":"MachinePreservationConfig"%s}`, fields)}
}

// Configure changes the configuration of an Extension.
func (e *Environment) Configure(ctx context.Context, extension *extensionsv1alpha1.Extension, fields string) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(Succeed())
		extension.Spec.ProviderConfig = ProviderConfig(fields)
		g.Expect(e.Client.Update(ctx, extension)).To(Succeed())
	}).Should(Succeed())
}

// WaitUntilReconciled waits until an Extension is reconciled as it is.
func (e *Environment) WaitUntilReconciled(ctx context.Context, extension *extensionsv1alpha1.Extension) {
	GinkgoHelper()
	Eventually(func(g Gomega) {
		g.Expect(e.Client.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(Succeed())
		g.Expect(extension.Status.LastOperation).NotTo(BeNil())
		g.Expect(extension.Status.LastOperation.State).To(Equal(gardencorev1beta1.LastOperationStateSucceeded), extension.Status.LastOperation.Description)
		g.Expect(extension.Status.ObservedGeneration).To(Equal(extension.Generation))
	}).WithTimeout(time.Minute).Should(Succeed())
}

// NewMachineControllerManager returns what gardenlet deploys machine-controller-manager with, and creates the Secret that it refers to.
func (e *Environment) NewMachineControllerManager(ctx context.Context, namespace, image string) machinecontrollermanager.Interface {
	GinkgoHelper()
	Expect(e.Client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "generic-token-kubeconfig", Namespace: namespace}})).To(Succeed())
	return machinecontrollermanager.New(e.Client, namespace, fakesecretsmanager.New(e.Client, namespace), machinecontrollermanager.Values{Image: image, Replicas: 1})
}

// As returns the configuration of a user's client.
func As(config *rest.Config, user string) *rest.Config {
	config = rest.CopyConfig(config)
	config.Impersonate.UserName = user
	return config
}

// CreateWorker creates the Worker that gardenlet creates for a shoot, with one pool. It fills in what the pool must have.
func (e *Environment) CreateWorker(ctx context.Context, namespace string, pool extensionsv1alpha1.WorkerPool) *extensionsv1alpha1.Worker {
	GinkgoHelper()
	pool.MachineType = "local"
	pool.MachineImage = extensionsv1alpha1.MachineImage{Name: "local", Version: "1"}
	pool.MaxSurge = intstr.FromInt32(1)
	pool.UserDataSecretRef = corev1.SecretKeySelector{Key: "userData"}
	worker := &extensionsv1alpha1.Worker{
		ObjectMeta: metav1.ObjectMeta{Name: "bar", Namespace: namespace},
		Spec: extensionsv1alpha1.WorkerSpec{
			DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "local"},
			Region:      "local",
			Pools:       []extensionsv1alpha1.WorkerPool{pool},
		},
	}
	Expect(e.Client.Create(ctx, worker)).To(Succeed())
	return worker
}

// DeployClusterAutoscaler deploys the cluster-autoscaler as gardenlet does, with the Secret of the generic kubeconfig there.
func (e *Environment) DeployClusterAutoscaler(ctx context.Context, namespace string) {
	GinkgoHelper()
	autoscaler := clusterautoscaler.New(e.Client, namespace, fakesecretsmanager.New(e.Client, namespace), "autoscaler", 1, nil, nil, nil, semver.MustParse("1.36.0"))
	autoscaler.SetNamespaceUID("uid")
	Expect(autoscaler.Deploy(ctx)).To(Succeed())
}

func newScheme() *runtime.Scheme {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		extensionscontroller.AddToScheme,
		gardencorev1beta1.AddToScheme,
		machinev1alpha1.AddToScheme,
		monitoringv1.AddToScheme,
		vpaautoscalingv1.AddToScheme,
		apiextensionsv1.AddToScheme,
		maintenancev1alpha1.AddToScheme,
		authorizationv1.AddToScheme,
	} {
		Expect(add(scheme)).To(Succeed())
	}
	metav1.AddToGroupVersion(scheme, machinev1alpha1.SchemeGroupVersion)
	return scheme
}
