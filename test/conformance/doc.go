// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package conformance has the rules of preservation as scenarios that look at nothing but the APIs of a seed and a
// shoot. The scenarios share worker pools: each has one for itself while it runs, so that as many run at the same time as
// there are pools.
package conformance
