// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"fmt"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/golden"
)

var _ = Describe("The reasons", func() {
	It("should stay what they are, but for their texts", func() {
		var table strings.Builder
		for _, why := range Reasons() {
			fmt.Fprintf(&table, "%-22s %-4s %s\n", why.ID, why.Rule, why.Text)
		}
		golden.Expect("reasons.txt", table.String())
	})

	It("should be one word of letters each, as the action of an Event", func() {
		for _, why := range Reasons() {
			Expect(why.ID).To(MatchRegexp(`^[A-Z][A-Za-z]{1,40}$`))
			Expect(why.Text).To(MatchRegexp(`^[^A-Z].*[^.]$`))
		}
	})
})

var _ = Describe("The Event of a decision", func() {
	var (
		machine = facts.Member{Machine: Machine("m")}
		record  = &Record{Claims: []Claim{{Cause: v1alpha1.CauseAuto, Expiry: Start}}}
		failed  = &Record{Claims: record.Claims, Failed: true}
		why     = reason.Reason{ID: "Because", Text: "it is so"}
	)

	DescribeTable("should say what happens, and why", func(d Decision, rule Rule, verdict Verdict, reason, note string) {
		d.Member = machine
		d.Become(rule, why)
		if verdict != "" {
			d.Verdict = verdict
		}
		toldReason, toldNote := d.Event()
		Expect([]string{toldReason, toldNote}).To(Equal([]string{reason, note}))
	},
		Entry("begin", Decision{Target: record}, RuleAuto, Untold, "MachinePreserved", "Machine is Running:Preserved until 2026-03-01T12:00:00Z because it is so (cause auto)"),
		Entry("T2: a failure", Decision{Target: failed}, RuleFail, Untold, "PreservedMachineFailed", "Machine is Failed:Preserved until 2026-03-01T12:00:00Z because it is so (cause auto)"),
		Entry("T7: a recovery", Decision{Target: record}, RuleRecover, Untold, "PreservedMachineRecovered", "Machine is Running:Preserved until 2026-03-01T12:00:00Z because it is so (cause auto)"),
		Entry("T2: the end of a claim beside another one", Decision{Target: record}, RuleClaims, Untold, "MachinePreserved", "Machine is Running:Preserved until 2026-03-01T12:00:00Z although it is so (cause auto)"),
		Entry("end", Decision{Current: record}, RuleRelease, Untold, "MachinePreservationEnded", "Machine is no longer preserved because it is so (cause was auto)"),
		Entry("refusal", Decision{}, Rule(""), Refused, "MachinePreservationRefused", "Machine failed and is replaced because it is so"),
		Entry("refusal with the end of a hold", Decision{Current: record}, RuleMargin, Refused, "MachinePreservationRefused", "Machine failed and is replaced because it is so"),
		Entry("request that is not heeded", Decision{}, Rule(""), Ignored, "MachinePreservationRefused", "Machine is not preserved because it is so"),
		Entry("nothing that has happened", Decision{Target: record}, RuleMargin, Untold, "", ""),
		Entry("M13: the end of a maintenance, in silence", Decision{Current: record}, RuleMaintenanceOver, Untold, "", ""),
		Entry("nothing that anybody asked for", Decision{}, Rule(""), Untold, "", ""),
	)

	DescribeTable("should be read by its reason and action", func(event, action string, rule Rule) {
		Expect(IsEvent(event)).To(BeTrue())
		Expect(RuleTold(event, action)).To(Equal(rule))
	},
		Entry("T1", EventPreserved, WhyAskedFor.ID, RuleBegin),
		Entry("T4", EventPreserved, WhyAskedInCase.ID, RuleWhenFailed),
		Entry("T5", EventPreserved, WhyMachineFailed.ID, RuleAuto),
		Entry("M12", EventPreserved, WhyUnderMaintenance.ID, RuleMaintenance),
		Entry("X10", EventPreserved, WhyPowerCycle.ID, RuleRemediation),
		Entry("T2: a failure, whoever keeps the machine", EventFailed, WhyMachineFailed.ID, RuleFail),
		Entry("T7: a recovery", EventRecovered, WhyHealthyAgain.ID, RuleRecover),
		Entry("a claim that goes beside another one", EventPreserved, WhyRequestWithdrawn.ID, Rule("")),
		Entry("T9: an end", EventReleased, WhyShareLowered.ID, RuleShareLowered),
		Entry("T3 or T8: an end", EventReleased, WhyExpired.ID, Rule("")),
		Entry("P14: an end without the node", EventNodeDenied, WhyExpired.ID, Rule("P14")),
		Entry("P1: a refusal", EventRefused, WhyNoPlace.ID, RuleShareUsedUp),
		Entry("R3: an invalid request", EventInvalidRequest, EventAction, Rule("R3")),
		Entry("R5: an invalid timeout", EventInvalidTimeout, EventAction, Rule("R5")),
		Entry("P2: a pool at its maximum", EventPoolAtMaximum, EventAction, RuleMaximum),
		Entry("P18: machine-hours", EventMachineHours, EventAction, RuleMaxHours),
		Entry("P18: an end because of them", EventReleased, WhyHoursUsedUp.ID, RuleMaxHours),
		Entry("of an older version", EventPreserved, "Preserve", Rule("")),
		Entry("of another version", EventReleased, "InQuarantine", Rule("")),
	)

	It("should not be taken for those of others", func() {
		Expect(IsEvent("PreservedNodeDrained")).To(BeFalse())
	})
})
