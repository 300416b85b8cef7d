// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// Events tells people what happens, on the Machine in the seed and on the Node in the shoot.
type Events struct {
	Source events.EventRecorder
	// Shoot may be nil.
	Shoot events.EventRecorder
}

// both tells of a decision.
func (e Events) both(d *preservation.Decision, eventType, reason, note string) {
	e.onBoth(d, eventType, reason, d.Why.ID, note)
}

func (e Events) onBoth(d *preservation.Decision, eventType, reason, action, note string) {
	// A typed nil is not a nil object.
	var related runtime.Object
	if d.Node != nil {
		related = d.Node
	}
	if d.Node != nil && e.Shoot != nil {
		e.Shoot.Eventf(d.Node, nil, eventType, reason, action, "%s", note)
	}
	e.Source.Eventf(d.Machine, related, eventType, reason, action, "%s", note)
}

func (r *Reconciler) transition(d *preservation.Decision, pool string) {
	countTransition(d, pool, r.Clock.Now())
	if d.Verdict == preservation.Told {
		eventType := corev1.EventTypeNormal
		if d.Warns() {
			eventType = corev1.EventTypeWarning
		}
		reason, note := d.Event()
		r.Events.both(d, eventType, reason, note)
	}
}

// notice is what one Event tells about a machine. It is told once for as long as it is true.
type notice struct {
	uid          types.UID
	reason, what string
}

// notify tells people what explains a machine without changing it: a request that is not valid (R3, R5), a failed machine without a
// place (T6), a request that operators do not allow (R6, P13), a pool that a failed machine keeps at its maximum (P2). It repeats
// nothing that it told in the round before.
func (r *Reconciler) notify(m *backlog, deployment *machinev1alpha1.MachineDeployment, group preservation.Group, decisions []preservation.Decision) {
	notices := sets.New[notice]()
	pool, failed := poolOf(deployment), group.FailedAtMaximum()

	for i := range decisions {
		d := &decisions[i]
		first := func(reason, what string) bool {
			n := notice{d.Machine.UID, reason, what}
			notices.Insert(n)
			return !m.notices.Has(n)
		}
		if d.Verdict == preservation.Refused || d.Verdict == preservation.Ignored {
			if reason, note := d.Event(); first(reason, string(d.Verdict)+d.Why.ID) { // the note may have numbers that change
				if d.Verdict == preservation.Refused {
					refusals.WithLabelValues(pool).Inc()
				}
				r.Events.both(d, corev1.EventTypeNormal, reason, note)
			}
		}
		if failed > 0 && d.Current != nil && d.Current.Failed && d.Target != nil {
			if note := preservation.AtMaximum(deployment, failed); first(preservation.EventPoolAtMaximum, note) {
				r.Events.onBoth(d, corev1.EventTypeWarning, preservation.EventPoolAtMaximum, preservation.EventAction, note)
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
		e.Shoot.Eventf(d.Node, nil, corev1.EventTypeWarning, reason, preservation.EventAction, "%s", note)
		return
	}
	e.Source.Eventf(d.Machine, nil, corev1.EventTypeWarning, reason, preservation.EventAction, "%s", note)
}

func invalid(request preservation.Request, maxTimeout time.Duration) map[string]string {
	notes := map[string]string{}
	if request.Invalid != "" {
		notes[preservation.EventInvalidRequest] = fmt.Sprintf("Annotation %s=%q is ignored because it is not valid. Valid values: %q, %q, %q and %q",
			v1alpha1.AnnotationPreserve, brief.Cut(request.Invalid), v1alpha1.RequestNow, v1alpha1.RequestWhenFailed, v1alpha1.RequestFalse, v1alpha1.RequestTrue)
	}
	if request.InvalidTimeout != "" {
		notes[preservation.EventInvalidTimeout] = fmt.Sprintf("Annotation %s=%q is ignored because it is not valid. A valid value is a duration from %s to %s, for example %q",
			v1alpha1.AnnotationTimeout, brief.Cut(request.InvalidTimeout), v1alpha1.MinMachinePreserveTimeout, maxTimeout, "36h")
	}
	return notes
}
