// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drainstrategy_test

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/updatedrain"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/sidecar"
)

// startDrainStrategies starts a manager with the controller of drain strategies alone.
func startDrainStrategies(ctx context.Context, s *sidecar.Server, strategies drain.Strategies) *sidecar.Calls {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	counted, requests := rest.CopyConfig(s.Config), &sidecar.Calls{}
	counted.Wrap(requests.Wrap)

	mgr, err := manager.New(s.Config, manager.Options{Scheme: s.Scheme(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: config.Controller{SkipNameValidation: new(true)}})
	Expect(err).NotTo(HaveOccurred())
	target, err := cluster.New(counted, func(o *cluster.Options) { o.Scheme = s.Scheme() })
	Expect(err).NotTo(HaveOccurred())
	nodes, err := shoot.NewNodes(ctx, target)
	Expect(err).NotTo(HaveOccurred())
	pods, err := kubernetes.NewForConfig(counted)
	Expect(err).NotTo(HaveOccurred())
	Expect(shoot.IndexMachines(ctx, mgr.GetFieldIndexer())).To(Succeed())
	Expect((&updatedrain.Reconciler{Strategies: strategies}).AddToManager(mgr, nodes, pods)).To(Succeed())

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
	return requests
}

var _ = Describe("Drain strategies", func() {
	// So far apart that a busy machine is not at the next deadline before it has looked at what came of the one before.
	const timeout, expected, pdb = 15 * time.Second, 2 * time.Second, 30 * time.Second

	pod := func(namespace, name, node string, edit ...func(*corev1.Pod)) *corev1.Pod {
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"app": name}},
			Spec:       corev1.PodSpec{NodeName: node, Containers: []corev1.Container{{Name: "c", Image: "i"}}, TerminationGracePeriodSeconds: new(int64(1))},
		}
		for _, e := range edit {
			e(p)
		}
		return p
	}
	finalizer := func(p *corev1.Pod) { p.Finalizers = []string{"example.com/finalizer"} }

	It("D1 to D6, D9: should empty a node at the deadlines, ask nobody in between, and touch no other node", func(ctx SpecContext) {
		s := sidecar.Start(ctx, sidecar.Generations["machine-controller-manager 0.62"])
		create := func(objects ...client.Object) {
			GinkgoHelper()
			for _, object := range objects {
				object.SetUID("")
				Expect(s.Create(ctx, object)).To(Succeed())
			}
		}
		for _, namespace := range []string{"shop", "ignored"} {
			create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default"}})
		}
		pool := builder.Deployment("pool")
		create(pool)
		for _, revision := range []string{"1", "2"} {
			create(builder.Set("pool-"+revision, pool, builder.Revision(revision)))
		}
		old := &machinev1alpha1.MachineSet{}
		Expect(s.Get(ctx, client.ObjectKey{Namespace: builder.Namespace, Name: "pool-1"}, old)).To(Succeed())
		for _, name := range []string{"m", "cordoned"} {
			create(builder.Machine(name, builder.Of(old), func(m *machinev1alpha1.Machine) { m.Finalizers = []string{"machine.sapcloud.io/machine-controller"} }),
				sidecar.NewNode(name, func(n *corev1.Node) { n.Spec.Unschedulable = true }))
		}
		inAShop := metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"web", "web-finalizer"}}}}
		create(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &inAShop}},
			&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "ignored", Name: "all"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}}},
			pod("shop", "plain", "m"), pod("shop", "web", "m"), pod("ignored", "plain", "m"),
			pod("shop", "agent", "m", func(p *corev1.Pod) {
				p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "DaemonSet", Name: "agent", UID: "1", Controller: new(true)}}
			}),
			pod("shop", "elsewhere", "cordoned"))
		// They are terminating: one has a finalizer that nobody removes, the kubelet of the other is dead.
		for _, p := range []*corev1.Pod{pod("shop", "finalizer", "m", finalizer), pod("shop", "web-finalizer", "m", finalizer), pod("shop", "stuck", "m")} {
			create(p)
			Expect(s.Delete(ctx, p)).To(Succeed())
		}

		pattern, err := drain.CompileNamespacePattern("ign.*")
		Expect(err).NotTo(HaveOccurred())
		requests := startDrainStrategies(ctx, s, drain.Strategies{Timeout: timeout, ExpectedDrainTime: expected, PDBForceDrainTimeout: pdb - expected, IgnoredNamespaces: []*regexp.Regexp{pattern}})
		Consistently(requests.Open, time.Second).Should(BeZero(), "D3: no node is drained")
		Expect(requests.Take()).To(BeEmpty())

		machine := &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: builder.Namespace, Name: "m"}}
		Expect(s.Delete(ctx, machine)).To(Succeed())
		Expect(s.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		began := machine.DeletionTimestamp.Time
		left := func() []string {
			list := &corev1.PodList{}
			Expect(s.List(ctx, list)).To(Succeed())
			var names []string
			for _, p := range list.Items {
				names = append(names, p.Namespace+"/"+p.Name)
			}
			return names
		}
		condition := func() string {
			node := &corev1.Node{}
			Expect(s.Get(ctx, client.ObjectKey{Name: "m"}, node)).To(Succeed())
			for _, c := range node.Status.Conditions {
				if c.Type == "NodeDrain" {
					return c.Reason
				}
			}
			return ""
		}

		all := left()
		Eventually(condition).WithTimeout(timeout - 5*time.Second).Should(Equal("DrainUnderWay"))
		Expect(requests.Open()).To(Equal(1))
		for _, call := range requests.Take() {
			Expect(call).To(Equal("GET /api/v1/pods spec.nodeName=m"))
		}
		Consistently(left, time.Until(began.Add(timeout-time.Second))).Should(ConsistOf(all))
		Expect(requests.Take()).To(BeEmpty(), "nobody is asked before the first deadline")

		protected := []string{"shop/web", "shop/web-finalizer", "shop/agent", "shop/elsewhere", "ignored/plain"}
		Eventually(left).WithTimeout(time.Until(began.Add(timeout + 4*time.Second))).Should(ConsistOf(protected))
		Expect(time.Now()).To(BeTemporally(">=", began.Add(timeout)))
		Eventually(requests.Take).Should(And(ContainElement("GET /apis/policy/v1/namespaces/shop/poddisruptionbudgets "), Not(ContainElement(ContainSubstring("/ignored/")))))
		Consistently(left, time.Until(began.Add(pdb-500*time.Millisecond))).Should(ConsistOf(protected))

		Eventually(left).WithTimeout(time.Until(began.Add(pdb + 4*time.Second))).Should(ConsistOf("shop/agent", "shop/elsewhere", "ignored/plain"))
		Eventually(condition).WithTimeout(time.Until(began.Add(pdb+6*time.Second))).Should(Equal("DrainTimedOut"), "D7: of an ignored pod")

		Expect(s.Patch(ctx, machine, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		Eventually(requests.Open).Should(BeZero())
		Eventually(condition).Should(BeEmpty())
	}, SpecTimeout(10*time.Minute))

	It("D3, D12: should ask for little on many nodes at once, and for nothing between deadlines", func(ctx SpecContext) {
		const nodes, podsPerNode = 50, 30
		s := sidecar.Start(ctx, sidecar.Generations["machine-controller-manager 0.62"])
		create := func(objects ...client.Object) {
			GinkgoHelper()
			for _, object := range objects {
				object.SetUID("")
				Expect(s.Create(ctx, object)).To(Succeed())
			}
		}
		create(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "default"}},
			&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}})
		pool := builder.Deployment("pool")
		create(pool)
		old := builder.Set("pool-1", pool, builder.Revision("1"))
		create(old, builder.Set("pool-2", pool, builder.Revision("2")))
		var machines []*machinev1alpha1.Machine
		for i := range nodes {
			name := fmt.Sprintf("m-%d", i)
			machine := builder.Machine(name, builder.Of(old), func(m *machinev1alpha1.Machine) { m.Finalizers = []string{"machine.sapcloud.io/machine-controller"} })
			create(machine, sidecar.NewNode(name))
			machines = append(machines, machine)
			for j := range podsPerNode {
				create(pod("shop", fmt.Sprintf("%s-%d", name, j), name, func(p *corev1.Pod) {
					if j%2 == 0 {
						p.Labels = map[string]string{"app": "web"}
					}
				}))
			}
		}

		const timeout, pdb = 40 * time.Second, 70 * time.Second
		requests := startDrainStrategies(ctx, s, drain.Strategies{Timeout: timeout, ExpectedDrainTime: 5 * time.Second, PDBForceDrainTimeout: pdb - 5*time.Second})
		requests.TakeAll()
		began := time.Now().Truncate(time.Second) // as the deletion timestamp of the first machine
		for _, machine := range machines {
			Expect(s.Delete(ctx, machine)).To(Succeed())
		}
		left := func() int {
			list := &corev1.PodList{}
			Expect(s.List(ctx, list)).To(Succeed())
			return len(list.Items)
		}
		phase := func(name string, until time.Duration, each int) {
			GinkgoHelper()
			time.Sleep(time.Until(began.Add(until)))
			made := requests.TakeAll()
			GinkgoWriter.Printf("%s, until %s: %d calls, %.1f for each node\n", name, until, len(made), float64(len(made))/nodes)
			Expect(len(made)).To(BeNumerically("<=", each*nodes), "%s: %v", name, made[:min(len(made), 20)])
		}
		phase("beginning: a watch, and the condition", timeout/2, 3)
		phase("waiting for the first deadline", timeout-2*time.Second, 0)
		Expect(left()).To(Equal(nodes * podsPerNode))
		// For each pod a deletion and an Event; for each node its budgets twice, the condition and an Event.
		phase("first deadline", timeout+15*time.Second, 2*podsPerNode/2+10)
		Expect(left()).To(Equal(nodes * podsPerNode / 2))
		phase("waiting for the second deadline", pdb-2*time.Second, 0)
		phase("second deadline", pdb+15*time.Second, 2*podsPerNode/2+10)
		Expect(left()).To(BeZero())
	}, SpecTimeout(15*time.Minute))
})
