// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// overview is what list shows.
type overview struct {
	Time metav1.Time `json:"time"`
	// Machines are the preserved machines.
	Machines []kept `json:"machines"`
	// Places are the places of the pools.
	Places []places `json:"places"`
	// MachineHours are those of the month, nil if they are not counted, or not known.
	MachineHours *machineHours `json:"machineHours,omitempty"`
	// Missing is what could not be read.
	Missing []observed.Missing `json:"missing,omitempty"`

	hasSeed bool
	// names are the names of the nodes and machines to show; empty for all.
	names []string
}

// kept is a preserved machine. What is not known is empty.
type kept struct {
	Pool    string `json:"pool,omitempty"`
	Zone    string `json:"zone,omitempty"`
	Node    string `json:"node,omitempty"`
	Machine string `json:"machine,omitempty"`
	Phase   string `json:"phase"`
	Cause   string `json:"cause,omitempty"`
	// Drain is the reason of the node's condition Preserved if there is a drain, and Message what the condition says about it.
	Drain   string       `json:"drain,omitempty"`
	Message string       `json:"message,omitempty"`
	Until   *metav1.Time `json:"until,omitempty"`
	AskedBy string       `json:"askedBy,omitempty"`

	// place says that it takes a place, as far as the shoot shows.
	place bool
}

func (k *kept) failed() bool { return k.Phase == preservation.PhaseFailedPreserved }

func (k *kept) until() time.Time {
	if k.Until == nil {
		return time.Time{}
	}
	return k.Until.Time
}

// places are the places of a pool in a zone, or in all zones, which share them. Share and Free are nil without access to the seed.
type places struct {
	Pool string `json:"pool"`
	Zone string `json:"zone,omitempty"`
	// AllZones says that all zones of the pool use them (P20).
	AllZones bool   `json:"allZones,omitempty"`
	Share    *int32 `json:"share,omitempty"`
	Used     int32  `json:"used"`
	Free     *int32 `json:"free,omitempty"`
	// AtMaximum says that failed machines that are preserved keep the pool at its maximum in the zone.
	AtMaximum string `json:"atMaximum,omitempty"`
}

// Who requested the preservation of a machine.
const (
	askedOnNode    = "shoot user"
	askedOnMachine = "operator"
	askedByPool    = "pool"
	askedByNobody  = "nobody"
)

// overviewOf returns what is known about preserved machines.
func overviewOf(s *observed.Snapshot) overview {
	o := overview{Time: metav1.Time{Time: s.Time}, Machines: []kept{}, Places: []places{}, hasSeed: s.Seed != nil,
		Missing: s.Unknown(observed.WhatNode, observed.WhatNodes, observed.WhatMachines, observed.WhatOtherMachines, observed.WhatMaintenances, observed.WhatMachineHours)}
	requestors := requestorsOf(s)
	nodes := nodesOf(s)
	if s.Seed == nil {
		for i := range s.Shoot.Nodes {
			if k, ok := keptNode(&s.Shoot.Nodes[i], requestors, s.Time); ok {
				o.Machines = append(o.Machines, k)
			}
		}
		o.Places = usedPlaces(o.Machines)
	} else {
		for i := range s.Seed.Machines {
			machine := &s.Seed.Machines[i]
			if k, ok := keptMachine(machine, nodes[machine.Labels[machinev1alpha1.NodeLabelKey]], requestors); ok {
				o.Machines = append(o.Machines, k)
			}
		}
		for i := range s.Seed.MachineDeployments {
			deployment := &s.Seed.MachineDeployments[i]
			p := placesOf(deployment, s, nodes)
			if deployment.Annotations[v1alpha1.AnnotationSharedInPool] != "" {
				o.locate(s, deployment, p.Zone)
				o.addShared(p)
				continue
			}
			if p.Used > 0 || p.Share != nil && *p.Share > 0 || p.AtMaximum != "" {
				o.Places = append(o.Places, p)
			}
			o.locate(s, deployment, p.Zone)
		}
	}
	o.Places = slices.DeleteFunc(o.Places, func(p places) bool {
		return p.AllZones && p.AtMaximum == "" && p.Used == 0 && (p.Share == nil || *p.Share == 0)
	})
	if s.Seed != nil {
		o.MachineHours = hoursOf(s.Seed.MachineHours, s.Time)
	}
	slices.SortFunc(o.Machines, func(a, b kept) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.Node, b.Node), cmp.Compare(a.Machine, b.Machine))
	})
	slices.SortStableFunc(o.Places, func(a, b places) int { return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(a.Zone, b.Zone)) })
	return o
}

// addShared adds the places of a MachineDeployment to those of its pool, which are the same ones.
func (o *overview) addShared(p places) {
	p.Zone, p.AllZones = "", true
	at := slices.IndexFunc(o.Places, func(other places) bool { return other.AllZones && other.Pool == p.Pool })
	if at < 0 {
		o.Places = append(o.Places, p)
		return
	}
	sum := &o.Places[at]
	sum.Used += p.Used
	if p.AtMaximum != "" {
		sum.AtMaximum = strings.TrimPrefix(sum.AtMaximum+". "+p.AtMaximum, ". ")
	}
	if sum.Share == nil || p.Share != nil && *p.Share < *sum.Share {
		sum.Share = p.Share
	}
	if sum.Free = cmp.Or(sum.Free, p.Free); sum.Free != nil {
		sum.Free = new(max(*sum.Share-sum.Used, 0))
	}
}

func nodesOf(s *observed.Snapshot) map[string]*corev1.Node {
	nodes := make(map[string]*corev1.Node, len(s.Shoot.Nodes))
	for i := range s.Shoot.Nodes {
		nodes[s.Shoot.Nodes[i].Name] = &s.Shoot.Nodes[i]
	}
	return nodes
}

// locate puts machines without a node into the zone of their MachineDeployment.
func (o *overview) locate(s *observed.Snapshot, deployment *machinev1alpha1.MachineDeployment, zone string) {
	for i := range s.Seed.Machines {
		machine := &s.Seed.Machines[i]
		at := slices.IndexFunc(o.Machines, func(k kept) bool { return k.Machine == machine.Name && k.Zone == "" })
		if at >= 0 && belongs(machine, deployment) {
			o.Machines[at].Zone = zone
		}
	}
}

// requestorsOf returns who works on which node.
func requestorsOf(s *observed.Snapshot) map[string]string {
	requestors := map[string]string{}
	for i := range s.Shoot.Maintenances {
		m := &s.Shoot.Maintenances[i]
		if phase := maintenance.PhaseOf(m); phase != "" && phase != maintenancev1alpha1.PhasePending {
			requestors[m.Spec.NodeName] = m.Spec.RequestorID
		}
	}
	return requestors
}

// keptNode returns what the shoot alone says of a preserved machine, and whether it is preserved.
func keptNode(node *corev1.Node, requestors map[string]string, now time.Time) (kept, bool) {
	machine := preservation.Shown(node, now)
	k, ok := keptMachine(machine, node, requestors)
	k.place = preservation.ReadRecord(machine).HasPlace(now)
	k.Machine = ""
	return k, ok
}

// keptMachine returns what seed and shoot say of a preserved machine, and whether it is preserved. It may have no node, or a node of which
// only the name is known.
func keptMachine(machine *machinev1alpha1.Machine, node *corev1.Node, requestors map[string]string) (kept, bool) {
	record := preservation.ReadRecord(machine)
	if record == nil {
		return kept{}, false
	}
	template := machine.Spec.NodeTemplateSpec.Labels
	k := kept{Pool: template[facts.LabelPool], Zone: template[corev1.LabelTopologyZone], Node: machine.Labels[machinev1alpha1.NodeLabelKey], Machine: machine.Name}
	if node != nil {
		k.Node, k.Pool, k.Zone = node.Name, cmp.Or(node.Labels[facts.LabelPool], k.Pool), cmp.Or(node.Labels[corev1.LabelTopologyZone], k.Zone)
		k.readCondition(node)
	}
	k.Phase, k.Cause, k.Until = record.Phase(machine.Status.CurrentStatus.Phase), record.Cause(), timeOrNil(record.Expiry())
	switch k.Cause {
	case v1alpha1.CauseNow, v1alpha1.CauseWhenFailed:
		request := preservation.RequestOf(facts.Member{Machine: machine, Node: node}, v1alpha1.DefaultMaxMachinePreserveTimeout)
		switch {
		case request.Templated:
			k.AskedBy = askedByPool
		case request.OnNode:
			k.AskedBy = askedOnNode
		default:
			k.AskedBy = askedOnMachine
		}
	case v1alpha1.CauseAuto:
		k.AskedBy = askedByNobody
	case v1alpha1.CauseMaintenance:
		k.AskedBy = requestors[k.Node]
	}
	return k, true
}

// readCondition copies what the node's condition says, if it says that the machine is preserved.
func (k *kept) readCondition(node *corev1.Node) {
	if !isPreserved(node) {
		return
	}
	c := preservation.PreservedCondition(node)
	told := preservation.ReadCondition(c)
	k.Until, k.Message = timeOrNil(told.Until), told.Drain
	if v1alpha1.IsDrainReason(c.Reason) {
		k.Drain = c.Reason
	}
}

func timeOrNil(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}

// placesOf returns the places of a MachineDeployment (P1).
func placesOf(deployment *machinev1alpha1.MachineDeployment, s *observed.Snapshot, nodes map[string]*corev1.Node) places {
	template := deployment.Spec.Template.Spec.NodeTemplateSpec.Labels
	p := places{Pool: cmp.Or(template[facts.LabelPool], deployment.Name), Zone: template[corev1.LabelTopologyZone]}
	group := (preservation.Group{}).Of(deployment)
	for i := range s.Seed.Machines {
		machine := &s.Seed.Machines[i]
		if !belongs(machine, deployment) {
			continue
		}
		group.Members = append(group.Members, facts.Member{Machine: machine})
		if preservation.ReadRecord(machine).HasPlace(s.Time) {
			p.Used++
		}
		// Not every provider puts the zone into the template. All nodes of a MachineDeployment are in the same one.
		if node := nodes[machine.Labels[machinev1alpha1.NodeLabelKey]]; node != nil && p.Zone == "" {
			p.Zone = node.Labels[corev1.LabelTopologyZone]
		}
	}
	if failed := group.FailedAtMaximum(); failed > 0 && len(s.Unknown(observed.WhatOtherMachines)) == 0 {
		p.AtMaximum = preservation.AtMaximum(deployment, failed)
	}
	p.Share = group.Share
	if p.Share != nil && len(s.Unknown(observed.WhatOtherMachines)) == 0 {
		p.Free = new(max(*p.Share-p.Used, 0))
	}
	return p
}

func belongs(machine *machinev1alpha1.Machine, deployment *machinev1alpha1.MachineDeployment) bool {
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	return err == nil && machine.Namespace == deployment.Namespace && selector.Matches(labels.Set(machine.Labels))
}

// usedPlaces returns the places that are taken, as far as the shoot shows.
func usedPlaces(machines []kept) []places {
	used := []places{}
	for i := range machines {
		k := &machines[i]
		if !k.place {
			continue
		}
		at := slices.IndexFunc(used, func(p places) bool { return p.Pool == k.Pool && p.Zone == k.Zone })
		if at < 0 {
			at, used = len(used), append(used, places{Pool: k.Pool, Zone: k.Zone})
		}
		used[at].Used++
	}
	return used
}

// isPreserved says that the node's condition Preserved is True.
func isPreserved(node *corev1.Node) bool {
	c := preservation.PreservedCondition(node)
	return c != nil && c.Status == corev1.ConditionTrue
}

func listHead(wide bool) line {
	h := head("POOL", "ZONE", "NODE", "PHASE", "CAUSE", "DRAIN", "LEFT", "REQUESTED BY")
	if wide {
		h.cells = append(h.cells, "UNTIL", "MACHINE", "MESSAGE")
	}
	return h
}

func (k *kept) line(wide bool, now time.Time) line {
	node := k.Node
	if node == "" {
		node = "machine " + k.Machine
	}
	l := line{cells: []string{k.Pool, k.Zone, node, k.Phase, k.Cause, k.Drain, left(k.until(), now), k.AskedBy}}
	if k.failed() {
		l.colour = yellow
	}
	if wide {
		until := ""
		if k.Until != nil {
			until = stamp(k.Until.Time)
		}
		l.cells = append(l.cells, until, k.Machine, k.Message)
	}
	return l
}

// text returns the overview as people read it.
func (o *Options) text(v *overview, wide bool) string {
	var b strings.Builder
	switch {
	case len(v.Machines) == 0 && len(v.names) > 0:
		b.WriteString("None of these machines is preserved.\n")
	case len(v.Machines) == 0:
		b.WriteString("No machine is preserved.\n")
	default:
		lines := []line{listHead(wide)}
		for i := range v.Machines {
			lines = append(lines, v.Machines[i].line(wide, v.Time.Time))
		}
		b.WriteString(o.table(lines...))
	}
	if len(v.Places) > 0 {
		lines := []line{head("POOL", "ZONE", "SHARE", "USED", "FREE")}
		for _, p := range v.Places {
			zone := p.Zone
			if p.AllZones {
				zone = "(all)"
			}
			lines = append(lines, line{cells: []string{p.Pool, zone, number(p.Share), strconv.Itoa(int(p.Used)), number(p.Free)}})
		}
		b.WriteString("\n" + o.table(lines...))
	}
	for _, p := range v.Places {
		if p.AtMaximum != "" {
			fmt.Fprintf(&b, "\n%s.\n", brief.Printable(p.AtMaximum))
		}
	}
	if v.MachineHours != nil {
		b.WriteString("\n" + v.MachineHours.text(v.Time.Time) + "\n")
	}
	if !v.hasSeed {
		b.WriteString("\nOnly the seed knows how many places there are, how many are free, and which machines without a node are preserved. Operators see it with --seed-namespace.\n")
	}
	for _, m := range v.Missing {
		fmt.Fprintf(&b, "Not known: %s: %s\n", brief.Printable(m.What()), brief.Printable(m.Reason))
	}
	return b.String()
}

func number(n *int32) string {
	if n == nil {
		return "?"
	}
	return strconv.Itoa(int(*n))
}

// only leaves the machines of some names, or all of them if there are no names.
func (o *overview) only(names []string) {
	o.names = names
	if len(names) > 0 {
		o.Machines = slices.DeleteFunc(o.Machines, func(k kept) bool { return !slices.ContainsFunc(names, k.is) })
	}
}

// is says that a name is that of the machine or its node.
func (k *kept) is(name string) bool { return k.Node == name || k.Machine == name }

// exists says that a name is that of a node, or of a machine where these are known.
func exists(s *observed.Snapshot, name string) bool {
	return s.Shoot.Node(name) != nil || s.Seed != nil && s.Seed.Machine(name) != nil
}

func allExist(s *observed.Snapshot, names []string) error {
	for _, name := range names {
		switch {
		case exists(s, name):
		case s.Seed == nil:
			return fmt.Errorf("node %q does not exist", name)
		default:
			return fmt.Errorf("neither node nor machine %q exists", name)
		}
	}
	return nil
}

// What list --until waits for.
const (
	untilHeld     = "held"
	untilReleased = "released"
)

type listFlags struct {
	from, output string
	names        []string

	watch bool
	// until is what is waited for, empty for nothing.
	until string
	// timeout is for how long is watched, 0 for as long as it takes.
	timeout time.Duration
}

func (l *listFlags) wide() bool { return l.output == outputWide }

func (l *listFlags) validate() error {
	if err := validateOutput(l.output, outputWide, outputJSON, outputYAML); err != nil {
		return err
	}
	if err := oneOf("--until", l.until, untilHeld, untilReleased, ""); err != nil {
		return err
	}
	switch {
	case l.watch && l.output != "" && l.output != outputWide:
		return fmt.Errorf("--output=%s: must be %s or not set with --watch", l.output, outputWide)
	case l.watch && l.from != "":
		return fmt.Errorf("--from=%s: must not be set with --watch, because a file does not change", l.from)
	case l.until != "" && (!l.watch || len(l.names) == 0):
		return fmt.Errorf("--until=%s: must be set together with --watch and names of nodes, for example 'kubectl preserve list NODE -w --until %s'", l.until, l.until)
	case l.timeout < 0:
		return fmt.Errorf("--timeout=%s: must not be negative, for example 10m", l.timeout)
	case l.timeout > 0 && !l.watch:
		return fmt.Errorf("--timeout=%s: must be set with --watch only", l.timeout)
	}
	return nil
}

// reached says that what --until waits for has happened. It is an error if it cannot happen any more.
func (l *listFlags) reached(s *observed.Snapshot, v *overview) (bool, error) {
	held := func(name string) bool {
		return slices.ContainsFunc(v.Machines, func(k kept) bool { return k.is(name) })
	}
	// Only the preservation controller says until when, and not for a node under maintenance.
	told := func(name string) bool {
		return slices.ContainsFunc(v.Machines, func(k kept) bool { return k.is(name) && (k.Until != nil || k.Cause == v1alpha1.CauseMaintenance) })
	}
	switch l.until {
	case untilReleased:
		return !slices.ContainsFunc(l.names, held), nil
	case untilHeld:
		for _, name := range l.names {
			if !exists(s, name) {
				return false, fmt.Errorf("node %s is gone", name)
			}
		}
		return !slices.ContainsFunc(l.names, func(name string) bool { return !told(name) }), nil
	}
	return false, nil
}

func newListCommand(o *Options) *cobra.Command {
	l := &listFlags{}
	cmd := &cobra.Command{
		Use:   "list [NODE...]",
		Short: "Show the preserved machines: why, until when, and how far their drain is",
		Long: `Show the preserved machines: why, until when, and how far their drain is. The second table shows the places for auto-preservation
of each pool and zone: how many there are, and how many are taken.

You need the right to list nodes, and node maintenances if the shoot has them.`,
		Example: `  kubectl preserve list
  kubectl preserve list -w -o wide
  kubectl preserve list node-1 -w --until released --timeout 2h
  kubectl preserve list --from evidence.tar.gz
  kubectl preserve list --seed-kubeconfig seed.yaml --seed-namespace shoot--my--shoot`,
		ValidArgsFunction: o.completeNodes,
		RunE: func(cmd *cobra.Command, names []string) error {
			l.names = names
			if err := l.validate(); err != nil {
				return err
			}
			if l.watch {
				return o.watchList(cmd.Context(), l)
			}
			return o.list(cmd.Context(), l)
		},
	}
	flags := cmd.Flags()
	flags.StringVarP(&l.output, "output", "o", "", "Output format: wide, json or yaml")
	flags.BoolVarP(&l.watch, "watch", "w", false, "Watch for changes: redraw the table on a terminal, else write a line for each change")
	flags.StringVar(&l.until, "until", "", "With --watch, what to wait for: held (the machines of all given nodes are preserved) or released")
	flags.DurationVar(&l.timeout, "timeout", 0, "With --watch, how long to wait before the command ends with an error, 0 for no limit")
	addFromFlag(cmd, &l.from)
	return cmd
}

// readListed reads what list shows.
func readListed(ctx context.Context, from evidence.Sources) (*observed.Snapshot, error) {
	s, err := evidence.ReadAll(ctx, from)
	if err == nil && s.Seed != nil && from.Seed != nil {
		s.Note(observed.WhatMachineHours, evidence.ReadMachineHours(ctx, from.Seed, s))
	}
	return s, err
}

func (o *Options) list(ctx context.Context, l *listFlags) error {
	return o.look(ctx, l.from, "", readListed, func(s *observed.Snapshot) error {
		if err := allExist(s, l.names); err != nil {
			return missesIn(l.from, err)
		}
		v := overviewOf(s)
		v.only(l.names)
		if l.output == outputJSON || l.output == outputYAML {
			return o.printObject(v, l.output)
		}
		return write(o.Out, o.text(&v, l.wide()))
	})
}
