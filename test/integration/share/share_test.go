// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package share_test

import (
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/sidecar"
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

var _ = Describe("Share", func() {
	for name, generation := range sidecar.Generations {
		Context(name, Ordered, func() {
			var (
				api   *sidecar.Server
				nodes []*corev1.Node
				// The hold is due after 54s, and the failure, upon which machine-controller-manager terminates, after 60s: so long may a restart take.
				timeouts = facts.Timeouts{Health: time.Minute, Creation: time.Hour, Drain: time.Minute}
			)

			BeforeAll(func(ctx SpecContext) {
				api = sidecar.Start(ctx, generation)
				nodes = make([]*corev1.Node, machineCount)
				all(machineCount, func(i int) {
					nodes[i] = sidecar.NewNode(fmt.Sprintf("node-%03d", i), builder.NotReady)
					Expect(api.Create(ctx, nodes[i])).To(Succeed())
				})
			}, NodeTimeout(10*time.Minute))

			for repetition := range repetitions {
				number, after := int32(1+repetition), repetition%2 == 1
				It(fmt.Sprintf("P1 T5 T6: should hold 5 of 200 machines that fail at once, and not touch the others, when it is restarted at write %d (made: %t)", number, after), func(ctx SpecContext) {
					m := &mcm{Server: api, generation: generation, healthTimeout: timeouts.Health, deployment: fmt.Sprintf("pool-%d", repetition), versions: map[string]string{}}
					DeferCleanup(func(ctx SpecContext) { m.clean(ctx, nodes) })
					set := sidecar.Pool(ctx, api, m.deployment, builder.Share("5"), builder.Replicas(machineCount))
					machines := make([]*machinev1alpha1.Machine, machineCount)
					all(machineCount, func(i int) {
						machines[i] = sidecar.NewMachine(fmt.Sprintf("%s-%03d", m.deployment, i), nodes[i].Name, set)
						Expect(api.Create(ctx, machines[i])).To(Succeed())
					})

					first := sidecar.StartController(ctx, api, generation.Holder, timeouts, &sidecar.Write{Number: number, After: after})
					since := time.Now().Add(-49 * time.Second).Truncate(time.Second) // no machine may be overdue: that takes another write
					all(machineCount, func(i int) { m.fail(ctx, machines[i], since.Add(time.Duration(i%2)*time.Second)) })
					for _, machine := range machines {
						m.versions[machine.Name] = machine.ResourceVersion
					}

					Eventually(ctx, first.Stopped).Should(BeClosed(), "the first controller has written so much")
					second := sidecar.StartController(ctx, api, generation.Holder, timeouts, nil)

					Eventually(ctx, m.act).Should(Equal(5))
					Consistently(ctx, m.act).WithTimeout(time.Second).Should(Equal(5))
					held := map[string]bool{}
					Eventually(ctx, func(g Gomega) {
						for _, machine := range m.machines(ctx) {
							held[machine.Labels["node"]] = true
							g.Expect(machine.Annotations).To(And(HaveKeyWithValue(prefix+"phase", "Failed:Preserved"), HaveKeyWithValue(prefix+"cause", "auto")))
							current := &corev1.Node{}
							g.Expect(api.Get(ctx, client.ObjectKey{Name: machine.Labels["node"]}, current)).To(Succeed())
							g.Expect(current.Annotations).To(HaveKeyWithValue("cluster-autoscaler.kubernetes.io/scale-down-disabled", "true"))
						}
					}).Should(Succeed())
					second.Stop()
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
				}, SpecTimeout(5*time.Minute))
			}
		})
	}
})
