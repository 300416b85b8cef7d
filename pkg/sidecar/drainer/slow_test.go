// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drainer_test

import (
	"fmt"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/drainer"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// acceptable is what one node may cost the others.
const acceptable = 8 * time.Second

// names returns the names of that many pods, in their order.
func names(prefix string, count int) []string {
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf("%s-%03d", prefix, i))
	}
	return names
}

// add puts pods on a node.
func (s *shoot) add(node string, answer error, names ...string) {
	for _, name := range names {
		s.pods = append(s.pods, pod(name, onNode(node)))
		if answer != nil {
			s.refuse[name] = answer
		}
	}
	s.sort()
}

// TestSlow turns the time: what would take decades must take seconds.
func TestSlow(t *testing.T) {
	throttled := func(seconds int) error { return apierrors.NewTooManyRequests("come back later", seconds) }
	internal := apierrors.NewInternalError(fmt.Errorf("the webhook is not well"))
	internal.ErrStatus.Details.RetryAfterSeconds = math.MaxInt32

	for name, test := range map[string]struct {
		answer error
		// within is how long a step may take in which all pods are answered so.
		within  time.Duration
		reached int
		blocked string
	}{
		"P7: 429 with Retry-After 1s":         {throttled(1), 0, 30, "namespace default: come back later"},
		"P7: 429 with Retry-After of decades": {throttled(math.MaxInt32), 0, 30, "namespace default: come back later"},
		"P7: 500 with Retry-After of decades": {internal, 0, 30, "namespace default: Internal error occurred: the webhook is not well"},
		"P7: a budget with Retry-After":       {budget("web"), 0, 30, "namespace default: web"},
		"P7: no answer":                       {errHang, acceptable, 4, "namespace default: no answer within 5s"},
	} {
		for how, age := range map[string]time.Duration{"evicted": 0, "deleted by force": 3 * time.Hour} {
			t.Run(name+" when pods are "+how, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					g := NewWithT(t)
					s := newShoot()
					s.add("n", test.answer, names("p", 30)...)
					begin := time.Now()
					progress, _ := (&Drainer{Client: s}).Step(t.Context(), builder.Node("n"), Options{Since: builder.Start, Timeout: 2 * time.Hour}, builder.Start.Add(age))
					g.Expect(time.Since(begin)).To(BeNumerically("<=", test.within))
					g.Expect(append(s.evicted, s.deleted...)).To(HaveLen(test.reached))
					g.Expect(progress.BlockedBy).To(ConsistOf(test.blocked))
					g.Expect(progress.Partial).To(Equal(test.reached < 30))
					g.Expect(progress.Done).To(BeFalse())
				})
			})
		}
	}

	t.Run("P7: a list with Retry-After, or without an answer", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			for _, answer := range []error{throttled(1), throttled(math.MaxInt32), errHang} {
				s := newShoot()
				s.listing = answer
				begin := time.Now()
				progress, err := (&Drainer{Client: s}).Step(t.Context(), builder.Node("n"), Options{}, builder.Start)
				g.Expect(err).To(MatchError(HavePrefix("failed to list the pods of node n: ")))
				g.Expect(progress).To(Equal(Progress{}))
				g.Expect(time.Since(begin)).To(BeNumerically("<=", acceptable))
				g.Expect(s.calls).To(HaveLen(1))
			}
		})
	})

	t.Run("P7: a DaemonSet that cannot be looked up holds up nobody else", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			for _, answer := range []error{throttled(math.MaxInt32), errHang, internal} {
				s := newShoot(pod("a", ownedBy("DaemonSet", "ds")), pod("b"))
				s.lookup = answer
				begin := time.Now()
				progress, _ := (&Drainer{Client: s}).Step(t.Context(), builder.Node("n"), Options{Timeout: time.Hour}, time.Time{})
				g.Expect(time.Since(begin)).To(BeNumerically("<=", acceptable))
				g.Expect(s.evicted).To(ConsistOf("b"))
				g.Expect(progress.BlockedBy).To(HaveLen(1))
				g.Expect(progress.Done).To(BeFalse())
			}
		})
	})

	t.Run("P7: what was not reached comes first in the next step", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			s := newShoot()
			s.add("n", errHang, names("a", 10)...)
			s.add("n", nil, names("b", 20)...)
			d := &Drainer{Client: s}
			step := func() Progress {
				begin := time.Now()
				progress, err := d.Step(t.Context(), builder.Node("n"), Options{Timeout: time.Hour}, time.Time{})
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(time.Since(begin)).To(BeNumerically("<=", acceptable))
				return progress
			}
			for _, reached := range []int{4, 8} {
				progress := step()
				g.Expect(s.evicted).To(ConsistOf(names("a", reached)))
				g.Expect(progress.Next).To(Equal(time.Second))
			}
			progress := step()
			g.Expect(s.evicted).To(ConsistOf(append(names("a", 10), names("b", 20)...)), "each once, and those that answer in the time that others do not")
			g.Expect(progress).To(And(HaveField("Partial", true), HaveField("Done", false), HaveField("Next", 15*time.Second)))

			s.evicted = nil
			step()
			g.Expect(s.evicted).To(ConsistOf(names("a", 4)), "from the beginning")
		})
	})

	t.Run("P7: what was not reached comes first across pages, and once its place in the list is lost", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			s := newShoot()
			s.add("n", nil, names("a", 60)...)
			s.add("n", errHang, names("b", 4)...)
			s.add("n", nil, names("c", 100)...)
			d := &Drainer{Client: s}
			step := func() (Progress, error) {
				s.evicted = nil
				return d.Step(t.Context(), builder.Node("n"), Options{Timeout: time.Hour}, time.Time{})
			}
			_, err := step()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(s.evicted).To(ConsistOf(append(names("a", 60), names("b", 4)...)))
			_, err = step()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(s.evicted).To(ConsistOf(names("c", 100)))

			_, err = step()
			g.Expect(err).NotTo(HaveOccurred())
			s.listing = apierrors.NewResourceExpired("too old")
			_, err = step()
			g.Expect(err).To(HaveOccurred())
			s.listing = nil
			_, err = step()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(s.evicted).To(ConsistOf(names("c", 100)), "it goes on behind the last pod, though the token is too old")

			d.Forget("n")
			_, err = step()
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(s.evicted).To(ContainElement("a-000"))
		})
	})

	t.Run("P7: a pod that hangs does not slow down the others of its node, nor other nodes", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			g := NewWithT(t)
			s := newShoot()
			d := &Drainer{Client: s}
			for i := range 5 {
				s.add(fmt.Sprintf("n%d", i), errHang, fmt.Sprintf("hangs-%d", i))
				s.add(fmt.Sprintf("n%d", i), nil, names(fmt.Sprintf("p-%d", i), 30)...)
			}
			s.add("free", nil, "free")

			// As many nodes as there are workers in the controller.
			begin := time.Now()
			var workers sync.WaitGroup
			for i := range 5 {
				workers.Go(func() {
					progress, err := d.Step(t.Context(), builder.Node(fmt.Sprintf("n%d", i)), Options{Timeout: time.Hour}, time.Time{})
					g.Expect(err).NotTo(HaveOccurred())
					g.Expect(progress.Evicted).To(Equal(30))
					g.Expect(progress.Next).To(Equal(15*time.Second), "workers are free for others most of the time")
				})
			}
			workers.Wait()
			_, err := d.Step(t.Context(), builder.Node("free"), Options{Timeout: time.Hour}, time.Time{})
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(s.evicted).To(ContainElement("free"))
			g.Expect(time.Since(begin)).To(BeNumerically("<=", acceptable))
		})
	})
}
