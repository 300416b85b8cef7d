// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"encoding/json"
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// Settings are how the hosts of a pool's machines are power-cycled.
type Settings struct {
	// Automatic says that a machine that failed and is preserved without being asked for gets a request (X9).
	Automatic bool
	// MaxAttempts is how many cycles a machine gets until its node is settled (X6), MaxConcurrent how many machines of a
	// MachineDeployment are cycled at a time (X8).
	MaxAttempts, MaxConcurrent int32
	// PowerOff, PowerOn and NodeStartup are how long the steps may take, PowerOff including that the node is made safe (X5).
	PowerOff, PowerOn, NodeStartup time.Duration
}

// fencingOutOfServiceTaint is the only way in which nodes are made safe.
const fencingOutOfServiceTaint = "OutOfServiceTaint"

// ReadSettings returns the settings of a MachineDeployment, nil if its hosts are not to be touched. With an error, which
// says what cannot be read or used, there are none.
func ReadSettings(deployment *machinev1alpha1.MachineDeployment) (*Settings, error) {
	value, ok := deployment.Annotations[v1alpha1.AnnotationPowerCycleSettings]
	if !ok {
		return nil, nil
	}
	raw := struct {
		Automatic          bool            `json:"automatic"`
		Fencing            string          `json:"fencing"`
		MaxAttempts        int32           `json:"maxAttempts"`
		MaxConcurrent      int32           `json:"maxConcurrent"`
		PowerOffTimeout    metav1.Duration `json:"powerOffTimeout"`
		PowerOnTimeout     metav1.Duration `json:"powerOnTimeout"`
		NodeStartupTimeout metav1.Duration `json:"nodeStartupTimeout"`
	}{
		Fencing:            fencingOutOfServiceTaint,
		MaxAttempts:        v1alpha1.DefaultMaxAttempts,
		MaxConcurrent:      v1alpha1.DefaultMaxConcurrent,
		PowerOffTimeout:    metav1.Duration{Duration: v1alpha1.DefaultPowerOffTimeout},
		PowerOnTimeout:     metav1.Duration{Duration: v1alpha1.DefaultPowerOnTimeout},
		NodeStartupTimeout: metav1.Duration{Duration: v1alpha1.DefaultNodeStartupTimeout},
	}
	if err := json.Unmarshal([]byte(value), &raw); err != nil {
		return nil, fmt.Errorf("failed to read annotation %s: %w", v1alpha1.AnnotationPowerCycleSettings, err)
	}
	s := &Settings{
		Automatic:     raw.Automatic,
		MaxAttempts:   raw.MaxAttempts,
		MaxConcurrent: raw.MaxConcurrent,
		PowerOff:      raw.PowerOffTimeout.Duration,
		PowerOn:       raw.PowerOnTimeout.Duration,
		NodeStartup:   raw.NodeStartupTimeout.Duration,
	}
	if raw.Fencing != fencingOutOfServiceTaint || s.MaxAttempts < 1 || s.MaxConcurrent < 1 || min(s.PowerOff, s.PowerOn, s.NodeStartup) <= 0 {
		return nil, fmt.Errorf("annotation %s has values that cannot be used: %s", v1alpha1.AnnotationPowerCycleSettings, value)
	}
	return s, nil
}

// longest returns what the deadlines of a cycle add up to (X10).
func (s *Settings) longest() time.Duration { return s.PowerOff + s.PowerOn + s.NodeStartup }
