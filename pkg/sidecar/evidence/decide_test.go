// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/evidence"
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

// nameOf is the name of a ConfigMap here: that of its machine, so that it is seen which is which.
func nameOf(machine string) string { return "evidence-of-" + machine }

// stored is the metadata of a ConfigMap with the evidence of a machine, which expires at a time if there is one.
func stored(machine string, failure time.Time, expires ...time.Time) metav1.PartialObjectMetadata {
	s := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: Namespace,
		Name:      nameOf(machine),
		Labels:    map[string]string{evidence.LabelStored: "true"},
		Annotations: map[string]string{
			evidence.AnnotationStoredMachine: machine,
			AnnotationFailedSince:            stamp(failure),
		},
	}}
	for _, at := range expires {
		s.Annotations[AnnotationExpires] = stamp(at)
	}
	return s
}

// incomplete is the metadata of a ConfigMap with evidence of the failure without the shoot or the seed.
func incomplete(machine string, gathered time.Time) metav1.PartialObjectMetadata {
	s := stored(machine, Start.Add(time.Minute))
	s.Name += "-incomplete"
	s.Annotations[AnnotationIncomplete] = stamp(gathered)
	return s
}

func renamed(s metav1.PartialObjectMetadata) metav1.PartialObjectMetadata {
	s.Name = "renamed"
	return s
}

// unnamed is the metadata of one that does not say of which machine it is.
func unnamed(s metav1.PartialObjectMetadata) metav1.PartialObjectMetadata {
	delete(s.Annotations, evidence.AnnotationStoredMachine)
	return s
}

// many is the metadata of ConfigMaps of so many other machines.
func many(n int) []metav1.PartialObjectMetadata {
	var all []metav1.PartialObjectMetadata
	for i := range n {
		all = append(all, stored(fmt.Sprintf("other-%d", i), Start))
	}
	return all
}

var _ = Describe("Decisions", func() {
	DescribeTable("which evidence is to be stored", func(want string, options ...MachineOption) {
		machine := Machine("m", options...)
		at := time.Time{}
		if want != "" {
			at = now
		}
		Expect(Due(machine, nil, plenty, now)).To(Equal(at))
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
		Expect(Due(Machine("m", append([]MachineOption{failed, kept}, options...)...), have, plenty, now)).To(Equal(want))
	},
		Entry("never if it is stored", []metav1.PartialObjectMetadata{stored("m", Start.Add(time.Minute))}, time.Time{}),
		Entry("also if the machine says so", []metav1.PartialObjectMetadata{stored("m", Start.Add(time.Minute))}, time.Time{}, Annotation(evidenceKey, failure)),
		Entry("never if the time of the failure is written otherwise", []metav1.PartialObjectMetadata{func() metav1.PartialObjectMetadata {
			s := stored("m", Start)
			s.Annotations[AnnotationFailedSince] = "2026-03-01T13:00:00+01:00"
			return s
		}()}, time.Time{}, Annotation(sinceKey, "2026-03-01T13:00:00+01:00")),
		Entry("now if it is that of a failure before", []metav1.PartialObjectMetadata{stored("m", Start)}, now),
		Entry("now if it is that of another machine", []metav1.PartialObjectMetadata{stored("n", Start.Add(time.Minute))}, now),
		Entry("later if the shoot or the seed could not be asked just now", []metav1.PartialObjectMetadata{incomplete("m", now.Add(-time.Minute))}, now.Add(4*time.Minute)),
		Entry("now if they could not some time ago", []metav1.PartialObjectMetadata{incomplete("m", now.Add(-5*time.Minute))}, now),
		Entry("never if it is complete by now", []metav1.PartialObjectMetadata{stored("m", Start.Add(time.Minute)), incomplete("m", Start)}, time.Time{}),
		Entry("never if it was evicted", many(MaxStored), time.Time{}, Annotation(evidenceKey, failure)),
		Entry("now if there is a place again", many(MaxStored-1), now, Annotation(evidenceKey, failure)),
		Entry("now if another one has to go for it", many(MaxStored), now),
	)

	DescribeTable("what is due for what is stored", func(machines []string, have []metav1.PartialObjectMetadata, want Upkeep) {
		if want.Expire == nil {
			want.Expire = map[string]time.Time{}
		}
		Expect(Decide(sets.New(machines...), have, 24*time.Hour, plenty, now)).To(Equal(want))
	},
		Entry("nothing", nil, nil, Upkeep{}),
		Entry("nothing while the machine is there", []string{"a"}, []metav1.PartialObjectMetadata{stored("a", Start)}, Upkeep{}),
		Entry("its time begins when the machine is gone", []string{"b"}, []metav1.PartialObjectMetadata{stored("a", Start)},
			Upkeep{Expire: map[string]time.Time{nameOf("a"): now.Add(24 * time.Hour)}, Next: now.Add(24 * time.Hour)}),
		Entry("and does not begin anew", nil, []metav1.PartialObjectMetadata{stored("a", Start, now.Add(time.Second))}, Upkeep{Next: now.Add(time.Second)}),
		Entry("it is over at that moment", nil, []metav1.PartialObjectMetadata{stored("a", Start, now)}, Upkeep{Delete: []string{nameOf("a")}}),
		Entry("and was over while nobody looked", nil, []metav1.PartialObjectMetadata{stored("a", Start, now.Add(-time.Hour))}, Upkeep{Delete: []string{nameOf("a")}}),
		Entry("not if the machine is there again", []string{"a"}, []metav1.PartialObjectMetadata{stored("a", Start, now.Add(-time.Hour))},
			Upkeep{Expire: map[string]time.Time{nameOf("a"): {}}}),
		Entry("a time that nobody can read is written anew", nil, []metav1.PartialObjectMetadata{func() metav1.PartialObjectMetadata {
			s := stored("a", Start)
			s.Annotations[AnnotationExpires] = "tomorrow"
			return s
		}()}, Upkeep{Expire: map[string]time.Time{nameOf("a"): now.Add(24 * time.Hour)}, Next: now.Add(24 * time.Hour)}),
		Entry("what is replaced goes: that of a failure before", []string{"a"}, []metav1.PartialObjectMetadata{stored("a", now), renamed(stored("a", Start))},
			Upkeep{Delete: []string{"renamed"}}),
		Entry("what was stored of the same failure without the shoot or the seed stays", []string{"a"}, []metav1.PartialObjectMetadata{incomplete("a", now), stored("a", Start.Add(time.Minute))}, Upkeep{}),
		Entry("one of it only", []string{"a"}, []metav1.PartialObjectMetadata{stored("a", Start.Add(time.Minute)), renamed(incomplete("a", now)), incomplete("a", now)},
			Upkeep{Delete: []string{nameOf("a-incomplete")}}),
		Entry("and not that of a failure before", []string{"a"}, []metav1.PartialObjectMetadata{incomplete("a", now), stored("a", now)},
			Upkeep{Delete: []string{nameOf("a-incomplete")}}),
		Entry("it goes with the machine, too", nil, []metav1.PartialObjectMetadata{incomplete("a", now), stored("a", Start.Add(time.Minute))},
			Upkeep{Expire: map[string]time.Time{nameOf("a"): now.Add(24 * time.Hour), nameOf("a-incomplete"): now.Add(24 * time.Hour)}, Next: now.Add(24 * time.Hour)}),
		Entry("those that do not say of which machine they are replace nothing", nil, []metav1.PartialObjectMetadata{unnamed(stored("a", Start, now.Add(time.Hour))), unnamed(stored("b", Start, now.Add(time.Hour)))},
			Upkeep{Next: now.Add(time.Hour)}),
		Entry("the next is the one whose time is over first", []string{"c"}, []metav1.PartialObjectMetadata{stored("a", Start, now.Add(2*time.Hour)), stored("b", Start, now.Add(time.Hour)), stored("c", Start)},
			Upkeep{Next: now.Add(time.Hour)}),
	)

	It("should delete what others have followed before it evicts, and take it for no place", func() {
		machines := sets.New("a", "m")
		for i := range MaxStored {
			machines.Insert(fmt.Sprintf("other-%d", i))
		}
		have := append(many(MaxStored-2), incomplete("a", now), stored("a", Start.Add(time.Minute)))
		Expect(Decide(machines, have, time.Hour, plenty, now)).To(Equal(Upkeep{Expire: map[string]time.Time{}}))
		Expect(Due(Machine("m", failed, kept, Annotation(evidenceKey, failure)), have, plenty, now)).To(Equal(now))
		have = append(have, stored("m", Start))
		Expect(Decide(machines, have, time.Hour, plenty, now)).To(Equal(Upkeep{Expire: map[string]time.Time{}, Delete: []string{nameOf("a-incomplete")}}))
	})

	It("should evict those of machines that have been gone for longest, then those of the oldest failures", func() {
		var (
			have     []metav1.PartialObjectMetadata
			machines []string
		)
		for i := range MaxStored - 1 {
			machines = append(machines, fmt.Sprintf("m-%d", i))
			have = append(have, stored(machines[i], Start.Add(time.Duration(i)*time.Minute)))
		}
		have = append(have, stored("gone-1", now, now.Add(2*time.Hour)))
		Expect(Decide(sets.New(machines...), have, time.Hour, plenty, now).Evict).To(BeEmpty())

		have = append(have, stored("gone-2", now, now.Add(time.Hour)), stored("gone-3", Start))
		todo := Decide(sets.New(machines...), have, 3*time.Hour, plenty, now)
		Expect(todo.Evict).To(Equal([]string{nameOf("gone-2"), nameOf("gone-1")}))
		Expect(todo.Next).To(Equal(now.Add(3 * time.Hour)))
		Expect(todo.Expire).To(HaveKey(nameOf("gone-3")))

		have = append(have, stored("new-1", now), stored("new-2", now))
		todo = Decide(sets.New(append(machines, "new-1", "new-2")...), have, time.Hour, plenty, now)
		Expect(todo.Evict).To(HaveLen(4))
		Expect(todo.Evict).To(ContainElements(nameOf("gone-3"), nameOf("m-0")))
		Expect(todo.Expire).To(BeEmpty(), "what is evicted is not written to")
	})
})
