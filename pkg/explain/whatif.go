// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
)

// world is the group that is decided on, with the machine that is explained.
type world struct {
	group preservation.Group
	index int
	now   time.Time
	// guessed says that only the node is known: what is in the seed is assumed.
	guessed bool
	// placeUnknown says that it is not known whether a place is free.
	placeUnknown bool
}

func (w world) member() facts.Member { return w.group.Members[w.index] }

func (w world) decide() preservation.Decision { return preservation.Decide(w.group, w.now)[w.index] }

// edit changes the machine and the node in a copy.
func (w *world) edit(change func(m *facts.Member)) {
	w.group.Members = append([]facts.Member(nil), w.group.Members...)
	m := &w.group.Members[w.index]
	m.Machine = m.Machine.DeepCopy()
	if m.Machine.Annotations == nil {
		m.Machine.Annotations = map[string]string{}
	}
	if m.Node != nil {
		m.Node = m.Node.DeepCopy()
		if m.Node.Annotations == nil {
			m.Node.Annotations = map[string]string{}
		}
	}
	change(m)
}

// offer changes how many places there are.
func (w *world) offer(places *int32) {
	w.group.Share, w.group.Elsewhere = places, slices.Clone(w.group.Elsewhere)
	for i := range w.group.Elsewhere {
		if other := &w.group.Elsewhere[i]; other.Share != nil {
			other.Share = places
		}
	}
}

// failing says that the machine has failed, or that its deadline has passed.
func (w world) failing(d preservation.Decision) bool {
	return !d.Deadline.IsZero() && !w.now.Before(d.Deadline)
}

// fail lets the health timeout of the machine pass.
func (w *world) fail() {
	w.edit(func(m *facts.Member) {
		health := w.group.Timeouts.For(m.Machine).Health
		m.Machine.Status.CurrentStatus.Phase = machinev1alpha1.MachineUnknown
		m.Machine.Status.CurrentStatus.LastUpdateTime = metav1.NewTime(w.now.Add(-health))
		if m.Node != nil {
			setReady(m.Node, corev1.ConditionUnknown)
		}
	})
}

// heal makes the machine a healthy one, and machine-controller-manager see that.
func (w *world) heal() {
	w.edit(func(m *facts.Member) {
		if m.Node == nil {
			m.Node = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: m.Machine.Name}}
		}
		m.NodeUnknown = false
		m.Node.Status.Conditions = slices.DeleteFunc(m.Node.Status.Conditions, func(c corev1.NodeCondition) bool {
			return c.Type != corev1.NodeReady && c.Status != corev1.ConditionFalse && c.Type != v1alpha1.ConditionPreserved
		})
		setReady(m.Node, corev1.ConditionTrue)
		m.Machine.Status.Conditions = m.Node.Status.Conditions
		m.Machine.Status.CurrentStatus.Phase = machinev1alpha1.MachineRunning
	})
}

// ask writes a request where it counts, and withdraws it if it is empty.
func (w *world) ask(value string) {
	w.annotate(map[string]string{v1alpha1.AnnotationPreserve: value})
}

func (w *world) endPowerCycle() {
	w.edit(func(m *facts.Member) { delete(m.Machine.Annotations, v1alpha1.AnnotationRemediation) })
}

// annotate sets annotations where a request counts, and removes those that are empty. A request that forbids preserving the machine ends
// its power cycle as well, as soon as the host is on again.
func (w *world) annotate(values map[string]string) {
	w.edit(func(m *facts.Member) {
		annotations := m.Machine.Annotations
		if m.Node != nil {
			annotations = m.Node.Annotations
		}
		for key, value := range values {
			if delete(annotations, key); value != "" {
				annotations[key] = value
			}
		}
	})
	if values[v1alpha1.AnnotationPreserve] == v1alpha1.RequestFalse {
		w.endPowerCycle()
	}
}

func setReady(node *corev1.Node, status corev1.ConditionStatus) {
	if c := v1alpha1.ConditionOf(node, corev1.NodeReady); c != nil {
		c.Status = status
		return
	}
	node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: corev1.NodeReady, Status: status})
}

// settled returns the world once the decision on the machine is carried out, if that keeps it.
func (w world) settled() world {
	if d := w.decide(); d.Rule == "" || d.Target == nil {
		return w
	}
	return w.done()
}

// done returns the world once the decision on the machine is carried out.
func (w world) done() world {
	d := w.decide()
	w.edit(func(m *facts.Member) {
		for _, step := range preservation.Steps(w.group.Holder, d, w.group.Timeouts, w.now) {
			preservation.Make(step, m)
		}
	})
	return w
}

// failed says that the machine has failed, whether it is kept or not.
func (w world) failed(d preservation.Decision) bool {
	return w.failing(d) || d.Current != nil && d.Current.Failed
}

// ahead returns the world when the machine has failed, and what is decided then. It is the same if it has failed already.
func (e *explanation) ahead() (world, preservation.Decision) { return e.world.settled().ahead() }

func (w world) ahead() (world, preservation.Decision) {
	d := w.decide()
	switch {
	case w.failed(d):
		return w, d
	case !d.Deadline.IsZero():
		w.now = d.Deadline
	default:
		w.fail()
	}
	return w, w.decide()
}

// changes says what would become of the machine if something were different.
func (e *explanation) changes() {
	if e.world.member().Machine.DeletionTimestamp != nil {
		return
	}
	var (
		before      = e.world.settled()
		d           = before.decide()
		ahead, told = e.ahead()
		failed      = before.failed(d)
	)
	if outcome := e.outcome(ahead, told); !failed && outcome != "" && (told.Target != nil || d.Target != nil || d.Why.IsZero()) {
		format := "If the machine failed now, it would be %s."
		if !d.Deadline.IsZero() {
			about := ""
			if e.world.guessed {
				about = "about "
			}
			format = "If it does not get healthy before " + about + e.at(d.Deadline) + ", it is %s."
		}
		e.say(Change, e.ruleOf(told), format, outcome)
	}
	if d.Target != nil && d.Target.Failing() {
		then := before
		then.heal()
		e.differ("If its node gets healthy, the machine is %s.", d, then)
	}

	// with says what an edit does now, or else once the machine fails.
	with := func(how string, edit func(*world)) {
		then := before
		if edit(&then); e.differ(how+", the machine would be %s.", d, then) || failed || d.Target != nil {
			return
		}
		then = ahead
		edit(&then)
		e.differ(how+", the machine would, when it fails, be %s.", told, then)
	}
	e.requestChanges(d, with)
	if share := before.group.Share; share != nil && told.Target == nil {
		more, owner := *share+1, "MachineDeployment"
		if before.group.SharedIn != "" {
			owner = "pool"
		}
		with(fmt.Sprintf("With %s for its %s (raise autoPreserveFailedMax of its pool in the Shoot's providerConfig)", brief.Count(more, "place"), owner), func(w *world) { w.offer(&more) })
	}
	if before.group.Rollout {
		with("If its pool were not being updated", func(w *world) { w.group.Rollout = false })
	}
	if before.group.Forbids(d.Machine) {
		with("Without annotation "+v1alpha1.AnnotationForbidden+" of the operators", func(w *world) {
			w.group.Forbidden = false
			w.edit(func(m *facts.Member) { delete(m.Machine.Annotations, v1alpha1.AnnotationForbidden) })
		})
	}
	if e.node != nil && e.node.Annotations[v1alpha1.AnnotationMaintenance] != "" {
		with("If the maintenance ended now", func(w *world) {
			w.edit(func(m *facts.Member) { delete(m.Node.Annotations, v1alpha1.AnnotationMaintenance) })
		})
	}
	if d.Machine.Annotations[v1alpha1.AnnotationRemediation] != "" {
		with("If the power cycle were given up now", (*world).endPowerCycle)
	}
}

// requestChanges says what each request would do.
func (e *explanation) requestChanges(d preservation.Decision, with func(how string, edit func(*world))) {
	object, node := fmt.Sprintf("machine -n %s %s", d.Machine.Namespace, d.Machine.Name), ""
	if e.node != nil { // the machine may have another name
		node = e.node.Name
		object = "node " + node
	}
	for _, request := range []struct{ value, command string }{
		{v1alpha1.RequestNow, "now"},
		{v1alpha1.RequestWhenFailed, "when-failed"},
		{v1alpha1.RequestFalse, "forbid"},
		{"", ""},
	} {
		if request.value == d.Request.Value && d.Request.Invalid == "" {
			continue
		}
		how := fmt.Sprintf("With kubectl annotate --overwrite %s %s=%s", object, v1alpha1.AnnotationPreserve, request.value)
		switch {
		case request.command == "":
			how = fmt.Sprintf("With kubectl annotate %s %s-", object, v1alpha1.AnnotationPreserve)
		case node != "":
			how = fmt.Sprintf("With kubectl preserve %s %s (annotation %s=%s)", request.command, node, v1alpha1.AnnotationPreserve, request.value)
		}
		with(how, func(w *world) { w.ask(request.value) })
	}
}

// differ says what would be if that is another outcome than before, and returns whether it is.
func (e *explanation) differ(format string, before preservation.Decision, then world) bool {
	after := then.decide()
	text := e.outcome(then, after)
	if strings.HasPrefix(format, "If ") { // it says these itself
		for _, why := range []reason.Reason{preservation.WhyHealthyAgain, preservation.WhyMaintenanceOver} {
			text = strings.TrimSuffix(text, " because "+why.Text)
		}
	}
	if e.same(before, after) || text == "" {
		return false
	}
	e.say(Change, e.ruleOf(after), format, text)
	return true
}

// same says that two decisions have the same outcome.
func (e *explanation) same(a, b preservation.Decision) bool {
	if e.placeUnknown(a) != e.placeUnknown(b) {
		return false
	}
	if a.Target == nil || b.Target == nil {
		return a.Target == nil && b.Target == nil
	}
	return a.Rule == b.Rule && a.Why.Is(b.Why) && a.Target.Expiry().Equal(b.Target.Expiry()) && a.Target.Failed == b.Target.Failed && a.Target.Drains() == b.Target.Drains()
}

func (e *explanation) ruleOf(d preservation.Decision) preservation.Rule {
	switch {
	case e.placeUnknown(d):
		return preservation.RuleShareUsedUp
	case d.Rule == "", d.Rule == preservation.RuleClaims:
		return d.Why.Rule
	}
	return d.Rule
}

// placeUnknown says that the decision depends on a free place, and it is not known whether there is one.
func (e *explanation) placeUnknown(d preservation.Decision) bool {
	return e.world.placeUnknown && d.Target == nil &&
		(d.Current == nil && d.Why.Rule == "T6" || d.Current != nil && d.Why.Rule == preservation.RuleRemediation)
}

// outcome says what becomes of a machine by a decision, empty for nothing: "preserved until ... because ...".
func (e *explanation) outcome(w world, d preservation.Decision) string {
	switch {
	case d.Target != nil && d.Rule == "":
		return ""
	case d.Target != nil:
		return e.kept(w, d)
	case e.placeUnknown(d):
		if w.group.SharedIn != "" {
			return "preserved if its pool has a free place, and replaced if not"
		}
		return "preserved if its pool has a free place in its zone, and replaced if not"
	case d.Current != nil && (d.Current.Failed || w.failing(d)):
		return "released and replaced because " + d.Why.Text
	case d.Current != nil && (d.Rule == preservation.RuleMaintenanceOver || d.Rule == preservation.RuleRemediation):
		return "an ordinary machine again because " + d.Why.Text
	case d.Current != nil:
		return "released, and an ordinary machine again, because " + d.Why.Text
	case d.Why.IsZero():
		return ""
	case d.Verdict == preservation.Ignored:
		return "not preserved because " + d.Why.Text
	case d.Verdict == preservation.Refused, w.failing(d):
		return "replaced because " + d.Why.Text
	}
	return "not preserved when it fails because " + d.Why.Text
}

func (e *explanation) kept(w world, d preservation.Decision) string {
	var b strings.Builder
	b.WriteString("preserved ")
	switch until := d.Target.Expiry(); {
	case !w.guessed || d.Request.Timeout > 0 || d.Current != nil && d.Current.Expiry().Equal(until):
		b.WriteString("until " + rfc3339(until))
	case d.Current == nil:
		b.WriteString("for machinePreserveTimeout of its pool")
	default:
		b.WriteString("for machinePreserveTimeout of its pool, and until " + rfc3339(d.Current.Expiry()) + " at least,")
	}
	drained := d.Current != nil && d.Current.Drains()
	switch {
	case d.Target.Drains() && !drained && d.Node != nil:
		b.WriteString(", with its node drained,")
	case drained && !d.Target.Failed && d.Taints():
		b.WriteString(" and takes no new pods until it is validated")
	case !d.Target.Drains() && drained && !d.Target.Failed:
		b.WriteString(" and takes pods again")
	}
	switch {
	case d.Why.Is(preservation.WhyMachineFailed): // the sentence says that it fails
	case d.GoesOn():
		b.WriteString(" although " + d.Why.Text)
	default:
		b.WriteString(" because " + d.Why.Text)
	}
	return strings.ReplaceAll(strings.TrimSuffix(b.String(), ","), ",,", ",")
}

// Ask is what somebody writes on a node: a request, empty to withdraw it, and its timeout, 0 for the pool's.
type Ask struct {
	Request string
	Timeout time.Duration
}

// Annotations returns what is written. What is empty is removed.
func (a Ask) Annotations() map[string]string {
	annotations := map[string]string{v1alpha1.AnnotationPreserve: a.Request, v1alpha1.AnnotationTimeout: ""}
	if a.Timeout > 0 {
		annotations[v1alpha1.AnnotationTimeout] = a.Timeout.String()
	}
	return annotations
}

// Answer is what becomes of a machine.
type Answer struct {
	// Machine is nil if the seed does not say which it is.
	Machine *machinev1alpha1.Machine
	// Before is decided without the request, After with it, and Then when the machine fails.
	Before, After, Then preservation.Decision
	// Failed says that the machine has failed, preserved or not. Then is After in that case.
	Failed bool
	// Sentences say what happens, until when, and whether it takes a place. Those that say until when have the topic Until.
	Sentences []Sentence
}

// IfAsked says what becomes of the machine of a node if somebody requests its preservation, with each ask after the one before is
// carried out. It needs what Explain needs. It returns an error if there is no such node, if the seed is there and does not know its
// machine, or if the request would be ignored.
func IfAsked(known *observed.Snapshot, name string, asks ...Ask) (*Answer, error) {
	e := &explanation{snapshot: known, name: name, node: known.Shoot.Node(name), world: world{now: known.Time}}
	if e.node == nil {
		return nil, noNode(known, name)
	}
	found, err := e.find()
	if err != nil {
		return nil, err
	}
	a := &Answer{}
	switch {
	case !found && known.Seed != nil: // who names a seed does not want a guess
		if machine := known.Seed.Machine(name); machine != nil {
			return nil, fmt.Errorf("machine %s in namespace %s of the seed has no MachineDeployment, so nothing is decided on it", machine.Name, machine.Namespace)
		}
		return nil, fmt.Errorf("no machine in namespace %s of the seed has this node: check --seed-namespace", known.Seed.Namespace)
	case !found:
		e.guess()
	default:
		a.Machine = e.world.member().Machine
		if !e.controlled() {
			return nil, fmt.Errorf("the request would have no effect, because no preservation controller runs beside machine-controller-manager in namespace %s", a.Machine.Namespace)
		}
	}
	e.sentences = nil

	before := e.world.settled()
	after := before
	for i, ask := range asks {
		if i > 0 {
			after = after.done()
		}
		after.annotate(ask.Annotations())
	}
	a.Before, a.After = before.decide(), after.decide()
	if r := a.After.Request; len(asks) > 0 && (r.Templated || r.Invalid != "" || r.InvalidTimeout != "" || r.Spent != "") {
		e.requests(r, a.Machine)
		return nil, errors.New(e.sentences[len(e.sentences)-1].String())
	}
	a.Failed = before.failed(a.Before)
	failing, then := after, a.After
	if !a.Failed {
		failing, then = after.done().ahead()
	}
	a.Then = then

	var (
		now   = e.outcome(after, a.After)
		later = e.outcome(failing, then)
	)
	topic := Change
	if a.After.Target != nil {
		topic = Until
	}
	switch {
	case a.Before.Target != nil && a.After.Rule == "":
		why := preservation.WhyBegun(a.Before.Target.Cause())
		e.say(topic, why.Rule, "Its machine is preserved until %s as before, because %s.", rfc3339(a.Before.Target.Expiry()), why.Text)
	case sameEnd(a.Before, a.After) && a.After.Request.Value != v1alpha1.RequestFalse:
		e.say(topic, "P6", "Its machine is preserved until %s as before, because the request would not preserve it for longer.", rfc3339(a.After.Target.Expiry()))
	case now != "" && (a.After.Rule != "" || a.After.Verdict == preservation.Ignored || a.Failed):
		e.say(topic, e.ruleOf(a.After), "Its machine is %s.", now)
	}
	switch {
	case a.Failed || later == "":
	case sameEnd(a.After, then) && then.Target.Drains():
		until := "the same time"
		if e.snapshot.Seed == nil { // its pool may have a place for it (T2)
			until = "that time at least"
		}
		e.say(Change, e.ruleOf(then), "If it failed now, it would be preserved until %s, with its node drained.", until)
	default:
		e.say(Change, e.ruleOf(then), "If it failed now, it would be %s.", later)
	}
	e.costs(a)
	a.Sentences = e.sentences
	return a, nil
}

// sameEnd says that two decisions preserve the machine until the same time.
func sameEnd(a, b preservation.Decision) bool {
	return a.Target != nil && b.Target != nil && a.Target.Expiry().Equal(b.Target.Expiry())
}

// costs says which place is taken (P1).
func (e *explanation) costs(a *Answer) {
	had, has, will := a.Before.Target.HasPlace(e.world.now), a.After.Target.HasPlace(e.world.now), a.Then.Target.HasPlace(e.world.now)
	text := ""
	switch {
	case had && has:
		text = "It takes one of the places for failed machines, as before."
	case had:
		text = "Its place is free for the next machine that fails."
	case has:
		text = "It takes one of the places for failed machines from now on."
	case will:
		text = "It takes no place for failed machines until it fails."
	default:
		return
	}
	if e.world.group.Share != nil {
		text += fmt.Sprintf(" %s has %s (%d taken).", e.whose(), brief.Count(*e.world.group.Share, "place"), len(preservation.Placed(e.world.group, e.world.now)))
	}
	e.say(Change, preservation.RuleShareUsedUp, "%s", text)
}

// String returns the sentence with its rule in brackets.
func (s Sentence) String() string {
	if s.Rule == "" {
		return s.Text
	}
	return s.Text + " [" + s.Rule + "]"
}

func rfc3339(t time.Time) string { return t.UTC().Format(time.RFC3339) }
