// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
)

var _ = Describe("Audit", func() {
	const (
		sidecar  = "machine-preservation-controller/v0.0.0 (linux/amd64) kubernetes/$Format"
		provider = "machine-controller-manager-provider-local/v0.0.0 (linux/amd64) kubernetes/$Format/machine-controller"
	)

	var (
		second = func(s int) time.Time { return time.Date(2026, 11, 21, 12, 0, s, 0, time.UTC).Local() }
		line   = func(stage string, s int, agent, verb, reference string) string {
			return fmt.Sprintf(`{"stage":%q,"verb":%q,"userAgent":%q,"objectRef":%s,"requestReceivedTimestamp":"2026-11-21T12:00:%02d.000000Z","responseStatus":{"code":200}}`,
				stage, verb, agent, reference, s)
		}
		complete = func(s int, agent, verb, reference string) string {
			return line("ResponseComplete", s, agent, verb, reference)
		}
		parse = func(lines ...string) writes {
			GinkgoHelper()
			parsed, err := parseWrites(strings.NewReader(strings.Join(lines, "\n") + "\n"))
			Expect(err).NotTo(HaveOccurred())
			return parsed
		}
	)

	Describe("#parseWrites", func() {
		It("should return all writes but those of Leases, with what is counted by", func() {
			conflict := strings.Replace(complete(9, sidecar, "patch", `{"resource":"nodes","name":"n"}`), `"code":200`, `"code":409`, 1)
			Expect(parse(
				complete(1, sidecar, "patch", `{"resource":"machines","subresource":"status","namespace":"shoot--local--bench","name":"m"}`),
				complete(2, provider, "update", `{"resource":"nodes","name":"n"}`),
				complete(3, sidecar, "create", `{"resource":"pods","subresource":"eviction","namespace":"default","name":"p"}`),
				complete(4, sidecar, "update", `{"resource":"leases","namespace":"shoot--local--bench","name":"l"}`),
				complete(5, sidecar, "list", `{"resource":"machines","namespace":"shoot--local--bench"}`),
				line("ResponseStarted", 6, sidecar, "watch", `{"resource":"nodes"}`),
				complete(7, sidecar, "watch", `{"resource":"nodes"}`),
				line("Panic", 8, sidecar, "patch", `{"resource":"nodes","name":"n"}`),
				conflict,
				strings.Replace(conflict, `"code":409`, `"code":422`, 1),
			)).To(Equal(writes{
				{agent: agentSidecar, verb: "patch", resource: "machines/status", name: "m", at: second(1)},
				{agent: agentProvider, verb: "update", resource: "nodes", name: "n", at: second(2)},
				{agent: agentSidecar, verb: "create", resource: "pods/eviction", name: "p", at: second(3)},
				{agent: agentSidecar, verb: "patch", resource: "nodes", name: "n", at: second(9), refused: true},
				{agent: agentSidecar, verb: "patch", resource: "nodes", name: "n", at: second(9), refused: true},
			}))
		})

		It("should leave out the last line while it is being written", func() {
			whole := complete(1, sidecar, "delete", `{"resource":"nodes","name":"n"}`)
			parsed, err := parseWrites(strings.NewReader(whole + "\n" + whole[:20]))
			Expect(err).NotTo(HaveOccurred())
			Expect(parsed).To(HaveLen(1))
		})

		It("should fail with a line that is none", func() {
			_, err := parseWrites(strings.NewReader("{\n"))
			Expect(err).To(HaveOccurred())
		})
	})

	Describe("writes", func() {
		all := writes{
			{agent: agentSidecar, verb: "patch", resource: "machines", name: "m", at: second(1)},
			{agent: agentManager, verb: "update", resource: "machines/status", name: "m", at: second(2)},
			{agent: agentSidecar, verb: "patch", resource: "nodes/status", name: "n", at: second(3)},
			{agent: agentSidecar, verb: "create", resource: "events", name: "m", at: second(3)},
			{agent: agentSidecar, verb: "patch", resource: "machines", name: "other", at: second(3)},
			{agent: agentSidecar, verb: "patch", resource: "nodes", name: "m", at: second(3)},
			{agent: agentManager, verb: "delete", resource: "machines", name: "m", at: second(4)},
			{agent: agentProvider, verb: "update", resource: "machines/status", name: "m", at: second(5)},
		}

		It("should find those of agents", func() {
			Expect(all.of(agentManager, agentProvider)).To(Equal(writes{all[1], all[6], all[7]}))
		})

		It("should find those within a time, without its end", func() {
			Expect(all.between(second(2), second(4))).To(Equal(all[1:6]))
			Expect(all.from(second(4))).To(Equal(all[6:]))
		})

		It("should find those to a Machine and its Node, with their status", func() {
			Expect(all.to("m", "n")).To(Equal(writes{all[0], all[1], all[2], all[6], all[7]}))
		})

		It("should find those before the deletion of the Machine", func() {
			Expect(all.to("m", "n").untilDeletion()).To(Equal(writes{all[0], all[1], all[2]}))
			Expect(all[:2].untilDeletion()).To(Equal(all[:2]))
		})

		It("should count those of the ledger's entries", func() {
			entries, most := writes{
				{verb: "create", resource: "machinefailures", name: "m-1"}, {verb: "create", resource: "machinefailures", name: "m-2"},
				{verb: "patch", resource: "machinefailures/status", name: "m-1"}, {verb: "delete", resource: "machinefailures", name: "m-1"}, {verb: "patch", resource: "nodes", name: "m-1"},
			}.toLedger()
			Expect([]int{entries, most}).To(Equal([]int{2, 2}))
		})

		It("should find those that met a conflict", func() {
			refused := write{agent: agentSidecar, refused: true}
			Expect(append(all[:1:1], refused).refused()).To(Equal(writes{refused}))
		})

		It("should say how many there are of each kind", func() {
			Expect(append(all[:3:3], all[0]).String()).To(Equal("2 patch machines, 1 update machines/status, 1 patch nodes/status"))
		})
	})
})
