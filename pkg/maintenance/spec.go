// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"cmp"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
)

// Phases are all phases, in their order.
var Phases = []string{
	v1alpha1.PhasePending, v1alpha1.PhaseScheduled, v1alpha1.PhaseCordon, v1alpha1.PhaseWaitForPodCompletion,
	v1alpha1.PhaseDraining, v1alpha1.PhaseReady, v1alpha1.PhaseRequestorFailed,
}

// PhaseOf returns the phase of a NodeMaintenance, empty if it has none, or one that does not exist.
func PhaseOf(nm *v1alpha1.NodeMaintenance) string {
	c := meta.FindStatusCondition(nm.Status.Conditions, v1alpha1.ConditionReady)
	if c == nil || !slices.Contains(Phases, c.Reason) {
		return ""
	}
	return c.Reason
}

// SetPhase sets the phase of a NodeMaintenance, with a message.
func SetPhase(s *v1alpha1.NodeMaintenanceStatus, phase, message string, generation int64, now time.Time) {
	status := metav1.ConditionFalse
	if phase == v1alpha1.PhaseReady {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&s.Conditions, metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: status, Reason: phase, Message: message, ObservedGeneration: generation, LastTransitionTime: metav1.NewTime(now),
	})
}

// CleanMaintenance returns the writes by which a NodeMaintenance is set back in a shoot that is to do without. One that is deleted is
// gone with the last of them. None depends on what comes back of the one before: the shoot may put back whatever it likes.
func CleanMaintenance(nm *v1alpha1.NodeMaintenance, now time.Time) []intent.Write {
	var writes []intent.Write
	if InProgress(nm) && nm.DeletionTimestamp == nil {
		after := nm.DeepCopy()
		clearProgress(&after.Status)
		SetPhase(&after.Status, v1alpha1.PhasePending, "Node maintenance is disabled.", nm.Generation, now)
		writes = append(writes, intent.Write{Before: nm, After: after, Status: true, Lock: true})
	}
	if slices.Contains(nm.Finalizers, v1alpha1.Finalizer) {
		after := nm.DeepCopy()
		release(after)
		writes = append(writes, intent.Write{Before: nm, After: after, Lock: true})
	}
	return writes
}

func clearProgress(status *v1alpha1.NodeMaintenanceStatus) {
	status.WaitForCompletion, status.Drain = nil, nil
}

// release takes the finalizer from a NodeMaintenance, and the annotations of what was under way.
func release(nm *v1alpha1.NodeMaintenance) {
	nm.Finalizers = slices.DeleteFunc(nm.Finalizers, func(f string) bool { return f == v1alpha1.Finalizer })
	for _, key := range []string{
		v1alpha1.AnnotationReadyTime, v1alpha1.AnnotationWaitStartTime, v1alpha1.AnnotationInitiallyUnschedulable, v1alpha1.AnnotationDrainStartTime,
	} {
		delete(nm.Annotations, key)
	}
}

// InProgress says that a NodeMaintenance has been scheduled, and is not over. One that is deleted is, as soon as it is without
// our finalizer: others may keep it for ever.
func InProgress(nm *v1alpha1.NodeMaintenance) bool {
	if nm.DeletionTimestamp != nil && !slices.Contains(nm.Finalizers, v1alpha1.Finalizer) {
		return false
	}
	phase := PhaseOf(nm)
	return phase != "" && phase != v1alpha1.PhasePending
}

// IsEnding says that a NodeMaintenance is deleted and nobody is to be waited for (M7), or that they were waited for long enough.
func IsEnding(nm *v1alpha1.NodeMaintenance) bool {
	if nm.DeletionTimestamp == nil {
		return false
	}
	switch PhaseOf(nm) {
	case v1alpha1.PhaseReady, v1alpha1.PhaseRequestorFailed:
		_, ended := nm.Annotations[v1alpha1.AnnotationEnded]
		return ended || len(nm.Spec.AdditionalRequestors) == 0 && !RequestorFailed(nm)
	}
	return true
}

// RequestorFailed says that the requestor has given up.
func RequestorFailed(nm *v1alpha1.NodeMaintenance) bool {
	return meta.IsStatusConditionTrue(nm.Status.Conditions, v1alpha1.ConditionRequestorFailed)
}

// NewRequest returns a NodeMaintenance as scheduling sees it.
func NewRequest(nm *v1alpha1.NodeMaintenance, namespaces Namespaces) Request {
	r := Request{
		NamespacedName:  namespacedName(nm),
		UID:             nm.UID,
		ResourceVersion: nm.ResourceVersion,
		Node:            nm.Spec.NodeName,
		Requestor:       nm.Spec.RequestorID,
		Created:         nm.CreationTimestamp.Time,
		InProgress:      InProgress(nm),
		Refused:         !namespaces.take(nm.Namespace),
	}
	if i := slices.IndexFunc(nm.OwnerReferences, isNode); i >= 0 {
		r.NodeUID = nm.OwnerReferences[i].UID
	}
	r.Ending = r.InProgress && IsEnding(nm)
	// One with the finalizer is still to be cleaned up after.
	r.Pending = PhaseOf(nm) == v1alpha1.PhasePending && nm.DeletionTimestamp == nil && !slices.Contains(nm.Finalizers, v1alpha1.Finalizer) &&
		!r.Refused
	if r.Pending {
		spec := nm.Spec // nothing else of the object is to be kept in memory
		r.spec = &spec
	}
	return r
}

// Namespaces are those from which objects are taken. Empty: all.
type Namespaces []string

func (n Namespaces) take(namespace string) bool { return len(n) == 0 || slices.Contains(n, namespace) }

var requestorID = regexp.MustCompile(`^([a-z0-9A-Z]([-a-z0-9A-Z]*[a-z0-9A-Z])?(\.[a-z0-9A-Z]([-a-z0-9A-Z]*[a-z0-9A-Z])?)*)$`)

// Validate returns what cannot be read of a spec, nil for nothing (M1). The resource definition is the shoot's to change.
func Validate(spec *v1alpha1.NodeMaintenanceSpec) error {
	var errs []error
	if len(spec.RequestorID) < 2 || len(spec.RequestorID) > 63 || !requestorID.MatchString(spec.RequestorID) {
		errs = append(errs, fmt.Errorf("spec.requestorID %q must be a name of 2 to 63 characters", brief.Cut(spec.RequestorID)))
	}
	if spec.NodeName == "" {
		errs = append(errs, errors.New("spec.nodeName must be set"))
	}
	if len(spec.AdditionalRequestors) > v1alpha1.MaxAdditionalRequestors {
		errs = append(errs, fmt.Errorf("spec.additionalRequestors has more than %d entries", v1alpha1.MaxAdditionalRequestors))
	}
	if spec.WaitForPodCompletion != nil {
		if _, err := waitSelector(spec.WaitForPodCompletion); err != nil {
			errs = append(errs, err)
		}
	}
	if spec.DrainSpec != nil {
		if _, err := newFilter(spec.DrainSpec); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func waitSelector(spec *v1alpha1.WaitForPodCompletionSpec) (labels.Selector, error) {
	return parseSelector("spec.waitForPodCompletion.podSelector", spec.PodSelector)
}

// maxSelector is how many bytes a selector has at most.
const maxSelector = 4096

func parseSelector(field, value string) (labels.Selector, error) {
	if len(value) > maxSelector {
		return nil, fmt.Errorf("%s has more than %d bytes", field, maxSelector)
	}
	selector, err := labels.Parse(value)
	if err != nil {
		return nil, fmt.Errorf("%s %q cannot be read: %s", field, brief.Cut(value), brief.Cut(err.Error()))
	}
	return selector, nil
}

// filter says which pods a drain concerns (M5). It is for one round.
type filter struct {
	spec      *v1alpha1.DrainSpec
	selector  labels.Selector
	resources []*regexp.Regexp
	// instructions are those of all regular expressions, steps what they may still take, and known what they have said of a name.
	instructions, steps int
	known               map[corev1.ResourceName]bool
}

// maxSteps is how many instructions of regular expressions a round carries out at most, which takes less than 100 ms. Both they
// and what they are looked for in are the shoot's.
const maxSteps = 5_000_000

// newFilter returns the filter of a spec, or an error: on one that cannot be read nothing is evicted.
func newFilter(spec *v1alpha1.DrainSpec) (*filter, error) {
	f := &filter{spec: spec, steps: maxSteps, known: map[corev1.ResourceName]bool{}}
	var err error
	if f.selector, err = parseSelector("spec.drainSpec.podSelector", spec.PodSelector); err != nil {
		return nil, err
	}
	if len(spec.PodEvictionFilters) > v1alpha1.MaxPodEvictionFilters {
		return nil, fmt.Errorf("spec.drainSpec.podEvictionFilters has more than %d entries", v1alpha1.MaxPodEvictionFilters)
	}
	for i, entry := range spec.PodEvictionFilters {
		field := fmt.Sprintf("spec.drainSpec.podEvictionFilters[%d].byResourceNameRegex", i)
		if entry.ByResourceNameRegex == "" {
			return nil, errors.New(field + " must be set")
		}
		pattern, instructions, err := drain.CompilePattern(entry.ByResourceNameRegex)
		if err != nil {
			return nil, fmt.Errorf("%s %q cannot be used: %s", field, brief.Cut(entry.ByResourceNameRegex), brief.Cut(err.Error()))
		}
		f.resources = append(f.resources, pattern)
		f.instructions += instructions
	}
	return f, nil
}

// split returns which of a node's pods are to go, and which of these must not be evicted, with the reason. The order of pods
// does not matter: a cache has none, and what is said of them is not to change with it.
func (f *filter) split(pods []drain.Pod) (selected []drain.Pod, blocked []string) {
	pods = slices.SortedFunc(slices.Values(pods), func(a, b drain.Pod) int {
		return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
	})
	for _, pod := range pods {
		if pod.Belongs() || !f.selector.Matches(pod.Labels) {
			continue
		}
		has, known := f.hasResource(pod)
		if known && !has {
			continue
		}
		selected = append(selected, pod)
		switch {
		case !pod.GraceEnds.IsZero():
		case !known: // nor is its node handed over with it
			blocked = append(blocked, pod.Key()+" (its resources were not all compared with spec.drainSpec.podEvictionFilters, because that takes too long)")
		case !pod.Managed && !f.spec.Force:
			blocked = append(blocked, pod.Key()+" (has no controller, see spec.drainSpec.force)")
		case pod.EmptyDir && !f.spec.DeleteEmptyDir:
			blocked = append(blocked, pod.Key()+" (has an emptyDir volume, see spec.drainSpec.deleteEmptyDir)")
		}
	}
	slices.Sort(blocked)
	return selected, blocked
}

// hasResource says whether a pod has a resource that is filtered for, and whether that is known.
func (f *filter) hasResource(pod drain.Pod) (has, known bool) {
	if len(f.resources) == 0 {
		return true, true
	}
	known = len(pod.Resources) <= drain.MaxResources
	for _, name := range pod.Resources[:min(len(pod.Resources), drain.MaxResources)] {
		found, looked := f.find(name)
		if found {
			return true, true
		}
		known = known && looked
	}
	return false, known
}

// find says whether a name is filtered for, and whether there were steps left to look.
func (f *filter) find(name corev1.ResourceName) (found, looked bool) {
	if found, looked = f.known[name]; looked {
		return found, true
	}
	steps := (len(name) + 1) * f.instructions
	if steps > f.steps {
		return false, false
	}
	f.steps -= steps
	found = slices.ContainsFunc(f.resources, func(pattern *regexp.Regexp) bool { return pattern.MatchString(string(name)) })
	f.known[name] = found
	return found, true
}

// waitedFor returns which of a node's pods are waited for (M4).
func waitedFor(pods []drain.Pod, selector labels.Selector) []drain.Pod {
	return slices.DeleteFunc(slices.Clone(pods), func(pod drain.Pod) bool { return pod.Belongs() || !selector.Matches(pod.Labels) })
}

// keysOf returns the names of pods, sorted, as many as a list in a status may have.
func keysOf(pods []drain.Pod) []string {
	var keys []string
	for _, pod := range pods {
		keys = append(keys, pod.Key())
	}
	slices.Sort(keys)
	return keys[:min(len(keys), v1alpha1.MaxNamesInStatus)]
}

// maxNamed is how many are named in a message.
const maxNamed = 5

// first returns the first few of a list, and how many more there are.
func first(list []string) string {
	return strings.Join(brief.First(list, maxNamed), ", ")
}

// cut returns what can be passed on of a list that others wrote.
func cut(list []string) []string {
	var short []string
	for _, entry := range list {
		short = append(short, brief.Cut(entry))
	}
	return short
}

// describe names a NodeMaintenance.
func describe(nm *v1alpha1.NodeMaintenance) string {
	return fmt.Sprintf("NodeMaintenance %s/%s of %s", nm.Namespace, nm.Name, brief.Cut(nm.Spec.RequestorID))
}

// ownedBy says that a NodeMaintenance is for this very Node, or does not say which one yet.
func ownedBy(nm *v1alpha1.NodeMaintenance, node *corev1.Node) bool {
	i := slices.IndexFunc(nm.OwnerReferences, isNode)
	return i < 0 || nm.OwnerReferences[i].UID == node.UID
}

func isNode(ref metav1.OwnerReference) bool { return ref.Kind == "Node" && ref.APIVersion == "v1" }
