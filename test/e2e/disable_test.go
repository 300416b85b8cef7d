// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/conformance"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

// disable takes the extension from a shoot with preserved machines, one failed and one running, and gives it back. The
// pools are two with machines that are Running, of which the first has a share.
func disable(t *testing.T, l *landscape.Landscape, e *conformance.Environment, shoot *gardencorev1beta1.Shoot, failing, running string) {
	g, ctx := NewWithT(t), t.Context()
	eventually := func(check func(g Gomega)) {
		t.Helper()
		g.Eventually(check).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
	}
	machineOf := func(pool string) (found *machinev1alpha1.Machine) {
		eventually(func(g Gomega) {
			machines := &machinev1alpha1.MachineList{}
			g.Expect(e.Seed.List(ctx, machines, client.InNamespace(e.Namespace))).To(Succeed())
			for _, machine := range machines.Items {
				if machine.Spec.NodeTemplateSpec.Labels[poolLabel] == pool && machine.DeletionTimestamp == nil &&
					machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning {
					found = &machine
				}
			}
			g.Expect(found).NotTo(BeNil())
		})
		return found
	}
	nodeOf := func(g Gomega, machine *machinev1alpha1.Machine) *corev1.Node {
		node := &corev1.Node{}
		g.Expect(e.Shoot.Get(ctx, client.ObjectKey{Name: machine.Labels[machinev1alpha1.NodeLabelKey]}, node)).To(Succeed())
		return node
	}
	fresh := func(g Gomega, machine *machinev1alpha1.Machine) *machinev1alpha1.Machine {
		g.Expect(e.Seed.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		return machine
	}
	apply := func(shoot *gardencorev1beta1.Shoot) {
		t.Helper()
		started := time.Now()
		g.Expect(seed.ApplyShoot(ctx, l.Seed.Config, shoot)).To(Succeed())
		g.Expect(seed.WaitForShoot(ctx, l.Seed.Config, shoot.Name)).To(Succeed())
		t.Logf("Shoot applied with %d extensions after %s", len(shoot.Spec.Extensions), time.Since(started).Round(time.Second))
	}
	hasSidecar := func(g Gomega) bool {
		deployment := &appsv1.Deployment{}
		g.Expect(e.Seed.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: "machine-controller-manager"}, deployment)).To(Succeed())
		for _, container := range deployment.Spec.Template.Spec.Containers {
			if container.Name == "machine-preservation-controller" {
				return true
			}
		}
		return false
	}
	traces := func(annotations map[string]string) (keys []string) {
		for key := range annotations {
			if strings.HasPrefix(key, v1alpha1.GroupName+"/") {
				keys = append(keys, key)
			}
		}
		return keys
	}

	failed, healthy := machineOf(failing), machineOf(running)
	g.Expect(e.Inject(ctx, failed, conformance.KubeletDead)).To(Succeed())
	patch := client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"annotations":{"node.machine.sapcloud.io/preserve":"now"}}}`))
	g.Expect(e.Shoot.Patch(ctx, nodeOf(g, healthy), patch)).To(Succeed())
	eventually(func(g Gomega) {
		g.Expect(fresh(g, failed).Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPhase, preservation.PhaseFailedPreserved))
		g.Expect(fresh(g, healthy).Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPhase, runningPreserved))
		g.Expect(nodeOf(g, failed).Spec.Taints).To(ContainElement(HaveField("Key", v1alpha1.TaintPreserved)))
	})

	disabled := shoot.DeepCopy()
	disabled.Spec.Extensions = nil
	apply(disabled)
	g.Expect(hasSidecar(g)).To(BeFalse())
	g.Expect(traces(fresh(g, healthy).Annotations)).To(BeEmpty())
	g.Expect(nodeOf(g, healthy).Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPreserve, "now"), "it is the person's")
	eventually(func(g Gomega) {
		g.Expect(e.Seed.Get(ctx, client.ObjectKeyFromObject(failed), failed)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		deployments := &machinev1alpha1.MachineDeploymentList{}
		g.Expect(e.Seed.List(ctx, deployments, client.InNamespace(e.Namespace))).To(Succeed())
		for _, deployment := range deployments.Items {
			g.Expect(traces(deployment.Annotations)).To(BeEmpty())
		}
	})

	apply(shoot)
	g.Expect(hasSidecar(g)).To(BeTrue())
	eventually(func(g Gomega) {
		g.Expect(fresh(g, healthy).Annotations).To(HaveKeyWithValue(v1alpha1.AnnotationPhase, runningPreserved))
	})
}
