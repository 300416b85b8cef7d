// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/test/memory"
)

// large is a shoot's API server with many large objects, which are there as long as a page of them is.
type large struct {
	pods, events int
	pod          func(*corev1.Pod)
	note         func(int) string
}

func (l large) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	obj.SetName(key.Name)
	return nil
}

func (l large) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	page := func(all int, add func(i int)) {
		from, _ := strconv.Atoi(options.Continue)
		to := min(all, from+int(options.Limit))
		for i := from; i < to; i++ {
			add(i)
		}
		if list.SetContinue(""); to < all {
			list.SetContinue(strconv.Itoa(to))
		}
	}
	switch list := list.(type) {
	case *corev1.PodList:
		list.Items = nil
		page(l.pods, func(i int) {
			p := pod("default", fmt.Sprintf("p-%d", i), "node-1", nil, "c")
			l.pod(p)
			list.Items = append(list.Items, *p)
		})
	case *eventsv1.EventList:
		list.Items = nil
		// Events of the node, then of its pods.
		page(l.events, func(i int) {
			e := event("default", fmt.Sprintf("e-%d", i), "Node", "node-1", "Flood", l.note(i), i%1000)
			e.ReportingInstance = "node-1"
			list.Items = append(list.Items, e)
		})
	}
	return nil
}

func (l large) sources() Sources {
	return Sources{Tool: "test", Clock: testclock.NewFakePassiveClock(at(60).Time), Name: "node-1", Shoot: l}
}

// shoots are those whose evidence must take no more memory than that of others. 200 KiB of each pod are in an annotation, or in what
// is kept of a pod.
var shoots = map[string]large{
	"annotations": {pods: 1000, pod: func(p *corev1.Pod) { p.Annotations = map[string]string{"a": strings.Repeat("x", 200<<10)} }},
	"names":       {pods: 1000, pod: func(p *corev1.Pod) { p.Spec.ServiceAccountName = strings.Repeat("x", 200<<10) }},
	"events":      {events: 50000, note: func(i int) string { return strings.Repeat(strconv.Itoa(i), 200) }},
}

// BenchmarkCollectLarge gathers and writes evidence as the sidecar does.
func BenchmarkCollectLarge(b *testing.B) {
	for name, shoot := range shoots {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			most := uint64(0)
			for range b.N {
				most = max(most, memory.Peak(func() {
					bundle, err := Collect(context.Background(), shoot.sources())
					if err == nil {
						_, err = bundle.WriteTo(io.Discard, 900<<10)
					}
					if err != nil {
						b.Log(err)
					}
				}))
			}
			b.ReportMetric(float64(most)/(1<<20), "peak-MiB")
		})
	}
}

var _ = Describe("Memory", func() {
	It("should keep a bounded part of what the shoot has", func(ctx SpecContext) {
		b, err := Collect(ctx, shoots["annotations"].sources())
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Snapshot.Shoot.Pods).To(HaveLen(1000))
		Expect(b.Snapshot.Shoot.Pods[999].Annotations).To(BeEmpty())

		b, err = Collect(ctx, shoots["names"].sources())
		Expect(err).NotTo(HaveOccurred())
		Expect(b.Snapshot.Shoot.Pods).To(HaveLen(20))
		Expect(reasonOf(&b.Snapshot, "the rest of "+observed.WhatPods.Text())).To(Equal("there are more than the first 20, which have 4194304 bytes"))

		Expect(reasonOf(&b.Snapshot, observed.WhatPods.Text())).To(BeEmpty(), "that they are not known would have them gathered again")

		b, err = Collect(ctx, shoots["events"].sources())
		Expect(err).NotTo(HaveOccurred())
		// Both lists are the same ones here.
		Expect(b.Snapshot.Shoot.Events).To(HaveLen(500))
		Expect(reasonOf(&b.Snapshot, "the rest of "+observed.WhatNodeEvents.Text())).To(Equal("there are 49500 more than the last 500"))
		for _, e := range b.Snapshot.Shoot.Events {
			Expect(e.EventTime.Time).To(BeTemporally(">=", at(989).Time))
			Expect(len(e.Note)).To(BeNumerically("<=", 1<<10))
		}
	})
})
