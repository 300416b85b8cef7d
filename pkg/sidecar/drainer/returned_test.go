// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drainer_test

import (
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/drainer"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// recreating is a shoot with one pod of an operator's own controller, which puts another one on the node as soon as it is gone.
type recreating struct {
	*shoot
	now time.Time
	// forced and asked count the deletions, at are the times of the first ones in seconds.
	forced, asked int
	at            []int
	// created counts the pods.
	created int
}

func newRecreating(start time.Time, edit ...podOption) *recreating {
	r := &recreating{shoot: newShoot(), now: start}
	create := func(number int) *corev1.Pod {
		p := pod(fmt.Sprintf("agent-%03d", number), append(edit, func(p *corev1.Pod) {
			p.OwnerReferences[0].APIVersion, p.OwnerReferences[0].Kind, p.OwnerReferences[0].Name = "example.com/v1", "DaemonSet", "agent"
			p.UID, p.CreationTimestamp = types.UID(p.Name), metav1.NewTime(r.now.Truncate(time.Second))
		})...)
		return p
	}
	replace := func() { r.created++; r.pods = []*corev1.Pod{create(r.created)} }
	r.end = func(p *corev1.Pod, byForce bool) {
		grace := time.Duration(0)
		if r.at = append(r.at, int(r.now.Sub(start).Seconds())); byForce {
			r.forced++
		} else {
			r.asked++
			grace = 30 * time.Second
		}
		if grace == 0 && len(p.Finalizers) == 0 {
			replace()
			return
		}
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = new(metav1.NewTime(r.now.Add(grace))), new(int64(grace.Seconds()))
	}
	replace()
	r.pods[0].CreationTimestamp = metav1.NewTime(start.Add(-time.Hour))
	return r
}

// hour takes steps for an hour after the timeout, at least one each second, and returns the last progress.
func (r *recreating) hour(ctx SpecContext, d *Drainer, node *corev1.Node, kubelet bool) Progress {
	GinkgoHelper()
	var progress Progress
	for end := r.now.Add(time.Hour); r.now.Before(end); r.now = r.now.Add(time.Second) {
		if p := r.pods[0]; kubelet && p.DeletionTimestamp != nil && len(p.Finalizers) == 0 {
			asked := r.asked // the kubelet ends it in an instant
			r.end(p, true)
			r.asked, r.forced, r.at = asked, r.forced-1, r.at[:len(r.at)-1]
		}
		var err error
		progress, err = d.Step(ctx, node, Options{Since: builder.Start, Timeout: time.Hour}, r.now)
		Expect(err).NotTo(HaveOccurred())
	}
	return progress
}

var _ = Describe("Pods that come back", func() {
	const (
		// mostReturns is how often a pod may be dealt with in an hour: after 1, 2, 4 ... 256 seconds, and every 300 from then on.
		mostReturns = 9 + (3600-511)/300
		deadline    = time.Hour
	)
	var (
		timeout   = builder.Start.Add(deadline)
		reachable = builder.Node("n")
		away      = builder.Node("n", builder.Condition("Ready", corev1.ConditionUnknown, "NodeStatusUnknown", ""))
	)

	It("D6: should leave a pod its grace period, and delete it again ever more rarely, where its node does not answer", func(ctx SpecContext) {
		r := newRecreating(timeout)
		progress := r.hour(ctx, &Drainer{Client: r.shoot}, away, false)
		Expect(r.forced).To(BeNumerically(">=", mostReturns/2))
		Expect(r.forced).To(BeNumerically("<=", 1+mostReturns))
		Expect(r.asked).To(BeNumerically("<=", mostReturns))
		Expect(r.at[:7]).To(Equal([]int{0, 1, 31, 33, 63, 67, 97}))
		Expect(progress.Done).To(BeFalse())
	})

	It("D6: should ask it to go ever more rarely where its node answers", func(ctx SpecContext) {
		r := newRecreating(timeout)
		r.hour(ctx, &Drainer{Client: r.shoot}, reachable, true)
		Expect(r.forced).To(Equal(1))
		Expect(r.asked).To(BeNumerically("<=", mostReturns))
		Expect(r.at[:6]).To(Equal([]int{0, 1, 3, 7, 15, 31}))
		gaps := []int{}
		for i := range r.at[1:] {
			gaps = append(gaps, r.at[i+1]-r.at[i])
		}
		Expect(slices.Max(gaps)).To(BeNumerically("~", 300, 2))
	})

	It("D6: should begin anew after a restart, and after an hour of peace", func(ctx SpecContext) {
		r := newRecreating(timeout)
		d := &Drainer{Client: r.shoot}
		r.hour(ctx, d, away, false)
		forced := r.forced
		for _, again := range []*Drainer{{Client: r.shoot}, d} {
			r.hour(ctx, again, away, false)
			Expect(r.forced-forced).To(BeNumerically("<=", 2+mostReturns), "it costs one deletion")
			forced = r.forced
		}
	})

	It("D6: should delete a pod once that its finalizers keep, and name it with them", func(ctx SpecContext) {
		keeps := func(p *corev1.Pod) { p.Finalizers = []string{"acme.com/backup", "acme.com/\x1b[31mlog"} }
		for _, node := range []*corev1.Node{reachable, away} {
			r := newRecreating(timeout, keeps)
			progress := r.hour(ctx, &Drainer{Client: r.shoot}, node, true)
			Expect(r.forced).To(Equal(1))
			Expect(r.asked).To(BeZero())
			Expect(progress.Done).To(BeFalse())
			Expect(progress.String()).To(Equal("Pods: kept by finalizers: default/agent-001 (acme.com/backup, acme.com/[31mlog)."))
		}
	})

	It("D6: should delete all pods that an owner had there at the same time", func(ctx SpecContext) {
		s := newShoot()
		s.add("n", nil, names("p", 120)...)
		for _, p := range s.pods {
			p.CreationTimestamp = metav1.NewTime(builder.Start)
		}
		d := &Drainer{Client: s}
		progress, err := d.Step(ctx, away, Options{Since: builder.Start, Timeout: deadline}, timeout)
		Expect(err).NotTo(HaveOccurred())
		Expect(progress.Forced).To(Equal(120))
	})
})
