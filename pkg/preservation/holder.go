// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"strconv"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// Holder is the way in which a generation of machine-controller-manager is told to keep its hands off a machine.
type Holder interface {
	// obeys says that machine-controller-manager holds the machine by itself because of the request.
	obeys(d Decision) bool
	// hold returns the steps that write the record and put the hold in place.
	hold(d Decision, timeouts Timeouts) []Step
	// settle returns the steps that can wait until the node is protected.
	settle(d Decision) []Step
	// release returns the steps that end the hold and remove what is on the Machine. They also clean a machine that is
	// not preserved but carries leftovers of a preservation.
	release(d Decision, timeouts Timeouts, now time.Time) []Step
}

// HealthTimer holds with what machine-controller-manager < 0.62 has: it marks an Unknown machine Failed when
// status.currentStatus.lastUpdateTime is longer ago than the health timeout, so that time is set such that this happens
// at the expiry. The hold ends by itself (P10).
type HealthTimer struct{}

// PreserveExpiry holds with what machine-controller-manager >= 0.62 has: it leaves a machine alone, in any phase, that
// is annotated "now" and has a status.currentStatus.preserveExpiryTime in the future. The hold ends by itself (P10).
type PreserveExpiry struct{}

const (
	// defaultPriority is what machine-controller-manager takes for a machine without AnnotationMachinePriority.
	defaultPriority = 3
	// markedPriority is given to a machine that the cluster-autoscaler has chosen for a scale-down. It stays: else
	// another, healthy machine would go in its place.
	markedPriority = 1
	// preservedPriority makes a machine the last to go in a scale-down (P2).
	preservedPriority = "4"
)

func (HealthTimer) obeys(Decision) bool { return false }

func (HealthTimer) annotate(machine *machinev1alpha1.Machine, d Decision) {
	record(machine, d.Target)
	// What the other holder left there when machine-controller-manager was downgraded.
	restoreOnMachine(machine)
	delete(machine.Annotations, v1alpha1.AnnotationExpiryInStatus)
	syncNodeRequest(machine, d)

	if _, ok := machine.Annotations[v1alpha1.AnnotationReplacedPriority]; ok {
		return
	}
	value := machine.Annotations[v1alpha1.AnnotationMachinePriority]
	if priority, err := strconv.Atoi(value); err == nil && (priority == markedPriority || priority > defaultPriority) {
		return
	}
	machine.Annotations[v1alpha1.AnnotationReplacedPriority] = value
	machine.Annotations[v1alpha1.AnnotationMachinePriority] = preservedPriority
}

func (h HealthTimer) hold(d Decision, timeouts Timeouts) []Step {
	steps := []Step{{Hold: true, Machine: func(m *machinev1alpha1.Machine) { h.annotate(m, d) }}}
	if d.Target.Failed {
		steps = append(steps, Step{Hold: true, Status: true, Machine: func(m *machinev1alpha1.Machine) {
			status := &m.Status.CurrentStatus
			switch status.Phase {
			// A machine in Failed is one that machine-controller-manager >= 0.62 left there before it was downgraded.
			case machinev1alpha1.MachinePending, machinev1alpha1.MachineFailed, machinev1alpha1.MachineUnknown:
				status.Phase = machinev1alpha1.MachineUnknown
				status.LastUpdateTime = metav1.NewTime(d.Target.Expiry.Add(-timeouts.Health))
			}
		}})
	}
	return steps
}

func (HealthTimer) settle(d Decision) []Step {
	if _, ok := setAside(d.Machine, true); !ok || d.Node == nil {
		return nil
	}
	return []Step{
		{Node: func(node *corev1.Node) { restoreOnNode(d.Machine, node) }},
		{AfterNode: true, Machine: func(m *machinev1alpha1.Machine) { delete(m.Annotations, v1alpha1.AnnotationRequest) }},
	}
}

func (HealthTimer) release(d Decision, timeouts Timeouts, now time.Time) []Step {
	return []Step{
		{Status: true, Machine: func(m *machinev1alpha1.Machine) {
			if d.Current == nil || !d.Current.Failed || m.Status.CurrentStatus.Phase != machinev1alpha1.MachineUnknown {
				return
			}
			// A creation timeout may have passed in less time than the health timeout, which counts from now on.
			since, latest := d.Current.FailedSince, now.Add(-timeouts.Health-time.Second).Truncate(time.Second)
			if since.IsZero() || since.After(latest) {
				since = latest
			}
			if !m.Status.CurrentStatus.LastUpdateTime.Time.Before(latest) {
				m.Status.CurrentStatus.LastUpdateTime = metav1.NewTime(since)
			}
		}},
		{AfterNode: true, Machine: func(m *machinev1alpha1.Machine) {
			finish(m, d, now)
			syncNodeRequest(m, d)
		}},
	}
}

// syncNodeRequest writes the Node's request on the Machine (R2), where machine-controller-manager does not do it.
func syncNodeRequest(machine *machinev1alpha1.Machine, d Decision) {
	if d.Node != nil {
		value := d.Node.Annotations[v1alpha1.AnnotationPreserve]
		if original, ok := setAside(d.Machine, true); ok && value == v1alpha1.RequestNow {
			value = original
		}
		if d.ConsumeRequest && value != v1alpha1.RequestFalse {
			value = ""
		}
		setOrDelete(machine, v1alpha1.AnnotationLastAppliedNodePreserveValue, value)
	}
}

func (PreserveExpiry) obeys(d Decision) bool {
	return d.Request.Value == v1alpha1.RequestNow ||
		d.Request.Value == v1alpha1.RequestWhenFailed && d.Machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed
}

func (PreserveExpiry) annotate(machine *machinev1alpha1.Machine, d Decision) {
	record(machine, d.Target)
	if d.NodeUnknown && d.Request.OnNode {
		return
	}

	carried, onNode := machine.Annotations[v1alpha1.AnnotationPreserve], d.nodeCarries()
	if onNode {
		carried = d.Node.Annotations[v1alpha1.AnnotationPreserve]
	} else {
		machine.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.RequestNow
		// machine-controller-manager would look for a request on the node, as long as it has not seen that there is none
		// any more.
		delete(machine.Annotations, v1alpha1.AnnotationLastAppliedNodePreserveValue)
	}
	if carried == preserveValueAutoPreserved {
		carried = ""
	}
	if carried != v1alpha1.RequestNow {
		machine.Annotations[v1alpha1.AnnotationRequest] = carrier(onNode) + carried
	} else if _, ours := setAside(machine, onNode); !ours {
		delete(machine.Annotations, v1alpha1.AnnotationRequest)
	}
}

// nodeCarries says that machine-controller-manager >= 0.62 reads the annotation from the Node and not from the Machine.
func (d *Decision) nodeCarries() bool {
	return d.Node != nil && d.Request.OnNode && d.Request.explicit()
}

func (h PreserveExpiry) hold(d Decision, _ Timeouts) []Step {
	var (
		annotate = Step{Hold: true, Machine: func(m *machinev1alpha1.Machine) { h.annotate(m, d) }}
		expire   = Step{Hold: true, Status: true, Machine: func(m *machinev1alpha1.Machine) {
			m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: d.Target.Expiry}
			// machine-controller-manager restarts the health timer when it sees the annotation before the expiry, and
			// the other holder shifts it. Left so, the machine would look healthy-to-be and never get to Failed.
			if d.Target.Failed {
				restoreTimer(m, d.Target)
			}
		}}
	)
	switch {
	case d.unseen():
		return []Step{annotate}
	case d.carriesNow():
		// The annotation that the expiry must not be without is there already: the mark needs no write of its own.
		return []Step{expire, {Hold: true, Machine: func(m *machinev1alpha1.Machine) { h.annotate(m, d); markExpiry(m) }}}
	case d.nodeCarries():
		setNow := Step{Hold: true, Node: func(node *corev1.Node) { node.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.RequestNow }}
		return []Step{annotate, setNow, expire}
	default:
		return []Step{annotate, expire}
	}
}

func (PreserveExpiry) settle(d Decision) []Step {
	if d.unseen() {
		return nil
	}
	return []Step{{Machine: markExpiry}}
}

func markExpiry(machine *machinev1alpha1.Machine) {
	setOrDelete(machine, v1alpha1.AnnotationExpiryInStatus, string(machine.UID))
}

// unseen says that machine-controller-manager has not given the machine a phase yet. When it does, it drops the expiry.
func (d *Decision) unseen() bool { return d.Machine.Status.CurrentStatus.Phase == "" }

// carriesNow says that machine-controller-manager >= 0.62 sees the annotation that makes it hold without our doing.
func (d *Decision) carriesNow() bool {
	switch {
	case d.Request.Value != v1alpha1.RequestNow || d.NodeUnknown:
		return false
	case d.nodeCarries():
		return d.Node.Annotations[v1alpha1.AnnotationPreserve] == v1alpha1.RequestNow
	default:
		return d.Machine.Annotations[v1alpha1.AnnotationPreserve] == v1alpha1.RequestNow &&
			d.Machine.Annotations[v1alpha1.AnnotationLastAppliedNodePreserveValue] == ""
	}
}

func restoreTimer(machine *machinev1alpha1.Machine, record *Record) {
	if machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineUnknown && !record.FailedSince.IsZero() {
		machine.Status.CurrentStatus.LastUpdateTime = metav1.NewTime(record.FailedSince)
	}
}

func (h PreserveExpiry) release(d Decision, _ Timeouts, now time.Time) []Step {
	return []Step{
		// Without the record nobody knows what the timer was.
		{AfterNode: true, Status: true, Machine: func(m *machinev1alpha1.Machine) {
			if d.Current != nil && d.Current.Failed {
				restoreTimer(m, d.Current)
			}
		}},
		// The annotation goes before the expiry: with the annotation alone, machine-controller-manager would begin anew.
		{AfterNode: true, Machine: func(m *machinev1alpha1.Machine) {
			finish(m, d, now)
			// machine-controller-manager would obey the Machine's request, which the empty one of the Node beats (R2).
			if d.Request.OnNode && d.Request.Value == "" && d.Request.Invalid == "" && m.Annotations[v1alpha1.AnnotationPreserve] != v1alpha1.RequestFalse {
				delete(m.Annotations, v1alpha1.AnnotationPreserve)
			}
		}},
		{AfterNode: true, Status: true, Machine: func(m *machinev1alpha1.Machine) {
			if h.obeys(d) && !d.ConsumeRequest {
				return // what is left is machine-controller-manager's own doing
			}
			// A failed machine is terminated at its expiry whether or not that is cleared.
			expiry := m.Status.CurrentStatus.PreserveExpiryTime
			if expiry != nil && !expiry.After(now) && m.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed {
				return
			}
			m.Status.CurrentStatus.PreserveExpiryTime = nil
		}},
	}
}

// finish removes the preservation from the Machine's metadata, and leaves a mark if the machine is to be terminated.
func finish(machine *machinev1alpha1.Machine, d Decision, now time.Time) {
	dropRecord(machine)
	if d.ConsumeRequest {
		consume(machine.Annotations)
		delete(machine.Annotations, v1alpha1.AnnotationLastAppliedNodePreserveValue)
	}
	switch {
	case machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning:
		delete(machine.Annotations, v1alpha1.AnnotationReleased)
	case d.Current != nil && d.Current.Failed:
		setAnnotations(machine, nil, map[string]string{v1alpha1.AnnotationReleased: formatTime(now)})
	}
}

func restorePriority(machine *machinev1alpha1.Machine) {
	replaced, ok := machine.Annotations[v1alpha1.AnnotationReplacedPriority]
	if !ok {
		return
	}
	delete(machine.Annotations, v1alpha1.AnnotationReplacedPriority)
	if machine.Annotations[v1alpha1.AnnotationMachinePriority] == preservedPriority {
		setOrDelete(machine, v1alpha1.AnnotationMachinePriority, replaced)
	}
}
