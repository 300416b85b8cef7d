// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package paging_test

import (
	"context"
	"errors"
	"strconv"
	"testing"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/paging"
)

func TestEach(t *testing.T) {
	expired := apierrors.NewResourceExpired("too old")
	for name, test := range map[string]struct {
		// count is how many pods there are. answers are those to calls that fail, by their number.
		count   int
		answers map[int]error
		endless bool
		refuse  error

		want, calls, begun int
		err                string
	}{
		"none":                    {want: 0, calls: 1, begun: 1},
		"a page":                  {count: 10, want: 10, calls: 1, begun: 1},
		"as many as there may be": {count: 35, want: 35, calls: 4, begun: 1},
		"more than there may be":  {count: 36, want: 30, calls: 4, begun: 1, err: "there are more than 35 objects"},
		"no end":                  {endless: true, want: 0, calls: 1, begun: 1, err: "there is a page without an object, and more to come"},
		"an error":                {count: 35, answers: map[int]error{2: errors.New("no connection")}, want: 10, calls: 2, begun: 1, err: "no connection"},
		"use fails":               {count: 35, refuse: errors.New("too large"), calls: 1, begun: 1, err: "too large"},
		"a page is expired (410)": {count: 35, answers: map[int]error{3: expired}, want: 35, calls: 7, begun: 2},
		"the first is":            {count: 35, answers: map[int]error{1: expired}, calls: 1, begun: 1, err: "too old"},
		"a page is expired of the second attempt": {count: 35, answers: map[int]error{3: expired, 6: expired}, want: 20, calls: 6, begun: 2, err: "too old"},
	} {
		t.Run("P14: "+name, func(t *testing.T) {
			g := NewWithT(t)
			var got []string
			calls, begun := 0, 0
			err := Each(t.Context(), metav1.ListOptions{Limit: 10, FieldSelector: "spec.nodeName=n"}, 35, func(_ context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
				if calls++; calls > 10 {
					return nil, errors.New("it would go on for ever")
				}
				g.Expect(opts.FieldSelector).To(Equal("spec.nodeName=n"))
				from, _ := strconv.Atoi(opts.Continue)
				to := min(from+int(opts.Limit), test.count)
				page := &corev1.PodList{}
				for i := from; i < to; i++ {
					page.Items = append(page.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: strconv.Itoa(i)}})
				}
				if to < test.count || test.endless {
					page.Continue = strconv.Itoa(max(to, 1))
				}
				return page, test.answers[calls]
			}, func() { begun, got = begun+1, nil }, func(page *corev1.PodList) error {
				if test.refuse != nil {
					return test.refuse
				}
				for _, pod := range page.Items {
					got = append(got, pod.Name)
				}
				return nil
			})
			if test.err == "" {
				g.Expect(err).NotTo(HaveOccurred())
			} else {
				g.Expect(err).To(MatchError(ContainSubstring(test.err)))
			}
			g.Expect(got).To(HaveLen(test.want))
			for i, name := range got {
				g.Expect(name).To(Equal(strconv.Itoa(i)))
			}
			g.Expect([]int{calls, begun}).To(Equal([]int{test.calls, test.begun}))
		})
	}
}
