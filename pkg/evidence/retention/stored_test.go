// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package retention_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = DescribeTable("#NewShelf", func(limit string, wantBudget int64, wantCapped bool) {
	capped := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: StoredCapName, Labels: map[string]string{LabelStored: StoredCap}}}
	if limit != "" {
		capped.Annotations = map[string]string{AnnotationStoredCap: limit}
	}
	bundle := StoredEvidence("m", Start)
	bundle.Annotations[AnnotationStoredCap] = "65536" // it has no say
	shelf := NewShelf([]metav1.PartialObjectMetadata{capped, bundle}, 1<<20)
	Expect(shelf).To(Equal(Shelf{Stored: []metav1.PartialObjectMetadata{bundle}, Budget: wantBudget, IsCapped: wantCapped}))
},
	Entry("a cap below the budget", "1048575", int64(1<<20-1), true),
	Entry("one that is the budget", "1048576", int64(1<<20), false),
	Entry("the least there is", "65536", int64(64<<10), true),
	Entry("less than that", "65535", int64(1<<20), false),
	Entry("none", "", int64(1<<20), false),
)

var _ = DescribeTable("#StoredMachine", func(annotations map[string]string, want string) {
	Expect(StoredMachine(&metav1.ObjectMeta{Name: "evidence-01", Annotations: annotations})).To(Equal(want))
},
	Entry("as the annotation says", map[string]string{AnnotationStoredMachine: "m", AnnotationStoredNode: "n"}, "m"),
	Entry("no annotations", nil, "evidence-01"),
	Entry("only the node", map[string]string{AnnotationStoredNode: "n"}, "evidence-01"),
	Entry("an empty annotation", map[string]string{AnnotationStoredMachine: ""}, "evidence-01"),
)
