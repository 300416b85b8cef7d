// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/conformance"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts/baremetalhost"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts/ironcore"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

// These power-cycle Servers with the real metal-operator.

func TestLongIronCore03(t *testing.T) { runIronCore(t, "0.61", hosts.IronCore03) }
func TestLongIronCore07(t *testing.T) { runIronCore(t, "0.62", hosts.IronCore07) }

func runIronCore(t *testing.T, generation, kind string) {
	inTurn(t)
	g := NewWithT(t)
	selected := func(s conformance.Scenario) bool {
		return slices.Contains([]string{"power-cycle", "power-cycle-automatic", "power-cycle-stuck"}, s.Name)
	}
	scenarios := slices.DeleteFunc(conformance.Scenarios(), func(s conformance.Scenario) bool { return !selected(s) })
	l, ctx := startLandscape(t, kind, landscape.Options{MCM: generation, Hosts: kind})
	shoot := withPowerCycles(g, shootFor(g, append(scenarios, conformance.Scenario{Name: quarantinePool})))
	g.Expect(seed.ApplyShoot(ctx, l.Seed.Config, shoot)).To(Succeed())
	g.Expect(seed.WaitForShoot(ctx, l.Seed.Config, shootName)).To(Succeed())

	environment := environmentOf(g, l)
	environment.Select = selected
	for _, scenario := range scenarios {
		environment.Pools = append(environment.Pools, scenario.Name)
	}
	// It comes first: machines that fail on several hosts at about the same time count for none of them.
	t.Run("quarantine", func(t *testing.T) {
		(&life{Environment: environment, WithT: NewWithT(t), t: t, ctx: ctx, landscape: l, shoot: shoot}).quarantine(kind)
	})
	report := conformance.Run(ctx, t, environment)
	fmt.Fprint(t.Output(), report.Markdown())
}

// keepOff has the host of a machine off in a power cycle that does not go on until the returned function is called.
func (l *life) keepOff(machine *machinev1alpha1.Machine) (letOn func()) {
	l.t.Helper()
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "kept-off", Namespace: metav1.NamespaceDefault, Finalizers: []string{"e2e.example.org/nobody"}},
		Spec:       corev1.PodSpec{NodeName: machine.Labels[machinev1alpha1.NodeLabelKey], Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}
	l.Expect(l.Shoot.Create(l.ctx, pod)).To(Succeed())
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:""}}}`, v1alpha1.AnnotationNeedsRemediation)
	l.eventually(func(g Gomega) {
		if fresh := l.fresh(g, machine); fresh.Annotations[v1alpha1.AnnotationPowerCyclePhase] == "" && !metav1.HasAnnotation(fresh.ObjectMeta, v1alpha1.AnnotationNeedsRemediation) {
			time.Sleep(70 * time.Second) // a request is dropped of which it is not certain that the machine was healthy when it was made
			g.Expect(l.Seed.Patch(l.ctx, machine.DeepCopy(), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		}
		g.Expect(l.fresh(g, machine).Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPowerCyclePhase, v1alpha1.PowerCycleMakingNodeSafe))
		g.Expect(l.nodeOf(g, machine).Spec.Taints).To(ContainElement(HaveField("Key", corev1.TaintNodeOutOfService)))
		host, err := l.Hosts.Of(l.ctx, machine)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(host.Off).To(BeTrue())
	})
	return func() {
		l.Expect(l.Shoot.Patch(l.ctx, pod, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
	}
}

// isReleased says that nothing of a power cycle is left on the machine, its node and its host, which is on soon.
func (l *life) isReleased(machine *machinev1alpha1.Machine) {
	l.t.Helper()
	l.Expect(traces(builder.Noted(l.fresh(l, machine)))).To(BeEmpty())
	l.Expect(machine.Finalizers).NotTo(ContainElement(v1alpha1.FinalizerHost))
	l.Expect(l.nodeOf(l, machine).Spec.Taints).NotTo(ContainElement(HaveField("Key", corev1.TaintNodeOutOfService)))
	l.eventually(func(g Gomega) {
		host, err := l.Hosts.Of(l.ctx, machine)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(host.Annotations).NotTo(HaveKey(v1alpha1.AnnotationReboot))
		g.Expect(host.Owned()).To(BeFalse())
		g.Expect(host.On).To(BeTrue())
	})
}

// withPowerCycles has the hosts of all pools power-cycled when somebody asks for it.
func withPowerCycles(g *WithT, shoot *gardencorev1beta1.Shoot) *gardencorev1beta1.Shoot {
	return editConfig(g, shoot, func(config *v1alpha1.MachinePreservationConfig) {
		for i := range config.Workers {
			config.Workers[i].PowerCycle = &v1alpha1.PowerCycle{NodeStartupTimeout: &metav1.Duration{Duration: v1alpha1.MinPowerCycleTimeout}}
		}
	})
}

// hostsOf returns the hosts of the landscape's machines, nil if they run on none.
func hostsOf(kind string, c client.Client) *conformance.Hosts {
	h := &hostsOfKind{client: c}
	switch kind {
	case hosts.BareMetalHost:
		h.asked, h.reports, h.power = baremetalhost.New, baremetalhost.New, func(host *unstructured.Unstructured) (on, off bool) {
			power, found, _ := unstructured.NestedBool(host.Object, "status", "poweredOn")
			return found && power, found && !power
		}
		return &conformance.Hosts{Of: h.of, Inject: h.inject, Annotate: h.annotateAsked, KeepOff: h.keepOff}
	case hosts.IronCore03, hosts.IronCore07:
		h.asked, h.reports, h.power = ironcore.NewServerClaim, ironcore.NewServer, func(host *unstructured.Unstructured) (on, off bool) {
			state, _, _ := unstructured.NestedString(host.Object, "status", "powerState")
			return state == "On", state == "Off"
		}
		return &conformance.Hosts{Of: h.of, Inject: h.inject, Annotate: h.annotateAsked}
	}
	return nil
}

// hostsOfKind knows which object of a host power is asked for with, and which one reports it.
type hostsOfKind struct {
	client         client.Client
	asked, reports func(client.ObjectKey) *unstructured.Unstructured
	power          func(*unstructured.Unstructured) (on, off bool)
}

func (h *hostsOfKind) of(ctx context.Context, machine *machinev1alpha1.Machine) (*conformance.Host, error) {
	key := client.ObjectKeyFromObject(machine)
	asked, reports := h.asked(key), h.reports(key)
	for _, object := range []*unstructured.Unstructured{asked, reports} {
		if err := h.client.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return nil, client.IgnoreNotFound(err)
		}
	}
	host := &conformance.Host{Annotations: asked.GetAnnotations()}
	host.On, host.Off = h.power(reports)
	return host, nil
}

// misbehaviours are what hosts of the landscape do for a fault.
var misbehaviours = map[conformance.HostFault]hosts.Misbehaviour{
	conformance.NeverOff:   hosts.NeverOff,
	conformance.NeverOn:    hosts.NeverOn,
	conformance.OldBootID:  hosts.OldBootID,
	conformance.LateReport: hosts.LateReport,
	conformance.Servicing:  hosts.Servicing,
	conformance.PowerError: hosts.PowerError,
}

func (h *hostsOfKind) inject(ctx context.Context, machine *machinev1alpha1.Machine, fault conformance.HostFault) error {
	return h.annotate(ctx, h.reports(client.ObjectKeyFromObject(machine)), hosts.MisbehaviourAnnotation, string(misbehaviours[fault]))
}

func (h *hostsOfKind) keepOff(ctx context.Context, machine *machinev1alpha1.Machine) (string, func(context.Context) error, error) {
	host, key := h.asked(client.ObjectKeyFromObject(machine)), baremetalhost.AnnotationReboot+"/somebody-else"
	return key, func(ctx context.Context) error { return client.IgnoreNotFound(h.annotate(ctx, host, key, "")) },
		h.annotate(ctx, host, key, `{"mode":"hard"}`)
}

func (h *hostsOfKind) annotateAsked(ctx context.Context, machine *machinev1alpha1.Machine, key, value string) error {
	return h.annotate(ctx, h.asked(client.ObjectKeyFromObject(machine)), key, value)
}

// annotate sets an annotation, and removes an empty one.
func (h *hostsOfKind) annotate(ctx context.Context, object client.Object, key, value string) error {
	annotation := "null"
	if value != "" {
		annotation = strconv.Quote(value)
	}
	return h.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, key, annotation)))
}
