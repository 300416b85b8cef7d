// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import "github.com/gardener/gardener-extension-machine-preservation/pkg/reason"

// Reasons returns all reasons of decisions.
func Reasons() []reason.Reason { return reasons.All() }

// Become makes a decision follow a rule for a reason.
func (d *Decision) Become(rule Rule, why reason.Reason) { d.become(rule, why) }
