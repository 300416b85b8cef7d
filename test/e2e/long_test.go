// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/conformance"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

// The pools whose machines are updated in place.
const (
	inPlacePool       = "in-place"
	inPlaceManualPool = "in-place-manual"
)

// What takes longer than a few minutes is run by `make test-long` alone, which finds it by its name.

func TestLongMCM061(t *testing.T) { runLong(t, "0.61") }
func TestLongMCM062(t *testing.T) { runLong(t, "0.62") }

func runLong(t *testing.T, generation string) {
	t.Parallel()
	g := NewWithT(t)
	ctx := t.Context()

	l := startLandscape(t, "long-"+generation, landscape.Options{MCM: generation})
	long := func(s conformance.Scenario) bool { return s.Long }
	scenarios := slices.DeleteFunc(conformance.Scenarios(), func(s conformance.Scenario) bool { return !long(s) })
	pools := slices.Concat(scenarios, []conformance.Scenario{{Name: inPlacePool, Share: 1}, {Name: inPlaceManualPool, Share: 1}})
	shoot := shootFor(g, pools)
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
		default:
			environment.Pools = append(environment.Pools, worker.Name)
		}
	}
	g.Expect(seed.ApplyShoot(ctx, l.Seed.Config, shoot)).To(Succeed())
	g.Expect(seed.WaitForShoot(ctx, l.Seed.Config, shootName)).To(Succeed())

	report := conformance.Run(ctx, t, environment)
	defer func() { fmt.Fprint(t.Output(), report.Markdown()) }()
	inPlace := func(do func(*life)) func(*testing.T) {
		return func(t *testing.T) {
			do(&life{Environment: environment, WithT: NewWithT(t), t: t, ctx: ctx, landscape: l, shoot: shoot})
		}
	}
	report.Run(t, "in-place-manual", []string{"P3"}, inPlace((*life).failInManualUpdate))
	report.Run(t, "in-place-never-joined", []string{"H2"}, inPlace((*life).neverJoinInPlace))
}

// failInManualUpdate has a machine fail while the MachineDeployment has two MachineSets, which it has for as long as nobody
// selects its nodes for the update. That is no rolling update.
func (l *life) failInManualUpdate() {
	machine := l.machineOf(inPlaceManualPool)
	l.patchDeployment(machine, `{"spec":{"template":{"metadata":{"annotations":{"e2e":"update"}}}}}`)
	l.eventually(func(g Gomega) { g.Expect(l.machineSetsOf(g, machine)).To(HaveLen(2)) })

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

// machineSetsOf returns the names of the MachineSets of the machine's MachineDeployment.
func (l *life) machineSetsOf(g Gomega, machine *machinev1alpha1.Machine) (names []string) {
	sets := &machinev1alpha1.MachineSetList{}
	g.Expect(l.Seed.List(l.ctx, sets, client.InNamespace(l.Namespace))).To(Succeed())
	for _, set := range sets.Items {
		if owner := metav1.GetControllerOf(&set); owner != nil && owner.Name == machine.Labels["name"] {
			names = append(names, set.Name)
		}
	}
	return names
}
