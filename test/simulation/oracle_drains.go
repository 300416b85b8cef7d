// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

const typeInProgress, typeDrained = corev1.NodeConditionType("DrainInProgress"), corev1.NodeConditionType("Drained")

// ShowDrains has nodes show all drains, or not any more (D13): the sidecar starts anew.
type ShowDrains struct{ Shown bool }

// String implements fmt.Stringer.
func (a ShowDrains) String() string { return fmt.Sprintf("drains are to be shown: %t", a.Shown) }

func (a ShowDrains) do(w *World) {
	w.oracle.showDrains(a.Shown)
	Restart{sidecarName, 0}.do(w)
}

// ReportDrain is what kubectl drain writes with --report-node-conditions: on a node, whatever is said there of drains, and when it has
// drained the node. It removes nothing: some time later a person does, whoever has written it.
type ReportDrain struct {
	Machine      int
	For, Cleared time.Duration
}

// String implements fmt.Stringer.
func (a ReportDrain) String() string {
	return fmt.Sprintf("kubectl reports a drain of the node of machine %d for %s, and a person clears that after %s", a.Machine, a.For, a.Cleared)
}

func (a ReportDrain) do(w *World) {
	name := w.machine(a.Machine)
	if name == "" {
		return
	}
	report := func(inProgress, over corev1.ConditionStatus, reason string) {
		w.oracle.reportDrain(name)
		_, _ = w.shoot.Update(user, nodeKey(name), true, func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			node := fromUnstructured[corev1.Node](object)
			for t, status := range map[corev1.NodeConditionType]corev1.ConditionStatus{typeInProgress: inProgress, typeDrained: over} {
				v1alpha1.RemoveCondition(node, t)
				if status != "" {
					v1alpha1.SetCondition(node, t, status, reason, "", time.Now())
					v1alpha1.ConditionOf(node, t).LastHeartbeatTime = metav1.Time{}
				}
			}
			return toUnstructured(node), nil
		})
	}
	report(corev1.ConditionTrue, corev1.ConditionFalse, rules.ReasonOfKubectl+"Started")
	w.later(a.For, func() { report(corev1.ConditionFalse, corev1.ConditionTrue, rules.ReasonOfKubectl+"Completed") })
	w.later(a.For+a.Cleared, func() { report("", "", "") })
}

// showsDrains returns whether all drains are to be shown.
func (o *oracle) showsDrains() bool {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	return o.shows
}

// showDrains notes that they are from now on, or are not: what is under way is shown only once it goes on.
func (o *oracle) showDrains(shows bool) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	o.shows = shows
	for _, s := range o.machines {
		s.drainTouched = true
	}
}

// reportDrain notes that somebody else says something of a drain of a node, whose machine may be gone.
func (o *oracle) reportDrain(name string) {
	o.mutex.Lock()
	defer o.mutex.Unlock()
	if s := o.machines[name]; s != nil {
		s.drainTouched = true
		s.happens(rules.Touched)
	}
}

// checkShownDrain blames what we write of drains (D13).
func (o *oracle) checkShownDrain(change *Change, before, after *corev1.Node) {
	if change.By != sidecarName || before == nil || after == nil {
		return
	}
	o.judge(change.name, rules.DrainWritten(before, after))
	for _, c := range after.Status.Conditions {
		if was := v1alpha1.ConditionOf(before, c.Type); (c.Type == typeInProgress || c.Type == typeDrained) && c.Status == corev1.ConditionTrue &&
			(was == nil || was.Status != c.Status) {
			o.seen["shown: "+string(c.Type)]++
		}
	}
}

// lookAtShownDrain blames what a node shows of drains, and does not (D13).
func (o *oracle) lookAtShownDrain(name string, s *subject) {
	if o.alone || s.machine == nil || s.machine.DeletionTimestamp != nil || s.node == nil || !o.isCalm(s) || time.Since(o.maintenances.changed[name]) < calm {
		return
	}
	var nm *maintenancev1alpha1.NodeMaintenance
	if m := o.maintenances.of(name); m != nil {
		nm = m.NodeMaintenance
	}
	o.judge(name, rules.DrainShown(s.node, o.shows, nm, s.drainTouched))
}
