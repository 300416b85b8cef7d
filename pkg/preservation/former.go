// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// The annotations of earlier versions, before the record in JSON. They are read, because such a version may have preserved the machine, and
// are removed with the next write. All of this can be removed when no such version is in use any more.
const (
	formerClaims           = v1alpha1.GroupName + "/claims"
	formerFailsAt          = v1alpha1.GroupName + "/fails-at"
	formerShare            = v1alpha1.GroupName + "/share"
	formerMaintenanceOver  = v1alpha1.GroupName + "/maintenance-over"
	formerRemediatedUntil  = v1alpha1.GroupName + "/remediated-until"
	formerExpiryInStatus   = v1alpha1.GroupName + "/expiry-in-status"
	formerRequest          = v1alpha1.GroupName + "/request"
	formerReplacedPriority = v1alpha1.GroupName + "/replaced-priority"
	formerNodeUncleaned    = v1alpha1.GroupName + "/node-uncleaned"
	formerReleased         = v1alpha1.GroupName + "/released"
	formerSpentRequest     = v1alpha1.GroupName + "/spent-request"
	formerPreservedSince   = v1alpha1.GroupName + "/preserved-since"
	formerMaintainedSince  = v1alpha1.GroupName + "/maintained-since"
)

// FormerAnnotations are their keys.
var FormerAnnotations = []string{
	formerClaims, formerFailsAt, formerShare, formerMaintenanceOver, formerRemediatedUntil, formerExpiryInStatus, formerRequest,
	formerReplacedPriority, formerNodeUncleaned, formerReleased, formerSpentRequest, formerPreservedSince, formerMaintainedSince,
}

// readFormer reads what the version before has written. Where there is anything of it, that version was rolled back to after the record
// was written: the record is out of date, but for the priority, which that version leaves as it is.
func (n *Notes) readFormer(annotations map[string]string) {
	if slices.ContainsFunc(FormerAnnotations, func(key string) bool { _, ok := annotations[key]; return ok }) {
		*n = Notes{ReplacedPriority: n.ReplacedPriority}
	}
	for key, value := range annotations {
		switch key {
		case formerClaims:
			n.Claims = formerClaimsOf(value)
		case formerFailsAt:
			n.FailsAt = parseTime(value)
		case formerShare:
			share, _ := strconv.ParseInt(value, 10, 32)
			n.Share = int32(share)
		case formerMaintenanceOver:
			n.MaintenanceOver = parseTime(value)
		case formerRemediatedUntil:
			n.RemediatedUntil = parseTime(value)
		case formerExpiryInStatus:
			n.ExpiryInStatus = types.UID(value)
		case formerRequest:
			n.SetAside = value
		case formerReplacedPriority:
			n.ReplacedPriority = &value
		case formerNodeUncleaned:
			n.NodeUncleaned = true
		case formerReleased:
			n.Spent.Released = parseTime(value)
		case formerSpentRequest:
			n.Spent.Request = value
		case formerPreservedSince:
			n.Spent.Kept = formerSpan(value)
		case formerMaintainedSince:
			n.Spent.Maintained = formerSpan(value)
		}
	}
}

// formerClaimsOf reads "cause=time", with commas in between and "?" behind the cause of one that is tentative.
func formerClaimsOf(value string) (claims []Claim) {
	for part := range strings.SplitSeq(value, ",") {
		if cause, at, ok := strings.Cut(part, "="); ok {
			cause, tentative := strings.CutSuffix(cause, "?")
			claims = append(claims, Claim{Cause: cause, Expiry: parseTime(at), Tentative: tentative})
		}
	}
	return claims
}

// formerSpan reads the begin of a span and, behind a slash, its end.
func formerSpan(value string) Span {
	since, until, _ := strings.Cut(value, "/")
	return Span{Since: parseTime(since), Until: parseTime(until)}
}
