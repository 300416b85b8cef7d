// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package quarantine_test

import (
	"encoding/json"
	"fmt"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/quarantine"
)

var now = time.Date(2026, 3, 8, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// failed are failures of machines of their own, some time ago.
func failed(times ...time.Duration) Record {
	r := Record{}
	for i, t := range times {
		r.Failures = append(r.Failures, Failure{Machine: types.UID(fmt.Sprint("m", i)), At: ago(t)})
	}
	return r
}

// world is a host, of a fleet of 20, on which a machine fails now.
type world struct {
	host     Host
	others   []Host
	seen     Seen
	by       Mark
	settings Settings
}

func worldOf(edits ...func(*world)) *world {
	const hour = time.Hour
	w := &world{
		host: Host{Name: "h", Record: failed(50*hour, 26*hour)}, seen: Seen{Machine: "m", Since: ago(10 * time.Minute)},
		by: Mark{Seed: "seed", Namespace: "shoot", At: now}, settings: Settings{Failures: 3, Period: 7 * 24 * hour},
	}
	for i := range 19 {
		w.others = append(w.others, Host{Name: fmt.Sprint("o", i)})
	}
	for _, edit := range edits {
		edit(w)
	}
	return w
}

func (w *world) decide() Decision {
	return Decide(w.host, append([]Host{w.host}, w.others...), w.seen, w.by, w.settings)
}

// settle returns what is decided when the failure has been noted for a while.
func (w *world) settle() Decision {
	d := w.decide()
	for d.Wait > 0 {
		Expect([]any{d.IsNew, d.Quarantine, d.Refused}).To(Equal([]any{w.by.At.Equal(now), false, ""}))
		w.host.Record, w.by.At = d.Record, w.by.At.Add(d.Wait)
		d = w.decide()
	}
	return d
}

func record(r Record) func(*world) { return func(w *world) { w.host.Record = r } }

func other(i int, r Record, quarantined bool) func(*world) {
	return func(w *world) { w.others[i].Record, w.others[i].IsQuarantined = r, quarantined }
}

func marked(r Record, namespace string, t time.Duration) Record {
	r.Quarantined = &Mark{Seed: "seed", Namespace: namespace, At: ago(t)}
	return r
}

// of makes failures those of machines of a shoot.
func of(shoot string, r Record) Record {
	for i := range r.Failures {
		r.Failures[i].Shoot = shoot
	}
	return r
}

func excused(r Record) Record {
	for i := range r.Failures {
		r.Failures[i].Excused = true
	}
	return r
}

func expected(w *world) { w.seen.Expected = true }

func serviced(w *world) { w.host.IsServiced = true }

var _ = Describe("#Decide", func() {
	const hour, day = time.Hour, 24 * time.Hour

	It("should note nothing of a failure whose timer began a week ago", func() {
		w := worldOf(func(w *world) { w.seen.Since = ago(7 * day) })
		Expect(w.decide()).To(Equal(Decision{Record: w.host.Record}))
	})

	DescribeTable("which hosts are put into quarantine", func(quarantine bool, count int, refused string, edits ...func(*world)) {
		w := worldOf(edits...)
		d := w.settle()
		Expect(d.Refused).To(Equal(refused))
		Expect([]any{d.Quarantine, d.Count}).To(Equal([]any{quarantine, count}))
		if quarantine {
			Expect(d.Record.Quarantined).To(Equal(&w.by))
		} else {
			Expect(d.Record.Quarantined).To(Equal(w.host.Record.Quarantined))
		}
	},
		Entry("the third failure in a week", true, 3, ""),
		Entry("the second one", false, 2, "", record(failed(50*hour))),
		Entry("the third one, of which one was noted with a wrong clock", false, 2, "", record(failed(-10*time.Minute, hour))),
		Entry("the third one, of which one was noted with a clock that is ahead", true, 3, "", record(failed(-9*time.Minute, hour))),
		Entry("the third one, of which one was more than a week ago", false, 2, "", record(failed(7*day, hour))),
		Entry("the third one, just within a week", true, 3, "", record(failed(7*day-time.Second, hour))),
		Entry("where operators want none", false, 3, "", func(w *world) { w.settings.Failures = 0 }),
		Entry("more than enough, after one that was refused", true, 4, "", record(failed(3*day, 2*day, day))),
		Entry("the third failure of the same machine, which recovered each time", true, 3, "", record(Record{Failures: []Failure{{Machine: "m", At: ago(50 * hour)}, {Machine: "m", At: ago(26 * hour)}}})),
		Entry("one that is in quarantine already", false, 0, "", func(w *world) { w.host.IsQuarantined = true }),
		Entry("one that was let out: its count begins anew", false, 1, "", record(marked(failed(50*hour, 26*hour), "other", 26*hour))),
		Entry("one that was let out after more of it", false, 1, "", record(excused(marked(failed(50*hour, 49*hour, 48*hour), "other", 60*hour)))),
		Entry("one of which two failures were expected", false, 1, "", record(excused(failed(50*hour, 26*hour)))),
		Entry("a failure of a machine that somebody works on, after more than enough", false, 0, "", record(failed(3*day, 2*day, day)), expected),
		Entry("one on a host that somebody works on", false, 0, "", record(failed(3*day, 2*day, day)), serviced),
		Entry("one that was let out long ago", true, 3, "", record(marked(failed(4*day, 50*hour, 26*hour), "shoot", 3*day))),

		Entry("a failure now, as on two others", false, 2, "", other(0, failed(29*time.Minute), false), other(1, failed(0), false)),
		Entry("a failure then, as on two others", false, 2, "", other(0, failed(50*hour+30*time.Minute), false), other(1, failed(49*hour+30*time.Minute), false)),
		Entry("as on two others, hours ago, and for the same shoot", false, 2, "", other(0, of("seed/shoot", failed(6*hour)), false), other(1, of("seed/shoot", failed(time.Hour)), false)),
		Entry("a day ago", true, 3, "", other(0, of("seed/shoot", failed(6*hour+time.Minute)), false), other(1, of("seed/shoot", failed(time.Hour)), false)),
		Entry("for another shoot", true, 3, "", other(0, of("seed/other", failed(6*hour)), false), other(1, of("seed/shoot", failed(time.Hour)), false)),
		Entry("for nobody knows which shoots, as before", true, 3, "", record(failed(50*hour, 26*hour)), other(0, failed(50*hour+time.Hour), false), other(1, failed(49*hour), false)),
		Entry("as on another one", true, 3, "", other(0, failed(0, time.Minute, 2*time.Minute), false)),
		Entry("more than half an hour after two others", true, 3, "", other(0, failed(31*time.Minute), false), other(1, failed(31*time.Minute), false)),

		Entry("the second one of a fleet of twenty", true, 3, "", other(0, Record{}, true)),
		Entry("the third one of a fleet of twenty", false, 3, "at most one of 10 hosts may be out of use, and 2 of 20 already are", other(0, Record{}, true), other(1, Record{}, true)),
		Entry("one of a fleet of nine", false, 3, "at most one of 10 hosts may be out of use, and 0 of 9 already are", func(w *world) { w.others = w.others[:8] }),
		Entry("the third one out of use, because somebody works on another one", false, 3, "at most one of 10 hosts may be out of use, and 2 of 20 already are",
			other(0, Record{}, true), func(w *world) { w.others[1].IsServiced = true }),
		Entry("one of a fleet of ten", true, 3, "", func(w *world) { w.others = w.others[:9] }),
		Entry("the second one of a shoot in a day", false, 3, "host o0 was put into quarantine for this shoot less than 24h0m0s ago", other(0, marked(Record{}, "shoot", day-time.Minute), false)),
		Entry("the second one of a shoot in two days", true, 3, "", other(0, marked(Record{}, "shoot", day), true)),
		Entry("the second one, of another shoot", true, 3, "", other(0, marked(Record{}, "other", hour), true)),
	)

	DescribeTable("which failures count for nothing once they are noted", func(excused bool, edits ...func(*world)) {
		failures := worldOf(edits...).decide().Record.Failures
		Expect(failures[len(failures)-1]).To(Equal(Failure{Machine: "m", At: now, Shoot: "seed/shoot", Excused: excused}))
	},
		Entry("a failure", false),
		Entry("one of a machine that somebody works on", true, expected),
		Entry("one on a host that somebody works on", true, serviced),
		Entry("one on a host in quarantine", true, func(w *world) { w.host.IsQuarantined = true }),
	)

	DescribeTable("what is noted", func(isNew bool, edits ...func(*world)) {
		w := worldOf(edits...)
		d := w.decide()
		Expect(d.IsNew).To(Equal(isNew))
		if !isNew {
			Expect(d.Record).To(Equal(w.host.Record), "nothing is written twice")
			return
		}
		Expect(d.Record.Failures).To(ContainElement(And(HaveField("Machine", types.UID("m")), HaveField("At", now))))
		w.host.Record = d.Record
		Expect(w.decide().IsNew).To(BeFalse(), "after a crash")
	},
		Entry("a failure", true),
		Entry("one of another machine at the same time", true, record(Record{Failures: []Failure{{Machine: "n", At: now}}})),
		Entry("one that is noted", false, record(Record{Failures: []Failure{{Machine: "m", At: ago(5 * time.Minute)}}})),
		Entry("one whose timer was written over", false, record(Record{Failures: []Failure{{Machine: "m", At: ago(20 * time.Minute)}}})),
		Entry("one after the machine had recovered", true, record(Record{Failures: []Failure{{Machine: "m", At: ago(21 * time.Minute)}}})),
		Entry("one that goes on for longer than the period", false, func(w *world) { w.seen.Since = ago(8 * day) }),
		Entry("one on a host in quarantine", true, func(w *world) { w.host.IsQuarantined = true }),
	)

	DescribeTable("when it is decided", func(age, wait time.Duration, quarantine bool, edits ...func(*world)) {
		w := worldOf(edits...)
		w.host.Record.Failures = append(w.host.Record.Failures, Failure{Machine: w.seen.Machine, At: ago(age)})
		d := w.decide()
		Expect([]any{d.IsNew, d.Wait, d.Quarantine}).To(Equal([]any{false, wait, quarantine}))
	},
		Entry("others may note theirs", 10*time.Second, 20*time.Second, false),
		Entry("they have", 30*time.Second, time.Duration(0), true),
		Entry("they have, and somebody works on it by now", 30*time.Second, time.Duration(0), false, serviced),
		Entry("a crash has come between", 5*time.Minute-time.Second, time.Duration(0), true),
		Entry("it was long ago", 5*time.Minute, time.Duration(0), false),
	)

	It("notes the last twenty failures of the period, whatever was there", func() {
		times := []time.Duration{8 * day}
		for i := range 30 {
			times = append(times, time.Duration(30-i)*hour)
		}
		d := worldOf(record(failed(times...))).decide()
		Expect(d.Record.Failures).To(HaveLen(20))
		Expect(d.Record.Failures[0].At).To(Equal(ago(19 * hour)))
		Expect(d.Record.Failures[19].Machine).To(BeEquivalentTo("m"))
	})

	It("reads what was written, and takes what nobody can read for nothing", func() {
		want := marked(failed(hour), "shoot", hour)
		value, err := json.Marshal(want)
		Expect(err).NotTo(HaveOccurred())
		host := &metav1.ObjectMeta{Annotations: map[string]string{"machine-preservation.extensions.gardener.cloud/host-failures": string(value)}}
		Expect(ReadRecord(host)).To(Equal(want))
		for _, bad := range []string{"", "{", `{"failures":[{"machine":"m","at":"x"}]}`, "[]"} {
			host.Annotations["machine-preservation.extensions.gardener.cloud/host-failures"] = bad
			Expect(ReadRecord(host)).To(Equal(Record{}))
		}
	})
})
