// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance/nodemaintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance/scheduler"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// startReplica starts the controllers of maintenances beside the sidecar, as if two of it overlapped.
func startReplica(ctx context.Context) {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))

	mgr, err := manager.New(restConfig, manager.Options{Scheme: c.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)}})
	Expect(err).NotTo(HaveOccurred())
	target, err := cluster.New(restConfig, func(o *cluster.Options) { o.Scheme, o.Cache.ByObject = c.Scheme(), maintenance.ByObject() })
	Expect(err).NotTo(HaveOccurred())
	nodes, err := shoot.NewNodes(ctx, target)
	Expect(err).NotTo(HaveOccurred())
	maintenances, err := maintenance.NewMaintenances(ctx, target)
	Expect(err).NotTo(HaveOccurred())
	pods, err := kubernetes.NewForConfig(restConfig)
	Expect(err).NotTo(HaveOccurred())
	Expect(shoot.IndexMachines(ctx, mgr.GetFieldIndexer())).To(Succeed())
	kept := preservation.Group{Holder: preservation.PreserveExpiry{}, Maintenance: preservation.MaintenanceOptions{Enabled: true}}
	Expect((&nodemaintenance.Reconciler{Preservation: kept}).AddToManager(mgr, nodes, maintenances, pods)).To(Succeed())
	Expect((&scheduler.Reconciler{}).AddToManager(mgr, nodes, maintenances)).To(Succeed())

	var running sync.WaitGroup
	for _, start := range []func(context.Context) error{target.Start, mgr.Start} {
		running.Go(func() {
			defer GinkgoRecover()
			Expect(start(ctx)).To(Succeed())
		})
	}
	DeferCleanup(func() {
		cancel()
		running.Wait()
	})
	Eventually(maintenances.Known, patient).Should(BeTrue())
}

func describeReplicas() {
	It("M10: should never exceed the limit with several replicas", func(ctx SpecContext) {
		const count, parallel = 20, 3
		limit(ctx, fmt.Sprint(parallel), "0") // nothing is scheduled
		set := &machinev1alpha1.MachineSet{}
		Expect(c.Get(ctx, client.ObjectKey{Namespace: builder.Namespace, Name: "pool-1"}, set)).To(Succeed())
		startReplica(ctx)
		startReplica(ctx)

		changes, err := c.Watch(ctx, &v1alpha1.NodeMaintenanceList{})
		Expect(err).NotTo(HaveOccurred())
		defer changes.Stop()
		for i := range count {
			name := fmt.Sprintf("many-%02d", i)
			machine, node := builder.Machine(name, builder.Of(set)), builder.Node(name)
			create(ctx, machine, node)
			DeferCleanup(func(ctx SpecContext) {
				Expect(c.Delete(ctx, machine)).To(Succeed())
				Expect(c.Delete(ctx, node)).To(Succeed())
			})
			Expect(c.Create(ctx, request(name, name, nil))).To(Succeed())
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
				Expect(c.Delete(ctx, nm)).To(Succeed())
			}
		}
		Expect(most).To(Equal(parallel))
	}, SpecTimeout(10*time.Minute))
}
