// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing/iotest"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

const namespace = "shoot--a--b"

var scheme = runtime.NewScheme()

func init() {
	for _, add := range []func(*runtime.Scheme) error{kubernetesscheme.AddToScheme, machinev1alpha1.AddToScheme, maintenancev1alpha1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
}

// server returns an API server that has objects and answers as it is told.
func server(funcs interceptor.Funcs, objects ...client.Object) client.Reader {
	return fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).WithInterceptorFuncs(funcs).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(obj client.Object) []string { return []string{obj.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&eventsv1.Event{}, "regarding.name", func(obj client.Object) []string { return []string{obj.(*eventsv1.Event).Regarding.Name} }).
		WithIndex(&eventsv1.Event{}, "regarding.kind", func(obj client.Object) []string { return []string{obj.(*eventsv1.Event).Regarding.Kind} }).
		Build()
}

func owned(obj client.Object, kind, uid string) client.Object {
	obj.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "machine.sapcloud.io/v1alpha1", Kind: kind, Name: uid, UID: types.UID(uid), Controller: new(true)}})
	return obj
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, UID: types.UID(name), Labels: map[string]string{}}
}

func machine(name, set, node string) client.Object {
	m := &machinev1alpha1.Machine{ObjectMeta: named(name)}
	if node != "" {
		m.Labels[machinev1alpha1.NodeLabelKey] = node
	}
	m.Status.LastKnownState = "hunter2"
	return owned(m, "MachineSet", set)
}

func seedObjects() []client.Object {
	e := event(namespace, "of-machine", "Machine", "m-1", "MachinePreserved", "kept", 20)
	other := event(namespace, "of-other", "Machine", "m-3", "MachinePreserved", "kept", 20)
	return []client.Object{
		machine("m-1", "s-1", "node-1"), machine("m-2", "s-0", "node-2"), machine("m-3", "other", "node-3"), machine("m-4", "s-1", ""),
		owned(&machinev1alpha1.MachineSet{ObjectMeta: named("s-1")}, "MachineDeployment", "d"),
		owned(&machinev1alpha1.MachineSet{ObjectMeta: named("s-0")}, "MachineDeployment", "d"),
		owned(&machinev1alpha1.MachineSet{ObjectMeta: named("other")}, "MachineDeployment", "e"),
		&machinev1alpha1.MachineDeployment{ObjectMeta: named("d")}, &machinev1alpha1.MachineDeployment{ObjectMeta: named("e")},
		&e, &other,
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-controller-manager"}, Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"role": "mcm"}},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "machine-controller-manager", Args: []string{"--v=3"}}, {
				Name: "machine-preservation-controller", Env: []corev1.EnvVar{{Name: "A", Value: "hunter2"}},
				Args: []string{"--holder=health-timer", "--registry-password=hunter2", "--token", "hunter2", "--url=https://a:hunter2@b",
					"--token-ttl=24h", "--token-file", "/etc/token", "--authorization-mode=RBAC", "--power-cycle"},
			}}}},
		}},
		pod(namespace, "mcm-0", "", map[string]string{"role": "mcm"}, "machine-controller-manager", "machine-controller-manager-provider-local", "machine-preservation-controller", "vpn"),
		pod(namespace, "etcd-0", "", nil, "etcd"),
		pod(namespace, "machine-m-1", "", map[string]string{"machine": "m-1"}, "node"),
	}
}

func pod(namespace, name, node string, labels map[string]string, containers ...string) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}, Spec: corev1.PodSpec{NodeName: node}}
	for _, container := range containers {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: container, Env: []corev1.EnvVar{{Name: "A", Value: "hunter2"}}})
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{Name: container})
	}
	return p
}

func shootObjects() []client.Object {
	ofNode := event("default", "of-node", "Node", "node-1", "NodeNotReady", "not ready", 10)
	ofPod := event("default", "of-pod", "Pod", "p-1", "TaintManagerEviction", "Marking for deletion", 12)
	ofGone := event("default", "of-gone", "Pod", "gone", "Killing", "Stopping container", 12)
	ofGone.DeprecatedSource.Host = "node-1"
	ofOther := event("default", "of-other", "Pod", "p-2", "Killing", "Stopping container", 12)
	ofMaintenance := event("kube-system", "of-maintenance", "NodeMaintenance", "nm-1", "ConditionChanged", "Scheduled", 12)
	node := func(name string) *corev1.Node {
		return &corev1.Node{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"node.gardener.cloud/machine-name": "m" + strings.TrimPrefix(name, "node"), "worker.gardener.cloud/pool": "w"}},
			Status:     corev1.NodeStatus{Images: []corev1.ContainerImage{{Names: []string{"x"}}}},
		}
	}
	labels := map[string]string{"app": "a"}
	return []client.Object{
		node("node-1"), node("node-2"), node("node-3"),
		pod("default", "p-1", "node-1", labels, "c"), pod("default", "p-2", "node-2", labels, "c"),
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b-1"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}}},
		&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "b-2"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: labels}}},
		&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "v-1"}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "node-1", Source: storagev1.VolumeAttachmentSource{InlineVolumeSpec: &corev1.PersistentVolumeSpec{StorageClassName: "hunter2"}}},
			Status: storagev1.VolumeAttachmentStatus{AttachmentMetadata: map[string]string{"a": "hunter2"}}},
		&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "v-2"}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "node-2"}},
		&maintenancev1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "nm-1"}, Spec: maintenancev1alpha1.NodeMaintenanceSpec{NodeName: "node-1"}},
		&maintenancev1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "nm-2"}, Spec: maintenancev1alpha1.NodeMaintenanceSpec{NodeName: "node-2"}},
		&ofNode, &ofPod, &ofGone, &ofOther, &ofMaintenance,
	}
}

// kubelet answers as one does that takes queries of logs, or has only files.
type kubelet struct {
	files bool
	mu    sync.Mutex
	asked []string
}

func (k *kubelet) proxy(_ context.Context, node, path string, query url.Values, last int64) (io.ReadCloser, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.asked = append(k.asked, node+" "+path+" "+query.Get("query"))
	answer := ""
	switch {
	case path == "configz":
		answer = `{"kubeletconfig":{"staticPodURLHeader":{"A":["hunter2"]}}}`
	case path == "stats/summary":
		answer = `{"node":{}}`
	case path == "logs/" && (query.Get("query") == "" || k.files):
		answer = "<!doctype html>\n<meta name=\"viewport\">\n<pre>\n<a href=\"kubelet.log\">kubelet.log</a>\n<a href=\"cloud-init-output.log\">x</a>\n<a href=\"kern.log\">kern.log</a>\n<a href=\"syslog\">x</a>\n<a href=\"messages\">x</a>\n<a href=\"pods/\">pods/</a>\n</pre>\n"
	case path == "logs/":
		answer = "journal of " + query.Get("query") + "\n"
	case last == 0:
		return nil, errors.New("a file is read from its end")
	case path == "logs/kubelet.log", path == "logs/kern.log", path == "logs/syslog", path == "logs/messages":
		answer = "file " + path + " --token=hunter2\n"
	default:
		return nil, apierrors.NewNotFound(schema.GroupResource{}, path)
	}
	return io.NopCloser(strings.NewReader(answer)), nil
}

func podLogs(_ context.Context, _, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error) {
	if options.Container == "machine-controller-manager" {
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "pods/log"}, pod, errors.New("no"))
	}
	return io.NopCloser(strings.NewReader("1 of m-1 password=hunter2\n2 of m-10\n3 of node-1\n")), nil
}

func sources() Sources {
	return Sources{
		Tool: "test", Clock: testclock.NewFakePassiveClock(at(60).Time), Name: "node-1",
		Shoot: server(interceptor.Funcs{}, shootObjects()...), NodeProxy: (&kubelet{}).proxy,
		Seed: server(interceptor.Funcs{}, seedObjects()...), SeedNamespace: namespace, PodLogs: podLogs,
	}
}

func names[T any](items []T, of func(*T) string) []string {
	var names []string
	for i := range items {
		names = append(names, of(&items[i]))
	}
	return names
}

// credentials returns how many the manifest of a bundle says were taken out of texts and logs.
func credentials(archive []byte) int {
	for _, redacted := range manifestOf(archive).Redacted {
		if redacted.What == "what looks like a credential, in texts and logs" {
			return redacted.Count
		}
	}
	return 0
}

// panickyError is one that is not prepared to be told.
type panickyError struct{}

func (panickyError) Error() string { panic("an error without words") }

func reasonOf(s *observed.Snapshot, what string) string {
	if i := slices.IndexFunc(s.Missing, func(m observed.Missing) bool { return m.What() == what }); i >= 0 {
		return s.Missing[i].Reason
	}
	return ""
}

var _ = Describe("#Collect", func() {
	It("should gather what is of the node and its machine, and nothing else", func(ctx SpecContext) {
		b, err := Collect(ctx, sources())
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Node).To(Equal("node-1"))
		Expect(b.Machine).To(Equal("m-1"))
		archive := written(b, DefaultMaxSize)
		s, err := Read(bytes.NewReader(archive))
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Time).To(Equal(at(60).UTC()))
		Expect(names(s.Shoot.Nodes, func(o *corev1.Node) string { return o.Name })).To(Equal([]string{"node-1", "node-2"}))
		Expect(names(s.Shoot.Pods, func(o *corev1.Pod) string { return o.Name })).To(Equal([]string{"p-1"}))
		Expect(names(s.Shoot.PodDisruptionBudgets, func(o *policyv1.PodDisruptionBudget) string { return o.Name })).To(Equal([]string{"b-1"}))
		Expect(names(s.Shoot.VolumeAttachments, func(o *storagev1.VolumeAttachment) string { return o.Name })).To(Equal([]string{"v-1"}))
		Expect(names(s.Shoot.Maintenances, func(o *maintenancev1alpha1.NodeMaintenance) string { return o.Name })).To(Equal([]string{"nm-1"}))
		Expect(names(s.Shoot.Events, func(o *eventsv1.Event) string { return o.Name })).To(Equal([]string{"of-gone", "of-node", "of-pod", "of-maintenance"}))
		Expect(s.Shoot.HasMaintenances).To(BeTrue())
		Expect(names(s.Seed.Machines, func(o *machinev1alpha1.Machine) string { return o.Name })).To(Equal([]string{"m-1", "m-2", "m-4"}))
		Expect(names(s.Seed.MachineSets, func(o *machinev1alpha1.MachineSet) string { return o.Name })).To(Equal([]string{"s-0", "s-1"}))
		Expect(names(s.Seed.MachineDeployments, func(o *machinev1alpha1.MachineDeployment) string { return o.Name })).To(Equal([]string{"d"}))
		Expect(names(s.Seed.Events, func(o *eventsv1.Event) string { return o.Name })).To(Equal([]string{"of-machine"}))
		Expect(s.Seed.Controller).To(Equal(&observed.Controller{Injected: true, Args: []string{
			"--holder=health-timer", "--registry-password=[redacted]", "--token", "[redacted]", "--url=https://[redacted]@b",
			"--token-ttl=24h", "--token-file", "/etc/token", "--authorization-mode=RBAC", "--power-cycle"}}))
		Expect(s.Missing).To(ConsistOf(And(
			HaveField("What()", "log of container machine-controller-manager of pod mcm-0"), HaveField("Reason", ContainSubstring("forbidden")))))

		files, all := unpacked(archive)
		Expect(files).To(HaveKeyWithValue("node/logs/kubelet.log", "journal of kubelet\n"))
		Expect(files).To(HaveKeyWithValue("node/logs/kern.log", "file logs/kern.log --token=[redacted]\n"))
		Expect(files).To(HaveKeyWithValue("seed/logs/mcm-0/machine-preservation-controller.log", "1 of m-1 password=[redacted]\n3 of node-1\n"))
		Expect(files).To(HaveKeyWithValue("seed/logs/machine-m-1/node.log", "1 of m-1 password=[redacted]\n2 of m-10\n3 of node-1\n"))
		Expect(all).To(ContainElements("node/configz.json", "node/stats-summary.json", "seed/machine-pods.json", "seed/logs/mcm-0/machine-controller-manager-provider-local.log"))
		Expect(all).NotTo(ContainElement(Or(ContainSubstring("vpn"), ContainSubstring("etcd"), ContainSubstring("cloud-init"), ContainSubstring("syslog"), ContainSubstring("messages"))))
		for name, data := range files {
			Expect(data).NotTo(ContainSubstring("hunter2"), name)
		}
		Expect(manifestOf(archive).Redacted).To(ContainElements(
			HaveField("What", "values of environment variables of containers"),
			HaveField("What", "last known states of machines (of their providers)"),
			HaveField("What", "lists of images of nodes"),
		))

		again, err := Collect(ctx, sources())
		Expect(err).NotTo(HaveOccurred())
		Expect(written(again, DefaultMaxSize)).To(Equal(archive))
	})

	It("should have what the machine runs on, without what is redacted, or say why not", func(ctx SpecContext) {
		host := map[string]any{
			"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost",
			"metadata": map[string]any{
				"namespace": "hosts", "name": "h", "managedFields": []any{map[string]any{"manager": "hunter2"}},
				"annotations": map[string]any{
					"kubectl.kubernetes.io/last-applied-configuration": `{"password":"hunter2"}`, "example.com/a": "hunter2",
					"metal.ironcore.dev/operation": "park", "machine-preservation.extensions.gardener.cloud/power-cycle-owner": `{"cycles":[]}`,
				},
			},
			"spec":   map[string]any{"bmc": map[string]any{"address": "redfish://admin:hunter2@192.0.2.1", "credentialsName": "bmc-h"}, "userData": map[string]any{"name": "u"}},
			"status": map[string]any{"errorMessage": "login failed: password=hunter2"},
		}
		from := sources()
		from.Host = func(_ context.Context, machine *machinev1alpha1.Machine) ([]unstructured.Unstructured, error) {
			Expect(machine.Name).To(Equal("m-1"))
			u := unstructured.Unstructured{Object: host}
			return []unstructured.Unstructured{*u.DeepCopy()}, errors.New("its Server cannot be read")
		}
		b, err := Collect(ctx, from)
		Expect(err).NotTo(HaveOccurred())
		archive := written(b, DefaultMaxSize)
		files, _ := unpacked(archive)
		Expect(files["seed/hosts.json"]).NotTo(Or(ContainSubstring("hunter2"), ContainSubstring("managedFields")))
		s, err := Read(bytes.NewReader(archive))
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Seed.Hosts).To(HaveLen(1))
		Expect(s.Seed.Hosts[0].GetName()).To(Equal("h"))
		Expect(s.Seed.Hosts[0].GetAnnotations()).To(Equal(map[string]string{
			"metal.ironcore.dev/operation": "park", "machine-preservation.extensions.gardener.cloud/power-cycle-owner": `{"cycles":[]}`,
		}))
		Expect(reasonOf(s, "host of the machine")).To(Equal("its Server cannot be read"))
	})

	It("should read pages as if they were one, as JSON is decoded", func(ctx SpecContext) {
		s := sources()
		shoot := s.Shoot.(client.WithWatch)
		s.Shoot = interceptor.NewClient(shoot, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*maintenancev1alpha1.NodeMaintenanceList); !ok {
				return c.List(ctx, list, opts...)
			}
			page := `{"metadata":{"continue":"more"},"items":[{"metadata":{"name":"a","labels":{"a":"a"},"annotations":{"gardener.cloud/a":"a"}},"spec":{"nodeName":"node-1"}}]}`
			if (&client.ListOptions{}).ApplyOptions(opts).Continue == "more" {
				page = `{"metadata":{},"items":[{"metadata":{"name":"b","labels":{"b":"b"}},"spec":{"nodeName":"node-1"}}]}`
			}
			return json.Unmarshal([]byte(page), list)
		}})
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Snapshot.Shoot.Maintenances).To(HaveExactElements(
			HaveField("ObjectMeta", metav1.ObjectMeta{Name: "a", Labels: map[string]string{"a": "a"}, Annotations: map[string]string{"gardener.cloud/a": "a"}}),
			HaveField("ObjectMeta", metav1.ObjectMeta{Name: "b", Labels: map[string]string{"b": "b"}}),
		))
	})

	It("should do without the seed, and say so", func(ctx SpecContext) {
		s := sources()
		s.Seed, s.SeedNamespace, s.PodLogs = nil, "", nil
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Machine).To(Equal("m-1"))
		Expect(b.Snapshot.Seed).To(BeNil())
		Expect(b.Snapshot.Shoot.Nodes).To(HaveLen(1))
		Expect(b.Snapshot.Missing).To(ConsistOf(observed.Missing{Thing: observed.WhatSeed, Reason: "there is no access to the seed"}))
	})

	It("should note that nobody says how the preservation controller runs, or that none does", func(ctx SpecContext) {
		s := sources()
		s.Seed = server(interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("forbidden")
		}}, seedObjects()...)
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Snapshot.Seed.Controller).To(BeNil())
		Expect(reasonOf(&b.Snapshot, observed.WhatController.Text())).To(Equal("forbidden"))

		s.PodLogs, s.Controller = nil, &observed.Controller{Injected: true, Args: []string{"--token=hunter2"}}
		b, err = Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Snapshot.Missing).To(BeEmpty(), "who knows asks nobody")
		Expect(b.Snapshot.Seed.Controller).To(Equal(&observed.Controller{Injected: true, Args: []string{"--token=[redacted]"}}))
		Expect(s.Controller.Args).To(Equal([]string{"--token=hunter2"}))
		s = sources()

		mcm := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "machine-controller-manager"}}
		s.Seed = server(interceptor.Funcs{}, append(seedObjects()[:9:9], mcm)...)
		b, err = Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		read, err := Read(bytes.NewReader(written(b, DefaultMaxSize)))
		Expect(err).NotTo(HaveOccurred())
		Expect(read.Seed.Controller).To(Equal(&observed.Controller{}))
	})

	It("should list budgets by namespace", func(ctx SpecContext) {
		s, namespaces := sources(), []string{}
		shoot := s.Shoot.(client.WithWatch)
		s.Shoot = interceptor.NewClient(shoot, interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*policyv1.PodDisruptionBudgetList); ok {
				namespaces = append(namespaces, (&client.ListOptions{}).ApplyOptions(opts).Namespace)
			}
			return c.List(ctx, list, opts...)
		}})
		_, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(namespaces).To(And(ContainElement("default"), Not(ContainElement(""))))
	})

	It("should not let the shoot choose among the pods of the control plane", func(ctx SpecContext) {
		s := sources()
		s.Name = "node-9"
		s.Shoot = server(interceptor.Funcs{}, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-9", Labels: map[string]string{"node.gardener.cloud/machine-name": "etcd-0"}}})
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		_, all := unpacked(written(b, DefaultMaxSize))
		Expect(all).NotTo(ContainElement(Or(HavePrefix("seed/logs/"), Equal("seed/machine-pods.json"))))
		Expect(reasonOf(&b.Snapshot, "logs of the seed")).To(Equal("the seed does not have this machine"))

		s = sources()
		s.Seed = server(interceptor.Funcs{}, append(seedObjects(), pod(namespace, "other", "", map[string]string{"app": "m-1"}, "c"))...)
		b, err = Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		_, all = unpacked(written(b, DefaultMaxSize))
		Expect(all).NotTo(ContainElement(HavePrefix("seed/logs/other")))
		Expect(all).To(ContainElement("seed/logs/machine-m-1/node.log"))
	})

	It("should ask nobody how the preservation controller runs if it is known", func(ctx SpecContext) {
		s := sources()
		args := []string{"--token=hunter2"}
		s.Controller = &observed.Controller{Injected: true, Args: args}
		s.Seed = server(interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("forbidden")
		}}, seedObjects()...)
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Snapshot.Seed.Controller).To(Equal(&observed.Controller{Injected: true, Args: []string{"--token=[redacted]"}}))
		Expect(args).To(Equal([]string{"--token=hunter2"}))
		Expect(reasonOf(&b.Snapshot, observed.WhatController.Text())).To(BeEmpty())
	})

	It("should say that what has no machines is no seed", func(ctx SpecContext) {
		s := sources()
		s.Seed = server(interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return &meta.NoKindMatchError{}
		}})
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(reasonOf(&b.Snapshot, "what the seed knows: machines, their Events and logs")).To(Equal("it does not have this API: check that this is the seed"))
	})

	It("should take a machine whose node is gone, and one that never joined", func(ctx SpecContext) {
		s := sources()
		s.Name, s.Shoot = "m-1", server(interceptor.Funcs{}, shootObjects()[3:]...)
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Node).To(Equal("node-1"))
		Expect(reasonOf(&b.Snapshot, "node node-1")).To(Equal("it is gone, or never joined"))
		Expect(b.Snapshot.Shoot.Events).NotTo(BeEmpty())

		s = sources()
		s.Name = "m-4"
		b, err = Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Node).To(BeEmpty())
		Expect(b.Machine).To(Equal("m-4"))
		Expect(reasonOf(&b.Snapshot, "node of machine m-4")).To(Equal("the machine has no node: it has not joined"))
		files, _ := unpacked(written(b, DefaultMaxSize))
		Expect(files["index.md"]).To(HavePrefix("# Evidence of machine m-4\n"))
	})

	It("should refuse what there is not, or what cannot be asked", func(ctx SpecContext) {
		s := sources()
		s.Name = "node-9"
		_, err := Collect(ctx, s)
		Expect(err).To(MatchError(ErrNotFound))

		down := interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return errors.New("connection refused")
		}}
		s.Shoot = server(down)
		_, err = Collect(ctx, s)
		Expect(err).To(MatchError(And(ContainSubstring("the seed has no machine"), ContainSubstring("connection refused"))))
		s.Seed = nil
		_, err = Collect(ctx, s)
		Expect(err).To(MatchError(And(ContainSubstring("nothing is known of"), ContainSubstring("connection refused"))))
		Expect(errors.Is(err, ErrNotFound)).To(BeFalse())
	})

	It("should take what the seed knows while the shoot is down, and ask the shoot once", func(ctx SpecContext) {
		calls := 0
		s := sources()
		s.Shoot = server(interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				calls++
				return errors.New("connection refused")
			},
			List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				calls++
				return errors.New("connection refused")
			},
		})
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(calls).To(Equal(1))
		Expect(b.Snapshot.Seed.Machines).To(HaveLen(3))
		Expect(reasonOf(&b.Snapshot, "what the shoot knows")).To(Equal("connection refused"))
	})

	It("should note what a viewer may not see, and that there is no API of maintenances", func(ctx SpecContext) {
		s := sources()
		s.Shoot = server(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			switch list.(type) {
			case *corev1.PodList:
				return apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "", errors.New("a viewer of nodes"))
			case *maintenancev1alpha1.NodeMaintenanceList:
				return &meta.NoKindMatchError{}
			}
			return c.List(ctx, list, opts...)
		}}, shootObjects()...)
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(reasonOf(&b.Snapshot, "pods of the node")).To(ContainSubstring("a viewer of nodes"))
		Expect(b.Snapshot.Missing).NotTo(ContainElement(HaveField("Thing", observed.WhatMaintenances)), "nothing is missing")
		Expect(b.Snapshot.Shoot.HasMaintenances).To(BeFalse())
		Expect(b.Snapshot.Shoot.VolumeAttachments).To(HaveLen(1))
	})

	It("should note what could not be had because it panics, and have the rest", func(ctx SpecContext) {
		s := sources()
		s.Shoot = server(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*corev1.PodList); ok {
				panic("a pod that nobody has thought of")
			}
			return c.List(ctx, list, opts...)
		}}, shootObjects()...)
		s.Seed = server(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(*eventsv1.EventList); ok {
				return panickyError{}
			}
			return c.List(ctx, list, opts...)
		}}, seedObjects()...)
		s.NodeProxy = func(context.Context, string, string, url.Values, int64) (io.ReadCloser, error) { panic("a kubelet") }
		s.PodLogs = func(context.Context, string, string, *corev1.PodLogOptions) (io.ReadCloser, error) {
			return nil, panickyError{}
		}
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(reasonOf(&b.Snapshot, observed.WhatPods.Text())).To(Equal("panic: a pod that nobody has thought of"))
		Expect(reasonOf(&b.Snapshot, "the rest of "+observed.WhatMachineEvents.Text())).To(Equal("panic: an error without words"))
		Expect(reasonOf(&b.Snapshot, "the rest of logs of the seed")).To(Equal("panic: an error without words"))
		Expect(b.Snapshot.Missing).To(ContainElement(HaveField("Reason", "panic: a kubelet")))
		Expect(b.Snapshot.Shoot.VolumeAttachments).To(HaveLen(1))
		Expect(b.Snapshot.Shoot.Events).NotTo(BeEmpty())
	})

	It("should note that the node could not be had though the shoot answers", func(ctx SpecContext) {
		s := sources()
		s.Name, s.Shoot = "m-1", server(interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return apierrors.NewInternalError(errors.New("etcdserver: request timed out"))
		}}, shootObjects()...)
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(reasonOf(&b.Snapshot, "node")).To(ContainSubstring("etcdserver"))
		Expect(b.Snapshot.Shoot.Pods).To(HaveLen(1))
	})

	It("should read lists in pages", func(ctx SpecContext) {
		s := sources()
		s.Shoot = server(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			attachments, ok := list.(*storagev1.VolumeAttachmentList)
			if !ok {
				return c.List(ctx, list, opts...)
			}
			options := (&client.ListOptions{}).ApplyOptions(opts)
			Expect(options.Limit).To(BeEquivalentTo(50))
			page := map[string]string{"": "a", "a": "b", "b": ""}
			*attachments = storagev1.VolumeAttachmentList{ListMeta: metav1.ListMeta{Continue: page[options.Continue]}, Items: []storagev1.VolumeAttachment{
				{ObjectMeta: metav1.ObjectMeta{Name: "v" + options.Continue}, Spec: storagev1.VolumeAttachmentSpec{NodeName: "node-1"}},
			}}
			return nil
		}}, shootObjects()...)
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(names(b.Snapshot.Shoot.VolumeAttachments, func(o *storagev1.VolumeAttachment) string { return o.Name })).To(Equal([]string{"v", "va", "vb"}))
	})

	It("should take files where the kubelet answers no queries of logs", func(ctx SpecContext) {
		s := sources()
		s.NodeProxy = (&kubelet{files: true}).proxy
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		files, _ := unpacked(written(b, DefaultMaxSize))
		Expect(files).To(HaveKeyWithValue("node/logs/kubelet.log", "file logs/kubelet.log --token=[redacted]\n"))
		Expect(reasonOf(&b.Snapshot, "log of containerd")).To(ContainSubstring("enableSystemLogQuery"))
	})

	It("should ask for the journals of this boot and of the one before, and take no more than is wanted", func(ctx SpecContext) {
		var asked []string
		s := sources()
		s.MaxLog = 64 << 10
		s.NodeProxy = func(ctx context.Context, node, path string, query url.Values, last int64) (io.ReadCloser, error) {
			if query.Get("query") == "" {
				return (&kubelet{}).proxy(ctx, node, path, query, last)
			}
			asked = append(asked, query.Encode())
			line := "Nov 24 10:00:00 " + query.Get("query") + " of boot " + query.Get("boot") + " password=hunter2\n"
			return io.NopCloser(strings.NewReader(strings.Repeat(line, 4000))), nil
		}
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		var want []string
		for _, boot := range []string{"0", "-1"} {
			for _, service := range []string{"kubelet", "containerd", "gardener-node-agent", "machine-preservation-kernel"} {
				want = append(want, "boot="+boot+"&query="+service+"&tailLines=312")
			}
		}
		Expect(asked).To(Equal(want), "the other boot comes last")
		files, _ := unpacked(written(b, DefaultMaxSize))
		for name, line := range map[string]string{
			"kernel.log": "machine-preservation-kernel of boot 0", "kernel-previous-boot.log": "machine-preservation-kernel of boot -1",
			"kubelet.log": "kubelet of boot 0", "kubelet-previous-boot.log": "kubelet of boot -1",
		} {
			Expect(files["node/logs/"+name]).To(HaveSuffix("Nov 24 10:00:00 " + line + " password=[redacted]\n"))
			Expect(len(files["node/logs/"+name])).To(And(BeNumerically(">", 32<<10), BeNumerically("<", 96<<10)))
		}
	})

	It("should take logs that were gathered earlier if there are no others, and say so", func(ctx SpecContext) {
		s := sources()
		earlier := CollectNodeLogs(ctx, Sources{Clock: testclock.NewFakePassiveClock(at(50).Time), Name: "node-1", NodeProxy: (&kubelet{}).proxy, MaxLog: 64 << 10})
		Expect(earlier).NotTo(BeNil())
		s.EarlierLogs = earlier
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		whole := written(b, DefaultMaxSize)
		files, names := unpacked(whole)
		Expect(files).To(HaveKey("node/logs/kubelet.log"))
		Expect(names).NotTo(ContainElement(ContainSubstring("earlier")))

		s.NodeProxy = func(context.Context, string, string, url.Values, int64) (io.ReadCloser, error) {
			return nil, errors.New("dead")
		}
		b, err = Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		archive := written(b, DefaultMaxSize)
		files, names = unpacked(archive)
		Expect(files).To(And(HaveKeyWithValue("node/logs/earlier/kubelet.log", "journal of kubelet\n"), HaveKeyWithValue("node/logs/earlier/kern.log", "file logs/kern.log --token=[redacted]\n")))
		Expect(names).NotTo(ContainElement("node/logs/kubelet.log"))
		Expect(reasonOf(&b.Snapshot, "the rest of logs of the node")).To(Equal("those in the folder earlier were gathered at " + at(50).UTC().Format(time.RFC3339)))
		Expect(credentials(archive)).To(And(Not(BeZero()), Equal(credentials(whole))))
		Expect(CollectNodeLogs(ctx, Sources{Clock: s.Clock, Name: "node-1", NodeProxy: s.NodeProxy})).To(BeNil())
		Expect(Read(bytes.NewReader(archive))).NotTo(BeNil(), "and it can be read")
	})

	It("should ask for nothing but logs when it gathers them early", func(ctx SpecContext) {
		asked := &kubelet{}
		Expect(CollectNodeLogs(ctx, Sources{Clock: sources().Clock, Name: "node-1", NodeProxy: asked.proxy})).NotTo(BeNil())
		Expect(asked.asked).NotTo(BeEmpty())
		Expect(asked.asked).To(HaveEach(HavePrefix("node-1 logs/")))
	})

	It("should take those of earlier logs of which there is only a beginning, or nothing any more", func(ctx SpecContext) {
		s := sources()
		s.EarlierLogs = CollectNodeLogs(ctx, Sources{Clock: testclock.NewFakePassiveClock(at(50).Time), Name: "node-1", NodeProxy: (&kubelet{}).proxy})
		s.NodeProxy = func(ctx context.Context, node, path string, query url.Values, last int64) (io.ReadCloser, error) {
			switch {
			case query.Get("query") == "kubelet" && query.Get("boot") == "0":
				return io.NopCloser(io.MultiReader(strings.NewReader("Nov 24 10:00:00 a stub\n"), iotest.ErrReader(errors.New("dead")))), nil
			case path == "logs/kern.log":
				return nil, errors.New("dead")
			}
			return (&kubelet{}).proxy(ctx, node, path, query, last)
		}
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		files, names := unpacked(written(b, DefaultMaxSize))
		Expect(files).To(HaveKeyWithValue("node/logs/kubelet.log", "Nov 24 10:00:00 a stub\n"))
		names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, "node/logs/earlier/") })
		Expect(names).To(ConsistOf("node/logs/earlier/kubelet.log", "node/logs/earlier/kern.log"))
	})

	DescribeTable("should not take for a log what says that there is none", func(ctx SpecContext, answer string, refused bool) {
		s := sources()
		s.NodeProxy = func(ctx context.Context, node, path string, query url.Values, last int64) (io.ReadCloser, error) {
			switch {
			case query.Get("query") == "":
				return (&kubelet{}).proxy(ctx, node, path, query, last)
			case query.Get("boot") == "-1" || query.Get("query") == "kubelet":
				return io.NopCloser(strings.NewReader(answer)), nil
			}
			return io.NopCloser(strings.NewReader("Nov 24 10:00:00 x\n")), nil
		}
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		files, _ := unpacked(written(b, DefaultMaxSize))
		if refused {
			Expect(files).To(HaveKeyWithValue("node/logs/kubelet.log", "file logs/kubelet.log --token=[redacted]\n"), "the file of its name takes the place")
			Expect(files).NotTo(HaveKey("node/logs/containerd-previous-boot.log"))
			Expect(b.Snapshot.Missing).NotTo(ContainElement(HaveField("What()", ContainSubstring("before the last boot"))), "there may have been no other boot")
		} else {
			Expect(files).To(HaveKeyWithValue("node/logs/kubelet.log", answer))
			Expect(files).To(HaveKeyWithValue("node/logs/containerd-previous-boot.log", answer))
		}
	},
		Entry("no entries", "-- No entries --\n", true),
		Entry("no journal", "No journal files were found.\n-- No entries --\n", true),
		Entry("no such boot", "Data from the specified boot (-1) is not available: No such boot ID in journal\n", true),
		Entry("no such boot, of a newer journalctl", "No journal boot entry found for the specified boot offset (-1).\n", true),
		Entry("no journal on disk", "Specifying boot ID or boot offset has no effect, no persistent journal was found.\n", true),
		Entry("a failure of journalctl", "Failed to iterate through journal: Bad message\n", true),
		Entry("a service that has no journal", "\noptions present and query resolved to log files for [kubelet]\ntry without specifying options\n", true),
		Entry("no journalctl", "\nerror: journal output not available\n", true),
		Entry("a log that says so", "Nov 24 10:00:00 node-1 kubelet[1]: Failed to start\n", false),
		Entry("a log of several boots", "-- Boot 0123456789abcdef --\nNov 24 10:00:00 x\n", false),
	)

	It("should have the end of a file begin with a whole line, and say that it is not all", func(ctx SpecContext) {
		s, k := sources(), &kubelet{files: true}
		s.NodeProxy = func(ctx context.Context, node, path string, query url.Values, last int64) (io.ReadCloser, error) {
			if path != "logs/kern.log" {
				return k.proxy(ctx, node, path, query, last)
			}
			// Within the name of a credential, after which lines are long.
			end := "word=hunter2\n" + strings.Repeat("x", 20<<10) + "\n"
			return io.NopCloser(strings.NewReader(end + strings.Repeat("y\n", int(last)-len(end))[:int(last)-len(end)])), nil
		}
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		archive := written(b, DefaultMaxSize)
		files, _ := unpacked(archive)
		Expect(files["node/logs/kern.log"][:100]).To(HavePrefix("y\ny\n"))
		Expect(manifestOf(archive).Files).To(ContainElements(
			And(HaveField("Path", "node/logs/kern.log"), HaveField("Cut", BeEquivalentTo(len("word=hunter2\n")+16<<10+1)), HaveField("Size", BeNumerically(">", 4<<20-10<<10))),
			And(HaveField("Path", "node/logs/kubelet.log"), HaveField("Cut", BeZero()), HaveField("Size", BeNumerically(">", 0)))))
	})

	It("should keep nothing of a configuration that is too large to be one, nor of statistics with too many fields", func(ctx SpecContext) {
		s := sources()
		s.NodeProxy = func(ctx context.Context, node, path string, query url.Values, last int64) (io.ReadCloser, error) {
			if path == "configz" || path == "stats/summary" {
				return io.NopCloser(strings.NewReader("[" + strings.Repeat("0,", 2<<20-2) + "0]")), nil
			}
			return (&kubelet{}).proxy(ctx, node, path, query, last)
		}
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(reasonOf(&b.Snapshot, "configuration of the kubelet")).To(Equal("it is larger than 262144 bytes"))
		read, err := Read(bytes.NewReader(written(b, DefaultMaxSize)))
		Expect(err).NotTo(HaveOccurred())
		Expect(reasonOf(read, "file node/stats-summary.json")).To(HavePrefix("it has 2097151 fields and items"))
		Expect(read.Missing).To(HaveLen(len(b.Snapshot.Missing)+1), "all else is there")
	})

	DescribeTable("statistics that would grow when their texts are cut", func(ctx SpecContext, depth int, gathered, stored string) {
		s := sources()
		s.NodeProxy = func(ctx context.Context, node, path string, query url.Values, last int64) (io.ReadCloser, error) {
			if path == "stats/summary" {
				return io.NopCloser(strings.NewReader(`{"message":"` + noiseOf(rand.New(rand.NewSource(1)))(64<<10) + `","a":` + strings.Repeat("[", depth-1) + strings.Repeat("]", depth-1) + "}")), nil
			}
			return (&kubelet{}).proxy(ctx, node, path, query, last)
		}
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(reasonOf(&b.Snapshot, "statistics of the kubelet")).To(Equal(gathered))
		read, err := Read(bytes.NewReader(written(b, 32<<10)))
		Expect(err).NotTo(HaveOccurred())
		Expect(reasonOf(read, "labels, annotations or messages in node/stats-summary.json")).To(BeEmpty())
		Expect(reasonOf(read, "file node/stats-summary.json")).To(Equal(stored))
	},
		Entry("are left out as they are", 32, "", "it does not fit into 32768 bytes"),
		Entry("are not kept if they are nested as no statistics are", 33, "it is nested more than 32 levels deep", ""),
	)

	DescribeTable("a kubelet that is not to be asked again", func(ctx SpecContext, failure error) {
		asked := 0
		s := sources()
		s.NodeProxy = func(context.Context, string, string, url.Values, int64) (io.ReadCloser, error) {
			asked++
			return nil, failure
		}
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(asked).To(Equal(1))
		Expect(reasonOf(&b.Snapshot, "what the kubelet knows: its configuration, statistics and logs of the node")).To(ContainSubstring("x"))
	},
		Entry("dead", &apierrors.StatusError{ErrStatus: metav1.Status{Code: http.StatusBadGateway, Message: "dial tcp: x"}}),
		Entry("not for a viewer", apierrors.NewForbidden(schema.GroupResource{Resource: "nodes/proxy"}, "x", nil)),
		Entry("not reached", errors.New("x")),
	)

	It("should end in time although nothing answers, and keep what it had", func(ctx SpecContext) {
		DeferCleanup(SetTimeouts(time.Second))
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		s := sources()
		s.Shoot = server(interceptor.Funcs{List: func(ctx context.Context, _ client.WithWatch, _ client.ObjectList, _ ...client.ListOption) error {
			return hang(ctx)
		}}, shootObjects()...)
		s.NodeProxy = func(ctx context.Context, _, path string, _ url.Values, _ int64) (io.ReadCloser, error) {
			if path == "configz" {
				return io.NopCloser(strings.NewReader("{}")), nil
			}
			return nil, hang(ctx)
		}
		// A log that begins and does not go on.
		s.PodLogs = func(context.Context, string, string, *corev1.PodLogOptions) (io.ReadCloser, error) {
			r, w := io.Pipe()
			go func() { _, _ = io.WriteString(w, "m-1 begins\n") }()
			return r, nil
		}
		limited, cancel := context.WithTimeout(ctx, 2500*time.Millisecond)
		defer cancel()
		began := time.Now()
		b, err := Collect(limited, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(time.Since(began)).To(BeNumerically("<", 15*time.Second))
		Expect(b.Snapshot.Shoot.Nodes).To(HaveLen(1))
		Expect(reasonOf(&b.Snapshot, "pods of the node")).To(Equal("no answer within 1s"))
		Expect(reasonOf(&b.Snapshot, "Events of the node's pods")).To(Equal("there was no time left"))
		Expect(reasonOf(&b.Snapshot, "statistics of the kubelet")).To(Equal("no answer within 1s"))
		files, _ := unpacked(written(b, DefaultMaxSize))
		Expect(files).To(HaveKeyWithValue("seed/logs/machine-m-1/node.log", "m-1 begins\n"))
		Expect(reasonOf(&b.Snapshot, "log of container node of pod machine-m-1")).To(HavePrefix("only its beginning: "))
	}, SpecTimeout(time.Minute))

	It("should end at once when it is cancelled", func(ctx SpecContext) {
		cancelled, cancel := context.WithCancel(ctx)
		cancel()
		_, err := Collect(cancelled, sources())
		Expect(err).To(MatchError(context.Canceled))
	})

	It("should look at no pods of the seed where their logs are not asked for", func(ctx SpecContext) {
		s := sources()
		s.PodLogs, s.NodeProxy = nil, nil
		s.Seed = server(interceptor.Funcs{List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			Expect(list).NotTo(BeAssignableToTypeOf(&corev1.PodList{}))
			return c.List(ctx, list, opts...)
		}}, seedObjects()...)
		b, err := Collect(ctx, s)
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Snapshot.Missing).To(BeEmpty())
	})
})
