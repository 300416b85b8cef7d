// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/nodemaintenance"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
)

const (
	record  = "machine-preservation.extensions.gardener.cloud/maintenance-cordon"
	patient = time.Minute
)

// example is that of the document which describes the API, for a node of ours.
const example = `
apiVersion: maintenance.nvidia.com/v1alpha1
kind: NodeMaintenance
metadata:
  name: my-maintenance-operation
  namespace: default
spec:
  requestorID: some.one.acme.com
  nodeName: worker-01
  cordon: true
  waitForPodCompletion:
    podSelector: "app=important"
    timeoutSeconds: 0
  drainSpec:
    force: true
    podSelector: ""
    timeoutSeconds: 0
    deleteEmptyDir: true
    podEvictionFilters:
    - byResourceNameRegex: nvidia.com/gpu-*
    - byResourceNameRegex: nvidia.com/rdma*
`

// object parses a manifest.
func object(manifest string) *unstructured.Unstructured {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(manifest), &u.Object)).To(Succeed())
	return u
}

// request returns a NodeMaintenance with nothing but what must be there, and some fields of the spec.
func request(name, node string, spec map[string]any) *unstructured.Unstructured {
	u := object(fmt.Sprintf("{apiVersion: maintenance.nvidia.com/v1alpha1, kind: NodeMaintenance, metadata: {name: %s, namespace: default}, spec: {requestorID: acme.com, nodeName: %s}}", name, node))
	for key, value := range spec {
		u.Object["spec"].(map[string]any)[key] = value
	}
	return u
}

func get(ctx context.Context, name string) *v1alpha1.NodeMaintenance {
	nm := &v1alpha1.NodeMaintenance{}
	if err := s.Get(ctx, client.ObjectKey{Namespace: "default", Name: name}, nm); err != nil {
		ExpectWithOffset(1, client.IgnoreNotFound(err)).To(Succeed())
		return nil
	}
	return nm
}

func phase(ctx context.Context, name string) func() string {
	return func() string {
		if nm := get(ctx, name); nm != nil {
			return domain.PhaseOf(nm)
		}
		return "gone"
	}
}

func node(ctx context.Context, name string) *corev1.Node {
	n := &corev1.Node{}
	ExpectWithOffset(1, s.Get(ctx, client.ObjectKey{Name: name}, n)).To(Succeed())
	return n
}

func remove(ctx context.Context, name string) {
	GinkgoHelper()
	if nm := get(ctx, name); nm != nil {
		Expect(client.IgnoreNotFound(s.Delete(ctx, nm))).To(Succeed())
		Eventually(phase(ctx, name), patient).Should(Equal("gone"))
	}
}

func exists(ctx context.Context, p *corev1.Pod) func() bool {
	return func() bool {
		err := s.Get(ctx, client.ObjectKeyFromObject(p), p.DeepCopy())
		Expect(client.IgnoreNotFound(err)).To(Succeed())
		return err == nil
	}
}

// limit sets the limits.
func limit(ctx context.Context, parallel, unavailable string) {
	GinkgoHelper()
	Eventually(func() error {
		config := &v1alpha1.MaintenanceOperatorConfig{}
		if err := s.Get(ctx, maintenance.ConfigKey, config); err != nil {
			return err
		}
		config.Spec.MaxParallelOperations, config.Spec.MaxUnavailable = new(intstr.Parse(parallel)), new(intstr.Parse(unavailable))
		return s.Update(ctx, config)
	}).Should(Succeed())
}

var _ = Describe("Node maintenance", Ordered, func() {
	BeforeAll(func(ctx SpecContext) {
		create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}})
		Expect(client.IgnoreAlreadyExists(s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "kube-system"}}))).To(Succeed())
	})

	AfterEach(func(ctx SpecContext) {
		list := &v1alpha1.NodeMaintenanceList{}
		if err := s.List(ctx, list); meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
			return
		}
		for i := range list.Items {
			remove(ctx, list.Items[i].Name)
		}
		for _, name := range nodeNames {
			Eventually(func() bool { return domain.IsMarked(node(ctx, name)) || node(ctx, name).Spec.Unschedulable }, patient).Should(BeFalse(), name)
		}
	})

	It("M17: should preserve as long as the resource definitions are not there, and begin when they come", func(ctx SpecContext) {
		machine := &machinev1alpha1.Machine{}
		key := client.ObjectKey{Namespace: "shoot--test--one", Name: "worker-01"}
		Eventually(func(g Gomega) {
			g.Expect(s.Get(ctx, key, machine)).To(Succeed())
			machine.Annotations = map[string]string{"node.machine.sapcloud.io/preserve": "now"}
			g.Expect(s.Update(ctx, machine)).To(Succeed())
		}).Should(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(s.Get(ctx, key, machine)).To(Succeed())
			g.Expect(machine.Annotations).To(HaveKey("machine-preservation.extensions.gardener.cloud/phase"))
		}, time.Minute).Should(Succeed())
		Expect(running.Stopped).NotTo(BeClosed())

		_, err := envtest.InstallCRDs(s.Config, envtest.CRDInstallOptions{Paths: []string{"../../../pkg/component/nodemaintenance/crds"}, ErrorIfPathMissing: true})
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Create(ctx, &v1alpha1.MaintenanceOperatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "default"}})).To(Succeed())
		Expect(s.Create(ctx, request("first", "worker-02", nil))).To(Succeed())
		Eventually(phase(ctx, "first"), time.Minute).Should(Equal("Ready"))
	})

	It("should store what is asked for, with defaults, and refuse what cannot be", func(ctx SpecContext) {
		Expect(s.Create(ctx, object(example), client.DryRunAll)).To(Succeed())
		limit(ctx, "0", "0") // nothing is scheduled
		Expect(s.Create(ctx, request("a", "worker-01", map[string]any{"drainSpec": map[string]any{}}))).To(Succeed())
		nm := get(ctx, "a")
		Expect(nm.Spec).To(Equal(v1alpha1.NodeMaintenanceSpec{RequestorID: "acme.com", NodeName: "worker-01", Cordon: new(true), DrainSpec: &v1alpha1.DrainSpec{TimeoutSeconds: new(int32(300))}}))
		typed := &v1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"}, Spec: v1alpha1.NodeMaintenanceSpec{
			RequestorID: "acme.com", NodeName: "worker-02", Cordon: new(false), DrainSpec: &v1alpha1.DrainSpec{TimeoutSeconds: new(int32(0))},
		}}
		Expect(s.Create(ctx, typed)).To(Succeed())
		Expect(get(ctx, "b").Spec).To(And(HaveField("Cordon", HaveValue(BeFalse())), HaveField("DrainSpec.TimeoutSeconds", HaveValue(BeZero()))))

		Eventually(phase(ctx, "a"), patient).Should(Equal("Pending"))
		for field, value := range map[string]string{"nodeName": "worker-02", "requestorID": "other.com"} {
			patch := fmt.Appendf(nil, `{"spec":{%q:%q}}`, field, value)
			Expect(s.Patch(ctx, get(ctx, "a"), client.RawPatch("application/merge-patch+json", patch))).To(MatchError(ContainSubstring("Value is immutable")))
		}
		Expect(s.Patch(ctx, get(ctx, "a"), client.RawPatch("application/merge-patch+json", []byte(`{"spec":null}`)))).To(MatchError(ContainSubstring("Required value")))
		for name, spec := range map[string]map[string]any{
			"requestor-short":   {"requestorID": "a"},
			"requestor-pattern": {"requestorID": "a_b"},
			"node-path":         {"nodeName": "a/b"},
			"node-pattern":      {"nodeName": "50%"},
			"wait-timeout":      {"waitForPodCompletion": map[string]any{"timeoutSeconds": int64(-1)}},
			"drain-timeout":     {"drainSpec": map[string]any{"timeoutSeconds": int64(-1)}},
			"requestors-twice":  {"additionalRequestors": []any{"x", "x"}},
			"too-many-filters":  {"drainSpec": map[string]any{"podEvictionFilters": slices.Repeat([]any{map[string]any{"byResourceNameRegex": "a"}}, 33)}},
		} {
			Expect(s.Create(ctx, request(name, "worker-01", spec))).To(Satisfy(apierrors.IsInvalid), name)
		}

		selected := &v1alpha1.NodeMaintenanceList{}
		Expect(s.List(ctx, selected, client.MatchingFields{"spec.nodeName": "worker-02"})).To(Succeed())
		Expect(selected.Items).To(ConsistOf(HaveField("Name", "b")))
		Expect(s.List(ctx, selected, client.MatchingFields{"spec.requestorID": "nobody.com"})).To(Succeed())
		Expect(selected.Items).To(BeEmpty())

		for i, value := range []any{"abc", "5", "101%", "-1%", int64(-1), int64(1 << 40)} {
			config := object("{apiVersion: maintenance.nvidia.com/v1alpha1, kind: MaintenanceOperatorConfig, metadata: {namespace: default}}")
			config.SetName(fmt.Sprintf("bad-%d", i))
			for _, field := range []string{"maxParallelOperations", "maxUnavailable"} {
				config.Object["spec"] = map[string]any{field: value}
				Expect(s.Create(ctx, config)).To(Satisfy(apierrors.IsInvalid), fmt.Sprint(field, value))
			}
		}
		config := &v1alpha1.MaintenanceOperatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "good"}, Spec: v1alpha1.MaintenanceOperatorConfigSpec{MaxUnavailable: new(intstr.Parse("20%"))}}
		Expect(s.Create(ctx, config)).To(Succeed())
		Expect(config.Spec).To(Equal(v1alpha1.MaintenanceOperatorConfigSpec{
			MaxParallelOperations: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.Parse("20%")), LogLevel: "info", MaxNodeMaintenanceTimeSeconds: new(int32(3600)),
		}))
		Expect(s.Patch(ctx, config, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"logLevel":"trace"}}`)))).To(Satisfy(apierrors.IsInvalid))
	})

	It("M3, M16: should show what is done on the node, tell of each phase, and drain a node again that somebody has uncordoned while it was ready", func(ctx SpecContext) {
		limit(ctx, "1", "100%")
		Expect(s.Create(ctx, request("vanished", "worker-02", map[string]any{"drainSpec": map[string]any{"force": true}}))).To(Succeed())
		Eventually(phase(ctx, "vanished"), patient).Should(Equal("Ready"))
		Eventually(func() []corev1.NodeCondition { return node(ctx, "worker-02").Status.Conditions }, patient).Should(And(
			ContainElement(HaveField("Type", corev1.NodeConditionType("MaintenanceInProgress"))), ContainElement(HaveField("Type", corev1.NodeConditionType("Drained"))),
			ContainElement(HaveField("Type", corev1.NodeReady)),
		))
		Eventually(func() []string {
			list := &eventsv1.EventList{}
			Expect(s.List(ctx, list, client.MatchingFields{"regarding.name": "vanished", "reason": "ConditionChanged"})).To(Succeed())
			var notes []string
			for _, e := range list.Items {
				notes = append(notes, e.Note)
			}
			return notes
		}, patient).Should(ContainElements("Pending", "Scheduled", "Cordon", "Draining", "Ready"))
		late := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "late"},
			// There is no kubelet that would end it.
			Spec: corev1.PodSpec{NodeName: "worker-02", Containers: []corev1.Container{{Name: "c", Image: "i"}}, TerminationGracePeriodSeconds: new(int64(0))},
		}
		create(ctx, late)
		Consistently(exists(ctx, late), time.Second).Should(BeTrue(), "nobody looks as long as the node is cordoned")
		Expect(s.Patch(ctx, node(ctx, "worker-02"), client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"unschedulable":false}}`)))).To(Succeed())
		Eventually(exists(ctx, late), patient).Should(BeFalse())
		Expect(node(ctx, "worker-02").Spec.Unschedulable).To(BeTrue())
		Expect(phase(ctx, "vanished")()).To(Equal("Ready"))
		Eventually(func() *v1alpha1.DrainStatus { return get(ctx, "vanished").Status.Drain }, patient).Should(HaveValue(HaveField("DrainProgress", int32(100))))
	})

	It("M3: should carry on what an earlier version has cordoned", func(ctx SpecContext) {
		limit(ctx, "1", "100%")
		Expect(s.Create(ctx, request("earlier", "worker-02", nil))).To(Succeed())
		Eventually(phase(ctx, "earlier"), patient).Should(Equal("Ready"))
		uid := string(get(ctx, "earlier").UID)
		legacy := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}},"spec":{"taints":[{"key":"machine-preservation.extensions.gardener.cloud/maintenance","value":%q,"effect":"NoSchedule"}]}}`, record, uid)
		Expect(s.Patch(ctx, node(ctx, "worker-02"), client.RawPatch("application/merge-patch+json", legacy))).To(Succeed())
		// A version looks at each node when it starts. This one runs already, so something has to make it look.
		Expect(s.Patch(ctx, get(ctx, "earlier"), client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"test":"look"}}}`)))).To(Succeed())
		Eventually(func() *corev1.Node { return node(ctx, "worker-02") }, patient).Should(And(
			HaveField("Annotations", HaveKeyWithValue(record, uid)), HaveField("Spec.Unschedulable", true),
			HaveField("Spec.Taints", Not(ContainElement(HaveField("Value", uid)))),
		))
	})

	It("M11: should use a slot within a second from when it is freed", func(ctx SpecContext) {
		limit(ctx, "1", "100%")
		for i, name := range nodeNames {
			Expect(s.Create(ctx, request(fmt.Sprintf("slot-%d", i), name, nil))).To(Succeed())
		}
		ready := func() string {
			list := &v1alpha1.NodeMaintenanceList{}
			Expect(s.List(ctx, list)).To(Succeed())
			names := ""
			for i := range list.Items {
				if domain.InProgress(&list.Items[i]) {
					names += list.Items[i].Name + " " + domain.PhaseOf(&list.Items[i]) + " "
				}
			}
			return names
		}
		for range len(nodeNames) - 1 {
			Eventually(ready, patient).Should(MatchRegexp(`^slot-\d Ready $`))
			inProgress := get(ctx, ready()[:len("slot-0")])

			events, err := s.Watch(ctx, &v1alpha1.NodeMaintenanceList{})
			Expect(err).NotTo(HaveOccurred())
			Expect(s.Delete(ctx, inProgress)).To(Succeed())
			var freed, used time.Time
			for used.IsZero() {
				var event watch.Event
				Eventually(events.ResultChan(), patient).Should(Receive(&event))
				switch nm := event.Object.(*v1alpha1.NodeMaintenance); {
				case event.Type == watch.Deleted:
					freed = time.Now()
				case nm.UID != inProgress.UID && domain.InProgress(nm):
					used = time.Now()
				}
			}
			events.Stop()
			Expect(freed).NotTo(BeZero(), "M10: the limit is never exceeded")
			AddReportEntry("a freed slot was used after", used.Sub(freed))
			Expect(used.Sub(freed)).To(BeNumerically("<", time.Second))
		}
	})

	It("M15, M17: should refuse a node that has no machine, and set back what is on one that is terminated", func(ctx SpecContext) {
		limit(ctx, "0", "100%")
		create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "foreign"}})
		Expect(s.Create(ctx, request("foreign", "foreign", nil))).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(phase(ctx, "foreign")()).To(Equal("Pending"))
			g.Expect(meta.FindStatusCondition(get(ctx, "foreign").Status.Conditions, "Ready").Message).To(Equal("The node has no Machine."))
		}, patient).Should(Succeed())

		Expect(s.Create(ctx, request("going", "worker-05", nil))).To(Succeed())
		Eventually(phase(ctx, "going"), patient).Should(Equal("Ready"))
		machine := &machinev1alpha1.Machine{}
		Expect(s.Get(ctx, client.ObjectKey{Namespace: "shoot--test--one", Name: "worker-05"}, machine)).To(Succeed())
		patch := client.MergeFrom(machine.DeepCopy()) // the preservation may write it at the same time
		machine.Finalizers = []string{"machine.sapcloud.io/machine-controller"}
		Expect(s.Patch(ctx, machine, patch)).To(Succeed())
		Expect(s.Delete(ctx, machine)).To(Succeed())
		Eventually(phase(ctx, "going"), patient).Should(Equal("Pending"))
		Expect(node(ctx, "worker-05").Spec.Unschedulable).To(BeTrue(), "it is machine-controller-manager's")
		Expect(s.Delete(ctx, node(ctx, "worker-05"))).To(Succeed())
		nodeNames = nodeNames[:4]
		Eventually(func() []string { return get(ctx, "going").Finalizers }, patient).Should(BeEmpty())
	})

	It("M7: should give back to the second what is ready for too long although others wait, or the requestor has failed", func(ctx SpecContext) {
		limit(ctx, "0", "100%")
		Eventually(func() error {
			config := &v1alpha1.MaintenanceOperatorConfig{}
			Expect(s.Get(ctx, maintenance.ConfigKey, config)).To(Succeed())
			config.Spec.MaxNodeMaintenanceTimeSeconds = new(int32(4))
			return s.Update(ctx, config)
		}).Should(Succeed())
		since := map[string]time.Time{}
		for name, node := range map[string]string{"shared": "worker-01", "failed": "worker-02"} {
			var spec map[string]any
			if name == "shared" { // from the beginning: it is deleted after four seconds if nobody else has it
				spec = map[string]any{"additionalRequestors": []any{"b.com"}}
			}
			Expect(s.Create(ctx, request(name, node, spec))).To(Succeed())
			Eventually(phase(ctx, name), patient).Should(Equal("Ready"))
			since[name] = meta.FindStatusCondition(get(ctx, name).Status.Conditions, "Ready").LastTransitionTime.Time
		}
		Expect(s.Delete(ctx, get(ctx, "shared"))).To(Succeed())
		failed := get(ctx, "failed")
		patch := client.MergeFrom(failed.DeepCopy())
		meta.SetStatusCondition(&failed.Status.Conditions, metav1.Condition{Type: "RequestorFailed", Status: "True", Reason: "Failed"})
		Expect(s.Status().Patch(ctx, failed, patch)).To(Succeed())
		for _, name := range []string{"shared", "failed"} {
			Eventually(phase(ctx, name), patient, 50*time.Millisecond).Should(Equal("gone"))
			Expect(time.Since(since[name])).To(And(BeNumerically(">=", 7*time.Second), BeNumerically("<", 15*time.Second)), "4 seconds, and 3 more")
		}
		Eventually(toldOf(ctx, "MaintenanceEnded"), patient).Should(ConsistOf("shared", "failed"))
	})

	It("M1: should say within a second that a node does not exist, also in what kubectl shows", func(ctx SpecContext) {
		Expect(s.Create(ctx, request("lost", "worker-99", nil))).To(Succeed())
		Eventually(func() []any { return shown(ctx, "nodemaintenances", "lost") }, time.Second).Should(Equal([]any{"lost", "worker-99", "acme.com", "False", "Pending", nil, "Node worker-99 does not exist."}))
		Eventually(toldOf(ctx, "MaintenanceRefused"), time.Second).Should(ContainElement("lost"))
	})

	It("M17: should say within a second that nobody reads a configuration, and refuse it where the policy is", func(ctx SpecContext) {
		elsewhere := &v1alpha1.MaintenanceOperatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}}
		Expect(s.Create(ctx, elsewhere)).To(Succeed())
		const message = "This object has no effect. The limits are those of kube-system/default. Set them in the Shoot."
		Eventually(func() []any { return shown(ctx, "maintenanceoperatorconfigs", "default") }, time.Second).Should(Equal([]any{"default", "1", nil, "False", message}))
		Eventually(toldOf(ctx, "MaintenanceConfigNotUsed"), time.Second).Should(ContainElement("default"))
		config := &v1alpha1.MaintenanceOperatorConfig{}
		Expect(s.Get(ctx, maintenance.ConfigKey, config)).To(Succeed())
		Expect(meta.IsStatusConditionTrue(config.Status.Conditions, "Used")).To(BeTrue())

		for _, object := range nodemaintenance.Policy() {
			Expect(s.Create(ctx, object)).To(Succeed())
			DeferCleanup(func(ctx SpecContext) { Expect(s.Delete(ctx, object)).To(Succeed()) })
		}
		refused := func(name string) func() error {
			return func() error {
				return s.Create(ctx, &v1alpha1.MaintenanceOperatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", GenerateName: name}})
			}
		}
		Eventually(refused("other"), patient).Should(MatchError(ContainSubstring("nobody would read it: the limits are those of kube-system/default, and are set in the Shoot")))
		Expect(refused("default")()).To(Satisfy(apierrors.IsForbidden))
		elsewhere.Annotations = map[string]string{"a": "b"}
		Expect(s.Patch(ctx, elsewhere, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"a":"b"}}}`)))).To(Succeed(), "what is there can be changed")
		Expect(s.Delete(ctx, elsewhere)).To(Succeed())
		Expect(s.Delete(ctx, config)).To(Succeed())
		Expect(s.Create(ctx, &v1alpha1.MaintenanceOperatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "default"}})).To(Succeed())
	})

	describeReplicas()
})

// toldOf returns the objects that Events have with a reason.
func toldOf(ctx context.Context, reason string) func() []string {
	return func() []string {
		list := &eventsv1.EventList{}
		Expect(s.List(ctx, list)).To(Succeed())
		var names []string
		for _, event := range list.Items {
			if event.Reason == reason {
				names = append(names, event.Regarding.Name)
			}
		}
		return names
	}
}

// shown returns what kubectl shows of an object in namespace default, without its age.
func shown(ctx context.Context, resource, name string) []any {
	GinkgoHelper()
	config := rest.CopyConfig(s.Config)
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/apis", &v1alpha1.SchemeGroupVersion, scheme.Codecs.WithoutConversion()
	restClient, err := rest.RESTClientFor(config)
	Expect(err).NotTo(HaveOccurred())
	raw, err := restClient.Get().Namespace("default").Resource(resource).Name(name).SetHeader("Accept", "application/json;as=Table;v=v1;g=meta.k8s.io").Do(ctx).Raw()
	Expect(err).NotTo(HaveOccurred())
	table := &metav1.Table{}
	Expect(json.Unmarshal(raw, table)).To(Succeed())
	Expect(table.Rows).To(HaveLen(1))
	var cells []any
	for i, column := range table.ColumnDefinitions {
		if column.Priority == 0 {
			cells = append(cells, table.Rows[0].Cells[i])
		}
	}
	return cells
}
