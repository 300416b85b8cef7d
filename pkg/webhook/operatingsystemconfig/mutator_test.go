// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package operatingsystemconfig_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	extensionsworkercontroller "github.com/gardener/gardener/extensions/pkg/controller/worker"
	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig"
	"github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/original/components/kubelet"
	oscutils "github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/utils"
	imagevectorutils "github.com/gardener/gardener/pkg/utils/imagevector"
	fakesecretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager/fake"
	"github.com/go-logr/logr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	kubeletconfigv1beta1 "k8s.io/kubelet/config/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/webhook/operatingsystemconfig"
)

const (
	namespace = "shoot--foo--bar"
	rolled    = "rolled"
	inPlace   = "in-place"
	on        = `"evidence":{"enabled":true,"nodeLogs":true}`
)

// fakeManager has a client and nothing else.
type fakeManager struct {
	manager.Manager
	client client.Client
}

func (m *fakeManager) GetClient() client.Client { return m.client }

// seed is an API server that asks our webhook, to which gardenlet writes what is to run on the nodes of a shoot.
type seed struct {
	client.Client
	mutator extensionswebhook.Mutator
	shoot   *gardencorev1beta1.Shoot
}

func newSeed(version string) *seed {
	GinkgoHelper()
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{kubernetesscheme.AddToScheme, extensionscontroller.AddToScheme} {
		Expect(add(scheme)).To(Succeed())
	}
	s := &seed{}
	// What is asked for is the object as it is to be stored, which a patch does not have.
	admit := func(ctx context.Context, c client.Client, object client.Object) error {
		if config, ok := object.(*extensionsv1alpha1.OperatingSystemConfig); ok {
			return errors.Join(s.mutator.Mutate(ctx, config, nil), c.Update(ctx, config))
		}
		return nil
	}
	s.Client = fakeclient.NewClientBuilder().WithScheme(scheme).WithInterceptorFuncs(interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, opts ...client.CreateOption) error {
			return errors.Join(c.Create(ctx, object, opts...), admit(ctx, c, object))
		},
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return errors.Join(c.Patch(ctx, object, patch, opts...), admit(ctx, c, object))
		},
	}).Build()
	s.mutator = NewMutator(&fakeManager{client: s.Client}, s.Client)
	for _, name := range []string{"ca", "ca-kubelet"} {
		Expect(s.Create(context.Background(), &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}})).To(Succeed())
	}

	pool := func(name string, strategy gardencorev1beta1.MachineUpdateStrategy) gardencorev1beta1.Worker {
		return gardencorev1beta1.Worker{
			Name: name, UpdateStrategy: &strategy, CRI: &gardencorev1beta1.CRI{Name: gardencorev1beta1.CRINameContainerD},
			Machine: gardencorev1beta1.Machine{Type: "large", Image: &gardencorev1beta1.ShootMachineImage{Name: "gardenlinux", Version: new("1592.1.0")}},
			Volume:  &gardencorev1beta1.Volume{VolumeSize: "50Gi"},
			Kubernetes: &gardencorev1beta1.WorkerKubernetes{Kubelet: &gardencorev1beta1.KubeletConfig{
				CPUManagerPolicy: new("static"), EvictionHard: &gardencorev1beta1.KubeletConfigEviction{MemoryAvailable: new("5%")},
			}},
		}
	}
	s.shoot = &gardencorev1beta1.Shoot{TypeMeta: metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot"}}
	s.shoot.Spec.Kubernetes.Version = version
	s.shoot.Spec.Provider.Workers = []gardencorev1beta1.Worker{pool(rolled, gardencorev1beta1.AutoRollingUpdate), pool(inPlace, gardencorev1beta1.AutoInPlaceUpdate)}
	raw, err := json.Marshal(s.shoot)
	Expect(err).NotTo(HaveOccurred())
	Expect(s.Create(context.Background(), &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: namespace},
		Spec:       extensionsv1alpha1.ClusterSpec{Shoot: runtime.RawExtension{Raw: raw}},
	})).To(Succeed())
	return s
}

// reconcile does what gardenlet does in a reconciliation, and returns the configurations by their names.
func (s *seed) reconcile(ctx context.Context, config string) map[string]extensionsv1alpha1.OperatingSystemConfig {
	GinkgoHelper()
	extension := &extensionsv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: "machine-preservation", Namespace: namespace}}
	Expect(client.IgnoreNotFound(s.Delete(ctx, extension))).To(Succeed())
	extension.Spec.Type = "machine-preservation"
	extension.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1","kind":"MachinePreservationConfig",` + config + `}`)}
	Expect(s.Create(ctx, extension)).To(Succeed())

	image := func(name string) *imagevectorutils.Image {
		return &imagevectorutils.Image{Name: name, Repository: &name, Tag: new("v1")}
	}
	Expect(operatingsystemconfig.New(logr.Discard(), s, fakesecretsmanager.New(s, namespace), &operatingsystemconfig.Values{
		Namespace: namespace, Workers: s.shoot.Spec.Provider.Workers, KubernetesVersion: semver.MustParse(s.shoot.Spec.Kubernetes.Version),
		InitValues: operatingsystemconfig.InitValues{APIServerURL: "https://api"},
		OriginalValues: operatingsystemconfig.OriginalValues{
			Images:        map[string]*imagevectorutils.Image{"gardener-node-agent": image("agent"), "pause-container": image("pause"), "valitail": image("valitail"), "opentelemetry-collector": image("otel")},
			KubeletConfig: s.shoot.Spec.Kubernetes.Kubelet, ClusterDomain: "cluster.local", ClusterDNSAddresses: []string{"10.0.0.1"}, PrimaryIPFamily: gardencorev1beta1.IPFamilyIPv4,
		},
	}, time.Second, time.Second, time.Second).Deploy(ctx)).To(Succeed())

	list := &extensionsv1alpha1.OperatingSystemConfigList{}
	Expect(s.List(ctx, list)).To(Succeed())
	Expect(list.Items).To(HaveLen(4))
	configs := map[string]extensionsv1alpha1.OperatingSystemConfig{}
	for _, item := range list.Items {
		configs[item.Name] = item
	}
	return configs
}

// of returns the configuration that gardener-node-agent applies on the nodes of a pool.
func of(configs map[string]extensionsv1alpha1.OperatingSystemConfig, pool string) *extensionsv1alpha1.OperatingSystemConfig {
	GinkgoHelper()
	for _, config := range configs {
		if config.Spec.Purpose == extensionsv1alpha1.OperatingSystemConfigPurposeReconcile && config.Labels["worker.gardener.cloud/pool"] == pool {
			return &config
		}
	}
	Fail("there is no such pool")
	return nil
}

func kubeletConfig(config *extensionsv1alpha1.OperatingSystemConfig) *kubeletconfigv1beta1.KubeletConfiguration {
	GinkgoHelper()
	file := extensionswebhook.FileWithPath(config.Spec.Files, "/var/lib/kubelet/config/kubelet")
	Expect(file).NotTo(BeNil())
	decoded, err := kubelet.NewConfigCodec(oscutils.NewFileContentInlineCodec()).Decode(file.Content.Inline)
	Expect(err).NotTo(HaveOccurred())
	return decoded
}

// ours returns what of a configuration is ours.
func ours(config *extensionsv1alpha1.OperatingSystemConfig) (names []string) {
	for _, file := range config.Spec.Files {
		if strings.Contains(file.Path, "machine-preservation") {
			names = append(names, file.Path)
		}
	}
	for _, unit := range config.Spec.Units {
		if strings.Contains(unit.Name, "machine-preservation") {
			names = append(names, unit.Name)
		}
	}
	return names
}

var all = []string{"/etc/systemd/journald.conf.d/90-machine-preservation.conf", "machine-preservation-journal.service", "machine-preservation-kernel.service"}

var _ = Describe("Mutator", func() {
	DescribeTable("has kubelets answer queries of logs, with the feature gate where it is and is needed", func(ctx SpecContext, version string, gates map[string]bool, answers bool, expected map[string]bool) {
		s := newSeed(version)
		s.shoot.Spec.Provider.Workers[0].Kubernetes.Kubelet.FeatureGates = gates
		config := of(s.reconcile(ctx, on), rolled)
		after := kubeletConfig(config)
		if answers {
			Expect(after.EnableSystemLogHandler).To(HaveValue(BeTrue()))
			Expect(after.EnableSystemLogQuery).To(HaveValue(BeTrue()))
		} else {
			Expect(after.EnableSystemLogQuery).To(BeNil())
		}
		Expect(after.FeatureGates).To(Equal(expected))
		Expect(ours(config)).To(Equal(all), "the journal is kept all the same")
	},
		Entry("not known yet", "1.26.9", nil, false, nil),
		Entry("alpha", "1.27.0", nil, true, map[string]bool{"NodeLogQuery": true}),
		Entry("beta, off by default", "1.35.4", nil, true, map[string]bool{"NodeLogQuery": true}),
		Entry("beside another one", "1.33.1", map[string]bool{"Other": false}, true, map[string]bool{"Other": false, "NodeLogQuery": true}),
		Entry("locked to true", "1.36.0", nil, true, nil),
		Entry("set by the Shoot", "1.35.4", map[string]bool{"NodeLogQuery": true}, true, map[string]bool{"NodeLogQuery": true}),
		Entry("refused by the Shoot", "1.35.4", map[string]bool{"NodeLogQuery": false}, false, map[string]bool{"NodeLogQuery": false}),
	)

	It("should go by the version of the pool", func(ctx SpecContext) {
		s := newSeed("1.36.0")
		s.shoot.Spec.Provider.Workers[0].Kubernetes.Version = new("1.35.0")
		raw, err := json.Marshal(s.shoot)
		Expect(err).NotTo(HaveOccurred())
		cluster := &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		Expect(s.Patch(ctx, cluster, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"shoot":`+string(raw)+`}}`)))).To(Succeed())
		configs := s.reconcile(ctx, on)
		Expect(kubeletConfig(of(configs, rolled)).FeatureGates).To(HaveKey("NodeLogQuery"))
		Expect(kubeletConfig(of(configs, inPlace)).FeatureGates).NotTo(HaveKey("NodeLogQuery"))
	})

	DescribeTable("leaves alone what it is not asked for", func(ctx SpecContext, config string) {
		s := newSeed("1.35.0")
		before := s.reconcile(ctx, `"workers":[]`)
		for _, pool := range []string{rolled, inPlace} {
			Expect(ours(of(before, pool))).To(BeEmpty())
		}
		Expect(ours(of(s.reconcile(ctx, on), rolled))).To(Equal(all))
		for name, after := range s.reconcile(ctx, config) {
			Expect(after.Spec).To(Equal(before[name].Spec), "as if it had never been on")
		}
	},
		Entry("no evidence", `"workers":[]`),
		Entry("without logs of nodes", `"evidence":{"enabled":true}`),
		Entry("evidence is off", `"evidence":{"nodeLogs":true}`),
	)

	It("should be stable, and leave alone what starts gardener-node-agent", func(ctx SpecContext) {
		s := newSeed("1.35.0")
		before := s.reconcile(ctx, `"workers":[]`)
		first := s.reconcile(ctx, on)
		for name, again := range s.reconcile(ctx, on) {
			Expect(again.Spec).To(Equal(first[name].Spec))
			if again.Spec.Purpose == extensionsv1alpha1.OperatingSystemConfigPurposeProvision {
				Expect(again.Spec).To(Equal(before[name].Spec))
			}
		}
	})

	It("should do nothing where the extension is not enabled", func(ctx SpecContext) {
		s := newSeed("1.35.0")
		config := of(s.reconcile(ctx, on), rolled)
		Expect(s.Delete(ctx, &extensionsv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Name: "machine-preservation", Namespace: namespace}})).To(Succeed())
		config.Spec.Files, config.Spec.Units = nil, nil
		Expect(s.mutator.Mutate(ctx, config, nil)).To(Succeed())
		Expect(ours(config)).To(BeEmpty())
	})
})

// What rolls a pool is what its hash is made of, and what updates a node in place is what gardener-node-agent compares.
var _ = Describe("Rolling of pools", func() {
	DescribeTable("nothing is rolled or updated in place", func(ctx SpecContext, version string) {
		s := newSeed(version)
		cluster := &extensionscontroller.Cluster{Shoot: s.shoot}
		// hashes returns the hashes of both pools, which are in the names of their MachineClasses and MachineDeployments.
		hashes := func(configs map[string]extensionsv1alpha1.OperatingSystemConfig) (hashes []string) {
			for _, w := range s.shoot.Spec.Provider.Workers {
				key := strings.TrimSuffix(of(configs, w.Name).Name, "-original")
				pool := extensionsv1alpha1.WorkerPool{
					Name: w.Name, NodeAgentSecretName: &key, UpdateStrategy: w.UpdateStrategy, KubernetesVersion: &version, KubeletConfig: w.Kubernetes.Kubelet,
					MachineImage: extensionsv1alpha1.MachineImage{Version: *w.Machine.Image.Version},
				}
				hash, err := extensionsworkercontroller.WorkerPoolHash(pool, cluster, nil, nil)
				Expect(err).NotTo(HaveOccurred())
				hashes = append(hashes, key, hash)
			}
			return hashes
		}

		before := s.reconcile(ctx, `"workers":[]`)
		after := s.reconcile(ctx, on)
		Expect(kubeletConfig(of(after, inPlace))).NotTo(Equal(kubeletConfig(of(before, inPlace))), "there is a change")
		Expect(hashes(after)).To(Equal(hashes(before)))

		// The same comparison sees what does roll.
		s.shoot.Spec.Provider.Workers[0].Kubernetes.Kubelet.CPUManagerPolicy = nil
		s.shoot.Spec.Provider.Workers[1].Kubernetes.Kubelet.CPUManagerPolicy = nil
		Expect(s.Delete(ctx, of(after, rolled))).To(Succeed())
		Expect(s.DeleteAllOf(ctx, &extensionsv1alpha1.OperatingSystemConfig{}, client.InNamespace(namespace))).To(Succeed())
		Expect(hashes(s.reconcile(ctx, on))[1]).NotTo(Equal(hashes(before)[1]))
		Expect(of(after, inPlace).Spec.InPlaceUpdates).To(And(Not(BeNil()), Equal(of(before, inPlace).Spec.InPlaceUpdates)))
	},
		Entry("with the feature gate", "1.35.0"), Entry("without it", "1.36.0"),
	)
})
