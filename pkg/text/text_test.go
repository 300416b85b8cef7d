// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package text_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/text"
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

	It("#CutError should cut the text and nothing else", func() {
		denied := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "m", errors.New(strings.Repeat("\x1b", 10)+strings.Repeat("x", 1<<20)))
		err := fmt.Errorf("failed: %w", CutError(denied))
		Expect(err.Error()).To(HavePrefix(`failed: nodes "m" is forbidden: xxx`))
		Expect(err.Error()).To(HaveLen(len("failed: ") + 128))
		Expect(apierrors.IsForbidden(err)).To(BeTrue())
	})
})
