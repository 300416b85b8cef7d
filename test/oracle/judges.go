// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	hostdriver "github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// Violation is what a rule does not allow. Its text goes on after the name of a machine.
type Violation struct{ Rule, Text string }

// String tells it.
func (v *Violation) String() string { return v.Text + " (" + v.Rule + ")" }

func blame(rule, format string, args ...any) *Violation {
	return &Violation{rule, fmt.Sprintf(format, args...)}
}

// OverShare judges how many machines use the places of a share.
func OverShare(places []string, share int) *Violation {
	if len(places) <= share {
		return nil
	}
	return blame("P1", "was one of %d machines that use a share of %d: %s", len(places), share, strings.Join(places, ", "))
}

// OverPool judges how many machines of all zones use the places that these share.
func OverPool(places []string, share int) *Violation {
	if len(places) <= share {
		return nil
	}
	return blame("P20", "was one of %d machines that use the %d places of all zones: %s", len(places), share, strings.Join(places, ", "))
}

// OverHours judges the machines that people and the share keep although the machine-hours of the month are used up.
func OverHours(kept []string, limit time.Duration) *Violation {
	if len(kept) == 0 {
		return nil
	}
	return blame("P18", "machines are kept for more than the %s of machine-hours that there are: %s", limit, strings.Join(kept, ", "))
}

// End is the end of a preservation.
type End struct {
	Was, Is Machine
	At      time.Time
	// Since is since when it was kept, and Early how long before its expiry it may end.
	Since time.Time
	Early time.Duration
	// Full says that there is no place within the share, or that nobody can tell.
	Full bool
	// Repeats says that another kept machine shows the same, and that one fails which shows what no kept one does.
	Repeats bool
}

// Ended judges the end of a preservation, by a release (T8) or as the machine is terminated (P8), and returns why it is allowed.
func (w *World) Ended(e End, excuses ...Excuses) (why string, v *Violation) {
	was := e.Was
	if !e.At.Add(e.Early).Before(was.Expiry) {
		return "expiry (T3, T8)", nil
	}
	if why := cmp.Or(w.Excused(e.At, was.Claims, ends, excuses...), w.unattended(was, e.At, excuses)); why != "" {
		return string(why), nil
	}
	switch {
	case was.IsAuto(e.At) && was.Phase != "" && was.Phase != FailedPreserved && e.Full: // without a phase it is held before its deadline
		return "it recovered, failed again, and found no place (P1, T2)", nil
	case was.IsOnlyValidated(e.At):
		return "it was validated, or failed before (V3, V5)", nil
	case was.IsAuto(e.At) && was.Phase == FailedPreserved && e.Repeats:
		return "another machine fails for a new reason (P15)", nil
	case was.Phase == "" && e.Is.Status == machinev1alpha1.MachineRunning && e.At.Sub(e.Since) <= w.Margin:
		return "it was healthy again before its deadline (H4)", nil
	case e.Is.Terminating:
		return "", blame("P8", "was terminated without a reason while it was %s", was)
	}
	return "", blame("T8", "was let go without a reason while it was %s", was)
}

// unattended returns why nobody could hold a machine that had not failed, empty if somebody could, or need not.
func (w *World) unattended(was Machine, at time.Time, all []Excuses) Kind {
	if was.Phase == FailedPreserved || was.Kept && !w.HoldsLate && !was.IsOnlyWorkedOn(at) {
		return ""
	}
	for _, excuses := range all {
		for _, kind := range []Kind{Killed, Fault} {
			if x, ok := excuses[kind]; ok && !x.From.After(at) && (x.Until.IsZero() || at.Sub(x.Until) <= w.lasts(kind)) {
				return kind
			}
		}
	}
	return ""
}

// Work is a maintenance that has the node of a machine.
type Work struct {
	// Taken is since when, Ending since when it is on its way out: zero if it is not.
	Taken, Ending time.Time
	// Anew is what lets go of a machine for good if it was before: what was released is not kept once more for the same failure.
	Anew time.Time
}

// Unkept returns why a machine need not be kept although a maintenance has its node, empty if it must be (M12). That its time is up is no
// reason: all that keeps it adds up. Besides the request on the Machine, that on its Node counts.
func (w *World) Unkept(m Machine, onNode string, work Work, at time.Time, excuses ...Excuses) string {
	if why := cmp.Or(w.Excused(at, nil, ends, excuses...), w.unattended(m, at, excuses)); why != "" {
		return string(why)
	}
	for _, e := range excuses {
		if _, edited := e[ExpiryEdited]; edited {
			return "what an operator has ended is not begun anew (P6)"
		}
	}
	switch {
	case !work.Ending.IsZero() && !work.Ending.After(at.Add(w.Lag)):
		return string(MaintenanceOver)
	case w.elapsed(work.Taken, at) <= w.Settling:
		return "the maintenance has just begun"
	case !m.Released.IsZero() && m.Released.Before(work.Anew):
		return "it was on its way out before (T8)"
	case m.Request == v1alpha1.RequestFalse || onNode == v1alpha1.RequestFalse:
		return string(Vetoed)
	}
	return ""
}

// TakenForHealthy judges that a machine that failed counts as healthy, and is broken since some time, zero if it is not.
func (w *World) TakenForHealthy(was, is Machine, broken, at time.Time, excuses ...Excuses) *Violation {
	if was.Phase != FailedPreserved || !is.Kept || is.Phase == FailedPreserved || broken.IsZero() || w.elapsed(broken, at) <= w.Noticed {
		return nil
	}
	if w.Excused(at, nil, []Kind{Blind}, excuses...) != "" {
		return nil
	}
	return blame("H1", "is taken for healthy although it is not since %s: %s", broken.UTC().Format(time.TimeOnly), is)
}

// Gate is what is known of the validation of a machine.
type Gate struct {
	// Since is when the machine came back, Until when the time for the proof is over. Both are zero if it has not come back.
	Since, Until time.Time
}

// IsProven says that a node shows the proof: a condition that was reported since the machine came back (V3).
func (g Gate) IsProven(node *corev1.Node, condition corev1.NodeConditionType) bool {
	return node != nil && slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == condition && c.Status == corev1.ConditionTrue && !(c.LastHeartbeatTime.Time.Before(g.Since) && c.LastTransitionTime.Time.Before(g.Since))
	})
}

// Opened judges that the node of a machine that came back takes pods, or is about to, without a proof (V1, V2).
func (w *World) Opened(g Gate, proven bool, at time.Time, excuses ...Excuses) *Violation {
	switch {
	case g.Since.IsZero() || proven || !at.Add(w.Lag).Before(g.Until) || w.Excused(at, nil, ends, excuses...) != "":
		return nil
	}
	return blame("V2", "came back at %s, nothing proves that it works, and its node takes pods before %s", stamp(g.Since), stamp(g.Until))
}

// Closed judges for how long a node waits for a proof (V4), or takes no pods although there is one, which is there since some time (V3).
func (w *World) Closed(m Machine, g Gate, proven, now time.Time, excuses ...Excuses) *Violation {
	switch {
	case !m.IsValidated() || g.Since.IsZero() || w.hindered(now, []Kind{Fault, ShootAway, Killed, Touched}, excuses):
		return nil
	case w.elapsed(g.Until, now) > w.Late:
		return blame("V4", "is not validated, and its node waits for that for more than %s beyond its time", w.Late)
	case !proven.IsZero() && w.elapsed(proven, now) > w.Late:
		return blame("V3", "is proven to work since %s, and its node takes no pods", stamp(proven))
	}
	return nil
}

// Overdue judges for how long a machine is kept.
func (w *World) Overdue(m Machine, now time.Time, excuses ...Excuses) *Violation {
	if !m.Kept || m.Expiry.IsZero() || now.Sub(m.Expiry) <= w.Late || w.hindered(now, []Kind{Fault, ShootAway, Killed, Touched}, excuses) {
		return nil
	}
	return blame("P10", "is kept for more than %s beyond its expiry: %s", w.Late, m)
}

// MadeSafe judges that a node is made safe, and since when, by what is known of its host: that must be off, or must have been a moment before.
func (w *World) MadeSafe(h *Host, at time.Time) *Violation {
	switch {
	case h == nil:
		return blame("X1", "its node was made safe, and it has no host")
	case h.On && !h.OnSince.After(at.Add(-w.Lag)):
		return blame("X1", "its node was made safe, and its host was on")
	}
	return nil
}

// KeptOff judges for how long a host is asked to be off, whatever hinders but that nobody is there, and that it is not when its machine is gone.
func (w *World) KeptOff(h *Host, gone bool, now time.Time, excuses ...Excuses) *Violation {
	switch {
	case h.Asked.IsZero() || w.hindered(now, []Kind{Fault, Killed}, excuses):
		return nil
	case now.Sub(h.Asked) > w.PowerOff+w.Late:
		return blame("X5", "its host is asked to be off for more than %s", w.PowerOff+w.Late)
	case gone && now.Sub(h.Asked) > w.Late:
		return blame("X2", "its host is asked to be off for more than %s, and the machine is gone", w.Late)
	}
	return nil
}

// TooMany judges how many nodes are under maintenance at a time.
func TooMany(nodes []string, limit int) *Violation {
	if len(nodes) <= limit {
		return nil
	}
	return blame("M10", "is one of %d nodes under maintenance, and there may be %d: %s", len(nodes), limit, strings.Join(nodes, ", "))
}

// A cordon that somebody takes away is put back later each time, from the shortest to the longest time (M3).
const (
	ShortestCordon = time.Second
	LongestCordon  = time.Minute
)

// Cordon is what is known of the cordon of a node.
type Cordon struct {
	on bool
	// lifted is since when there is none, zero if there is one, and flaps how often one was taken away.
	lifted time.Time
	flaps  int
}

// See takes a state of the node.
func (c *Cordon) See(node *corev1.Node, now time.Time) {
	if c.on && !node.Spec.Unschedulable {
		c.flaps++
	}
	c.on = node.Spec.Unschedulable
	c.lifted = Since(c.lifted, !c.on, now)
}

// PutBack judges that a node is cordoned which was handed over to somebody who has asked for that.
func (w *World) PutBack(c Cordon, handedOver, now time.Time, excuses ...Excuses) *Violation {
	if c.lifted.IsZero() || w.hindered(now, []Kind{Fault, ShootAway, Killed, Touched}, excuses) {
		return nil
	}
	if c.lifted.After(handedOver) {
		handedOver = c.lifted
	}
	patience := min(ShortestCordon<<min(c.flaps, 10), LongestCordon) + w.Late
	if w.elapsed(handedOver, now) <= patience {
		return nil
	}
	return blame("M3", "was handed over, and is not cordoned for more than %s", patience)
}

// conditionsOfWork are those by which others see that somebody works on a node (M16, X12).
var conditionsOfWork = []corev1.NodeConditionType{
	"MaintenancePlanned", "DrainInProgress", "Drained", "MaintenanceInProgress", v1alpha1.ConditionPowerCycle,
}

// lasting are annotations that stay when all is over: what the longest time is counted from for which a machine may be kept
// (P13), or kept because of maintenances (M12), and when its power cycles of the last day were (X9).
var lasting = []string{builder.NotePreservedSince, builder.NoteMaintainedSince, v1alpha1.AnnotationPowerCycleRecord}

// Leftovers returns what is left on a machine that is neither kept nor going, and on its node, but for annotations that people have put
// there to stay, and for what kubectl drain has written, which stays until a person removes it (D13).
func Leftovers(m *machinev1alpha1.Machine, node *corev1.Node, theirs ...string) []string {
	var left []string
	add := func(on, what string) { left = append(left, on+": "+what) }
	keys := func(on string, annotations map[string]string) {
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			if slices.Contains(lasting, key) || slices.Contains(theirs, key) {
				continue
			}
			if key == v1alpha1.AnnotationPreserve || key == v1alpha1.AnnotationNeedsRemediation || strings.HasPrefix(key, v1alpha1.GroupName+"/") || strings.HasPrefix(key, v1alpha1.AnnotationScaleDownDisabled) {
				add(on, key+"="+annotations[key])
			}
		}
	}
	keys("Machine", builder.Noted(m))
	if priority := m.Annotations[v1alpha1.AnnotationMachinePriority]; priority != "" && priority != "3" {
		add("Machine", v1alpha1.AnnotationMachinePriority+"="+priority)
	}
	if phase := m.Status.CurrentStatus.Phase; phase != machinev1alpha1.MachineRunning {
		add("Machine", "phase "+string(phase))
	}
	if m.Status.CurrentStatus.PreserveExpiryTime != nil {
		add("Machine", "expiry in the status")
	}
	if m.DeletionTimestamp != nil {
		add("Machine", "is going")
	}
	for _, finalizer := range m.Finalizers {
		if strings.HasPrefix(finalizer, v1alpha1.GroupName+"/") {
			add("Machine", "finalizer "+finalizer)
		}
	}
	if node == nil {
		add("Node", "there is none")
		return left
	}
	keys("Node", node.Annotations)
	if node.Spec.Unschedulable {
		add("Node", "cordoned")
	}
	for _, taint := range node.Spec.Taints {
		if taint.Key == v1alpha1.TaintPreserved || taint.Key == corev1.TaintNodeOutOfService || strings.HasPrefix(taint.Key, v1alpha1.GroupName+"/") {
			add("Node", "taint "+taint.Key)
		}
	}
	for _, condition := range node.Status.Conditions {
		if condition.Type == "Preserved" && condition.Status == corev1.ConditionTrue {
			add("Node", "condition Preserved is True: "+condition.Message)
		}
		if slices.Contains(conditionsOfWork, condition.Type) && !strings.HasPrefix(condition.Reason, ReasonOfKubectl) {
			add("Node", "condition "+string(condition.Type)+": "+condition.Message)
		}
	}
	return left
}

// LeftoversOfHost returns what is left on a host.
func LeftoversOfHost(object *unstructured.Unstructured) []string {
	var left []string
	h := Host{}
	h.See(object, time.Time{})
	if !h.On {
		left = append(left, "host: off")
	}
	if value, ok := object.GetAnnotations()[v1alpha1.AnnotationReboot]; ok {
		left = append(left, "host: "+v1alpha1.AnnotationReboot+"="+value)
	}
	if owner := hostdriver.OwnerOf(object); owner != nil {
		left = append(left, fmt.Sprintf("host: %s=%+v", v1alpha1.AnnotationHostOwner, *owner))
	}
	return left
}
