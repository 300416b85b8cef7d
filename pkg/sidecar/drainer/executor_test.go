// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drainer_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/drainer"
)

// act returns an action on a pod of that name.
func act(verb Verb, name string) Action {
	return Action{Verb: verb, Pod: Pod{Namespace: "default", Name: name, UID: "uid", ResourceVersion: "7"}}
}

var _ = Describe("Executor", func() {
	It("D6: should name the pod by its UID when it deletes or evicts it", func(ctx SpecContext) {
		s := newShoot()
		Expect((&Executor{Client: s}).Execute(ctx, []Action{act(Delete, "a"), act(Evict, "b")})).To(Equal([]error{nil, nil}))
		Expect(s.deleted).To(ConsistOf("a"))
		Expect(s.evicted).To(ConsistOf("b"))
		Expect(s.options).To(HaveEach(HaveField("Preconditions.UID", HaveValue(BeEquivalentTo("uid")))))
		Expect(s.options).To(ContainElement(HaveField("GracePeriodSeconds", HaveValue(BeZero()))))
	})

	It("D6: should remove finalizers of that very pod as it was looked at", func(ctx SpecContext) {
		s := newShoot()
		Expect((&Executor{Client: s}).Execute(ctx, []Action{act(RemoveFinalizers, "a")})).To(Equal([]error{nil}))
		Expect(s.patches).To(HaveKeyWithValue("a", MatchJSON(`{"metadata": {"uid": "uid", "resourceVersion": "7", "finalizers": null}}`)))
	})

	It("D6: should go on with the others when it fails on one, and say which", func(ctx SpecContext) {
		s := newShoot()
		s.refuse["a"] = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("no"))
		s.refuse["b"] = apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "b", errors.New("changed"))
		s.refuse["gone"] = apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "gone")
		s.refuse["other"] = apierrors.NewConflict(schema.GroupResource{Resource: "pods"}, "other", errors.New("another one has its name"))
		errs := (&Executor{Client: s}).Execute(ctx, []Action{act(Delete, "a"), act(RemoveFinalizers, "b"), act(Delete, "gone"), act(Delete, "other"), act(Delete, "c")})
		Expect(errs).To(HaveExactElements(
			MatchError(ContainSubstring(`failed to deal with pod default/a: pods "a" is forbidden`)),
			MatchError(ContainSubstring("failed to deal with pod default/b: ")),
			BeNil(), BeNil(), BeNil(),
		))
		Expect(s.deleted).To(ConsistOf("a", "gone", "other", "c"))
	})

	It("D6: should go on with the others when it panics on one, and say which", func(ctx SpecContext) {
		s := newShoot()
		s.refuse["a"] = errPanic
		errs := (&Executor{Client: s}).Execute(ctx, []Action{act(Delete, "a"), act(Delete, "b")})
		Expect(errs).To(HaveExactElements(MatchError("failed to deal with pod default/a: panic: what is this"), BeNil()))
		Expect(s.deleted).To(ConsistOf("a", "b"))
	})

	It("D4: should not know of the budgets of a namespace on which it panics", func(ctx SpecContext) {
		s := newShoot()
		s.budgets = map[string]error{"a": errPanic}
		_, err := (&Executor{Client: s}).Budgets(ctx, []string{"a", "b"})
		Expect(err).To(MatchError("failed to list the PodDisruptionBudgets of namespace a: panic: what is this"))
	})

	It("should do nothing with pods that are waited for or kept", func(ctx SpecContext) {
		s := newShoot()
		Expect((&Executor{Client: s}).Execute(ctx, []Action{act(Wait, "a"), act(Keep, "b")})).To(Equal([]error{nil, nil}))
		Expect(s.calls).To(BeEmpty())
	})
})

// TestExecuteHangs turns the time.
func TestExecuteHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		s := newShoot()
		var actions []Action
		for _, name := range names("p", 12) {
			s.refuse[name] = errHang
			actions = append(actions, act(Delete, name))
		}
		start := time.Now()
		errs := (&Executor{Client: s}).Execute(t.Context(), actions)
		g.Expect(time.Since(start)).To(BeNumerically("<=", acceptable))
		g.Expect(errs[:4]).To(HaveEach(MatchError(HaveSuffix("no answer within 5s"))))
		g.Expect(errs[4:]).To(HaveEach(MatchError(ErrNotReached)))
	})
}
