// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package brief_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
)

func TestText(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Text Suite")
}

var _ = Describe("P14: what others wrote", func() {
	DescribeTable("#Cut", func(text, want string) {
		Expect(Cut(text)).To(Equal(want))
	},
		Entry("nothing", "", ""),
		Entry("as it is", "now", "now"),
		Entry("without the rest", strings.Repeat("x", 1<<20), strings.Repeat("x", 128)),
		Entry("characters, not bytes", strings.Repeat("ü", 200), strings.Repeat("ü", 128)),
		Entry("in one line", "no\nlevel=info msg=fine\t1", "no level=info msg=fine 1"),
		Entry("without what moves the cursor, or turns the direction", "\x1b[2Jevil\u202e\u0000", "[2Jevil"),
		Entry("what cannot be printed does not count", strings.Repeat("\x00", 1000)+"evil", "evil"),
		Entry("what is no text", "\xff\xfe", "��"),
	)

	DescribeTable("#End", func(text, want string) {
		Expect(End(text)).To(Equal(want))
	},
		Entry("as it is", strings.Repeat("ü", 256), strings.Repeat("ü", 256)),
		Entry("without the rest", strings.Repeat("x", 2000)+": unknown\nfield", "..."+strings.Repeat("x", 241)+": unknown field"),
	)

	DescribeTable("#Note", func(text, want string) {
		Expect(Note(text)).To(Equal(want))
	},
		Entry("as it is", strings.Repeat("x", 1024), strings.Repeat("x", 1024)),
		Entry("without the rest", strings.Repeat("x", 1025), strings.Repeat("x", 1021)+"..."),
		Entry("whole characters", strings.Repeat("ü", 1024), strings.Repeat("ü", 510)+"..."),
		Entry("what is no text", "a\xffb", "ab"),
	)

	It("#First should name a few, and count the others", func() {
		list := []string{"a", "b", "c"}
		Expect(First(nil, 1)).To(BeEmpty())
		Expect(First(list, 3)).To(Equal(list))
		Expect(First(list, 2)).To(Equal([]string{"a", "b", "and 1 more"}))
		Expect(First(list, 1)).To(Equal([]string{"a", "and 2 more"}))
		Expect(list).To(Equal([]string{"a", "b", "c"}))
	})

	DescribeTable("#Count", func(n int, want string) {
		Expect(Count(n, "failed machine")).To(Equal(want))
		Expect(Count(int32(n), "failed machine")).To(Equal(want)) // #nosec G115 -- they are few
	},
		Entry("none", 0, "0 failed machines"),
		Entry("one", 1, "1 failed machine"),
		Entry("several", 21, "21 failed machines"),
	)

	It("#CutError should cut the text and nothing else", func() {
		denied := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "m", errors.New(strings.Repeat("\x1b", 10)+strings.Repeat("x", 1<<20)))
		err := fmt.Errorf("failed: %w", CutError(denied))
		Expect(err.Error()).To(HavePrefix(`failed: nodes "m" is forbidden: xxx`))
		Expect(err.Error()).To(HaveLen(len("failed: ") + 128))
		Expect(apierrors.IsForbidden(err)).To(BeTrue())
	})
})
