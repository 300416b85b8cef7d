// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package simulation runs the real code of machine-controller-manager (MCM) and of the sidecar, hours in milliseconds: all of
// it in one process and in a bubble of testing/synctest, whose clock moves on when everybody waits.
//
// What is done to it is a History (history.go) of actions (actions.go), made of a seed (generate.go). What is wrong then is said by
// the oracle (oracle*.go), and told as a timeline (timeline.go).
//
// Begin with TestKnown, and with World for who is there. docs/development/simulation.md says what is real and what is simulated in
// which file, what is left out, and why.
package simulation
