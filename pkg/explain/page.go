// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	failuresv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/failures/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/failure"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// The topics of a page, in the order in which they are shown. Unknown comes last.
const (
	topicShort  Topic = "In short"
	topicThere  Topic = "What was there"
	topicBefore Topic = "Whether it happened before"
	topicNow    Topic = "What is there now"
	topicNext   Topic = "What to look at next"
)

var pageTopics = []Topic{topicShort, topicThere, topicBefore, topicNow, topicNext, Unknown}

// maxPods is how many pods are named at most.
const maxPods = 10

// Ledger is the failure history of a shoot.
type Ledger struct {
	Entries []failuresv1alpha1.MachineFailure
	// Missing says why the entries are not known, and what to do; nil if they are known.
	Missing error
}

// Moment is something that happened.
type Moment struct {
	Time metav1.Time `json:"time"`
	Text string      `json:"text"`
}

// Page says why a machine failed.
type Page struct {
	Time metav1.Time `json:"time"`
	Name string      `json:"name"`
	// Failure is the last one of the machine, nil if none is known.
	Failure *Failure `json:"failure,omitempty"`
	// Timeline begins with what happened first.
	Timeline []Moment `json:"timeline"`
	// Repeats are what the failure has in common with others.
	Repeats   []Repeat   `json:"repeats"`
	Sentences []Sentence `json:"sentences"`

	known *observed.Snapshot
	// node and machine are names for commands, or what to put there.
	node, machine string
}

// NodeOf returns the name of the node of a machine that failed, and for any other name the name itself.
func (l *Ledger) NodeOf(name string) string {
	if f := l.last(name); f != nil && f.Spec.Machine == name && f.Spec.Node != "" {
		return f.Spec.Node
	}
	return name
}

// last returns the last failure of a node or a machine, nil if none is known.
func (l *Ledger) last(name string) *Failure {
	if failures := HistoryOf(l.Entries, Filter{Name: name}, time.Time{}).Failures; len(failures) > 0 {
		return &failures[0]
	}
	return nil
}

// PageOf says why the machine with a name, or with the node of that name, failed. It returns an error if nothing is known of it. The
// snapshot has what Explain needs; it may be empty.
func PageOf(ledger Ledger, known *observed.Snapshot, name string, now time.Time) (*Page, error) {
	p := &Page{Time: metav1.NewTime(now), Name: name, Failure: ledger.last(name), Timeline: []Moment{}, Repeats: []Repeat{}, known: known,
		node: word(name, "NODE"), machine: word(name, "MACHINE")}
	there, err := p.now(ledger.NodeOf(name))
	switch {
	case p.Failure == nil && err != nil && ledger.Missing != nil:
		return nil, fmt.Errorf("%w, and %w", err, ledger.Missing)
	case p.Failure == nil && err != nil:
		return nil, fmt.Errorf("%w, and the failure history has no failure of it: 'kubectl preserve history' shows all failures", err)
	case ledger.Missing != nil:
		p.say(Unknown, "Whether it failed before: %s.", ledger.Missing.Error())
	case p.Failure == nil:
		p.say(topicShort, "The failure history has no failure of %s. Either there was none, or it was before the last 200 failures or before the history began.", name)
	}
	if p.Failure != nil {
		s := &p.Failure.Spec
		p.node, p.machine = word(cmp.Or(s.Node, s.Machine), "NODE"), word(s.Machine, "MACHINE")
		p.short()
		p.timeline()
		p.wasThere()
		p.before(ledger)
	}
	p.next(there)
	slices.SortStableFunc(p.Timeline, func(a, b Moment) int { return a.Time.Compare(b.Time.Time) })
	slices.SortStableFunc(p.Sentences, func(a, b Sentence) int { return slices.Index(pageTopics, a.Topic) - slices.Index(pageTopics, b.Topic) })
	return p, nil
}

// say adds a sentence. Others may have written a part of it: it is made printable, in one line.
func (p *Page) say(topic Topic, format string, args ...any) {
	p.Sentences = append(p.Sentences, Sentence{Topic: topic, Text: brief.Printable(fmt.Sprintf(format, args...))})
}

func (p *Page) at(t metav1.Time) string { return at(t.Time, p.Time.Time) }

// happened adds something to the timeline if its time is known.
func (p *Page) happened(t metav1.Time, format string, args ...any) {
	if !t.IsZero() {
		p.Timeline = append(p.Timeline, Moment{Time: t, Text: brief.Printable(fmt.Sprintf(format, args...))})
	}
}

// reasons are the reasons of failures that are not the type of a condition.
var reasons = map[string]struct{ words, next string }{
	facts.ReasonNeverJoined: {"it never joined the cluster",
		"It never joined. Check whether its image boots and whether it reaches the API server (routes, firewalls, proxies): its console at the infrastructure provider shows that. Operators see the Events of the machine in the seed."},
	facts.ReasonNodeGone: {"its node was deleted",
		"Its Node was deleted while the machine existed. The audit log of the shoot says who deleted it."},
	failure.ReasonPowerCycled: {"its host was power-cycled",
		"Its host was powered off and on. The journal of the boot before that (journalctl -b -1 on the node) may say why it hung."},
	facts.ReasonInPlaceUpdateFailed: {"its in-place update failed",
		"Its in-place update failed. The journal of gardener-node-agent on the node says why."},
	facts.ReasonUnknown: {"the reason is not known", ""},
}

func (p *Page) short() {
	s := &p.Failure.Spec
	var where []string
	for _, is := range []struct{ what, value string }{{"node", s.Node}, {"pool", s.Pool}, {"zone", s.Zone}, {"host", s.Host}} {
		if is.value != "" {
			where = append(where, is.what+" "+is.value)
		}
	}
	in := ""
	if len(where) > 0 {
		in = " (" + strings.Join(where, ", ") + ")"
	}
	why := "condition " + s.Reason + " of its node was bad"
	if known := reasons[s.Reason].words; known != "" {
		why = known
	} else if s.Reason == "" {
		why = "the failure history does not say why"
	}
	if s.Reason == failure.ReasonPowerCycled {
		p.say(topicShort, "Machine %s%s had not failed, but %s. The failure history has that at %s.", named(s.Machine), in, why, p.at(s.FailedAt))
	} else {
		p.say(topicShort, "Machine %s%s failed at %s: %s.", named(s.Machine), in, p.at(s.FailedAt), why)
	}
	if c := s.Condition; c != nil {
		p.say(topicShort, "The first bad condition: %s.", conditionText(c))
	}
	p.say(topicShort, "It was %s.", decided(&s.Decision))
	status := p.Failure.Status
	if status == nil {
		p.say(topicShort, "The failure is not over yet.")
		return
	}
	if status.PowerCycled {
		p.say(topicShort, "Its host was power-cycled meanwhile.")
	}
	p.say(topicShort, "%s", ended(status, " at "+p.at(status.EndedAt)))
}

// named returns a text of others made printable, or words that say that it is missing.
func named(text string) string {
	if text = brief.Printable(text); text == "" {
		return "without a name"
	}
	return text
}

func conditionText(c *failuresv1alpha1.BadCondition) string {
	text := fmt.Sprintf("%s was %s", named(c.Type), named(string(c.Status)))
	if c.Reason != "" {
		text += " (" + c.Reason + ")"
	}
	if message := sentence(c.Message); message != "" {
		text += ": " + message
	}
	return text
}

// sentence returns a text of others without the period at its end.
func sentence(text string) string { return strings.TrimSuffix(strings.TrimSpace(text), ".") }

func decided(d *failuresv1alpha1.Decision) string {
	text := "not preserved"
	if d.Kept {
		text = "preserved"
	}
	if why := sentence(d.Text); why != "" {
		text += " because " + why
	}
	if d.Kept && d.Cause != "" {
		text += " (cause " + d.Cause + ")"
	}
	return text
}

// ended says how the failure ended, and why.
func ended(status *failuresv1alpha1.MachineFailureStatus, at string) string {
	text := "It ended as " + string(status.Outcome)
	switch status.Outcome {
	case failuresv1alpha1.OutcomeRecovered:
		text = "It recovered"
	case failuresv1alpha1.OutcomeReplaced:
		text = "It was replaced"
	case failuresv1alpha1.OutcomeDeleted:
		text = "It was deleted, but not because it failed"
	}
	text += at
	if why := sentence(status.Text); why != "" && status.Reason != preservation.WhyDeleted.ID {
		text += " because " + why
	}
	return text + "."
}

func (p *Page) timeline() {
	s := &p.Failure.Spec
	if c := s.Condition; c != nil {
		p.happened(c.Since, "Condition %s.", conditionText(c))
	}
	began, failed := "It became unhealthy, and its health timeout began.", "It failed. "
	switch s.Reason {
	case facts.ReasonNeverJoined:
		began = "It was created, and its creation timeout began."
	case failure.ReasonPowerCycled:
		began, failed = "The power cycle of its host began.", ""
	}
	p.happened(s.FailedSince, "%s", began)
	p.happened(s.FailedAt, "%sIt was %s.", failed, decided(&s.Decision))
	if status := p.Failure.Status; status != nil {
		p.happened(status.EndedAt, "%s", ended(status, ""))
	}
}

func (p *Page) wasThere() {
	s := &p.Failure.Spec
	var software []string
	for _, is := range []struct{ what, value string }{
		{"kubelet", s.KubeletVersion}, {"operating system", s.OSImage}, {"kernel", s.KernelVersion}, {"boot ID", s.BootID}, {"provider ID", s.ProviderID},
	} {
		if is.value != "" {
			software = append(software, is.what+" "+is.value)
		}
	}
	if len(software) > 0 {
		p.say(topicThere, "It had %s.", strings.Join(software, ", "))
	}
	pods := make([]string, 0, len(s.Pods))
	for _, pod := range s.Pods {
		text := pod.Namespace + "/" + pod.Name
		if pod.Owner != "" {
			text += " (of " + pod.Owner + ")"
		}
		pods = append(pods, text)
	}
	many := brief.Count(len(pods), "pod")
	if s.MorePods {
		many = "more than " + many
	}
	if len(pods) > 0 {
		p.say(topicThere, "Its node had %s: %s.", many, strings.Join(brief.First(pods, maxPods), ", "))
	}
}

func (p *Page) before(ledger Ledger) {
	all := HistoryOf(ledger.Entries, Filter{}, p.Time.Time)
	mine := groupsOf(&p.Failure.Spec)
	for _, r := range all.Repeats {
		// Several failures in a pool for different reasons say nothing.
		if slices.Contains(mine, r.group) && (r.Pool == "" || r.Reason != "") {
			p.Repeats = append(p.Repeats, r)
			p.say(topicBefore, "%s, including this one.", r.Say("failures"))
		}
	}
	if len(p.Repeats) == 0 {
		p.say(topicBefore, "The failure history has no other failure of this machine, on its host, or with this reason in its pool.")
	}
}

// now says what exists now, and returns whether that is the machine.
func (p *Page) now(node string) (bool, error) {
	name := node
	var machine *machinev1alpha1.Machine
	if seed := p.known.Seed; seed != nil {
		if machine = seed.Machine(p.Name); machine == nil {
			machine = seed.Machine(node) // another one may have its node's name
		}
		if machine != nil {
			name, node = machine.Name, machine.Labels[machinev1alpha1.NodeLabelKey]
		}
	}
	sentences, err := Explain(p.known, name, p.Time.Time)
	found := p.known.Shoot.Node(node)
	switch {
	case err != nil && p.Failure == nil:
		return false, err
	case err != nil && len(p.known.Unknown(observed.WhatNode)) > 0:
		p.say(Unknown, "Whether the machine still exists: %s.", err)
		return false, nil
	case err != nil && p.known.Seed == nil && p.Failure.Status == nil:
		p.say(topicNow, "It has no node (%s). Only the seed knows whether the machine still exists: operators see it with --seed-namespace.", err)
		return false, nil
	case err != nil && p.Failure.Spec.Reason == facts.ReasonNeverJoined:
		p.say(topicNow, "It is gone. It never had a node.")
		return false, nil
	case err != nil:
		p.say(topicNow, "It is gone: %s.", err)
		return false, nil
	case p.isAnother(found, machine):
		p.say(topicNow, "The machine is gone, and another machine has its name or its node's name: 'kubectl preserve explain %s' explains that one.", word(cmp.Or(node, name), "NODE"))
		return false, nil
	}
	if found != nil {
		p.ready(found)
	}
	for _, s := range sentences {
		if s.Topic == Why || s.Topic == Until || s.Topic == Drain {
			s.Topic = topicNow
			p.Sentences = append(p.Sentences, s)
		}
	}
	p.told(found, machine)
	return true, nil
}

func (p *Page) ready(node *corev1.Node) {
	c := v1alpha1.ConditionOf(node, corev1.NodeReady)
	if c == nil {
		p.say(topicNow, "Node %s exists, without a condition Ready.", node.Name)
		return
	}
	text := named(string(c.Status))
	if !c.LastTransitionTime.IsZero() {
		text += " since " + p.at(c.LastTransitionTime)
	}
	if message := sentence(c.Message); message != "" {
		text += ": " + message
	}
	p.say(topicNow, "Node %s exists. Its condition Ready is %s.", node.Name, text)
}

// told puts the Events of the preservation controller about the machine into the timeline.
func (p *Page) told(node *corev1.Node, machine *machinev1alpha1.Machine) {
	e := &explanation{snapshot: p.known, node: node}
	var notes []string
	for _, event := range e.events(machine) { // the node and the machine have the same
		at := metav1.NewTime(observed.LastSeen(&event))
		if slices.Contains(notes, event.Note) || p.Failure != nil && at.Before(&p.Failure.Spec.FailedSince) {
			continue
		}
		notes = append(notes, event.Note)
		p.happened(at, "Event: %s.", sentence(event.Note))
	}
}

// isAnother says that the machine that failed is gone, and another machine has its name or its node's name.
func (p *Page) isAnother(node *corev1.Node, machine *machinev1alpha1.Machine) bool {
	f := p.Failure
	switch {
	case f == nil:
		return false
	case machine != nil:
		return machine.Name != f.Spec.Machine
	}
	gone := f.Status != nil && f.Status.Outcome != failuresv1alpha1.OutcomeRecovered
	return gone && node != nil && f.Spec.FailedAt.Before(&node.CreationTimestamp)
}

// advice is a text, and whether a request would preserve a single machine.
type advice struct {
	text    string
	request bool
}

// keepNext says how the next failed machine is preserved, by the reason for which this one was not.
var keepNext = map[string]advice{
	preservation.WhyNoPlace.ID:        {raiseShare, true},
	preservation.WhyShareUsedUp.ID:    {raiseShare, true},
	preservation.WhyShareLowered.ID:   {raiseShare, true},
	preservation.WhyFailedAgain.ID:    {raiseShare, true},
	preservation.WhyNewFailure.ID:     {raiseShare, true},
	preservation.WhyStorm.ID:          {"While too many machines of the shoot fail at the same time, failed machines are preserved only if that was requested.", true},
	preservation.WhyNoShare.ID:        {"To preserve failed machines of its pool, set autoPreserveFailedMax of the pool in the Shoot's providerConfig.", true},
	preservation.WhyDenied.ID:         {"Its node had annotation " + v1alpha1.AnnotationPreserve + "=" + v1alpha1.RequestFalse + ". To remove it from a node, use 'kubectl preserve release NODE'.", false},
	preservation.WhyUpdating.ID:       {"No failed machine is preserved while its pool is being updated. Failed machines are preserved again after the update.", false},
	preservation.WhyForbidden.ID:      {"Operators forbid preserving it: ask them why.", false},
	preservation.WhyKeptForTooLong.ID: {"No machine is preserved for longer than operators allow. Gather evidence of the next one while it is preserved.", false},
	preservation.WhyHoursUsedUp.ID:    {"Machines of the shoot were preserved for as many machine-hours in that month as operators allow. Release machines that you do not need any more early, or ask operators for more.", false},
	preservation.WhyFailedTooEarly.ID: {"It failed before it could be preserved. Tell your operators if this happens again.", false},
}

const raiseShare = "To preserve more failed machines of its pool, raise autoPreserveFailedMax of the pool in the Shoot's providerConfig."

// next says what to look at next.
func (p *Page) next(there bool) {
	if there {
		p.say(topicNext, "The machine still exists. 'kubectl preserve evidence %s' gathers evidence of it into a file. 'kubectl preserve explain %s' says what would change how long it is preserved.", p.node, p.node)
	}
	f := p.Failure
	if f == nil {
		return
	}
	if f.Status != nil && f.Status.Evidence != "" {
		p.say(topicNext, "Evidence of it was stored as %s. 'kubectl preserve evidence %s --stored' writes it into a file. This needs Role %s in namespace %s.",
			f.Status.Evidence, p.machine, retention.ShootViewer, retention.ShootNamespace)
	}
	if text := p.byReason(); text != "" {
		p.say(topicNext, "%s", text)
	}
	for _, r := range p.Repeats {
		switch {
		case r.Host != "":
			p.say(topicNext, "Machines on its host have failed %d times: tell your operators. 'kubectl preserve history --host %s' shows when.", r.Count, word(r.Host, "HOST"))
		case r.Reason != "" && r.Pool != "":
			p.say(topicNext, "Look for what the machines with the same failure have in common: a version, a zone, a workload. 'kubectl preserve history --pool %s --reason %s -o wide' shows them.", word(r.Pool, "POOL"), word(r.Reason, "REASON"))
		}
	}
	keep, known := keepNext[f.Spec.Decision.Reason]
	switch {
	case !known || f.Spec.Decision.Kept:
	case !keep.request:
		p.say(topicNext, "%s", keep.text)
	case f.Spec.Reason == facts.ReasonNeverJoined:
		p.say(topicNext, "%s A machine that has not joined has no node: only operators can request to preserve it, on its Machine.", keep.text)
	default:
		p.say(topicNext, "%s To preserve a single machine when it fails, use 'kubectl preserve when-failed NODE'.", keep.text)
	}
}

// byReason says what to look at for the reason of the failure.
func (p *Page) byReason() string {
	s := &p.Failure.Spec
	if known, ok := reasons[s.Reason]; ok {
		return known.next
	}
	switch corev1.NodeConditionType(s.Reason) {
	case corev1.NodeReady:
		if s.Condition != nil && s.Condition.Status == corev1.ConditionFalse {
			return "The kubelet reported that it was not ready. Look at its message, then at the container runtime and the network plugin of the node."
		}
		return "The kubelet stopped reporting: the node may have run out of memory, hung, or lost its network. Look at its pods, and whether other machines failed at that time ('kubectl preserve history')."
	case corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure:
		return "Its pods used more than the node had. Look at their requests and limits."
	case "":
		return ""
	}
	return "Condition " + s.Reason + " comes from a component that watches the node, for example the node-problem-detector. The message of the condition above says what that component saw."
}

// forCommand matches what a command can contain as it is: an entry may be forged so that somebody copies a command from it.
var forCommand = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]*$`)

// word returns a name for a command, or a placeholder.
func word(name, placeholder string) string {
	if forCommand.MatchString(name) {
		return name
	}
	return placeholder
}

// String returns the page as people read it: the timeline follows the summary.
func (p *Page) String() string {
	var b strings.Builder
	after := 0
	for after < len(p.Sentences) && p.Sentences[after].Topic == topicShort {
		after++
	}
	b.WriteString(Text(p.Sentences[:after]))
	if len(p.Timeline) > 0 {
		fmt.Fprintln(&b, "Timeline")
	}
	for _, m := range p.Timeline {
		fmt.Fprintf(&b, "  %s: %s\n", p.at(m.Time), m.Text)
	}
	b.WriteString(Text(p.Sentences[after:]))
	return b.String()
}
