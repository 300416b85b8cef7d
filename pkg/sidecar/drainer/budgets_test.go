// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drainer_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/drainer"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/memory"
)

// budgetServer is an API server with as many PodDisruptionBudgets in each namespace, of which the last selects app=web.
type budgetServer struct {
	count int
	edit  func(*policyv1.PodDisruptionBudget)
	// answer, if set, is asked first for an error, by the number of the call of the namespace, counted from 1.
	answer func(namespace string, call int, continues bool) error
	// endless says that each page continues.
	endless bool

	mutex   sync.Mutex
	calls   map[string]int
	biggest int
}

func (s *budgetServer) executor() *Executor {
	s.calls = map[string]int{}
	return &Executor{Client: kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://shoot", Transport: s, QPS: -1})}
}

// RoundTrip implements http.RoundTripper.
func (s *budgetServer) RoundTrip(request *http.Request) (*http.Response, error) {
	namespace := strings.Split(request.URL.Path, "/")[5]
	query := request.URL.Query()
	from, _ := strconv.Atoi(query.Get("continue"))
	to := s.count
	if limit, _ := strconv.Atoi(query.Get("limit")); limit > 0 {
		to = min(to, from+limit)
	}
	s.mutex.Lock()
	s.calls[namespace]++
	call := s.calls[namespace]
	s.biggest = max(s.biggest, to-from)
	s.mutex.Unlock()

	list := &policyv1.PodDisruptionBudgetList{TypeMeta: metav1.TypeMeta{APIVersion: "policy/v1", Kind: "PodDisruptionBudgetList"}}
	for i := from; i < to; i++ {
		budget := policyv1.PodDisruptionBudget{Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": fmt.Sprint(i)}}}}
		if i == s.count-1 {
			budget.Spec.Selector.MatchLabels["app"] = "web"
		}
		if s.edit != nil {
			s.edit(&budget)
		}
		list.Items = append(list.Items, budget)
	}
	if to < s.count {
		list.Continue = strconv.Itoa(to)
	} else if s.endless {
		list.Continue = "0"
	}
	var (
		object any = list
		code       = http.StatusOK
	)
	if s.answer != nil {
		if status, failed := s.answer(namespace, call, from > 0).(apierrors.APIStatus); failed {
			answer := status.Status()
			answer.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
			object, code = &answer, int(answer.Code)
		}
	}
	body, err := json.Marshal(object)
	return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewReader(body)), Request: request}, err
}

var _ = Describe("Budgets", func() {
	// verbOf returns what is to be done with a pod for which no budget counts after the timeout, and otherwise not yet.
	verbOf := func(budgets Budgets, app string) Verb {
		pod := Pod{Namespace: "shop", Name: "p", Labels: map[string]string{"app": app}}
		actions, _, _ := Plan(builder.Start, builder.Start.Add(-time.Minute), []Pod{pod}, budgets, nil, Policy{Timeout: time.Hour, Stages: []Stage{{
			Name: "stage", Selector: Selector{Group: UnprotectedPods, State: NotTerminating}, Verb: Delete,
		}}})
		return actions[0].Verb
	}

	It("D4: should list them page by page, and know the last one", func(ctx SpecContext) {
		s := &budgetServer{count: 105}
		budgets, err := s.executor().Budgets(ctx, []string{"shop"})
		Expect(err).NotTo(HaveOccurred())
		Expect(s.biggest).To(BeNumerically("<=", 20))
		Expect(budgets["shop"]).To(HaveLen(105))
		Expect(verbOf(budgets, "web")).To(Equal(Wait))
		Expect(verbOf(budgets, "other")).To(Equal(Delete))
	})

	It("D4: should know that a namespace has none", func(ctx SpecContext) {
		budgets, err := (&budgetServer{}).executor().Budgets(ctx, []string{"shop"})
		Expect(err).NotTo(HaveOccurred())
		Expect(verbOf(budgets, "web")).To(Equal(Delete))
	})

	DescribeTable("D4: should protect all pods of a namespace of which a page is not known, and know the others", func(ctx SpecContext, s *budgetServer, want string) {
		fails := s.answer
		s.answer = func(namespace string, call int, continues bool) error {
			if namespace != "shop" || fails == nil {
				return nil
			}
			return fails(namespace, call, continues)
		}
		budgets, err := s.executor().Budgets(ctx, []string{"shop", "system"})
		Expect(err).To(MatchError(ContainSubstring(want)))
		Expect(budgets).NotTo(HaveKey("shop"))
		Expect(verbOf(budgets, "other")).To(Equal(Wait))
		Expect(budgets).To(HaveKey("system"))
	},
		Entry("the last page fails", &budgetServer{count: 50, answer: func(_ string, call int, _ bool) error {
			if call == 3 {
				return apierrors.NewInternalError(fmt.Errorf("broken"))
			}
			return nil
		}}, "broken"),
		Entry("each continuation is expired (410)", &budgetServer{count: 50, answer: func(_ string, _ int, continues bool) error {
			if continues {
				return apierrors.NewResourceExpired("too old")
			}
			return nil
		}}, "too old"),
		Entry("the token is expired (401)", &budgetServer{count: 50, answer: func(string, int, bool) error {
			return apierrors.NewUnauthorized("who is it")
		}}, "who is it"),
	)

	It("D4: should begin once more when a continuation is expired (410), and know each budget once", func(ctx SpecContext) {
		s := &budgetServer{count: 50, answer: func(_ string, call int, _ bool) error {
			if call == 2 {
				return apierrors.NewResourceExpired("too old")
			}
			return nil
		}}
		budgets, err := s.executor().Budgets(ctx, []string{"shop"})
		Expect(err).NotTo(HaveOccurred())
		Expect(budgets["shop"]).To(HaveLen(50))
		Expect(s.calls["shop"]).To(Equal(5))
	})

	It("D4: should know no namespace with more of them than fit, whose pages never end, and no less of the others", func(ctx SpecContext) {
		s := &budgetServer{count: 100, endless: true, edit: func(b *policyv1.PodDisruptionBudget) {
			b.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: make([]string, 5000)}}
		}}
		budgets, err := s.executor().Budgets(ctx, []string{"shop"})
		Expect(err).To(MatchError(ContainSubstring("failed to list the PodDisruptionBudgets of namespace shop: their selectors have more than 33554432 bytes")))
		Expect(budgets).To(BeEmpty())
	})

	It("D4: should know no namespace with more of them than each pod can be compared with", func(ctx SpecContext) {
		s := &budgetServer{count: 5001}
		_, err := s.executor().Budgets(ctx, []string{"shop"})
		Expect(err).To(MatchError(ContainSubstring("there are more than 5000")))
		s = &budgetServer{count: 5000}
		budgets, err := s.executor().Budgets(ctx, []string{"shop"})
		Expect(err).NotTo(HaveOccurred())
		Expect(budgets["shop"]).To(HaveLen(5000))
	})
})

// largeBudgets is an API server with 400 PodDisruptionBudgets of 250 KiB, which take no memory before they are read.
type largeBudgets struct{ budget string }

// RoundTrip implements http.RoundTripper.
func (l largeBudgets) RoundTrip(request *http.Request) (*http.Response, error) {
	from, _ := strconv.Atoi(request.URL.Query().Get("continue"))
	to, next := 400, ""
	if limit, _ := strconv.Atoi(request.URL.Query().Get("limit")); limit > 0 && from+limit < to {
		to = from + limit
		next = strconv.Itoa(to)
	}
	body := []io.Reader{strings.NewReader(fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"PodDisruptionBudgetList","metadata":{"continue":%q},"items":[`, next))}
	for i := from; i < to; i++ {
		if i > from {
			body = append(body, strings.NewReader(","))
		}
		body = append(body, strings.NewReader(l.budget))
	}
	body = append(body, strings.NewReader("]}"))
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(io.MultiReader(body...)), Request: request}, nil
}

// BenchmarkBudgets is of a namespace whose list has 98 MiB, nearly all of it in annotations:
//
//	go test -run '^$' -bench Budgets -benchtime 5x ./pkg/sidecar/drainer
func BenchmarkBudgets(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(25)) // that of the sidecar
	l := largeBudgets{`{"metadata":{"annotations":{"large":"` + strings.Repeat("x", 250<<10) + `"}},"spec":{"selector":{"matchLabels":{"app":"web"}}}}`}
	e := &Executor{Client: kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://shoot", Transport: l, QPS: -1})}
	most := uint64(0)
	for range b.N {
		most = max(most, memory.Peak(func() {
			if budgets, err := e.Budgets(context.Background(), []string{"shop"}); err != nil || len(budgets["shop"]) != 400 {
				b.Error(err)
			}
		}))
	}
	b.ReportMetric(float64(most)/(1<<20), "peak-MiB")
}
