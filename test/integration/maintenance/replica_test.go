// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"context"
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance/nodemaintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance/scheduler"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/sidecar"
)

// startReplica starts the controllers of maintenances beside the sidecar, as if two of it overlapped.
func startReplica(ctx context.Context) {
	GinkgoHelper()
	var maintenances *maintenance.Maintenances
	sidecar.Run(ctx, s, sidecar.Options{ByObject: maintenance.ByObject()}, func(ctx context.Context, m *sidecar.Manager) {
		var err error
		maintenances, err = maintenance.NewMaintenances(ctx, m.Shoot)
		Expect(err).NotTo(HaveOccurred())
		kept := preservation.Group{Holder: preservation.PreserveExpiry{}, Maintenance: preservation.MaintenanceOptions{Enabled: true}}
		Expect((&nodemaintenance.Reconciler{Preservation: kept}).AddToManager(m, m.Nodes, maintenances, m.Pods)).To(Succeed())
		Expect((&scheduler.Reconciler{}).AddToManager(m, m.Nodes, maintenances)).To(Succeed())
	})
	Eventually(maintenances.Known, patient).Should(BeTrue())
}

func describeReplicas() {
	It("M10: should never exceed the limit with several replicas", func(ctx SpecContext) {
		const count, parallel = 20, 3
		limit(ctx, fmt.Sprint(parallel), "0") // nothing is scheduled
		set := &machinev1alpha1.MachineSet{}
		Expect(s.Get(ctx, client.ObjectKey{Namespace: builder.Namespace, Name: "pool-1"}, set)).To(Succeed())
		startReplica(ctx)
		startReplica(ctx)

		changes, err := s.Watch(ctx, &v1alpha1.NodeMaintenanceList{})
		Expect(err).NotTo(HaveOccurred())
		defer changes.Stop()
		for i := range count {
			name := fmt.Sprintf("many-%02d", i)
			machine, node := builder.Machine(name, builder.Of(set)), builder.Node(name)
			create(ctx, machine, node)
			DeferCleanup(func(ctx SpecContext) {
				Expect(s.Delete(ctx, machine)).To(Succeed())
				Expect(s.Delete(ctx, node)).To(Succeed())
			})
			Expect(s.Create(ctx, request(name, name, nil))).To(Succeed())
			Eventually(phase(ctx, name), patient).Should(Equal("Pending"))
		}

		limit(ctx, fmt.Sprint(parallel), "100%")
		inProgress, given, most := sets.New[types.UID](), sets.New[types.UID](), 0
		for given.Len() < count || inProgress.Len() > 0 {
			var event watch.Event
			Eventually(changes.ResultChan(), patient).Should(Receive(&event), "%d were given back", given.Len())
			nm := event.Object.(*v1alpha1.NodeMaintenance)
			if event.Type == watch.Deleted || !domain.InProgress(nm) {
				inProgress.Delete(nm.UID)
				continue
			}
			inProgress.Insert(nm.UID)
			Expect(inProgress.Len()).To(BeNumerically("<=", parallel), "M10")
			most = max(most, inProgress.Len())
			if domain.PhaseOf(nm) == v1alpha1.PhaseReady && !given.Has(nm.UID) {
				given.Insert(nm.UID)
				Expect(s.Delete(ctx, nm)).To(Succeed())
			}
		}
		Expect(most).To(Equal(parallel))
	}, SpecTimeout(10*time.Minute))
}
