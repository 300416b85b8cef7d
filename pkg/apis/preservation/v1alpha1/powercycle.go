// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "time"

// Keys of the power cycles that the seed of the remediation names.
const (
	// AnnotationNeedsRemediation on a Machine asks for its host to be power-cycled, whatever its value. A health checker sets
	// it, a person, or the pool's automatic (X9).
	AnnotationNeedsRemediation = "host.metal3.io/external-remediation"
	// AnnotationReboot on a host asks for it to be off. Whoever removes it lets it be powered on.
	AnnotationReboot = "reboot.metal3.io/machine-remediation"
)

// Keys of this extension for power cycles.
const (
	// AnnotationHostOwner on a host is written together with AnnotationReboot, and says for which machine: a HostOwner in
	// JSON. Only hosts with it are ours to release (X2).
	AnnotationHostOwner = annotationPrefix + "power-cycle-owner"
	// AnnotationPowerCycle on a Node with the value PowerCycleNow asks for its host to be power-cycled, where operators allow
	// it (X11).
	AnnotationPowerCycle = annotationPrefix + "power-cycle"
	// AnnotationPowerCyclePhase on a Machine is the step of the cycle that is under way: one of the PowerCycle phases (X12).
	AnnotationPowerCyclePhase = annotationPrefix + "power-cycle-phase"
	// AnnotationPowerCycleAttempt on a Machine is which cycle it is since the node was settled, counted from 1 (X6, X12).
	AnnotationPowerCycleAttempt = annotationPrefix + "power-cycle-attempt"
	// AnnotationPowerCycleRecord on a Machine is all else that is remembered of its cycles, in JSON (X3).
	AnnotationPowerCycleRecord = annotationPrefix + "power-cycle-record"
	// AnnotationPowerCycleSettings on a MachineDeployment is its pool's powerCycle in JSON, complete. Hosts of machines
	// without it are not touched.
	AnnotationPowerCycleSettings = annotationPrefix + "power-cycle-settings"
	// AnnotationRemediation on a Machine asks for it to be kept because of a power cycle, until that time, in RFC 3339 (X10).
	AnnotationRemediation = annotationPrefix + "remediation"
	// AnnotationRemediatedUntil on a Machine is what AnnotationRemediation said when the expiry was last made of it, in RFC
	// 3339: what an operator makes of the expiry stays until it says something else (P6). It outlives a preservation that
	// ended before that time, so that it does not begin anew.
	AnnotationRemediatedUntil = annotationPrefix + "remediated-until"
	// FinalizerHost keeps a Machine that is being deleted until its host is released, for a minute at most (X2).
	FinalizerHost = annotationPrefix + "host"
	// PowerCycleNow is the value of AnnotationPowerCycle that asks.
	PowerCycleNow = "now"
)

// Values of AnnotationPowerCyclePhase.
const (
	// PowerCycleWaiting says that the cycle has not begun, and that nothing is done to the host (X4, X8, X14).
	PowerCycleWaiting = "Waiting"
	// PowerCyclePoweringOff says that the host was asked to be off.
	PowerCyclePoweringOff = "PoweringOff"
	// PowerCycleMakingSafe says that the host is off, and that the node is made safe (X1).
	PowerCycleMakingSafe = "MakingSafe"
	// PowerCyclePoweringOn says that the host may be on again.
	PowerCyclePoweringOn = "PoweringOn"
	// PowerCycleStarting says that the host is on, and that its node is waited for.
	PowerCycleStarting = "Starting"
	// PowerCycleSettling says that the cycle succeeded, and that the node is to stay Ready for some time (X4).
	PowerCycleSettling = "Settling"
	// PowerCycleFailed says that the cycle failed, and that nothing is done to the host any more (X5, X13).
	PowerCycleFailed = "Failed"
)

// ConditionPowerCycle is the type of the Node condition that shows a power cycle of its host (X12).
const ConditionPowerCycle = "PowerCycle"

// CauseRemediation says that AnnotationRemediation is on the machine (X10).
const CauseRemediation = "remediation"

// Defaults of a pool's powerCycle.
const (
	DefaultMaxAttempts        = 1
	DefaultMaxConcurrent      = 1
	DefaultPowerOffTimeout    = 10 * time.Minute
	DefaultPowerOnTimeout     = 10 * time.Minute
	DefaultNodeStartupTimeout = 10 * time.Minute
)
