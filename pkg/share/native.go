// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package share

import "time"

// takeoverTime is for how long the preservation controller is at work until it has taken over all machines that it is to take over, also
// if a write has failed, which it tries again within 30 seconds.
const takeoverTime = time.Minute

// NativeMax returns how many machines of a MachineDeployment machine-controller-manager may preserve by itself from now on, where it
// may preserve current until now, and has preserved so many that nobody has taken over. Known says that the share is on the
// MachineDeployment. The preservation controller is at work for some time, or not yet.
//
// The number is 0, so that there is one controller that decides. But as soon as it is, machine-controller-manager gives up what it has
// auto-preserved, and terminates it. So it stays what it is until the preservation controller, which is about to start when the
// extension is enabled, has replaced machine-controller-manager's annotation by its own, which it does where it knows the share. What is
// left then has no place. Until it starts, machine-controller-manager goes on as if there were no extension.
//
// It is never raised, whoever shares the places: in sum, the numbers of a pool never exceed what Gardener has given them (P20).
//
// It is not lowered machine by machine. machine-controller-manager compares the number with a count in the status of the MachineSet
// (manageAutoPreservationOfFailedMachines in pkg/controller/machineset.go of 0.62.1) that is too high for one more look when a machine
// was given up, or taken over, and then gives up another one. When the last one is taken over, there is none that it could give up.
func NativeMax(current int32, settings Settings, known bool, preserved int, atWork time.Duration) int32 {
	over := atWork >= takeoverTime || atWork > 0 && preserved == 0
	if settings.AutoPreserveFailedMax == 0 || known && over {
		return 0
	}
	return current
}
