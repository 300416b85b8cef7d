// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package observed_test

import (
	"encoding/json"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

func TestSnapshot(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Snapshot Suite")
}

var _ = DescribeTable("Missing should be read as it is written, and as it was written before", func(written string, want Missing) {
	read := Missing{}
	Expect(json.Unmarshal([]byte(written), &read)).To(Succeed())
	Expect(read).To(Equal(want))
	again, err := json.Marshal(read)
	Expect(err).NotTo(HaveOccurred())
	read = Missing{}
	Expect(json.Unmarshal(again, &read)).To(Succeed())
	Expect(read).To(Equal(want))
},
	Entry("a thing", `{"thing":"Pods","reason":"forbidden"}`, Missing{Thing: WhatPods, Reason: "forbidden"}),
	Entry("the rest of it", `{"thing":"Pods","partial":true,"reason":"too many"}`, Missing{Thing: WhatPods, Partial: true, Reason: "too many"}),
	Entry("another thing", `{"thing":"leases","reason":"forbidden"}`, Missing{Thing: "leases", Reason: "forbidden"}),
	Entry("a thing in words", `{"what":"pods of the node","reason":"forbidden"}`, Missing{Thing: WhatPods, Reason: "forbidden"}),
	Entry("the rest of it in words", `{"what":"the rest of pods of the node","reason":"too many"}`, Missing{Thing: WhatPods, Partial: true, Reason: "too many"}),
	Entry("all of the shoot in words", `{"what":"what the shoot knows: its API server does not answer","reason":"timeout"}`, Missing{Thing: WhatShoot, Reason: "timeout"}),
	Entry("another thing in words", `{"what":"leases","reason":"forbidden"}`, Missing{Thing: "leases", Reason: "forbidden"}),
)

var _ = It("should not read what is no Missing", func() {
	Expect(json.Unmarshal([]byte(`{"what":1}`), &Missing{})).NotTo(Succeed())
})
