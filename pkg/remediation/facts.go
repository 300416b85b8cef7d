// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
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

// Group is a MachineDeployment with its machines and their hosts: what one decision is taken on.
type Group struct {
	facts.Pool
	// Settings are those of the MachineDeployment. Nil: its hosts are not to be touched, and all that is ours ends (X15).
	Settings *Settings
	// Seed is the name of the seed.
	Seed string
	// Others are the nodes of the shoot beside those of the Members. Nil if they are not known: no host is switched off then
	// (X8). OtherCycles is how many machines beside the Members are being power-cycled.
	Others      *NodeCount
	OtherCycles int
	// AllowNodes says that operators allow requests on Nodes (X11).
	AllowNodes bool
	// MaxPerShoot is how many machines of the shoot are cycled at a time, 0 for any number. With NeedsGrant, no cycle begins
	// without a grant on the Machine, which the extension gives because of a limit for the seed (X8).
	MaxPerShoot int32
	NeedsGrant  bool
	// QuietTime is for how long a healthy machine had no request when one counts as asked for while it was healthy (X16).
	QuietTime time.Duration
	// MaxServicing is for how long the machine of a host that is being serviced is preserved (X18).
	MaxServicing time.Duration
	// Evidence says that the evidence of failures is stored, which an automatic cycle waits for (X9).
	Evidence bool
	// Timeouts are the defaults of the machines' timeouts.
	Timeouts facts.Timeouts
	// ShootAway says that the shoot's API server does not answer, ShootBack since when it does again; zero if it was never
	// away (X8).
	ShootAway bool
	ShootBack time.Time
	// Members are the machines, in any order.
	Members []Member
}

// NodeCount is a number of nodes.
type NodeCount struct {
	// All is how many there are, and Away how many of them are not ready, or are those of machines that are being power-cycled.
	All, Away int
}

// Add counts a node and its machine, nil for a node without one.
func (n *NodeCount) Add(node *corev1.Node, machine *machinev1alpha1.Machine) {
	n.All++
	if !facts.IsReady(node) || machine != nil && UnderWay(machine) {
		n.Away++
	}
}

// areTooManyAway says that Gardener's dependency-watchdog takes the nodes for cut off, as it does when the leases of 60 % of
// them expire, and of more than one: it stops machine-controller-manager and this extension with it, and nobody would be left
// to release the hosts (X2, X8).
func (n NodeCount) areTooManyAway() bool { return n.All > 1 && n.Away*10 >= n.All*6 }

// Member is a machine, its node and its host.
type Member struct {
	facts.Member
	// Healthy says that the node is healthy (H1), and HealthySince since when, as its conditions say.
	Healthy      bool
	HealthySince time.Time
	// Live says that Machine and Node are what the API servers have, and not what caches have that may be behind.
	Live bool
	// Unasked is when the machine was last seen without a request, and UnaskedSince since when it had none then; zero if the
	// controller has not seen it so. What is asked for later is asked for while the machine is healthy if it was so by then (X16).
	Unasked, UnaskedSince time.Time
	// Host is nil if there is none, or if it is not known.
	Host *Host
	// NoHost says in words why the machine has no host that is its own; empty if it has one, or if nobody knows.
	NoHost string
	// NodeContents are what the node has to be rid of to be safe; nil if that is not known.
	NodeContents *NodeContents
	// NodeDenied says that the end of all that is ours must not wait any longer for the Node to be cleaned (P14, X15).
	NodeDenied bool
}

// IsUnasked says that nobody asks for the machine to be power-cycled, as far as all of that is known (X16).
func (m *Member) IsUnasked() bool {
	_, needs := m.Machine.Annotations[v1alpha1.AnnotationNeedsRemediation]
	return !needs && !m.NodeUnknown && !isAskedOn(m.Node)
}

// NodeContents are what there still is of a node that is out of service.
type NodeContents struct {
	// Pods is how many of its pods must leave it, as MustLeave says, VolumeAttachments how many of these name it and are not
	// those of pods that stay.
	Pods, VolumeAttachments int
}

// NodeContentsOf returns what there still is of a node, of its pods, the VolumeAttachments that name it, and the PersistentVolumes
// that these are of. As long as a pod stays, nobody detaches its volumes, and nobody else gets them: they are not waited for.
// Any VolumeAttachment is whose PersistentVolume is not among these.
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

// MustLeave says that a pod has not left its node while that is out of service: it is terminating, or is going to be as it
// does not tolerate the taint for ever. One that is about to be deleted would otherwise not be waited for.
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

// Event is something to be told on the Machine, and on its Node if there is one.
type Event struct {
	Warning bool
	// Reason is one of the Event constants, or EventPrefix with the phase that has begun (X12).
	Reason string
	Note   string
}

const (
	// EventPrefix is what the reason of an Event about a phase begins with: the phase follows (X12).
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

// DefaultQuietTime is longer than a watch may hang without anybody noticing, and than a health checker asks late, or again (X16).
const DefaultQuietTime = time.Minute

// DryRunOutcome is how a cycle ends that would have begun, and does not (X9).
const DryRunOutcome = "DryRun"

// Decision is what is due for one machine. It is to be carried out in this order: Restore, Release, WriteMachine, PowerOff,
// WriteNode. The first three wait for nothing; the others are only carried out after those before them were successful, except that
// what cannot be written on the Node holds nothing up. Then it is to be decided again, with what was written.
type Decision struct {
	Member
	// Release says that the host is to be released, if it still has the Owner that it has now (X2): a Machine that was restored
	// has another UID, and releases what it has asked for before.
	Release bool
	// WriteMachine is the change of the Machine, nil for none.
	WriteMachine *intent.Write
	// WriteNode are the changes of the Node.
	WriteNode []intent.Write
	// PowerOff is on whose behalf the host is to be asked to be off; nil if it is not. All that must be written before is.
	PowerOff *Owner
	// Restore is the owner that the request on the host has lost, to be put back; nil for none (X20).
	Restore *Owner
	// Confirm says that something is due that must not rest on a cache that lags: it may not show that the cycle is under way,
	// that another machine of the shoot is being cycled, or that the node is being maintained (X3, X8). Before anything of any
	// decision is carried out, all Machines of the group and the Others are to be read live, with the Node and the host of each
	// member for which that was ever said, and it is to be decided again, as Confirm does. What was decided last may
	// be carried out also if something could not be read: no cycle begins, no host is switched off and no node made safe
	// unless the Host is Live. Until the writes of the Machines are done, no other group of the shoot is to be confirmed: both
	// together could make too many nodes go away.
	Confirm bool
	// ReadNodeContents says that NodeContents must be known for this machine to go on.
	ReadNodeContents bool
	// Events are to be told after the writes.
	Events []Event
	// Passed is the phase that ended with this decision, and Took for how long it lasted; empty for none. Outcome is how the
	// cycle ended with it, one of the phases Succeeded, Failed and Cancelled, or DryRunOutcome; empty for no end (X12).
	Passed  string
	Took    time.Duration
	Outcome string
	// Deadline is when the phase that is under way must be over, or, of a cycle that has failed, when it was; zero otherwise (X5).
	Deadline time.Time
	// Next is when to look again even if nothing changes until then; zero for never.
	Next time.Time
}
