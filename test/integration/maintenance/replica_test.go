// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
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
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/sidecar"
)

// startReplica starts the controllers of maintenances beside the sidecar, as if two of it overlapped, and returns what they
// ask the shoot for.
func startReplica(ctx context.Context) *sidecar.Calls {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	counted, requests := rest.CopyConfig(restConfig), &sidecar.Calls{}
	counted.Wrap(requests.Wrap)

	mgr, err := manager.New(restConfig, manager.Options{Scheme: c.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)}})
	Expect(err).NotTo(HaveOccurred())
	target, err := cluster.New(counted, func(o *cluster.Options) { o.Scheme, o.Cache.ByObject = c.Scheme(), maintenance.ByObject() })
	Expect(err).NotTo(HaveOccurred())
	nodes, err := shoot.NewNodes(ctx, target)
	Expect(err).NotTo(HaveOccurred())
	maintenances, err := maintenance.NewMaintenances(ctx, target)
	Expect(err).NotTo(HaveOccurred())
	pods, err := kubernetes.NewForConfig(counted)
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
	return requests
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

	It("M4: should watch pods while the node waits or drains, and at no other time", func(ctx SpecContext) {
		limit(ctx, "0", "100%")
		waits, drains := pod("waits", "worker-02"), pod("drains", "worker-02")
		create(ctx, waits, drains, pod("elsewhere", "worker-03"))
		DeferCleanup(func(ctx SpecContext) {
			for _, name := range []string{"waits", "drains", "elsewhere"} {
				Expect(client.IgnoreNotFound(c.Delete(ctx, pod(name, ""), client.GracePeriodSeconds(0)))).To(Succeed())
			}
		})
		requests := startReplica(ctx)
		Expect(c.Create(ctx, request("plain", "worker-03", nil))).To(Succeed())
		Eventually(phase(ctx, "plain"), patient).Should(Equal("Ready"))
		Consistently(requests.Open, time.Second).Should(BeZero(), "it neither waits nor drains")
		for _, call := range requests.Take() {
			Expect(call).To(HaveSuffix("spec.nodeName=worker-03"))
		}

		Expect(c.Create(ctx, request("a", "worker-02", map[string]any{
			"waitForPodCompletion": map[string]any{"podSelector": "app=waits"}, "drainSpec": map[string]any{"podSelector": "app=drains"},
		}))).To(Succeed())
		Eventually(phase(ctx, "a"), patient).Should(Equal("WaitForPodCompletion"))
		Eventually(requests.Open, patient).Should(Equal(1))
		Consistently(requests.Open, time.Second).Should(Equal(1))
		Expect(c.Delete(ctx, waits)).To(Succeed())
		Eventually(phase(ctx, "a"), patient).Should(Equal("Draining"))
		Consistently(requests.Open, time.Second).Should(Equal(1), "nobody evicts a pod without a controller")
		Expect(exists(ctx, drains)()).To(BeTrue())
		Expect(c.Delete(ctx, drains)).To(Succeed())
		Eventually(phase(ctx, "a"), patient).Should(Equal("Ready"))
		Eventually(requests.Open, patient).Should(BeZero())
		Consistently(requests.Open, time.Second).Should(BeZero())
		calls := requests.Take()
		Expect(calls).NotTo(BeEmpty())
		for _, call := range calls {
			Expect(strings.HasSuffix(call, "spec.nodeName=worker-02")).To(BeTrue(), call)
		}
	})
}
