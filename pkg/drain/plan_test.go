// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"cmp"
	"math"
	"regexp"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
)

// begin is when drains begin, and minutes returns a time after that.
var begin = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

func minutes(m float64) time.Time { return begin.Add(time.Duration(m * float64(time.Minute))) }

// defaults are the strategies of a Shoot that sets nothing but that it wants them.
var defaults = Strategies{Timeout: 45 * time.Minute, ExpectedDrainTime: 8 * time.Minute, PDBForceDrainTimeout: time.Hour}

const year = 8760 * time.Hour

// Pods of namespace "shop", in which a budget selects the label app=web.
var (
	plain     = Pod{Namespace: "shop", Name: "plain"}
	protected = Pod{Namespace: "shop", Name: "web", Labels: map[string]string{"app": "web"}}
	shop      = budgets("shop", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}})
)

// budgets returns what is known when a namespace has a budget for each of the selectors.
func budgets(namespace string, selectors ...*metav1.LabelSelector) Budgets {
	var list []policyv1.PodDisruptionBudget
	for _, selector := range selectors {
		list = append(list, policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{Selector: selector}})
	}
	b := Budgets{}
	b.Know(namespace, list)
	return b
}

// going returns a pod whose grace period ends then.
func going(pod Pod, graceEnds time.Time, finalizers bool) Pod {
	if pod.GraceEnds = graceEnds; finalizers {
		pod.Finalizers = []string{"example.com/finalizer"}
	}
	return pod
}

// stagesAfter returns a policy with a stage for all pods after each of the times, in minutes.
func stagesAfter(timeout, expected int, after ...int) Policy {
	policy := Policy{Timeout: time.Duration(timeout) * time.Minute, ExpectedDrainTime: time.Duration(expected) * time.Minute}
	for _, m := range after {
		policy.Stages = append(policy.Stages, Stage{Name: "stage", After: time.Duration(m) * time.Minute, Selector: Selector{State: NotTerminating}, Verb: Delete})
	}
	return policy
}

var _ = Describe("Plan (D12)", func() {
	DescribeTable("D7: when a drain has failed", func(policy Policy, started float64, want bool) {
		_, _, failed := Plan(minutes(0), minutes(-started), []Pod{plain}, shop, nil, policy)
		Expect(failed).To(Equal(want))
	},
		Entry("without stages, long after the timeout", stagesAfter(45, 0), 90.0, true),
		Entry("without stages, before it has begun", stagesAfter(45, 0), -22.5, false),
		Entry("after the last stage and the time that it has", stagesAfter(15, 8, 30, 60), 69.0, true),
		Entry("after stages that are before the timeout", stagesAfter(15, 8, 5, 10), 31.0, true),
		Entry("not while a stage is pending that has pods", stagesAfter(15, 8, 10, 30), 20.0, false),
	)

	DescribeTable("D7: when a drain has failed by default, to the moment", func(want float64, strategies Strategies, pods ...Pod) {
		policy := strategies.Policy()
		_, next, failed := Plan(minutes(want), begin, pods, shop, nil, policy)
		Expect(failed).To(BeFalse())
		Expect(next).To(Equal(minutes(want).Add(time.Nanosecond)))
		_, next, failed = Plan(next, begin, pods, shop, nil, policy)
		Expect(failed).To(BeTrue())
		Expect(next).To(BeZero())
	},
		Entry("without a protected pod", 53.0, defaults, plain),
		Entry("with one", 76.0, defaults, plain, protected),
		Entry("with nothing but one", 76.0, defaults, protected),
		Entry("with one that is terminating", 76.0, defaults, going(protected, minutes(40), true)),
		Entry("with a pod of an ignored namespace", 53.0, defaults, ignored(plain)),
		Entry("with a protected pod of an ignored namespace", 53.0, defaults, ignored(protected)),
		Entry("while the strategies are disabled", 45.0, Strategies{Disabled: true, Timeout: 45 * time.Minute, ExpectedDrainTime: 8 * time.Minute, PDBForceDrainTimeout: time.Hour}, protected),
	)

	It("D7: should still have failed when the protected pods would not be due yet, and not without pods", func() {
		_, _, failed := Plan(minutes(70), begin, []Pod{plain}, shop, nil, defaults.Policy())
		Expect(failed).To(BeTrue())
		_, next, failed := Plan(minutes(1000), begin, nil, shop, nil, defaults.Policy())
		Expect(failed).To(BeFalse())
		Expect(next).To(BeZero())
	})

	DescribeTable("D5: what is done with a pod, and when", func(pod Pod, at float64, strategy string, verb Verb) {
		deadline := minutes(at)
		for _, test := range []struct {
			now  time.Time
			want []Action
		}{
			{deadline.Add(-time.Nanosecond), []Action{{Pod: pod}}},
			{deadline, []Action{{Pod: pod, Verb: verb, Stage: stage(defaults, strategy)}}},
			{deadline.Add(24 * time.Hour), []Action{{Pod: pod, Verb: verb, Stage: stage(defaults, strategy)}}},
		} {
			actions, next, _ := Plan(test.now, begin, []Pod{pod}, shop, nil, defaults.Policy())
			Expect(actions).To(Equal(test.want))
			if test.now.Before(deadline) {
				Expect(next).To(Equal(deadline))
			}
		}
	},
		Entry("a pod is deleted", plain, 45.0, "delete", Delete),
		Entry("finalizers are removed", going(plain, minutes(10), true), 45.0, "finalizers", RemoveFinalizers),
		Entry("they are not while the grace period lasts", going(plain, minutes(50), true), 50.0, "finalizers", RemoveFinalizers),
		Entry("a stuck pod is deleted again", going(plain, minutes(10), false), 45.0, "stuck", Delete),
		Entry("not while its grace period lasts", going(plain, minutes(60), false), 60.0, "stuck", Delete),
		Entry("a protected pod is deleted", protected, 68.0, "PDB delete", Delete),
		Entry("finalizers of a protected pod are removed", going(protected, minutes(10), true), 68.0, "PDB finalizers", RemoveFinalizers),
		Entry("not while its grace period lasts", going(protected, minutes(90), true), 90.0, "PDB finalizers", RemoveFinalizers),
		Entry("a protected pod that is stuck is deleted again", going(protected, minutes(10), false), 68.0, "PDB stuck", Delete),
	)

	It("D5: should act before the timeout on protected pods that are due before it", func() {
		strategies := defaults
		strategies.PDBForceDrainTimeout = 0
		actions, next, _ := Plan(minutes(8), begin, []Pod{plain, protected}, shop, nil, strategies.Policy())
		Expect(verbs(actions)).To(Equal([]Verb{Wait, Delete}))
		Expect(next).To(Equal(minutes(45)))
	})

	DescribeTable("D5: should keep protected pods for as long as there is, also where a sum of times has no end", func(strategies Strategies, until time.Duration) {
		for _, now := range []time.Time{begin, begin.Add(until - time.Nanosecond)} {
			actions, _, failed := Plan(now, begin, []Pod{protected}, shop, nil, strategies.Policy())
			Expect(verbs(actions)).To(Equal([]Verb{Wait}))
			Expect(failed).To(BeFalse())
		}
	},
		Entry("the longest times that are valid", Strategies{Timeout: year, ExpectedDrainTime: year, PDBForceDrainTimeout: year}, 2*year),
		Entry("a time with which the deadline would be negative", Strategies{Timeout: time.Hour, ExpectedDrainTime: time.Hour, PDBForceDrainTimeout: math.MaxInt64}, year+time.Hour),
		Entry("times with which everything would be", Strategies{Timeout: math.MaxInt64, ExpectedDrainTime: math.MaxInt64, PDBForceDrainTimeout: math.MaxInt64}, 2*year),
	)

	It("D5: should act on what comes after the deadline", func() {
		actions, _, _ := Plan(minutes(46), begin, []Pod{plain, {Namespace: "shop", Name: "late"}}, shop, nil, defaults.Policy())
		Expect(verbs(actions)).To(Equal([]Verb{Delete, Delete}))
	})

	It("D4: should look at each deadline while it is not known which pods are protected, and take all for protected until then", func() {
		actions, next, failed := Plan(minutes(1), begin, []Pod{plain}, nil, nil, defaults.Policy())
		Expect(verbs(actions)).To(Equal([]Verb{Wait}))
		Expect(next).To(Equal(minutes(45)))
		Expect(failed).To(BeFalse())
		actions, next, failed = Plan(minutes(60), begin, []Pod{plain}, nil, nil, defaults.Policy())
		Expect(verbs(actions)).To(Equal([]Verb{Wait}))
		Expect(next).To(Equal(minutes(68)))
		Expect(failed).To(BeFalse())
		actions, _, _ = Plan(minutes(68), begin, []Pod{plain}, nil, nil, defaults.Policy())
		Expect(actions[0].Stage.Name).To(Equal("PDB delete"))
	})

	It("D4, D5: should wait for the later deadline while it is not known which pods are protected, whichever that is", func() {
		early := Strategies{Timeout: 45 * time.Minute, ExpectedDrainTime: 8 * time.Minute}
		actions, next, _ := Plan(minutes(8), begin, []Pod{plain}, nil, nil, early.Policy())
		Expect(verbs(actions)).To(Equal([]Verb{Wait}))
		Expect(next).To(Equal(minutes(45)))
		actions, _, _ = Plan(minutes(45), begin, []Pod{plain}, nil, nil, early.Policy())
		Expect(verbs(actions)).To(Equal([]Verb{Delete}))
	})

	It("D4: should look at the later deadline also if no stage for the pod's state begins then", func() {
		policy := Policy{Timeout: time.Hour, Stages: []Stage{
			{Name: "unprotected", After: 45 * time.Minute, Selector: Selector{UnprotectedPods, NotTerminating}, Verb: Delete},
			{Name: "stuck", After: 68 * time.Minute, Selector: Selector{ProtectedPods, Stuck}, Verb: Delete},
		}}
		actions, next, _ := Plan(minutes(45), begin, []Pod{plain}, nil, nil, policy)
		Expect(verbs(actions)).To(Equal([]Verb{Wait}))
		Expect(next).To(Equal(minutes(68)))
	})

	DescribeTable("D4: which pods are protected", func(b Budgets, want string) {
		pod := Pod{Namespace: "shop", Name: "p", Labels: map[string]string{"app": "web", "tier": "front"}}
		actions, _, _ := Plan(minutes(100), begin, []Pod{pod}, b, nil, defaults.Policy())
		Expect(actions[0].Stage.Name).To(Equal(want))
	},
		Entry("none without a budget", budgets("shop"), "delete"),
		Entry("by all labels of the selector", budgets("shop", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "tier": "front"}}), "PDB delete"),
		Entry("not by one of several labels", budgets("shop", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web", "tier": "back"}}), "delete"),
		Entry("by an expression", budgets("shop", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpIn, Values: []string{"back", "front"}}}}), "PDB delete"),
		Entry("not by an expression that excludes it", budgets("shop", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: metav1.LabelSelectorOpDoesNotExist}}}), "delete"),
		Entry("by an empty selector", budgets("shop", &metav1.LabelSelector{}), "PDB delete"),
		Entry("not by one without a selector", budgets("shop", nil), "delete"),
		Entry("by the second budget", budgets("shop", nil, &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}), "PDB delete"),
		Entry("not by a budget of another namespace", both(budgets("shop"), budgets("other", &metav1.LabelSelector{})), "delete"),
		Entry("by one that cannot be read", budgets("shop", &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "tier", Operator: "Near"}}}), "PDB delete"),
	)

	DescribeTable("D10: should keep a pod that may still write to its volumes", func(pod Pod) {
		pod.AtRisk = true
		actions, _, failed := Plan(minutes(100), begin, []Pod{pod}, shop, nil, defaults.Policy())
		Expect(verbs(actions)).To(Equal([]Verb{Keep}))
		Expect(failed).To(BeTrue())
		actions, _, _ = Plan(minutes(1), begin, []Pod{pod}, shop, nil, defaults.Policy())
		Expect(verbs(actions)).To(Equal([]Verb{Wait}))
	},
		Entry("that is not terminating", plain),
		Entry("with finalizers", going(plain, begin, true)),
		Entry("that is stuck", going(plain, begin, false)),
		Entry("that is protected", protected),
	)

	It("D3: should leave pods of ignored namespaces alone, whatever is the matter with them", func() {
		for _, pod := range []Pod{plain, protected, going(plain, begin, true), going(plain, begin, false)} {
			actions, _, _ := Plan(minutes(1000), begin, []Pod{ignored(pod)}, shop, nil, defaults.Policy())
			Expect(verbs(actions)).To(Equal([]Verb{Wait}))
		}
	})

	It("D9: should do nothing while the strategies are disabled", func() {
		strategies := defaults
		strategies.Disabled = true
		actions, _, failed := Plan(minutes(1000), begin, []Pod{plain, protected, going(plain, begin, true)}, shop, nil, strategies.Policy())
		Expect(verbs(actions)).To(HaveEach(Wait))
		Expect(failed).To(BeTrue())
	})

	DescribeTable("P7: should evict first, and delete by force whatever is left after the timeout", func(pod Pod, before, after Verb) {
		policy := Policy{Timeout: time.Hour, Stages: []Stage{
			{Name: "evict", Selector: Selector{AllPods, NotTerminating}, Verb: Evict},
			{Name: "force", After: time.Hour, Selector: Selector{AllPods, AnyState}, Verb: Delete},
		}}
		actions, _, _ := Plan(minutes(59), begin, []Pod{pod}, nil, nil, policy)
		Expect(verbs(actions)).To(Equal([]Verb{before}))
		actions, _, _ = Plan(minutes(60), begin, []Pod{pod}, nil, nil, policy)
		Expect(verbs(actions)).To(Equal([]Verb{after}))
	},
		Entry("a pod", plain, Evict, Delete),
		Entry("a pod that is terminating", going(plain, minutes(90), true), Wait, Delete),
		Entry("a pod at risk", Pod{Name: "p", AtRisk: true}, Evict, Keep),
	)
})

var _ = DescribeTable("D3: what is known of a pod", func(edit podOption, want Pod) {
	want.Namespace, want.Name, want.Managed = "default", "p", !want.Mirror
	want.Owner = cmp.Or(want.Owner, "default/ReplicaSet rs")
	Expect(NewPod(pod("p", edit))).To(Equal(want))
},
	Entry("nothing", podOption(func(*corev1.Pod) {}), Pod{}),
	Entry("a DaemonSet", ownedBy("DaemonSet", "ds"), Pod{DaemonSet: "ds", Owner: "default/DaemonSet ds"}),
	Entry("not a DaemonSet of somebody's own", podOption(func(p *corev1.Pod) {
		p.OwnerReferences[0].Kind, p.OwnerReferences[0].APIVersion = "DaemonSet", "example.com/v1"
	}), Pod{Owner: "default/DaemonSet rs"}),
	Entry("a mirror", podOption(mirror), Pod{Mirror: true, Owner: "default"}),
	Entry("success", podOption(func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), Pod{Finished: true}),
	Entry("failure", podOption(func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }), Pod{Finished: true}),
	Entry("finalizers, and when it must have ended", podOption(terminating), Pod{GraceEnds: begin, Finalizers: []string{"example.com/finalizer"}}),
	Entry("that only finalizers keep it", podOption(func(p *corev1.Pod) { terminating(p); p.DeletionGracePeriodSeconds = new(int64(0)) }),
		Pod{GraceEnds: begin, Forced: true, Finalizers: []string{"example.com/finalizer"}}),
	Entry("not where it has none", podOption(func(p *corev1.Pod) { terminating(p); p.Finalizers, p.DeletionGracePeriodSeconds = nil, new(int64(0)) }), Pod{GraceEnds: begin}),
	Entry("not while it has a grace period", podOption(func(p *corev1.Pod) { terminating(p); p.DeletionGracePeriodSeconds = new(int64(1)) }),
		Pod{GraceEnds: begin, Finalizers: []string{"example.com/finalizer"}}),
	Entry("when it was created", podOption(func(p *corev1.Pod) { p.CreationTimestamp = metav1.NewTime(begin) }), Pod{Created: begin}),
	Entry("whose it is", ownedBy("Agent", "a"), Pod{Owner: "default/Agent a"}),
	Entry("a volume", volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}), Pod{Volumes: true}),
	Entry("an emptyDir", volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}), Pod{EmptyDir: true}),
	Entry("resources that it requests or limits, also in an init container", podOption(func(p *corev1.Pod) {
		p.Spec.InitContainers = []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": {}, "cpu": {}}}}}
		p.Spec.Containers = []corev1.Container{{}, {Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": {}, "rdma": {}}}}}
	}), Pod{Resources: []corev1.ResourceName{"cpu", "nvidia.com/gpu", "rdma"}}),
)

var _ = It("M5: should know a pod without a controller", func() {
	Expect(NewPod(pod("p", func(p *corev1.Pod) { p.OwnerReferences[0].Controller = nil })).Managed).To(BeFalse())
})

var _ = DescribeTable("D3: which namespaces a pattern ignores", func(pattern, namespace string, want bool) {
	compiled, err := CompileNamespacePattern(pattern)
	Expect(err).NotTo(HaveOccurred())
	Expect((&Strategies{IgnoredNamespaces: []*regexp.Regexp{compiled}}).Ignores(namespace)).To(Equal(want))
},
	Entry("its name", "kube-system", "kube-system", true),
	Entry("not one that it begins", "kube-system", "kube-system-2", false),
	Entry("not one that it ends", "system", "kube-system", false),
	Entry("one of two, as a whole", "a|b", "b", true),
	Entry("not one of two, in part", "a|b", "ab", false),
	Entry("whatever follows", "shop-.*", "shop-1", true),
	Entry("not all with the empty pattern", "", "a", false),
)

var _ = DescribeTable("patterns that are not valid", func(pattern string) {
	_, err := CompileNamespacePattern(pattern)
	Expect(err).To(HaveOccurred())
},
	Entry("a bracket too few", "(a"),
	Entry("one that would be valid inside of another", "a)|(?:b"),
	Entry("a repetition of nothing", "*"),
	Entry("too many bytes", strings.Repeat("a", 257)),
	Entry("a class of Unicode", `\pL`),
	Entry("a repetition of too much without an end", "(a{500,}){2}"),
	Entry("a repetition of too much", "(a{30}){30}b{200}"),
)

// stage returns the stage of that name.
func stage(strategies Strategies, name string) *Stage {
	for _, stage := range strategies.Policy().Stages {
		if stage.Name == name {
			return &stage
		}
	}
	return nil
}

func verbs(actions []Action) []Verb {
	var verbs []Verb
	for _, action := range actions {
		verbs = append(verbs, action.Verb)
	}
	return verbs
}

func ignored(pod Pod) Pod {
	pod.Ignored = true
	return pod
}

func both(a, b Budgets) Budgets {
	for namespace, selectors := range b {
		a[namespace] = selectors
	}
	return a
}

var _ = DescribeTable("P7: which pods belong to the node", func(pod Pod, want bool) {
	Expect(pod.Belongs()).To(Equal(want))
},
	Entry("one of a DaemonSet", Pod{DaemonSet: "ds"}, true),
	Entry("one that the node itself runs", Pod{Mirror: true}, true),
	Entry("one that has ended", Pod{Finished: true}, true),
	Entry("no other", Pod{Owner: "shop/ReplicaSet a", Managed: true}, false),
)

var _ = It("D6: should tell once of each owner whose pods came back, in order", func() {
	deletions := Deletions{}
	note := func(verb Verb) []string {
		return deletions.Note([]Action{{Verb: verb, Pod: Pod{Owner: "b"}}, {Verb: verb, Pod: Pod{Owner: "a"}}, {Verb: verb, Pod: Pod{Owner: "b"}}}, begin)
	}
	Expect(note(Delete)).To(BeEmpty())
	Expect(note(Evict)).To(BeEmpty())
	Expect(note(Terminate)).To(Equal([]string{"a", "b"}))
	Expect(note(Terminate)).To(BeEmpty())
})

var _ = It("D6: should forget an owner an hour after its last pod was deleted", func() {
	deletions := Deletions{"a": {First: begin, Last: begin}, "b": {First: begin, Last: minutes(1)}}
	deletions.Note(nil, minutes(60))
	Expect(deletions).To(HaveLen(2))
	deletions.Note(nil, minutes(61))
	Expect(deletions).To(Equal(Deletions{"b": {First: begin, Last: minutes(1)}}))
})

var _ = It("D6: should tell of the first owners by name", func() {
	Expect(ReturnsText(strings.Split("abcdefg", ""))).To(HaveSuffix("at growing intervals of up to 5m0s: pods of a, b, c, d, e, and 2 more"))
})

var _ = It("M5: should do nothing but evict, and have failed after the timeout", func() {
	actions, _, failed := Plan(minutes(10), begin, []Pod{plain, going(plain, begin, false)}, nil, nil, EvictionPolicy(10*time.Minute))
	Expect(verbs(actions)).To(Equal([]Verb{Evict, Wait}))
	Expect(failed).To(BeFalse())
	_, _, failed = Plan(minutes(11), begin, []Pod{plain}, nil, nil, EvictionPolicy(10*time.Minute))
	Expect(failed).To(BeTrue())
})

var _ = DescribeTable("what a pod is called", func(pod Pod, name string) {
	Expect(pod.NameAt(begin)).To(Equal(name))
},
	Entry("by its key", plain, "shop/plain"),
	Entry("also while it terminates", going(plain, minutes(1), true), "shop/plain"),
)

var _ = It("D6: should remember no more owners than a thousand, and those that it knows", func() {
	deletions := Deletions{}
	for i := range 999 {
		deletions[strconv.Itoa(i)] = Deletion{First: begin, Last: begin}
	}
	note := func(owner string) { deletions.Note([]Action{{Verb: Delete, Pod: Pod{Owner: owner}}}, minutes(1)) }
	note("the last")
	Expect(deletions).To(HaveLen(1000))
	note("one more")
	Expect(deletions).To(And(HaveLen(1000), Not(HaveKey("one more"))))
	note("0")
	Expect(deletions["0"]).To(Equal(Deletion{First: begin, Last: minutes(1)}))
})
