// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"context"
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	machineCount = 200
	repetitions  = 10 // with each generation
)

// all calls do for each number below count, several at a time.
func all(count int, do func(int)) {
	GinkgoHelper()
	group := errgroup.Group{}
	group.SetLimit(8)
	for i := range count {
		group.Go(func() error {
			defer GinkgoRecover()
			do(i)
			return nil
		})
	}
	Expect(group.Wait()).To(Succeed())
}

// pool creates a MachineDeployment with a MachineSet, whose UIDs are those of the API server.
func pool(ctx context.Context, c client.Client, name string, opts ...builder.DeploymentOption) *machinev1alpha1.MachineSet {
	GinkgoHelper()
	deployment := builder.Deployment(name, opts...)
	deployment.UID = ""
	deployment.Spec.Selector.MatchLabels = map[string]string{"name": name}
	Expect(c.Create(ctx, deployment)).To(Succeed())
	set := builder.Set(name, deployment)
	set.UID, set.Labels = "", map[string]string{"name": name}
	Expect(c.Create(ctx, set)).To(Succeed())
	return set
}

// newMachine returns a machine to be created that belongs to a MachineSet.
func newMachine(name, node string, set *machinev1alpha1.MachineSet, opts ...builder.MachineOption) *machinev1alpha1.Machine {
	machine := builder.Machine(name, append(opts, builder.Of(set))...)
	machine.UID = ""
	machine.Labels = map[string]string{"name": set.Name, "node": node}
	return machine
}

var _ = Describe("Share", func() {
	for name, generation := range generations {
		Context(name, Ordered, func() {
			var (
				api   *server
				nodes []*corev1.Node
				// The hold is due after 27s, and the failure, upon which machine-controller-manager terminates, after 30s.
				timeouts = preservation.Timeouts{Health: 30 * time.Second, Creation: time.Minute, Drain: time.Minute}
			)

			BeforeAll(func(ctx SpecContext) {
				api = start(ctx, generation)
				nodes = make([]*corev1.Node, machineCount)
				all(machineCount, func(i int) {
					nodes[i] = newNode(fmt.Sprintf("node-%03d", i), builder.NotReady)
					Expect(api.Create(ctx, nodes[i])).To(Succeed())
				})
			}, NodeTimeout(2*time.Minute))

			for repetition := range repetitions {
				number, after := int32(1+repetition), repetition%2 == 1
				It(fmt.Sprintf("P1 T5 T6: should hold 5 of 200 machines that fail at once, and not touch the others, when it is restarted at write %d (made: %t)", number, after), func(ctx SpecContext) {
					m := &mcm{server: api, generation: generation, healthTimeout: timeouts.Health, deployment: fmt.Sprintf("pool-%d", repetition), versions: map[string]string{}}
					DeferCleanup(func(ctx SpecContext) { m.clean(ctx, nodes) })
					set := pool(ctx, api, m.deployment, builder.Share("5"), builder.Replicas(machineCount))
					machines := make([]*machinev1alpha1.Machine, machineCount)
					all(machineCount, func(i int) {
						machines[i] = newMachine(fmt.Sprintf("%s-%03d", m.deployment, i), nodes[i].Name, set)
						Expect(api.Create(ctx, machines[i])).To(Succeed())
					})

					first := startController(ctx, api, generation.holder, timeouts, &write{number: number, after: after})
					since := time.Now().Add(-22 * time.Second).Truncate(time.Second) // no machine may be overdue: that takes another write
					all(machineCount, func(i int) { m.fail(ctx, machines[i], since.Add(time.Duration(i%2)*time.Second)) })
					for _, machine := range machines {
						m.versions[machine.Name] = machine.ResourceVersion
					}

					Eventually(ctx, first.stopped).Should(BeClosed(), "the first controller has written so much")
					second := startController(ctx, api, generation.holder, timeouts, nil)

					Eventually(ctx, m.act).Should(Equal(5))
					Consistently(ctx, m.act).WithTimeout(time.Second).Should(Equal(5))
					held := map[string]bool{}
					Eventually(ctx, func(g Gomega) {
						for _, machine := range m.machines(ctx) {
							held[machine.Labels["node"]] = true
							g.Expect(machine.Annotations).To(And(HaveKeyWithValue(prefix+"phase", "Failed:Preserved"), HaveKeyWithValue(prefix+"cause", "auto")))
							current := &corev1.Node{}
							g.Expect(api.Get(ctx, client.ObjectKey{Name: machine.Labels["node"]}, current)).To(Succeed())
							g.Expect(current.Annotations).To(HaveKeyWithValue(disabled, "true"))
						}
					}).Should(Succeed())
					second.stop()
					Expect(m.touched).To(BeEmpty())
					Expect(m.mostHeld).To(Equal(5))

					for _, node := range nodes {
						if held[node.Name] {
							continue
						}
						current := &corev1.Node{}
						Expect(api.Get(ctx, client.ObjectKeyFromObject(node), current)).To(Succeed())
						Expect(current.ResourceVersion).To(Equal(node.ResourceVersion), node.Name)
					}
				}, SpecTimeout(time.Minute))
			}
		})
	}
})
