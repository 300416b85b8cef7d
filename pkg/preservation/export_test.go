// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"maps"
	"slices"
)

// Reasons returns all reasons of decisions that rest on one rule.
func Reasons() []string { return slices.Sorted(maps.Keys(rulesOf)) }

// RulesTold returns the rules of the decisions that people are told of.
func RulesTold() []Rule { return slices.Sorted(maps.Keys(reasonsTold)) }
