// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"strconv"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

const (
	// defaultPriority is what machine-controller-manager takes for a machine without AnnotationMachinePriority.
	defaultPriority = 3
	// markedPriority is given to a machine that the cluster-autoscaler has chosen for a scale-down. It stays: else
	// another, healthy machine would go in its place.
	markedPriority = 1
	// preservedPriority makes a machine the last to go in a scale-down (P2).
	preservedPriority = "4"
)

// raisePriority makes a machine the last to go in a scale-down, where machine-controller-manager does not see that it is
// preserved (P2).
func raisePriority(machine *machinev1alpha1.Machine) {
	if ReadNotes(machine).ReplacedPriority != nil {
		return
	}
	value := machine.Annotations[v1alpha1.AnnotationMachinePriority]
	if priority, err := strconv.Atoi(value); err == nil && (priority == markedPriority || priority > defaultPriority) {
		return
	}
	note(machine, func(n *Notes) { n.ReplacedPriority = &value })
	machine.Annotations[v1alpha1.AnnotationMachinePriority] = preservedPriority
}

// restorePriority puts back what raisePriority has replaced, unless somebody else has changed it since.
func restorePriority(machine *machinev1alpha1.Machine) {
	replaced := ReadNotes(machine).ReplacedPriority
	if replaced == nil {
		return
	}
	note(machine, func(n *Notes) { n.ReplacedPriority = nil })
	if machine.Annotations[v1alpha1.AnnotationMachinePriority] == preservedPriority {
		setOrDelete(machine, v1alpha1.AnnotationMachinePriority, *replaced)
	}
}
