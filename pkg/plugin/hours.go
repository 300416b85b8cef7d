// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/hours"
)

// machineHours are the machine-hours for which requests and the share have preserved machines in a month, and how many operators allow.
type machineHours struct {
	Month string             `json:"month"`
	Used  float64            `json:"used"`
	Max   int32              `json:"max"`
	Pools map[string]float64 `json:"pools"`
	// SpentAt is when they are used up if nothing changes, Until when the month is over.
	SpentAt *metav1.Time `json:"spentAt,omitempty"`
	Until   metav1.Time  `json:"until"`
}

// hoursOf returns what an account says at a time; nil if it cannot be read, or if nobody has kept it in this month.
func hoursOf(account string, now time.Time) *machineHours {
	a, err := hours.Decode(account)
	if err != nil || !now.Before(a.End()) {
		return nil
	}
	inHours := func(seconds int64) float64 { return math.Round(float64(seconds)/360) / 10 }
	h := &machineHours{Month: a.Month, Used: inHours(a.Used(now)), Max: a.Max, Pools: map[string]float64{}, SpentAt: timeOrNil(a.Spent(now)), Until: metav1.NewTime(a.End())}
	for pool, used := range a.UsedByPool(now) {
		h.Pools[pool] = inHours(used)
	}
	return h
}

// text returns the hours as people read them.
func (h *machineHours) text(now time.Time) string {
	pools := make([]string, 0, len(h.Pools))
	for _, pool := range slices.Sorted(maps.Keys(h.Pools)) {
		pools = append(pools, fmt.Sprintf("%s %.1f", brief.Printable(pool), h.Pools[pool]))
	}
	text := fmt.Sprintf("Machine-hours in %s (UTC): %.1f of %d", h.Month, h.Used, h.Max)
	if len(pools) > 0 {
		text += " (" + strings.Join(pools, ", ") + ")"
	}
	switch {
	case h.SpentAt == nil:
		return text + "."
	case h.SpentAt.After(now):
		return text + ". If nothing changes, all are used at " + stamp(h.SpentAt.Time) + "."
	}
	return text + ". All are used: requests and auto-preservation preserve machines again from " + stamp(h.Until.Time) + " on."
}
