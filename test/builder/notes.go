// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"maps"
	"strconv"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

const prefix = v1alpha1.GroupName + "/"

// The keys of what Noted returns.
const (
	NoteClaims           = prefix + "claims"
	NoteFailsAt          = prefix + "fails-at"
	NoteShare            = prefix + "share"
	NoteMaintenanceOver  = prefix + "maintenance-over"
	NoteRemediatedUntil  = prefix + "remediated-until"
	NoteExpiryInStatus   = prefix + "expiry-in-status"
	NoteSetAside         = prefix + "request"
	NoteReplacedPriority = prefix + "replaced-priority"
	NoteNodeUncleaned    = prefix + "node-uncleaned"
	NoteReleased         = prefix + "released"
	NoteSpentRequest     = prefix + "spent-request"
	NotePreservedSince   = prefix + "preserved-since"
	NoteMaintainedSince  = prefix + "maintained-since"
)

var notes = []string{
	NoteClaims,
	NoteFailsAt,
	NoteShare,
	NoteMaintenanceOver,
	NoteRemediatedUntil,
	NoteExpiryInStatus,
	NoteSetAside,
	NoteReplacedPriority,
	NoteNodeUncleaned,
	NoteReleased,
	NoteSpentRequest,
	NotePreservedSince,
	NoteMaintainedSince,
}

// Noted returns the annotations of a machine with an entry for each of its notes in the place of their record. The keys and the values
// are those of the annotations that machines had before there were notes, so that a test can give them to Annotation as well.
func Noted(machine *machinev1alpha1.Machine) map[string]string {
	noted := map[string]string{}
	maps.Copy(noted, machine.Annotations)
	delete(noted, v1alpha1.AnnotationPreservationRecord)
	set := func(key, value string) {
		if noted[key] = value; value == "" {
			delete(noted, key)
		}
	}
	for _, key := range notes {
		delete(noted, key)
	}
	n := preservation.ReadNotes(machine)
	var claims []string
	for _, c := range n.Claims {
		mark := ""
		if c.Tentative {
			mark = "?"
		}
		claims = append(claims, c.Cause+mark+"="+stamp(c.Expiry))
	}
	set(NoteClaims, strings.Join(claims, ","))
	set(NoteFailsAt, stamp(n.FailsAt))
	if n.Share != 0 {
		set(NoteShare, strconv.Itoa(int(n.Share)))
	}
	set(NoteMaintenanceOver, stamp(n.MaintenanceOver))
	set(NoteRemediatedUntil, stamp(n.RemediatedUntil))
	set(NoteExpiryInStatus, string(n.ExpiryInStatus))
	set(NoteSetAside, n.SetAside)
	if n.ReplacedPriority != nil {
		noted[NoteReplacedPriority] = *n.ReplacedPriority
	}
	if n.NodeUncleaned {
		set(NoteNodeUncleaned, "true")
	}
	set(NoteReleased, stamp(n.Spent.Released))
	set(NoteSpentRequest, n.Spent.Request)
	for key, span := range map[string]preservation.Span{NotePreservedSince: n.Spent.Kept, NoteMaintainedSince: n.Spent.Maintained} {
		set(key, strings.TrimSuffix(stamp(span.Since)+"/"+stamp(span.Until), "/"))
	}
	return noted
}

// stamp returns a time as it is written, empty for none.
func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}
