// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/explain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/snapshot"
)

// facts are what a request is decided on: what is known, and what the domain says would be.
type facts struct {
	snapshot *snapshot.Snapshot
	node     *corev1.Node
	// as is what becomes of the machine as it is.
	as *explain.Answer
}

func factsOf(s *snapshot.Snapshot, name string) (f facts, err error) {
	if i := slices.IndexFunc(s.Shoot.Nodes, func(n corev1.Node) bool { return n.Name == name }); i >= 0 {
		f.node, f.snapshot = &s.Shoot.Nodes[i], s
	} else {
		for _, missing := range s.Missing {
			if missing.What == snapshot.WhatNodes {
				return f, fmt.Errorf("failed to list the nodes: %s", missing.Reason)
			}
		}
		return f, errNoNode(name)
	}
	f.as, err = explain.IfAsked(s, name)
	return f, err
}

func (f *facts) ifAsked(asks ...explain.Ask) (*explain.Answer, error) {
	return explain.IfAsked(f.snapshot, f.node.Name, asks...)
}

// until returns until when the machine is kept, zero if nobody can know.
func (f *facts) until() time.Time {
	if f.as.Before.Target == nil {
		return time.Time{}
	}
	if f.as.Machine == nil {
		return shownUntil(f.node)
	}
	return f.as.Before.Target.Expiry()
}

// healthy says that the node is, as far as it shows, and that its machine has not failed.
func (f *facts) healthy() bool {
	_, tainted := preservation.TaintedSince(f.node)
	return !tainted && preservation.IsHealthy(f.as.Before.Member, preservation.DefaultNodeConditions)
}

// asked says that the claim of a person stands, which asking again does not change (P6).
func asked(record *preservation.Record) bool {
	return record != nil && slices.ContainsFunc(record.Claims, func(c preservation.Claim) bool {
		return c.Cause == v1alpha1.CauseNow || c.Cause == v1alpha1.CauseWhenFailed
	})
}

// brief returns a duration without what is zero in the end.
func brief(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// change is what is written because of a request, and what is said of it.
type change struct {
	// ask is written on the node; nil for nothing.
	ask *explain.Ask
	// expiry is written on the Machine instead, unless it is zero.
	expiry time.Time
	// anew says that what is asked for on the node is withdrawn first.
	anew bool
	done string
	says []string
	// asks is what has to be confirmed.
	asks string
	// arrived says whether a node, or nil for one that is gone, is as it is waited for.
	arrived func(*corev1.Node) (bool, error)
	// was is the end that is moved: what is said of that is told once it has arrived only. Zero if no end is moved.
	was time.Time
}

func (c *change) say(sentences ...explain.Sentence) {
	for _, s := range sentences {
		c.says = append(c.says, s.String())
	}
}

// verb is a command that asks for something on nodes.
type verb struct {
	use, short, long, example string
	// loses says that it may have to be confirmed.
	takesFor, takesUntil, loses bool
	// decide is pure.
	decide func(f facts, r *requestFlags) (change, error)
	// waits says until what --wait waits.
	waits string
}

var verbs = []verb{{
	use: "now NODE...", short: "Keep machines from now on",
	long: `Keep machines from now on, for --for or for as long as their pool is set to. The cluster-autoscaler leaves them alone.
One that fails is drained and kept, and not replaced. A machine that has failed before it is asked for is replaced all the
same, and so is one that fails while its pool is updated. No machine is kept for longer than operators allow.`,
	example:  "  kubectl preserve now node-1 --for 6h --wait",
	takesFor: true, decide: ask(v1alpha1.RequestNow, "is asked for"), waits: "they are kept",
}, {
	use: "when-failed NODE...", short: "Keep machines when they fail",
	long: `Keep machines when they fail, for --for or for as long as their pool is set to, also where there is no place for
failed machines any more. Nothing happens until then.`,
	example:  "  kubectl preserve when-failed node-1 node-2",
	takesFor: true, decide: ask(v1alpha1.RequestWhenFailed, "is asked for in case it fails"), waits: "they have failed and are kept (see --timeout)",
}, {
	use: "release NODE...", short: "Let go of machines",
	long: `Let go of machines: what was asked for on their nodes is withdrawn, and they are kept no longer. A machine that has
failed is terminated then, with all that is on it. After 'forbid', it allows them to be kept again.`,
	example: "  kubectl preserve release node-1 --yes --wait",
	loses:   true, decide: decideRelease, waits: "they are kept no longer, or gone",
}, {
	use: "forbid NODE...", short: "Never keep machines",
	long: `Never keep machines: they are replaced when they fail, as if there was no preservation. One that is kept is let go of.
'release' takes it back.`,
	example: "  kubectl preserve forbid node-1",
	loses:   true, decide: decideForbid, waits: "they are kept no longer, or gone",
}, {
	use: "extend NODE... (--for DURATION | --until TIME)", short: "Keep machines longer that are kept",
	long: `Keep machines for --for longer than they are kept now, or --until a time. With access to the seed, the end is written on
the Machine. Without, asking is all there is, and what was asked for once keeps its end. So
- a machine that nobody asked for on its node is asked for now, which adds to the time that it has;
- a machine that was asked for, has not failed and is not worked on is let go of and asked for anew;
- any other one that was asked for might be gone if it was let go of: only operators can keep it longer.`,
	example: `  kubectl preserve extend node-1 --for 24h
  kubectl preserve extend node-1 --until 2026-01-31T18:00:00Z --seed-namespace shoot--my--shoot`,
	takesFor: true, takesUntil: true, decide: decideExtend,
}}

// ask returns what decides on a request to keep a machine.
func ask(request, done string) func(f facts, r *requestFlags) (change, error) {
	return func(f facts, r *requestFlags) (change, error) {
		c := change{ask: &explain.Ask{Request: request, Timeout: r.duration}, done: done}
		a, err := f.ifAsked(*c.ask)
		if err != nil {
			return change{}, err
		}
		c.say(a.Sentences...)
		now := request == v1alpha1.RequestNow
		switch {
		case a.After.Target == nil && (now || a.Failed || a.After.Ignored):
			return change{}, fmt.Errorf("nothing was asked for, as it would be in vain. %s", strings.Join(c.says, " "))
		case asked(a.Before.Target) && asked(a.After.Target) && r.duration > 0:
			return change{}, fmt.Errorf("its machine was asked for before and is kept until %s: asking again does not change that. Use 'kubectl preserve extend %s'", stamp(f.until()), f.node.Name)
		case now || a.Failed:
			if c.arrived = isHeld; a.Before.Target != nil && a.After.Target.Expiry().After(a.Before.Target.Expiry()) && (a.Machine != nil || r.duration > 0) {
				c.arrived = isHeldBeyond(f.until())
			}
		default:
			later := isHeldBeyond(f.until())
			c.arrived = func(node *corev1.Node) (bool, error) {
				if held, err := isHeld(node); !held || err != nil {
					return false, err
				}
				if _, tainted := preservation.TaintedSince(node); tainted || f.until().IsZero() {
					return tainted, nil
				}
				return later(node)
			}
		}
		return c, nil
	}
}

func decideRelease(f facts, _ *requestFlags) (change, error) {
	request := f.node.Annotations[v1alpha1.AnnotationPreserve]
	c := change{ask: &explain.Ask{}, done: "is let go of", arrived: isReleased}
	a, err := f.ifAsked(*c.ask)
	if err != nil {
		return change{}, err
	}
	switch {
	case f.as.Before.Target == nil && request == "":
		c.ask, c.done, c.says = nil, "is not kept", []string{"Its machine is not kept, and nothing is asked for: there is nothing to be done."}
		return c, nil
	case f.as.Before.Target == nil && request == v1alpha1.RequestFalse:
		c.done = "may be kept again"
		fallthrough
	case f.as.Before.Target == nil, !f.as.Failed && request != "" && asked(f.as.Before.Target):
		c.say(a.Sentences...)
		c.confirmLoss(f, a)
		return c, nil
	case !f.as.Failed && f.as.Before.Target.Cause() == v1alpha1.CauseMaintenance:
		return change{}, fmt.Errorf("its machine is kept as %s works on it: end that with 'kubectl preserve maintenance done %s', or use 'kubectl preserve forbid %s'",
			cmp.Or(requestorsOf(f.snapshot)[f.node.Name], "somebody"), f.node.Name, f.node.Name)
	}
	// Nobody asked on the node, or what is withdrawn there may not be all that keeps a machine which has failed.
	if a, err = c.forbid(f); err == nil && a.After.Target != nil {
		return change{}, fmt.Errorf("nothing was changed, as that cannot be ended on the node. %s", strings.Join(c.says, " "))
	}
	if !a.Failed {
		c.says = append(c.says, fmt.Sprintf("Nobody asked for it on the node, so it is forbidden to keep it. 'kubectl preserve release %s' once more allows it.", f.node.Name))
	}
	return c, err
}

func decideForbid(f facts, _ *requestFlags) (change, error) {
	c := change{done: "is not to be kept", arrived: isReleased}
	a, err := c.forbid(f)
	if err == nil && !a.Failed {
		c.says = append(c.says, fmt.Sprintf("'kubectl preserve release %s' takes this back.", f.node.Name))
	}
	return c, err
}

// forbid forbids to keep the machine. That is the end of one that has failed, and has to be confirmed.
func (c *change) forbid(f facts) (*explain.Answer, error) {
	c.ask = &explain.Ask{Request: v1alpha1.RequestFalse}
	a, err := f.ifAsked(*c.ask)
	if err != nil {
		return nil, err
	}
	c.say(a.Sentences...)
	c.confirmLoss(f, a)
	return a, nil
}

// confirmLoss has it confirmed that a machine is let go of which has failed, or which may have: the shoot does not tell which
// one that is not healthy has, as not all of them get a taint, and health timeouts are in the seed.
func (c *change) confirmLoss(f facts, a *explain.Answer) {
	switch {
	case a.Before.Target == nil:
	case a.Failed && a.After.Target == nil:
		c.asks = fmt.Sprintf("The machine of node %s has failed and is kept until %s. Let go of it? It is terminated, with all that is on it.", f.node.Name, stamp(f.until()))
	case a.Machine == nil && !f.healthy() && (a.After.Target == nil || c.ask.Request == v1alpha1.RequestFalse):
		c.asks = fmt.Sprintf("Node %s is not healthy, or tainted: its machine may have failed, and is kept until %s. Let go of it? If it has failed, it is terminated, with all that is on it.", f.node.Name, stamp(f.until()))
	}
}

func decideExtend(f facts, r *requestFlags) (change, error) {
	is := f.until()
	switch {
	case f.as.Before.Target == nil:
		return change{}, fmt.Errorf("its machine is not kept: ask for it with 'kubectl preserve now %s --for DURATION'", f.node.Name)
	case is.IsZero():
		return change{}, errors.New("its machine is kept, but the node does not say until when: operators can see that in the seed")
	}
	to := r.untilTime
	if r.duration > 0 {
		to = is.Add(r.duration)
	}
	if !to.After(is) {
		return change{}, fmt.Errorf("--until=%s: must be later than %s, until when its machine is kept", r.until, stamp(is))
	}
	c := change{done: "is kept longer", says: []string{fmt.Sprintf("Its machine is kept until %s instead of %s.", stamp(to), stamp(is))}}
	c.was, c.arrived = is, isHeldBeyond(is)
	if f.as.Machine != nil {
		if c.expiry = to; preservation.IsProtected(f.node) {
			c.was = time.Time{} // its node does not tell
		}
		return c, nil
	}
	c.ask = &explain.Ask{Request: v1alpha1.RequestNow, Timeout: to.Sub(f.snapshot.Time).Round(time.Second)}
	asks := []explain.Ask{*c.ask}
	if c.anew = asked(f.as.Before.Target); c.anew {
		why := ""
		switch {
		case f.as.Failed:
			why = "has failed"
		case !f.healthy():
			why = "may have failed, as its node is not healthy, or tainted,"
		case f.node.Annotations[v1alpha1.AnnotationMaintenance] != "", preservation.IsPowerCycled(f.node):
			why = "is worked on"
		}
		if why != "" {
			return change{}, fmt.Errorf("its machine %s and is kept until %s as it was asked for. That end cannot be moved from the shoot: to ask anew, it would have to be let go of, and it might be gone. Operators can move it: 'kubectl preserve extend %s --seed-namespace NAMESPACE'",
				why, stamp(is), f.node.Name)
		}
		c.says = append(c.says, "It is let go of for some seconds and asked for anew: an end that was asked for cannot be moved from the shoot.")
		asks = []explain.Ask{{}, *c.ask}
	}
	limit := f.snapshot.Time.Add(v1alpha1.DefaultMaxMachinePreserveTimeout)
	if !to.After(limit) {
		a, err := f.ifAsked(asks...)
		if err != nil {
			return change{}, err
		}
		c.say(slices.DeleteFunc(a.Sentences, func(s explain.Sentence) bool { return strings.HasPrefix(s.Text, "Its machine is kept until ") })...)
		if limit = is; a.After.Target != nil {
			limit = a.After.Target.Expiry()
		}
	}
	if to.Sub(limit) > time.Second { // whole seconds are written
		return change{}, fmt.Errorf("%s: nobody can ask to keep its machine until %s, but until %s at most. Operators can (--seed-namespace)", r.given(), stamp(to), stamp(limit))
	}
	return c, nil
}

// isHeld says that the preservation controller has told until when the machine is kept: machine-controller-manager 0.62 tells
// another time before.
func isHeld(node *corev1.Node) (bool, error) {
	if node == nil {
		return false, errors.New("it is gone")
	}
	return isConditionTrue(node, v1alpha1.ConditionPreserved) && !shownUntil(node).IsZero(), nil
}

// isHeldBeyond says that a node shows another end than it did, a later one.
func isHeldBeyond(was time.Time) func(*corev1.Node) (bool, error) {
	return func(node *corev1.Node) (bool, error) {
		held, err := isHeld(node)
		return held && shownUntil(node).After(was), err
	}
}

func isReleased(node *corev1.Node) (bool, error) {
	return node == nil || !isConditionTrue(node, v1alpha1.ConditionPreserved), nil
}

// shownUntil returns until when a node says that its machine is kept, zero if it does not.
func shownUntil(node *corev1.Node) time.Time {
	c := preservation.PreservedCondition(node)
	if c == nil {
		return time.Time{}
	}
	_, until := preservation.ReadCondition(c)
	return until
}

type requestFlags struct {
	writeFlags
	forText, until string

	duration  time.Duration
	untilTime time.Time
}

// given returns the flag that says how long.
func (r *requestFlags) given() string {
	if r.until != "" {
		return "--until=" + r.until
	}
	return "--for=" + r.forText
}

// parse fills in duration and untilTime (R5). What is to be added to an end may be longer than what can be asked for.
func (r *requestFlags) parse(flags *pflag.FlagSet, takesUntil bool) error {
	if err := r.validate(flags); err != nil {
		return err
	}
	if takesUntil && (r.forText == "") == (r.until == "") {
		return errors.New("one of --for and --until must be set, for example --for=6h or --until=2026-01-31T18:00:00Z")
	}
	if r.until != "" {
		t, err := time.Parse(time.RFC3339, r.until)
		if err != nil {
			return fmt.Errorf("--until=%s: must be a time in RFC 3339, for example 2026-01-31T18:00:00Z", r.until)
		}
		r.untilTime = t.Truncate(time.Second)
	}
	if r.forText == "" {
		return nil
	}
	d, err := time.ParseDuration(r.forText)
	switch r.duration = d; {
	case err != nil, d < v1alpha1.MinMachinePreserveTimeout, d > v1alpha1.DefaultMaxMachinePreserveTimeout && !takesUntil:
		return fmt.Errorf("--for=%s: must be a duration %s, for example 6h or 90m", r.forText, howLong(takesUntil))
	}
	return nil
}

// howLong says which durations are valid.
func howLong(takesUntil bool) string {
	if takesUntil {
		return fmt.Sprintf("of at least %s", v1alpha1.MinMachinePreserveTimeout)
	}
	return fmt.Sprintf("from %s to %s", v1alpha1.MinMachinePreserveTimeout, brief(v1alpha1.DefaultMaxMachinePreserveTimeout))
}

func newRequestCommand(o *Options, v *verb) *cobra.Command {
	r := &requestFlags{}
	cmd := &cobra.Command{
		Use: v.use, Short: v.short, Long: v.long, Example: v.example,
		Args: named(v.use, 1, -1),
		RunE: func(cmd *cobra.Command, nodes []string) error {
			if err := r.parse(cmd.Flags(), v.takesUntil); err != nil {
				return err
			}
			return o.request(cmd.Context(), v, r, nodes)
		},
		ValidArgsFunction: o.completeNodes,
	}
	if v.takesFor {
		cmd.Flags().StringVar(&r.forText, "for", "", "How long, "+howLong(v.takesUntil)+", for example 6h")
	}
	if v.takesUntil {
		cmd.Flags().StringVar(&r.until, "until", "", "Until when, for example 2026-01-31T18:00:00Z")
	}
	r.add(cmd.Flags(), v.waits, v.loses)
	return cmd
}

// request carries out a verb for nodes. What fails for one of them is no reason not to go on with the others.
func (o *Options) request(ctx context.Context, v *verb, r *requestFlags, names []string) error {
	shoot, seed, err := o.clients()
	if err != nil {
		return err
	}
	var (
		errs    []error
		arrived = map[string]func(*corev1.Node) (bool, error){}
	)
	for _, name := range names {
		c, err := o.requestOne(ctx, shoot, seed, v, r, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", name, err))
		} else if r.wait && !r.dry() {
			arrived[name] = c.arrived
		}
	}

	ctx, cancel := limit(ctx, r.timeout)
	defer cancel()
	var (
		waiting sync.WaitGroup
		writing sync.Mutex
		vain    = make([]error, len(names))
	)
	for i, name := range names {
		if done := arrived[name]; done != nil {
			waiting.Go(func() {
				says, err := waitForOne(ctx, shoot, v, r, name, done)
				writing.Lock()
				defer writing.Unlock()
				if vain[i] = err; err == nil {
					vain[i] = write(o.Out, says)
				}
			})
		}
	}
	waiting.Wait()
	return errors.Join(append(errs, vain...)...)
}

func (o *Options) requestOne(ctx context.Context, shoot, seed client.WithWatch, v *verb, r *requestFlags, name string) (c change, err error) {
	confirmed := ""
	err = retry.RetryOnConflict(retry.DefaultBackoff, func() error { // it was decided on something else than there is now
		s, err := o.known(ctx, "", name, readExplained)
		if err != nil {
			return err
		}
		f, err := factsOf(s, name)
		if err != nil {
			return err
		}
		if c, err = v.decide(f, r); err != nil {
			return err
		}
		if c.asks != confirmed && c.asks != "" {
			if err := o.confirm(c.asks, &r.writeFlags); err != nil {
				return err
			}
			confirmed = c.asks
		}
		return o.carryOut(ctx, shoot, seed, f, c, r)
	})
	if err == nil && !c.was.IsZero() && !r.dry() {
		c.says[0], err = o.ensure(ctx, shoot, name, c)
	}
	if err != nil {
		return change{}, err
	}
	said := append([]string{fmt.Sprintf("node/%s %s%s", name, c.done, r.suffix())}, c.says...)
	return c, write(o.Out, strings.Join(said, "\n  ")+"\n")
}

// carryOut writes a change.
func (o *Options) carryOut(ctx context.Context, shoot, seed client.WithWatch, f facts, c change, r *requestFlags) error {
	switch {
	case r.dryRun == "client":
		return nil
	case !c.expiry.IsZero():
		return extendMachine(ctx, seed, f.as.Machine, c.expiry, r.options())
	case c.ask == nil:
		return nil
	case c.anew && !r.dry():
		before, _ := told(ctx, shoot, f.node.Name, preservation.EventReleased)
		if err := annotate(ctx, shoot, f.node.Name, f.node.ResourceVersion, explain.Ask{}.Annotations(), r.options()); err != nil {
			return err
		}
		return o.askAnew(ctx, shoot, f.node.Name, before, *c.ask, r)
	}
	return annotate(ctx, shoot, f.node.Name, f.node.ResourceVersion, c.ask.Annotations(), r.options())
}

// askAnew asks for a machine again, once it is seen to be let go of. It asks whatever has changed meanwhile, also if the command
// is interrupted: the machine must not be left without its request.
func (o *Options) askAnew(ctx context.Context, shoot client.WithWatch, name string, before sets.Set[string], ask explain.Ask, r *requestFlags) error {
	waiting, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	_ = await(waiting, shoot, name, isReleased) // what else keeps it lasts, and asking adds to that
	// machine-controller-manager 0.62 takes the condition back at once. What is asked for again before the preservation controller
	// has seen that it was withdrawn, has never been withdrawn.
	_ = wait.PollUntilContextCancel(waiting, o.patience/40, true, func(ctx context.Context) (bool, error) {
		now, err := told(ctx, shoot, name, preservation.EventReleased)
		return len(now.Difference(before)) > 0, err
	})
	if err := annotate(context.WithoutCancel(ctx), shoot, name, "", ask.Annotations(), r.options()); err != nil {
		return fmt.Errorf("what was asked for was withdrawn, but it could not be asked for anew, run 'kubectl preserve now %s --for %s': %w", name, ask.Timeout, err)
	}
	return nil
}

// told returns the Events of a node for some reason. One that is told again is another one.
func told(ctx context.Context, shoot client.Reader, name, reason string) (sets.Set[string], error) {
	events, err := evidence.ReadEvents(ctx, shoot, metav1.NamespaceDefault, "Node", name)
	found := sets.New[string]()
	for i := range events {
		if events[i].Reason == reason {
			found.Insert(string(events[i].UID) + "/" + events[i].ResourceVersion)
		}
	}
	return found, err
}

// ensure returns when the node shows the effect of what was written, and says which one: operators may allow less than was asked for.
func (o *Options) ensure(ctx context.Context, shoot client.WithWatch, name string, c change) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	var shown time.Time
	look := func(node *corev1.Node) (bool, error) {
		if shown = (time.Time{}); node != nil && isConditionTrue(node, v1alpha1.ConditionPreserved) {
			shown = shownUntil(node)
		}
		return c.arrived(node)
	}
	err := await(ctx, shoot, name, look)
	if isTimeout(err) {
		if node, failed := getNode(context.WithoutCancel(ctx), shoot, name); failed == nil {
			if arrived, _ := look(node); arrived {
				err = nil
			}
		}
	}
	switch says := fmt.Sprintf("Its machine is kept until %s instead of %s.", stamp(shown), stamp(c.was)); {
	case !isTimeout(err):
		return says, err
	case shown.IsZero():
		return "", fmt.Errorf("it was asked for, but %s later its node does not show that it is kept (see 'kubectl preserve explain %s')", o.patience, name)
	case !shown.Equal(c.was):
		return "", fmt.Errorf("it was asked for, but operators allow less: %s", says)
	}
	return "", fmt.Errorf("it was asked for, but %s later its end is still %s: an operator asked for it, or it has been kept for as long as operators allow (see 'kubectl preserve explain %s')", o.patience, stamp(shown), name)
}

// waitForOne returns when what was asked for has happened, and says what has.
func waitForOne(ctx context.Context, shoot client.WithWatch, v *verb, r *requestFlags, name string, arrived func(*corev1.Node) (bool, error)) (string, error) {
	var last *corev1.Node
	err := await(ctx, shoot, name, func(node *corev1.Node) (bool, error) {
		last = node
		return arrived(node)
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("node %s: %w", name, r.inVain(ctx, err, fmt.Sprintf("%s: is machine preservation enabled for the shoot? 'kubectl preserve explain %s' says more", v.waits, name)))
	case last == nil:
		return fmt.Sprintf("node/%s is gone\n", name), nil
	case !isConditionTrue(last, v1alpha1.ConditionPreserved):
		return fmt.Sprintf("node/%s is kept no longer\n", name), nil
	}
	return fmt.Sprintf("node/%s is kept until %s\n", name, stamp(shownUntil(last))), nil
}

// extendMachine moves the end of a preservation where operators do: in the status of the Machine if it is there, else in its
// annotation (P6).
func extendMachine(ctx context.Context, seed client.Client, machine *machinev1alpha1.Machine, expiry time.Time, options *client.PatchOptions) error {
	before := machine.DeepCopy()
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if status := &machine.Status.CurrentStatus; status.PreserveExpiryTime != nil && machine.Annotations[v1alpha1.AnnotationExpiryInStatus] == string(machine.UID) {
		status.PreserveExpiryTime.Time = expiry
		return seed.Status().Patch(ctx, machine, patch, &client.SubResourcePatchOptions{PatchOptions: *options})
	}
	machine.Annotations[v1alpha1.AnnotationExpiryTime] = stamp(expiry)
	return seed.Patch(ctx, machine, patch, options)
}
