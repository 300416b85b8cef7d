// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	preservationv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
)

const (
	// AnnotationRound on a MaintenanceOperatorConfig has the NodeMaintenances that the last round has chosen: UID, colon and resource
	// version of each, with commas in between. It is written before they are scheduled, and they count as scheduled from then on: a lock
	// on this one object keeps their number within the limits (M10).
	AnnotationRound = preservationv1alpha1.GroupName + "/scheduling-round"

	// MaxChosen is how many one round chooses. The next one follows at once.
	MaxChosen = 100
)

// Round gathers what a round of scheduling sees, object by object. It keeps none of them.
type Round struct {
	config     *v1alpha1.MaintenanceOperatorConfig
	namespaces Namespaces
	promises   sets.Set[string]

	phases map[string]int
	// promised are the requests that were chosen before, and are as they were then.
	promised, others []Request
	nodes            []ScheduledNode
	// targets are the nodes of what is pending.
	targets sets.Set[string]
}

// NewRound returns a round with a configuration as it was read before everything else, and with nothing else yet. Objects are
// taken from these namespaces.
func NewRound(config *v1alpha1.MaintenanceOperatorConfig, namespaces Namespaces) *Round {
	return &Round{
		config: config, namespaces: namespaces, promises: sets.New(strings.Split(config.Annotations[AnnotationRound], ",")...),
		phases: map[string]int{}, targets: sets.New[string](),
	}
}

// AddMaintenance adds one of all NodeMaintenances.
func (r *Round) AddMaintenance(nm *v1alpha1.NodeMaintenance) {
	request := NewRequest(nm, r.namespaces)
	r.phases[PhaseOf(nm)]++
	if request.Pending {
		r.targets.Insert(request.Node)
	}
	if request.Pending && r.promises.Has(request.promise()) {
		r.promised = append(r.promised, request)
	} else {
		r.others = append(r.others, request)
	}
}

// AddNode adds one of all nodes.
func (r *Round) AddNode(node *corev1.Node) { r.nodes = append(r.nodes, NewScheduledNode(node)) }

// ForgetNodes is for nodes that are listed once more: each counts once (M10).
func (r *Round) ForgetNodes() { r.nodes = nil }

// Scheduling is what a round has decided. What it writes is to be written in the order of its fields.
type Scheduling struct {
	// Phases are how many NodeMaintenances there are in each, and Slots how many nodes are under maintenance, and may be.
	Phases map[string]int
	Slots  Slots
	// Unknown are the nodes whose machines decide as well. It is to be decided again once these are set.
	Unknown []*ScheduledNode
	// Withdrawn were chosen before, and cannot be scheduled any more. They count until they have changed: another replica may
	// be about to schedule them, and only the lock on the object itself stops it. One that cannot be changed holds up no other.
	Withdrawn []Request
	// Promise says on the configuration what is chosen, nil if that is nothing: whoever takes a round from then on counts it, and
	// whoever has begun one before fails here.
	Promise *intent.Write
	// Scheduled are to be scheduled: what was chosen before comes first.
	Scheduled []Request
}

// Decide returns what is to be scheduled, once all is added. An error says which limits cannot be read.
func (r *Round) Decide() (Scheduling, error) {
	limits, err := LimitsOf(&r.config.Spec, len(r.nodes))
	if err != nil {
		return Scheduling{}, err
	}
	chosen, slots := Schedule(r.nodes, append(r.others, counted(r.promised)...), limits)
	s := Scheduling{Phases: r.phases, Slots: slots}
	if len(chosen)+len(r.promised) == 0 { // where there is no room for any, their machines do not matter
		return s, nil
	}
	for i := range r.nodes {
		if node := &r.nodes[i]; !node.machineKnown && r.targets.Has(node.Name) {
			s.Unknown = append(s.Unknown, node)
		}
	}
	if len(s.Unknown) > 0 {
		return s, nil
	}

	s.Scheduled, s.Withdrawn = r.keep(limits)
	chosen = chosen[:min(len(chosen), max(MaxChosen-len(s.Scheduled), 0))]
	s.Scheduled = append(s.Scheduled, chosen...)
	if len(chosen) > 0 { // what cannot be withdrawn goes on to count
		s.Promise = promise(r.config, slices.Concat(s.Scheduled, s.Withdrawn))
	}
	return s, nil
}

// keep tells the promises apart that still hold: the node may have become one that nothing is scheduled on (M15), and the
// limits may be lower.
func (r *Round) keep(limits Limits) (kept, withdrawn []Request) {
	if len(r.promised) == 0 {
		return nil, nil
	}
	requests := slices.Clone(r.promised)
	for _, request := range r.others {
		if request.InProgress {
			requests = append(requests, request)
		}
	}
	kept, _ = Schedule(r.nodes, requests, limits)
	uids := sets.New[types.UID]()
	for _, request := range kept {
		uids.Insert(request.UID)
	}
	return kept, slices.DeleteFunc(slices.Clone(r.promised), func(request Request) bool { return uids.Has(request.UID) })
}

// counted returns promised requests as what is in progress: another replica may be about to schedule them.
func counted(promised []Request) []Request {
	promised = slices.Clone(promised)
	for i := range promised {
		promised[i].Pending, promised[i].InProgress = false, true
	}
	return promised
}

// promise returns the write by which a configuration says what is chosen.
func promise(config *v1alpha1.MaintenanceOperatorConfig, chosen []Request) *intent.Write {
	var promises []string
	for i := range chosen {
		promises = append(promises, chosen[i].promise())
	}
	after := config.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, AnnotationRound, strings.Join(promises, ","))
	return &intent.Write{Before: config, After: after, Lock: true}
}

// promise identifies a request as it was read: once it has changed, nobody can schedule it because of a promise.
func (r *Request) promise() string { return string(r.UID) + ":" + r.ResourceVersion }

// Schedule returns the write that schedules what was requested, nil if that has changed since it was read.
func (r Request) Schedule(nm *v1alpha1.NodeMaintenance, now time.Time) *intent.Write {
	return r.write(nm, v1alpha1.PhaseScheduled, "A slot is taken.", now)
}

// Withdraw returns the write that makes a promise void, nil if it is.
func (r Request) Withdraw(nm *v1alpha1.NodeMaintenance, now time.Time) *intent.Write {
	// With the time it changes in any case.
	return r.write(nm, v1alpha1.PhasePending, fmt.Sprintf("The slot was taken back at %s.", now.UTC().Format(time.RFC3339Nano)), now)
}

func (r *Request) write(nm *v1alpha1.NodeMaintenance, phase, message string, now time.Time) *intent.Write {
	if nm.UID != r.UID || nm.ResourceVersion != r.ResourceVersion {
		return nil
	}
	after := nm.DeepCopy()
	SetPhase(&after.Status, phase, message, nm.Generation, now)
	return &intent.Write{Before: nm, After: after, Status: true, Lock: true}
}
