// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package nodelogs_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/Masterminds/semver/v3"
	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	nodeagentconfigv1alpha1 "github.com/gardener/gardener/pkg/apis/config/nodeagent/v1alpha1"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/original/components"
	"github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/original/components/kubelet"
	nodeagentcomponent "github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/original/components/nodeagent"
	oscutils "github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig/utils"
	"github.com/gardener/gardener/pkg/nodeagent/controller/operatingsystemconfig"
	fakedbus "github.com/gardener/gardener/pkg/nodeagent/dbus/fake"
	. "github.com/onsi/gomega"
	"github.com/spf13/afero"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	webhook "github.com/gardener/gardener-extension-machine-preservation/pkg/webhook/operatingsystemconfig"
)

const namespace = "shoot--foo--bar"

// fakeManager has a client and nothing else.
type fakeManager struct {
	manager.Manager
	client client.Client
}

func (m *fakeManager) GetClient() client.Client { return m.client }

// agent is a node of a pool that is updated in place, with its gardener-node-agent.
type agent struct {
	*operatingsystemconfig.Reconciler
	dbus *fakedbus.DBus
}

func newAgent(t *testing.T) *agent {
	t.Helper()
	g := NewWithT(t)
	files := afero.Afero{Fs: afero.NewMemMapFs()}
	g.Expect(files.MkdirAll(nodeagentconfigv1alpha1.TempDir, 0o755)).To(Succeed())
	g.Expect(files.WriteFile("/etc/os-release", []byte("PRETTY_NAME=\"Garden Linux 1592.1.0\"\n"), 0o644)).To(Succeed())
	g.Expect(files.WriteFile("/etc/systemd/journald.conf", []byte("[Journal]\nMaxFileSec=24h\n"), 0o644)).To(Succeed())
	c := fakeclient.NewClientBuilder().WithScheme(kubernetesscheme.Scheme).WithObjects(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}).Build()
	a := &agent{dbus: fakedbus.New()}
	a.Reconciler = &operatingsystemconfig.Reconciler{
		APIReader: c, Client: c, LeaseClient: c, Clock: clock.RealClock{}, Recorder: &events.FakeRecorder{}, DBus: a.dbus, FS: files, HostName: "node-1", NodeName: "node-1",
		Config:        nodeagentconfigv1alpha1.OperatingSystemConfigControllerConfig{SyncPeriod: &metav1.Duration{}, KubernetesVersion: semver.MustParse("1.35.0")},
		CancelContext: func() {},
	}
	return a
}

// apply has the agent apply a configuration, and returns whether it has, and what systemd was asked for, in the order of the names.
func (a *agent) apply(t *testing.T, config *extensionsv1alpha1.OperatingSystemConfig) (applied bool, actions []string) {
	t.Helper()
	g, ctx := NewWithT(t), t.Context()
	secret, err := nodeagentcomponent.OperatingSystemConfigSecret(ctx, a.Client, config, "osc", "pool", false)
	g.Expect(err).NotTo(HaveOccurred())
	g.Expect(client.IgnoreNotFound(a.Client.Delete(ctx, secret.DeepCopy()))).To(Succeed())
	g.Expect(a.Client.Create(ctx, secret)).To(Succeed())
	a.dbus.Actions = nil
	_, err = a.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(secret)})
	g.Expect(err).NotTo(HaveOccurred())

	node := &corev1.Node{}
	g.Expect(a.Client.Get(ctx, client.ObjectKey{Name: "node-1"}, node)).To(Succeed())
	applied = node.Annotations[nodeagentconfigv1alpha1.AnnotationKeyChecksumAppliedOperatingSystemConfig] == secret.Annotations[nodeagentconfigv1alpha1.AnnotationKeyChecksumDownloadedOperatingSystemConfig]
	for _, action := range a.dbus.Actions {
		verb := map[fakedbus.Action]string{fakedbus.ActionRestart: "restart", fakedbus.ActionStop: "stop", fakedbus.ActionReboot: "reboot"}[action.Action]
		if verb != "" {
			actions = append(actions, verb+" "+strings.Join(action.UnitNames, " "))
		}
	}
	slices.Sort(actions)
	return applied, actions
}

// configOf returns what is to run on the nodes of a pool that is updated in place, as far as the kubelet goes, with what is ours if
// evidence is to have logs of nodes.
func configOf(t *testing.T, providerConfig string) *extensionsv1alpha1.OperatingSystemConfig {
	t.Helper()
	g := NewWithT(t)
	codec := oscutils.NewFileContentInlineCodec()
	content, err := kubelet.NewConfigCodec(codec).Encode(kubelet.Config([]string{"10.0.0.1"}, "cluster.local", nil, components.ConfigurableKubeletConfigParameters{
		CpuManagerPolicy: new("static"), EvictionHard: map[string]string{"memory.available": "5%"}, KubeReserved: map[string]string{"cpu": "80m"},
	}), "")
	g.Expect(err).NotTo(HaveOccurred())
	config := &extensionsv1alpha1.OperatingSystemConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "pool", Labels: map[string]string{"worker.gardener.cloud/pool": "pool"}},
		Spec: extensionsv1alpha1.OperatingSystemConfigSpec{
			Purpose:        extensionsv1alpha1.OperatingSystemConfigPurposeReconcile,
			InPlaceUpdates: &extensionsv1alpha1.InPlaceUpdates{OperatingSystemVersion: "1592.1.0", KubeletVersion: "1.35.0"},
			Files:          []extensionsv1alpha1.File{{Path: kubelet.PathKubeletConfig, Content: extensionsv1alpha1.FileContent{Inline: content}}},
			Units: []extensionsv1alpha1.Unit{
				{Name: "kubelet.service", Content: new("[Service]\nExecStart=/opt/bin/kubelet\n"), FilePaths: []string{kubelet.PathKubeletConfig}},
				{Name: "containerd.service"},
			},
		},
	}

	scheme := runtime.NewScheme()
	g.Expect(extensionscontroller.AddToScheme(scheme)).To(Succeed())
	shoot := &gardencorev1beta1.Shoot{TypeMeta: metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot"}}
	shoot.Spec.Kubernetes.Version = "1.35.0"
	raw, err := json.Marshal(shoot)
	g.Expect(err).NotTo(HaveOccurred())
	extension := &extensionsv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-preservation"}}
	extension.Spec.Type = "machine-preservation"
	extension.Spec.ProviderConfig = &runtime.RawExtension{Raw: []byte(`{"apiVersion":"machine-preservation.extensions.gardener.cloud/v1alpha1","kind":"MachinePreservationConfig"` + providerConfig + `}`)}
	c := fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(extension, &extensionsv1alpha1.Cluster{
		ObjectMeta: metav1.ObjectMeta{Name: namespace}, Spec: extensionsv1alpha1.ClusterSpec{Shoot: runtime.RawExtension{Raw: raw}},
	}).Build()
	g.Expect(webhook.NewMutator(&fakeManager{client: c}, c).Mutate(context.Background(), config, nil)).To(Succeed())
	return config
}

const on = `,"evidence":{"enabled":true,"nodeLogs":true}`

func TestNodeAgentAppliesItWithoutAnUpdateInPlace(t *testing.T) {
	g := NewWithT(t)
	a := newAgent(t)
	_, _ = a.apply(t, configOf(t, ""))

	applied, actions := a.apply(t, configOf(t, on))
	g.Expect(applied).To(BeTrue())
	g.Expect(actions).To(Equal([]string{"restart kubelet.service", "restart machine-preservation-journal.service", "restart machine-preservation-kernel.service"}))
	const settings = "/etc/systemd/journald.conf.d/90-machine-preservation.conf"
	read := func(path string) string {
		data, err := a.FS.ReadFile(path)
		g.Expect(err).NotTo(HaveOccurred())
		return string(data)
	}
	g.Expect(read(settings)).To(ContainSubstring("Storage=persistent"))
	g.Expect(read(kubelet.PathKubeletConfig)).To(ContainSubstring("enableSystemLogQuery: true"))
	g.Expect(read("/etc/systemd/system/machine-preservation-kernel.service")).To(ContainSubstring("dmesg --follow"))

	changed := configOf(t, on)
	for i := range changed.Spec.Files {
		if changed.Spec.Files[i].Path == settings {
			changed.Spec.Files[i].Content.Inline.Data += "SystemKeepFree=1G\n"
		}
	}
	_, actions = a.apply(t, changed)
	g.Expect(actions).To(Equal([]string{"restart machine-preservation-journal.service"}), "other settings of a later version")

	applied, actions = a.apply(t, configOf(t, ""))
	g.Expect(applied).To(BeTrue())
	g.Expect(actions).To(Equal([]string{"restart kubelet.service", "stop machine-preservation-journal.service", "stop machine-preservation-kernel.service"}), "journald is not stopped")
	g.Expect(read(kubelet.PathKubeletConfig)).NotTo(ContainSubstring("SystemLogQuery"))
	for _, path := range []string{settings, "/etc/systemd/system/machine-preservation-journal.service", "/etc/systemd/system/machine-preservation-kernel.service"} {
		g.Expect(a.FS.Exists(path)).To(BeFalse(), path)
	}
	g.Expect(a.FS.Exists("/etc/systemd/journald.conf")).To(BeTrue())
}

// That it was applied says something, as with an update in place it would not have been: the node has to be drained for that.
func TestNodeAgentWaitsForAnUpdateInPlace(t *testing.T) {
	g := NewWithT(t)
	a := newAgent(t)
	config := configOf(t, "")
	_, _ = a.apply(t, config)
	codec := kubelet.NewConfigCodec(oscutils.NewFileContentInlineCodec())
	changed, err := codec.Decode(config.Spec.Files[0].Content.Inline)
	g.Expect(err).NotTo(HaveOccurred())
	changed.CPUManagerPolicy = "none"
	config.Spec.Files[0].Content.Inline, err = codec.Encode(changed, "")
	g.Expect(err).NotTo(HaveOccurred())
	applied, actions := a.apply(t, config)
	g.Expect(applied).To(BeFalse())
	g.Expect(actions).To(BeEmpty())
}
