// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package retention_test

import (
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	prefix      = "machine-preservation.extensions.gardener.cloud/"
	evidenceKey = prefix + "evidence"
	sinceKey    = prefix + "failed-since"
)

var (
	now     = Start.Add(time.Hour)
	failed  = Phase(machinev1alpha1.MachineFailed, Start.Add(time.Minute))
	kept    = Preserved("Failed:Preserved", "auto", now.Add(time.Hour))
	failure = stamp(Start.Add(time.Minute))
)

// plenty is a budget that the number of ConfigMaps uses up first.
const plenty = 48 << 20

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// incomplete is the metadata of a ConfigMap with evidence of the failure without the shoot or the seed.
func incomplete(machine string, gathered time.Time) metav1.PartialObjectMetadata {
	s := StoredEvidence(machine, Start.Add(time.Minute))
	s.Name += "-incomplete"
	s.Annotations[AnnotationStoredIncomplete] = stamp(gathered)
	return s
}

func renamed(s metav1.PartialObjectMetadata) metav1.PartialObjectMetadata {
	s.Name = "renamed"
	return s
}

// unnamed is the metadata of one that does not say of which machine it is.
func unnamed(s metav1.PartialObjectMetadata) metav1.PartialObjectMetadata {
	delete(s.Annotations, AnnotationStoredMachine)
	return s
}

var _ = Describe("Shelf", func() {
	DescribeTable("which evidence is to be stored", func(want string, options ...MachineOption) {
		machine := Machine("m", options...)
		at := time.Time{}
		if want != "" {
			at = now
		}
		Expect(Shelf{Budget: plenty}.Due(machine, now)).To(Equal(at))
		if want != "" {
			Expect(FailureOf(machine)).To(Equal(want))
		}
	},
		Entry("none of a machine that runs", ""),
		Entry("none of one that failed and is not kept", "", failed),
		Entry("none of one that is kept and has not failed", "", Preserved("Running:Preserved", "now", now)),
		Entry("none of one that is held as its deadline is near", "", failed, HeldUntil(now.Add(time.Second), "auto", now.Add(time.Hour))),
		Entry("that of one that has failed and is kept", failure, failed, kept),
		Entry("also if it is being deleted", failure, failed, kept, Deleted(now)),
		Entry("that of one whose evidence is said to be stored, and is not", failure, failed, kept, Annotation(evidenceKey, failure)),
		Entry("that of a failure after the one that it is stored of", failure, failed, kept, Annotation(evidenceKey, stamp(Start))),
		Entry("none of a failure that nobody knows the time of", "", failed, kept, Annotation(sinceKey, "")),
	)

	DescribeTable("when it is to be gathered where there is some", func(have []metav1.PartialObjectMetadata, want time.Time, options ...MachineOption) {
		Expect(Shelf{Stored: have, Budget: plenty}.Due(Machine("m", append([]MachineOption{failed, kept}, options...)...), now)).To(Equal(want))
	},
		Entry("never if it is stored", []metav1.PartialObjectMetadata{StoredEvidence("m", Start.Add(time.Minute))}, time.Time{}),
		Entry("also if the machine says so", []metav1.PartialObjectMetadata{StoredEvidence("m", Start.Add(time.Minute))}, time.Time{}, Annotation(evidenceKey, failure)),
		Entry("never if the time of the failure is written otherwise", []metav1.PartialObjectMetadata{func() metav1.PartialObjectMetadata {
			s := StoredEvidence("m", Start)
			s.Annotations[AnnotationStoredFailedSince] = "2026-03-01T13:00:00+01:00"
			return s
		}()}, time.Time{}, Annotation(sinceKey, "2026-03-01T13:00:00+01:00")),
		Entry("now if it is that of a failure before", []metav1.PartialObjectMetadata{StoredEvidence("m", Start)}, now),
		Entry("now if it is that of another machine", []metav1.PartialObjectMetadata{StoredEvidence("n", Start.Add(time.Minute))}, now),
		Entry("later if the shoot or the seed could not be asked just now", []metav1.PartialObjectMetadata{incomplete("m", now.Add(-time.Minute))}, now.Add(4*time.Minute)),
		Entry("now if nobody can read when that was", []metav1.PartialObjectMetadata{func() metav1.PartialObjectMetadata {
			s := incomplete("m", now)
			s.Annotations[AnnotationStoredIncomplete] = "just now"
			return s
		}()}, now),
		Entry("now if they could not some time ago", []metav1.PartialObjectMetadata{incomplete("m", now.Add(-5*time.Minute))}, now),
		Entry("never if it is complete by now", []metav1.PartialObjectMetadata{StoredEvidence("m", Start.Add(time.Minute)), incomplete("m", Start)}, time.Time{}),
		Entry("never if it was evicted", StoredEvidenceOfOthers(MaxStored), time.Time{}, Annotation(evidenceKey, failure)),
		Entry("now if there is a place again", StoredEvidenceOfOthers(MaxStored-1), now, Annotation(evidenceKey, failure)),
		Entry("now if another one has to go for it", StoredEvidenceOfOthers(MaxStored), now),
	)

	DescribeTable("what is due for what is stored", func(machines []string, have []metav1.PartialObjectMetadata, want Upkeep) {
		if want.Expire == nil {
			want.Expire = map[string]time.Time{}
		}
		Expect(Shelf{Stored: have, Budget: plenty}.Upkeep(sets.New(machines...), 24*time.Hour, now)).To(Equal(want))
	},
		Entry("nothing", nil, nil, Upkeep{}),
		Entry("nothing while the machine is there", []string{"a"}, []metav1.PartialObjectMetadata{StoredEvidence("a", Start)}, Upkeep{}),
		Entry("its time begins when the machine is gone", []string{"b"}, []metav1.PartialObjectMetadata{StoredEvidence("a", Start)},
			Upkeep{Expire: map[string]time.Time{StoredEvidenceName("a"): now.Add(24 * time.Hour)}, Next: now.Add(24 * time.Hour)}),
		Entry("and does not begin anew", nil, []metav1.PartialObjectMetadata{StoredEvidence("a", Start, now.Add(time.Second))}, Upkeep{Next: now.Add(time.Second)}),
		Entry("it is over at that moment", nil, []metav1.PartialObjectMetadata{StoredEvidence("a", Start, now)}, Upkeep{Delete: []string{StoredEvidenceName("a")}}),
		Entry("and was over while nobody looked", nil, []metav1.PartialObjectMetadata{StoredEvidence("a", Start, now.Add(-time.Hour))}, Upkeep{Delete: []string{StoredEvidenceName("a")}}),
		Entry("not if the machine is there again", []string{"a"}, []metav1.PartialObjectMetadata{StoredEvidence("a", Start, now.Add(-time.Hour))},
			Upkeep{Expire: map[string]time.Time{StoredEvidenceName("a"): {}}}),
		Entry("a time that nobody can read is written anew", nil, []metav1.PartialObjectMetadata{func() metav1.PartialObjectMetadata {
			s := StoredEvidence("a", Start)
			s.Annotations[AnnotationStoredExpires] = "tomorrow"
			return s
		}()}, Upkeep{Expire: map[string]time.Time{StoredEvidenceName("a"): now.Add(24 * time.Hour)}, Next: now.Add(24 * time.Hour)}),
		Entry("what is replaced goes: that of a failure before", []string{"a"}, []metav1.PartialObjectMetadata{StoredEvidence("a", now), renamed(StoredEvidence("a", Start))},
			Upkeep{Delete: []string{"renamed"}}),
		Entry("what was stored of the same failure without the shoot or the seed stays", []string{"a"}, []metav1.PartialObjectMetadata{incomplete("a", now), StoredEvidence("a", Start.Add(time.Minute))}, Upkeep{}),
		Entry("one of it only", []string{"a"}, []metav1.PartialObjectMetadata{StoredEvidence("a", Start.Add(time.Minute)), renamed(incomplete("a", now)), incomplete("a", now)},
			Upkeep{Delete: []string{StoredEvidenceName("a-incomplete")}}),
		Entry("and not that of a failure before", []string{"a"}, []metav1.PartialObjectMetadata{incomplete("a", now), StoredEvidence("a", now)},
			Upkeep{Delete: []string{StoredEvidenceName("a-incomplete")}}),
		Entry("it goes with the machine, too", nil, []metav1.PartialObjectMetadata{incomplete("a", now), StoredEvidence("a", Start.Add(time.Minute))},
			Upkeep{Expire: map[string]time.Time{StoredEvidenceName("a"): now.Add(24 * time.Hour), StoredEvidenceName("a-incomplete"): now.Add(24 * time.Hour)}, Next: now.Add(24 * time.Hour)}),
		Entry("those that do not say of which machine they are replace nothing", nil, []metav1.PartialObjectMetadata{unnamed(StoredEvidence("a", Start, now.Add(time.Hour))), unnamed(StoredEvidence("b", Start, now.Add(time.Hour)))},
			Upkeep{Next: now.Add(time.Hour)}),
		Entry("the next is the one whose time is over first", []string{"c"}, []metav1.PartialObjectMetadata{StoredEvidence("a", Start, now.Add(2*time.Hour)), StoredEvidence("b", Start, now.Add(time.Hour)), StoredEvidence("c", Start)},
			Upkeep{Next: now.Add(time.Hour)}),
	)

	It("should delete what others have followed before it evicts, and take it for no place", func() {
		machines := sets.New("a", "m")
		for i := range MaxStored {
			machines.Insert(fmt.Sprintf("other-%d", i))
		}
		have := append(StoredEvidenceOfOthers(MaxStored-2), incomplete("a", now), StoredEvidence("a", Start.Add(time.Minute)))
		Expect(Shelf{Stored: have, Budget: plenty}.Upkeep(machines, time.Hour, now)).To(Equal(Upkeep{Expire: map[string]time.Time{}}))
		Expect(Shelf{Stored: have, Budget: plenty}.Due(Machine("m", failed, kept, Annotation(evidenceKey, failure)), now)).To(Equal(now))
		have = append(have, StoredEvidence("m", Start))
		Expect(Shelf{Stored: have, Budget: plenty}.Upkeep(machines, time.Hour, now)).To(Equal(Upkeep{Expire: map[string]time.Time{}, Delete: []string{StoredEvidenceName("a-incomplete")}}))
	})

	It("should evict those of machines that have been gone for longest, then those of the oldest failures", func() {
		var (
			have     []metav1.PartialObjectMetadata
			machines []string
		)
		for i := range MaxStored - 1 {
			machines = append(machines, fmt.Sprintf("m-%d", i))
			have = append(have, StoredEvidence(machines[i], Start.Add(time.Duration(i)*time.Minute)))
		}
		have = append(have, StoredEvidence("gone-1", now, now.Add(2*time.Hour)))
		Expect(Shelf{Stored: have, Budget: plenty}.Upkeep(sets.New(machines...), time.Hour, now).Evict).To(BeEmpty())

		have = append(have, StoredEvidence("gone-2", now, now.Add(time.Hour)), StoredEvidence("gone-3", Start))
		todo := Shelf{Stored: have, Budget: plenty}.Upkeep(sets.New(machines...), 3*time.Hour, now)
		Expect(todo.Evict).To(Equal([]string{StoredEvidenceName("gone-2"), StoredEvidenceName("gone-1")}))
		Expect(todo.Next).To(Equal(now.Add(3 * time.Hour)))
		Expect(todo.Expire).To(HaveKey(StoredEvidenceName("gone-3")))

		have = append(have, StoredEvidence("new-1", now), StoredEvidence("new-2", now))
		todo = Shelf{Stored: have, Budget: plenty}.Upkeep(sets.New(append(machines, "new-1", "new-2")...), time.Hour, now)
		Expect(todo.Evict).To(HaveLen(4))
		Expect(todo.Evict).To(ContainElements(StoredEvidenceName("gone-3"), StoredEvidenceName("m-0")))
		Expect(todo.Expire).To(BeEmpty(), "what is evicted is not written to")
	})

	sized := func(machine string, bytes string, expires ...time.Time) metav1.PartialObjectMetadata {
		s := StoredEvidence(machine, Start, expires...)
		s.Annotations[prefix+"evidence-bytes"] = bytes
		return s
	}

	DescribeTable("evicts in the order of eviction by number until the rest fits", func(budget int64, want ...string) {
		have := []metav1.PartialObjectMetadata{sized("a", "100000"), sized("b", "100000", now.Add(2*time.Hour)), sized("c", "100000", now.Add(time.Hour))}
		todo := Shelf{Stored: have, Budget: budget}.Upkeep(sets.New("a"), time.Hour, now)
		Expect(todo.Evict).To(HaveExactElements(want))
	},
		Entry("all fit", int64(3*104096)),
		Entry("one byte less", int64(3*104096-1), StoredEvidenceName("c")),
		Entry("two", int64(104096), StoredEvidenceName("c"), StoredEvidenceName("b")),
		Entry("none but the last one", int64(0), StoredEvidenceName("c"), StoredEvidenceName("b")),
	)

	DescribeTable("counts what does not say how large it is as the largest", func(bytes string) {
		s := sized("a", bytes)
		Expect(StoredSize(&s)).To(BeEquivalentTo(904 << 10))
	},
		Entry("nothing", ""), Entry("no number", "1k"), Entry("zero", "0"), Entry("less", "-1"), Entry("more than a bundle may have", "921601"),
	)

	DescribeTable("gives a bundle an eighth of what is left, and always what 48 may have each", func(used, budget, want int64) {
		Expect(ShareOf(used, budget)).To(Equal(want))
	},
		Entry("all is left", int64(0), int64(16<<20), int64(904<<10)),
		Entry("some", int64(4<<20), int64(8<<20), int64(512<<10)),
		Entry("nothing", int64(8<<20), int64(8<<20), int64(8<<20)/48),
		Entry("a small budget", int64(1<<20), int64(1<<20), int64(64<<10)),
		Entry("a tiny one", int64(0), int64(1<<10), int64(1<<10)),
	)

	It("should leave the next bundle of a machine its part of what others leave, without what else is counted", func() {
		have := []metav1.PartialObjectMetadata{sized("a", "900000"), sized("m", "900000")}
		Expect(Shelf{Stored: have, Budget: 904096 + 1<<20}.Share("m")).To(BeEquivalentTo(1<<17 - 4096))
	})

	It("should not gather again what was evicted unless it fits without another eviction", func() {
		machine := Machine("m", failed, kept, Annotation(evidenceKey, failure))
		have := []metav1.PartialObjectMetadata{sized("a", "900000")}
		Expect(Shelf{Stored: have, Budget: 904096 + 64<<10}.Due(machine, now)).To(Equal(now))
		Expect(Shelf{Stored: have, Budget: 904096 + 64<<10 - 1}.Due(machine, now)).To(BeZero())
	})
})
