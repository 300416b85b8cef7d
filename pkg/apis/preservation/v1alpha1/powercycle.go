// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Keys for power cycles that others define.
const (
	// AnnotationNeedsRemediation on a Machine requests a power cycle of its host, whatever its value. A health checker sets it,
	// or a person, or the preservation controller if the pool has powerCycle.automatic=true (X9).
	AnnotationNeedsRemediation = "host.metal3.io/external-remediation"
	// AnnotationReboot on a host requests that the host is off. When it is removed, the host may be powered on.
	AnnotationReboot = "reboot.metal3.io/machine-remediation"
)

// Keys of this extension for power cycles.
const (
	// AnnotationHostOwner on a host says for which machine the host is requested to be off, and which cycles it has had, in JSON. It is
	// written together with AnnotationReboot. The extension releases only hosts that have it (X2). The cycles stay when the request is
	// gone, without the UID of a Machine (X20).
	AnnotationHostOwner = annotationPrefix + "power-cycle-owner"
	// AnnotationHostFailures on a Server says when machines failed on it, and when it was put into quarantine, in JSON. The object of a host
	// with this annotation must stay when its machine is deleted.
	AnnotationHostFailures = annotationPrefix + "host-failures"
	// AnnotationPowerCycle on a Node with the value PowerCycleNow requests a power cycle of its host, where operators allow
	// that (X11).
	AnnotationPowerCycle = annotationPrefix + "power-cycle"
	// AnnotationPowerCyclePhase on a Machine is the current step of its power cycle: one of the PowerCycle phases (X12).
	AnnotationPowerCyclePhase = annotationPrefix + "power-cycle-phase"
	// AnnotationPowerCycleAttempt on a Machine is the number of its cycle since the node was settled, counted from 1 (X6, X12).
	AnnotationPowerCycleAttempt = annotationPrefix + "power-cycle-attempt"
	// AnnotationPowerCycleRecord on a Machine is the rest of the state of its cycles, in JSON (X3).
	AnnotationPowerCycleRecord = annotationPrefix + "power-cycle-record"
	// AnnotationPowerCycleSettings on a MachineDeployment is its pool's powerCycle, a PowerCycle in JSON. Without it, the hosts of its
	// machines are not touched.
	AnnotationPowerCycleSettings = annotationPrefix + "power-cycle-settings"
	// AnnotationRemediation on a Machine says until when a power cycle preserves it, in RFC 3339 (X10).
	AnnotationRemediation = annotationPrefix + "remediation"
	// AnnotationPowerCycleGrant on a Machine that waits allows its cycle to begin, until the time that it names, in RFC 3339. Operators
	// limit how many cycles a seed may have at a time, and the extension grants them in turn (X8).
	AnnotationPowerCycleGrant = annotationPrefix + "power-cycle-grant"
	// LabelPowerCycle is on a Machine as long as a power cycle of it waits or is under way, or its host may be off for one. The extension
	// finds the Machines of all shoots by it (X8, X19). Its value is "true".
	LabelPowerCycle = annotationPrefix + "power-cycle"
	// FinalizerHost on a Machine delays its deletion until its host is released, for a minute at most (X2).
	FinalizerHost = annotationPrefix + "host"
	// PowerCycleNow is the value of AnnotationPowerCycle that requests a power cycle.
	PowerCycleNow = "now"
)

// Values of AnnotationPowerCyclePhase, and reasons of ConditionPowerCycle.
const (
	// PowerCycleWaiting says that a power cycle of the host was requested and cannot begin yet.
	PowerCycleWaiting = "Waiting"
	// PowerCyclePoweringOff says that the host is requested to be off.
	PowerCyclePoweringOff = "PoweringOff"
	// PowerCycleMakingNodeSafe says that the host is off: the pods of its node are being deleted, and their volumes detached.
	PowerCycleMakingNodeSafe = "MakingNodeSafe"
	// PowerCyclePoweringOn says that the host may be on again.
	PowerCyclePoweringOn = "PoweringOn"
	// PowerCycleStarting says that the host is on, and its node is not back yet.
	PowerCycleStarting = "Starting"
	// PowerCycleSucceeded says that the node is back (X13).
	PowerCycleSucceeded = "Succeeded"
	// PowerCycleFailed says that the power cycle has failed: a deadline passed (X5), the machine got another host, its control plane
	// was restored elsewhere meanwhile, or somebody else powered the host on when it must not be powered off again.
	PowerCycleFailed = "Failed"
	// PowerCycleCancelled says that the power cycle was stopped: the request was withdrawn or the machine recovered before the host
	// was requested to be off, the machine must not be preserved any more or is being deleted, or hosts are no longer power-cycled.
	PowerCycleCancelled = "Cancelled"
)

// ConditionPowerCycle is the type of the Node condition that shows a power cycle of its host (X12). It is True while a power cycle is
// under way. Its reason is one of the phases.
const ConditionPowerCycle = "PowerCycle"

// Values of AnnotationCause for power cycles.
const (
	// CauseRemediation says that a power cycle of its host preserves the machine: it has AnnotationRemediation (X10).
	CauseRemediation = "remediation"
)

// ValidAutomatic says in words which values the automatic of a pool's powerCycle may have.
const ValidAutomatic = `true, false or "DryRun"`

// Defaults and limits of a pool's powerCycle.
const (
	DefaultMaxAttempts        = 1
	DefaultMaxConcurrent      = 1
	DefaultPowerOffTimeout    = 10 * time.Minute
	DefaultPowerOnTimeout     = 10 * time.Minute
	DefaultNodeStartupTimeout = 10 * time.Minute

	MaxMaxAttempts       = 5
	MinPowerCycleTimeout = time.Minute
	MaxPowerCycleTimeout = time.Hour
	// MaxPowerCycleDuration is the maximum sum of the timeouts of a cycle. Operators with hosts must allow machines to be preserved for
	// so long, and in addition for as long as a host may be serviced meanwhile.
	MaxPowerCycleDuration = 3 * MaxPowerCycleTimeout

	// DefaultMaxServicing is how long the deadlines stand still by default while a host is being serviced (X18).
	DefaultMaxServicing = 2 * time.Hour
	MinMaxServicing     = 10 * time.Minute
	MaxMaxServicing     = 24 * time.Hour
)

// MarshalJSON implements json.Marshaler.
func (a AutomaticPowerCycle) MarshalJSON() ([]byte, error) {
	if a == AutomaticTrue || a == AutomaticFalse {
		return []byte(a), nil
	}
	return json.Marshal(string(a))
}

// UnmarshalJSON implements json.Unmarshaler. It accepts booleans only without quotes.
func (a *AutomaticPowerCycle) UnmarshalJSON(data []byte) error {
	switch value := string(data); value {
	case string(AutomaticTrue), string(AutomaticFalse):
		*a = AutomaticPowerCycle(value)
	case strconv.Quote(string(AutomaticDryRun)):
		*a = AutomaticDryRun
	default:
		return fmt.Errorf("%s must be %s", value, ValidAutomatic)
	}
	return nil
}

// PowerCycleOf returns AnnotationPowerCycleSettings of a MachineDeployment, with defaults for fields that an earlier version did not know.
// It returns nil if the annotation is not set.
func PowerCycleOf(deployment metav1.Object) (*PowerCycle, error) {
	value, ok := deployment.GetAnnotations()[AnnotationPowerCycleSettings]
	if !ok {
		return nil, nil
	}
	settings := &PowerCycle{}
	if err := json.Unmarshal([]byte(value), settings); err != nil {
		return nil, fmt.Errorf("failed to decode annotation %s: %w", AnnotationPowerCycleSettings, err)
	}
	SetDefaults_PowerCycle(settings)
	return settings, nil
}
