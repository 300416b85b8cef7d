// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"strconv"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

const subPhaseSuffix = ":Preserved"

// PhaseFailedPreserved is the sub-phase of a failed machine that is held.
const PhaseFailedPreserved = string(machinev1alpha1.MachineFailed) + subPhaseSuffix

// Record is the preservation of one machine as it is written on the Machine: all state there is (P8).
type Record struct {
	// Cause is one of the Cause constants of the API.
	Cause string
	// Expiry is when the preservation ends. Zero: it was made unreadable by hand.
	Expiry time.Time
	// Failed says that the machine is in Failed:Preserved.
	Failed bool
	// FailedSince is the start of the health timer that the failure was found with. Zero unless Failed.
	FailedSince time.Time
	// Share is the share that the machine was given a place within (T9). Only used for CauseAuto. Zero if the machine
	// failed again while nobody knew the share: it may have to go when that is known (P1).
	Share int32
}

// ReadRecord returns the preservation that is written on a machine, and nil if there is none. The expiry in the
// Machine's status counts once it was written there; an operator edits it there (P6).
func ReadRecord(machine *machinev1alpha1.Machine) *Record {
	cause, ok := machine.Annotations[v1alpha1.AnnotationCause]
	if !ok {
		return nil
	}
	record := &Record{
		Cause:       cause,
		Expiry:      parseTime(machine.Annotations[v1alpha1.AnnotationExpiryTime]),
		Failed:      machine.Annotations[v1alpha1.AnnotationPhase] == PhaseFailedPreserved,
		FailedSince: parseTime(machine.Annotations[v1alpha1.AnnotationFailedSince]),
	}
	if expiry := machine.Status.CurrentStatus.PreserveExpiryTime; expiry != nil && expiryInStatus(machine) {
		record.Expiry = expiry.Time
	}
	if share, err := strconv.ParseInt(machine.Annotations[v1alpha1.AnnotationShare], 10, 32); err == nil {
		record.Share = int32(share)
	}
	return record
}

// expiryInStatus says that the expiry was written into the status of this very Machine. One that is restored after a
// migration of the control plane has its annotations, another UID, and nothing in its status but what
// machine-controller-manager made of the annotations.
func expiryInStatus(machine *machinev1alpha1.Machine) bool {
	uid, ok := machine.Annotations[v1alpha1.AnnotationExpiryInStatus]
	return ok && uid == string(machine.UID)
}

// annotations returns the keys and values with which the record is written on the machine; an absent key is to be
// removed.
func (r *Record) annotations(phase machinev1alpha1.MachinePhase) map[string]string {
	annotations := map[string]string{
		v1alpha1.AnnotationCause:      r.Cause,
		v1alpha1.AnnotationExpiryTime: formatTime(r.Expiry),
		v1alpha1.AnnotationPhase:      r.Phase(phase),
	}
	if r.Failed {
		annotations[v1alpha1.AnnotationFailedSince] = formatTime(r.FailedSince)
	}
	if r.Cause == v1alpha1.CauseAuto && r.Share > 0 {
		annotations[v1alpha1.AnnotationShare] = strconv.Itoa(int(r.Share))
	}
	return annotations
}

// recordKeys are the keys that annotations may return.
var recordKeys = []string{
	v1alpha1.AnnotationCause,
	v1alpha1.AnnotationExpiryTime,
	v1alpha1.AnnotationPhase,
	v1alpha1.AnnotationFailedSince,
	v1alpha1.AnnotationShare,
}

// Phase returns the sub-phase, for example "Running:Preserved" (P11). What machine-controller-manager calls Unknown or
// Pending is Failed:Preserved once the failure was found; what it calls Failed is Unknown:Preserved as long as the
// machine waits for a place within the share. One that it has not seen yet is Pending.
func (r *Record) Phase(phase machinev1alpha1.MachinePhase) string {
	if r.Failed {
		return PhaseFailedPreserved
	}
	switch phase {
	case machinev1alpha1.MachineFailed:
		phase = machinev1alpha1.MachineUnknown
	case "":
		phase = machinev1alpha1.MachinePending
	}
	return string(phase) + subPhaseSuffix
}

func parseTime(value string) time.Time {
	t, err := time.Parse(time.RFC3339, value)
	if err != nil {
		return time.Time{}
	}
	return t
}

func formatTime(t time.Time) string {
	return t.UTC().Format(time.RFC3339)
}
