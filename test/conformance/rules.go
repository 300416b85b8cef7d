// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

// Rule is a rule of preservation, one of drains, one of node maintenances, or one of power cycles.
type Rule struct {
	// ID is what tests have in their names.
	ID string
	// Text is the rule in short.
	Text string
}

// Rules returns all rules. Scenarios look at nearly all of them.
func Rules() []Rule {
	return []Rule{
		{"R1", "Requests are `now` (alias `true`), `when-failed` and `false`."},
		{"R2", "The Node's request, when its key is there, beats the Machine's and is synced to the Machine. Removing or emptying it withdraws the request."},
		{"R3", "Any other value is invalid: it is warned of, starts nothing and stops nothing."},
		{"R4", "`false` forbids auto-preservation and stops a preservation. It is never removed."},
		{"R5", "A request may carry its own timeout, from 10s to the operators' limit. An invalid one is warned of, and the pool's is used."},
		{"R6", "Operators can end and forbid every preservation of a Machine or a MachineDeployment."},
		{"T1", "`now` preserves a machine in any phase, and protects its node."},
		{"T2", "A preserved machine that fails is kept for as long as if nobody had asked, if there is a place for it, and else until its expiry; its node is tainted and drained."},
		{"T3", "Expiry, `false` or withdrawal make a preserved machine that has not failed an ordinary one."},
		{"T4", "A machine with `when-failed` is preserved when it fails, whatever the share."},
		{"T5", "A machine without request is preserved when it fails, within the share."},
		{"T6", "Without share, or with `false`, a failing machine is not touched."},
		{"T7", "A machine in Failed:Preserved that gets healthy takes pods again, and stays protected until its expiry."},
		{"T8", "Expiry, `false` or withdrawal let a machine in Failed:Preserved go. Its place is free at once."},
		{"T9", "A lowered share lets the oldest auto-preserved machines go, and no others."},
		{"T10", "A deletion is never blocked."},
		{"P1", "All machines in Failed:Preserved count towards the share. It is never exceeded by auto-preservation."},
		{"P2", "Preserved machines count as replicas, and are the last to go in a scale-down."},
		{"P3", "A machine that fails during a rolling update is replaced, whatever the request. One that cannot be deleted makes no rolling update. What machine-controller-manager puts on nodes then is its own."},
		{"P4", "Hibernation overrides preservation."},
		{"P5", "The protection from the cluster-autoscaler is put back. A user's own outlives the preservation."},
		{"P6", "A changed timeout applies to what begins after it. An edited expiry is obeyed."},
		{"P7", "Drains respect PodDisruptionBudgets until the drain timeout. A user's cordon is never touched."},
		{"P8", "The hold and the expiry are written first and cleared last. All state is in the objects."},
		{"P9", "Without a Node, or without the shoot's API server, machines are held all the same."},
		{"P10", "Nothing is held for ever, also without the controller."},
		{"P11", "Every transition is visible."},
		{"P12", "One machine's trouble delays no hold, release or expiry of another."},
		{"P13", "No machine is kept for people or the share for longer than operators allow, however often it is asked for, counted anew once it was healthy and kept by nobody. Their own edit of the expiry stands above that."},
		{"P14", "What is written in the shoot is taken for input: of a Node's text nothing but valid requests gets into objects of the seed."},
		{"H1", "A machine is healthy when its node says so, whatever its phase: after an outage of the shoot's API server all is as before."},
		{"H2", "A machine that never joined does not stay for ever: when its preservation ends, it is replaced."},
		{"H3", "What fails without a health deadline is held before machine-controller-manager acts, or not claimed to be."},
		{"H4", "A machine that is healthy again before its deadline never failed: nothing is left of its hold."},
		{"D1", "Drain strategies look after nodes that machine-controller-manager drains because of an update, and no others. Who cordoned a node is no matter."},
		{"D2", "Times are counted from when the drain commenced, by an object and never by the cordon, and not before the newest MachineSet was created. A time ahead counts from when it was seen first."},
		{"D3", "Pods are watched by node, while it is drained. DaemonSet pods, mirror pods, finished pods and pods of ignored namespaces are left alone."},
		{"D4", "A pod is protected if a PodDisruptionBudget of its own namespace selects it."},
		{"D5", "Each strategy acts at its time, to the moment, on what is there and on what comes after it. No finalizers are removed, and nothing is deleted again, before the grace period is over."},
		{"D6", "Each action names the pod by its UID. A failure on one pod stops no other, and is tried again within 30s. A pod that comes back has its grace period and a back-off, and one that finalizers keep is deleted once."},
		{"D7", "A drain has failed when pods are left after the last deadline that has pods, and stays so until it ends."},
		{"D8", "A metric tells of a failed drain for as long as it lasts, and an alert fires on it."},
		{"D9", "With `disabled: true` nothing is done with pods, and failed drains are told of all the same."},
		{"D10", "A pod with a volume on a node that does not answer is not deleted by force, unless the pool is set to risk it. It is named instead."},
		{"D11", "What a strategy did, what is waited for and until when, and which pods made a drain fail can be seen on the node and the pods."},
		{"D12", "One plan decides on all drains: a pure function of the time, the pods, the budgets and the stages."},
		{"M1", "A new maintenance is pending. What cannot be read keeps it so, with the reason: nothing is evicted on a filter that cannot be read."},
		{"M2", "A maintenance is scheduled by the scheduler only, from Pending only. Its finalizer is there before anything is done to the node."},
		{"M3", "A cordon of ours is recorded on the node in the same write, by an annotation and no taint, is put back with a back-off, and is all that is undone. Pods that got in while it was away are drained again. The next maintenance of the node takes it over."},
		{"M4", "Pods are waited for by the selector, and watched by node while a maintenance waits or drains, and at no other time."},
		{"M5", "Drains respect PodDisruptionBudgets and the filters; what is filtered out is no obstacle, and what blocks is named. A timeout begins anew."},
		{"M6", "A ready maintenance is True with its time. A requestor that fails keeps its node."},
		{"M7", "A deletion undoes everything in every phase, also without the Node. Additional requestors, and one that has failed, are waited for as long as operators allow."},
		{"M8", "A maintenance goes with its Node."},
		{"M9", "What is ready for too long is deleted, to the second, unless it is to be ignored."},
		{"M10", "What is scheduled is as the examples say. Limits are never exceeded, also with two replicas, and no slot is left free that could be used."},
		{"M11", "A freed slot is used within a second."},
		{"M12", "A machine whose node is under maintenance is preserved, for a limited time whatever the object says, counted anew once it was healthy without one. The maintenance says until when, or why not."},
		{"M13", "After a maintenance the preservation ends with the node's health, or after the health timeout."},
		{"M14", "A failed machine that is preserved can be maintained. It is unavailable already."},
		{"M15", "None is scheduled where the machine goes, is updated in place, power-cycled or hibernated, and what is under way then is set back."},
		{"M16", "Conditions on the node tell of a maintenance without its API."},
		{"M17", "Nodes without a machine and namespaces that are not allowed are refused, whatever is in the objects is bounded, and nothing depends on the resource definitions being there."},
		{"X1", "A node is made safe only when its host is reported off after that was asked for."},
		{"X2", "No host is left off, whatever happens in between. Only what is ours is swept. A deletion waits a minute at most."},
		{"X3", "A crash between any two writes changes nothing in the outcome. State is in the objects."},
		{"X4", "A request that is made anew is remembered, and not acted upon before the node had its time to start or was ready for 5 minutes."},
		{"X5", "Powering off, powering on and start-up have deadlines, counted whatever hinders. When one passes, the host is released and the cycle has failed."},
		{"X6", "There are as many cycles as attempts until the node is settled. After that a request is removed, and that is told."},
		{"X8", "As many machines of a MachineDeployment as may be at a time are power-cycled, the oldest request first, and none that goes, is under maintenance or fails along with many others. The reason of the wait is told."},
		{"X9", "Where it is automatic and allowed, a machine that is auto-preserved gets one request when it has failed and its evidence is stored, where that is configured, and a host three cycles a day at most."},
		{"X10", "From the request on the machine is preserved and not drained, until the node is back, or one health timeout after the cycle failed."},
		{"X11", "Who may write Machines may ask. Who may annotate Nodes may ask if operators allow it."},
		{"X12", "Phase and attempt are on the Machine. Every step is told on Machine and Node, has metrics, and is in a condition of the Node."},
		{"X13", "A cycle succeeded when the node is healthy with another boot id that can be believed, whatever the host reported."},
		{"X14", "Hosts that others keep off or have taken, and machines that are still being created, are not touched."},
		{"X15", "Who switches power cycles off gets all hosts back first: nothing ends before no mark of ours is left on any."},
	}
}
