// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"slices"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/reason"
)

// asker is who may want a machine to be kept: a row of the table of claims.
type asker struct {
	// cause is what its claims are known by.
	cause string
	// begun is why a machine is kept that it begins to keep.
	begun reason.Reason
	// told is the weight of its cause: people are told of the weightiest.
	told int
	// personal says that it is a person, who asks with a request.
	personal bool
	// onceFailed says that it keeps only a machine that has failed. Until the deadline there is nothing but the hold, the expiry and
	// the place (H4).
	onceFailed bool
	// works says that it is somebody who works on the machine. What is kept for that alone neither counts to the share nor is it
	// bounded by P13, and nothing is drained meanwhile, whoever else asks (M12, X10).
	works bool
}

var askers = []asker{
	{cause: v1alpha1.CauseNow, begun: WhyAskedFor, told: 3, personal: true},
	{cause: v1alpha1.CauseWhenFailed, begun: WhyAskedInCase, told: 3, personal: true, onceFailed: true},
	{cause: v1alpha1.CauseAuto, begun: WhyMachineFailed, told: 2, onceFailed: true},
	{cause: v1alpha1.CauseRemediation, begun: WhyPowerCycle, told: 1, works: true},
	{cause: v1alpha1.CauseMaintenance, begun: WhyUnderMaintenance, works: true},
}

// askerOf returns who claims for a cause. A cause that is not known is that of a version with more askers.
func askerOf(cause string) *asker {
	if i := slices.IndexFunc(askers, func(a asker) bool { return a.cause == cause }); i >= 0 {
		return &askers[i]
	}
	return &asker{cause: cause}
}

// Causes returns all causes of claims.
func Causes() []string {
	causes := make([]string, 0, len(askers))
	for _, a := range askers {
		causes = append(causes, a.cause)
	}
	return causes
}

// WhyBegun returns why a machine is preserved for a cause, no reason for a cause that is not known.
func WhyBegun(cause string) reason.Reason { return askerOf(cause).begun }
