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

// Noted returns the annotations of a machine with an entry for each of its notes in the place of their record. The keys and the values
// are those of the annotations that machines had before there were notes, so that a test can give them to Annotation as well.
func Noted(machine *machinev1alpha1.Machine) map[string]string {
	const prefix = v1alpha1.GroupName + "/"
	noted := maps.Clone(machine.Annotations)
	delete(noted, v1alpha1.AnnotationPreservationRecord)
	set := func(key, value string) {
		if value != "" {
			noted[prefix+key] = value
		}
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
	set("claims", strings.Join(claims, ","))
	set("fails-at", stamp(n.FailsAt))
	if n.Share != 0 {
		set("share", strconv.Itoa(int(n.Share)))
	}
	set("maintenance-over", stamp(n.MaintenanceOver))
	set("remediated-until", stamp(n.RemediatedUntil))
	set("expiry-in-status", string(n.ExpiryInStatus))
	set("request", n.SetAside)
	if n.ReplacedPriority != nil {
		noted[prefix+"replaced-priority"] = *n.ReplacedPriority
	}
	if n.NodeUncleaned {
		set("node-uncleaned", "true")
	}
	set("released", stamp(n.Spent.Released))
	set("spent-request", n.Spent.Request)
	for key, span := range map[string]preservation.Span{"preserved-since": n.Spent.Kept, "maintained-since": n.Spent.Maintained} {
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
