// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"testing"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Scenario tries rules on a pool.
type Scenario struct {
	// Name is also the name of the worker pool: it has one zone, two machines, and the health timeout of the shoot.
	Name string
	// Rules are the ids of the rules that the scenario proves.
	Rules []string
	// Share is the pool's autoPreserveFailedMax.
	Share int32
	// Healthy says that no machine of the shoot may be broken while the scenario runs.
	Healthy bool

	run func(p *Pool)
}

// Run runs all scenarios as subtests with the ids of the rules in their names.
func Run(ctx context.Context, t *testing.T, e *Environment) {
	for _, healthy := range []bool{true, false} {
		t.Run(map[bool]string{true: "healthy", false: "failing"}[healthy], func(t *testing.T) {
			for _, scenario := range Scenarios() {
				if scenario.Healthy == healthy {
					scenario.start(ctx, t, e)
				}
			}
		})
	}
}

func (s Scenario) start(ctx context.Context, t *testing.T, e *Environment) {
	name := s.Name
	for _, rule := range s.Rules {
		name += " " + rule
	}
	t.Run(name, func(t *testing.T) {
		t.Parallel()
		s.run(&Pool{Environment: e, WithT: NewWithT(t), t: t, ctx: ctx, name: s.Name})
	})
}

// Scenarios returns all scenarios.
func Scenarios() []Scenario {
	return []Scenario{
		{Name: "auto", Rules: []string{"T5", "T6", "P1", "P7", "P11"}, Share: 1, run: autoPreservation},
		{Name: "when-failed", Rules: []string{"T4", "R1", "R2"}, run: whenFailed},
		{Name: "scale-down", Rules: []string{"T1", "P2", "P5"}, Healthy: true, run: scaleDownOfPreserved},
		{Name: "stopped", Rules: []string{"T8", "R4"}, Share: 1, run: stoppedByFalse},
		{Name: "expiry", Rules: []string{"T1", "T3", "R5"}, Healthy: true, run: expiryOfRunning},
		{Name: "failed-expiry", Rules: []string{"T2", "T8", "P10"}, run: expiryOfFailed},
		{Name: "recovery", Rules: []string{"T7", "P7"}, Share: 1, run: recovery},
		{Name: "forbidden", Rules: []string{"T6", "R4"}, Share: 1, run: forbidden},
		{Name: "lowered", Rules: []string{"T9", "P1"}, Share: 2, run: loweredShare},
		{Name: "deleted", Rules: []string{"T10"}, Share: 1, run: deletion},
		{Name: "never-joined", Rules: []string{"T5", "T7", "P9"}, Share: 1, run: neverJoined},
		{Name: "rollout", Rules: []string{"P3"}, Share: 1, run: rollout},
		{Name: "edited", Rules: []string{"P6"}, Healthy: true, run: editedExpiry},
		{Name: "invalid", Rules: []string{"R3", "R5"}, Healthy: true, run: invalidRequests},
		{Name: "provider", Share: 1, Healthy: true, run: reconciliationsOfProvider},
	}
}

// autoPreservation: of two machines that fail, the share has room for one. It is drained, the other one is replaced.
func autoPreservation(p *Pool) {
	machines := p.running(2)
	first, second := machines[0], machines[1]
	agent, app := p.workload(first)

	p.fail(first, KubeletDead)
	expiry := p.preserved(first, failedPreserved, "auto")
	p.Expect(expiry).To(BeTemporally("~", time.Now().Add(72*time.Hour), time.Minute))
	p.Eventually(func(g Gomega) {
		node := p.node(g, first)
		g.Expect(node).To(tainted())
		g.Expect(node.Spec.Unschedulable).To(BeFalse())
		g.Expect(node.Annotations).To(HaveKeyWithValue(scaleDown, "true"))
		g.Expect(node.Status.Conditions).To(ContainElement(And(
			HaveField("Type", corev1.NodeConditionType("Preserved")), HaveField("Status", corev1.ConditionTrue))))
	}).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())

	p.fail(second, KubeletDead)
	p.gone(second)
	p.running(1)
	p.Expect(p.isPreserved(p, first, failedPreserved, "auto")).To(BeTemporally("==", expiry))

	// The kubelet is dead: the pod goes by force after the drain timeout, and not before it was evicted.
	p.Eventually(func(g Gomega) {
		g.Expect(p.exists(app)).To(BeFalse())
		g.Expect(p.node(g, first).Status.Conditions).To(ContainElement(And(
			HaveField("Type", corev1.NodeConditionType("Preserved")), HaveField("Status", corev1.ConditionTrue), HaveField("Reason", "Drained"))))
	}).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
	p.Expect(p.exists(agent)).To(BeTrue())
	p.event(first, "MachinePreserved", failedPreserved)
}

// whenFailed: an explicit request needs no share.
func whenFailed(p *Pool) {
	machine := p.running(2)[0]
	p.annotate(machine, map[string]string{preserve: "when-failed"})
	p.Consistently(func(g Gomega) {
		g.Expect(p.fresh(g, machine).Annotations).NotTo(HaveKey(prefix + "phase"))
	}).WithTimeout(5 * time.Second).WithPolling(pollInterval).Should(Succeed())

	p.fail(machine, KubeletDead)
	expiry := p.preserved(machine, failedPreserved, "when-failed")
	p.staysPreserved(machine, failedPreserved, "when-failed", expiry)
}

// scaleDownOfPreserved: the preserved machine is the last to go, and the cluster-autoscaler is told to leave it alone,
// also when somebody removes its annotation.
func scaleDownOfPreserved(p *Pool) {
	machines := p.running(2)
	machine := machines[0]
	p.annotate(machine, map[string]string{preserve: "now"})
	p.preserved(machine, runningPreserved, "now")
	protected := func(g Gomega) { g.Expect(p.node(g, machine).Annotations).To(HaveKeyWithValue(scaleDown, "true")) }
	p.Eventually(protected).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
	p.annotate(machine, map[string]string{scaleDown: ""})
	p.Eventually(protected).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())

	p.scale(p.deployment(), 1)
	p.gone(machines[1])
	p.isPreserved(p, machine, runningPreserved, "now")
}

// stoppedByFalse: a person lets go of a machine early, and the freed place is taken by the next failure.
func stoppedByFalse(p *Pool) {
	machines := p.running(2)
	p.fail(machines[0], KubeletDead)
	p.preserved(machines[0], failedPreserved, "auto")
	p.annotate(machines[0], map[string]string{preserve: "false"})
	p.gone(machines[0])
	p.running(2)

	p.fail(machines[1], KubeletDead)
	expiry := p.preserved(machines[1], failedPreserved, "auto")
	p.staysPreserved(machines[1], failedPreserved, "auto", expiry)
}

// expiryOfRunning: a request with a duration of its own ends by itself and leaves nothing behind.
func expiryOfRunning(p *Pool) {
	machine := p.running(2)[0]
	p.annotate(machine, map[string]string{preserve: "now", prefix + "timeout": "20s"})
	expiry := p.preserved(machine, runningPreserved, "now")
	p.Expect(expiry).To(BeTemporally("~", time.Now().Add(20*time.Second), 5*time.Second))

	p.Eventually(func(g Gomega) {
		g.Expect(p.fresh(g, machine).Annotations).NotTo(Or(HaveKey(HavePrefix(prefix)), HaveKey(preserve)))
		g.Expect(p.node(g, machine).Annotations).NotTo(Or(HaveKey(HavePrefix(prefix)), HaveKey(preserve), HaveKey(HavePrefix(scaleDown))))
	}).WithTimeout(time.Until(expiry) + 10*time.Second).WithPolling(pollInterval).Should(Succeed())
	p.Expect(time.Now()).To(BeTemporally(">=", expiry))
	p.Consistently(func(g Gomega) { g.Expect(p.fresh(g, machine).DeletionTimestamp).To(BeNil()) }).
		WithTimeout(5 * time.Second).WithPolling(pollInterval).Should(Succeed())
}

// expiryOfFailed: a preserved machine that fails keeps its expiry, and goes when it is reached.
func expiryOfFailed(p *Pool) {
	machine := p.running(2)[0]
	p.annotate(machine, map[string]string{preserve: "now", prefix + "timeout": "2m"})
	expiry := p.preserved(machine, runningPreserved, "now")

	p.fail(machine, KubeletDead)
	p.Expect(p.preserved(machine, failedPreserved, "now")).To(BeTemporally("==", expiry))
	p.Consistently(func(g Gomega) { g.Expect(p.fresh(g, machine).DeletionTimestamp).To(BeNil()) }).
		WithTimeout(time.Until(expiry) - 2*time.Second).WithPolling(pollInterval).Should(Succeed())
	p.gone(machine)
	p.running(2)
}

// recovery: a held machine whose node is healthy again takes pods again, and stays protected until the expiry.
func recovery(p *Pool) {
	machine := p.running(2)[0]
	p.fail(machine, KubeletDead)
	expiry := p.preserved(machine, failedPreserved, "auto")
	p.Eventually(func(g Gomega) { g.Expect(p.node(g, machine)).To(tainted()) }).
		WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())

	p.fail(machine, NoFault)
	p.Expect(p.preserved(machine, runningPreserved, "auto")).To(BeTemporally("==", expiry))
	p.Eventually(func(g Gomega) {
		node := p.node(g, machine)
		g.Expect(node).NotTo(tainted())
		g.Expect(node.Annotations).To(HaveKeyWithValue(scaleDown, "true"))
		g.Expect(p.fresh(g, machine).Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachineRunning))
	}).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
	p.staysPreserved(machine, runningPreserved, "auto", expiry)
}

// forbidden: a machine that must not be preserved is replaced as if the extension did not exist.
func forbidden(p *Pool) {
	machine := p.running(2)[0]
	p.annotate(machine, map[string]string{preserve: "false"})
	p.fail(machine, KubeletDead)
	p.gone(machine)
	p.running(2)
}

// reconciliationsOfProvider: the provider extension writes its MachineDeployments again and again, and the share is never
// seen to be another one. No machine is rolled by it.
func reconciliationsOfProvider(p *Pool) {
	before := p.running(2)
	deployment := p.deployment()
	watch, err := p.Seed.Watch(p.ctx, &machinev1alpha1.MachineDeploymentList{}, client.InNamespace(p.Namespace),
		client.MatchingFields{metav1.ObjectNameField: deployment.Name})
	p.Expect(err).NotTo(HaveOccurred())
	shares := make(chan []string, 1)
	go func() {
		var seen []string
		for event := range watch.ResultChan() {
			if d, ok := event.Object.(*machinev1alpha1.MachineDeployment); ok {
				seen = append(seen, d.Annotations[prefix+"auto-preserve-failed-max"])
			}
		}
		shares <- seen
	}()

	workers := &extensionsv1alpha1.WorkerList{}
	p.Expect(p.Seed.List(p.ctx, workers, client.InNamespace(p.Namespace))).To(Succeed())
	p.Expect(workers.Items).To(HaveLen(1))
	worker := &workers.Items[0]
	for range 10 {
		patch := client.MergeFrom(worker.DeepCopy())
		metav1.SetMetaDataAnnotation(&worker.ObjectMeta, v1beta1constants.GardenerOperation, v1beta1constants.GardenerOperationReconcile)
		started := metav1.Now().Rfc3339Copy()
		p.Expect(p.Seed.Patch(p.ctx, worker, patch)).To(Succeed())
		p.Eventually(func(g Gomega) {
			g.Expect(p.Seed.Get(p.ctx, client.ObjectKeyFromObject(worker), worker)).To(Succeed())
			g.Expect(worker.Annotations).NotTo(HaveKey(v1beta1constants.GardenerOperation))
			g.Expect(worker.Status.LastOperation).To(And(
				HaveField("State", gardencorev1beta1.LastOperationStateSucceeded),
				HaveField("LastUpdateTime.Time", BeTemporally(">=", started.Time)),
			))
		}).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
	}

	watch.Stop()
	seen := <-shares
	p.t.Logf("Saw %d states of MachineDeployment %s", len(seen), deployment.Name)
	p.Expect(seen).To(HaveEach("1"))
	p.Expect(p.running(2)).To(HaveExactElements(HaveField("Name", before[0].Name), HaveField("Name", before[1].Name)))
}
