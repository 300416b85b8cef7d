// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/conformance"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

const (
	poolLabel        = "worker.gardener.cloud/pool"
	runningPreserved = "Running:Preserved"

	pollInterval = time.Second
	// patience is more than the three minutes for which machine-controller-manager can be blind to a Node that has just
	// registered: as long as it has not put its finalizer on it.
	patience = 4 * time.Minute
	// endurance is for how long preservations must hold after a switch has begun: machine-controller-manager has its lease
	// after about 25 seconds, and looks at each machine within a minute then.
	endurance = 90 * time.Second
)

// switchAndMigrate takes preserved machines from machine-controller-manager 0.61 to 0.62 and back again, and to another seed
// with both.
func switchAndMigrate(t *testing.T) {
	inTurn(t)
	s, early, later := startSwitching(t, "switch", landscape.Options{MCM: "0.61"})
	all := append(slices.Clone(early), later)
	s.endure(early)
	s.migrate(all, early)

	s.switchTo("0.62")
	s.begin(later)
	s.endure(all)
	s.migrate(all, all)

	// Neither it nor machine-controller-manager releases its lease then, and the older one would terminate what has failed.
	s.Expect(killSidecar(s.ctx, s.Seed)).To(Succeed())
	s.switchTo("0.61")
	s.endure(all)

	s.endAll(all)
}

// startSwitching starts a landscape in which machines are about to be preserved, for each cause early, and one for which later has to
// begin.
func startSwitching(t *testing.T, name string, o landscape.Options) (s *switching, early []*preserved, later *preserved) {
	t.Helper()
	g := NewWithT(t)
	early = []*preserved{
		{pool: "auto", fails: true, cause: v1alpha1.CauseAuto},
		{pool: "when-failed", onNode: true, request: v1alpha1.RequestWhenFailed, fails: true, cause: v1alpha1.CauseWhenFailed},
		{pool: "now-failed", onNode: true, request: v1alpha1.RequestNow, fails: true, cause: v1alpha1.CauseNow},
		{pool: "now", onNode: true, request: v1alpha1.RequestNow, cause: v1alpha1.CauseNow},
		{pool: "now-machine", request: v1alpha1.RequestNow, cause: v1alpha1.CauseNow},
	}
	later = &preserved{pool: "later", fails: true, cause: v1alpha1.CauseAuto}
	all := append(slices.Clone(early), later)
	var pools []conformance.Scenario
	for _, p := range all {
		pool := conformance.Scenario{Name: p.pool}
		if p.cause == v1alpha1.CauseAuto {
			pool.Share = 1
		}
		pools = append(pools, pool)
	}

	l, ctx := startLandscape(t, name, o)
	// A release that is upgraded from does not know the newest fields.
	shoot := editConfig(g, shootFor(g, pools), func(config *v1alpha1.MachinePreservationConfig) { config.Evidence.NodeLogs = nil })
	g.Expect(seed.ApplyShoot(ctx, l.Seed.Config, shoot)).To(Succeed())
	g.Expect(seed.WaitForShoot(ctx, l.Seed.Config, shootName)).To(Succeed())
	s = &switching{Environment: environmentOf(g, l), WithT: g, t: t, ctx: ctx, landscape: l, generation: o.MCM}
	for _, p := range all {
		s.choose(p)
	}
	for _, p := range early {
		s.begin(p)
	}
	return s, early, later
}

// endAll ends all preservations, and waits until nothing is left of them.
func (s *switching) endAll(all []*preserved) {
	s.t.Helper()
	for _, p := range all {
		s.end(p)
	}
	s.Eventually(func(g Gomega) {
		for _, p := range all {
			s.isOver(g, p)
		}
	}).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
}

// preserved is a pool of two machines, one of which gets preserved.
type preserved struct {
	pool string
	// request is on the Node or on the Machine; empty if there is none.
	request string
	onNode  bool
	fails   bool
	cause   string

	machine, bystander *machinev1alpha1.Machine
	expiry             time.Time
}

func (p *preserved) phase() string {
	if p.fails {
		return preservation.PhaseFailedPreserved
	}
	return runningPreserved
}

// switching is a landscape whose machine-controller-manager is switched.
type switching struct {
	*conformance.Environment
	*WithT

	t          *testing.T
	ctx        context.Context
	landscape  *landscape.Landscape
	generation string
	// until is for how long preservations must hold at least.
	until time.Time
}

// choose takes the two machines of the pool.
func (s *switching) choose(p *preserved) {
	s.t.Helper()
	machines := s.machines(s, p)
	s.Expect(machines).To(HaveLen(2))
	p.machine, p.bystander = &machines[0], &machines[1]
}

func (s *switching) machines(g Gomega, p *preserved) []machinev1alpha1.Machine {
	machines := &machinev1alpha1.MachineList{}
	g.Expect(s.Seed.List(s.ctx, machines, client.InNamespace(s.Namespace))).To(Succeed())
	return slices.DeleteFunc(machines.Items, func(m machinev1alpha1.Machine) bool {
		return m.Spec.NodeTemplateSpec.Labels[poolLabel] != p.pool
	})
}

// begin brings about what the machine is preserved for.
func (s *switching) begin(p *preserved) {
	s.t.Helper()
	if p.request != "" {
		s.setRequest(p, `"`+p.request+`"`)
	}
	if p.fails {
		s.Expect(s.Inject(s.ctx, p.machine, conformance.KubeletDead)).To(Succeed())
	}
}

// setRequest writes a request as JSON.
func (s *switching) setRequest(p *preserved, value string) {
	s.t.Helper()
	var (
		c      client.Client = s.Seed
		object client.Object = p.machine.DeepCopy()
	)
	if p.onNode {
		c, object = s.Shoot, s.node(s, p.machine)
	}
	s.Expect(c.Patch(s.ctx, object, client.RawPatch(types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%s}}}`, v1alpha1.AnnotationPreserve, value)))).To(Succeed())
}

// endure waits until all machines are preserved, and checks that they stay so until the last switch or migration has
// had time to end them. Their expiry is the one that they got when they were preserved for the first time.
func (s *switching) endure(all []*preserved) {
	s.t.Helper()
	check := func(g Gomega) {
		for _, p := range all {
			s.isPreserved(g, p)
		}
	}
	start := time.Now()
	s.Eventually(check).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
	s.t.Logf("All are preserved with machine-controller-manager %s after %s", s.generation, time.Since(start).Round(time.Second))
	if left := time.Until(s.until); left > 0 {
		s.Consistently(check).WithTimeout(left).WithPolling(pollInterval).Should(Succeed())
	}
}

func (s *switching) isPreserved(g Gomega, p *preserved) {
	machine := &machinev1alpha1.Machine{}
	g.Expect(s.Seed.Get(s.ctx, client.ObjectKeyFromObject(p.machine), machine)).To(Succeed())
	g.Expect(machine.UID).To(Equal(p.machine.UID))
	g.Expect(machine.DeletionTimestamp).To(BeNil())
	g.Expect(machine.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPhase, p.phase()))
	g.Expect(machine.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationCause, p.cause))

	expiry, err := time.Parse(time.RFC3339, machine.Annotations[v1alpha1.AnnotationExpiryTime])
	g.Expect(err).NotTo(HaveOccurred())
	if p.expiry.IsZero() {
		p.expiry = expiry
		s.t.Logf("Machine %s: %s until %s (%s)", machine.Name, p.phase(), machine.Annotations[v1alpha1.AnnotationExpiryTime], p.cause)
	}
	g.Expect(expiry).To(BeTemporally("==", p.expiry))

	status, node := machine.Status.CurrentStatus, s.node(g, machine)
	request := p.request
	switch s.generation {
	case "0.61":
		g.Expect(status.PreserveExpiryTime).To(BeNil())
		if p.fails {
			g.Expect(status.Phase).To(Equal(machinev1alpha1.MachineUnknown))
		}
	case "0.62":
		g.Expect(status.PreserveExpiryTime).NotTo(BeNil())
		g.Expect(status.PreserveExpiryTime.Time).To(BeTemporally("==", p.expiry))
		if p.fails {
			g.Expect(status.Phase).To(Equal(machinev1alpha1.MachineFailed))
		}
		request = v1alpha1.RequestNow
	}
	if p.onNode {
		g.Expect(node.Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPreserve, request))
	}
	// Machine-controller-manager 0.61 takes the protection off with each look at a MachineDeployment that is complete. It is
	// put back (P5).
	g.Eventually(func(g Gomega) {
		g.Expect(s.node(g, machine).Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationScaleDownDisabled, "true"))
	}).WithTimeout(time.Minute).WithPolling(pollInterval).Should(Succeed())
	_, tainted := preservation.TaintedSince(node)
	g.Expect(tainted).To(Equal(p.fails))
	g.Expect(preservation.PreservedCondition(node)).To(HaveField("Status", corev1.ConditionTrue))

	s.isUntouched(g, p.bystander)
}

// isUntouched says that the machine is the same as ever and has no trace of a preservation, but maybe some annotations.
func (s *switching) isUntouched(g Gomega, machine *machinev1alpha1.Machine, but ...string) {
	fresh := &machinev1alpha1.Machine{}
	g.Expect(s.Seed.Get(s.ctx, client.ObjectKeyFromObject(machine), fresh)).To(Succeed())
	g.Expect(fresh.UID).To(Equal(machine.UID))
	g.Expect(fresh.DeletionTimestamp).To(BeNil())
	g.Expect(fresh.Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachineRunning))
	g.Expect(fresh.Status.CurrentStatus.PreserveExpiryTime).To(BeNil())
	annotations := builder.Noted(fresh)
	maps.DeleteFunc(annotations, func(key, _ string) bool { return slices.Contains(but, key) })
	g.Expect(annotations).To(Equal(machine.Annotations))

	node := s.node(g, fresh)
	g.Expect(slices.Collect(maps.Keys(node.Annotations))).NotTo(ContainElement(Or(
		HavePrefix(v1alpha1.GroupName), HavePrefix("cluster-autoscaler."), Equal(v1alpha1.AnnotationPreserve))))
	_, tainted := preservation.TaintedSince(node)
	g.Expect(tainted).To(BeFalse())
	g.Expect(preservation.PreservedCondition(node)).To(Or(BeNil(), HaveField("Status", corev1.ConditionFalse)))
}

func (s *switching) node(g Gomega, machine *machinev1alpha1.Machine) *corev1.Node {
	node := &corev1.Node{}
	g.Expect(s.Shoot.Get(s.ctx, client.ObjectKey{Name: machine.Labels[machinev1alpha1.NodeLabelKey]}, node)).To(Succeed())
	return node
}

// end takes the request back, or forbids the preservation that nobody asked for.
func (s *switching) end(p *preserved) {
	s.t.Helper()
	if p.cause == v1alpha1.CauseAuto {
		s.setRequest(p, `"`+v1alpha1.RequestFalse+`"`)
	} else {
		s.setRequest(p, "null")
	}
}

// isOver says that the machine was replaced if it had failed, and is as it was before if not.
func (s *switching) isOver(g Gomega, p *preserved) {
	s.isUntouched(g, p.bystander)
	if !p.fails {
		// The first one stays (P13), with the other one machine-controller-manager 0.62 says that the Node has no request.
		s.isUntouched(g, p.machine, builder.NotePreservedSince, v1alpha1.AnnotationLastAppliedNodePreserveValue)
		return
	}
	g.Expect(s.Seed.Get(s.ctx, client.ObjectKeyFromObject(p.machine), &machinev1alpha1.Machine{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	g.Expect(s.Shoot.Get(s.ctx, client.ObjectKey{Name: p.machine.Labels[machinev1alpha1.NodeLabelKey]}, &corev1.Node{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	machines := s.machines(g, p)
	g.Expect(machines).To(HaveLen(2))
	for i := range machines {
		s.isUntouched(g, &machines[i])
	}
}

// switchTo switches machine-controller-manager.
func (s *switching) switchTo(generation string) {
	s.t.Helper()
	start := time.Now()
	s.until = start.Add(endurance)
	s.Expect(s.landscape.SwitchMCM(s.ctx, generation)).To(Succeed())
	s.generation = generation
	s.t.Logf("Switched to machine-controller-manager %s in %s", generation, time.Since(start).Round(time.Second))
}
