// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package pace_test

import (
	"errors"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

func TestPace(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Pace Suite")
}

var _ = Describe("P14: Pace", func() {
	var (
		now   = Start
		burst = func(p *Pace[string], key string, count int) {
			GinkgoHelper()
			for range count {
				Expect(p.Take(key, now)).To(BeZero())
			}
		}
	)

	It("should let a burst through, and then one in each interval", func() {
		p := &Pace[string]{Burst: 3, Interval: 10 * time.Second}
		burst(p, "a", 3)
		Expect(p.Take("a", now)).To(Equal(10 * time.Second))
		Expect(p.Take("a", now.Add(9*time.Second))).To(Equal(time.Second), "what has to wait does not count")
		Expect(p.Take("a", now.Add(10*time.Second))).To(BeZero())
		Expect(p.Take("a", now.Add(10*time.Second))).To(Equal(10 * time.Second))
		burst(p, "b", 3)
	})

	It("should bound what comes without end", func() {
		p := &Pace[string]{Burst: 3, Interval: 10 * time.Second}
		taken := 0
		for at := time.Duration(0); at < time.Minute; at += 10 * time.Millisecond {
			if p.Take("a", now.Add(at)) == 0 {
				taken++
			}
		}
		Expect(taken).To(Equal(3 + 5))
	})

	It("should give the burst back with the time", func() {
		p := &Pace[string]{Burst: 3, Interval: 10 * time.Second}
		burst(p, "a", 3)
		for range 2 {
			Expect(p.Take("a", now.Add(20*time.Second))).To(BeZero())
		}
		Expect(p.Take("a", now.Add(20*time.Second))).To(Equal(10 * time.Second))
		for range 3 {
			Expect(p.Take("a", now.Add(time.Hour))).To(BeZero())
		}
		Expect(p.Take("a", now.Add(time.Hour))).To(Equal(10*time.Second), "and no more than that")
	})

	It("should let everything through when it is zero", func() {
		burst(&Pace[string]{}, "a", 100)
	})
})

var _ = Describe("P12: Failure", func() {
	It("should be left alone for longer each time, up to the longest, and be news once", func() {
		var f Failure
		for _, seconds := range []int{1, 2, 4, 8, 16, 30, 30} {
			after, news := f.Again(errors.New("denied"), Start)
			Expect(after).To(Equal(time.Duration(seconds) * time.Second))
			Expect(f.Until).To(Equal(Start.Add(after)))
			Expect(news).To(Equal(seconds == 1))
		}
		_, news := f.Again(errors.New("away"), Start)
		Expect(news).To(BeTrue())
	})

	It("should know the earliest of times, of which zero is never", func() {
		Expect(Earliest()).To(BeZero())
		Expect(Earliest(time.Time{}, Start.Add(1), Start, time.Time{})).To(Equal(Start))
	})
})
