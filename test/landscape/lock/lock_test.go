// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lock_test

import (
	"context"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/lock"
)

var _ = Describe("Lock", func() {
	var path string

	BeforeEach(func() {
		path = filepath.Join(GinkgoT().TempDir(), "new", "file.lock")
	})

	It("should tell that nobody holds a file that does not exist", func() {
		Expect(lock.Held(path)).To(BeFalse())
	})

	It("should be held until it is released", func(ctx SpecContext) {
		held, err := lock.Acquire(ctx, path)
		Expect(err).NotTo(HaveOccurred())
		Expect(lock.Held(path)).To(BeTrue())

		held.Release()
		Expect(lock.Held(path)).To(BeFalse())
	})

	It("should wait for the holder, no longer than the context", func(ctx SpecContext) {
		held, err := lock.Acquire(ctx, path)
		Expect(err).NotTo(HaveOccurred())

		short, cancel := context.WithTimeout(ctx, 10*time.Millisecond)
		defer cancel()
		_, err = lock.Acquire(short, path)
		Expect(err).To(And(MatchError(ContainSubstring(path)), MatchError(context.DeadlineExceeded)))

		time.AfterFunc(50*time.Millisecond, held.Release)
		second, err := lock.Acquire(ctx, path)
		Expect(err).NotTo(HaveOccurred())
		second.Release()
	})
})
