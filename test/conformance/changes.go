// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// The scenarios in which something changes under way.

// loweredShare: of two auto-preserved machines the older one goes.
func loweredShare(p *Pool) {
	machines := p.running(2)
	for _, machine := range machines {
		p.fail(machine, NodeCondition)
	}
	for _, machine := range machines {
		p.preserved(machine, failedPreserved, "auto")
	}
	p.configure(1, preserveTimeout)
	p.gone(machines[0])
	expiry := p.isPreserved(p, machines[1], failedPreserved, "auto")
	p.staysPreserved(machines[1], failedPreserved, "auto", expiry)
}

// loweredShareBesideRequest: an explicit request is not cancelled by a limit.
func loweredShareBesideRequest(p *Pool) {
	machines := p.running(2)
	p.request(machines[0], "when-failed")
	for _, machine := range machines {
		p.fail(machine, KubeletDead)
	}
	expiry := p.preserved(machines[0], failedPreserved, "when-failed")
	p.preserved(machines[1], failedPreserved, "auto")
	p.configure(0, preserveTimeout)
	p.gone(machines[1])
	p.Expect(p.isPreserved(p, machines[0], failedPreserved, "when-failed")).To(BeTemporally("==", expiry))
}

// changedTimeout: a new timeout counts for what begins after it, and for nothing else.
func changedTimeout(p *Pool) {
	machines := p.running(2)
	p.request(machines[0], "now")
	expiry := p.preserved(machines[0], runningPreserved, "now")

	p.configure(0, time.Hour)
	p.request(machines[1], "now")
	p.Expect(p.preserved(machines[1], runningPreserved, "now")).To(BeTemporally("~", time.Now().Add(time.Hour), time.Minute))
	p.Expect(p.isPreserved(p, machines[0], runningPreserved, "now")).To(BeTemporally("==", expiry))
}

// editedExpiry: an operator moves the end of a preservation, and it is obeyed to the second.
func editedExpiry(p *Pool) {
	machine := p.running(2)[0]
	p.request(machine, "now")
	p.preserved(machine, runningPreserved, "now")

	// Machine-controller-manager >= 0.62 may write an expiry of its own until ours is marked as written.
	p.eventually(func(g Gomega) {
		g.Expect(builder.Noted(p.fresh(g, machine))).To(Or(HaveKey(builder.NoteExpiryInStatus), HaveKey(builder.NoteReplacedPriority)))
	})
	expiry := time.Now().Add(30 * time.Second).Truncate(time.Second)
	fresh := p.fresh(p, machine)
	patch := client.MergeFrom(fresh.DeepCopy())
	if preservation.IsExpiryInStatus(fresh) {
		fresh.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: expiry}
		p.Expect(p.Seed.Status().Patch(p.ctx, fresh, patch)).To(Succeed())
	} else {
		fresh.Annotations[prefix+"expiry-time"] = expiry.UTC().Format(time.RFC3339)
		p.Expect(p.Seed.Patch(p.ctx, fresh, patch)).To(Succeed())
	}
	p.Eventually(func(g Gomega) {
		g.Expect(p.isPreserved(g, machine, runningPreserved, "now")).To(BeTemporally("==", expiry))
	}).WithTimeout(25 * time.Second).WithPolling(pollInterval).Should(Succeed())

	p.Eventually(func(g Gomega) {
		g.Expect(p.fresh(g, machine).Annotations).NotTo(HaveKey(prefix + "cause"))
	}).WithTimeout(time.Until(expiry) + 5*time.Second).WithPolling(100 * time.Millisecond).Should(Succeed())
	p.Expect(time.Now()).To(BeTemporally(">=", expiry))
}

// scaleDownOfPreserved: the preserved machine is the last to go, and the cluster-autoscaler is told to leave it alone,
// also when somebody removes its annotation.
func scaleDownOfPreserved(p *Pool) {
	machines := p.running(2)
	machine := machines[0]
	p.request(machine, "now")
	p.preserved(machine, runningPreserved, "now")
	protected := func(g Gomega) { g.Expect(p.node(g, machine).Annotations).To(HaveKeyWithValue(scaleDown, "true")) }
	p.eventually(protected)
	p.annotate(machine, map[string]any{scaleDown: nil})
	p.eventually(protected)

	p.scale(1)
	p.gone(machines[1])
	p.isPreserved(p, machine, runningPreserved, "now")
}

// scaleDownOfFailed: a held machine counts as a replica, and a healthy one goes rather than it.
func scaleDownOfFailed(p *Pool) {
	machines := p.running(2)
	p.fail(machines[0], NodeCondition)
	expiry := p.preserved(machines[0], failedPreserved, "auto")
	p.consistently(shortly, func(g Gomega) { g.Expect(p.machines(g)).To(HaveLen(2)) })

	p.scale(1)
	p.gone(machines[1])
	p.staysPreserved(machines[0], failedPreserved, "auto", expiry)
}

// scaleToZero: what hibernation does to machine-controller-manager. No machine is kept, and the next ones are ordinary.
func scaleToZero(p *Pool) {
	machines := p.running(2)
	p.request(machines[0], "now")
	p.preserved(machines[0], runningPreserved, "now")
	p.fail(machines[1], KubeletDead)
	p.preserved(machines[1], failedPreserved, "auto")

	p.scale(0)
	p.gone(machines[0])
	p.gone(machines[1])
	p.event(machines[1], "MachinePreservationEnded", "the machine is being deleted")
	p.scale(2)
	for _, machine := range p.running(2) {
		p.Expect(machine.Annotations).NotTo(HaveKey(prefix + "cause"))
	}
}

// deletion: who deletes a preserved machine gets what they want.
func deletion(p *Pool) {
	machine := p.running(2)[0]
	p.fail(machine, NodeCondition)
	p.preserved(machine, failedPreserved, "auto")
	p.Expect(p.Seed.Delete(p.ctx, machine)).To(Succeed())
	p.gone(machine)
	p.event(machine, "MachinePreservationEnded", "the machine is being deleted")
	p.running(2)
}

// rollout: a preserved machine does not keep a rolling update from ending, and one that fails meanwhile is replaced.
func rollout(p *Pool) {
	machines := p.running(2)
	p.fail(machines[0], KubeletDead)
	p.preserved(machines[0], failedPreserved, "auto")

	p.roll()
	p.fail(machines[1], KubeletDead)

	p.gone(machines[0])
	p.gone(machines[1])
	for _, machine := range p.running(2) {
		p.Expect(machine.Annotations).NotTo(HaveKey(prefix + "cause"))
	}
}

// rolloutOfRequested: a new machine that somebody asked for, and that never joins, is replaced at its creation timeout. The
// rolling update goes on.
func rolloutOfRequested(p *Pool) {
	machines := p.running(2)
	first := p.rollStalled()
	p.requestOnMachine(first, "now")
	p.gone(first)
	p.gone(machines[0])
	p.gone(machines[1])
	p.running(2)
	p.eventually(func(g Gomega) {
		deployment := p.deployment(g)
		g.Expect([]int32{deployment.Status.UpdatedReplicas, deployment.Status.Replicas}).To(HaveEach(deployment.Spec.Replicas))
	})
}

// protectionInRollout: what machine-controller-manager puts on the nodes of a MachineDeployment that is being rolled stays as
// it is: on the node of an ordinary machine, and on that of one whose preservation ends meanwhile.
func protectionInRollout(p *Pool) {
	machines := p.running(2)
	machine := machines[0]
	p.request(machine, "now")
	p.preserved(machine, runningPreserved, "now")
	p.rollStalled()
	still := func(g Gomega) {
		for _, m := range machines {
			g.Expect(p.fresh(g, m).DeletionTimestamp).To(BeNil())
		}
	}
	// As long as it sees the status from before the update, machine-controller-manager takes the protection off again.
	p.eventually(func(g Gomega) {
		status := p.deployment(g).Status
		g.Expect(status.UpdatedReplicas).To(BeNumerically("<", status.Replicas))
	})
	p.consistently(shortly, still)
	p.markedByRollout(machines)
	states := []func() []*corev1.Node{p.watchNode(machines[0]), p.watchNode(machines[1])}
	p.consistently(shortly, still)
	seen := make([][]*corev1.Node, len(machines))
	if p.fresh(p, machine).Status.CurrentStatus.PreserveExpiryTime != nil {
		// Machine-controller-manager >= 0.62 takes the protection off itself when a request is withdrawn.
		seen[0] = states[0]()
	}
	p.withdraw(machine)
	p.eventually(func(g Gomega) { g.Expect(p.fresh(g, machine).Annotations).NotTo(HaveKey(prefix + "cause")) })
	p.consistently(45*time.Second, still)
	for i, m := range machines {
		if seen[i] == nil {
			seen[i] = states[i]()
		}
		p.t.Logf("Saw %d states of the node of machine %s", len(seen[i]), m.Name)
		p.Expect(seen[i]).To(HaveEach(markedByRollout()))
	}
}

// preferNoSchedule is the taint of nodes that a rolling update is going to replace, and the annotation of a MachineSet whose
// nodes machine-controller-manager has tried to taint.
const preferNoSchedule = "deployment.machine.sapcloud.io/prefer-no-schedule"

// markedByRollout matches a node with all that machine-controller-manager puts on it during a rolling update.
func markedByRollout() gomegatypes.GomegaMatcher {
	return And(
		HaveField("Annotations", And(HaveKeyWithValue(scaleDown, "true"), HaveKeyWithValue(scaleDown+"-by-mcm", "true"))),
		HaveField("Spec.Taints", ContainElement(HaveField("Key", preferNoSchedule))),
	)
}

// markedByRollout waits until machine-controller-manager has marked the machines' nodes for the rolling update. It tries to
// taint the nodes of a MachineSet once, and does not try again if somebody else wrote the node meanwhile. Without its
// annotation on the MachineSet, it does.
func (p *Pool) markedByRollout(machines []*machinev1alpha1.Machine) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		for _, machine := range machines {
			set := &machinev1alpha1.MachineSet{}
			g.Expect(p.Seed.Get(p.ctx, client.ObjectKey{Namespace: p.Namespace, Name: metav1.GetControllerOf(p.fresh(g, machine)).Name}, set)).To(Succeed())
			node := p.node(g, machine) // read after the MachineSet, whose annotation comes last
			if marked, err := markedByRollout().Match(node); err == nil && !marked && metav1.HasAnnotation(set.ObjectMeta, preferNoSchedule) {
				p.t.Logf("MachineSet %s: machine-controller-manager has not marked the node of machine %s, and is asked to try again", set.Name, machine.Name)
				patch := client.MergeFrom(set.DeepCopy())
				delete(set.Annotations, preferNoSchedule)
				g.Expect(p.Seed.Patch(p.ctx, set, patch)).To(Succeed())
			}
			g.Expect(node).To(markedByRollout())
		}
	})
}

// requestOfPool: a request in the pool's annotations, which machine-controller-manager restores on the node as often as it
// changes there, is obeyed like any other: the machine is held, stays as it is, and ends at its expiry.
func requestOfPool(p *Pool) {
	machine := p.running(2)[0]
	p.requestForPool("when-failed")
	defer p.requestForPool(nil)
	p.synced(machine, "when-failed")
	timeout := p.settings.Health + 40*time.Second
	p.annotate(machine, map[string]any{prefix + "timeout": timeout.String()})

	p.fail(machine, KubeletDead)
	expiry := p.preserved(machine, failedPreserved, "when-failed")
	p.eventually(func(g Gomega) { g.Expect(p.node(g, machine)).To(tainted()) })
	p.consistently(time.Until(expiry)-2*time.Second, func(g Gomega) {
		g.Expect(p.isPreserved(g, machine, failedPreserved, "when-failed")).To(BeTemporally("==", expiry))
		g.Expect(p.node(g, machine).Annotations).To(HaveKeyWithValue(preserve, "when-failed"))
	})
	p.gone(machine)
	p.running(2)
}

// requestForPool writes a request into the annotations of the pool's nodes; nil removes it.
func (p *Pool) requestForPool(value any) {
	p.t.Helper()
	p.t.Logf("MachineDeployment %s: annotation of the nodes %s=%v", p.deploymentName, preserve, value)
	patch, err := json.Marshal(map[string]any{"spec": map[string]any{"template": map[string]any{"spec": map[string]any{
		"nodeTemplate": map[string]any{"metadata": map[string]any{"annotations": map[string]any{preserve: value}}},
	}}}})
	p.Expect(err).NotTo(HaveOccurred())
	p.Expect(p.Seed.Patch(p.ctx, p.deployment(p), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

// roll begins a rolling update.
func (p *Pool) roll() {
	p.t.Helper()
	p.t.Logf("MachineDeployment %s: rolling update", p.deploymentName)
	deployment := p.deployment(p)
	patch := client.MergeFrom(deployment.DeepCopy())
	metav1.SetMetaDataAnnotation(&deployment.Spec.Template.ObjectMeta, "conformance", time.Now().UTC().Format(time.RFC3339))
	p.Expect(p.Seed.Patch(p.ctx, deployment, patch)).To(Succeed())
}

// rollStalled begins a rolling update that does not get on before its first machine, which never joins, is replaced. It
// returns that machine.
func (p *Pool) rollStalled() *machinev1alpha1.Machine {
	p.t.Helper()
	return p.nextNeverJoins(2, p.roll) // machine-controller-manager may add two at once
}

// restart: machine-controller-manager is restarted while machines are preserved and one is about to be. Nothing is lost,
// and nothing is forgotten.
func restart(p *Pool) {
	p.scale(3)
	machines := p.running(3)
	running, failed, next := machines[0], machines[1], machines[2]
	p.request(running, "now")
	expiryOfRunning := p.preserved(running, runningPreserved, "now")
	p.fail(failed, KubeletDead)
	expiryOfFailed := p.preserved(failed, failedPreserved, "auto")
	p.fail(next, KubeletDead)
	p.almostFailed(next)

	p.restartMachineControllerManager()
	expiryOfNext := p.preserved(next, failedPreserved, "auto")
	p.consistently(takeover+p.settings.endurance(), func(g Gomega) {
		g.Expect(p.isPreserved(g, running, runningPreserved, "now")).To(BeTemporally("==", expiryOfRunning))
		g.Expect(p.isPreserved(g, failed, failedPreserved, "auto")).To(BeTemporally("==", expiryOfFailed))
		g.Expect(p.isPreserved(g, next, failedPreserved, "auto")).To(BeTemporally("==", expiryOfNext))
	})
	p.withdraw(running)
	p.ordinary(running)
}

// shootAway: a machine is held although the shoot's API server is away, and its node is marked when that is back.
func shootAway(p *Pool) {
	machine := p.running(2)[0]
	p.fail(machine, KubeletDead)
	p.almostFailed(machine)
	back := p.shootAway()
	expiry := p.preserved(machine, failedPreserved, "auto")
	back()
	p.eventually(func(g Gomega) {
		node := p.node(g, machine)
		g.Expect(node).To(And(tainted(), withCondition("Preserved", corev1.ConditionTrue)))
		g.Expect(node.Annotations).To(HaveKeyWithValue(scaleDown, "true"))
	})
	p.staysPreserved(machine, failedPreserved, "auto", expiry)
}

// restartMachineControllerManager does what kubectl rollout restart does, and waits as kubectl rollout status does.
func (p *Pool) restartMachineControllerManager() {
	p.t.Helper()
	p.t.Log("Deployment machine-controller-manager: restart")
	deployment := &appsv1.Deployment{}
	p.Expect(p.Seed.Get(p.ctx, client.ObjectKey{Namespace: p.Namespace, Name: machineControllerManager}, deployment)).To(Succeed())
	patch := client.MergeFrom(deployment.DeepCopy())
	metav1.SetMetaDataAnnotation(&deployment.Spec.Template.ObjectMeta, "kubectl.kubernetes.io/restartedAt", time.Now().Format(time.RFC3339))
	p.Expect(p.Seed.Patch(p.ctx, deployment, patch)).To(Succeed())
	p.eventually(func(g Gomega) {
		g.Expect(p.Seed.Get(p.ctx, client.ObjectKeyFromObject(deployment), deployment)).To(Succeed())
		status := deployment.Status
		g.Expect(status.ObservedGeneration).To(BeNumerically(">=", deployment.Generation))
		g.Expect([]int32{status.Replicas, status.UpdatedReplicas, status.AvailableReplicas}).To(HaveEach(*deployment.Spec.Replicas))
	})
}

// reconciliationsOfProvider: the provider extension writes its MachineDeployments again and again, and the share is never
// seen to be another one. No machine is rolled by it.
func reconciliationsOfProvider(p *Pool) {
	before := p.running(2)
	watch, err := p.Seed.Watch(p.ctx, &machinev1alpha1.MachineDeploymentList{}, client.InNamespace(p.Namespace),
		client.MatchingFields{metav1.ObjectNameField: p.deploymentName})
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
		p.eventually(func(g Gomega) {
			g.Expect(p.Seed.Get(p.ctx, client.ObjectKeyFromObject(worker), worker)).To(Succeed())
			g.Expect(worker.Annotations).NotTo(HaveKey(v1beta1constants.GardenerOperation))
			g.Expect(worker.Status.LastOperation).To(And(
				HaveField("State", gardencorev1beta1.LastOperationStateSucceeded),
				HaveField("LastUpdateTime.Time", BeTemporally(">=", started.Time)),
			))
		})
	}

	watch.Stop()
	seen := <-shares
	p.t.Logf("Saw %d states of MachineDeployment %s", len(seen), p.deploymentName)
	p.Expect(seen).To(HaveEach("1"))
	p.Expect(p.running(2)).To(HaveExactElements(HaveField("Name", before[0].Name), HaveField("Name", before[1].Name)))
}
