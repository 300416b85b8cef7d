// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package reason has the reasons why something is done to a machine, or is not done. Decisions carry a Reason, and so do the messages
// about them.
package reason

import (
	"fmt"
	"slices"
)

// Rule is the id of a rule of the design.
type Rule string

// Reason is why something was decided.
type Reason struct {
	// ID identifies the reason everywhere, so it never changes. It is in CamelCase. Events have it as their action.
	ID string
	// Rule is the rule that the reason follows from; empty if that depends on what is done for the reason.
	Rule Rule
	// Text is the reason in words, for people only. No code may depend on it.
	Text string
}

// Is says that both are the same reason, however they are worded.
func (r Reason) Is(other Reason) bool { return r.ID == other.ID }

// IsZero says that there is no reason.
func (r Reason) IsZero() bool { return r == Reason{} }

// Table has all reasons of a domain.
type Table struct{ reasons []Reason }

// Add adds a reason to the table and returns it. It panics if another reason has the same ID or the same text, because people could
// not distinguish the two.
func (t *Table) Add(id string, rule Rule, text string) Reason {
	added := Reason{ID: id, Rule: rule, Text: text}
	if i := slices.IndexFunc(t.reasons, func(r Reason) bool { return r.ID == id || r.Text == text }); i >= 0 {
		panic(fmt.Sprintf("reason %+v has the ID or the text of %+v", added, t.reasons[i]))
	}
	t.reasons = append(t.reasons, added)
	return added
}

// All returns the reasons in the order in which they were added.
func (t *Table) All() []Reason { return slices.Clone(t.reasons) }

// Of returns the reason with an ID, for example from an Event; the zero Reason if there is none.
func (t *Table) Of(id string) Reason {
	if i := slices.IndexFunc(t.reasons, func(r Reason) bool { return r.ID == id }); i >= 0 {
		return t.reasons[i]
	}
	return Reason{}
}
