// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
)

// IsConfig says that a MaintenanceOperatorConfig is the one that counts.
func IsConfig(config *v1alpha1.MaintenanceOperatorConfig) bool {
	return config.Namespace == v1alpha1.ConfigNamespace && config.Name == v1alpha1.ConfigName
}

// UsedCondition returns whether the limits of a MaintenanceOperatorConfig count, and why they do not.
func UsedCondition(config *v1alpha1.MaintenanceOperatorConfig, now time.Time) metav1.Condition {
	c := metav1.Condition{
		Type: v1alpha1.ConditionUsed, Status: metav1.ConditionFalse, ObservedGeneration: config.Generation, LastTransitionTime: metav1.NewTime(now),
	}
	if !IsConfig(config) {
		c.Reason, c.Message = v1alpha1.ReasonElsewhere, fmt.Sprintf("This object has no effect. The limits are those of %s/%s. Set them in the Shoot.", v1alpha1.ConfigNamespace, v1alpha1.ConfigName)
	} else if _, err := LimitsOf(&config.Spec, 1); err != nil {
		c.Reason, c.Message = v1alpha1.ReasonInvalid, "No maintenance is scheduled, because the limits are not valid: "+brief.Cut(strings.ReplaceAll(err.Error(), "\n", "; "))+"."
	} else {
		c.Status, c.Reason, c.Message = metav1.ConditionTrue, v1alpha1.ReasonUsed, "These limits apply."
	}
	return c
}
