// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
)

// PollInterval is how often what is not watched is looked at: what is left of a node that is being made safe.
const PollInterval = 5 * time.Second

// advance goes on with a cycle.
func (d *decision) advance() {
	if d.to.record.catchUp(d.stamp()) { // it is decided again when that is written
		return
	}
	if d.stands() {
		return
	}
	if !d.is.needs { // what is asked for later is another request (X16)
		d.to.record.Healthy = nil
	}
	if !d.is.keepsOff() && d.isProven() {
		d.conclude(v1alpha1.PowerCycleSucceeded, "The node is back.")
		return
	}
	deadline, missed := d.deadline()
	if !d.now.Before(deadline) { // before any wait (X5)
		d.conclude(v1alpha1.PowerCycleFailed, missed)
		return
	}
	d.Deadline = deadline
	d.wake(deadline)
	switch {
	case d.isStopped():
		d.Release = d.ownsHost()
		if d.isReleased() {
			d.conclude(v1alpha1.PowerCycleCancelled, "The machine must not be preserved any more.")
		}
	case d.is.keepsOff():
		d.powerOff()
	case d.is.phase == v1alpha1.PowerCyclePoweringOn && d.isOn() && !d.Host.Requested:
		d.setPhase(v1alpha1.PowerCycleStarting, "The host is on. Waiting for its node.")
	}
}

// stands says that the deadlines stand still because the host is being serviced (X18). The machine is preserved meanwhile, and for a whole
// cycle after that. If all of it takes longer than MaxServicing, the cycle has failed: people are called, and the host is not touched
// all the same.
func (d *decision) stands() bool {
	r := &d.to.record
	limit := d.stamp().Add(d.group.Settings.longest()).Add(d.healthTimeout())
	most := max(0, d.group.MaxServicing-r.Paused)
	switch since := d.is.record.Servicing; {
	case d.isServiced() && since.IsZero():
		r.Servicing = d.stamp()
		d.to.until = limit.Add(most)
		d.tell(false, EventServicing, "The power cycle and its deadlines are paused because of the host: "+d.Host.Servicing)
	case since.IsZero():
		return false
	case !d.now.Before(since.Add(most)) && (d.isServiced() || d.Host == nil):
		d.conclude(v1alpha1.PowerCycleFailed, fmt.Sprintf("The host was serviced for longer than %s. It is powered on when the servicing is over.", d.group.MaxServicing))
		return true
	case d.Host != nil && !d.isServiced():
		stood := d.stamp().Sub(since)
		r.Servicing, r.Paused = time.Time{}, r.Paused+stood
		if !d.is.keepsOff() {
			r.Since = r.Since.Add(stood)
		}
		d.to.until = limit
		return true
	}
	if d.isServiced() {
		d.waits = cmp.Or(d.Host.Servicing, d.Host.Error)
	}
	d.Deadline = r.Servicing.Add(most)
	d.wake(d.Deadline)
	return true
}

// isServiced says that the host's own controller is working on it. An error that comes meanwhile is part of that: a BMC may be away
// while its firmware is updated.
func (d *decision) isServiced() bool {
	return d.Host != nil && (d.Host.Servicing != "" || d.Host.Error != "" && d.is.underWay() && !d.is.record.Servicing.IsZero())
}

// deadline returns when the phase must be over whatever hinders, and in words what is then missed: those until the node is safe
// count from when the cycle began, which is the time of the request on the host, each later one from when it began itself (X5).
func (d *decision) deadline() (time.Time, string) {
	s, r := d.group.Settings, d.is.record
	began := r.Began
	if r.Since.Before(began) { // the clock was set back
		began = r.Since
	}
	switch safe := began.Add(s.PowerOff + r.Paused); d.is.phase {
	case v1alpha1.PowerCyclePoweringOff:
		if !d.isClaimed() && !d.ownsHost() {
			return safe, fmt.Sprintf("The machine was not preserved for the power cycle within %s.", s.PowerOff)
		}
		return safe, fmt.Sprintf("The host was not off within %s.%s", s.PowerOff, d.hostError())
	case v1alpha1.PowerCycleMakingNodeSafe:
		return safe, fmt.Sprintf("The node was not made safe within %s: %s", s.PowerOff, d.contentsText())
	case v1alpha1.PowerCyclePoweringOn:
		return r.Since.Add(s.PowerOn), fmt.Sprintf("The host was not on within %s.%s", s.PowerOn, d.hostError())
	}
	missed := fmt.Sprintf("The node was not back within %s.", s.NodeStartup)
	if d.Healthy && bootID(d.Node) == r.BootID {
		missed = "The node has not rebooted: its boot ID has not changed."
	}
	return r.Since.Add(s.NodeStartup), missed
}

// hostError returns what the controller of the host says is wrong with it, formatted for the end of a text (X20).
func (d *decision) hostError() string {
	if d.Host == nil || d.Host.Error == "" {
		return ""
	}
	return " The controller of the host reports: " + d.Host.Error
}

func (d *decision) contentsText() string {
	if d.NodeContents == nil {
		return "its pods and volumes are not known."
	}
	return brief.Count(d.NodeContents.Pods, "pod") + " and " + brief.Count(d.NodeContents.VolumeAttachments, "VolumeAttachment") + " were left."
}

// powerOff does what the truth table says until the host may be on again. What is not known is waited for.
func (d *decision) powerOff() {
	host, requested := d.Host, d.holdsHost()
	switch {
	case host == nil:
		return
	case host.UID != d.is.record.Host: // the one that was asked is swept
		d.conclude(v1alpha1.PowerCycleFailed, "The machine has another host now.")
		return
	case d.isRestored():
		d.conclude(v1alpha1.PowerCycleFailed, "The machine was restored in another control plane while its host was off.")
		return
	case !requested && !d.is.needs:
		d.conclude(v1alpha1.PowerCycleCancelled, "The request was withdrawn.")
		return
	case !requested && !d.mayPowerOff(), host.On == nil:
		return
	}
	if requested && host.Owner != nil { // from now on it can be put back
		d.to.record.On = host.Owner.On
	}
	action := TruthTable(!d.isSafe(), d.is.needs, *host.On, requested)
	if (action == ActionMakeSafe || action == ActionRemoveNeeds) && !host.OffSinceRequest { // X1
		return
	}
	switch action {
	case ActionPowerOff:
		d.PowerOff = &Owner{
			Seed: d.group.Seed, Namespace: d.Machine.Namespace, Machine: d.Machine.Name, UID: d.Machine.UID, BootID: d.is.record.BootID, Time: d.is.record.Began,
		}
	case ActionMakeSafe:
		d.makeSafe()
	case ActionRemoveNeeds:
		d.to.needs, d.to.record.Healthy = false, nil
		d.setPhase(v1alpha1.PowerCyclePoweringOn, "The node is safe. The host is being powered on.")
	case ActionPowerOn:
		d.setPhase(v1alpha1.PowerCyclePoweringOn, "The request was withdrawn. The host is being powered on.")
	}
}

// mayPowerOff says that nothing has come in the way of a cycle since it began, and that the machine is preserved for it. What has is
// waited for again, except if somebody has taken our request back, so that the host may have been off: then it fails as soon as
// the host is on.
func (d *decision) mayPowerOff() bool {
	if !d.Host.Live {
		d.Confirm, d.ConfirmOthers = true, true
		return false
	}
	untouched := d.is.phase == v1alpha1.PowerCyclePoweringOff && !d.ownsHost() && d.is.record.On == ""
	if d.isUnwanted() {
		if !untouched {
			d.conclude(v1alpha1.PowerCycleCancelled, recovered)
			return false
		}
		d.undo()
		d.to.needs, d.taken = false, true
		d.withdraw()
		d.tell(false, EventRecovered, recovered)
		return false
	}
	if d.group.Uncounted {
		d.wake(d.now.Add(PollInterval))
		return false
	}
	reason := d.obstacle()
	switch {
	case reason == "" && d.isClaimed():
		return true
	case reason == "":
		d.waits = "The machine is not preserved for the power cycle yet."
	case untouched:
		d.stepBack(reason)
	case d.Host.On != nil && *d.Host.On:
		d.conclude(v1alpha1.PowerCycleFailed, "Somebody else has powered the host on, and it must not be powered off again now. "+reason)
	}
	return false
}

// makeSafe taints the node. Whose taint it is has been written down before.
func (d *decision) makeSafe() {
	if d.Node == nil {
		return
	}
	tainted := isOutOfService(d.Node)
	if d.is.phase == v1alpha1.PowerCyclePoweringOff {
		d.to.record.Tainted = d.is.record.Tainted || !tainted
		d.to.record.BootID = bootID(d.Node) // it has not changed since the host is off (X13)
		d.setPhase(v1alpha1.PowerCycleMakingNodeSafe, "The host is off. The pods of its node are being deleted, and their volumes detached.")
		return
	}
	due := d.is.record.Tainted && !tainted
	d.fence = due && d.Host.Live
	d.Confirm = due && !d.Host.Live
	d.to.record.Tainted = d.is.record.Tainted || !tainted
	d.ReadNodeContents = tainted
	d.wake(d.now.Add(PollInterval))
}

// isSafe says that nothing of the node is in use any more: it is gone, or no pod and no VolumeAttachment is left since it
// was tainted.
func (d *decision) isSafe() bool {
	if d.Node == nil {
		return !d.NodeUnknown
	}
	return d.is.phase == v1alpha1.PowerCycleMakingNodeSafe && isOutOfService(d.Node) && d.NodeContents != nil && *d.NodeContents == NodeContents{}
}

// conclude ends a cycle. What asked for it until then has had its answer, also a request that was made anew in between: the
// node is back, or the cycle has failed (X4). One health timeout after it has failed the machine is not preserved any more (X10).
func (d *decision) conclude(phase, note string) {
	d.Release = d.ownsHost()
	again := d.stamp()
	if d.is.phase == v1alpha1.PowerCycleStarting {
		again = d.is.record.Since
	}
	d.to.needs, d.to.until, d.to.record.Requested, d.to.record.Healthy = false, time.Time{}, time.Time{}, nil
	if phase == v1alpha1.PowerCycleFailed {
		d.to.until = d.stamp().Add(d.healthTimeout())
	}
	d.to.record.Servicing = time.Time{}
	d.to.record.Ended, d.to.record.Again = d.stamp(), again.Add(d.group.Settings.NodeStartup)
	d.setPhase(phase, note)
	if phase == v1alpha1.PowerCycleFailed {
		d.wake(d.to.until)
	}
}

// begin writes down that a cycle begins, and all that must be on the Machine before its host is touched (X3, X10). That is
// confirmed before.
func (d *decision) begin() {
	if !d.Host.Live {
		d.Confirm, d.ConfirmOthers = true, true
		return
	}
	stamp := d.stamp()
	r := d.to.record
	d.to.attempt++
	d.to.record = record{
		Began:  stamp,
		Host:   d.Host.UID,
		BootID: bootID(d.Node),
		// The taint of a cycle that failed is still ours.
		Tainted: r.Tainted,
		Asked:   r.Asked,
		Cycles:  append(r.recent(d.now), stamp),
		DryRun:  r.DryRun,
		// It may have to wait again.
		Requested: r.Requested,
		Automatic: r.Automatic,
		Healthy:   r.Healthy,
		Ended:     r.Ended,
		Again:     r.Again,
	}
	d.to.until = stamp.Add(d.group.Settings.longest()).Add(d.healthTimeout())
	d.setPhase(v1alpha1.PowerCyclePoweringOff, fmt.Sprintf("The host is being powered off, attempt %d of %d.", d.to.attempt, d.group.Settings.MaxAttempts))
}

// stepBack lets a cycle wait again that has begun, and whose host must not be switched off now. As nothing has happened yet, it
// does not count.
func (d *decision) stepBack(reason string) {
	d.undo()
	d.wait(reason)
}

// undo makes a cycle that has begun one that has not.
func (d *decision) undo() {
	d.Deadline = time.Time{}
	d.to.phase = v1alpha1.PowerCycleWaiting
	d.to.attempt = max(0, d.is.attempt-1)
	r := &d.to.record
	r.Cycles = slices.DeleteFunc(slices.Clone(r.Cycles), r.Began.Equal)
	r.Began, r.Since, r.Host, r.On = time.Time{}, time.Time{}, "", ""
	if d.to.attempt == 0 { // else the node has yet to prove that it was off in the cycle before (X13)
		r.BootID = ""
	}
	r.Servicing, r.Paused = time.Time{}, 0
}
