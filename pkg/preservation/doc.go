// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package preservation is the domain: it decides what becomes of each machine of a MachineDeployment, from the observed objects, the
// configuration and the time, and nothing else.
//
// The rules and their ids (R1, T1, P1, ...) are listed in docs/development/rules.md; their sentences are in test/conformance/rules.go. Nothing here reads a clock or
// calls an API.
//
// A machine is preserved while a claim to it stands. Each asker that may claim is a row of one table, askers. A new asker needs
//
//   - its API: a constant for its cause in pkg/apis/preservation/v1alpha1, and an annotation on the Node or the Machine, so that it
//     asks without the others and across restarts. What it notes for later is in Record.
//   - its rule: a Rule, and the reasons why its preservations begin and end.
//   - its row, with that reason. The row says whether its claim needs a place within the share, whether its node is drained, whether
//     its bound is P13 and who is told; see asker. The model for one whose time is in an annotation is remediation.go.
//   - a field of Record, if it has something to remember: in ReadRecord, Notes and Notes.note.
//   - its test: one with the rule's id, and an action in test/simulation if it acts together with MCM.
package preservation
