// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"slices"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
)

// States of a node whose driver is upgraded, as operators have them that ask for nodes with a NodeMaintenance.
const (
	upgradeRequired         = "upgrade-required"
	nodeMaintenanceRequired = "node-maintenance-required"
	podRestartRequired      = "pod-restart-required"
	uncordonRequired        = "uncordon-required"
	upgradeDone             = "upgrade-done"
)

// driverVersion is an annotation of driver pods.
const driverVersion = "driver-version"

// upgrade is a stand-in for an operator that upgrades the driver of a node. It gets the node by a NodeMaintenance that all
// operators share: who comes first creates it, and the others join it.
type upgrade struct {
	*Pool
	requestor string
	machine   *machinev1alpha1.Machine
	driver    *appsv1.DaemonSet
	// version is the one that the pod is to have.
	version string
	state   string
}

// step does what is due in the state.
func (u *upgrade) step(g Gomega) {
	before := u.state
	switch u.state {
	case upgradeRequired:
		u.ask(g)
		u.state = nodeMaintenanceRequired
	case nodeMaintenanceRequired:
		if nm := u.maintenance(g); nm != nil && meta.IsStatusConditionTrue(nm.Status.Conditions, maintenancev1alpha1.ConditionReady) {
			u.state = podRestartRequired
		}
	case podRestartRequired:
		if u.restart(g) {
			u.state = uncordonRequired
		}
	case uncordonRequired:
		if u.leave(g) {
			u.state = upgradeDone
		}
	}
	if u.state != before {
		u.t.Logf("Upgrade of %s on the node of machine %s: %s", u.requestor, u.machine.Name, u.state)
	}
}

func (u *upgrade) newMaintenance() *maintenancev1alpha1.NodeMaintenance {
	return u.Pool.newMaintenance(u.machine, u.scenario+"-"+u.machine.Name, func(spec *maintenancev1alpha1.NodeMaintenanceSpec) {
		spec.RequestorID = u.requestor
		spec.DrainSpec = &maintenancev1alpha1.DrainSpec{Force: true, DeleteEmptyDir: true}
	})
}

// maintenance returns the NodeMaintenance of the node, nil if there is none.
func (u *upgrade) maintenance(g Gomega) *maintenancev1alpha1.NodeMaintenance {
	nm := u.newMaintenance()
	err := u.Shoot.Get(u.ctx, client.ObjectKeyFromObject(nm), nm)
	if apierrors.IsNotFound(err) {
		return nil
	}
	g.Expect(err).NotTo(HaveOccurred())
	return nm
}

// ask creates the NodeMaintenance of the node, or joins the one that there is.
func (u *upgrade) ask(g Gomega) {
	nm := u.maintenance(g)
	if nm == nil {
		u.create(u.newMaintenance())
		return
	}
	u.share(g, nm, func(requestors []string) []string { return append(requestors, u.requestor) })
}

// share edits who shares the NodeMaintenance, unless somebody else has done so meanwhile.
func (u *upgrade) share(g Gomega, nm *maintenancev1alpha1.NodeMaintenance, edit func([]string) []string) {
	before := client.MergeFromWithOptions(nm.DeepCopy(), client.MergeFromWithOptimisticLock{})
	nm.Spec.AdditionalRequestors = edit(nm.Spec.AdditionalRequestors)
	g.Expect(u.Shoot.Patch(u.ctx, nm, before)).To(Succeed())
}

// restart deletes the pod of the old version, and returns whether the new one is ready.
func (u *upgrade) restart(g Gomega) bool {
	pods := u.podsOn(g, u.machine, u.driver.Spec.Selector.MatchLabels)
	if len(pods) != 1 || pods[0].DeletionTimestamp != nil {
		return false
	}
	if pods[0].Annotations[driverVersion] != u.version {
		g.Expect(client.IgnoreNotFound(u.Shoot.Delete(u.ctx, &pods[0]))).To(Succeed())
		return false
	}
	return slices.ContainsFunc(pods[0].Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// leave gives the node back, and returns whether nothing of this operator is left: who has created the NodeMaintenance deletes
// it, which takes effect once all others have gone.
func (u *upgrade) leave(g Gomega) bool {
	switch nm := u.maintenance(g); {
	case nm == nil:
		return true
	case nm.Spec.RequestorID == u.requestor:
		g.Expect(client.IgnoreNotFound(u.Shoot.Delete(u.ctx, nm))).To(Succeed())
		return false
	case slices.Contains(nm.Spec.AdditionalRequestors, u.requestor):
		u.share(g, nm, func(requestors []string) []string {
			return slices.DeleteFunc(requestors, func(r string) bool { return r == u.requestor })
		})
	}
	return true
}
