// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/explain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

var _ = Describe("IfAsked", func() {
	asks := []Ask{{}, {Request: "now"}, {Request: "now", Timeout: 5 * time.Hour}, {Request: "when-failed"}, {Request: "false"}}

	for name, s := range situations {
		if s.noNode || s.noSidecar {
			continue
		}
		It("should decide as the domain does with what is written: "+name, func() {
			for _, ask := range asks {
				for holder, h := range map[string]preservation.Holder{"health-timer": preservation.HealthTimer{}, "preserve-expiry": preservation.PreserveExpiry{}} {
					if s.decide(h).Rule != "" {
						continue // which is carried out first
					}
					known := s.snapshot(holder)
					answer, err := IfAsked(known, "m", ask)
					Expect(err).NotTo(HaveOccurred())
					Expect(known).To(Equal(s.snapshot(holder)), "unchanged")

					written := s
					written.change = func(snapshot *observed.Snapshot) {
						if s.change != nil {
							s.change(snapshot)
						}
						if ask.Request == "false" { // the power cycle ends with that (X10)
							for i := range snapshot.Seed.Machines {
								delete(snapshot.Seed.Machines[i].Annotations, v1alpha1.AnnotationRemediation)
							}
						}
						for i := range snapshot.Shoot.Nodes {
							node := &snapshot.Shoot.Nodes[i]
							if node.Name != "m" {
								continue
							}
							for key, value := range ask.Annotations() {
								if delete(node.Annotations, key); value != "" {
									node.Annotations[key] = value
								}
							}
						}
					}
					d := written.decide(h)
					Expect(answer.After.Rule).To(Equal(d.Rule), "%v", ask)
					Expect(answer.After.Why).To(Equal(d.Why))
					Expect(answer.After.Target).To(Equal(d.Target))
				}
			}
		})

		It("should answer with nothing but the node: "+name, func() {
			for _, ask := range asks {
				snapshot := s.snapshot("")
				snapshot.Seed = nil
				answer, err := IfAsked(snapshot, "m", ask)
				Expect(err).NotTo(HaveOccurred())
				Expect(answer.Machine).To(BeNil())
			}
		})
	}

	It("should say what does not count", func() {
		_, err := IfAsked(situations["ordinary"].snapshot("health-timer"), "m", Ask{Request: "now", Timeout: 1000 * time.Hour})
		Expect(err).To(MatchError(ContainSubstring("of the Node is ignored because it is not valid. A valid value is a duration from 10s to 336h")))
		_, err = IfAsked(situations["no-extension"].snapshot("health-timer"), "m", Ask{Request: "now"})
		Expect(err).To(MatchError(ContainSubstring("no preservation controller runs")))
		_, err = IfAsked(situations["ordinary"].snapshot("health-timer"), "x", Ask{Request: "now"})
		Expect(err).To(MatchError(`node "x" does not exist`))
	})

	It("should carry out one after another, so that an end that was asked for moves", func() {
		snapshot := situations["asked"].snapshot("health-timer")
		snapshot.Shoot.Nodes[1].Annotations[v1alpha1.AnnotationPreserve] = "now"
		ask := Ask{Request: "now", Timeout: 100 * time.Hour}
		answer, err := IfAsked(snapshot, "m", ask)
		Expect(err).NotTo(HaveOccurred())
		Expect(answer.After.Target.Expiry()).To(BeTemporally("==", expiry))
		answer, err = IfAsked(snapshot, "m", Ask{}, ask)
		Expect(err).NotTo(HaveOccurred())
		Expect(answer.After.Target.Expiry()).To(BeTemporally("==", now.Add(100*time.Hour)))
	})
})
