// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationValidation on a MachineDeployment is its pool's validation, a Validation in JSON. Without it, a node takes pods as soon as it
// is healthy again (V1).
const AnnotationValidation = annotationPrefix + "validation-settings"

// Values of AnnotationCause for validations.
const (
	// CauseValidation says that the machine is back and has yet to be validated (V1).
	CauseValidation = "validation"
)

// Defaults and limits of a pool's validation.
const (
	DefaultValidationTimeout = 15 * time.Minute
	MinValidationTimeout     = time.Minute
	MaxValidationTimeout     = 24 * time.Hour
	// MaxValidationName is how long the type of the condition may be.
	MaxValidationName = 128
)

// ValidationOf returns AnnotationValidation of a MachineDeployment, with defaults for fields that an earlier version did not know. It
// returns nil if the annotation is not set.
func ValidationOf(deployment metav1.Object) (*Validation, error) {
	value, ok := deployment.GetAnnotations()[AnnotationValidation]
	if !ok {
		return nil, nil
	}
	settings := &Validation{}
	if err := json.Unmarshal([]byte(value), settings); err != nil {
		return nil, fmt.Errorf("failed to decode annotation %s: %w", AnnotationValidation, err)
	}
	SetDefaults_Validation(settings)
	return settings, nil
}

// IsTainted says that a node has the taint TaintPreserved.
func IsTainted(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool { return t.Key == TaintPreserved })
}

// Taint puts the taint TaintPreserved on a node that does not have it. Its TimeAdded is when the drain of a failed machine began.
func Taint(node *corev1.Node, now time.Time) {
	if !IsTainted(node) {
		node.Spec.Taints = append(slices.Clone(node.Spec.Taints), corev1.Taint{
			Key:       TaintPreserved,
			Effect:    corev1.TaintEffectNoSchedule,
			TimeAdded: &metav1.Time{Time: now.Truncate(time.Second)},
		})
	}
}
