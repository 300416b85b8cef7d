// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// world is a group whose machines change as time goes by. What is said of "the machine" is said of the first.
type world struct {
	Group
	// told is the last decision that followed a rule, last that about the machine when there was nothing more to be done.
	told, last Decision
}

// worldOf returns a world with one place for machines that fail, and with all that does nothing by itself.
func worldOf(holder Holder, members ...facts.Member) *world {
	return &world{Group: Group{
		Holder:         holder,
		Share:          new(int32(1)),
		Timeout:        72 * time.Hour,
		MaxTimeout:     336 * time.Hour,
		Pool:           facts.Pool{Replicas: 3},
		Timeouts:       facts.DefaultTimeouts,
		NodeConditions: facts.DefaultNodeConditions,
		Maintenance:    MaintenanceOptions{Enabled: true, MaxHoldTime: 24 * time.Hour},
		Remediation:    RemediationOptions{Enabled: true},
		Members:        members,
	}}
}

// round decides on the machines of a group and applies all steps to them. It returns the decisions, and whether anything
// was changed.
func round(g Group, now time.Time) (decisions []Decision, changed bool) {
	decisions = Decide(g, now)
	for i, d := range decisions {
		m := &g.Members[i]
		for _, step := range Steps(g.Holder, d, g.Timeouts, now) {
			machine, node := m.Machine, m.Node
			Make(step, m)
			changed = changed || !equal(machine, m.Machine) || !equal(node, m.Node)
		}
	}
	return decisions, changed
}

// settle looks until there is nothing more to be done, and returns the rules that were followed. No taint of ours that is there at the end is
// missing in between, and nobody is to look again at once.
func settle(w *world, now time.Time) (rules []Rule) {
	GinkgoHelper()
	was, gap := tainted(w), false
	for range 6 {
		decisions, changed := round(w.Group, now)
		gap = gap || !tainted(w)
		for _, d := range decisions {
			switch {
			case !changed:
				Expect(d.Next.IsZero() || d.Next.After(now)).To(BeTrue(), "it does not look again at once")
			case d.Rule != "":
				rules, w.told = append(rules, d.Rule), d
			}
		}
		if !changed {
			Expect(was && gap && tainted(w)).To(BeFalse(), "the taint was gone in between")
			w.last = decisions[0]
			return rules
		}
	}
	Fail("it does not come to rest")
	return nil
}

// edit changes the machine and its node.
func edit(w *world, opts ...any) {
	GinkgoHelper()
	m := &w.Members[0]
	m.Machine, m.Node = m.Machine.DeepCopy(), m.Node.DeepCopy()
	for _, opt := range opts {
		switch opt := opt.(type) {
		case MachineOption:
			opt(m.Machine)
		case NodeOption:
			opt(m.Node)
		default:
			Fail(fmt.Sprintf("%T", opt))
		}
	}
}

// failing is a machine that fails at a time: its health timeout ends.
func failing(at time.Time) MachineOption {
	return Phase(machinev1alpha1.MachineUnknown, at.Add(-facts.DefaultTimeouts.Health))
}

func machine(w *world) *machinev1alpha1.Machine { return w.Members[0].Machine }

func node(w *world) *corev1.Node { return w.Members[0].Node }

func tainted(w *world) bool {
	if node(w) == nil {
		return false
	}
	_, is := TaintedSince(node(w))
	return is
}

// causes returns why the machine is preserved.
func causes(w *world) (causes []string) {
	if record := ReadRecord(machine(w)); record != nil {
		for _, claim := range record.Claims {
			causes = append(causes, claim.Cause)
		}
	}
	return causes
}

// expectFree expects that nothing is left of the preservation of the machine.
func expectFree(w *world) {
	GinkgoHelper()
	Expect(ReadRecord(machine(w))).To(BeNil())
	Expect(node(w).Annotations).NotTo(HaveKey(disabled))
	Expect(node(w).Spec.Taints).To(BeEmpty())
	Expect(conditionTrue(node(w))).To(BeFalse())
	Expect(machine(w).Status.CurrentStatus.PreserveExpiryTime).To(BeNil())
}
