// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utilsets "k8s.io/apimachinery/pkg/util/sets"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// Of returns the group of a MachineDeployment as it is written there, without its machines and whether they are replaced. What
// holds for all of them is the receiver's.
func (g Group) Of(deployment *machinev1alpha1.MachineDeployment) Group {
	g.Share = shareOf(deployment)
	g.Timeout = timeoutOf(deployment)
	g.Forbidden = deployment.Annotations[v1alpha1.AnnotationForbidden] == "true"
	g.Replicas = deployment.Spec.Replicas
	g.InPlace = deployment.Spec.Strategy.Type == machinev1alpha1.InPlaceUpdateMachineDeploymentStrategyType
	return g
}

// shareOf returns the share of a MachineDeployment; nil if none, or nothing readable, is written on it.
func shareOf(deployment *machinev1alpha1.MachineDeployment) *int32 {
	share, err := strconv.ParseInt(deployment.Annotations[v1alpha1.AnnotationAutoPreserveFailedMax], 10, 32)
	if err != nil || share < 0 {
		return nil
	}
	return new(int32(share))
}

// timeoutOf returns for how long a machine of the MachineDeployment is preserved.
func timeoutOf(deployment *machinev1alpha1.MachineDeployment) time.Duration {
	if timeout, err := time.ParseDuration(deployment.Annotations[v1alpha1.AnnotationMachinePreserveTimeout]); err == nil && timeout > 0 {
		return timeout
	}
	return v1alpha1.DefaultMachinePreserveTimeout
}

// MachinesOf returns those of the machines that a MachineDeployment owns by one of the MachineSets, and whether they are being
// replaced or updated (P3).
func MachinesOf(deployment *machinev1alpha1.MachineDeployment, sets []machinev1alpha1.MachineSet, machines []machinev1alpha1.Machine) (owned []*machinev1alpha1.Machine, rollout bool) {
	sets = slices.DeleteFunc(slices.Clone(sets), func(set machinev1alpha1.MachineSet) bool { return !metav1.IsControlledBy(&set, deployment) })
	known := make(map[types.UID]bool, len(sets))
	for i := range sets {
		known[sets[i].UID] = true
	}
	for i := range machines {
		if owner := metav1.GetControllerOfNoCopy(&machines[i]); owner != nil && known[owner.UID] {
			owned = append(owned, &machines[i])
		}
	}
	return owned, IsRollout(sets, owned)
}

// DeploymentOf returns that of the MachineDeployments which owns a machine by one of the MachineSets, nil if there is none.
func DeploymentOf(machine *machinev1alpha1.Machine, sets []machinev1alpha1.MachineSet, deployments []machinev1alpha1.MachineDeployment) *machinev1alpha1.MachineDeployment {
	for i := range sets {
		if !metav1.IsControlledBy(machine, &sets[i]) {
			continue
		}
		for j := range deployments {
			if metav1.IsControlledBy(&sets[i], &deployments[j]) {
				return &deployments[j]
			}
		}
	}
	return nil
}

// annotationRevision is what machine-controller-manager numbers the MachineSets of a MachineDeployment with.
const annotationRevision = "deployment.kubernetes.io/revision"

// RevisionOf returns the revision that machine-controller-manager gave a MachineSet, 0 if it has not yet.
func RevisionOf(set *machinev1alpha1.MachineSet) int64 {
	revision, _ := strconv.ParseInt(set.Annotations[annotationRevision], 10, 64)
	return revision
}

// Newest returns that of the MachineSets of a MachineDeployment which is of the newest revision, nil for none.
func Newest(sets []machinev1alpha1.MachineSet) *machinev1alpha1.MachineSet {
	var newest *machinev1alpha1.MachineSet
	for i := range sets {
		set := &sets[i]
		if newest == nil || cmp.Or(cmp.Compare(RevisionOf(set), RevisionOf(newest)), set.CreationTimestamp.Compare(newest.CreationTimestamp.Time)) > 0 {
			newest = set
		}
	}
	return newest
}

// IsRollout says that, of the MachineSets of a MachineDeployment, one that is not of the newest revision is to have
// machines, or has machines among the given ones that are not being deleted (P3). A machine that cannot be deleted does not
// make it a rollout: that may take a month.
func IsRollout(sets []machinev1alpha1.MachineSet, machines []*machinev1alpha1.Machine) bool {
	newest := Newest(sets)
	return slices.ContainsFunc(sets, func(set machinev1alpha1.MachineSet) bool {
		return set.UID != newest.UID && (set.Spec.Replicas > 0 || slices.ContainsFunc(machines, func(machine *machinev1alpha1.Machine) bool {
			return machine.DeletionTimestamp == nil && metav1.IsControlledBy(machine, &set)
		}))
	})
}

// leavesMachines says that of a MachineSet whose machines are all being deleted some are still there, beside others that stay:
// machine-controller-manager has not come to the end of an update yet (P3).
func (g Group) leavesMachines() bool {
	setOf := func(m Member) types.UID {
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
	return stay.Len() > 0 && slices.ContainsFunc(g.Members, func(m Member) bool { return !stay.Has(setOf(m)) })
}
