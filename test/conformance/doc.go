// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package conformance has the rules of preservation as scenarios that look at nothing but the APIs of a seed and a
// shoot. Each scenario has a worker pool of its own, so that all run at the same time.
package conformance
