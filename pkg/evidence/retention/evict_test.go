// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package retention_test

import (
	"maps"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
)

var _ = It("should say in the Event how much a control plane may keep, and why", func() {
	stored := &metav1.ObjectMeta{Name: "stored", Annotations: map[string]string{AnnotationStoredMachine: "m"}}
	note := "Evidence of machine m was deleted early, because this control plane may keep 48 bundles and 3 KiB."
	Expect(EvictedNote(stored, 3<<10+1, false)).To(Equal(note))
	Expect(EvictedNote(stored, 3<<10, true)).To(Equal(note + " It may not keep more, because the seed's budget for evidence is used up."))
})

var _ = It("should leave names for bundles that are being stored", func() {
	Expect(MaxStoredNames).To(BeNumerically(">", MaxStored))
})

var _ = Describe("#Evict", func() {
	// Each counts 100,000 bytes.
	stored := func(name, machine, failedSince string, annotations map[string]string) metav1.PartialObjectMetadata {
		all := map[string]string{AnnotationStoredMachine: machine, AnnotationStoredFailedSince: failedSince, AnnotationStoredBytes: "95904"}
		maps.Copy(all, annotations)
		return metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: all}}
	}
	var (
		gone = func(at string) map[string]string { return map[string]string{AnnotationStoredExpires: at} }
		have = []metav1.PartialObjectMetadata{
			stored("complete", "a", "2026-03-01T12:00:00Z", nil),
			stored("earlier", "b", "2026-03-01T11:00:00Z", nil),
			stored("gone", "c", "2026-03-01T13:00:00Z", gone("2026-03-03T00:00:00Z")),
			stored("gone-for-longer", "d", "2026-03-01T13:00:00Z", gone("2026-03-02T00:00:00Z")),
			stored("incomplete", "a", "2026-03-01T12:00:00Z", map[string]string{AnnotationStoredIncomplete: "2026-03-01T12:00:00Z"}),
			stored("last-incomplete", "e", "2026-03-01T14:00:00Z", map[string]string{AnnotationStoredIncomplete: "2026-03-01T14:00:00Z"}),
		}
		names = func(all []metav1.PartialObjectMetadata) []string {
			names := []string{}
			for i := range all {
				names = append(names, all[i].Name)
			}
			return names
		}
	)

	DescribeTable("what goes", func(maxCount int, maxBytes int64, wantFollowed, wantEvicted []string) {
		followed, evicted := Evict(have, maxCount, maxBytes)
		Expect(names(followed)).To(Equal(wantFollowed))
		Expect(names(evicted)).To(Equal(wantEvicted))
	},
		Entry("nothing where there is a place for all", 6, int64(600000), []string{}, []string{}),
		Entry("first what a complete one has followed", 5, int64(600000), []string{"incomplete"}, []string{}),
		Entry("also for a byte", 6, int64(599999), []string{"incomplete"}, []string{}),
		Entry("then that of machines that have been gone for longest", 6, int64(300000), []string{"incomplete"}, []string{"gone-for-longer", "gone"}),
		Entry("then that of the oldest failures", 1, int64(600000), []string{"incomplete"}, []string{"gone-for-longer", "gone", "earlier", "complete"}),
		Entry("all but the last one if there is no place for any", 6, int64(99999), []string{"incomplete"}, []string{"gone-for-longer", "gone", "earlier", "complete"}),
	)
})
