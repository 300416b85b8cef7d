// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

// Action is what is done next to a machine that needs remediation, its node and its host.
type Action string

const (
	// ActionNone is to wait.
	ActionNone Action = ""
	// ActionPowerOff is to ask for the host to be off: to add the reboot annotation.
	ActionPowerOff Action = "PowerOff"
	// ActionMakeSafe is to tell the scheduler and the volume controllers that nothing runs on the node.
	ActionMakeSafe Action = "MakeSafe"
	// ActionRemoveNeeds is to remove the needs-remediation annotation.
	ActionRemoveNeeds Action = "RemoveNeeds"
	// ActionPowerOn is to let the host be powered on: to remove the reboot annotation.
	ActionPowerOn Action = "PowerOn"
)

// TruthTable returns what follows from four facts: the node is not yet safe, the machine needs remediation, the host is
// reported to be on, and the reboot annotation is on it.
func TruthTable(unsafe, needs, on, reboot bool) Action {
	switch {
	case needs && on && !reboot:
		return ActionPowerOff
	case unsafe && needs && !on && reboot:
		return ActionMakeSafe
	case needs && !on && reboot:
		return ActionRemoveNeeds
	case !needs && !on && reboot:
		return ActionPowerOn
	}
	return ActionNone
}
