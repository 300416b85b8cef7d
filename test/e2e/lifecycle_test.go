// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	failuresv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/failures/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/machinefailures"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/hours"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/conformance"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

// The pools that are used while something is done to a Shoot as a whole, of which the first has a share.
const autoPool, otherPool = "auto", "other"

// life is what is done to a Shoot as a whole while machines of it are preserved.
type life struct {
	*conformance.Environment
	*WithT

	t         *testing.T
	ctx       context.Context
	landscape *landscape.Landscape
	shoot     *gardencorev1beta1.Shoot
}

func runLifecycle(t *testing.T, generation string) {
	inTurn(t)
	g := NewWithT(t)
	l, ctx := startLandscape(t, "lifecycle-"+generation, landscape.Options{MCM: generation, Hosts: hosts.BareMetalHost, MaxMachineHours: lifecycleHours})
	shoot := withPowerCycles(g, shootFor(g, []conformance.Scenario{{Name: autoPool, Share: 1}, {Name: otherPool}}))
	g.Expect(seed.ApplyShoot(ctx, l.Seed.Config, shoot)).To(Succeed())
	g.Expect(seed.WaitForShoot(ctx, l.Seed.Config, shootName)).To(Succeed())

	whole := func(do func(*life)) func(*testing.T) {
		return func(t *testing.T) {
			do(&life{Environment: environmentOf(NewWithT(t), l), WithT: NewWithT(t), t: t, ctx: ctx, landscape: l, shoot: shoot})
		}
	}
	switch generation { // neither depends on it
	case "0.61":
		t.Run("without failure history", whole((*life).withoutFailures))
	case "0.62":
		t.Run("docs: the commands of the pages", whole((*life).docs))
	}
	t.Run("P17, P18: machine-hours", whole((*life).machineHours))
	t.Run("P9: without access", whole((*life).withoutAccess))
	t.Run("P10, X15: disabled", whole((*life).disable))
	t.Run("P4: hibernation", whole((*life).hibernate))
}

// lifecycleHours are more machine-hours than anything but machineHours uses.
const lifecycleHours = 1000

// machineHours has an account of which half a minute is left. A machine that a person asks for is released when that is over, and not
// preserved again until the account begins anew.
func (l *life) machineHours() {
	began := hours.New(time.Now())
	began.Pools = map[string]int64{otherPool: lifecycleHours*int64(time.Hour/time.Second) - 30}
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: l.Namespace, Name: hours.ConfigMapName}, Data: map[string]string{hours.Key: began.Encode()}}
	l.Expect(client.IgnoreNotFound(l.Seed.Delete(l.ctx, stored.DeepCopy()))).To(Succeed())
	l.Expect(l.Seed.Create(l.ctx, stored)).To(Succeed())
	l.Expect(killSidecar(l.ctx, l.Seed)).To(Succeed())

	machine := l.machineOf(otherPool)
	request := func(value string) {
		l.t.Helper()
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"node.machine.sapcloud.io/preserve":%s}}}`, value))
		l.Expect(l.Shoot.Patch(l.ctx, l.nodeOf(l, machine), patch)).To(Succeed())
	}
	told := func(reason, text string) {
		l.t.Helper()
		l.eventually(func(g Gomega) {
			events := &eventsv1.EventList{}
			g.Expect(l.Seed.List(l.ctx, events, client.InNamespace(l.Namespace), client.MatchingFields{"regarding.name": machine.Name})).To(Succeed())
			g.Expect(events.Items).To(ContainElement(And(HaveField("Reason", reason), HaveField("Note", ContainSubstring(text)))))
		})
	}
	request(`"now"`)
	told(preservation.EventReleased, preservation.WhyHoursUsedUp.Text)
	l.eventually(func(g Gomega) {
		g.Expect(l.fresh(g, machine).Annotations).NotTo(HaveKey(v1alpha1.AnnotationCause))
		g.Expect(l.Seed.Get(l.ctx, client.ObjectKeyFromObject(stored), stored)).To(Succeed())
		account, err := hours.Decode(stored.Data[hours.Key])
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(account.Used(time.Now())).To(BeNumerically("~", lifecycleHours*int64(time.Hour/time.Second), 20))
		g.Expect(account.SpentAt).NotTo(BeZero())
	})
	request(`"now"`)
	told(preservation.EventRefused, preservation.WhyHoursUsedUp.Text)
	request("null")

	l.Expect(l.Seed.Delete(l.ctx, stored)).To(Succeed())
	l.Expect(killSidecar(l.ctx, l.Seed)).To(Succeed())
	l.preserveOnRequest()
}

// withoutAccess takes the access secret from under the pod of machine-controller-manager, restarts the pod without it and
// with an empty one, and gives it back.
func (l *life) withoutAccess() {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shoot-access-machine-preservation-controller", Namespace: l.Namespace}}
	l.Expect(l.Seed.Delete(l.ctx, secret)).To(Succeed())
	l.preserveOnRequest()

	l.restartMachineControllerManager()
	l.replace(l.machineOf(otherPool))

	empty := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secret.Name, Namespace: secret.Namespace}}
	l.Expect(l.Seed.Create(l.ctx, empty)).To(Succeed())
	l.restartMachineControllerManager()
	l.replace(l.machineOf(otherPool))

	l.apply(l.shoot)
	l.preserveOnRequest()
}

// preserveOnRequest has a machine preserved as a person asks for it, until he asks no more.
func (l *life) preserveOnRequest() {
	l.t.Helper()
	machine := l.machineOf(otherPool)
	request := func(value string) {
		patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{"node.machine.sapcloud.io/preserve":%s}}}`, value))
		l.Expect(l.Shoot.Patch(l.ctx, l.nodeOf(l, machine), patch)).To(Succeed())
	}
	request(`"now"`)
	l.eventually(func(g Gomega) {
		g.Expect(l.fresh(g, machine).Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPhase, runningPreserved))
	})
	request("null")
	l.eventually(func(g Gomega) {
		g.Expect(l.fresh(g, machine).Annotations).NotTo(HaveKey(v1alpha1.AnnotationCause))
	})
}

// restartMachineControllerManager replaces the pod, and waits until all containers of the new one run.
func (l *life) restartMachineControllerManager() {
	l.t.Helper()
	pods := &corev1.PodList{}
	selector := client.MatchingLabels{"app": "kubernetes", "role": "machine-controller-manager"}
	l.Expect(l.Seed.List(l.ctx, pods, client.InNamespace(l.Namespace), selector)).To(Succeed())
	old := sets.New[types.UID]()
	for _, pod := range pods.Items {
		old.Insert(pod.UID)
		l.Expect(l.Seed.Delete(l.ctx, &pod)).To(Succeed())
	}
	l.eventually(func(g Gomega) {
		g.Expect(l.Seed.List(l.ctx, pods, client.InNamespace(l.Namespace), selector)).To(Succeed())
		g.Expect(pods.Items).To(HaveLen(1))
		g.Expect(old.Has(pods.Items[0].UID)).To(BeFalse())
		g.Expect(pods.Items[0].Status.ContainerStatuses).To(And(HaveLen(3), HaveEach(HaveField("Ready", BeTrue()))))
	})
}

// replace deletes a machine, and waits until machine-controller-manager has deleted it and made another one.
func (l *life) replace(machine *machinev1alpha1.Machine) {
	l.t.Helper()
	known := sets.New[types.UID]()
	siblings := func(g Gomega) []machinev1alpha1.Machine {
		machines := &machinev1alpha1.MachineList{}
		g.Expect(l.Seed.List(l.ctx, machines, client.InNamespace(l.Namespace))).To(Succeed())
		return slices.DeleteFunc(machines.Items, func(m machinev1alpha1.Machine) bool {
			return m.Spec.NodeTemplateSpec.Labels[poolLabel] != machine.Spec.NodeTemplateSpec.Labels[poolLabel]
		})
	}
	for _, sibling := range siblings(l) {
		known.Insert(sibling.UID)
	}
	l.Expect(l.Seed.Delete(l.ctx, machine)).To(Succeed())
	l.eventually(func(g Gomega) {
		current := siblings(g)
		g.Expect(current).NotTo(ContainElement(HaveField("UID", machine.UID)))
		g.Expect(current).To(ContainElement(Satisfy(func(m machinev1alpha1.Machine) bool {
			return !known.Has(m.UID) && m.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning
		})))
	})
}

// disable takes the extension from the Shoot while a failed and a running machine are preserved, and the host of another one is
// off, and gives it back.
func (l *life) disable() {
	failed, healthy := l.machineOf(autoPool), l.machineOf(otherPool)
	l.preserve(failed, healthy)
	off := l.machineOf(otherPool)
	letOn := l.keepOff(off)

	disabled := l.shoot.DeepCopy()
	disabled.Spec.Extensions = nil
	l.apply(disabled)
	l.Expect(l.hasSidecar()).To(BeFalse())
	l.isReleased(off)
	letOn()
	l.Expect(traces(builder.Noted(l.fresh(l, healthy)))).To(BeEmpty())
	l.Expect(l.nodeOf(l, healthy).Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPreserve, "now"), "it is the person's")
	l.eventually(func(g Gomega) {
		g.Expect(l.Seed.Get(l.ctx, client.ObjectKeyFromObject(failed), failed)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		deployments := &machinev1alpha1.MachineDeploymentList{}
		g.Expect(l.Seed.List(l.ctx, deployments, client.InNamespace(l.Namespace))).To(Succeed())
		for _, deployment := range deployments.Items {
			g.Expect(traces(deployment.Annotations)).To(BeEmpty())
		}
	})

	l.apply(l.shoot)
	l.Expect(l.hasSidecar()).To(BeTrue())
	l.eventually(func(g Gomega) {
		g.Expect(l.fresh(g, healthy).Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPhase, runningPreserved))
	})
}

// withoutFailures has a machine fail while the Shoot has the failure history switched off, and another one once it is on again. The
// audit log says what the sidecar has asked for meanwhile.
func (l *life) withoutFailures() {
	l.apply(editConfig(l.WithT, l.shoot.DeepCopy(), func(config *v1alpha1.MachinePreservationConfig) {
		config.Failures = &v1alpha1.Failures{Enabled: new(false)}
	}))
	l.eventually(func(g Gomega) { g.Expect(l.servesFailures(g)).To(BeFalse()) })
	clusterRole := &rbacv1.ClusterRole{}
	l.Expect(l.Shoot.Get(l.ctx, client.ObjectKey{Name: "extensions.gardener.cloud:extension-machine-preservation:" + preservationcontroller.Name}, clusterRole)).To(Succeed())
	l.Expect(clusterRole.Rules).NotTo(ContainElement(HaveField("Resources", ContainElement(machinefailures.Resource))))

	started := time.Now()
	l.failAndGo(l.machineOf(otherPool))
	l.Expect(l.askedForFailures(started)).To(BeEmpty())

	l.apply(l.shoot)
	l.eventually(func(g Gomega) { g.Expect(l.servesFailures(g)).To(BeTrue()) })
	started = time.Now()
	l.failAndGo(l.machineOf(otherPool))
	l.eventually(func(g Gomega) { g.Expect(l.askedForFailures(started)).To(HaveKey("create")) })
	l.t.Logf("With the failure history switched on again, the sidecar asked for MachineFailures: %v", l.askedForFailures(started))
}

// failAndGo has a machine fail that nothing keeps, and waits until it is gone.
func (l *life) failAndGo(machine *machinev1alpha1.Machine) {
	l.t.Helper()
	l.t.Logf("Machine %s fails", machine.Name)
	l.Expect(l.Inject(l.ctx, machine, conformance.KubeletDead)).To(Succeed())
	l.eventually(func(g Gomega) {
		g.Expect(l.Seed.Get(l.ctx, client.ObjectKeyFromObject(machine), &machinev1alpha1.Machine{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})
}

// servesFailures says whether the shoot has the API of MachineFailures.
func (l *life) servesFailures(g Gomega) bool {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(failuresv1alpha1.SchemeGroupVersion.WithKind("MachineFailureList"))
	err := l.Shoot.List(l.ctx, list)
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) {
		return false
	}
	g.Expect(err).NotTo(HaveOccurred())
	return true
}

// askedForFailures returns how often the sidecar has asked the shoot for MachineFailures since then, by the verbs, refused or not.
func (l *life) askedForFailures(since time.Time) map[string]int {
	verbs := map[string]int{}
	for event := range l.audited(l.landscape.Shoot.AuditLog) {
		if event.ObjectRef.Resource == machinefailures.Resource && event.RequestReceivedTimestamp.After(since) && strings.HasPrefix(event.UserAgent, preservationcontroller.Name+"/") {
			verbs[event.Verb]++
		}
	}
	return verbs
}

// hibernate hibernates the Shoot while a failed and a running machine are preserved, and wakes it up.
func (l *life) hibernate() {
	l.preserve(l.machineOf(autoPool), l.machineOf(otherPool))

	asleep := l.shoot.DeepCopy()
	asleep.Spec.Hibernation = &gardencorev1beta1.Hibernation{Enabled: new(true)}
	l.apply(asleep)
	machines := &machinev1alpha1.MachineList{}
	l.Expect(l.Seed.List(l.ctx, machines)).To(Succeed())
	l.Expect(machines.Items).To(BeEmpty())

	l.apply(l.shoot)
	l.Expect(l.hasSidecar()).To(BeTrue())
	l.preserve(l.machineOf(autoPool), l.machineOf(otherPool))
}

// preserve has one machine preserved as it fails, and another one as a person asks for it.
func (l *life) preserve(failing, healthy *machinev1alpha1.Machine) {
	l.t.Helper()
	l.Expect(l.Inject(l.ctx, failing, conformance.KubeletDead)).To(Succeed())
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"node.machine.sapcloud.io/preserve":"now"}}}`))
	l.Expect(l.Shoot.Patch(l.ctx, l.nodeOf(l, healthy), patch)).To(Succeed())
	l.eventually(func(g Gomega) {
		g.Expect(l.fresh(g, failing).Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPhase, preservation.PhaseFailedPreserved))
		g.Expect(l.fresh(g, healthy).Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPhase, runningPreserved))
		g.Expect(l.nodeOf(g, failing).Spec.Taints).To(ContainElement(HaveField("Key", v1alpha1.TaintPreserved)))
	})
}

func (l *life) eventually(check func(g Gomega)) {
	l.t.Helper()
	l.Eventually(check).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
}

// apply writes the Shoot and waits until it is reconciled.
func (l *life) apply(shoot *gardencorev1beta1.Shoot) {
	l.t.Helper()
	started := time.Now()
	l.Expect(seed.ApplyShoot(l.ctx, l.landscape.Seed.Config, shoot)).To(Succeed())
	l.Expect(seed.WaitForShoot(l.ctx, l.landscape.Seed.Config, shoot.Name)).To(Succeed())
	l.t.Logf("Shoot applied with %d extensions, hibernated: %t, after %s",
		len(shoot.Spec.Extensions), shoot.Spec.Hibernation != nil, time.Since(started).Round(time.Second))
}

// machineOf returns a machine of the pool that is Running and not preserved.
func (l *life) machineOf(pool string) (found *machinev1alpha1.Machine) {
	l.t.Helper()
	l.eventually(func(g Gomega) {
		machines := &machinev1alpha1.MachineList{}
		g.Expect(l.Seed.List(l.ctx, machines, client.InNamespace(l.Namespace))).To(Succeed())
		for _, machine := range machines.Items {
			if machine.Spec.NodeTemplateSpec.Labels[poolLabel] == pool && machine.DeletionTimestamp == nil &&
				machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning && machine.Annotations[v1alpha1.AnnotationCause] == "" {
				found = &machine
			}
		}
		g.Expect(found).NotTo(BeNil())
	})
	return found
}

func (l *life) nodeOf(g Gomega, machine *machinev1alpha1.Machine) *corev1.Node {
	node := &corev1.Node{}
	g.Expect(l.Shoot.Get(l.ctx, client.ObjectKey{Name: machine.Labels[machinev1alpha1.NodeLabelKey]}, node)).To(Succeed())
	return node
}

func (l *life) fresh(g Gomega, machine *machinev1alpha1.Machine) *machinev1alpha1.Machine {
	g.Expect(l.Seed.Get(l.ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
	return machine
}

func (l *life) hasSidecar() bool {
	l.t.Helper()
	deployment := &appsv1.Deployment{}
	l.Expect(l.Seed.Get(l.ctx, client.ObjectKey{Namespace: l.Namespace, Name: "machine-controller-manager"}, deployment)).To(Succeed())
	return slices.ContainsFunc(deployment.Spec.Template.Spec.Containers, func(container corev1.Container) bool {
		return container.Name == "machine-preservation-controller"
	})
}

// traces returns the keys of annotations that are the extension's, but for the one that stays with the machine (P13).
func traces(annotations map[string]string) (keys []string) {
	for key := range annotations {
		if strings.HasPrefix(key, v1alpha1.GroupName+"/") && key != builder.NotePreservedSince {
			keys = append(keys, key)
		}
	}
	return keys
}
