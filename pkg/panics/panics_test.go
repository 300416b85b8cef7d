// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package panics_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/gomega"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/panics"
)

func TestCatch(t *testing.T) {
	g := NewWithT(t)
	var logged []string
	ctx := logf.IntoContext(t.Context(), funcr.New(func(_, args string) { logged = append(logged, args) }, funcr.Options{}))

	failure := errors.New("no")
	g.Expect(Catch(ctx, func() error { return nil })).To(Succeed())
	g.Expect(Catch(ctx, func() error { return failure })).To(BeIdenticalTo(failure))
	g.Expect(logged).To(BeEmpty())

	g.Expect(Catch(ctx, func() error { panic(strings.Repeat("x\n", 1000)) })).To(MatchError("panic: " + strings.Repeat("x ", 64)))
	g.Expect(Catch(ctx, func() error { panic(errors.New("no such entry")) })).To(MatchError("panic: no such entry"))
	g.Expect(logged).To(HaveEach(And(ContainSubstring("Observed a panic"), ContainSubstring("panics_test.go"))))
	g.Expect(logged).To(HaveLen(2))
}
