// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

var _ = DescribeTable("X1, X2: the truth table",
	func(unsafe, needs, on, reboot bool, action Action) {
		Expect(TruthTable(unsafe, needs, on, reboot)).To(Equal(action))
	},
	Entry("safe, no request, off, not asked for: nothing", false, false, false, false, ActionNone),
	Entry("safe, no request, off, asked for: power on", false, false, false, true, ActionPowerOn),
	Entry("safe, no request, on, not asked for: nothing", false, false, true, false, ActionNone),
	Entry("safe, no request, on, asked for: nothing", false, false, true, true, ActionNone),
	Entry("safe, request, off, not asked for: nothing", false, true, false, false, ActionNone),
	Entry("safe, request, off, asked for: remove the request", false, true, false, true, ActionRemoveNeeds),
	Entry("safe, request, on, not asked for: power off", false, true, true, false, ActionPowerOff),
	Entry("safe, request, on, asked for: nothing", false, true, true, true, ActionNone),
	Entry("not safe, no request, off, not asked for: nothing", true, false, false, false, ActionNone),
	Entry("not safe, no request, off, asked for: power on", true, false, false, true, ActionPowerOn),
	Entry("not safe, no request, on, not asked for: nothing", true, false, true, false, ActionNone),
	Entry("not safe, no request, on, asked for: nothing", true, false, true, true, ActionNone),
	Entry("not safe, request, off, not asked for: nothing", true, true, false, false, ActionNone),
	Entry("not safe, request, off, asked for: make the node safe", true, true, false, true, ActionMakeSafe),
	Entry("not safe, request, on, not asked for: power off", true, true, true, false, ActionPowerOff),
	Entry("not safe, request, on, asked for: nothing", true, true, true, true, ActionNone),
)
