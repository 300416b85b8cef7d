// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Keys of the power cycles that the seed of the remediation names.
const (
	// AnnotationNeedsRemediation on a Machine requests a power cycle of its host, whatever its value. A health checker sets it,
	// or a person, or the preservation controller if the pool has powerCycle.automatic=true (X9).
	AnnotationNeedsRemediation = "host.metal3.io/external-remediation"
	// AnnotationReboot on a host requests that the host is off. When it is removed, the host may be powered on.
	AnnotationReboot = "reboot.metal3.io/machine-remediation"
)

// Keys of this extension for power cycles.
const (
	// AnnotationHostOwner on a host is written together with AnnotationReboot, and says for which machine: an Owner of
	// package remediation in JSON, with the cycles that the host has had. Only hosts with such an Owner are ours to release (X2).
	// When the request is gone the cycles stay, without the UID of a Machine (X20).
	AnnotationHostOwner = annotationPrefix + "power-cycle-owner"
	// AnnotationHostFailures on what stays of a host when its machine goes says when machines have failed on it, and when it was put into
	// quarantine: a Record of pkg/quarantine.
	AnnotationHostFailures = annotationPrefix + "host-failures"
	// AnnotationPowerCycle on a Node with the value PowerCycleNow requests a power cycle of its host, where operators allow
	// that (X11).
	AnnotationPowerCycle = annotationPrefix + "power-cycle"
	// AnnotationPowerCyclePhase on a Machine is the step of the cycle that is under way: one of the PowerCycle phases (X12).
	AnnotationPowerCyclePhase = annotationPrefix + "power-cycle-phase"
	// AnnotationPowerCycleAttempt on a Machine is which cycle it is since the node was settled, counted from 1 (X6, X12).
	AnnotationPowerCycleAttempt = annotationPrefix + "power-cycle-attempt"
	// AnnotationPowerCycleRecord on a Machine is all else that is remembered of its cycles, in JSON (X3).
	AnnotationPowerCycleRecord = annotationPrefix + "power-cycle-record"
	// AnnotationPowerCycleSettings on a MachineDeployment is its pool's powerCycle, a PowerCycle in JSON. Hosts of machines
	// without it are not touched.
	AnnotationPowerCycleSettings = annotationPrefix + "power-cycle-settings"
	// AnnotationRemediation on a Machine has the machine preserved because of a power cycle, until that time, in RFC 3339 (X10).
	AnnotationRemediation = annotationPrefix + "remediation"
	// AnnotationPowerCycleGrant on a Machine that waits allows its cycle to begin until that time, in RFC 3339: operators limit how
	// many there may be at a time in a seed, and the extension gives them in turn (X8).
	AnnotationPowerCycleGrant = annotationPrefix + "power-cycle-grant"
	// LabelPowerCycle is on a Machine as long as a cycle of it waits or is under way, or its host may be off for it: so the
	// extension finds these of all shoots (X8, X19). Its value is "true".
	LabelPowerCycle = annotationPrefix + "power-cycle"
	// FinalizerHost delays the deletion of a Machine until its host is released, for a minute at most (X2).
	FinalizerHost = annotationPrefix + "host"
	// PowerCycleNow is the value of AnnotationPowerCycle that asks.
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

// ConditionPowerCycle is the type of the Node condition that shows a power cycle of its host (X12). It is True while one is
// under way; its reason is one of the phases.
const ConditionPowerCycle = "PowerCycle"

// ConditionOf returns the condition of a Node that has a type, nil if it has none.
func ConditionOf(node *corev1.Node, conditionType corev1.NodeConditionType) *corev1.NodeCondition {
	for i := range node.Status.Conditions {
		if c := &node.Status.Conditions[i]; c.Type == conditionType {
			return c
		}
	}
	return nil
}

// Values of AnnotationCause for power cycles.
const (
	// CauseRemediation says that AnnotationRemediation is on the machine (X10).
	CauseRemediation = "remediation"
)

// ValidAutomatic says in words what the automatic of a pool's powerCycle may be.
const ValidAutomatic = `true, false or "DryRun"`

// Defaults of a pool's powerCycle, and what is valid.
const (
	DefaultMaxAttempts        = 1
	DefaultMaxConcurrent      = 1
	DefaultPowerOffTimeout    = 10 * time.Minute
	DefaultPowerOnTimeout     = 10 * time.Minute
	DefaultNodeStartupTimeout = 10 * time.Minute

	MaxMaxAttempts       = 5
	MinPowerCycleTimeout = time.Minute
	MaxPowerCycleTimeout = time.Hour
	// MaxPowerCycleDuration is what the timeouts of a cycle add up to at most. Operators who have hosts allow machines to be
	// kept for so long, and for as long as a host may be serviced meanwhile.
	MaxPowerCycleDuration = 3 * MaxPowerCycleTimeout

	// DefaultMaxServicing is for how long the deadlines stand still while a host is being serviced, unless operators say
	// otherwise (X18).
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

// UnmarshalJSON implements json.Unmarshaler. Strings that stand for booleans elsewhere are none here.
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

// PowerCycleOf returns what AnnotationPowerCycleSettings of a MachineDeployment says, with defaults for what a former version
// did not know, and nil where it is not set.
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
