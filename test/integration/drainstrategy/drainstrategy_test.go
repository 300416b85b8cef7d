// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drainstrategy_test

import (
	"context"
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/updatedrain"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/sidecar"
)

// startDrainStrategies starts a manager with the controller of drain strategies alone, and returns what it asks the shoot for.
func startDrainStrategies(ctx context.Context, s *sidecar.Server, strategies drain.Strategies) *sidecar.Calls {
	GinkgoHelper()
	counted, requests := rest.CopyConfig(s.Config), &sidecar.Calls{}
	counted.Wrap(requests.Wrap)
	sidecar.Run(ctx, s, sidecar.Options{Shoot: counted}, func(_ context.Context, m *sidecar.Manager) {
		Expect((&updatedrain.Reconciler{Strategies: strategies}).AddToManager(m, m.Nodes, m.Pods)).To(Succeed())
	})
	return requests
}

var _ = Describe("Drain strategies", func() {
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
			create(machine, sidecar.NewNode(name, func(n *corev1.Node) { n.Spec.Unschedulable = true }))
			machines = append(machines, machine)
			for j := range podsPerNode {
				pod := &corev1.Pod{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("%s-%d", name, j)},
					Spec:       corev1.PodSpec{NodeName: name, Containers: []corev1.Container{{Name: "c", Image: "i"}}, TerminationGracePeriodSeconds: new(int64(1))},
				}
				if j%2 == 0 {
					pod.Labels = map[string]string{"app": "web"}
				}
				create(pod)
			}
		}

		const timeout, pdb = 40 * time.Second, 70 * time.Second
		requests := startDrainStrategies(ctx, s, drain.Strategies{Timeout: timeout, ExpectedDrainTime: 5 * time.Second, PDBForceDrainTimeout: pdb - 5*time.Second})
		Consistently(requests.Open, time.Second).Should(BeZero(), "D3: no node is drained")
		Expect(requests.Take()).NotTo(ContainElement(Or(ContainSubstring("/pods"), ContainSubstring("/poddisruptionbudgets"))))
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
			made := requests.Take()
			GinkgoWriter.Printf("%s, until %s: %d calls, %.1f for each node\n", name, until, len(made), float64(len(made))/nodes)
			Expect(len(made)).To(BeNumerically("<=", each*nodes), "%s: %v", name, made[:min(len(made), 20)])
		}
		phase("beginning: a watch, and the condition", timeout/2, 3)
		phase("waiting for the first deadline", timeout-2*time.Second, 0)
		Expect(left()).To(Equal(nodes * podsPerNode))
		Expect(requests.Open()).To(Equal(nodes))
		// For each pod a deletion and an Event; for each node its budgets twice, the condition and an Event.
		phase("first deadline", timeout+15*time.Second, 2*podsPerNode/2+10)
		Expect(left()).To(Equal(nodes * podsPerNode / 2))
		phase("waiting for the second deadline", pdb-2*time.Second, 0)
		phase("second deadline", pdb+15*time.Second, 2*podsPerNode/2+10)
		Expect(left()).To(BeZero())
		for _, machine := range machines {
			Expect(s.Patch(ctx, machine, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`)))).To(Succeed())
		}
		Eventually(requests.Open).Should(BeZero())
	}, SpecTimeout(15*time.Minute))
})
