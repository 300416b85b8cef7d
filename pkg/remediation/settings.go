// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// Settings are how the hosts of a pool's machines are power-cycled.
type Settings struct {
	// Automatic says that a machine that failed and is preserved without being asked for gets a request, and that operators
	// allow that; DryRun that it is only told (X9).
	Automatic, DryRun bool
	// MaxAttempts is how many cycles a machine gets until its node is settled (X6), MaxConcurrent how many machines of a
	// MachineDeployment are cycled at a time (X8).
	MaxAttempts, MaxConcurrent int32
	// PowerOff, PowerOn and NodeStartup are how long the steps may take, PowerOff including that the node is made safe (X5).
	PowerOff, PowerOn, NodeStartup time.Duration
}

// ReadSettings returns the settings of a MachineDeployment, nil if its hosts are not to be touched. With an error, which
// says what cannot be read or used, there are none.
func ReadSettings(deployment *machinev1alpha1.MachineDeployment) (*Settings, error) {
	powerCycle, err := v1alpha1.PowerCycleOf(deployment)
	if err != nil || powerCycle == nil {
		return nil, err
	}
	s := &Settings{
		Automatic:     *powerCycle.Automatic == v1alpha1.AutomaticTrue,
		DryRun:        *powerCycle.Automatic == v1alpha1.AutomaticDryRun,
		MaxAttempts:   *powerCycle.MaxAttempts,
		MaxConcurrent: *powerCycle.MaxConcurrent,
		PowerOff:      powerCycle.PowerOffTimeout.Duration,
		PowerOn:       powerCycle.PowerOnTimeout.Duration,
		NodeStartup:   powerCycle.NodeStartupTimeout.Duration,
	}
	if *powerCycle.Fencing != v1alpha1.FencingOutOfServiceTaint || s.MaxAttempts < 1 || s.MaxConcurrent < 1 || min(s.PowerOff, s.PowerOn, s.NodeStartup) <= 0 {
		return nil, fmt.Errorf("annotation %s has values that cannot be used: %s", v1alpha1.AnnotationPowerCycleSettings, deployment.Annotations[v1alpha1.AnnotationPowerCycleSettings])
	}
	return s, nil
}

// longest returns what the deadlines of a cycle add up to (X10).
func (s *Settings) longest() time.Duration { return s.PowerOff + s.PowerOn + s.NodeStartup }
