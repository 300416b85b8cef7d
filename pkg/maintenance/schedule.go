// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package maintenance decides which NodeMaintenances are scheduled, and what is due for the NodeMaintenances of a node. It
// depends only on its arguments: it uses no client and no clock.
package maintenance

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
)

// ScheduledNode is a node as scheduling sees it.
type ScheduledNode struct {
	Name string
	UID  types.UID
	// Unavailable says that it is unschedulable or not ready.
	Unavailable bool
	// Excluded says that no maintenance may begin on it (M15, M17).
	Excluded     bool
	machineKnown bool
	// ShowsUpdate says that the node itself shows that it is updated in place: the shoot may write it as well.
	ShowsUpdate bool
	// CordonedFor is for which NodeMaintenance it is cordoned, empty for none.
	CordonedFor types.UID
}

// NewScheduledNode returns a node as scheduling sees it, without what its machine decides.
func NewScheduledNode(node *corev1.Node) ScheduledNode {
	return ScheduledNode{
		Name: node.Name, UID: node.UID, Unavailable: IsUnavailable(node), ShowsUpdate: facts.IsUpdatedInPlace(node), CordonedFor: CordonedFor(node),
	}
}

// SetMachine has its machine decide as well.
func (n *ScheduledNode) SetMachine(machine Machine) {
	n.Excluded, n.machineKnown = machine.Excludes(), true
}

// Request is a NodeMaintenance as scheduling sees it.
type Request struct {
	types.NamespacedName
	UID types.UID
	// ResourceVersion is that of the object as it was read.
	ResourceVersion string
	Node, Requestor string
	// NodeUID is that of the very node that it is for, empty if it does not say so yet.
	NodeUID types.UID
	Created time.Time
	// Pending says that it may be scheduled, if it is valid: it is in that phase, and not being deleted.
	Pending bool
	// InProgress says that it has a slot, and Ending that it is about to give its node back.
	InProgress, Ending bool
	// Refused says that it is of a namespace that is not taken: what is in progress counts while its node is cordoned for it,
	// and no longer (M17).
	Refused bool

	// spec is what is to be valid before it is scheduled; nil for nothing.
	spec *v1alpha1.NodeMaintenanceSpec
}

func (r *Request) isValid() bool { return r.spec == nil || Validate(r.spec) == nil }

// Limits are how many nodes may be under maintenance, and unavailable, at a time.
type Limits struct{ slots, unavailable limit }

// limit is a number, or none.
type limit struct {
	number int
	none   bool
}

// LimitsOf returns the limits of a configuration for a number of nodes. An error says which value is neither an integer of
// at least 0 nor a percentage.
func LimitsOf(spec *v1alpha1.MaintenanceOperatorConfigSpec, nodes int) (Limits, error) {
	var (
		limits Limits
		errs   [2]error
	)
	if limits.slots, errs[0] = scale(spec.MaxParallelOperations, nodes, true); errs[0] != nil {
		errs[0] = fmt.Errorf("maxParallelOperations: %w", errs[0])
	}
	switch {
	case spec.MaxParallelOperations == nil:
		limits.slots = limit{number: 1}
	case limits.slots.number == 0:
		limits.slots.none = true
	}
	if limits.unavailable, errs[1] = scale(spec.MaxUnavailable, nodes, false); errs[1] != nil {
		errs[1] = fmt.Errorf("maxUnavailable: %w", errs[1])
	}
	return limits, errors.Join(errs[:]...)
}

// scale returns what a value stands for with a number of nodes: at least 1, unless it is 0.
func scale(value *intstr.IntOrString, nodes int, roundUp bool) (limit, error) {
	if value == nil {
		return limit{none: true}, nil
	}
	of100, err := intstr.GetScaledValueFromIntOrPercent(value, 100, true)
	if err != nil {
		return limit{}, err
	}
	if of100 < 0 {
		return limit{}, fmt.Errorf("%s is below 0", value)
	}
	if of100 == 0 {
		return limit{}, nil
	}
	number, err := intstr.GetScaledValueFromIntOrPercent(value, nodes, roundUp)
	return limit{number: max(number, 1)}, err
}

// left returns how many there may be beside those that there are.
func (l limit) left(are, most int) int {
	if l.none {
		return most
	}
	return max(l.number-are, 0)
}

// Slots are how many nodes are under maintenance, and how many more may be.
type Slots struct{ Used, Free int }

// budget is how many nodes may be under maintenance, and of these become unavailable by that, beside those that are or do.
type budget struct{ slots, unavailable int }

// becomesUnavailable says that a maintenance makes the node unavailable, which it would not be by itself. What one that is
// under way has cordoned is available without that, as far as is known.
func (n *ScheduledNode) becomesUnavailable(under bool) bool {
	return !n.Unavailable || under && n.CordonedFor != ""
}

// Schedule returns which requests are to be scheduled now, best first, and the slots as they are before that. A node that
// is under maintenance, and whose maintenance is ending, is taken over by the next one for it together with the slot (M3), unless
// there are more than the limits allow: what is more than that ends (M10).
func Schedule(nodes []ScheduledNode, requests []Request, limits Limits) ([]Request, Slots) {
	byName := make(map[string]*ScheduledNode, len(nodes))
	for i := range nodes {
		byName[nodes[i].Name] = &nodes[i]
	}
	var (
		underMaintenance = map[string]bool{} // whether it is ending
		busy             = map[string]int{}  // by requestor, 1 for each that is
		pending          = map[string]int{}  // by requestor
		candidates       []*Request
	)
	for i := range requests {
		r := &requests[i]
		node := byName[r.Node]
		switch {
		case r.Refused && (node == nil || node.CordonedFor != r.UID):
		case r.InProgress:
			busy[r.Requestor] = 1
			if node != nil {
				ending, other := underMaintenance[r.Node]
				underMaintenance[r.Node] = r.Ending && (ending || !other)
			}
		case r.Pending:
			pending[r.Requestor]++
			if node != nil && !node.Excluded && (r.NodeUID == "" || r.NodeUID == node.UID) {
				candidates = append(candidates, r)
			}
		}
	}
	// What comes back if nothing is taken over: slots, and nodes that are not unavailable by themselves.
	var comesBack budget
	for name, ending := range underMaintenance {
		if ending {
			comesBack.slots++
			if byName[name].becomesUnavailable(true) {
				comesBack.unavailable++
			}
		}
	}
	unavailable := len(underMaintenance)
	for i := range nodes {
		if _, counted := underMaintenance[nodes[i].Name]; nodes[i].Unavailable && !counted {
			unavailable++
		}
	}

	slots := Slots{Used: len(underMaintenance)}
	slots.Free = limits.slots.left(slots.Used, len(nodes))
	slots.Free = min(slots.Free, len(nodes)-slots.Used)
	forNew := budget{slots.Free, limits.unavailable.left(unavailable, len(nodes))}
	forNext := budget{limits.slots.left(slots.Used-comesBack.slots, len(nodes)), limits.unavailable.left(unavailable-comesBack.unavailable, len(nodes))}

	slices.SortFunc(candidates, func(a, b *Request) int {
		return cmp.Or(
			cmp.Compare(busy[b.Requestor], busy[a.Requestor]),
			cmp.Compare(pending[a.Requestor], pending[b.Requestor]),
			a.Created.Compare(b.Created),
			strings.Compare(a.Node, b.Node),
			strings.Compare(a.Requestor, b.Requestor),
			strings.Compare(a.Namespace, b.Namespace),
			strings.Compare(a.Name, b.Name),
		)
	})
	var (
		chosen []Request
		taken  = map[string]bool{}
	)
	for _, r := range candidates {
		ending, under := underMaintenance[r.Node]
		left := &forNew
		if under {
			left = &forNext
		}
		becomesUnavailable := byName[r.Node].becomesUnavailable(under)
		switch {
		case taken[r.Node], under && !ending:
			continue
		case left.slots == 0 || becomesUnavailable && left.unavailable == 0:
			continue
		case !r.isValid(): // which takes longer than all else, and so comes last
			continue
		}
		left.slots--
		if becomesUnavailable {
			left.unavailable--
		}
		taken[r.Node] = true
		chosen = append(chosen, *r)
	}
	return chosen, slots
}
