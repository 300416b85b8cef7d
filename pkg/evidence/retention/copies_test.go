// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package retention_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
)

var _ = Describe("#Copies", func() {
	const one, two, three = "machine-preservation-evidence-01", "machine-preservation-evidence-02", "machine-preservation-evidence-03"
	stored := func(names ...string) Shelf {
		shelf := Shelf{}
		for _, name := range names {
			shelf.Stored = append(shelf.Stored, metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("of-" + name)}})
		}
		return shelf
	}

	DescribeTable("what is due", func(shelf Shelf, there map[string]types.UID, wantMissing, wantSuperfluous []string) {
		missing, superfluous := shelf.Copies(there)
		names := []string{}
		for i := range missing {
			names = append(names, missing[i].Name)
		}
		Expect(names).To(Equal(wantMissing))
		Expect(superfluous).To(HaveExactElements(wantSuperfluous))
	},
		Entry("nothing where nothing is", stored(), nil, []string{}, nil),
		Entry("what has yet to be copied", stored(one, two), map[string]types.UID{two: "of-" + two}, []string{one}, nil),
		Entry("in the order of names", stored(three, one, two), nil, []string{one, two, three}, nil),
		Entry("what is not stored any more goes", stored(one), map[string]types.UID{one: "of-" + one, two: "of-" + two, three: "of-" + three}, []string{}, []string{two, three}),
		Entry("what is stored by a name since, in the place of what was", stored(one), map[string]types.UID{one: "of-another"}, []string{one}, []string{one}),
		Entry("a copy that does not say of what", stored(one), map[string]types.UID{one: "", two: ""}, []string{one}, []string{one, two}),
		Entry("what has another name is nobody's, on both sides", stored("labelled"), map[string]types.UID{"other": "of-other"}, []string{}, nil),
	)

	It("should leave the cap where it is", func() {
		missing, _ := NewShelf([]metav1.PartialObjectMetadata{{ObjectMeta: metav1.ObjectMeta{Name: StoredCapName, Labels: map[string]string{LabelStored: StoredCap}}}}, 0).Copies(nil)
		Expect(missing).To(BeEmpty())
	})
})
