// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// maintain asks for the machine's node.
func (p *Pool) maintain(machine *machinev1alpha1.Machine, edit func(*maintenancev1alpha1.NodeMaintenanceSpec)) *maintenancev1alpha1.NodeMaintenance {
	p.t.Helper()
	nm := p.newMaintenance(machine, p.scenario, edit)
	p.create(nm)
	return nm
}

func (p *Pool) newMaintenance(machine *machinev1alpha1.Machine, name string, edit func(*maintenancev1alpha1.NodeMaintenanceSpec)) *maintenancev1alpha1.NodeMaintenance {
	nm := &maintenancev1alpha1.NodeMaintenance{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault},
		Spec:       maintenancev1alpha1.NodeMaintenanceSpec{RequestorID: "conformance.example.org", NodeName: machine.Labels[machinev1alpha1.NodeLabelKey]},
	}
	if edit != nil {
		edit(&nm.Spec)
	}
	return nm
}

// crash ends the preservation controller with kill -9 where that can be done, and else restarts its pod.
func (p *Pool) crash() {
	p.t.Helper()
	if p.KillSidecar == nil {
		p.restartMachineControllerManager()
		return
	}
	p.t.Logf("The preservation controller is killed")
	p.eventually(func(g Gomega) { g.Expect(p.KillSidecar(p.ctx)).To(Succeed()) })
}

// phase waits until the maintenance is in a phase whose message contains the texts, and reads it.
func (p *Pool) phase(nm *maintenancev1alpha1.NodeMaintenance, phase string, texts ...string) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		g.Expect(p.phaseOf(g, nm)).To(Equal(phase), messageOf(nm))
		for _, text := range texts {
			g.Expect(messageOf(nm)).To(ContainSubstring(text))
		}
	})
	p.t.Logf("NodeMaintenance %s: %s: %s", nm.Name, phase, messageOf(nm))
}

// phaseOf reads the maintenance, and returns its phase.
func (p *Pool) phaseOf(g Gomega, nm *maintenancev1alpha1.NodeMaintenance) string {
	g.Expect(p.Shoot.Get(p.ctx, client.ObjectKeyFromObject(nm), nm)).To(Succeed())
	if condition := meta.FindStatusCondition(nm.Status.Conditions, maintenancev1alpha1.ConditionReady); condition != nil {
		return condition.Reason
	}
	return ""
}

func messageOf(nm *maintenancev1alpha1.NodeMaintenance) string {
	if condition := meta.FindStatusCondition(nm.Status.Conditions, maintenancev1alpha1.ConditionReady); condition != nil {
		return condition.Message
	}
	return ""
}

// patchMaintenance merges a patch into the maintenance.
func (p *Pool) patchMaintenance(nm *maintenancev1alpha1.NodeMaintenance, patch string) {
	p.t.Helper()
	p.t.Logf("NodeMaintenance %s: %s", nm.Name, patch)
	p.Expect(p.Shoot.Patch(p.ctx, nm.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(patch)))).To(Succeed())
}

// setRequestorFailed sets the condition by which a requestor says that its work has failed.
func (p *Pool) setRequestorFailed(nm *maintenancev1alpha1.NodeMaintenance, status metav1.ConditionStatus) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		g.Expect(p.Shoot.Get(p.ctx, client.ObjectKeyFromObject(nm), nm)).To(Succeed())
		meta.SetStatusCondition(&nm.Status.Conditions, metav1.Condition{Type: maintenancev1alpha1.ConditionRequestorFailed, Status: status, Reason: "FailedMaintenance"})
		g.Expect(p.Shoot.Status().Update(p.ctx, nm)).To(Succeed())
	})
}

// giveBack deletes the maintenance, and waits until it is gone.
func (p *Pool) giveBack(nm *maintenancev1alpha1.NodeMaintenance) {
	p.t.Helper()
	p.Expect(client.IgnoreNotFound(p.Shoot.Delete(p.ctx, nm.DeepCopy()))).To(Succeed())
	p.ended(nm)
}

// ended waits until the maintenance is gone.
func (p *Pool) ended(nm *maintenancev1alpha1.NodeMaintenance) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		g.Expect(p.Shoot.Get(p.ctx, client.ObjectKeyFromObject(nm), nm.DeepCopy())).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})
	p.t.Logf("NodeMaintenance %s: gone", nm.Name)
}

// untouched waits until nothing of a maintenance is left on the machine's node.
func (p *Pool) untouched(machine *machinev1alpha1.Machine) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		node := p.node(g, machine)
		g.Expect(node.Spec.Unschedulable).To(BeFalse())
		g.Expect(node.Annotations).NotTo(Or(HaveKey(v1alpha1.AnnotationMaintenance), HaveKey(v1alpha1.AnnotationMaintenanceCordon), HaveKey(scaleDown)))
		g.Expect(node.Status.Conditions).NotTo(ContainElement(HaveField("Type", BeElementOf(corev1.NodeConditionType("MaintenancePlanned"),
			corev1.NodeConditionType("DrainInProgress"), corev1.NodeConditionType("Drained"), corev1.NodeConditionType("MaintenanceInProgress")))))
	})
}

// setMaxParallelOperations sets how many nodes may be under maintenance, and waits until the shoot has got it.
func (p *Pool) setMaxParallelOperations(count int) {
	p.t.Helper()
	p.t.Logf("maxParallelOperations: %d", count)
	p.eventually(func(g Gomega) {
		g.Expect(p.editConfig(func(config *v1alpha1.MachinePreservationConfig) {
			config.NodeMaintenance.MaxParallelOperations = new(intstr.FromInt(count))
		})).To(Succeed())
		// As gardenlet asks for the reconciliation of what it has changed.
		extension, err := p.extension(p.ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(patchAnnotations(p.ctx, p.Seed, extension, map[string]any{v1beta1constants.GardenerOperation: v1beta1constants.GardenerOperationReconcile})).To(Succeed())
	})
	p.eventually(func(g Gomega) {
		config := &maintenancev1alpha1.MaintenanceOperatorConfig{}
		g.Expect(p.Shoot.Get(p.ctx, client.ObjectKey{Namespace: maintenancev1alpha1.ConfigNamespace, Name: maintenancev1alpha1.ConfigName}, config)).To(Succeed())
		g.Expect(config.Spec.MaxParallelOperations).To(HaveValue(Equal(intstr.FromInt(count))))
	})
}

// cordonedFor matches a node that is cordoned for a maintenance.
func cordonedFor(nm *maintenancev1alpha1.NodeMaintenance) gomegatypes.GomegaMatcher {
	return And(
		HaveField("Spec.Unschedulable", true),
		HaveField("Annotations", HaveKeyWithValue(v1alpha1.AnnotationMaintenanceCordon, string(nm.UID))),
	)
}
