// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	failuresv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/failures/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
)

// Failure is an entry of the failure history. Those who may write it in the shoot may have forged it, or left out anything.
type Failure struct {
	Name   string                                 `json:"name"`
	Spec   failuresv1alpha1.MachineFailureSpec    `json:"spec"`
	Status *failuresv1alpha1.MachineFailureStatus `json:"status,omitempty"`
}

// Outcome returns how the failure ended, empty if it has not.
func (f *Failure) Outcome() string {
	if f.Status == nil {
		return ""
	}
	return string(f.Status.Outcome)
}

// Filter selects failures. Empty fields match all failures.
type Filter struct {
	// Name is that of a node or a machine.
	Name               string
	Pool, Host, Reason string
}

func (f Filter) matches(s *failuresv1alpha1.MachineFailureSpec) bool {
	return (f.Name == "" || s.Node == f.Name || s.Machine == f.Name) &&
		(f.Pool == "" || s.Pool == f.Pool) && (f.Host == "" || s.Host == f.Host) && (f.Reason == "" || strings.EqualFold(s.Reason, f.Reason))
}

// History is what failed when, and what failed more than once.
type History struct {
	Time metav1.Time `json:"time"`
	// Failures are sorted by time, the last one first.
	Failures []Failure `json:"failures"`
	// Repeats are sorted by their count, the largest first.
	Repeats []Repeat `json:"repeats"`
}

// HistoryOf returns the failures that a filter selects.
func HistoryOf(ledger []failuresv1alpha1.MachineFailure, filter Filter, now time.Time) History {
	h := History{Time: metav1.NewTime(now), Failures: []Failure{}}
	for i := range ledger {
		if entry := &ledger[i]; filter.matches(&entry.Spec) {
			h.Failures = append(h.Failures, Failure{Name: entry.Name, Spec: entry.Spec, Status: entry.Status})
		}
	}
	slices.SortFunc(h.Failures, func(a, b Failure) int {
		return cmp.Or(b.Spec.FailedAt.Compare(a.Spec.FailedAt.Time), cmp.Compare(a.Name, b.Name))
	})
	h.Repeats = repeatsOf(h.Failures)
	return h
}

// group is what failures have in common. Empty fields do not matter.
type group struct {
	Machine string `json:"machine,omitempty"`
	Host    string `json:"host,omitempty"`
	Pool    string `json:"pool,omitempty"`
	Reason  string `json:"reason,omitempty"`
}

// groupsOf returns the groups that a failure belongs to.
func groupsOf(s *failuresv1alpha1.MachineFailureSpec) []group {
	groups := []group{{Machine: s.Machine}, {Host: s.Host}, {Pool: s.Pool}}
	if s.Reason != "" {
		groups = append(groups, group{Pool: s.Pool, Reason: s.Reason})
	}
	return slices.DeleteFunc(groups, func(g group) bool { return g == (group{}) })
}

// String returns where its failures were, or with which reason.
func (g group) String() string {
	var words []string
	add := func(word, value string) {
		if value != "" {
			words = append(words, word+" "+value)
		}
	}
	add("of machine", g.Machine)
	add("on host", g.Host)
	add("in pool", g.Pool)
	add("with reason", g.Reason)
	return strings.Join(words, " ")
}

// Repeat is a group with more than one failure.
type Repeat struct {
	group `json:",inline"`
	Count int `json:"count"`
	// First and Last are the times of its first and last failure. Failures without a time do not count.
	First metav1.Time `json:"first"`
	Last  metav1.Time `json:"last"`
}

func repeatsOf(failures []Failure) []Repeat {
	counted := map[group]*Repeat{}
	for i := range failures {
		spec := &failures[i].Spec
		for _, g := range groupsOf(spec) {
			if counted[g] == nil {
				counted[g] = &Repeat{group: g}
			}
			counted[g].add(spec.FailedAt)
		}
	}
	repeats := []Repeat{}
	for _, r := range counted {
		if r.Count > 1 {
			repeats = append(repeats, *r)
		}
	}
	slices.SortFunc(repeats, func(a, b Repeat) int {
		return cmp.Or(b.Count-a.Count, cmp.Compare(a.Host, b.Host), cmp.Compare(a.Machine, b.Machine), cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Reason, b.Reason))
	})
	return repeats
}

func (r *Repeat) add(at metav1.Time) {
	r.Count++
	if at.IsZero() {
		return
	}
	if r.First.IsZero() || at.Before(&r.First) {
		r.First = at
	}
	if r.Last.Before(&at) {
		r.Last = at
	}
}

// Say says how many failures there were, and within which time.
func (r *Repeat) Say(these string) string {
	text := fmt.Sprintf("%d %s %s", r.Count, these, r.group)
	if !r.First.Equal(&r.Last) {
		text += " within " + within(r.Last.Sub(r.First.Time))
	}
	return brief.Printable(text)
}

// within returns a duration in words, rounded up.
func within(d time.Duration) string {
	for _, unit := range []struct {
		length time.Duration
		name   string
	}{{24 * time.Hour, "days"}, {time.Hour, "hours"}, {time.Minute, "minutes"}} {
		if d > unit.length {
			return fmt.Sprintf("%d %s", (d-1)/unit.length+1, unit.name)
		}
	}
	return "a minute"
}
