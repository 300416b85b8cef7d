// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"time"

	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// The scenarios about what people ask for. Except for one, no machine fails.

// alias: true is now. when-failed is not, for a machine that has not failed.
func alias(p *Pool) {
	machine := p.running(2)[0]
	p.request(machine, "true")
	p.preserved(machine, runningPreserved, "now")
	p.request(machine, "when-failed")
	p.ordinary(machine)
}

// precedence: a Machine's request counts until there is one on its node, which is synced to the Machine. Who removes or
// empties it there withdraws it.
func precedence(p *Pool) {
	machines := p.running(2)
	p.requestOnMachine(machines[0], "now")
	p.preserved(machines[0], runningPreserved, "now")
	p.request(machines[0], "false")
	p.ordinary(machines[0])
	p.synced(machines[0], "false")

	for _, withdraw := range []any{nil, ""} {
		p.request(machines[1], "now")
		p.preserved(machines[1], runningPreserved, "now")
		p.synced(machines[1], "now")
		p.annotate(machines[1], map[string]any{preserve: withdraw})
		p.ordinary(machines[1])
	}
}

// invalidRequests: typos start nothing, and are told to who made them.
func invalidRequests(p *Pool) {
	machines := p.running(2)
	p.request(machines[0], "yes")
	p.annotate(machines[1], map[string]any{preserve: "now", prefix + "timeout": "tomorrow"})
	p.nodeEvent(machines[0], "InvalidPreserveRequest", `"yes" is ignored because it is not valid. Valid values: "now", "when-failed", "false" and "true"`)
	p.nodeEvent(machines[1], "InvalidPreserveTimeout", `"tomorrow" is ignored`)
	p.Expect(p.preserved(machines[1], runningPreserved, "now")).To(BeTemporally("~", time.Now().Add(preserveTimeout), time.Minute))
	p.Expect(p.fresh(p, machines[0]).Annotations).NotTo(Or(HaveKey(prefix+"cause"), ContainElement("yes")))
}

// veto: operators end what a person has asked for, and allow it again.
func veto(p *Pool) {
	machine := p.running(2)[0]
	p.request(machine, "now")
	p.preserved(machine, runningPreserved, "now")
	p.annotateMachine(machine, prefix+"forbidden", "true")
	p.ordinary(machine)
	p.nodeEvent(machine, "MachinePreservationEnded", "operators forbid preserving it")

	p.annotateMachine(machine, prefix+"forbidden", nil)
	p.withdraw(machine)
	p.request(machine, "now")
	p.preserved(machine, runningPreserved, "now")
}

// longest: a machine that people or the share began to keep long ago is kept no more, whoever asks, unless the count has begun
// anew.
func longest(p *Pool) {
	machine := p.running(2)[0]
	p.request(machine, "now")
	p.preserved(machine, runningPreserved, "now")
	p.withdraw(machine)
	p.ordinary(machine)

	since := builder.Noted(p.fresh(p, machine))[builder.NotePreservedSince]
	p.Expect(since).NotTo(BeEmpty())
	p.annotateMachine(machine, builder.NotePreservedSince, "2000-01-01T00:00:00Z")
	defer p.annotateMachine(machine, builder.NotePreservedSince, since)
	p.request(machine, "now")
	p.nodeEvent(machine, "MachinePreservationRefused", "preserved for as long as operators allow")
	p.ordinary(machine)
	p.withdraw(machine)
}

// typo: a request that gets invalid neither ends a preservation nor makes it endless.
func typo(p *Pool) {
	machine := p.running(2)[0]
	p.annotate(machine, map[string]any{preserve: "now", prefix + "timeout": "40s"})
	expiry := p.preserved(machine, runningPreserved, "now")
	p.request(machine, "nwo")
	p.nodeEvent(machine, "InvalidPreserveRequest", `"nwo" is ignored`)
	p.consistently(time.Until(expiry)-2*time.Second, func(g Gomega) {
		g.Expect(p.isPreserved(g, machine, runningPreserved, "now")).To(BeTemporally("==", expiry))
	})
	p.ordinary(machine)
	p.Expect(time.Now()).To(BeTemporally("~", expiry, 15*time.Second))
}

// forbidden: false stops a preservation and stays. The machine is replaced as if the extension did not exist.
func forbidden(p *Pool) {
	machine := p.running(2)[0]
	p.request(machine, "now")
	p.preserved(machine, runningPreserved, "now")
	p.request(machine, "false")
	p.ordinary(machine)
	p.Expect(p.node(p, machine).Annotations).To(HaveKeyWithValue(preserve, "false"))

	p.fail(machine, NodeCondition)
	p.gone(machine)
	p.running(2)
}

// usersProtection: what a user has told the cluster-autoscaler outlives the preservation.
func usersProtection(p *Pool) {
	machine := p.running(2)[0]
	p.annotate(machine, map[string]any{scaleDown: "true"})
	p.request(machine, "now")
	p.preserved(machine, runningPreserved, "now")
	p.withdraw(machine)
	p.ordinary(machine)
	p.Expect(p.node(p, machine).Annotations).To(HaveKeyWithValue(scaleDown, "true"))
}
