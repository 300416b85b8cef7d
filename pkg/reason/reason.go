// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package reason is why something is done to a machine, or is not done. What the domains decide carries a Reason, and so does what
// people are told of it.
package reason

import (
	"fmt"
	"slices"
)

// Rule is the id of a rule of the design.
type Rule string

// Reason is why something is decided.
type Reason struct {
	// ID is the identity, everywhere: it never changes. It is in CamelCase, and the action of Events.
	ID string
	// Rule is the rule that it rests on; empty where that depends on what is done for this reason.
	Rule Rule
	// Text says it to people. Nobody reads it but they.
	Text string
}

// IsZero says that there is no reason.
func (r Reason) IsZero() bool { return r == Reason{} }

// Table is all reasons of a domain.
type Table struct{ reasons []Reason }

// Add returns a reason that it has put into the table. It panics if another one has its ID, or its text: people could not tell
// the two apart.
func (t *Table) Add(id string, rule Rule, text string) Reason {
	added := Reason{ID: id, Rule: rule, Text: text}
	if i := slices.IndexFunc(t.reasons, func(r Reason) bool { return r.ID == id || r.Text == text }); i >= 0 {
		panic(fmt.Sprintf("reason %+v is as %+v", added, t.reasons[i]))
	}
	t.reasons = append(t.reasons, added)
	return added
}

// All returns the reasons in the order in which they were added.
func (t *Table) All() []Reason { return slices.Clone(t.reasons) }

// Of returns the reason with an ID, as it may be in an Event; the zero one if there is none.
func (t *Table) Of(id string) Reason {
	if i := slices.IndexFunc(t.reasons, func(r Reason) bool { return r.ID == id }); i >= 0 {
		return t.reasons[i]
	}
	return Reason{}
}
