// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package share_test

import (
	"context"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/sidecar"
)

const prefix = "machine-preservation.extensions.gardener.cloud/"

// mcm plays machine-controller-manager for one MachineDeployment whose machines never recover.
type mcm struct {
	*sidecar.Server
	generation    sidecar.Generation
	healthTimeout time.Duration
	deployment    string

	// versions are the resource versions that the machines had when their failure was written.
	versions map[string]string
	// touched are the machines that were terminated although something was written on them, mostHeld how many were held
	// at the same time.
	touched  []string
	mostHeld int
}

// machines returns all machines of the MachineDeployment.
func (m *mcm) machines(ctx context.Context) []machinev1alpha1.Machine {
	GinkgoHelper()
	machines := &machinev1alpha1.MachineList{}
	Expect(m.List(ctx, machines, client.InNamespace(builder.Namespace), client.MatchingLabels{"name": m.deployment})).To(Succeed())
	return machines.Items
}

// act terminates the machines that have failed and are not held. It returns how many are left.
func (m *mcm) act(ctx context.Context) int {
	GinkgoHelper()
	machines := m.machines(ctx)
	held, left := 0, 0
	for i := range machines {
		machine := &machines[i]
		if _, near := builder.Noted(machine)[builder.NoteFailsAt]; near || machine.Annotations[prefix+"phase"] == "Failed:Preserved" {
			held++
		}
		if m.generation.LeavesAlone(machine, m.healthTimeout, time.Now()) {
			left++
			continue
		}
		if machine.ResourceVersion != m.versions[machine.Name] {
			m.touched = append(m.touched, machine.Name)
		}
		// A hold that came meanwhile counts: machine-controller-manager's own write would meet a conflict, too, and it would look again.
		err := m.Delete(ctx, machine, client.Preconditions{ResourceVersion: &machine.ResourceVersion})
		Expect(err).To(Or(Succeed(), MatchError(apierrors.IsNotFound, "IsNotFound"), MatchError(apierrors.IsConflict, "IsConflict")))
	}
	m.mostHeld = max(m.mostHeld, held)
	return left
}

// fail makes a machine unhealthy since then.
func (m *mcm) fail(ctx context.Context, machine *machinev1alpha1.Machine, since time.Time) {
	GinkgoHelper()
	builder.Phase(machinev1alpha1.MachineUnknown, since)(machine)
	Expect(m.Status().Update(ctx, machine)).To(Succeed())
}

// clean puts the shoot back to what it was.
func (m *mcm) clean(ctx context.Context, nodes []*corev1.Node) {
	GinkgoHelper()
	for _, object := range []client.Object{&machinev1alpha1.MachineDeployment{}, &machinev1alpha1.MachineSet{}, &machinev1alpha1.Machine{}} {
		Expect(m.DeleteAllOf(ctx, object, client.InNamespace(builder.Namespace))).To(Succeed())
	}
	for i := range nodes {
		current := &corev1.Node{}
		err := m.Get(ctx, client.ObjectKeyFromObject(nodes[i]), current)
		Expect(err).NotTo(HaveOccurred())
		if current.ResourceVersion == nodes[i].ResourceVersion {
			continue
		}
		Expect(m.Delete(ctx, current)).To(Succeed())
		Eventually(ctx, func() error {
			nodes[i] = sidecar.NewNode(current.Name, builder.NotReady)
			return m.Create(ctx, nodes[i])
		}).Should(Or(Succeed(), Satisfy(apierrors.IsAlreadyExists)))
	}
}
