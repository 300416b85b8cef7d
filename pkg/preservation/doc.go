// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package preservation is the domain: it decides what becomes of each machine of a MachineDeployment, from the observed objects, the
// configuration and the time, and nothing else.
//
// The rules and their ids (R1, T1, P1, ...) are listed in docs/development/rules.md; their sentences are in test/conformance/rules.go.
// Nothing here reads a clock or calls an API.
//
// A machine is preserved while a claim to it stands. Each asker that may claim is a row of one table, askers. A new asker needs
//
//   - its API: a constant for its cause in pkg/apis/preservation/v1alpha1, and an annotation on the Node or the Machine, so that it
//     asks without the others and across restarts. What it notes for later is in Record. The cache of the process has of a Node only the
//     annotations that its package app names.
//   - its rule: a Rule, and the reasons why its preservations begin and end.
//   - its row, with that reason. The row says whether its claim needs a place within the share, whether its node is drained, whether
//     its bound is P13 and who is told; see asker. The model for one whose time is in an annotation is remediation.go.
//   - a field of Record, if it has something to remember: in ReadRecord, Notes and Notes.note, and in Notes.spend if its time is used up.
//   - its name where no table reaches: shown.go (why an end is not the end that the shoot sees), pkg/plugin (what a release leaves),
//     test/oracle (who asks, who works on a machine), and what test/conformance cleans up.
//   - its test: one with the rule's id, its claim and annotation in the random groups of order_test.go, a scenario in test/conformance, and
//     an action in test/simulation if it acts together with MCM.
package preservation
