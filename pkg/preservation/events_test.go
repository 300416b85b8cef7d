// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("The note of an Event", func() {
	causes := []string{v1alpha1.CauseAuto, v1alpha1.CauseNow, v1alpha1.CauseWhenFailed, v1alpha1.CauseMaintenance, v1alpha1.CauseRemediation}

	It("should be read as it is written", func() {
		machine := Member{Machine: Machine("m")}
		for _, reason := range Reasons() {
			for _, cause := range causes {
				record := &Record{Claims: []Claim{{Cause: cause, Expiry: Start}}}
				for _, rule := range RulesTold() {
					for _, d := range []*Decision{
						{Member: machine, Rule: rule, Reason: reason, Target: record},
						{Member: machine, Rule: rule, Reason: reason, Current: record},
					} {
						told, note := d.Told()
						Expect(told).NotTo(BeEmpty())
						readReason, readCause := ReadNote(note)
						Expect([]string{readReason, readCause}).To(Equal([]string{reason, cause}), note)
					}
				}
			}
			for _, d := range []*Decision{{Member: machine, Reason: reason, Refused: true}, {Member: machine, Reason: reason, Ignored: true}} {
				readReason, readCause := ReadNote(d.Refusal())
				Expect([]string{readReason, readCause}).To(Equal([]string{reason, ""}), d.Refusal())
			}
		}
	})

	It("should be none where nobody is told", func() {
		for _, rule := range []Rule{"", RuleMargin, RuleMaintenanceOver, RuleRemediationOver} {
			reason, note := (&Decision{Rule: rule, Reason: "x"}).Told()
			Expect(reason + note).To(BeEmpty())
		}
		Expect((&Decision{Reason: "x"}).Refusal()).To(BeEmpty())
		reason, cause := ReadNote("Nothing is left to be evicted")
		Expect(reason + cause).To(BeEmpty())
	})
})
