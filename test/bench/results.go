// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
)

// results is what was measured on one landscape.
type results struct {
	machines int
	// few is the memory of the containers with few machines, at rest.
	few  map[string]memory
	idle idle
	// maintenances is what nodes under maintenance take.
	maintenances maintenances
	// atEnd is the memory of the containers when all is over.
	atEnd       map[string]memory
	protections protections
	// leads are the times between the hold and the deadline of machines that failed at once. A negative one is late.
	leads []time.Duration
	// notHeld is the number of those that were not held at all.
	notHeld int
	// drain is the time from the deadline until the last Pod was gone.
	drain time.Duration
	// writes are those of single preservations, by their cause: the most of the whole pod.
	writes map[string]lifetime
	// entries is how many failures were written into the ledger, and entry is the number of writes of the one with the most.
	entries, entry int
}

// protection is how long it took from the annotation of a Node until it was protected, and the agent that did it.
type protection struct {
	took  time.Duration
	agent string
}

type protections []protection

// took returns the times of all, or only of those by some agents.
func (p protections) took(agents ...string) []time.Duration {
	var took []time.Duration
	for _, protection := range p {
		if len(agents) == 0 || slices.Contains(agents, protection.agent) {
			took = append(took, protection.took)
		}
	}
	return took
}

// idle is what happens while nothing happens, by container.
type idle struct {
	memory map[string]memory
	cpu    map[string]time.Duration
	writes map[string]int
}

// maintenances is how many nodes were under maintenance at the same time, how long it took until all were Ready, and the
// memory of the containers after that.
type maintenances struct {
	count  int
	took   time.Duration
	memory map[string]memory
}

// lifetime is what was written because of one preservation.
type lifetime struct {
	// own is the number of writes of the container that preserves, refused is how many more met a conflict.
	own, refused int
	// all is the number of writes of all containers of the pod, those for the drain, for the failure and refused ones
	// included.
	all int
	// ended says that the end of the preservation is part of it.
	ended bool
	// text says which writes there were.
	text string
}

// containers returns the names of the containers, which are those of their executables.
func (b *bench) containers() []string {
	if b.sidecar {
		return []string{agentSidecar, agentManager, agentProvider}
	}
	return []string{agentManager, agentProvider}
}

func (b *bench) measureMemory(into *map[string]memory) error {
	*into = map[string]memory{}
	for _, name := range b.containers() {
		process, err := container(name)
		if err != nil {
			return err
		}
		if (*into)[name], err = memoryOf(process); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) cpu() (map[string]time.Duration, error) {
	cpu := map[string]time.Duration{}
	for _, name := range b.containers() {
		process, err := container(name)
		if err != nil {
			return nil, err
		}
		if cpu[name], err = cpuOf(process); err != nil {
			return nil, err
		}
	}
	return cpu, nil
}

// countWrites counts in the audit logs what was written in the idle time and because of single preservations.
func (m *measurement) countWrites() error {
	all, err := readWrites(m.landscape.Seed.AuditLog, m.landscape.Shoot.AuditLog)
	if err != nil {
		return err
	}
	m.idle.writes = map[string]int{}
	while := all.between(m.idleFrom, m.idleFrom.Add(idlePeriod))
	for _, name := range m.containers() {
		m.idle.writes[name] = len(while.of(name))
		if m.idle.writes[name] > 0 {
			landscape.Say("%s wrote while nothing happened: %s", name, while.of(name))
		}
	}
	for _, e := range m.episodes {
		counted := m.lifetimeOf(all, e)
		if most, ok := m.writes[e.cause]; !ok || counted.all > most.all {
			m.writes[e.cause] = counted
		}
	}
	m.entries, m.entry = all.of(agentSidecar).toLedger()
	for _, cause := range causes {
		landscape.Say("Writes because of %s: %s", cause, m.writes[cause].text)
	}
	return nil
}

// lifetimeOf counts the writes to one Machine and its Node. Not counted as own are those that report a drain, or, where
// machine-controller-manager preserves, prepare for it. Of machine-controller-manager's own those are caused by the preservation that there
// are beyond the ones that a machine gets that fails and is not preserved.
func (m *measurement) lifetimeOf(all writes, e *episode) lifetime {
	var (
		to = func(e *episode) writes {
			return all.to(e.machine.Name, nodeOf(e.machine)).from(e.from).of(m.containers()...)
		}
		counted = to(e)
		own     = counted.of(agentSidecar)
		drain   = m.seen.drainWritesOf(nodeOf(e.machine))
		failure = 0
	)
	if !m.sidecar {
		// The deletion of a machine is the same for all.
		own = counted.untilDeletion()
		if e.cause != v1alpha1.CauseNow {
			failure = len(to(m.control).untilDeletion())
		}
	}
	var containers []string
	for _, name := range m.containers() {
		containers = append(containers, fmt.Sprintf("%s: %s", name, counted.of(name)))
	}
	return lifetime{
		own:     len(own) - len(own.refused()) - drain - failure,
		refused: len(own.refused()),
		all:     len(counted),
		ended:   e.ended,
		text:    fmt.Sprintf("%s (%d of the preservation's for the drain, %d for the failure)", strings.Join(containers, "; "), drain, failure),
	}
}

// compare returns the table of the sidecar's results beside those of machine-controller-manager.
func compare(ours, manager *results) []row {
	peak := func(r *results, container string) uint64 { return r.atEnd[container].peak }
	small, large := ours.few[agentSidecar], ours.idle.memory[agentSidecar]
	ourP99, managerP99 := percentile(ours.protections.took(), 99), percentile(manager.protections.took(), 99)

	rows := []row{
		{
			measure: fmt.Sprintf("memory of %d machines: resident, of which anonymous", ours.machines), goal: "<= 16 MiB", goalIsMet: large.anonymous <= 16<<20,
			ours: large.String(), manager: manager.idle.memory[agentManager].String(),
		},
		{
			measure: fmt.Sprintf("memory of %d machines: resident, of which anonymous", fewMachines), goal: "<= 9 MiB", goalIsMet: small.anonymous <= 9<<20,
			ours: small.String(), manager: manager.few[agentManager].String(),
		},
		{
			measure: fmt.Sprintf("memory with %d of the nodes under maintenance: resident, of which anonymous", ours.maintenances.count),
			ours:    fmt.Sprintf("%s, all Ready after %s", ours.maintenances.memory[agentSidecar], seconds(ours.maintenances.took)),
		},
		{
			measure: "memory in the end: resident, of which anonymous",
			ours:    ours.atEnd[agentSidecar].String(), manager: manager.atEnd[agentManager].String(),
		},
		{
			measure: "memory at its peak: resident",
			ours:    mebibytes(peak(ours, agentSidecar)), manager: mebibytes(peak(manager, agentManager)),
		},
		{
			measure: "memory of the provider's machine controller, which preserves",
			ours:    ours.idle.memory[agentProvider].String(), manager: manager.idle.memory[agentProvider].String(),
		},
		{
			measure: "annotation to protection: p50",
			ours:    milliseconds(percentile(ours.protections.took(), 50)), manager: milliseconds(percentile(manager.protections.took(), 50)),
		},
		{
			measure: "annotation to protection: p99", goal: "<= 1.2 x MCM's own", goalIsMet: 10*ourP99 <= 12*managerP99,
			ours: milliseconds(ourP99), manager: milliseconds(managerP99),
		},
		{
			measure: "annotation to protection: p99 of those by the sidecar itself",
			ours: fmt.Sprintf("%s, %d of %d", milliseconds(percentile(ours.protections.took(agentSidecar), 99)),
				len(ours.protections.took(agentSidecar)), len(ours.protections)),
		},
		{
			measure: "hold: late", goal: "0", goalIsMet: ours.late() == 0,
			ours: ours.lateText(), manager: manager.lateText(),
		},
		{
			measure: "hold: before the deadline, min",
			ours:    seconds(percentile(ours.leads, 0)), manager: seconds(percentile(manager.leads, 0)),
		},
		{
			measure: "hold: before the deadline, p50",
			ours:    seconds(percentile(ours.leads, 50)), manager: seconds(percentile(manager.leads, 50)),
		},
	}
	for _, cause := range causes {
		our, managers := ours.writes[cause], manager.writes[cause]
		rows = append(rows, row{
			measure: "API writes of the whole pod: " + cause, goal: "<= MCM's own + 3", goalIsMet: our.ended && our.all <= managers.all+3,
			ours: our.allText(), manager: managers.allText(),
		})
	}
	for _, cause := range causes {
		our, managers := ours.writes[cause], manager.writes[cause]
		rows = append(rows, row{
			measure: "API writes for the preservation alone: " + cause,
			ours:    our.ownText(), manager: managers.ownText(),
		})
	}
	return append(rows,
		row{
			measure: fmt.Sprintf("API writes of the failure history for a failure, of %d", ours.entries), goal: "<= 2", goalIsMet: ours.entries > 0 && ours.entry <= 2,
			ours: fmt.Sprint(ours.entry),
		},
		row{
			measure: fmt.Sprintf("drain: %d pods gone, after the deadline", drainedPods), goal: "<= MCM's own", goalIsMet: ours.drain <= manager.drain,
			ours: seconds(ours.drain), manager: seconds(manager.drain),
		},
		row{
			measure: fmt.Sprintf("idle for %s: API writes", idlePeriod), goal: "0", goalIsMet: ours.idle.writes[agentSidecar] == 0,
			ours: fmt.Sprint(ours.idle.writes[agentSidecar]), manager: fmt.Sprint(manager.idle.writes[agentManager] + manager.idle.writes[agentProvider]),
		},
		row{
			measure: fmt.Sprintf("idle for %s: of a core", idlePeriod), goal: "< 1 %", goalIsMet: ours.idle.cpu[agentSidecar] < idlePeriod/100,
			ours: percent(ours.idle.cpu[agentSidecar]), manager: percent(manager.idle.cpu[agentManager] + manager.idle.cpu[agentProvider]),
		},
	)
}

var causes = []string{v1alpha1.CauseNow, v1alpha1.CauseWhenFailed, v1alpha1.CauseAuto}

// late returns how many of the machines that failed at once were not held before their deadlines.
func (r *results) late() int {
	late := r.notHeld
	for _, lead := range r.leads {
		if lead < 0 {
			late++
		}
	}
	return late
}

func (r *results) lateText() string {
	text := fmt.Sprintf("%d of %d", r.late(), len(r.leads)+r.notHeld)
	if r.notHeld > 0 {
		text += fmt.Sprintf(", %d not held %s after it", r.notHeld, afterDeadline)
	}
	return text
}

func (l lifetime) allText() string {
	if !l.ended {
		return fmt.Sprintf("%d, its end not seen", l.all)
	}
	return fmt.Sprint(l.all)
}

func (l lifetime) ownText() string {
	if l.refused > 0 {
		return fmt.Sprintf("%d, and %d refused", l.own, l.refused)
	}
	return fmt.Sprint(l.own)
}

func mebibytes(bytes uint64) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

func milliseconds(d time.Duration) string { return fmt.Sprintf("%d ms", d.Milliseconds()) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }

func percent(cpu time.Duration) string {
	return fmt.Sprintf("%.2f %%", 100*float64(cpu)/float64(idlePeriod))
}
