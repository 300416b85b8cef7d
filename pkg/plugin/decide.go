// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/explain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// situation is what a request is decided on: what is known, and what the domain says would be.
type situation struct {
	snapshot *observed.Snapshot
	node     *corev1.Node
	// as is what becomes of the machine as it is.
	as *explain.Answer
}

func situationOf(s *observed.Snapshot, name string) (f situation, err error) {
	if i := slices.IndexFunc(s.Shoot.Nodes, func(n corev1.Node) bool { return n.Name == name }); i >= 0 {
		f.node, f.snapshot = &s.Shoot.Nodes[i], s
	} else {
		for _, missing := range s.Missing {
			if missing.Thing == observed.WhatNodes {
				return f, fmt.Errorf("failed to list the nodes: %s", missing.Reason)
			}
		}
		return f, errNoNode(name)
	}
	f.as, err = explain.IfAsked(s, name)
	return f, err
}

func (f *situation) ifAsked(asks ...explain.Ask) (*explain.Answer, error) {
	return explain.IfAsked(f.snapshot, f.node.Name, asks...)
}

// until returns the expiry, zero if it is not known.
func (f *situation) until() time.Time {
	if f.as.Before.Target == nil {
		return time.Time{}
	}
	if f.as.Machine == nil {
		return shownUntil(f.node)
	}
	return f.as.Before.Target.Expiry()
}

// healthy says that the node is, as far as it shows, and that its machine has not failed.
func (f *situation) healthy() bool {
	_, tainted := preservation.TaintedSince(f.node)
	return (!tainted || preservation.AwaitsValidation(f.node)) && facts.IsHealthy(f.as.Before.Member, facts.DefaultNodeConditions)
}

// asked says that a request preserves the machine: another request does not change that (P6).
func asked(record *preservation.Record) bool {
	return record != nil && slices.ContainsFunc(record.Claims, preservation.Claim.Personal)
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
	// was is the expiry that is moved, zero if none is. What is said about it is said when the node shows the new one.
	was time.Time
}

func (c *change) say(sentences ...explain.Sentence) {
	for _, s := range sentences {
		c.says = append(c.says, s.String())
	}
}

// ask returns the function that decides on a request to preserve a machine.
func ask(request, done string) func(f situation, r *requestFlags) (change, error) {
	return func(f situation, r *requestFlags) (change, error) {
		c := change{ask: &explain.Ask{Request: request, Timeout: r.duration}, done: done}
		a, err := f.ifAsked(*c.ask)
		if err != nil {
			return change{}, err
		}
		c.say(a.Sentences...)
		now := request == v1alpha1.RequestNow
		switch {
		case a.After.Target == nil && (now || a.Failed || a.After.Verdict == preservation.Ignored):
			return change{}, fmt.Errorf("nothing was requested, because it would have no effect. %s", strings.Join(c.says, " "))
		case asked(a.Before.Target) && asked(a.After.Target) && r.duration > 0:
			return change{}, fmt.Errorf("its machine is already preserved on request until %s, and another request does not change that. Use 'kubectl preserve extend %s'", stamp(f.until()), f.node.Name)
		case now || a.Failed:
			c.arrived = isHeld
			if a.Before.Target != nil && a.After.Target.Expiry().After(a.Before.Target.Expiry()) && (a.Machine != nil || r.duration > 0) {
				c.arrived = isHeldBeyond(f.until())
			}
		default:
			later := isHeldBeyond(f.until())
			c.arrived = func(node *corev1.Node) (bool, error) {
				if held, err := isHeld(node); !held || err != nil {
					return false, err
				}
				if _, tainted := preservation.TaintedSince(node); tainted && !preservation.AwaitsValidation(node) || f.until().IsZero() {
					return tainted, nil
				}
				return later(node)
			}
		}
		return c, nil
	}
}

func decideRelease(f situation, _ *requestFlags) (change, error) {
	request := f.node.Annotations[v1alpha1.AnnotationPreserve]
	c := change{ask: &explain.Ask{}, done: "released", arrived: isReleased}
	a, err := f.ifAsked(*c.ask)
	if err != nil {
		return change{}, err
	}
	switch {
	case f.as.Before.Target == nil && request == "":
		c.ask, c.done, c.says = nil, "is not preserved", []string{"There is nothing to do, because its machine is not preserved and there is no request."}
		return c, nil
	case f.as.Before.Target == nil && request == v1alpha1.RequestFalse && f.as.Before.Current != nil && f.as.Before.Current.Expiry().After(f.snapshot.Time):
		// Somebody runs it again. It must not take back what it has begun.
		c.ask, c.done, c.says = nil, "is being released", []string{fmt.Sprintf("There is nothing to do, because its machine is being released. If that lasts, see 'kubectl preserve explain %s'.", f.node.Name)}
		return c, nil
	case f.as.Before.Target == nil && request == v1alpha1.RequestFalse:
		c.done = "may be preserved again"
		fallthrough
	case f.as.Before.Target == nil, !f.as.Failed && request != "" && asked(f.as.Before.Target):
		c.say(a.Sentences...)
		c.confirmLoss(f, a)
		return c, nil
	case !f.as.Failed && f.as.Before.Target.Cause() == v1alpha1.CauseMaintenance:
		return change{}, fmt.Errorf("its machine is preserved because %s works on it. End that with 'kubectl preserve maintenance done %s', or use 'kubectl preserve forbid %s'",
			cmp.Or(requestorsOf(f.snapshot)[f.node.Name], "somebody"), f.node.Name, f.node.Name)
	case f.as.Before.Target.Cause() == v1alpha1.CauseRemediation:
		return change{}, fmt.Errorf("its machine is preserved because its host is power-cycled. Wait until that is over, or use 'kubectl preserve forbid %s', which ends the power cycle", f.node.Name)
	}
	// The node has no request, or its request may not be all that preserves a machine that has failed.
	if a, err = c.forbid(f); err == nil && !a.Failed {
		c.says = append(c.says, fmt.Sprintf("Preserving the machine is forbidden now, because there was no request on the node to withdraw. To allow it again, run 'kubectl preserve release %s' once more.", f.node.Name))
	}
	return c, err
}

func decideForbid(f situation, _ *requestFlags) (change, error) {
	c := change{done: "preservation forbidden", arrived: isReleased}
	a, err := c.forbid(f)
	if err == nil && !a.Failed {
		c.says = append(c.says, fmt.Sprintf("To allow it again, run 'kubectl preserve release %s'.", f.node.Name))
	}
	return c, err
}

// forbid forbids preserving the machine. A machine that has failed is lost then: this must be confirmed.
func (c *change) forbid(f situation) (*explain.Answer, error) {
	c.ask = &explain.Ask{Request: v1alpha1.RequestFalse}
	a, err := f.ifAsked(*c.ask)
	if err != nil {
		return nil, err
	}
	c.say(a.Sentences...)
	c.confirmLoss(f, a)
	return a, nil
}

// confirmLoss asks before a machine is released that has failed, is about to fail, or may have failed: the shoot does
// not tell which one that is not healthy has, as not all of them get a taint, and health timeouts are in the seed. There, also one
// that is not kept yet may have failed: the controller may have yet to look.
func (c *change) confirmLoss(f situation, a *explain.Answer) {
	before := a.Before.Target
	switch {
	case before != nil && a.Failed && a.After.Target == nil:
		c.asks = fmt.Sprintf("The machine of node %s has failed and is preserved until %s. If you release it, it is terminated with everything on it. Release it?", f.node.Name, stamp(f.until()))
	case a.Machine != nil && !a.Before.Deadline.IsZero() && f.as.Then.Target != nil && a.Then.Target == nil:
		c.asks = fmt.Sprintf("The machine of node %s fails at %s unless it becomes healthy, and would be preserved. If you release it and it fails, it is terminated with everything on it. Release it?", f.node.Name, stamp(a.Before.Deadline))
	case a.Machine != nil || f.healthy() || a.After.Target != nil && c.ask.Request != v1alpha1.RequestFalse:
	case before != nil:
		c.asks = fmt.Sprintf("Node %s is not healthy or is tainted, so that its machine may have failed. The machine is preserved until %s. If you release it and it has failed, it is terminated with everything on it. Release it?", f.node.Name, stamp(f.until()))
	case f.as.Before.Request.Value != v1alpha1.RequestFalse:
		c.asks = fmt.Sprintf("Node %s is not healthy or is tainted, so that its machine may have failed. If you release it and it has failed or fails, it is terminated with everything on it. Release it?", f.node.Name)
	}
}

func decideExtend(f situation, r *requestFlags) (change, error) {
	is := f.until()
	switch {
	case f.as.Before.Target == nil:
		return change{}, fmt.Errorf("its machine is not preserved. Request that with 'kubectl preserve now %s --for DURATION'", f.node.Name)
	case f.as.Machine != nil && preservation.ReadRecord(f.as.Machine) == nil:
		return change{}, errors.New("its machine is about to be preserved and has no expiry yet. Try again in a few seconds")
	case is.IsZero():
		return change{}, errors.New("its machine is preserved, but the node does not say until when. Operators can see that in the seed")
	}
	to := r.untilTime
	if r.duration > 0 {
		to = is.Add(r.duration)
	}
	if !to.After(is) {
		return change{}, fmt.Errorf("--until=%s: must be later than %s, the current expiry of its machine", r.until, stamp(is))
	}
	c := change{done: "preservation extended", says: []string{fmt.Sprintf("Its machine is preserved until %s instead of %s.", stamp(to), stamp(is))}}
	c.was, c.arrived = is, isHeldBeyond(is)
	if f.as.Machine != nil {
		c.expiry = to
		if preservation.IsProtected(f.node) {
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
			why = "may have failed, because its node is not healthy or is tainted,"
		case f.node.Annotations[v1alpha1.AnnotationMaintenance] != "", preservation.IsPowerCycled(f.node):
			why = "is under maintenance"
		}
		if why != "" {
			return change{}, fmt.Errorf("its machine %s and is preserved until %s on request. That expiry cannot be moved from the shoot, because the machine would have to be released before a new request and might be lost. Operators can move it: 'kubectl preserve extend %s --seed-namespace NAMESPACE'",
				why, stamp(is), f.node.Name)
		}
		c.says = append(c.says, "Its request is withdrawn and made again, because the expiry of a request cannot be moved from the shoot. In between, the machine is not preserved for some seconds.")
		asks = []explain.Ask{{}, *c.ask}
	}
	limit := f.snapshot.Time.Add(v1alpha1.DefaultMaxMachinePreserveTimeout)
	if !to.After(limit) {
		a, err := f.ifAsked(asks...)
		if err != nil {
			return change{}, err
		}
		c.say(slices.DeleteFunc(a.Sentences, func(s explain.Sentence) bool { return s.Topic == explain.Until })...)
		limit = is
		if a.After.Target != nil {
			limit = a.After.Target.Expiry()
		}
	}
	if to.Sub(limit) > time.Second { // whole seconds are written
		return change{}, fmt.Errorf("%s: must be at most %s, because a request cannot preserve its machine until %s. Operators can extend it that long (--seed-namespace)", r.given(), stamp(limit), stamp(to))
	}
	return c, nil
}

// isHeld says that the node shows the expiry of the preservation controller. machine-controller-manager 0.62 writes another one before.
func isHeld(node *corev1.Node) (bool, error) {
	if node == nil {
		return false, errors.New("it is gone")
	}
	return isPreserved(node) && !shownUntil(node).IsZero(), nil
}

// isHeldBeyond says that a node shows a later expiry than before.
func isHeldBeyond(was time.Time) func(*corev1.Node) (bool, error) {
	return func(node *corev1.Node) (bool, error) {
		held, err := isHeld(node)
		return held && shownUntil(node).After(was), err
	}
}

func isReleased(node *corev1.Node) (bool, error) {
	return node == nil || !isPreserved(node), nil
}

// shownUntil returns the expiry that a node shows, zero for none.
func shownUntil(node *corev1.Node) time.Time {
	c := preservation.PreservedCondition(node)
	if c == nil {
		return time.Time{}
	}
	return preservation.ReadCondition(c).Until
}
