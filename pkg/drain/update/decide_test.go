// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package update_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/drain/update"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/golden"
)

var _ = Describe("Decide", func() {
	var (
		plain    = drain.Pod{Namespace: "shop", Name: "plain", UID: "1"}
		web      = drain.Pod{Namespace: "shop", Name: "web", UID: "2", Labels: map[string]string{"app": "web"}}
		stays    = drain.Pod{Namespace: "shop", Name: "stays", UID: "3", GraceEnds: began, Finalizers: []string{"example.com/finalizer"}}
		data     = drain.Pod{Namespace: "shop", Name: "data", UID: "4", Volumes: true}
		agent    = drain.Pod{Namespace: "shop", Name: "agent", UID: "5", DaemonSet: "agent"}
		defaults = drain.Strategies{Timeout: 45 * time.Minute, ExpectedDrainTime: 8 * time.Minute, PDBForceDrainTimeout: time.Hour}
		at       = func(minutes int) time.Time { return began.Add(time.Duration(minutes) * time.Minute) }
		shown    = func(reason string, since time.Time) NodeOption {
			return func(n *corev1.Node) {
				n.Status.Conditions = append(n.Status.Conditions, corev1.NodeCondition{Type: "NodeDrain", Status: corev1.ConditionTrue,
					LastTransitionTime: metav1.NewTime(since), Reason: reason, Message: "in other words"})
			}
		}
		budgets = drain.Budgets{}
	)
	budgets.Know("shop", []policyv1.PodDisruptionBudget{{Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: web.Labels}}}})

	// facts are those of a node with the pods, that is drained for a rolling update.
	facts := func(node *corev1.Node, pods ...drain.Pod) Facts {
		strategies := defaults
		return Facts{Drain: Drain{Cause: "a rolling update", Since: began}, Node: node, Pods: pods, Budgets: budgets, Strategies: &strategies, Deletions: drain.Deletions{}}
	}
	risked := func(f Facts) Facts {
		f.ForceVolumes = true
		return f
	}
	due := func(d Decision) []string {
		var due []string
		for _, action := range d.Due {
			due = append(due, action.Stage.Name+" "+action.Pod.Name)
		}
		return due
	}
	// condition returns what the node shows after the decision.
	condition := func(d Decision) corev1.NodeCondition {
		for _, c := range d.Write.After.(*corev1.Node).Status.Conditions {
			if c.Type == "NodeDrain" {
				return c
			}
		}
		return corev1.NodeCondition{}
	}
	const underWay, timedOut = "DrainUnderWay", "DrainTimedOut"

	DescribeTable("D3, D5, D7, D10, D11: what is done and shown, and when to look again", func(facts Facts, minutes int, want []string, shows string, next time.Duration) {
		d := Decide(facts, at(minutes))
		Expect(due(d)).To(Equal(want))
		Expect(d.Failed).To(Equal(shows == timedOut))
		Expect(condition(d).Reason).To(Equal(shows))
		if shows != "" {
			Expect(condition(d).LastTransitionTime.Time).To(Equal(began))
		}
		if next == 0 {
			Expect(d.Next).To(BeZero())
		} else {
			Expect(d.Next).To(Equal(at(minutes).Add(next)))
		}
	},
		Entry("nothing with no pods", facts(Node("m", shown(underWay, began))), 100, nil, "", time.Duration(0)),
		Entry("nothing with those that belong to the node", facts(Node("m"), agent), 100, nil, "", time.Duration(0)),
		Entry("nothing before the first deadline", facts(Node("m"), plain, web, stays), 44, nil, underWay, time.Minute),
		Entry("strategies in their order at the first", facts(Node("m"), stays, plain, web), 45, []string{"delete plain", "finalizers stays"}, underWay, 23*time.Minute),
		Entry("protected pods at the second, and not before", facts(Node("m"), web), 67, nil, underWay, time.Minute),
		Entry("nothing with pods that are kept", facts(Node("m", NotReady), data), 45, nil, underWay, 8*time.Minute+time.Nanosecond),
		Entry("pods with volumes on a node that answers", facts(Node("m"), data), 45, []string{"delete data"}, underWay, 8*time.Minute+time.Nanosecond),
		Entry("and where the pool risks it", risked(facts(Node("m", NotReady), data)), 45, []string{"delete data"}, underWay, 8*time.Minute+time.Nanosecond),
		Entry("a drain that failed is over when no pods are left", facts(Node("m", shown(timedOut, began))), 60, nil, "", time.Duration(0)),
		Entry("a drain that has failed just now", facts(Node("m"), plain), 54, []string{"delete plain"}, timedOut, time.Duration(0)),
		Entry("one that failed before, whatever is left now", facts(Node("m", shown(timedOut, began)), web), 60, nil, timedOut, 8*time.Minute),
		Entry("not one of which an earlier drain is shown", facts(Node("m", shown(timedOut, began.Add(-time.Hour))), plain), 1, nil, underWay, 44*time.Minute),
	)

	It("D5, D7, D10, D11: should say in words what is shown", func() {
		failed := facts(Node("m", NotReady, shown(timedOut, began)), data, stays)
		disabled := facts(Node("m"), plain)
		disabled.Strategies.Disabled = true
		var texts strings.Builder
		for _, decision := range []Decision{
			Decide(facts(Node("m"), plain, web), at(44)), Decide(facts(Node("m"), plain, web), at(45)), Decide(facts(Node("m", NotReady), data), at(45)),
			Decide(disabled, at(1)), Decide(facts(Node("m"), stays), at(54)), Decide(failed, at(60)),
		} {
			c := condition(decision)
			fmt.Fprintf(&texts, "%s: %s\n", c.Reason, c.Message)
		}
		golden.Expect("conditions.txt", texts.String())
	})

	It("D11: should name other pods that are left once in a minute", func() {
		node := Decide(facts(Node("m", shown(timedOut, began)), plain), at(60)).Write.After.(*corev1.Node)
		d := Decide(facts(node, web), at(60).Add(time.Second))
		Expect(d.Failed).To(BeTrue())
		Expect(d.Write.Changes()).To(BeFalse())
		Expect(d.Next).To(Equal(at(61)))
		d = Decide(facts(node, web), at(61))
		Expect(condition(d).Message).To(ContainSubstring("shop/web"))
		Expect(Decide(facts(node), at(60).Add(time.Second)).Write.Changes()).To(BeTrue(), "that none are left is shown at once")
	})

	// What an earlier version wrote had its identity in the text, and its last transition was when it was first written.
	DescribeTable("D7, D11: what an earlier version has shown, before the drain or while it went on", func(reason, message string, failed bool) {
		node := Node("m", shown(reason, at(2)))
		node.Status.Conditions[len(node.Status.Conditions)-1].Message = message
		d := Decide(facts(node, web), at(60))
		Expect(d.Failed).To(Equal(failed))
		Expect(d.JustFailed).To(BeFalse())
		Expect(condition(d)).To(And(HaveField("LastTransitionTime.Time", began), HaveField("Message", Not(ContainSubstring("shop/old")))))
		after := d.Write.After.(*corev1.Node)
		Expect(Decide(facts(after, web), at(61)).Write.Changes()).To(BeFalse(), "it is written once")
		Expect(Decide(facts(after, web), at(61)).Failed).To(Equal(failed))
	},
		Entry("under way", underWay, "Drained by machine-controller-manager for a rolling update since 2026-03-01T13:00:00Z. Pods that no PodDisruptionBudget protects are deleted by force from 2026-03-01T13:45:00Z.", false),
		Entry("failed", timedOut, "Drained by machine-controller-manager for a rolling update since 2026-03-01T13:00:00Z. The drain has failed. Pods left: shop/old.", true),
		Entry("failed, and pods kept", timedOut, "Drained by machine-controller-manager for a rolling update since 2026-03-01T13:00:00Z. The drain has failed. Pods left: shop/old. Kept, because the VM may still run them with their volumes: shop/old.", true),
		Entry("failed, and pods kept, in older words", timedOut, "Drained by machine-controller-manager for a rolling update since 2026-03-01T13:00:00Z. It has failed. Left are shop/old. Kept, as their VM may still run: shop/old.", true),
		Entry("an earlier drain that failed", timedOut, "Drained by machine-controller-manager for an update in place since 2026-02-01T13:00:00Z. The drain has failed. Pods left: shop/old.", false),
		Entry("with a time that is none", timedOut, "Drained by machine-controller-manager for a rolling update since 2026-99-01T13:00:00Z. The drain has failed. Pods left: shop/old.", false),
	)

	It("D6: should begin with the pods on which it failed least often", func() {
		f := facts(Node("m"), plain, drain.Pod{Namespace: "shop", Name: "other", UID: "6"}, stays)
		f.Failures = map[types.UID]int{"1": 2, "6": 1}
		Expect(due(Decide(f, at(45)))).To(Equal([]string{"finalizers stays", "delete other", "delete plain"}))
	})

	DescribeTable("D4: of which namespaces the budgets need to be known", func(minutes int, disabled bool, want ...string) {
		f := facts(Node("m"), plain, web, drain.Pod{Namespace: "free", Name: "p"}, agent, drain.Pod{Namespace: "system", Name: "ds", DaemonSet: "ds"})
		f.Strategies.Disabled = disabled
		Expect(f.NeedsBudgets(at(minutes))).To(ConsistOf(want))
	},
		Entry("none before the first deadline", 44, false),
		Entry("those of pods from then on", 45, false, "free", "shop"),
		Entry("none while the strategies are disabled", 45, true),
	)

	It("D6, D11: should tell of each pod that something was done with, of all others once, and remember on which it failed", func() {
		back := drain.Pod{Namespace: "shop", Name: "back", UID: "7", Owner: "shop/Agent a", Created: at(44)}
		f := facts(Node("m"), plain, back, stays, web)
		f.Failures = map[types.UID]int{"1": 3, "gone": 1}
		f.Deletions["shop/Agent a"] = drain.Deletion{First: at(40), Last: at(40)}
		d := Decide(f, at(100))
		Expect(due(d)).To(Equal([]string{"delete back", "finalizers stays", "PDB delete web", "delete plain"}))
		o := d.Outcome([]error{nil, nil, drain.ErrNotReached, errors.New("denied")})
		Expect(o.Progress).To(BeTrue())
		Expect(o.Err).To(MatchError(And(ContainSubstring("denied"), ContainSubstring(drain.ErrNotReached.Error()))))
		Expect(o.Failures).To(Equal(map[types.UID]int{"1": 4, "2": 0, "3": 0, "7": 0}))
		Expect(f.Deletions["shop/Agent a"].Returns).To(Equal(1))
		var told []string
		for _, event := range o.Events {
			on := "node"
			if event.Pod != nil {
				on = event.Pod.Name
			}
			told = append(told, on+" "+event.Reason)
		}
		Expect(told).To(Equal([]string{"stays FinalizersRemoved", "node PodsCameBack", "node DrainStrategyActed", "node DrainStrategyFailed"}))
	})

	It("D6: should return no more errors than anybody reads", func() {
		var (
			pods []drain.Pod
			errs []error
		)
		for i := range 5 {
			pods = append(pods, drain.Pod{Namespace: "shop", Name: fmt.Sprint(i), UID: types.UID(fmt.Sprint(i))})
			errs = append(errs, fmt.Errorf("error %d", i))
		}
		Expect(Decide(facts(Node("m"), pods...), at(45)).Outcome(errs).Err).To(MatchError("[error 0, error 1, error 2, error 3, error 4]"))
		pods = append(pods, drain.Pod{Namespace: "shop", Name: "5", UID: "5"})
		errs = append(errs, errors.New("error 5"))
		Expect(Decide(facts(Node("m"), pods...), at(45)).Outcome(errs).Err).To(MatchError("[error 0, error 1, error 2, error 3, error 4, and 1 more]"))
	})

	It("D11: should tell what a strategy did, and show it as the only condition of a node", func() {
		node := Node("m")
		node.Status.Conditions = nil
		d := Decide(facts(node, stays, plain), at(45))
		var notes []string
		for _, event := range d.Outcome([]error{nil, nil}).Events {
			if event.Reason == "DrainStrategyActed" {
				notes = append(notes, event.Note)
			}
		}
		Expect(notes).To(ConsistOf(MatchRegexp(`deleted 1 pod\(s\) by force 45m0s after .*: shop/plain$`), MatchRegexp(`removed the finalizers of 1 pod\(s\) 45m0s after .*: shop/stays$`)))
		shown := d.Write.After.(*corev1.Node)
		Expect(shown.Status.Conditions).To(HaveLen(1))
		Expect(Decide(facts(shown, stays, plain), at(45)).Write.Changes()).To(BeFalse(), "it is written once")
	})

	It("D6: should tell of no failure where nothing was tried, and of nothing where nothing was due", func() {
		d := Decide(facts(Node("m"), plain), at(45))
		o := d.Outcome([]error{drain.ErrNotReached})
		Expect(o).To(And(HaveField("Events", BeEmpty()), HaveField("Progress", false), HaveField("Err", HaveOccurred())))
		o = Decide(facts(Node("m"), plain), at(1)).Outcome(nil)
		Expect(o).To(And(HaveField("Events", BeEmpty()), HaveField("Progress", false), HaveField("Err", Not(HaveOccurred()))))
	})

	It("D11: should change nothing where the node shows it already, and keep since when it does", func() {
		node := Decide(facts(Node("m"), plain), at(1)).Write.After.(*corev1.Node)
		Expect(Decide(facts(node, plain), at(2)).Write.Changes()).To(BeFalse())
		d := Decide(facts(node, plain), at(45))
		Expect(d.Write.Changes()).To(BeTrue())
		Expect(d.Write.Status).To(BeTrue())
		Expect(condition(d).LastTransitionTime.Time).To(Equal(began))
		Expect(Show(Node("m"), nil, true, at(1)).Changes()).To(BeFalse())
		Expect(Show(node, nil, true, at(1)).Changes()).To(BeTrue())
	})

	It("D13: should say to others that the drain is in progress, as long as the node shows it, and in the same write", func() {
		ofDrains := func(write intent.Write) (shown []corev1.NodeCondition) {
			for _, c := range write.After.(*corev1.Node).Status.Conditions {
				if c.Type == "DrainInProgress" || c.Type == "Drained" {
					shown = append(shown, c)
				}
			}
			return shown
		}
		shows := func(node *corev1.Node, pods ...drain.Pod) Facts {
			f := facts(node, pods...)
			f.Conditions = true
			return f
		}
		write := Decide(facts(Node("m"), plain), at(1)).Write
		Expect(ofDrains(write)).To(BeEmpty(), "nobody wants it")
		Expect(write.Lock).To(BeFalse())
		write = Decide(shows(Node("m"), plain), at(1)).Write
		Expect(write.Lock).To(BeTrue(), "somebody else may have written meanwhile")
		Expect(ofDrains(write)).To(ConsistOf(
			And(HaveField("Type", BeEquivalentTo("DrainInProgress")), HaveField("Status", corev1.ConditionTrue), HaveField("Reason", "MachineUpdate"), HaveField("Message", "Machine-controller-manager drains the node for an update of its pool.")),
			And(HaveField("Type", BeEquivalentTo("Drained")), HaveField("Status", corev1.ConditionFalse), HaveField("Reason", "MachineUpdate"))))
		shown := write.After.(*corev1.Node)
		Condition("Drained", corev1.ConditionTrue, "KubectlDrainCompleted", "")(shown)
		Expect(Decide(shows(shown, plain), at(1)).Write.Changes()).To(BeFalse(), "somebody else drains it, too")
		Expect(ofDrains(Decide(shows(shown, plain), at(45)).Write)).To(HaveLen(2), "strategies act")
		Expect(ofDrains(Decide(facts(shown, plain), at(1)).Write)).To(ConsistOf(HaveField("Reason", "KubectlDrainCompleted")), "nobody wants it any more")
		Expect(ofDrains(Show(shown, nil, true, at(2)))).To(ConsistOf(HaveField("Reason", "KubectlDrainCompleted")))
		Expect(Show(Node("m", Condition("Drained", corev1.ConditionTrue, "KubectlDrainCompleted", "")), nil, true, at(2)).Changes()).To(BeFalse())
	})

	DescribeTable("D11: when the node shows something else", func(status corev1.ConditionStatus, reason, text string, since time.Time, changes bool) {
		node := Node("m", shown(underWay, began))
		wanted := &corev1.NodeCondition{Type: "NodeDrain", Status: status, Reason: reason, Message: text, LastTransitionTime: metav1.NewTime(since)}
		write := Show(node, wanted, false, at(1))
		Expect(write.Changes()).To(Equal(changes))
		conditions := write.After.(*corev1.Node).Status.Conditions
		Expect(conditions).To(HaveLen(len(node.Status.Conditions)))
		Expect(conditions[len(conditions)-1]).To(And(HaveField("Status", status), HaveField("Reason", reason), HaveField("Message", text),
			HaveField("LastTransitionTime.Time", since)))
	},
		Entry("the same", corev1.ConditionTrue, underWay, "in other words", began, false),
		Entry("another message", corev1.ConditionTrue, underWay, "in words", began, true),
		Entry("another reason", corev1.ConditionTrue, timedOut, "in other words", began, true),
		Entry("another status", corev1.ConditionFalse, underWay, "in other words", began, true),
		Entry("another drain", corev1.ConditionTrue, underWay, "in other words", at(1), true),
	)
})
