// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package simulation runs the real code of machine-controller-manager (MCM) and of the sidecar, hours in milliseconds: all of
// it in one process and in a bubble of testing/synctest, whose clock moves on when everybody waits.
//
// What is real: MCM's controllers with their clients and informers (package mcm), the sidecar's manager, caches, queues and
// reconciler (sidecar.go), client-go and controller-runtime below them. What is simulated: the API servers, which answer the
// clients' HTTP requests without a network (apiserver.go, rest.go), the connections and the processes with their faults
// (process.go), the cloud, kubelets and node lifecycle (cloud.go), the pods (pods.go), those who work on nodes (maintenance.go),
// and the hosts that the VMs run on (hosts.go).
//
// What is done to it is a History (history.go), made of a seed (generate.go). What is wrong then is said by the oracle
// (oracle.go), and told as a timeline (timeline.go).
//
// Begin with TestKnown and TestKnownWork, and with World for who is there. docs/development/simulation.md says what is left out,
// and why.
package simulation
