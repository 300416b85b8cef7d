// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package hours_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/hours"
)

var _ = Describe("Account", func() {
	var (
		start = time.Date(2026, 11, 10, 12, 0, 0, 0, time.UTC)
		at    = func(minutes int) time.Time { return start.Add(time.Duration(minutes) * time.Minute) }
		// kept is a machine that is preserved from a minute until another one.
		kept = func(uid string, since, until int) Seen {
			return Seen{UID: types.UID(uid), Since: at(since), Until: at(until)}
		}
		// over is one that was preserved since a minute, and is not any more.
		over = func(uid string, since int) Seen { return Seen{UID: types.UID(uid), Since: at(since)} }
		used = func(a Account, minutes int) time.Duration {
			return time.Duration(a.Used(at(minutes))) * time.Second
		}
	)

	It("P17: should count nothing while no machine is preserved", func() {
		a := New(start).Advance("d", "pool", []Seen{{UID: "a"}, {UID: "b"}}, at(60))
		Expect(a.Used(at(60))).To(BeZero())
		Expect(a.Machines).To(BeEmpty())
		Expect(a.Deployments(at(60))).To(BeEmpty())
		Expect(New(start).Advance("d", "pool", []Seen{kept("a", 0, 60)}, start).Pools).To(BeEmpty(), "one is just being preserved")
	})

	It("P17: should count each machine from when it was preserved until it expires, by pool", func() {
		a := New(start).Advance("d", "one", []Seen{kept("a", 10, 1000), kept("b", 20, 40)}, at(30))
		a = a.Advance("e", "two", []Seen{kept("c", 30, 1000)}, at(30))
		Expect(used(a, 30)).To(Equal(30 * time.Minute))
		Expect(a.Advance("d", "one", []Seen{kept("a", 10, 1000), kept("b", 20, 40)}, at(30))).To(Equal(a), "once more changes nothing")
		Expect(used(a, 60)).To(Equal((50 + 20 + 30) * time.Minute))
		a = a.Advance("d", "one", []Seen{kept("a", 10, 1000), over("b", 20)}, at(60)).Advance("e", "two", []Seen{kept("c", 30, 1000)}, at(90))
		Expect(a.UsedByPool(at(90))).To(Equal(map[string]int64{"one": (80 + 10) * 60, "two": 60 * 60}))
		Expect(a.Deployments(at(90))).To(Equal([]string{"d", "e"}))
	})

	It("P17: should count what was not seen in between, once, also after a restart", func() {
		a := New(start).Advance("d", "p", []Seen{kept("a", 0, 1000)}, at(10))
		read, err := Decode(a.Encode())
		Expect(err).NotTo(HaveOccurred())
		Expect(read).To(Equal(a))
		a = read.Advance("d", "p", []Seen{kept("a", 0, 1000)}, at(100))
		Expect(used(a, 100)).To(Equal(100 * time.Minute))
		Expect(used(read.Advance("d", "p", []Seen{kept("a", 0, 1000)}, at(50)).Advance("d", "p", []Seen{kept("a", 0, 1000)}, at(100)), 100)).To(Equal(100 * time.Minute))
	})

	It("P17: should not count the time between two preservations", func() {
		a := New(start).Advance("d", "p", []Seen{kept("a", 0, 20)}, at(10)).Advance("d", "p", []Seen{over("a", 0)}, at(15))
		a = a.Advance("d", "p", []Seen{kept("a", 0, 1000)}, at(60)).Advance("d", "p", []Seen{kept("a", 0, 1000)}, at(70))
		Expect(used(a, 70)).To(Equal(20 * time.Minute))

		By("Seeing it for the first time in between")
		a = New(start).Advance("d", "p", []Seen{over("a", 0)}, at(15)).Advance("d", "p", []Seen{kept("a", 0, 1000)}, at(60))
		Expect(used(a, 70)).To(Equal(10 * time.Minute))
	})

	It("P17: should count from when a machine was preserved that was expected to be so before, and was not", func() {
		a := New(start).Advance("d", "p", []Seen{kept("a", 0, 100)}, at(0)).Advance("d", "p", []Seen{{UID: "a"}}, at(1))
		a = a.Advance("d", "p", []Seen{kept("a", 30, 1000)}, at(60))
		Expect(used(a, 60)).To(Equal(30 * time.Minute))
	})

	It("P17: should count until the claims of people and the share expire, also where something else preserves the machine on", func() {
		seen := []Seen{kept("a", 0, 20)}
		a := New(start).Advance("d", "p", seen, at(10)).Advance("d", "p", seen, at(30))
		Expect(used(a, 30)).To(Equal(20 * time.Minute))
		Expect(a.Deployments(at(30))).To(BeEmpty())
		a = a.Advance("d", "p", seen, at(40)).Advance("d", "p", []Seen{kept("a", 0, 100)}, at(50))
		Expect(used(a, 60)).To(Equal(30*time.Minute), "a new claim counts from when it is seen")
	})

	It("P17: should not count what was before the account", func() {
		a := New(start).Advance("d", "p", []Seen{kept("a", -500, 1000)}, at(10))
		Expect(used(a, 10)).To(Equal(10 * time.Minute))
	})

	It("P17: should go on with an expiry that was edited, both ways", func() {
		a := New(start).Advance("d", "p", []Seen{kept("a", 0, 20)}, at(10)).Advance("d", "p", []Seen{kept("a", 0, 50)}, at(30))
		Expect(used(a, 100)).To(Equal(50 * time.Minute))
		a = a.Advance("d", "p", []Seen{kept("a", 0, 35)}, at(32))
		Expect(used(a, 100)).To(Equal(35 * time.Minute))
		a = a.Advance("d", "p", []Seen{kept("a", 0, 31)}, at(33))
		Expect(used(a, 100)).To(Equal(32*time.Minute), "what was counted stays")
	})

	It("P17: should forget machines that are gone, and keep what they took", func() {
		a := New(start).Advance("d", "p", []Seen{kept("a", 0, 1000), kept("b", 0, 1000)}, at(10)).Advance("d", "p", []Seen{kept("a", 0, 1000)}, at(20))
		Expect(a.Machines).To(HaveLen(1))
		Expect(used(a, 20)).To(Equal(30 * time.Minute))
		a = a.Forget("other").Forget("d")
		Expect(a.Machines).To(BeEmpty())
		Expect(used(a, 200)).To(Equal(30 * time.Minute))
	})

	It("P17: should begin anew with each month in UTC", func() {
		zone := time.FixedZone("UTC-8", -8*60*60)
		end := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
		seen := []Seen{{UID: "a", Since: start, Until: end.Add(2 * time.Hour)}}
		a := New(start).Advance("d", "p", seen, end.Add(-time.Hour)).Advance("e", "q", []Seen{{UID: "b", Since: start}}, end.Add(-time.Hour))
		Expect(a.Month).To(Equal("2026-11"))
		Expect(a.End()).To(Equal(end))
		Expect(a.Used(end.Add(-time.Hour))).To(BeEquivalentTo(end.Add(-time.Hour).Sub(start) / time.Second))
		a.Told, a.SpentAt = 80, end.Add(-time.Hour)

		before := maps.Clone(a.Machines)
		next := a.Advance("d", "p", seen, end.Add(time.Hour).In(zone))
		Expect(a.Machines).To(Equal(before), "the former one stays as it is")
		Expect(next.Month).To(Equal("2026-12"))
		Expect(next.UsedByPool(end.Add(time.Hour))).To(Equal(map[string]int64{"p": 3600}))
		Expect(next.Told).To(BeZero())
		Expect(next.SpentAt).To(BeZero())
		Expect(next.Used(end.Add(24 * time.Hour))).To(BeEquivalentTo(7200))
		Expect(next.Machines).To(HaveLen(2))
		Expect(next.At(end.Add(-time.Minute))).To(Equal(next), "a clock that goes back changes nothing")
		Expect(a.Used(end.Add(time.Hour))).To(BeEquivalentTo(3600), "who reads an account of the month before sees that it is over")
	})

	DescribeTable("P17: should count again once a clock is right that was wrong by months", func(wrong Account) {
		seen := []Seen{kept("a", 0, 1000)}
		read, err := Decode(wrong.Advance("d", "p", seen, start.AddDate(0, 2, 0)).Encode())
		Expect(err).NotTo(HaveOccurred())
		a := read.Advance("d", "p", seen, at(10)).Advance("d", "p", seen, at(30))
		Expect(a.Month).To(Equal("2026-11"))
		Expect(used(a, 40)).To(Equal(30*time.Minute), "from when it is right")
		a = a.Advance("d", "p", append(seen, kept("b", 20, 1000)), at(40))
		Expect(used(a, 40)).To(Equal((30 + 20) * time.Minute))
	},
		Entry("later", New(start).Advance("d", "p", []Seen{kept("a", 0, 1000)}, start)),
		Entry("from the beginning", New(start.AddDate(0, 2, 0))),
	)

	It("P17: should not take for preserved in the new month what was so in the former one, and forget it once nothing can be counted twice", func() {
		end := time.Date(2026, 12, 1, 0, 0, 0, 0, time.UTC)
		was := Seen{UID: "a", Since: start, Ended: start.Add(time.Hour)}
		a := New(start).Advance("d", "p", []Seen{{UID: "a", Since: start, Until: end}}, start).Advance("d", "p", []Seen{was}, start.Add(2*time.Hour))
		Expect(used(a, 120)).To(Equal(time.Hour))

		again := []Seen{{UID: "a", Since: start, Until: end.Add(100 * time.Hour)}}
		Expect(a.Advance("d", "p", again, end.Add(10*time.Hour)).Used(end.Add(12*time.Hour))).To(BeEquivalentTo(2*60*60), "it counts from when it is seen")
		Expect(a.Advance("d", "p", []Seen{was}, end.Add(10*time.Hour)).Machines).To(HaveLen(1))
		Expect(a.Advance("d", "p", []Seen{{UID: "a"}}, end.Add(-time.Hour)).Machines).To(HaveLen(1), "somebody may know less")
		Expect(a.Advance("d", "p", []Seen{{UID: "a"}}, end.Add(10*time.Hour)).Machines).To(BeEmpty())
	})

	It("P17: should count until the end of what has ended while nobody looked, if that is known", func() {
		a := New(start).Advance("d", "p", []Seen{kept("a", 0, 1000)}, at(10))
		ended := func(minute int) Seen { return Seen{UID: "a", Since: at(0), Ended: at(minute)} }
		Expect(used(a.Advance("d", "p", []Seen{ended(40)}, at(100)), 100)).To(Equal(40 * time.Minute))
		Expect(used(a.Advance("d", "p", []Seen{ended(40)}, at(100)).Advance("d", "p", []Seen{ended(40)}, at(200)), 200)).To(Equal(40 * time.Minute))
		Expect(used(a.Advance("d", "p", []Seen{ended(5)}, at(100)), 100)).To(Equal(10*time.Minute), "what was counted stays")
		Expect(used(a.Advance("d", "p", []Seen{{UID: "a", Until: at(1000), Ended: at(5)}}, at(100)), 100)).To(Equal(100*time.Minute), "it is preserved again")
		Expect(used(a.Advance("d", "p", []Seen{ended(1200)}, at(1300)), 1300)).To(Equal(1000*time.Minute), "something else preserved it on")
		Expect(used(a.Advance("d", "p", []Seen{over("a", 0)}, at(100)), 100)).To(Equal(10*time.Minute), "nobody knows")
	})

	It("P17: should resume without what is gone, and with what has ended", func() {
		a := New(start).Advance("d", "p", []Seen{kept("a", 0, 1000), kept("b", 0, 1000), kept("c", 0, 1000)}, at(10)).Advance("e", "q", []Seen{kept("z", 0, 1000)}, at(10))
		a.Max = 10
		Expect(used(a, 300)).To(Equal(4*300*time.Minute), "the limit would be reached")
		a = a.Resume([]Seen{kept("a", 0, 1000), {UID: "b", Since: at(0), Ended: at(20)}, kept("new", 50, 1000)}, at(300))
		Expect(a.UsedByPool(at(300))).To(Equal(map[string]int64{"p": (300 + 20 + 10) * 60, "q": 10 * 60}))
		Expect(a.Deployments(at(300))).To(Equal([]string{"d"}))
		Expect(a.Advance("d", "p", []Seen{kept("a", 0, 1000), kept("new", 50, 1000)}, at(300)).UsedByPool(at(300))["p"]).To(BeEquivalentTo((300 + 20 + 10 + 250) * 60))
		Expect(New(start).Resume([]Seen{kept("a", 0, 1000)}, at(300)).Machines).To(BeEmpty())
	})

	DescribeTable("P18: should say when a limit is reached", func(limit, expected int, seen ...Seen) {
		a := New(start).Advance("d", "p", seen, at(0))
		reached := a.Reaches(int64(limit)*60, at(0))
		if expected < 0 {
			Expect(reached).To(BeZero())
			return
		}
		Expect(reached).To(Equal(at(expected)))
		Expect(used(a, expected)).To(BeNumerically(">=", time.Duration(limit)*time.Minute))
		Expect(used(a, expected-1)).To(Or(BeNumerically("<", time.Duration(limit)*time.Minute), BeZero()))
	},
		Entry("with one machine", 60, 60, kept("a", 0, 1000)),
		Entry("with two", 60, 30, kept("a", 0, 1000), kept("b", 0, 1000)),
		Entry("with one that expires before", 60, 50, kept("a", 0, 1000), kept("b", 0, 10)),
		Entry("with one that expires just then", 60, 30, kept("a", 0, 1000), kept("b", 0, 30)),
		Entry("with two that expire just then", 60, 30, kept("a", 0, 30), kept("b", 0, 30)),
		Entry("never, if all expire before", 60, -1, kept("a", 0, 20), kept("b", 0, 30)),
		Entry("never, without machines", 60, -1),
		Entry("not in this month", 60*24*40, -1, kept("a", 0, 60*24*50)),
		Entry("at once, if there are none", 0, 0, kept("a", 0, 1000)),
	)

	It("P18: should say it of machines that are to be counted yet", func() {
		a := New(start).Advance("d", "p", []Seen{kept("a", 0, 1000)}, at(0)).Advance("e", "p", []Seen{kept("b", 0, 1000)}, at(20))
		Expect(a.Reaches(60*60, at(20))).To(Equal(at(30)))
		Expect(a.Reaches(60*60, at(50))).To(Equal(at(50)), "it was reached, and nobody knows better when")
		a.Max = 1
		Expect(a.Spent(at(20))).To(Equal(at(30)))
		a.SpentAt = at(30)
		Expect(a.Spent(at(50))).To(Equal(at(30)))
	})

	It("P18: should tell once when most are used, and when all are, and again if operators change the limit", func() {
		a := New(start).Advance("d", "p", []Seen{kept("a", 0, 10000)}, at(0))
		a.Max = 10
		settle := func(minute int) (note string) {
			a, note = a.Advance("d", "p", []Seen{kept("a", 0, 10000)}, at(minute)).Settle(at(minute))
			return note
		}
		Expect(settle(1)).To(BeEmpty())
		Expect(a.Warns(at(1))).To(Equal(at(480)))
		Expect(settle(479)).To(BeEmpty())
		Expect(settle(480)).To(HavePrefix("Machines of the shoot have been preserved for 8 of the 10 machine-hours that operators allow in 2026-11 (UTC). "))
		Expect(settle(481)).To(BeEmpty())
		Expect(a.Warns(at(481))).To(BeZero())
		Expect(a.SpentAt).To(BeZero())
		Expect(settle(600)).To(HavePrefix("Machines of the shoot have been preserved for all 10 machine-hours that operators allow in 2026-11 (UTC). "))
		Expect(a.SpentAt).To(Equal(at(600)))

		By("Releasing the machine just then")
		released, note := a.Advance("d", "p", []Seen{over("a", 0)}, at(600)).Settle(at(700))
		Expect(used(released, 700)).To(Equal(10 * time.Hour))
		Expect(note).To(BeEmpty())
		Expect(released.SpentAt).To(Equal(at(600)))

		By("Not releasing it")
		Expect(settle(601)).To(BeEmpty())
		Expect(a.SpentAt).To(Equal(at(600)))

		By("Raising the limit")
		a.Max = 20
		Expect(settle(610)).To(BeEmpty())
		Expect(a.SpentAt).To(BeZero())
		Expect(a.Warns(at(610))).To(Equal(at(960)))
		Expect(settle(970)).To(HavePrefix("Machines of the shoot have been preserved for 16 of the 20 machine-hours"))

		By("Lowering it to less than what is used")
		a.Max = 5
		Expect(settle(980)).To(HavePrefix("Machines of the shoot have been preserved for all 5 machine-hours"))
		Expect(a.SpentAt).To(Equal(at(980)))
	})

	DescribeTable("should refuse what it cannot read", func(value string) {
		_, err := Decode(value)
		Expect(err).To(HaveOccurred())
	},
		Entry("nothing", ""),
		Entry("no JSON", "{"),
		Entry("no version", `{"month":"2026-11"}`),
		Entry("a later version", `{"version":2,"month":"2026-11"}`),
		Entry("no month", `{"version":1}`),
		Entry("no such month", `{"version":1,"month":"2026-13"}`),
	)

	It("P17: should count the same however often, and in which order, machines are seen, and never lose or double a time", func() {
		for seed := range uint64(200) {
			random := rand.New(rand.NewPCG(seed, 1)) // #nosec G404 -- a test
			a, expected, last, on := New(start), time.Duration(0), map[string]int{}, map[string]bool{}
			for minute := 0; minute < 600; minute += 1 + random.IntN(20) {
				for _, name := range []string{"a", "b", "c"} {
					if on[name] { // until now it was preserved
						expected += time.Duration(minute-last[name]) * time.Minute
					}
					last[name] = minute
				}
				look := func() {
					var seen []Seen
					for _, name := range random.Perm(3) {
						name := string(rune('a' + name))
						s := over(name, 0)
						if on[name] {
							s = kept(name, 0, 1000)
						}
						seen = append(seen, s)
					}
					a = a.Advance("d", "p", seen, at(minute))
				}
				look()
				for name := range maps.Keys(map[string]bool{"a": true, "b": true, "c": true}) {
					on[name] = random.IntN(2) == 0
				}
				for range 1 + random.IntN(2) {
					look()
				}
				if random.IntN(3) == 0 {
					read, err := Decode(a.Encode())
					Expect(err).NotTo(HaveOccurred())
					a = read
				}
				Expect(used(a, minute)).To(Equal(expected), "seed %d, minute %d", seed, minute)
			}
		}
	})

	It("P17: should never count more than there was if somebody goes on from an older account, and less only of what nobody has seen end", func() {
		for seed := range uint64(300) {
			random := rand.New(rand.NewPCG(seed, 2)) // #nosec G404 -- a test
			stored := New(start).Encode()
			read := func() Account {
				a, err := Decode(stored)
				Expect(err).NotTo(HaveOccurred())
				return a
			}
			a, truth, lost := read(), time.Duration(0), time.Duration(0)
			machines, last, saved := map[string]*Seen{}, 0, 0
			for minute := 0; minute < 900; minute += 1 + random.IntN(30) {
				seen := func() (all []Seen) {
					for _, m := range machines {
						all = append(all, *m)
					}
					return all
				}
				away, ends := random.IntN(4) == 0, false
				for name := range maps.Keys(map[string]bool{"a": true, "b": true, "c": true}) {
					m := machines[name]
					if m != nil && !m.Until.IsZero() {
						truth += time.Duration(minute-last) * time.Minute
					}
					switch what := random.IntN(6); {
					case m == nil:
						if what == 0 {
							machines[name] = &Seen{UID: types.UID(fmt.Sprintf("%s%d", name, minute)), Since: at(minute), Until: at(5000)}
						}
					case what == 0 && !m.Until.IsZero():
						if !away { // whoever ends it has looked at it
							a = a.Advance("d", "p", seen(), at(minute))
						}
						m.Until, m.Ended, ends = time.Time{}, at(minute), true
					case what == 1 && m.Until.IsZero():
						if away { // nobody is there to preserve it
							continue
						}
						a = a.Advance("d", "p", seen(), at(minute))
						m.Until, m.Ended = at(5000), time.Time{}
					case what == 2:
						delete(machines, name)
					}
				}
				if last = minute; !away {
					if a = a.Advance("d", "p", seen(), at(minute)); ends || random.IntN(2) == 0 { // each end is stored before anything begins
						stored, saved = a.Encode(), minute
					}
				} else {
					a = read().Resume(seen(), at(minute)).Advance("d", "p", seen(), at(minute))
					if lost += 3 * time.Duration(minute-saved) * time.Minute; ends {
						stored, saved = a.Encode(), minute
					}
				}
				lost += 3 * 30 * time.Minute // a machine may go in between
				Expect(used(a, minute)).To(And(BeNumerically("<=", truth), BeNumerically(">=", truth-lost)), "seed %d, minute %d", seed, minute)
			}
		}
	})
})
