// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/component-helpers/storage/ephemeral"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
)

// Group is a MachineDeployment with its machines and their hosts. One decision is taken for all of them.
type Group struct {
	facts.Pool
	// Settings are those of the MachineDeployment. If they are nil, its hosts are not touched, and everything of ours ends (X15).
	Settings *Settings
	// Seed is the name of the seed.
	Seed string
	// Others are the nodes of the shoot that are not those of the Members. If they are not known, Others is nil and no host is switched
	// off (X8). OtherCycles is how many machines besides the Members are being power-cycled.
	Others      *NodeCount
	OtherCycles int
	// Uncounted says that the Others may not be as they are now, because the group is confirmed without them: no cycle begins, and no host is
	// asked to be off (X8).
	Uncounted bool
	// Storm says how many machines of the shoot fail at the same time. While too many do, no cycle is requested automatically, and none
	// begins that was (X21).
	Storm facts.Storm
	// AllowNodes says that operators allow requests on Nodes (X11).
	AllowNodes bool
	// MaxPerShoot is how many machines of the shoot may be cycled at a time, 0 for any number. With NeedsGrant, no cycle begins
	// without a grant on the Machine. The extension gives grants to enforce a limit for the seed (X8).
	MaxPerShoot int32
	NeedsGrant  bool
	// QuietTime is how long a healthy machine must be without a request before a new request counts as made while it was healthy (X16).
	QuietTime time.Duration
	// MaxServicing is how long the machine of a host that is being serviced is preserved (X18).
	MaxServicing time.Duration
	// Validated says that the pool wants a proof that a machine works when its power cycle is over (V1).
	Validated bool
	// Evidence says that evidence of failures is stored. An automatic cycle waits for it (X9). Process is since when the process acts that
	// gathers it.
	Evidence bool
	Process  time.Time
	// Timeouts are the defaults of the machines' timeouts, NodeConditions those of the types of conditions that make a node unhealthy.
	Timeouts       facts.Timeouts
	NodeConditions []string
	// ShootAway says that the shoot's API server does not answer. ShootBack is since when it answers again, zero if it was never
	// away (X8).
	ShootAway bool
	ShootBack time.Time
	// Members are the machines, in any order.
	Members []Member
}

// NodeCount is a number of nodes.
type NodeCount struct {
	// All is how many nodes dependency-watchdog looks at. Away is how many of them are not ready, or have a machine that is being
	// power-cycled.
	All, Away int
}

// Add counts a node and its machine, nil for a node without one. It leaves out what dependency-watchdog leaves out (see isWatched).
// unhealthy are the types of the conditions by which a node is unhealthy, unless its machine has its own.
func (n *NodeCount) Add(node *corev1.Node, machine *machinev1alpha1.Machine, unhealthy []string) {
	if !isWatched(node, machine, unhealthy) {
		return
	}
	n.All++
	if !facts.IsReady(node) || UnderWay(machine) {
		n.Away++
	}
}

// isWatched says that dependency-watchdog looks at the lease of a node: since 1.3 it leaves out those without a machine, or
// with one that is Failed or Terminating, and those that a condition makes unhealthy; since 1.7 those that are updated in place, too. It
// looks at the leases of machines in all other phases, also in Unknown.
func isWatched(node *corev1.Node, machine *machinev1alpha1.Machine, unhealthy []string) bool {
	if IsUnwatched(machine) {
		return false
	}
	if c := machine.Spec.MachineConfiguration; c != nil && c.NodeConditions != nil {
		unhealthy = strings.Split(*c.NodeConditions, ",")
	}
	return !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Status == corev1.ConditionTrue && slices.Contains(unhealthy, string(c.Type)) ||
			c.Type == machinev1alpha1.NodeInPlaceUpdate && (c.Reason == machinev1alpha1.ReadyForUpdate || c.Reason == machinev1alpha1.UpdateFailed)
	})
}

// IsUnwatched says that dependency-watchdog leaves a node out because of its machine, nil for a node without one.
func IsUnwatched(machine *machinev1alpha1.Machine) bool {
	return machine == nil || machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed || machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineTerminating
}

// areTooManyAway says that Gardener's dependency-watchdog would consider the nodes cut off: the leases of 60 % of them, and of more than
// one, expire. It would stop machine-controller-manager and the preservation controller with it, and nobody would be left to release
// the hosts (X2, X8).
func (n NodeCount) areTooManyAway() bool { return n.All > 1 && n.Away*10 >= n.All*6 }

// Member is a machine, its node and its host.
type Member struct {
	facts.Member
	// Healthy says that the node is healthy (H1). HealthySince is since when, in its own words: its clock may be wrong.
	Healthy      bool
	HealthySince time.Time
	// Live says that Machine and Node were read from the API servers, not from caches, which may lag.
	Live bool
	// Unasked is when the reading began by which the machine was last seen without a request. UnaskedSince is when the first reading ended
	// since which it always was seen without one, and as healthy or as ill. Both are zero if it was not seen like this. A later request
	// counts as made while the machine was healthy if it was healthy by then (X16).
	Unasked, UnaskedSince time.Time
	// Host is nil if the machine has no host, or if its host is not known.
	Host *Host
	// NoHost says in words why the machine has no host of its own; empty if it has a host, or if that is not known.
	NoHost string
	// NodeContents are what must leave the node before it is safe; nil if that is not known.
	NodeContents *NodeContents
	// NodeDenied says that the cleanup must not wait any longer for the Node (P14, X15).
	NodeDenied bool
}

// IsUnasked says that nobody requests to power-cycle the machine. It is false if the Node is not known (X16).
func (m *Member) IsUnasked() bool {
	_, needs := m.Machine.Annotations[v1alpha1.AnnotationNeedsRemediation]
	return !needs && !m.NodeUnknown && !isAskedOn(m.Node)
}

// NodeContents are what is left on a node that is out of service.
type NodeContents struct {
	// Pods is how many of its pods must leave it (see MustLeave). VolumeAttachments is how many VolumeAttachments name it, without
	// those of pods that stay.
	Pods, VolumeAttachments int
}

// NodeContentsOf returns what is left on a node, from its pods, the VolumeAttachments that name it, and their PersistentVolumes. Nobody
// detaches the volumes of a pod that stays, and nobody else gets them, so they are not counted. A VolumeAttachment whose
// PersistentVolume is not among the given ones is counted.
func NodeContentsOf(pods []*corev1.Pod, attachments []*storagev1.VolumeAttachment, volumes []*corev1.PersistentVolume) NodeContents {
	var (
		contents        NodeContents
		staying, needed = sets.New[types.NamespacedName](), sets.New[types.NamespacedName]()
		kept            = sets.New[string]()
	)
	for _, pod := range pods {
		if MustLeave(pod) {
			contents.Pods++
			needed.Insert(ClaimsOf(pod)...)
		} else {
			staying.Insert(ClaimsOf(pod)...)
		}
	}
	staying = staying.Difference(needed)
	for _, volume := range volumes {
		if claim := volume.Spec.ClaimRef; claim != nil && staying.Has(types.NamespacedName{Namespace: claim.Namespace, Name: claim.Name}) {
			kept.Insert(volume.Name)
		}
	}
	for _, attachment := range attachments {
		if volume := attachment.Spec.Source.PersistentVolumeName; volume == nil || !kept.Has(*volume) {
			contents.VolumeAttachments++
		}
	}
	return contents
}

// ClaimsOf returns the PersistentVolumeClaims of a pod.
func ClaimsOf(pod *corev1.Pod) []types.NamespacedName {
	var keys []types.NamespacedName
	for i := range pod.Spec.Volumes {
		switch volume := &pod.Spec.Volumes[i]; {
		case volume.PersistentVolumeClaim != nil:
			keys = append(keys, types.NamespacedName{Namespace: pod.Namespace, Name: volume.PersistentVolumeClaim.ClaimName})
		case volume.Ephemeral != nil:
			keys = append(keys, types.NamespacedName{Namespace: pod.Namespace, Name: ephemeral.VolumeClaimName(pod, volume)})
		}
	}
	return keys
}

// MustLeave says whether a pod must leave its node while the node is out of service: the pod is terminating, or will be because it does
// not tolerate the taint forever. Without the second case, a pod that is about to be deleted would not be waited for.
func MustLeave(pod *corev1.Pod) bool {
	if pod.DeletionTimestamp != nil {
		return true
	}
	for _, t := range pod.Spec.Tolerations {
		if t.TolerationSeconds == nil && t.ToleratesTaint(logr.Discard(), &taintOutOfService, false) {
			return false
		}
	}
	return true
}

// Event is an Event on the Machine, and on its Node if there is one.
type Event struct {
	Warning bool
	// Reason is one of the Event constants, or EventPrefix with the phase that has begun (X12).
	Reason string
	Note   string
}

const (
	// EventPrefix begins the reason of an Event about a phase. The phase follows (X12).
	EventPrefix = "PowerCycle"
	// EventOutOfAttempts says that a request for a power cycle was removed because the host had all power cycles that maxAttempts allows (X6, X20).
	EventOutOfAttempts = EventPrefix + "OutOfAttempts"
	// EventRefused says that operators do not allow requests on Nodes (X11).
	EventRefused = EventPrefix + "Refused"
	// EventRecovered says that a request for a power cycle was removed because the machine is healthy now. Only a request for a machine
	// that was healthy then is carried out (X16).
	EventRecovered = EventPrefix + "Recovered"
	// EventServicing says that the host is being serviced, and that the deadlines of its cycle stand still (X18).
	EventServicing = EventPrefix + "Servicing"
	// EventDryRun says that a machine would have been power-cycled if its pool had automatic power cycles (X9).
	EventDryRun = EventPrefix + "DryRun"
)

// DefaultQuietTime is longer than a watch may hang unnoticed, and longer than a health checker delays or repeats a request (X16).
const DefaultQuietTime = time.Minute

// DryRunOutcome is the outcome of a cycle that would have begun without the dry run (X9).
const DryRunOutcome = "DryRun"

// Decision is what to do for one machine, in this order: Restore, Release, WriteMachine, PowerOff, WriteNode. The first three wait for
// nothing. The others require that those before them succeeded, except that a failed write on the Node delays nothing. After that, the
// caller must decide again, with what was written.
type Decision struct {
	Member
	// Release says to release the host if it still has the Owner that it has now (X2). A restored Machine has another UID, and
	// releases what it requested before.
	Release bool
	// WriteMachine is the change of the Machine, nil for none.
	WriteMachine *intent.Write
	// WriteNode are the changes of the Node.
	WriteNode []intent.Write
	// PowerOff says to request that the host is off, on behalf of this Owner; nil for no request. All earlier writes are done then.
	PowerOff *Owner
	// Restore is the owner that the request on the host has lost and must get back; nil for none (X20).
	Restore *Owner
	// Confirm says that the decision must not rely on a cache, which may lag: it may not show that the cycle is under way, that
	// another machine of the shoot is being cycled, or that the node is being maintained (X3, X8). Before anything of any decision is
	// carried out, the caller must read live all Machines of the group, with the Node and the host of each member for which Confirm was
	// ever set, and decide again, like the function Confirm. The last decision may be carried out even if something could not be
	// read: no cycle begins, no host is switched off and no node is made safe unless the Host is Live. Unless the Others were read live as
	// well, the group must be Uncounted, and while another group is confirmed that is not: both together could switch off too many nodes.
	Confirm bool
	// ConfirmOthers says, beside Confirm, that a cycle may begin, or the host be asked to be off, once the decision is confirmed.
	ConfirmOthers bool
	// ReadNodeContents says that this machine cannot continue before NodeContents is known.
	ReadNodeContents bool
	// Events must be emitted after the writes.
	Events []Event
	// Passed is the phase that ended with this decision, empty for none. Took is how long it lasted. Outcome is how the cycle ended
	// with this decision: one of the phases Succeeded, Failed and Cancelled, or DryRunOutcome; empty if it did not end (X12).
	Passed  string
	Took    time.Duration
	Outcome string
	// Deadline is when the current phase must be over. For a cycle that has failed, it is the deadline that passed. It is zero otherwise (X5).
	Deadline time.Time
	// Next is when to decide again even if nothing changes until then; zero for never.
	Next time.Time
}
