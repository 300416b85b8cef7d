// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"slices"
	"testing"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/conformance"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

// The pools whose machines are updated in place.
const (
	inPlacePool       = "in-place"
	inPlaceManualPool = "in-place-manual"
)

func TestLongMCM061(t *testing.T) { runLong(t, "0.61") }
func TestLongMCM062(t *testing.T) { runLong(t, "0.62") }

func runLong(t *testing.T, generation string) {
	inTurn(t)
	g := NewWithT(t)
	l, ctx := startLandscape(t, "long-"+generation, landscape.Options{MCM: generation, Hosts: hosts.BareMetalHost})
	long := func(s conformance.Scenario) bool { return s.Long }
	scenarios := slices.DeleteFunc(conformance.Scenarios(), func(s conformance.Scenario) bool { return !long(s) })
	pools := slices.Concat(scenarios, []conformance.Scenario{{Name: inPlacePool, Share: 1}, {Name: inPlaceManualPool, Share: 1}, {Name: otherPool}})
	shoot := withPowerCycles(g, shootFor(g, pools))
	environment := environmentOf(g, l)
	environment.Select = long
	for i := range shoot.Spec.Provider.Workers {
		worker := &shoot.Spec.Provider.Workers[i]
		// After an outage nodes are unhealthy for a moment, which is not what is tried.
		worker.MachineControllerManagerSettings.MachineHealthTimeout = &metav1.Duration{Duration: time.Minute}
		switch worker.Name {
		case inPlacePool:
			worker.UpdateStrategy = new(gardencorev1beta1.AutoInPlaceUpdate)
			worker.MachineControllerManagerSettings.DisableHealthTimeout = new(true)
		case inPlaceManualPool:
			worker.UpdateStrategy = new(gardencorev1beta1.ManualInPlaceUpdate)
			worker.MachineControllerManagerSettings.DisableHealthTimeout = new(false)
		case otherPool:
		default:
			environment.Pools = append(environment.Pools, worker.Name)
		}
	}
	g.Expect(seed.ApplyShoot(ctx, l.Seed.Config, shoot)).To(Succeed())
	g.Expect(seed.WaitForShoot(ctx, l.Seed.Config, shootName)).To(Succeed())

	lifeOf := func(t *testing.T) *life {
		return &life{Environment: environment, WithT: NewWithT(t), t: t, ctx: ctx, landscape: l, shoot: shoot}
	}
	whole := lifeOf(t)
	gone := whole.machineOf(otherPool)
	whole.failAndGo(gone)
	goneSince := time.Now()

	report := conformance.Run(ctx, t, environment)
	defer func() { fmt.Fprint(t.Output(), report.Markdown()) }()
	report.Run(t, "in-place-manual", []string{"D1", "D5", "P3"}, func(t *testing.T) { lifeOf(t).failInManualUpdate() })
	report.Run(t, "in-place-never-joined", []string{"H2"}, func(t *testing.T) { lifeOf(t).neverJoinInPlace() })
	report.Run(t, "gone-for-an-hour", nil, func(t *testing.T) { lifeOf(t).toldOfGone(gone, goneSince.Add(time.Hour)) })
}

// toldOfGone: at the time, the kubeconfig of the shoot is all that is needed to be told why a machine failed that was not kept, and
// that is gone with its node.
func (l *life) toldOfGone(machine *machinev1alpha1.Machine, at time.Time) {
	time.Sleep(time.Until(at))
	node := machine.Labels[machinev1alpha1.NodeLabelKey]
	for _, name := range []string{node, machine.Name} {
		output, err := exec.CommandContext(l.ctx, l.Plugin.Binary, "why", name, "--kubeconfig="+l.Plugin.ShootKubeconfig).CombinedOutput()
		l.t.Logf("kubectl preserve why %s:\n%s", name, output)
		l.Expect(err).NotTo(HaveOccurred())
		l.Expect(string(output)).To(And(
			ContainSubstring("The first bad condition: Ready was Unknown (NodeStatusUnknown)"),
			ContainSubstring("It was not preserved because "+preservation.WhyNoShare.Text+"."),
			ContainSubstring("It was replaced at "), ContainSubstring("It is gone: node %q does not exist.", node)))
	}
}

// failInManualUpdate has a machine fail while the MachineDeployment has machines in two MachineSets, which it has for as long
// as nobody selects the other nodes for the update. That is no rolling update. The one that is updated has a pod that only
// drain strategies can get rid of.
func (l *life) failInManualUpdate() {
	updated := l.machineOf(inPlaceManualPool)
	l.Expect(l.Shoot.Create(l.ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: inPlaceManualPool, Namespace: metav1.NamespaceDefault, Finalizers: []string{"e2e.example.org/nobody"}},
		Spec:       corev1.PodSpec{NodeName: updated.Labels[machinev1alpha1.NodeLabelKey], Containers: []corev1.Container{{Name: "c", Image: "i"}}, TerminationGracePeriodSeconds: new(int64(1))},
	})).To(Succeed())
	l.patchDeployment(updated, `{"spec":{"template":{"metadata":{"annotations":{"e2e":"update"}}}}}`)
	l.eventually(func(g Gomega) { g.Expect(l.machineSetsOf(g, updated)).To(HaveLen(2)) })

	// What a person does, and what gardener-node-agent says in the end.
	l.label(updated, machinev1alpha1.LabelKeyNodeSelectedForUpdate, "true")
	l.eventually(func(g Gomega) {
		g.Expect(l.nodeOf(g, updated).Status.Conditions).To(ContainElement(And(
			HaveField("Type", machinev1alpha1.NodeInPlaceUpdate), HaveField("Reason", machinev1alpha1.ReadyForUpdate))))
	})
	l.Expect(l.strategiesThatActed()).To(HaveKeyWithValue(metav1.NamespaceDefault+"/"+inPlaceManualPool, action{
		strategy: "finalizers", machine: updated.Name, after: drainTimeout,
	}))
	l.label(updated, machinev1alpha1.LabelKeyNodeUpdateResult, machinev1alpha1.LabelValueNodeUpdateSuccessful)
	var machine *machinev1alpha1.Machine
	l.eventually(func(g Gomega) {
		for name, replicas := range l.machineSetsOf(g, updated) {
			g.Expect(replicas).To(BeEquivalentTo(1), name)
		}
		machines := &machinev1alpha1.MachineList{}
		g.Expect(l.Seed.List(l.ctx, machines, client.InNamespace(l.Namespace), client.MatchingLabels{"name": updated.Labels["name"]})).To(Succeed())
		g.Expect(machines.Items).To(HaveLen(2))
		for _, m := range machines.Items {
			if m.Name != updated.Name {
				machine = &m
			}
		}
	})
	l.t.Logf("Machine %s is updated, and %s is not", updated.Name, machine.Name)

	l.Expect(l.Inject(l.ctx, machine, conformance.KubeletDead)).To(Succeed())
	held := func(g Gomega) {
		g.Expect(l.fresh(g, machine).DeletionTimestamp).To(BeNil())
		g.Expect(machine.Annotations).To(And(
			HaveKeyWithValue(v1alpha1.AnnotationPhase, preservation.PhaseFailedPreserved),
			HaveKeyWithValue(v1alpha1.AnnotationCause, v1alpha1.CauseAuto)))
	}
	l.eventually(held)
	l.Consistently(held).WithTimeout(endurance).WithPolling(pollInterval).Should(Succeed())
	l.Expect(l.machineSetsOf(l, machine)).To(HaveLen(2))
}

// label sets a label of the machine's node.
func (l *life) label(machine *machinev1alpha1.Machine, key, value string) {
	l.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, key, value)
	l.Expect(l.Shoot.Patch(l.ctx, l.nodeOf(l, machine), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

// neverJoinInPlace has a machine never join whose health timeout is disabled, as it is by default in pools that are updated
// in place. When it is let go, it is replaced all the same.
func (l *life) neverJoinInPlace() {
	known := l.machineOf(inPlacePool)
	l.Expect(l.InjectNext(l.ctx, known.Labels["name"], conformance.NeverJoins)).To(Succeed())
	l.patchDeployment(known, `{"spec":{"replicas":3}}`)
	var machine *machinev1alpha1.Machine
	l.eventually(func(g Gomega) {
		machines := &machinev1alpha1.MachineList{}
		g.Expect(l.Seed.List(l.ctx, machines, client.InNamespace(l.Namespace))).To(Succeed())
		for _, m := range machines.Items {
			if m.Labels["name"] == known.Labels["name"] && m.Annotations[v1alpha1.AnnotationPhase] == preservation.PhaseFailedPreserved {
				machine = &m
			}
		}
		g.Expect(machine).NotTo(BeNil())
	})
	l.t.Logf("Machine %s has never joined, and is held", machine.Name)
	l.Consistently(func(g Gomega) { g.Expect(l.fresh(g, machine).DeletionTimestamp).To(BeNil()) }).
		WithTimeout(endurance).WithPolling(pollInterval).Should(Succeed())

	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"false"}}}`, v1alpha1.AnnotationPreserve)
	l.Expect(l.Seed.Patch(l.ctx, machine.DeepCopy(), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
	l.eventually(func(g Gomega) {
		g.Expect(l.Seed.Get(l.ctx, client.ObjectKeyFromObject(machine), machine)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})
}

// patchDeployment patches the MachineDeployment of the machine.
func (l *life) patchDeployment(machine *machinev1alpha1.Machine, patch string) {
	l.t.Helper()
	deployment := &machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: machine.Labels["name"], Namespace: l.Namespace}}
	l.Expect(l.Seed.Patch(l.ctx, deployment, client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// machineSetsOf returns the numbers of machines in the MachineSets of the machine's MachineDeployment, by their names.
func (l *life) machineSetsOf(g Gomega, machine *machinev1alpha1.Machine) map[string]int32 {
	sets, replicas := &machinev1alpha1.MachineSetList{}, map[string]int32{}
	g.Expect(l.Seed.List(l.ctx, sets, client.InNamespace(l.Namespace))).To(Succeed())
	for _, set := range sets.Items {
		if owner := metav1.GetControllerOf(&set); owner != nil && owner.Name == machine.Labels["name"] {
			replicas[set.Name] = set.Status.Replicas
		}
	}
	return replicas
}
