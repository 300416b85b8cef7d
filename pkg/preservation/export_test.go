// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
)

// Reasons returns all reasons of decisions.
func Reasons() []reason.Reason { return reasons.All() }

// Become makes a decision follow a rule for a reason.
func (d *Decision) Become(rule Rule, why reason.Reason) { d.become(rule, why) }

// Note edits what is noted on a Machine.
func Note(machine *machinev1alpha1.Machine, edit func(*Notes)) { note(machine, edit) }

// InPool returns a reason with the text that it has where the zones of the pool share the places.
func InPool(why reason.Reason) reason.Reason { return inPool(why) }
