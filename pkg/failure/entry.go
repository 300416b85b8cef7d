// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failure

import (
	"cmp"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	failuresv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/failures/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
)

// Place is where a machine is.
type Place struct{ Pool, Zone, Host string }

// Found is what was found of a failed machine. All of it may be missing.
type Found struct {
	Place
	// Machine and Node are as the API servers have them, with all that they say.
	Machine *machinev1alpha1.Machine
	Node    *corev1.Node
	// Unhealthy are the types of conditions by which a machine is unhealthy.
	Unhealthy []string
	// Pods are the first of those on the node, and MorePods says that these are not all.
	Pods     []metav1.PartialObjectMetadata
	MorePods bool
}

// maxOwner is how many characters the owner of a pod has at most.
const maxOwner = 320

// New returns the entry of a failure. All that others wrote is cut: it fits the schema, whatever that is.
func (e *Entry) New(machine string, found Found) *failuresv1alpha1.MachineFailure {
	f := &failuresv1alpha1.MachineFailure{
		ObjectMeta: metav1.ObjectMeta{Name: e.Name, Labels: map[string]string{failuresv1alpha1.LabelOpen: "true"}},
		Spec: failuresv1alpha1.MachineFailureSpec{
			Machine:     cut(machine, failuresv1alpha1.MaxName),
			MachineUID:  string(e.UID),
			Pool:        cut(found.Pool, failuresv1alpha1.MaxName),
			Zone:        cut(found.Zone, failuresv1alpha1.MaxText),
			Host:        cut(found.Host, failuresv1alpha1.MaxName),
			FailedSince: second(e.Since),
			FailedAt:    second(e.At),
			MorePods:    found.MorePods || len(found.Pods) > failuresv1alpha1.MaxPods,
			Decision:    e.Decision,
		},
	}
	s := &f.Spec
	m := facts.Member{Machine: found.Machine, Node: found.Node}
	s.Node, s.ProviderID = cut(m.Machine.Labels[machinev1alpha1.NodeLabelKey], failuresv1alpha1.MaxName), cut(m.Machine.Spec.ProviderID, failuresv1alpha1.MaxText)
	if n := found.Node; n != nil {
		info := n.Status.NodeInfo
		s.BootID, s.KubeletVersion = cut(info.BootID, failuresv1alpha1.MaxText), cut(info.KubeletVersion, failuresv1alpha1.MaxText)
		s.OSImage, s.KernelVersion = cut(info.OSImage, failuresv1alpha1.MaxText), cut(info.KernelVersion, failuresv1alpha1.MaxText)
	}
	s.Condition, s.Reason = badCondition(facts.FirstBad(m, found.Unhealthy)), e.reason(m, found.Unhealthy)
	for _, pod := range found.Pods[:min(len(found.Pods), failuresv1alpha1.MaxPods)] {
		s.Pods = append(s.Pods, podOf(&pod))
	}
	return f
}

// Complete returns an entry that says how its failure ended.
func (e *Entry) Complete(f *failuresv1alpha1.MachineFailure, status *failuresv1alpha1.MachineFailureStatus) *failuresv1alpha1.MachineFailure {
	f = f.DeepCopy()
	delete(f.Labels, failuresv1alpha1.LabelOpen)
	f.Spec.Decision, f.Status = e.Decision, status
	return f
}

func (e *Entry) reason(m facts.Member, unhealthy []string) string {
	if e.OnlyPowerCycled {
		return ReasonPowerCycled
	}
	return cut(facts.FailureReason(m, unhealthy), failuresv1alpha1.MaxText)
}

func badCondition(first *corev1.NodeCondition) *failuresv1alpha1.BadCondition {
	if first == nil {
		return nil
	}
	return &failuresv1alpha1.BadCondition{
		Type:    cut(string(first.Type), failuresv1alpha1.MaxText),
		Status:  corev1.ConditionStatus(cut(string(first.Status), failuresv1alpha1.MaxText)),
		Reason:  cut(first.Reason, failuresv1alpha1.MaxText),
		Message: cut(first.Message, failuresv1alpha1.MaxText),
		Since:   second(first.LastTransitionTime.Time),
	}
}

func podOf(pod *metav1.PartialObjectMetadata) failuresv1alpha1.Pod {
	p := failuresv1alpha1.Pod{Namespace: cut(pod.Namespace, failuresv1alpha1.MaxName), Name: cut(pod.Name, failuresv1alpha1.MaxName)}
	if owner := metav1.GetControllerOfNoCopy(pod); owner != nil {
		p.Owner = cut(owner.Kind+"/"+owner.Name, maxOwner)
	}
	return p
}

// MaxEntries is how many entries a shoot has at most.
const MaxEntries = 200

// Superfluous returns which of all entries have to go: the oldest that are complete, then those of the others that have
// failed for longest, and of these the ones that were written last.
func Superfluous(entries []metav1.PartialObjectMetadata) []metav1.PartialObjectMetadata {
	isOpen := func(m *metav1.PartialObjectMetadata) int {
		if _, open := m.Labels[failuresv1alpha1.LabelOpen]; open {
			return 1
		}
		return 0
	}
	entries = slices.SortedFunc(slices.Values(entries), func(a, b metav1.PartialObjectMetadata) int {
		order := cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		if isOpen(&a)+isOpen(&b) == 2 { // what had to go is written again after a restart: it goes again, and what was there before stays
			order = cmp.Or(cmp.Compare(sinceOf(a.Name), sinceOf(b.Name)), b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
		}
		return cmp.Or(isOpen(&a)-isOpen(&b), order)
	})
	return entries[:max(0, len(entries)-MaxEntries)]
}

// second returns a time as it is written, so that one that was read is the same.
func second(t time.Time) metav1.Time { return metav1.NewTime(t.UTC().Truncate(time.Second)) }

// cut returns the first characters that can be printed of a text.
func cut(text string, most int) string {
	runes := []rune(brief.Printable(text))
	return string(runes[:min(len(runes), most)])
}
