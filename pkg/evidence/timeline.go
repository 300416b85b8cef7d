// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

// maxMoments is how many moments are told of pods, of Events, and of other things each, the last ones.
const maxMoments = 300

// Moment is what happened, and when.
type Moment struct {
	Time time.Time
	// Step is what it was in the life of the machine, empty if it was nothing special: NotReady, held, drained.
	Step string
	// What it happened to, and Text in words.
	What, Text string
}

// steps are what reasons of Events stand for.
var steps = map[string]string{
	preservation.EventPreserved:      "preserved",
	preservation.EventFailed:         "failed",
	preservation.EventRecovered:      "recovered",
	preservation.EventReleased:       "released",
	preservation.EventRefused:        "refused",
	preservation.EventNodeDenied:     "denied",
	preservation.EventInvalidRequest: "invalid request",
	preservation.EventInvalidTimeout: "invalid request",

	preservation.EventUnvalidated:      "waits for validation",
	preservation.EventValidated:        "validated",
	preservation.EventNotValidated:     "not validated",
	preservation.EventValidationWaived: "validation waived",
	preservation.EventPoolAtMaximum:    "pool at its maximum",
	preservation.EventMachineHours:     "machine-hours used",

	maintenance.EventRefused:        "maintenance refused",
	maintenance.EventSetBack:        "maintenance set back",
	maintenance.EventDrainTimedOut:  "drain timed out",
	maintenance.EventCordonVanished: "cordon vanished",

	remediation.EventPrefix + v1alpha1.PowerCycleWaiting:        "power cycle waits",
	remediation.EventPrefix + v1alpha1.PowerCyclePoweringOff:    "powering off",
	remediation.EventPrefix + v1alpha1.PowerCycleMakingNodeSafe: "making the node safe",
	remediation.EventPrefix + v1alpha1.PowerCyclePoweringOn:     "powering on",
	remediation.EventPrefix + v1alpha1.PowerCycleStarting:       "starting",
	remediation.EventPrefix + v1alpha1.PowerCycleSucceeded:      "power cycle succeeded",
	remediation.EventPrefix + v1alpha1.PowerCycleFailed:         "power cycle failed",
	remediation.EventPrefix + v1alpha1.PowerCycleCancelled:      "power cycle cancelled",
	remediation.EventOutOfAttempts:                              "out of power cycles",
	remediation.EventRefused:                                    "power cycle refused",
	remediation.EventDryRun:                                     "power cycle in dry run",
	remediation.EventRecovered:                                  "power cycle not needed",
	remediation.EventServicing:                                  "host serviced",
	remediation.EventPrefix + "HostReleased":                    "host released by the extension",

	// Events of reconcilers. Importing their packages would bring in what only they need.
	"PreservedNodeDrained":        "drained",
	"PreservedNodeDrainBlocked":   "drain blocked",
	"PreservedNodePodsKept":       "pods kept",
	"PreservedNodeDrainForced":    "drain forced",
	"PreservedNodePodsCameBack":   "pods came back",
	"PodsCameBack":                "pods came back",
	"DrainTimedOut":               "drain timed out",
	"DrainStrategyFailed":         "drain strategy failed",
	"MaintenanceGarbageCollected": "maintenance ended",
	"MaintenanceEnded":            "maintenance ended",
	"EvidenceStored":              "evidence stored",
	"EvidenceIncomplete":          "evidence stored",
	"EvidenceFailed":              "evidence not stored",

	// Events of Kubernetes and of node problem detectors.
	"NodeNotReady":              "not ready",
	"NodeReady":                 "ready",
	"Rebooted":                  "rebooted",
	"DeletingNode":              "node deleted",
	"RemovingNode":              "node deleted",
	"SystemOOM":                 "out of memory",
	"KernelOops":                "kernel oops",
	"OOMKilling":                "out of memory",
	"TaskHung":                  "task hung",
	"FilesystemIsReadOnly":      "read-only file system",
	"FreeDiskSpaceFailed":       "low disk space",
	"EvictionThresholdMet":      "eviction threshold met",
	"NodeHasInsufficientMemory": "low memory",
	"NodeHasDiskPressure":       "low disk space",
}

// Timeline returns what happened to a node and its machine, sorted by time. What is still to come is at its end.
func Timeline(s *observed.Snapshot, node, machine string) []Moment {
	var moments, pods, told []Moment
	tell := func(moments []Moment, of string) {
		sortMoments(moments)
		if cut := len(moments) - maxMoments; cut > 0 {
			moments = moments[cut:]
			moments[0].Text += fmt.Sprintf(" (%d earlier moments of %s are left out.)", cut, of)
		}
		told = append(told, moments...)
	}
	add := func(t *metav1.Time, step, what, text string, args ...any) {
		if !t.IsZero() {
			moments = append(moments, Moment{Time: t.UTC(), Step: step, What: what, Text: fmt.Sprintf(text, args...)})
		}
	}
	for i := range s.Shoot.Nodes {
		if n := &s.Shoot.Nodes[i]; n.Name == node {
			addNode(n, add)
		}
	}
	tell(moments, "the node")
	moments = nil
	for i := range s.Shoot.VolumeAttachments {
		a := &s.Shoot.VolumeAttachments[i]
		what := "VolumeAttachment " + a.Name
		volume := "a volume"
		if a.Spec.Source.PersistentVolumeName != nil {
			volume = "volume " + *a.Spec.Source.PersistentVolumeName
		}
		add(&a.CreationTimestamp, "", what, "Attaching %s was requested.", volume)
		add(a.DeletionTimestamp, "", what, "Detaching %s was requested.", volume)
		if failure := a.Status.AttachError; failure != nil {
			add(&failure.Time, "", what, "Attaching %s failed: %s", volume, failure.Message)
		}
		if failure := a.Status.DetachError; failure != nil {
			add(&failure.Time, "", what, "Detaching %s failed: %s", volume, failure.Message)
		}
	}
	for i := range s.Shoot.Maintenances {
		m := &s.Shoot.Maintenances[i]
		what := "NodeMaintenance " + m.Namespace + "/" + m.Name
		add(&m.CreationTimestamp, "", what, "It was created for requestor %s.", m.Spec.RequestorID)
		for _, c := range m.Status.Conditions {
			add(&c.LastTransitionTime, "", what, "%s became %s. Its reason now: %s", c.Type, c.Status, because(c.Reason, c.Message))
		}
		add(m.DeletionTimestamp, "", what, "It was deleted.")
	}
	tell(moments, "volumes and maintenances")
	moments = nil
	if s.Seed != nil {
		for i := range s.Seed.Machines {
			if m := &s.Seed.Machines[i]; m.Name == machine {
				addMachine(m, add)
			}
		}
		for i := range s.Seed.Events {
			moments = append(moments, momentOf(&s.Seed.Events[i]))
		}
	}
	tell(moments, "the machine")
	moments = nil
	for i := range s.Shoot.Pods {
		pods = append(pods, momentsOfPod(&s.Shoot.Pods[i])...)
	}
	for i := range s.Shoot.Events {
		if e := &s.Shoot.Events[i]; e.Regarding.Kind == "Pod" {
			pods = append(pods, momentOf(e))
		} else {
			moments = append(moments, momentOf(e))
		}
	}
	tell(moments, "the Events of the node and its maintenances")
	tell(pods, "pods")
	sortMoments(told)
	return slices.Compact(told)
}

type addMoment func(t *metav1.Time, step, what, text string, args ...any)

func addNode(n *corev1.Node, add addMoment) {
	what := "Node " + n.Name
	add(&n.CreationTimestamp, "joined", what, "The node registered.")
	for _, c := range n.Status.Conditions {
		step := ""
		if c.Type == corev1.NodeReady {
			step = map[corev1.ConditionStatus]string{corev1.ConditionTrue: "ready", corev1.ConditionFalse: "not ready", corev1.ConditionUnknown: "unknown"}[c.Status]
		}
		add(&c.LastTransitionTime, step, what, "%s became %s. Its reason now: %s", c.Type, c.Status, because(c.Reason, c.Message))
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
			add(&c.LastHeartbeatTime, "", what, "The kubelet reported its conditions for the last time. It may have worked for longer, because it renews its Lease more often.")
		}
	}
	for _, taint := range n.Spec.Taints {
		step := ""
		switch taint.Key {
		case v1alpha1.TaintPreserved:
			step = "tainted"
		case corev1.TaintNodeUnreachable:
			step = "unknown"
		case corev1.TaintNodeNotReady:
			step = "not ready"
		}
		add(taint.TimeAdded, step, what, "Taint %s:%s was added.", taint.Key, taint.Effect)
	}
	add(parsed(n.Annotations[v1alpha1.AnnotationMaintenance]), "", what, "Its maintenance began. Its machine has been preserved since then.")
	add(n.DeletionTimestamp, "node deleted", what, "It was deleted.")
}

func addMachine(m *machinev1alpha1.Machine, add addMoment) {
	what := "Machine " + m.Name
	add(&m.CreationTimestamp, "created", what, "The Machine was created.")
	// While the machine is held, the time of its phase may be set so that machine-controller-manager does not act.
	record := preservation.ReadRecord(m)
	if record == nil && m.Status.CurrentStatus.Phase != "" {
		add(&m.Status.CurrentStatus.LastUpdateTime, map[machinev1alpha1.MachinePhase]string{
			machinev1alpha1.MachineFailed: "failed", machinev1alpha1.MachineUnknown: "unknown", machinev1alpha1.MachineTerminating: "terminating",
		}[m.Status.CurrentStatus.Phase], what, "Its phase became %s.", m.Status.CurrentStatus.Phase)
	}
	if op := m.Status.LastOperation; op.Type != "" {
		add(&op.LastUpdateTime, "", what, "%s: %s. %s", op.Type, op.State, op.Description)
	}
	notes := preservation.ReadNotes(m)
	for _, noted := range []struct {
		time       time.Time
		step, text string
	}{
		{parsed(m.Annotations[v1alpha1.AnnotationFailedSince]).Time, "", "The timeout began after which the machine counts as failed."},
		{notes.FailsAt, "", "The deadline of the machine: it fails if it is not healthy by then."},
		{notes.Spent.Kept.Since, "preserved", "Its preservation began, not counting maintenances and power cycles."},
		{notes.Spent.Kept.Until, "", "It was no longer preserved."},
		{notes.Spent.Maintained.Since, "", "Its time under maintenance began to count."},
		{notes.Spent.Maintained.Until, "", "It was no longer under maintenance."},
		{notes.MaintenanceOver, "", "The maintenance of its node ended. The node has some time to become healthy."},
		{notes.Spent.Released, "released", "Its preservation ended."},
	} {
		add(new(metav1.NewTime(noted.time)), noted.step, what, "%s", noted.text)
	}
	if record != nil {
		add(new(metav1.NewTime(record.Expiry())), "expires", what, "Its preservation expires, unless somebody changes that.")
	}
	add(m.DeletionTimestamp, "terminating", what, "It was deleted.")
}

// parsed returns the time of an annotation, zero if it cannot be read.
func parsed(value string) *metav1.Time {
	t, _ := time.Parse(time.RFC3339, value)
	return &metav1.Time{Time: t}
}

func momentsOfPod(pod *corev1.Pod) []Moment {
	var moments []Moment
	what := "Pod " + pod.Namespace + "/" + pod.Name
	add := func(t *metav1.Time, text string) {
		if !t.IsZero() {
			moments = append(moments, Moment{Time: t.UTC(), What: what, Text: text})
		}
	}
	add(pod.Status.StartTime, "The kubelet started it.")
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			add(&c.LastTransitionTime, "It is disrupted: "+because(c.Reason, c.Message))
		}
	}
	for _, status := range slices.Concat(pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses) {
		for _, t := range []*corev1.ContainerStateTerminated{status.LastTerminationState.Terminated, status.State.Terminated} {
			if t != nil {
				add(&t.FinishedAt, fmt.Sprintf("Container %s ended with exit code %d: %s", status.Name, t.ExitCode, because(t.Reason, "")))
			}
		}
	}
	if pod.DeletionTimestamp != nil {
		// The deletion timestamp is the end of its grace period.
		grace := time.Duration(ptr.Deref(pod.DeletionGracePeriodSeconds, 0)) * time.Second
		add(new(metav1.NewTime(pod.DeletionTimestamp.Add(-grace))), fmt.Sprintf("It was deleted with a grace period of %s.", grace))
	}
	return moments
}

// momentOf returns when an Event happened first, and how often since.
func momentOf(e *eventsv1.Event) Moment {
	first, last := observed.FirstSeen(e), observed.LastSeen(e)
	count := e.DeprecatedCount
	if e.Series != nil {
		count = e.Series.Count
	}
	text := fmt.Sprintf("%s: %s", e.Reason, e.Note)
	if last.After(first) || count > 1 {
		text += fmt.Sprintf(" (%d times, the last at %s)", max(count, 2), clockTime(last))
	}
	what := e.Regarding.Kind + " " + e.Regarding.Name
	if e.Regarding.Kind == "Pod" || e.Regarding.Kind == "NodeMaintenance" {
		what = e.Regarding.Kind + " " + e.Regarding.Namespace + "/" + e.Regarding.Name
	}
	step := steps[e.Reason]
	if e.Regarding.Kind == "Pod" {
		step = ""
	}
	return Moment{Time: first, Step: step, What: what, Text: text}
}

func because(reason, message string) string {
	switch {
	case message == "":
		return cmp.Or(reason, "no reason is given") + "."
	case reason == "":
		return message
	}
	return reason + ", " + message
}

func sortMoments(moments []Moment) {
	slices.SortStableFunc(moments, func(a, b Moment) int {
		return cmp.Or(a.Time.Truncate(time.Second).Compare(b.Time.Truncate(time.Second)), cmp.Compare(a.What, b.What), cmp.Compare(a.Text, b.Text), cmp.Compare(a.Step, b.Step))
	})
}

// clockTime returns a time as the index shows it: UTC, to the second.
func clockTime(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }

// markdown escapes text of others, so that it makes no image, link or column.
var markdown = strings.NewReplacer(`\`, `\\`, "|", `\|`, "<", "&lt;", "&", "&amp;", "[", `\[`, "`", "\\`", "*", `\*`, "#", `\#`)

func shown(text string) string { return markdown.Replace(line(text)) }

// index returns the summary of a bundle.
func index(b *Bundle, manifest *Manifest) []byte {
	var out strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&out, format+"\n", args...) }
	subject := "node " + shown(b.Node)
	switch {
	case b.Node == "":
		subject = "machine " + shown(b.Machine)
	case b.Machine != "":
		subject += " (machine " + shown(b.Machine) + ")"
	}
	p("# Evidence of %s", subject)
	p("")
	p("Gathered at %s UTC by %s. All times are in UTC.", clockTime(manifest.Time), shown(manifest.Tool))

	s := &b.Snapshot
	p("\n## State when it was gathered\n")
	state(s, b.Node, b.Machine, p)

	moments := Timeline(s, b.Node, b.Machine)
	var past, due []Moment
	for _, m := range moments {
		if m.Time.After(s.Time) {
			due = append(due, m)
		} else {
			past = append(past, m)
		}
	}
	p("\n## In short\n")
	seen := map[string]bool{}
	for _, m := range past {
		if m.Step != "" && !seen[m.Step] {
			seen[m.Step] = true
			p("- %s: **%s** (%s)", clockTime(m.Time), m.Step, shown(m.What))
		}
	}
	if len(seen) == 0 {
		p("It is not known what happened.")
	}
	if len(seen) > 0 {
		p("\nEach line has the first time that is known. It may have happened before: Events usually live for an hour, and a condition only shows its last change.")
	}
	table := func(moments []Moment) {
		p("| time | what | happened |\n| --- | --- | --- |")
		for _, m := range moments {
			step := ""
			if m.Step != "" {
				step = "**" + m.Step + "** "
			}
			p("| %s | %s | %s%s |", clockTime(m.Time), shown(m.What), step, shown(m.Text))
		}
	}
	if len(due) > 0 {
		p("\n## What is still to come\n")
		table(due)
	}
	p("\n## Timeline\n")
	table(past)

	p("\n## What could not be gathered\n")
	for _, missing := range manifest.Missing {
		p("- %s: %s", shown(missing.What()), shown(missing.Reason))
	}
	if len(manifest.Missing) == 0 {
		p("Nothing.")
	}
	p("\n## What was redacted\n")
	for _, r := range manifest.Redacted {
		p("- %s: %d", shown(r.What), r.Count)
	}
	if len(manifest.Redacted) == 0 {
		p("Nothing.")
	}
	p("\n## Files\n")
	for _, f := range manifest.Files {
		cut := ""
		if f.Cut > 0 {
			cut = fmt.Sprintf(", its first %d bytes are missing", f.Cut)
		}
		p("- %s: %d bytes%s", f.Path, f.Size, cut)
	}
	return []byte(out.String())
}

// state says how the node and the machine were.
func state(s *observed.Snapshot, node, machine string, p func(string, ...any)) {
	found := false
	for i := range s.Shoot.Nodes {
		n := &s.Shoot.Nodes[i]
		if n.Name != node {
			continue
		}
		found = true
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady || c.Type == v1alpha1.ConditionPreserved || c.Type == v1alpha1.ConditionNodeDrain || c.Type == v1alpha1.ConditionPowerCycle || c.Type == maintenance.ConditionMaintenanceInProgress || c.Status == corev1.ConditionUnknown {
				p("- Condition %s is %s: %s", shown(string(c.Type)), shown(string(c.Status)), shown(because(c.Reason, c.Message)))
			}
		}
		if request, ok := n.Annotations[v1alpha1.AnnotationPreserve]; ok {
			p("- Request on the node: "+v1alpha1.AnnotationPreserve+"=\"%s\".", shown(request))
		}
		for _, taint := range n.Spec.Taints {
			p("- Taint %s:%s", shown(taint.Key), shown(string(taint.Effect)))
		}
		p("- Pods on the node: %d. Volumes attached to it: %d.", len(s.Shoot.Pods), len(s.Shoot.VolumeAttachments))
	}
	if !found && node != "" {
		p("- The node is not known.")
	}
	if s.Seed == nil {
		p("- The machine is not known: that needs access to the seed.")
		return
	}
	for i := range s.Seed.Machines {
		m := &s.Seed.Machines[i]
		if m.Name != machine {
			continue
		}
		phase := m.Status.CurrentStatus.Phase
		switch record := preservation.ReadRecord(m); {
		case record == nil:
			p("- The machine is %s.", shown(cmp.Or(string(phase), "in no phase yet")))
		case record.Expiry().IsZero():
			p("- The machine is %s.", shown(record.Phase(phase)))
			p("- It is preserved until an unreadable time (cause \"%s\").", shown(record.Cause()))
		default:
			p("- The machine is %s.", shown(record.Phase(phase)))
			p("- It is preserved until %s (cause \"%s\").", clockTime(record.Expiry()), shown(record.Cause()))
		}
		if d := m.Status.LastOperation.Description; d != "" {
			p("- The last operation on the machine: %s", shown(d))
		}
	}
}
