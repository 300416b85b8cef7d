// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/text"
)

// Reasons of the Events on Machines and Nodes (P11).
const (
	// EventPreserved says that a preservation has begun.
	EventPreserved = "MachinePreserved"
	// EventFailed says that a preserved machine failed.
	EventFailed = "PreservedMachineFailed"
	// EventRecovered says that a machine in Failed:Preserved is healthy again.
	EventRecovered = "PreservedMachineRecovered"
	// EventReleased says that a preservation has ended.
	EventReleased = "MachinePreservationEnded"
	// EventNodeDenied says that the end of a preservation did not wait any longer for its traces to be removed from the Node,
	// and why they could not be (P14).
	EventNodeDenied = "PreservedNodeDenied"
	// EventRefused says that a machine failed and is not preserved, or that a request is not heeded, and why not.
	EventRefused = "MachinePreservationRefused"
	// EventInvalidRequest says that a request is not a valid one (R3).
	EventInvalidRequest = "InvalidPreserveRequest"
	// EventInvalidTimeout says that the timeout beside a request is not a valid one (R5).
	EventInvalidTimeout = "InvalidPreserveTimeout"
)

// reasons are those of the transitions that people are told of. A hold in the margin is none of them: nothing has
// happened yet (H4). Nor is the end of a maintenance (M13), or of a remediation.
var reasons = map[preservation.Rule]string{
	preservation.RuleBegin:         EventPreserved,
	preservation.RuleWhenFailed:    EventPreserved,
	preservation.RuleAuto:          EventPreserved,
	preservation.RuleMaintenance:   EventPreserved,
	preservation.RuleRemediation:   EventPreserved,
	preservation.RuleClaims:        EventPreserved,
	preservation.RuleFail:          EventFailed,
	preservation.RuleRecover:       EventRecovered,
	preservation.RuleRelease:       EventReleased,
	preservation.RuleReleaseFailed: EventReleased,
	preservation.RuleShareLowered:  EventReleased,
	preservation.RuleDeleted:       EventReleased,
	preservation.RuleShareUsedUp:   EventReleased,
	preservation.RuleRollout:       EventReleased,
	preservation.RuleForbidden:     EventReleased,
	preservation.RuleMaxTimeout:    EventReleased,
}

const eventAction = "Preserve"

// Events tells people what happens, on the Machine in the seed and on the Node in the shoot.
type Events struct {
	Source events.EventRecorder
	// Shoot may be nil.
	Shoot events.EventRecorder
}

func (e Events) both(d *preservation.Decision, eventType, reason, note string, args ...any) {
	// A typed nil is not a nil object.
	var related runtime.Object
	if d.Node != nil {
		related = d.Node
	}
	if d.Node != nil && e.Shoot != nil {
		e.Shoot.Eventf(d.Node, nil, eventType, reason, eventAction, note, args...)
	}
	e.Source.Eventf(d.Machine, related, eventType, reason, eventAction, note, args...)
}

func (r *Reconciler) transition(d *preservation.Decision, pool string) {
	countTransition(d, pool, r.Clock.Now())
	reason, told := reasons[d.Rule]
	if !told {
		return
	}
	if d.Target != nil {
		r.Events.both(d, corev1.EventTypeNormal, reason, "Machine is %s until %s as %s (cause %s)",
			d.Target.Phase(d.Machine.Status.CurrentStatus.Phase), d.Target.Expiry().UTC().Format(time.RFC3339), d.Reason, d.Target.Cause())
		return
	}
	r.Events.both(d, corev1.EventTypeNormal, reason, "Machine is no longer preserved as %s (cause was %s)", d.Reason, d.Current.Cause())
}

// notice is what is told once about a machine, for as long as it holds.
type notice struct {
	uid          types.UID
	reason, note string
}

// notify tells people what does not change a machine but explains it: a request that cannot be understood (R3, R5), a
// failed machine that the share had no place for (T6), a request that operators do not allow (R6, P13). It repeats nothing that was told in the round before.
func (r *Reconciler) notify(m *memory, pool string, decisions []preservation.Decision) {
	notices := sets.New[notice]()

	for i := range decisions {
		d := &decisions[i]
		first := func(reason, note string) bool {
			n := notice{d.Machine.UID, reason, note}
			notices.Insert(n)
			return !m.notices.Has(n)
		}
		if d.Refused {
			note := "Machine failed and is replaced as " + d.Reason
			if first(EventRefused, note) {
				refusals.WithLabelValues(pool).Inc()
				r.Events.both(d, corev1.EventTypeNormal, EventRefused, "%s", note)
			}
		}
		if d.Ignored {
			if note := "Machine is not preserved as " + d.Reason; first(EventRefused, note) {
				r.Events.both(d, corev1.EventTypeNormal, EventRefused, "%s", note)
			}
		}
		if d.NodeUnknown && d.Request.OnNode { // what stands in for the request is not what was written
			continue
		}
		for reason, note := range invalid(d.Request, r.MaxTimeout) {
			if first(reason, note) {
				r.Events.carrier(d, reason, note)
			}
		}
	}

	m.notices = notices
}

// carrier warns on the object that carries the request, and on the Machine if there is no recorder for the Node.
func (e Events) carrier(d *preservation.Decision, reason, note string) {
	if d.Request.OnNode && d.Node != nil && e.Shoot != nil {
		e.Shoot.Eventf(d.Node, nil, corev1.EventTypeWarning, reason, eventAction, "%s", note)
		return
	}
	e.Source.Eventf(d.Machine, nil, corev1.EventTypeWarning, reason, eventAction, "%s", note)
}

func invalid(request preservation.Request, maxTimeout time.Duration) map[string]string {
	notes := map[string]string{}
	if request.Invalid != "" {
		notes[EventInvalidRequest] = fmt.Sprintf("Annotation %s=%q is ignored, valid are %q, %q, %q and %q",
			v1alpha1.AnnotationPreserve, text.Cut(request.Invalid), v1alpha1.RequestNow, v1alpha1.RequestWhenFailed, v1alpha1.RequestFalse, v1alpha1.RequestTrue)
	}
	if request.InvalidTimeout != "" {
		notes[EventInvalidTimeout] = fmt.Sprintf("Annotation %s=%q is ignored, valid is a duration from %s to %s, for example %q",
			v1alpha1.AnnotationTimeout, text.Cut(request.InvalidTimeout), v1alpha1.MinMachinePreserveTimeout, maxTimeout, "36h")
	}
	return notes
}
