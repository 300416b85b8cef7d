// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/url"
	"os"
	"slices"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// drainCalls looks at all that the sidecar has asked the shoot for: pods were watched by node and budgets listed by
// namespace, each permission that there is because of drain strategies was needed, and none was missing.
func (l *life) drainCalls() {
	file, err := os.Open(l.landscape.Shoot.AuditLog)
	l.Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	used, lines := sets.New[string](), bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		event := &auditv1.Event{}
		if json.Unmarshal(lines.Bytes(), event) != nil || event.User.Username != "system:serviceaccount:kube-system:machine-preservation-controller" || event.ObjectRef == nil {
			continue
		}
		if event.ResponseStatus != nil {
			l.Expect(event.ResponseStatus.Code).NotTo(BeEquivalentTo(http.StatusForbidden), event.RequestURI)
		}
		what := event.Verb + " " + event.ObjectRef.Resource
		used.Insert(what)
		uri, err := url.Parse(event.RequestURI)
		l.Expect(err).NotTo(HaveOccurred())
		switch what {
		case "list pods", "watch pods":
			l.Expect(uri.Query().Get("fieldSelector")).To(HavePrefix("spec.nodeName="), event.RequestURI)
		case "list poddisruptionbudgets":
			l.Expect(event.ObjectRef.Namespace).NotTo(BeEmpty(), event.RequestURI)
		}
	}
	l.Expect(lines.Err()).NotTo(HaveOccurred())
	l.Expect(sets.List(used)).To(ContainElements("watch pods", "patch pods", "delete pods", "list poddisruptionbudgets"))
	l.Expect(used.Has("watch poddisruptionbudgets")).To(BeFalse())
}

// disableDrainStrategies disables the strategies of the Shoot. A drain that fails is told of, and nothing is done with the
// pod that it fails because of.
func (l *life) disableDrainStrategies() {
	l.setDrainStrategiesDisabled(true)
	defer l.setDrainStrategiesDisabled(false)

	machine := l.machineOf(l.other)
	node := l.nodeOf(l, machine)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "drain-disabled", Namespace: metav1.NamespaceDefault, Finalizers: []string{"e2e.example.org/nobody"}},
		Spec:       corev1.PodSpec{NodeName: node.Name, Containers: []corev1.Container{{Name: "pause", Image: "registry.k8s.io/pause:3.10"}}, TerminationGracePeriodSeconds: new(int64(1))},
	}
	l.Expect(l.Shoot.Create(l.ctx, pod)).To(Succeed())
	l.patchDeployment(machine, `{"spec":{"template":{"metadata":{"annotations":{"e2e":"drain"}}}}}`)
	l.eventually(func(g Gomega) {
		g.Expect(l.nodeOf(g, machine).Status.Conditions).To(ContainElement(And(
			HaveField("Type", BeEquivalentTo(v1alpha1.ConditionNodeDrain)), HaveField("Reason", v1alpha1.ReasonDrainTimedOut), HaveField("Message", ContainSubstring("default/drain-disabled")))))
	})
	l.Expect(l.Shoot.Get(l.ctx, client.ObjectKeyFromObject(pod), pod)).To(Succeed())
	l.Expect(pod.Finalizers).NotTo(BeEmpty())
	l.Expect(l.Shoot.Patch(l.ctx, pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	events := &eventsv1.EventList{}
	l.Expect(l.Shoot.List(l.ctx, events)).To(Succeed())
	l.Expect(slices.ContainsFunc(events.Items, func(e eventsv1.Event) bool {
		return e.Reason == "DrainStrategyActed" && e.Regarding.Name == node.Name
	})).To(BeFalse())
}

// setDrainStrategiesDisabled writes the setting as gardenlet would, and waits until the sidecar has been replaced.
func (l *life) setDrainStrategiesDisabled(disabled bool) {
	l.t.Helper()
	extension := &extensionsv1alpha1.Extension{}
	l.Expect(l.Seed.Get(l.ctx, client.ObjectKey{Namespace: l.Namespace, Name: v1alpha1.ExtensionType}, extension)).To(Succeed())
	config := &v1alpha1.MachinePreservationConfig{}
	l.Expect(json.Unmarshal(extension.Spec.ProviderConfig.Raw, config)).To(Succeed())
	config.DrainStrategies.Disabled = &disabled
	raw, err := json.Marshal(config)
	l.Expect(err).NotTo(HaveOccurred())
	patch := client.MergeFrom(extension.DeepCopy())
	extension.Spec.ProviderConfig = &runtime.RawExtension{Raw: raw}
	l.Expect(l.Seed.Patch(l.ctx, extension, patch)).To(Succeed())

	l.eventually(func(g Gomega) {
		deployment := &appsv1.Deployment{}
		g.Expect(l.Seed.Get(l.ctx, client.ObjectKey{Namespace: l.Namespace, Name: "machine-controller-manager"}, deployment)).To(Succeed())
		flagged := slices.ContainsFunc(deployment.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
			return slices.Contains(c.Args, "--drain-strategies-disabled")
		})
		g.Expect(flagged).To(Equal(disabled))
		status := deployment.Status
		g.Expect(status.ObservedGeneration).To(BeNumerically(">=", deployment.Generation))
		g.Expect([]int32{status.Replicas, status.UpdatedReplicas, status.ReadyReplicas}).To(HaveEach(int32(1)))
	})
}
