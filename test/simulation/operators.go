// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"strconv"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// What operators do to preservations.

// Edit moves the end of a preservation under way to some time from now (P6).
type Edit struct {
	Machine int
	To      time.Duration
}

// String implements fmt.Stringer.
func (a Edit) String() string {
	return fmt.Sprintf("an operator lets machine %d be kept for %s from now on", a.Machine, a.To)
}

func (a Edit) do(w *World) {
	name := w.machine(a.Machine)
	if name == "" {
		return
	}
	k, until := key{"machines", namespace, name}, time.Now().Add(a.To).Truncate(time.Second)
	machine := fromUnstructured[machinev1alpha1.Machine](w.seed.Last(k).Object)
	inStatus := machine.Status.CurrentStatus.PreserveExpiryTime != nil && !old
	switch {
	case machine.Annotations[v1alpha1.AnnotationPhase] == "", !w.oracle.edit(name, until):
		return
	case !inStatus:
		annotate(w.seed, k, v1alpha1.AnnotationExpiryTime, until.UTC().Format(time.RFC3339))
	case builder.Noted(machine)[builder.NoteExpiryInStatus] != "": // else it is not the one that counts
		_, _ = w.seed.Update(user, k, true, func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			machine := fromUnstructured[machinev1alpha1.Machine](object)
			machine.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: until}
			return toUnstructured(machine), nil
		})
	}
}

// Forbid forbids to keep a machine, or any of the pool, or allows it again (R6).
type Forbid struct {
	Machine  int
	All, Not bool
}

// String implements fmt.Stringer.
func (a Forbid) String() string {
	what, verb := fmt.Sprintf("machine %d", a.Machine), "forbid"
	if a.All {
		what = "any machine"
	}
	if a.Not {
		verb = "allow"
	}
	return fmt.Sprintf("operators %s to keep %s", verb, what)
}

func (a Forbid) do(w *World) {
	value := "true"
	if a.Not {
		value = ""
	}
	if a.All {
		w.oracle.forbidAll(!a.Not)
		w.annotatePool(v1alpha1.AnnotationForbidden, value)
	} else if name := w.machine(a.Machine); name != "" {
		w.oracle.forbid(name, !a.Not)
		annotate(w.seed, key{"machines", namespace, name}, v1alpha1.AnnotationForbidden, value)
	}
}

// Share changes how many machines may be auto-preserved (T9).
type Share struct{ Is int }

// String implements fmt.Stringer.
func (a Share) String() string { return fmt.Sprintf("the share becomes %d", a.Is) }

func (a Share) do(w *World) {
	w.oracle.setShare(a.Is)
	w.annotatePool(v1alpha1.AnnotationAutoPreserveFailedMax, strconv.Itoa(a.Is))
}

// Timeout changes for how long machines are kept that begin to be (P6).
type Timeout struct{ Is time.Duration }

// String implements fmt.Stringer.
func (a Timeout) String() string { return fmt.Sprintf("the timeout becomes %s", a.Is) }

func (a Timeout) do(w *World) {
	w.oracle.setTimeout(a.Is)
	w.annotatePool(v1alpha1.AnnotationMachinePreserveTimeout, a.Is.String())
}

// Hibernate takes all machines away for some time (P4).
type Hibernate struct{ For time.Duration }

// String implements fmt.Stringer.
func (a Hibernate) String() string { return fmt.Sprintf("the pool is hibernated for %s", a.For) }

func (a Hibernate) do(w *World) {
	machines := w.oracle.wanted()
	Scale{}.do(w)
	time.AfterFunc(a.For, func() {
		if w.oracle.wanted() == 0 {
			Scale{max(machines, 1)}.do(w)
		}
	})
}
