// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"slices"
	"strconv"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilsets "k8s.io/apimachinery/pkg/util/sets"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
)

// Of returns the group of a MachineDeployment as it is written there, as far as that can be read, without its machines and whether
// they are replaced. What holds for all of them is the receiver's.
func (g Group) Of(deployment *machinev1alpha1.MachineDeployment) Group {
	g.Share, g.Timeout, g.Pool = nil, v1alpha1.DefaultMachinePreserveTimeout, facts.PoolOf(deployment)
	if share, err := strconv.ParseInt(deployment.Annotations[v1alpha1.AnnotationAutoPreserveFailedMax], 10, 32); err == nil && share >= 0 {
		g.Share = new(int32(share))
	}
	if timeout, err := time.ParseDuration(deployment.Annotations[v1alpha1.AnnotationMachinePreserveTimeout]); err == nil && timeout > 0 {
		g.Timeout = timeout
	}
	g.Validation = nil
	if settings, err := v1alpha1.ValidationOf(deployment); err == nil && settings != nil {
		g.Validation = validationOf(settings)
	}
	g.Name = deployment.Name
	g.SharedIn = deployment.Annotations[v1alpha1.AnnotationSharedInPool]
	g.PrefersNew = deployment.Annotations[v1alpha1.AnnotationPreferNewFailures] == "true"
	return g
}

// leavesMachines says that of a MachineSet whose machines are all being deleted some are still there, beside others that stay:
// machine-controller-manager has not come to the end of an update yet (P3).
func (g Group) leavesMachines() bool {
	setOf := func(m facts.Member) types.UID {
		if owner := metav1.GetControllerOfNoCopy(m.Machine); owner != nil {
			return owner.UID
		}
		return ""
	}
	stay := utilsets.New[types.UID]()
	for _, m := range g.Members {
		if m.Machine.DeletionTimestamp == nil {
			stay.Insert(setOf(m))
		}
	}
	return stay.Len() > 0 && slices.ContainsFunc(g.Members, func(m facts.Member) bool { return !stay.Has(setOf(m)) })
}
