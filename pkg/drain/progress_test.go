// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
)

var _ = DescribeTable("P11: Progress in words", func(p Progress, want string) {
	Expect(p.String()).To(Equal(want))
},
	Entry("nothing", Progress{}, "Pods: none."),
	Entry("nothing but blocked ones", Progress{BlockedBy: []string{"namespace a: budget x"}}, "Pods: blocked: namespace a: budget x."),
	Entry("everything", Progress{Evicted: 1, Waiting: 2, Forced: 3, Kept: 4, BlockedBy: []string{"namespace a: budget x", "namespace b: budget y"}},
		"Pods: 1 evicted, 2 terminating, 3 deleted by force, 4 kept, because they use volumes and the VM may still run them; blocked: namespace a: budget x; namespace b: budget y."),
	Entry("more blockers than are named", Progress{BlockedBy: strings.Split("abcdefgh", "")}, "Pods: blocked: a; b; c; d; e; and 3 more."),
	Entry("as many as are named", Progress{BlockedBy: strings.Split("abcde", "")}, "Pods: blocked: a; b; c; d; e."),
	Entry("what finalizers keep", Progress{Finalizing: strings.Split("abcdef", "")}, "Pods: kept by finalizers: a; b; c; d; e; and 1 more."),
	Entry("not all", Progress{Evicted: 1, Partial: true}, "Pods: 1 evicted; other pods follow."),
	Entry("forced with volumes", Progress{Forced: 3, ForcedWithVolumes: 2}, "Pods: 3 deleted by force, 2 of them with volumes that the VM may still use."),
	Entry("done", Progress{Evicted: 1, Done: true}, "Pods: 1 evicted."),
)

var _ = DescribeTable("P11: whether nothing but kept pods is left", func(p Progress, want bool) {
	Expect(p.OnlyKept()).To(Equal(want))
},
	Entry("nothing at all", Progress{}, false),
	Entry("kept ones", Progress{Kept: 1}, true),
	Entry("one that is evicted", Progress{Kept: 1, Evicted: 1}, false),
	Entry("one that terminates", Progress{Kept: 1, Waiting: 1}, false),
	Entry("one that is deleted by force", Progress{Kept: 1, Forced: 1}, false),
	Entry("one that came back", Progress{Kept: 1, Returned: 1}, false),
	Entry("one with finalizers", Progress{Kept: 1, Finalizing: []string{"a/b"}}, false),
	Entry("one that is blocked", Progress{Kept: 1, BlockedBy: []string{"a"}}, false),
	Entry("some that were not reached", Progress{Kept: 1, Partial: true}, false),
	Entry("as many of one as of the next: evicted", Progress{Kept: 1, Evicted: 1, Waiting: 1}, false),
	Entry("terminating", Progress{Kept: 1, Waiting: 1, Forced: 1}, false),
	Entry("deleted by force", Progress{Kept: 1, Forced: 1, Returned: 1}, false),
	Entry("came back", Progress{Kept: 1, Returned: 1, Finalizing: []string{"a/b"}}, false),
	Entry("with finalizers", Progress{Kept: 1, Finalizing: []string{"a/b"}, BlockedBy: []string{"a"}}, false),
)
