// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package docs

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// For what commands of pages name there must be these, in the shoot.
const (
	// Namespace has what a page names with a namespace.
	Namespace = "operators"
	// Name is the name of a NodeMaintenance and of a PodDisruptionBudget in it.
	Name = "docs"
	// Bundle is a bundle of evidence of the node, in the directory in which commands run.
	Bundle = "evidence.tar.gz"
)

// Objects are what the names of the pages stand for.
type Objects struct {
	// Machine is a machine with a host and with stored evidence, Node its node, and Other the node of another machine.
	Machine, Node, Other string
	// Pool is the worker pool of the machine.
	Pool string
	// MachineDeployment is one whose machines may be forbidden to be preserved.
	MachineDeployment string
	// ControlPlane is the namespace in the seed.
	ControlPlane string
	// Seed and Shoot are paths of kubeconfigs.
	Seed, Shoot string
}

// Variables are the variables that pages expect to be set.
func (o Objects) Variables() map[string]string {
	return map[string]string{
		"NAMESPACE": o.ControlPlane, "NODE": o.Node, "MACHINE_DEPLOYMENT": o.MachineDeployment, "SHOOT": o.Shoot, "HOSTS": o.Seed,
	}
}

// names maps what the pages have to what there is, in this order.
func (o Objects) names() [][2]string {
	return [][2]string{
		{`evidence-(<node>-<time>|node-1-\w+)\.tar\.gz`, Bundle},
		{`(nodemaintenance|poddisruptionbudget) <name>`, "${1} " + Name},
		{`(nodemaintenance \S+ -n|--kubeconfig=\$SHOOT -n) <namespace>`, "${1} " + Namespace},
		{`configmap <name>`, "configmap machine-preservation-evidence-01"},
		{`--user <name>`, "--user somebody"},
		{`<(machine|name|host|node or machine|machine or node)>|\bbmh-7\b`, o.Machine},
		{`node-1 node-2`, o.Node + " " + o.Other},
		{`<node>|\bnode-[0-9]\b|\bworker-1\b|\bshoot--foo--bar-worker-z1-abcde\b`, o.Node},
		{` (NODE|MACHINE|over|auto)( |$)`, " " + o.Node + "${2}"},
		{`<pool>|\bworker-a\b`, o.Pool},
		{`--pool a\b`, "--pool " + o.Pool},
		{`<file>`, o.Seed},
		{`<namespace of the extension>`, "garden"},
		{`<namespace( of the control plane)?>|\bshoot--(local--local|my--shoot|foo--bar|project--name)\b`, o.ControlPlane},
		{`2026-01-31T18:00:00Z`, time.Now().Add(10 * 24 * time.Hour).UTC().Format(time.RFC3339)},
		{`/usr/local/bin/`, "."},
	}
}

var (
	placeholder = regexp.MustCompile(`<[a-zA-Z][^<>]*>`)
	variable    = regexp.MustCompile(`\$\{?([A-Z][A-Z_]*)`)
	shellsOwn   = []string{"HOME", "KUBECONFIG", "PATH", "PWD"}
)

// Fill returns a command with its names and placeholders replaced. One that nothing is known for is an error.
func (o Objects) Fill(c Command) (string, error) {
	text := c.Exports + "\n" + c.Text
	for _, name := range o.names() {
		text = regexp.MustCompile(name[0]).ReplaceAllString(text, name[1])
	}
	if unknown := placeholder.FindString(text); unknown != "" {
		return "", fmt.Errorf("%s:%d: unknown placeholder %s", c.Page, c.Line, unknown)
	}
	variables := o.Variables()
	for _, match := range variable.FindAllStringSubmatch(text, -1) {
		name := match[1]
		if _, ok := variables[name]; !ok && !slices.Contains(shellsOwn, name) && !strings.Contains(c.Exports, name+"=") {
			return "", fmt.Errorf("%s:%d: unknown variable $%s", c.Page, c.Line, name)
		}
	}
	return strings.TrimSpace(text), nil
}
