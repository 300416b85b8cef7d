// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package facts

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// LabelPool is the label of Nodes, Machines and MachineDeployments with the name of their worker pool.
const LabelPool = "worker.gardener.cloud/pool"

// Pool is what is known of all machines of a MachineDeployment.
type Pool struct {
	// Replicas is the wanted number of machines; 0 means hibernation, or that the pool is removed (P4).
	Replicas int32
	// Forbidden says that operators forbid to preserve any of the machines (R6).
	Forbidden bool
	// Rollout says that a MachineSet of an older revision wants machines, or has machines that are not being deleted (P3).
	Rollout bool
	// InPlace says that machines are updated in place. The node of a machine says whether the machine is being updated (P3).
	InPlace bool
	// Maximum is how many machines the cluster-autoscaler lets the MachineDeployment have at most; 0 where it adds none, or where that is
	// not known (P2).
	Maximum int32
}

// PoolOf returns what a MachineDeployment says itself. Its MachineSets say whether machines are being replaced: see MachinesOf.
func PoolOf(deployment *machinev1alpha1.MachineDeployment) Pool {
	return Pool{
		Replicas:  deployment.Spec.Replicas,
		Forbidden: isForbidden(deployment),
		InPlace:   deployment.Spec.Strategy.Type == machinev1alpha1.InPlaceUpdateMachineDeploymentStrategyType,
		Maximum:   maximumOf(deployment),
	}
}

// maximumOf returns what is written on a MachineDeployment; 0 if that cannot be read.
func maximumOf(deployment *machinev1alpha1.MachineDeployment) int32 {
	maximum, err := strconv.ParseInt(deployment.Annotations[v1alpha1.AnnotationMaximum], 10, 32)
	if err != nil || maximum < 0 {
		return 0
	}
	return int32(maximum)
}

// AtMaximum says that the cluster-autoscaler would add machines, and cannot: the MachineDeployment has as many as it may have (P2).
func (p Pool) AtMaximum() bool { return p.Maximum > 0 && p.Replicas >= p.Maximum }

// Forbids says whether operators forbid to preserve a machine of the pool (R6).
func (p Pool) Forbids(machine *machinev1alpha1.Machine) bool {
	return p.Forbidden || isForbidden(machine)
}

func isForbidden(object metav1.Object) bool {
	return object.GetAnnotations()[v1alpha1.AnnotationForbidden] == "true"
}

// MachinesOf returns the machines that a MachineDeployment owns through one of the MachineSets, and whether they are being
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

// DeploymentOf returns the MachineDeployment that owns a machine through one of the MachineSets, nil if none does.
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

// annotationRevision has the number that machine-controller-manager gives each MachineSet of a MachineDeployment.
const annotationRevision = "deployment.kubernetes.io/revision"

// RevisionOf returns the revision of a MachineSet, 0 until machine-controller-manager sets it.
func RevisionOf(set *machinev1alpha1.MachineSet) int64 {
	revision, _ := strconv.ParseInt(set.Annotations[annotationRevision], 10, 64)
	return revision
}

// Newest returns the MachineSet of a MachineDeployment with the newest revision, nil if there are no MachineSets.
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

// IsRollout says whether a MachineSet of an older revision wants machines, or has some among the given machines that are not
// being deleted (P3). A machine that is being deleted does not count: if it cannot be deleted, that may take a month.
func IsRollout(sets []machinev1alpha1.MachineSet, machines []*machinev1alpha1.Machine) bool {
	newest := Newest(sets)
	return slices.ContainsFunc(sets, func(set machinev1alpha1.MachineSet) bool {
		return set.UID != newest.UID && (set.Spec.Replicas > 0 || slices.ContainsFunc(machines, func(machine *machinev1alpha1.Machine) bool {
			return machine.DeletionTimestamp == nil && metav1.IsControlledBy(machine, &set)
		}))
	})
}

// Missed is what is known of the updates that a machine has missed. Only the seed can write it.
type Missed struct {
	// Outdated says that the machine does not belong to the newest MachineSet.
	Outdated bool
	// Since is when the first MachineSet was created after the machine, or after its own one, to which an update in place may have brought it.
	// Later updates do not change it. If there is none, because of a return to an older one, an outdated machine has missed nothing before
	// that time, which is Since then. It is zero for another one.
	Since time.Time
}

// MissedBy returns the updates that a machine has missed. The MachineSets must be all of its MachineDeployment.
func MissedBy(machine *machinev1alpha1.Machine, sets []machinev1alpha1.MachineSet) Missed {
	newest := Newest(sets)
	missed := Missed{Outdated: newest != nil && !metav1.IsControlledBy(machine, newest)}
	upToDate := machine.CreationTimestamp.Time
	for i := range sets {
		if created := sets[i].CreationTimestamp.Time; metav1.IsControlledBy(machine, &sets[i]) && created.After(upToDate) {
			upToDate = created
		}
	}
	for i := range sets {
		if created := sets[i].CreationTimestamp.Time; created.After(upToDate) && (missed.Since.IsZero() || created.Before(missed.Since)) {
			missed.Since = created
		}
	}
	if missed.Outdated && missed.Since.IsZero() {
		missed.Since = upToDate
	}
	return missed
}
