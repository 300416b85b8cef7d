// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// Scenarios returns all scenarios, those that take longest first.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "provider", Share: 1, Healthy: true, run: reconciliationsOfProvider},
		{Name: "typo", Rules: []string{"R3"}, Healthy: true, run: typo},
		{Name: "expiry", Rules: []string{"T1", "T3", "R5"}, Healthy: true, run: expiryOfRunning},
		{Name: "edited", Rules: []string{"P6"}, Healthy: true, run: editedExpiry},
		{Name: "timeout", Rules: []string{"P6"}, Healthy: true, run: changedTimeout},
		{Name: "precedence", Rules: []string{"R2", "T3"}, Healthy: true, run: precedence},
		{Name: "alias", Rules: []string{"R1", "T3"}, Healthy: true, run: alias},
		{Name: "invalid", Rules: []string{"R3", "R5", "P14"}, Healthy: true, run: invalidRequests},
		{Name: "veto", Rules: []string{"R6"}, Healthy: true, run: veto},
		{Name: "drain-cordoned", Rules: []string{"D1", "D3"}, Healthy: true, needs: needsDrainStrategies, run: cordonedByPerson},
		{Name: "maintenance-wait", Rules: []string{"M4", "M7"}, Healthy: true, needs: needsMaintenance, run: maintenanceWait},
		{Name: "maintenance-drain", Rules: []string{"M5"}, Healthy: true, needs: needsMaintenance, run: maintenanceDrain},
		{Name: "maintenance-requestors", Rules: []string{"M6", "M7"}, Healthy: true, needs: needsMaintenance, run: requestors},
		{Name: "maintenance-cordoned", Rules: []string{"M3"}, Healthy: true, needs: needsMaintenance, run: cordonedInMaintenance},
		{Name: "maintenance-driver", Rules: []string{"M3", "M7"}, Healthy: true, needs: needsMaintenance, run: driverMaintenance},
		{Name: "maintenance-refused", Rules: []string{"M1", "M17"}, Healthy: true, needs: needsMaintenance, run: refusedMaintenance},
		{Name: "longest", Rules: []string{"P13"}, Healthy: true, run: longest},
		{Name: "users-protection", Rules: []string{"P5"}, Healthy: true, run: usersProtection},
		{Name: "scale-down", Rules: []string{"T1", "P2", "P5"}, Healthy: true, run: scaleDownOfPreserved},

		{Name: "power-cycle-stuck", Rules: []string{"X2", "X5", "X10", "X13"}, needs: needsHosts, run: stuckPowerCycles},
		{Name: "power-cycle-withdrawn", Rules: []string{"X2", "X8"}, needs: needsHosts, run: withdrawnPowerCycles},
		{Name: "power-cycle-serviced", Rules: []string{"X5", "X18", "X20"}, needs: needsHosts, run: servicedHost},
		{Name: "power-cycle-recovered", Rules: []string{"X8", "X16"}, needs: needsHosts, run: recoveredBeforePowerCycle},
		{Name: "power-cycle-starting", Rules: []string{"X17"}, needs: needsKeptOffHosts, run: startingHost},
		{Name: "power-cycle-disowned", Rules: []string{"X20"}, needs: needsKeptOffHosts, run: disownedHost},
		{Name: "power-cycle-dry", Rules: []string{"X9"}, Share: 1, needs: needsHosts, run: dryPowerCycle},
		{Name: "power-cycle-automatic", Rules: []string{"X6", "X9", "X13"}, Share: 1, needs: needsHosts, run: automaticPowerCycle},
		{Name: "power-cycle-loop", Rules: []string{"X4", "X16"}, needs: needsHosts, run: powerCycleInALoop},
		{Name: "power-cycle", Rules: []string{"X1", "X10", "X11", "X12", "X13"}, needs: needsHosts, run: powerCycled},
		{Name: "power-cycle-refused", Rules: []string{"X8", "X11", "X14"}, needs: needsKeptOffHosts, run: refusedPowerCycles},
		{Name: "power-cycle-disabled", Rules: []string{"X2", "X10", "X15"}, needs: needsHosts, run: disabledPowerCycles},
		{Name: "never-joined", Rules: []string{"T5", "T7", "P9"}, Share: 1, needs: needsNeverJoins, run: neverJoined},
		{Name: "never-joined-now", Rules: []string{"T1", "T2", "R2", "P9"}, needs: needsNeverJoins, run: neverJoinedNow},
		{Name: "new-failure", Rules: []string{"P15"}, Share: 2, needs: needsInject, run: newFailure},
		{Name: "shared", Rules: []string{"P20", "P1", "T6"}, Share: 2, run: sharedPlaces},
		{Name: "stopped", Rules: []string{"T8", "R4"}, Share: 1, run: stoppedByFalse},
		{Name: "rollout", Rules: []string{"P3"}, Share: 1, run: rollout},
		{Name: "rollout-now", Rules: []string{"P3"}, needs: needsNeverJoins, run: rolloutOfRequested},
		{Name: "rollout-protection", Rules: []string{"P3"}, Share: 1, needs: needsNeverJoins, run: protectionInRollout},
		{Name: "drain-timed", Rules: []string{"D1", "D2", "D4", "D5", "D6", "D7", "D11", "D12"}, needs: needsDrainStrategies, run: timedDrain},
		{Name: "drain-stuck", Rules: []string{"D5", "D6", "D10"}, needs: needsDrainStrategies, run: stuckDrain},
		{Name: "maintenance-endless", Rules: []string{"M12"}, needs: needsShortMaintenance, run: endlessMaintenance},
		{Name: "maintenance-forgotten", Rules: []string{"M9"}, needs: needsShortGarbageCollection, run: forgottenMaintenance},
		{Name: "maintenance-deleted", Rules: []string{"M7", "M8"}, needs: needsMaintenance, run: deletedInMaintenance},
		{Name: "maintenance-lost", Rules: []string{"M13"}, needs: needsMaintenance, run: lostInMaintenance},
		{Name: "maintenance-failed", Rules: []string{"M14"}, Share: 1, needs: needsMaintenance, run: maintenanceOfFailed},
		{Name: "maintenance-terminated", Rules: []string{"M15"}, needs: needsMaintenanceAndNeverJoins, run: terminatedInMaintenance},
		{Name: "maintenance-rollout", Rules: []string{"M15", "P2"}, needs: needsMaintenance, run: rolledInMaintenance},
		{Name: "maintenance", Rules: []string{"M2", "M3", "M8", "M12", "M13", "M16"}, needs: needsMaintenance, run: maintained},
		{Name: "margin", Rules: []string{"H4"}, Share: 1, run: healthyBeforeDeadline},
		{Name: "refused-eviction", Rules: []string{"P7", "P12"}, Share: 2, needs: needsRefuseEvictions, run: refusedEviction},
		{Name: "crash-loop", Rules: []string{"H3"}, Share: 1, Long: true, needs: needsCrashLoop, run: crashLoop},
		{Name: "failed-expiry", Rules: []string{"T2", "T8", "P10"}, run: expiryOfFailed},
		{Name: "auto", Rules: []string{"T5", "T6", "P1", "P7"}, Share: 1, run: autoPreservation},
		{Name: "at-once", Rules: []string{"T5", "T6", "P1"}, Share: 1, run: failuresAtOnce},
		{Name: "counted", Rules: []string{"T6", "P1", "P11"}, Share: 1, run: requestsCount},
		{Name: "lowered", Rules: []string{"T9"}, Share: 2, run: loweredShare},
		{Name: "lowered-request", Rules: []string{"T9"}, Share: 2, run: loweredShareBesideRequest},
		{Name: "forbidden", Rules: []string{"T3", "T6", "R4"}, Share: 1, run: forbidden},
		{Name: "validation", Rules: []string{"V1", "V2", "V3", "T7"}, Share: 1, run: validated},
		{Name: "validation-timeout", Rules: []string{"V1", "V4"}, Share: 1, run: notValidated},
		{Name: "validation-maintenance", Rules: []string{"V1", "V3", "V5", "M3", "M7"}, Healthy: true, needs: needsMaintenance, run: validatedAfterMaintenance},
		{Name: "recovery", Rules: []string{"T7"}, Share: 1, run: recovery},
		{Name: "kubectl-preserve", Rules: []string{"P11"}, Share: 1, needs: needsPlugin, run: kubectlPreserve},
		{Name: "journal", Share: 1, needs: needsPlugin, run: journal},
		{Name: "visible", Rules: []string{"P11", "T2", "T7"}, run: visible},
		{Name: "drain", Rules: []string{"P7", "D12"}, Share: 1, run: blockedDrain},
		{Name: "when-failed", Rules: []string{"T4", "R1"}, run: whenFailed},
		{Name: "pools-request", Rules: []string{"T4", "T8"}, run: requestOfPool},
		{Name: "withdrawn", Rules: []string{"T8", "R2"}, run: withdrawnRequest},
		{Name: "scale-down-failed", Rules: []string{"P2"}, Share: 1, run: scaleDownOfFailed},
		{Name: "maximum", Rules: []string{"P2"}, Share: 1, run: atMaximum},
		{Name: "scale-to-zero", Rules: []string{"P4", "T10"}, Share: 1, run: scaleToZero},
		{Name: "deleted", Rules: []string{"T10"}, Share: 1, run: deletion},

		{Name: "drain-disabled", Rules: []string{"D9"}, Alone: true, needs: needsDrainStrategies, run: disabledStrategies},
		{Name: "drain-shown", Rules: []string{"D13"}, Share: 1, Alone: true, needs: needsMaintenance, run: shownDrains},
		{Name: "drain-compared", Rules: []string{"D5", "D9"}, Alone: true, Long: true, needs: needsDrainStrategies, run: comparedDrains},
		{Name: "maintenance-scheduled", Rules: []string{"M10", "M11"}, Alone: true, needs: needsMaintenance, run: scheduledMaintenances},
		{Name: "maintenance-restart", Rules: []string{"M2"}, Alone: true, Long: true, needs: needsMaintenance, run: restartInMaintenance},
		{Name: "power-cycle-absent", Rules: []string{"X19"}, Alone: true, Long: true, needs: needsHosts, run: absentController},
		{Name: "power-cycle-restart", Rules: []string{"X1", "X3", "X4"}, Alone: true, Long: true, needs: needsHosts, run: restartInPowerCycle},
		{Name: "storm", Rules: []string{"P16"}, Share: 1, Alone: true, Long: true, needs: needsStormLimits, run: storm},
		{Name: "storm-cycles", Rules: []string{"X21"}, Share: 1, Alone: true, Long: true, needs: needsStormLimitsAndHosts, run: stormCycles},
		{Name: "machine-hours", Rules: []string{"P17", "P18"}, Share: 2, Alone: true, Long: true, needs: needsMachineHours, run: machineHours},
		{Name: "restart", Rules: []string{"P8"}, Share: 2, Alone: true, run: restart},
		{Name: "shoot-away", Rules: []string{"P9"}, Share: 1, Alone: true, needs: needsShootAway, run: shootAway},
		{Name: "shoot-away-long", Rules: []string{"H1", "H2", "P9"}, Share: 2, Alone: true, Long: true, needs: needsNeverJoinsAndShootAway, run: shootAwayForLong},
	}
}

// autoPreservation: of two machines that fail, the share has room for one. It is drained, the other one is replaced.
func autoPreservation(p *Pool) {
	machines := p.running(2)
	first, second := machines[0], machines[1]
	agent, app := p.workload(first)

	p.fail(first, KubeletDead)
	expiry := p.preserved(first, failedPreserved, "auto")
	p.Expect(expiry).To(BeTemporally("~", time.Now().Add(preserveTimeout), time.Minute))
	p.eventually(func(g Gomega) {
		node := p.node(g, first)
		g.Expect(node).To(And(tainted(), withCondition("Preserved", corev1.ConditionTrue)))
		g.Expect(node.Annotations).To(HaveKeyWithValue(scaleDown, "true"))
	})

	p.fail(second, KubeletDead)
	p.gone(second)
	p.running(1)
	p.Expect(p.isPreserved(p, first, failedPreserved, "auto")).To(BeTemporally("==", expiry))

	// A kubelet that is dead does not end the pod: it goes by force after the drain timeout.
	p.drained(first)
	p.Expect(p.exists(app)).To(BeFalse())
	p.Expect(p.exists(agent)).To(BeTrue())
	p.toldWhyGone(second)
}

// nodeFinalizer is the finalizer with which machine-controller-manager keeps a Node until its machine is gone.
const nodeFinalizer = "node.machine.sapcloud.io/machine-controller"

// toldWhyGone: who has nothing but the kubeconfig of the shoot is told of a machine that was not kept and that is gone, with its
// node, why it failed, and why it was not kept.
func (p *Pool) toldWhyGone(machine *machinev1alpha1.Machine) {
	p.t.Helper()
	if needsPlugin(p.Environment) != "" {
		return
	}
	node := machine.Labels[machinev1alpha1.NodeLabelKey]
	p.eventually(func(g Gomega) {
		left := &corev1.Node{}
		err := p.Shoot.Get(p.ctx, client.ObjectKey{Name: node}, left)
		// Machine-controller-manager 0.61 adds its finalizer to a Node three minutes after it has seen it without, even if it has just removed
		// it to delete the Node. It removes it again when it searches for orphans, up to 15 minutes later.
		if err == nil && left.DeletionTimestamp != nil && slices.Equal(left.Finalizers, []string{nodeFinalizer}) && strings.HasPrefix(p.version, "v0.61.") {
			left.Finalizers = nil
			g.Expect(client.IgnoreNotFound(p.Shoot.Update(p.ctx, left))).To(Succeed())
		}
		g.Expect(err).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})
	owner := person{Pool: p, dir: p.t.TempDir()}
	for _, name := range []string{node, machine.Name} {
		p.Expect(owner.does("why", name)).To(And(
			ContainSubstring("The first bad condition: Ready was Unknown (NodeStatusUnknown)"),
			ContainSubstring("It was not preserved because its pool has no free place in its zone."),
			ContainSubstring("It was replaced at "), ContainSubstring("It is gone: node %q does not exist.", node)))
	}
}

// newFailure: where the share is used up by machines that show the same, the last one gives its place to one that fails for a new
// reason, and the first one stays.
func newFailure(p *Pool) {
	p.prefersNew = true
	p.configure(2, preserveTimeout)
	p.scale(perZone + 1)
	machines := p.running(perZone + 1)
	first, last, other := machines[0], machines[1], machines[2]

	p.fail(first, KubeletDead)
	p.almostFailed(first)
	p.fail(last, KubeletDead)
	expiry := p.preserved(first, failedPreserved, "auto")
	p.preserved(last, failedPreserved, "auto")

	p.fail(other, NodeCondition)
	kept := p.preserved(other, failedPreserved, "auto")
	p.event(last, "MachinePreservationEnded", "its place went to a machine that failed for another reason")
	p.gone(last)
	p.Expect(p.isPreserved(p, first, failedPreserved, "auto")).To(BeTemporally("==", expiry))
	p.Expect(p.isPreserved(p, other, failedPreserved, "auto")).To(BeTemporally("==", kept))
}

// sharedPlaces: one zone uses all places that the zones of a pool share, and there is none left, neither there nor in another zone.
func sharedPlaces(p *Pool) {
	p.shared = true
	p.configure(2, preserveTimeout)
	p.scale(perZone + 1)
	machines := p.running(perZone + 1)
	first, second, third := machines[0], machines[1], machines[2]

	p.fail(first, KubeletDead)
	p.fail(second, KubeletDead)
	expiry := p.preserved(first, failedPreserved, "auto")
	p.preserved(second, failedPreserved, "auto")

	none := third
	if other := p.elsewhere(p); other != nil {
		none = other
	}
	p.fail(none, KubeletDead)
	p.event(none, "MachinePreservationRefused", "its pool has no free place")
	p.gone(none)
	p.Expect(p.isPreserved(p, first, failedPreserved, "auto")).To(BeTemporally("==", expiry))
	p.isPreserved(p, second, failedPreserved, "auto")
}

// failuresAtOnce: the share is not exceeded, not even for a moment, when machines fail at the same time.
func failuresAtOnce(p *Pool) {
	machines := p.running(2)
	for _, machine := range machines {
		p.fail(machine, KubeletDead)
	}
	p.eventually(func(g Gomega) {
		held, known := 0, 0
		for _, machine := range p.machines(g) {
			if machine.Annotations[prefix+"phase"] == failedPreserved {
				held++
			}
			if machine.Name == machines[0].Name || machine.Name == machines[1].Name {
				known++
			}
		}
		p.Expect(held).To(BeNumerically("<=", 1))
		g.Expect([]int{held, known}).To(HaveEach(1))
	})
	p.running(1)
}

// requestsCount: a machine that somebody asked for takes a place of the share.
func requestsCount(p *Pool) {
	machines := p.running(2)
	p.request(machines[0], "when-failed")
	p.fail(machines[0], NodeCondition)
	expiry := p.preserved(machines[0], failedPreserved, "when-failed")

	p.fail(machines[1], NodeCondition)
	p.event(machines[1], "MachinePreservationRefused", "its pool has no free place in its zone")
	p.gone(machines[1])
	p.Expect(p.isPreserved(p, machines[0], failedPreserved, "when-failed")).To(BeTemporally("==", expiry))
}

// atMaximum: people are told when a failed machine keeps the pool at its maximum, and not before.
func atMaximum(p *Pool) {
	var maximum int32
	p.eventually(func(g Gomega) { // Gardener writes it into the Worker after the MachineDeployments
		settings, _ := share.Of(p.deployment(g))
		maximum = settings.Maximum
		g.Expect(maximum).To(BeNumerically(">", 0), "MachineDeployment %s does not say how many machines the cluster-autoscaler lets it have", p.deploymentName)
	})
	if maximum > perZone+2 {
		p.report.NotApplicable(p.t, fmt.Sprintf("the pool may have %d machines in the zone, which are too many to start for that", maximum))
	}
	machine := p.running(perZone)[0]
	p.fail(machine, NodeCondition)
	expiry := p.preserved(machine, failedPreserved, "auto")
	text := fmt.Sprintf("Pool %s is at its maximum of %d machines in ", p.name, maximum)
	p.consistently(shortly, func(g Gomega) {
		events := &eventsv1.EventList{}
		g.Expect(p.Seed.List(p.ctx, events, client.InNamespace(p.Namespace), client.MatchingFields{"regarding.name": machine.Name})).To(Succeed())
		g.Expect(events.Items).NotTo(ContainElement(HaveField("Reason", "PoolAtMaximum")))
	})

	p.scale(maximum)
	p.event(machine, "PoolAtMaximum", text)
	p.nodeEvent(machine, "PoolAtMaximum", "because 1 failed machine is preserved. The cluster-autoscaler adds no machine there")
	p.staysPreserved(machine, failedPreserved, "auto", expiry)
	p.eventually(func(g Gomega) { g.Expect(p.canGrow(g)).To(ContainSubstring(text)) })

	p.request(machine, "false")
	p.gone(machine)
	p.eventually(func(g Gomega) { g.Expect(p.canGrow(g)).NotTo(ContainSubstring(text)) })
}

// canGrow returns what the condition PoolsCanGrow of the Extension says.
func (p *Pool) canGrow(g Gomega) string {
	extension, err := p.extension(p.ctx)
	g.Expect(err).NotTo(HaveOccurred())
	for _, condition := range extension.Status.Conditions {
		if condition.Type == "PoolsCanGrow" {
			return condition.Message
		}
	}
	g.Expect(extension.Status.Conditions).To(ContainElement(HaveField("Type", BeEquivalentTo("PoolsCanGrow"))))
	return ""
}

// whenFailed: an explicit request needs no share.
func whenFailed(p *Pool) {
	machine := p.running(2)[0]
	p.request(machine, "when-failed")
	p.consistently(shortly, func(g Gomega) {
		g.Expect(p.fresh(g, machine).Annotations).NotTo(HaveKey(prefix + "phase"))
	})

	p.fail(machine, KubeletDead)
	expiry := p.preserved(machine, failedPreserved, "when-failed")
	p.staysPreserved(machine, failedPreserved, "when-failed", expiry)
}

// stoppedByFalse: a person lets go of a machine early, and the freed place is taken by the next failure.
func stoppedByFalse(p *Pool) {
	machines := p.running(2)
	p.fail(machines[0], KubeletDead)
	p.preserved(machines[0], failedPreserved, "auto")
	p.request(machines[0], "false")
	p.gone(machines[0])
	p.running(2)

	p.fail(machines[1], KubeletDead)
	expiry := p.preserved(machines[1], failedPreserved, "auto")
	p.staysPreserved(machines[1], failedPreserved, "auto", expiry)
}

// withdrawnRequest: who withdraws the request lets go of the machine.
func withdrawnRequest(p *Pool) {
	machine := p.running(2)[0]
	p.request(machine, "when-failed")
	p.fail(machine, NodeCondition)
	p.preserved(machine, failedPreserved, "when-failed")
	p.withdraw(machine)
	p.gone(machine)
	p.running(2)
}

// expiryOfRunning: a request with a duration of its own ends by itself and leaves nothing behind.
func expiryOfRunning(p *Pool) {
	machine := p.running(2)[0]
	asked := time.Now()
	p.annotate(machine, map[string]any{preserve: "now", prefix + "timeout": "20s"})
	expiry := p.preserved(machine, runningPreserved, "now")
	// It began at some time in between. Clocks may differ a little.
	p.Expect(expiry).To(And(BeTemporally(">=", asked.Add(20*time.Second-shortly)), BeTemporally("<=", time.Now().Add(20*time.Second+shortly))))

	p.Eventually(func(g Gomega) {
		g.Expect(trace(builder.Noted(p.fresh(g, machine)))).To(BeEmpty())
		g.Expect(p.node(g, machine).Annotations).NotTo(Or(HaveKey(HavePrefix(prefix)), HaveKey(preserve), HaveKey(HavePrefix(scaleDown))))
	}).WithTimeout(time.Until(expiry) + 10*time.Second).WithPolling(pollInterval).Should(Succeed())
	p.Expect(time.Now()).To(BeTemporally(">=", expiry))
	p.ordinary(machine)
}

// expiryOfFailed: a preserved machine that fails keeps its expiry, and goes when it is reached.
func expiryOfFailed(p *Pool) {
	machine := p.running(2)[0]
	timeout := 2*p.settings.Health + 80*time.Second
	p.annotate(machine, map[string]any{preserve: "now", prefix + "timeout": timeout.String()})
	expiry := p.preserved(machine, runningPreserved, "now")

	p.fail(machine, KubeletDead)
	p.Expect(p.preserved(machine, failedPreserved, "now")).To(BeTemporally("==", expiry))
	p.consistently(time.Until(expiry)-2*time.Second, func(g Gomega) {
		g.Expect(p.fresh(g, machine).DeletionTimestamp).To(BeNil())
	})
	p.gone(machine)
	p.running(2)
}

// recovery: a held machine whose node is healthy again takes pods again, and stays protected until the expiry.
func recovery(p *Pool) {
	machine := p.running(2)[0]
	p.fail(machine, KubeletDead)
	expiry := p.preserved(machine, failedPreserved, "auto")
	p.eventually(func(g Gomega) { g.Expect(p.node(g, machine)).To(tainted()) })

	p.fail(machine, NoFault)
	p.Expect(p.preserved(machine, runningPreserved, "auto")).To(BeTemporally("==", expiry))
	p.eventually(func(g Gomega) {
		node := p.node(g, machine)
		g.Expect(node).NotTo(tainted())
		g.Expect(node.Annotations).To(HaveKeyWithValue(scaleDown, "true"))
		g.Expect(p.fresh(g, machine).Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachineRunning))
	})
	p.staysPreserved(machine, runningPreserved, "auto", expiry)
}

// neverJoined: a machine that gets no node in time is held all the same, and may still join. If it fails again soon after that, that is
// another failure.
func neverJoined(p *Pool) {
	machine := p.oneThatNeverJoins()
	expiry := p.preserved(machine, failedPreserved, "auto")
	p.staysPreserved(machine, failedPreserved, "auto", expiry)
	why := func(parts ...string) {
		p.t.Helper()
		if needsPlugin(p.Environment) != "" {
			return
		}
		owner := person{Pool: p, dir: p.t.TempDir()}
		p.eventually(func(g Gomega) {
			text, _ := owner.terminal("", "why", machine.Name)
			for _, part := range parts {
				g.Expect(text).To(ContainSubstring(part))
			}
		})
	}
	why("it never joined the cluster", "It was preserved")

	p.fail(machine, NoFault)
	p.Expect(p.preserved(machine, runningPreserved, "auto")).To(BeTemporally("==", expiry))
	p.fail(machine, KubeletDead)
	p.preserved(machine, failedPreserved, "auto")
	why("Ready was Unknown", "It was preserved")
}

// neverJoinedNow: an operator asks for a machine that has no node yet, and never gets one.
func neverJoinedNow(p *Pool) {
	machine := p.oneThatNeverJoins()
	p.requestOnMachine(machine, "now")
	expiry := p.preserved(machine, "Pending:Preserved", "now")
	p.Expect(p.preserved(machine, failedPreserved, "now")).To(BeTemporally("==", expiry))
	p.staysPreserved(machine, failedPreserved, "now", expiry)
}

// visible: each transition is told on the Machine and on its node, and the node's condition shows the state.
func visible(p *Pool) {
	machine := p.running(2)[0]
	p.request(machine, "now")
	until := p.preserved(machine, runningPreserved, "now").UTC().Format(time.RFC3339)
	p.told(machine, "MachinePreserved", "Running:Preserved until "+until+" because it was requested (cause now)")
	p.shows(machine, corev1.ConditionTrue, until, "Preserved")

	p.fail(machine, NodeCondition)
	p.preserved(machine, failedPreserved, "now")
	p.told(machine, "PreservedMachineFailed", "Failed:Preserved until "+until+" because the machine failed (cause now)")
	p.shows(machine, corev1.ConditionTrue, until, "Drained")
	p.nodeEvent(machine, "PreservedNodeDrained", "is drained")

	p.fail(machine, NoFault)
	p.preserved(machine, runningPreserved, "now")
	p.told(machine, "PreservedMachineRecovered", "Running:Preserved until "+until+" because the node is healthy again (cause now)")
	p.shows(machine, corev1.ConditionTrue, until, "Preserved")

	p.request(machine, "false")
	p.ordinary(machine)
	p.told(machine, "MachinePreservationEnded", "no longer preserved because annotation node.machine.sapcloud.io/preserve=false was set")
	// Machine-controller-manager >= 0.62 has a reason of its own, if it is the first to notice.
	p.shows(machine, corev1.ConditionFalse, "", "PreservationEnded", "Preservation stopped.")
}
