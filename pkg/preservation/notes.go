// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"encoding/json"
	"reflect"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/lru"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// notesVersion is the version of Notes that is written. Fields may be added without a new one: what is not known is left out. Notes of
// a later version may mean something else by what is known: they count as what nobody can read.
const notesVersion = 1

// Notes are what people need not read on a Machine, in AnnotationPreservationRecord as JSON. What they read has annotations of its own.
// Claims may be shared with others: they are replaced, and never changed in place. Times are whole seconds in UTC, so that the same notes are the same bytes.
type Notes struct {
	Version int `json:"version"`
	// Claims, FailsAt, Share, MaintenanceOver and RemediatedUntil are those of the Record. RemediatedUntil stays after a release,
	// so that what ended before that time does not begin anew (X10).
	Claims          []Claim   `json:"claims,omitempty"`
	FailsAt         time.Time `json:"failsAt,omitzero"`
	Share           int32     `json:"share,omitempty"`
	MaintenanceOver time.Time `json:"maintenanceOver,omitzero"`
	RemediatedUntil time.Time `json:"remediatedUntil,omitzero"`
	// ValidatingSince is that of the Record.
	ValidatingSince time.Time `json:"validatingSince,omitzero"`
	// Written and Edited are those of the Record.
	Written time.Time `json:"written,omitzero"`
	Edited  time.Time `json:"edited,omitzero"`
	// ExpiryInStatus is the UID of the Machine once the expiry was written into its status. What is there before is what
	// machine-controller-manager made of the hold, and after it an operator's edit (P6). A Machine that is restored after a migration of
	// the control plane has a new UID and an empty status.
	ExpiryInStatus types.UID `json:"expiryInStatus,omitempty"`
	// SetAside is the request as a person wrote it, while the hold occupies AnnotationPreserve: the kind of the object that carries
	// the request, a colon, and the value, empty for none.
	SetAside string `json:"setAside,omitempty"`
	// ReplacedPriority is the value of AnnotationMachinePriority that the release puts back, "" for none; nil if nothing was replaced (P2).
	ReplacedPriority *string `json:"replacedPriority,omitempty"`
	// NodeUncleaned says that a preservation ended without its traces being removed from the Node, until they are removed: because a
	// webhook of the shoot denied it (P14), or because the Node is to go with its machine (T8).
	NodeUncleaned bool `json:"nodeUncleaned,omitempty"`
	// Spent is what is used up.
	Spent Spent `json:"spent,omitzero"`
}

// Spent is what is used up, and no longer preserves the machine. It outlives the preservation.
type Spent struct {
	// Released is when a failed machine was released: it is being replaced, and not preserved again for the same failure (T8).
	Released time.Time `json:"released,omitzero"`
	// Request is a request on the Node that could not be deleted there, because the shoot denied it. It counts for nothing until it is
	// another one (P14).
	Request string `json:"request,omitempty"`
	// Kept is for how long people and the share have preserved the machine (P13), Maintained the same of maintenances (M12). Where the
	// time of the latter was cut short, it lies as far back as if all of it had passed.
	Kept       Span `json:"kept,omitzero"`
	Maintained Span `json:"maintained,omitzero"`
}

// maxRecord is how long a record may be in bytes. What we write is shorter, unless operators write texts of thousands of bytes.
const maxRecord = 4096

// ReadNotes returns what is noted on a Machine. Notes that cannot be read count as none: what people read on the Machine still says that
// it is preserved, and until when (P10). What the version before wrote counts as well.
func ReadNotes(machine *machinev1alpha1.Machine) Notes {
	n := Notes{}
	if value, ok := machine.Annotations[v1alpha1.AnnotationPreservationRecord]; ok {
		n = decoded(value)
	}
	n.readFormer(machine.Annotations)
	return n
}

// records are the records that were decoded last. Each is looked at many times in a decision, and decoding takes longer than all else.
var records = lru.New(256)

func decoded(record string) Notes {
	if n, ok := records.Get(record); ok {
		return n.(Notes)
	}
	n := Notes{}
	if len(record) > maxRecord {
		return n
	}
	if json.Unmarshal([]byte(record), &n) != nil || n.Version > notesVersion {
		n = Notes{}
	}
	records.Add(record, n)
	return n
}

// note edits what is noted on a Machine.
func note(machine *machinev1alpha1.Machine, edit func(*Notes)) {
	before := ReadNotes(machine)
	n := before
	if edit(&n); reflect.DeepEqual(n, before) { // what the version before has written stays until there is something to be written
		return
	}
	n.Version = 0
	isEmpty := reflect.ValueOf(n).IsZero()
	n.Version = notesVersion
	value, err := json.Marshal(n)
	if err != nil || len(value) > maxRecord { // nobody could read it: what is noted stays
		return
	}
	for _, key := range FormerAnnotations {
		delete(machine.Annotations, key)
	}
	if isEmpty {
		delete(machine.Annotations, v1alpha1.AnnotationPreservationRecord)
		return
	}
	metav1.SetMetaDataAnnotation(&machine.ObjectMeta, v1alpha1.AnnotationPreservationRecord, string(value))
}

// DropClaims drops all claims but the one that people read: its cause and its expiry.
func DropClaims(machine *machinev1alpha1.Machine) {
	note(machine, func(n *Notes) { n.Claims = nil })
}
