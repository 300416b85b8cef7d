// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
)

// counted is what has become of actions in a step that is taken some time after the drain has begun.
type counted struct {
	after                          time.Duration
	reachable, resumed, unfinished bool
	actions                        []Action
	err                            error
}

func (c counted) progress() Progress {
	step := Step{
		Options: Options{Since: begin, Timeout: 2 * time.Hour}, Now: begin.Add(c.after),
		Reachable: c.reachable, Resumed: c.resumed, Deletions: Deletions{},
	}
	for _, action := range c.actions {
		step.Count(action, c.err, "refused")
	}
	return step.End(c.unfinished)
}

var _ = Describe("Step", func() {
	var (
		volumes = Pod{Namespace: "shop", Name: "data", Volumes: true}
		forced  = going(Pod{Namespace: "shop", Name: "held", Forced: true}, begin, true)
		blocked = []string{"namespace shop: refused"}
	)
	of := func(pod Pod, verbs ...Verb) (actions []Action) {
		for _, verb := range verbs {
			actions = append(actions, Action{Pod: pod, Verb: verb})
		}
		return actions
	}
	back := func(verb Verb) []Action { return []Action{{Pod: plain, Verb: verb, Returned: true}} }
	resource := schema.GroupResource{Resource: "pods"}

	DescribeTable("P7, P11: what it tells, and when the next one is due", func(c counted, want Progress) {
		Expect(c.progress()).To(Equal(want))
	},
		Entry("nothing is left", counted{}, Progress{Done: true}),
		Entry("pods that go", counted{reachable: true, actions: of(plain, Evict, Evict, Wait)}, Progress{Evicted: 2, Waiting: 1, Next: time.Second}),
		Entry("less often as time passes", counted{reachable: true, after: 20 * time.Second, actions: of(plain, Wait)}, Progress{Waiting: 1, Next: 5 * time.Second}),
		Entry("but often enough", counted{reachable: true, after: time.Hour, actions: of(plain, Wait)}, Progress{Waiting: 1, Next: 15 * time.Second}),
		Entry("and at the timeout", counted{reachable: true, after: 2*time.Hour - time.Second, actions: of(plain, Wait)}, Progress{Waiting: 1, Next: time.Second}),
		Entry("after which it is none", counted{reachable: true, after: 2 * time.Hour, actions: of(plain, Wait)}, Progress{Waiting: 1, Next: 15 * time.Second}),
		Entry("those that wait for a kubelet that is dead", counted{after: time.Hour, actions: of(plain, Wait)}, Progress{Waiting: 1, Next: time.Minute}),
		Entry("not while others are evicted from there", counted{after: time.Hour, actions: of(plain, Wait, Evict)}, Progress{Evicted: 1, Waiting: 1, Next: 15 * time.Second}),
		Entry("or deleted by force", counted{after: 3 * time.Hour, actions: of(plain, Wait, Delete)}, Progress{Waiting: 1, Forced: 1, Next: 15 * time.Second}),
		Entry("or came back", counted{after: 3 * time.Hour, actions: back(Delete)}, Progress{Returned: 1, Again: 1, Next: 15 * time.Second}),
		Entry("but if they have their grace period", counted{after: 3 * time.Hour, actions: back(Wait)}, Progress{Returned: 1, Next: time.Minute}),
		Entry("those with volumes on a node that does not answer", counted{after: 3 * time.Hour, actions: of(volumes, Delete)}, Progress{Forced: 1, ForcedWithVolumes: 1, Next: 15 * time.Second}),
		Entry("on one that does", counted{reachable: true, after: 3 * time.Hour, actions: of(volumes, Delete)}, Progress{Forced: 1, Next: 15 * time.Second}),
		Entry("kept ones", counted{after: 3 * time.Hour, actions: of(volumes, Keep)}, Progress{Kept: 1, Next: 5 * time.Minute}),
		Entry("kept ones beside others", counted{after: 3 * time.Hour, actions: of(volumes, Keep, Wait)}, Progress{Kept: 1, Waiting: 1, Next: time.Minute}),
		Entry("a kept one that could not be read", counted{after: 3 * time.Hour, actions: of(volumes, Keep), err: context.DeadlineExceeded}, Progress{BlockedBy: blocked, Next: 15 * time.Second}),
		Entry("those that only their finalizers keep", counted{after: 3 * time.Hour, actions: of(forced, Wait)}, Progress{Finalizing: []string{"shop/held (example.com/finalizer)"}, Next: time.Minute}),
		Entry("those that a budget protects", counted{after: time.Hour, actions: of(protected, Evict), err: apierrors.NewTooManyRequests("", 0)}, Progress{BlockedBy: blocked, Next: 15 * time.Second}),
		Entry("no answer", counted{after: 4 * time.Second, actions: of(plain, Evict), err: context.DeadlineExceeded}, Progress{BlockedBy: blocked, Next: 15 * time.Second}),
		Entry("one that is gone, which the next list shows", counted{reachable: true, actions: of(plain, Evict), err: apierrors.NewNotFound(resource, "plain")}, Progress{Next: time.Second}),
		Entry("one that is another by now", counted{reachable: true, actions: of(plain, Delete), err: apierrors.NewConflict(resource, "plain", errors.New("uid"))}, Progress{Next: time.Second}),
		Entry("pods that were not reached", counted{after: time.Hour, unfinished: true, actions: of(plain, Evict)}, Progress{Evicted: 1, Partial: true, Next: time.Second}),
		Entry("pods that may have come before those that were left", counted{after: 4 * time.Second, resumed: true}, Progress{Partial: true, Next: 15 * time.Second}),
	)

	It("D6: should take down what it deleted by force, and nothing else", func() {
		for verb, want := range map[Verb]int{Wait: 0, Keep: 0, Evict: 0, Delete: 1, Terminate: 1} {
			for _, err := range []error{nil, errors.New("refused")} {
				step := Step{Options: Options{Since: begin}, Now: begin, Deletions: Deletions{}}
				step.Count(Action{Pod: plain, Verb: verb}, err, "")
				step.End(false)
				if err != nil {
					want = 0
				}
				Expect(step.Deletions).To(HaveLen(want), "%d, %v", verb, err)
			}
		}
	})

	It("P11: should name the first errors, and count the others", func() {
		c := counted{err: errors.New("denied")}
		for i := range 5 {
			c.actions = append(c.actions, Action{Pod: Pod{Namespace: "shop", Name: fmt.Sprint(i)}, Verb: Delete})
		}
		Expect(c.progress().Incomplete).To(MatchError(And(ContainSubstring("pod shop/4: refused"), Not(ContainSubstring("more")))))
		c.actions = append(c.actions, Action{Pod: plain, Verb: Delete})
		Expect(c.progress().Incomplete).To(MatchError(And(Not(ContainSubstring("shop/plain")), ContainSubstring("and 1 more"))))
	})

	It("P11: should tell of 100 blockers, sorted, each once", func() {
		c := counted{err: apierrors.NewTooManyRequests("", 0)}
		for i := range 101 {
			pod := Pod{Namespace: fmt.Sprintf("n%03d", 100-i)}
			c.actions = append(c.actions, of(pod, Evict, Evict)...)
		}
		blocked := c.progress().BlockedBy
		Expect(blocked).To(HaveLen(100))
		Expect(blocked[0]).To(Equal("namespace n001: refused"))
		Expect(blocked[99]).To(Equal("namespace n100: refused"))
	})

	DescribeTable("P7: which pods are at risk", func(step Step, pod Pod, want Verb) {
		step.Options.Since, step.Now = begin, begin.Add(time.Hour)
		actions := step.Plan([]Pod{pod})
		Expect(actions).To(HaveExactElements(HaveField("Verb", want)))
	},
		Entry("those with volumes on a node that does not answer", Step{}, volumes, Keep),
		Entry("none on one that does", Step{Reachable: true}, volumes, Delete),
		Entry("none where the pool risks it", Step{Options: Options{ForceVolumes: true}}, volumes, Delete),
		Entry("none without volumes", Step{}, plain, Delete),
	)
})
