// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"errors"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// metric returns the series of a metric with its values, or of a histogram the number of its observations or their _sum,
// by their label values in the order of the label names: "auto a".
func metric(name string) map[string]float64 {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	series := map[string]float64{}
	for _, family := range families {
		histogram, sum := strings.CutSuffix(name, "_sum")
		if family.GetName() != "machine_preservation_"+histogram {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, label := range m.GetLabel() {
				labels = append(labels, label.GetValue())
			}
			observed := float64(m.GetHistogram().GetSampleCount())
			if sum {
				observed = m.GetHistogram().GetSampleSum()
			}
			series[strings.Join(labels, " ")] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + observed
		}
	}
	return series
}

// in makes the MachineDeployment one of a worker pool and of a zone.
func in(pool, zone string) DeploymentOption {
	return func(d *machinev1alpha1.MachineDeployment) {
		d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{"worker.gardener.cloud/pool": pool, "topology.kubernetes.io/zone": zone}
	}
}

var _ = Describe("Metrics", func() {
	var now = Start.Add(time.Hour)

	for name, holder := range holders {
		Context(name, func() {
			It("P11: should count by pool and cause", func(ctx SpecContext) {
				pool := "counted-" + name
				deployment := Deployment("pool", Share("1"), in(pool, "z"))
				set := Set("set", deployment)
				e := newEnvironment(holder, deployment, set, Node("first"), Node("second"))
				e.settle(ctx)
				Expect(metric("refusals_total")).To(HaveKeyWithValue(pool, 0.0), "an increase is seen only of what was there")
				Expect(metric("hold_lead_seconds")).To(HaveKeyWithValue("auto "+pool, 0.0))
				Expect(metric("errors_total")).To(And(HaveKeyWithValue("machine "+pool, 0.0), HaveKeyWithValue("node "+pool, 0.0)))

				Expect(e.seed.Create(ctx, Machine("first", Of(set), failing(now.Add(-time.Second))))).To(Succeed())
				Expect(e.seed.Create(ctx, Machine("second", Of(set), failing(now)))).To(Succeed())
				Expect(e.seed.Create(ctx, Machine("asked", Of(set), failing(now), Annotation(preserve, "when-failed")))).To(Succeed())
				e.settle(ctx)
				Expect(metric("transitions_total")).To(HaveKeyWithValue("when-failed "+pool+" AskedInCase T4", 1.0))
				Expect(metric("hold_lead_seconds")).To(HaveKeyWithValue("when-failed "+pool, 1.0))
				Expect(metric("refusals_total")).To(HaveKeyWithValue(pool, 2.0), "the request takes the place")
			})

			It("P20: should tell how many places zones share as if one of them had all", func(ctx SpecContext) {
				pool := "shared-" + name
				shared := DeploymentAnnotation(prefix+"shared-in-pool", pool)
				a, b := Deployment("a", Share("2"), in(pool, "z1"), shared), Deployment("b", Share("2"), in(pool, "z2"), shared)
				e := newEnvironment(holder, a, b)
				for _, deployment := range []string{"b", "a"} {
					_, err := e.reconcileNamed(ctx, deployment)
					Expect(err).NotTo(HaveOccurred())
				}
				Expect(metric("share")).To(And(HaveKeyWithValue("a "+pool+" z1", 2.0), HaveKeyWithValue("b "+pool+" z2", 0.0)))
			})

			It("P12: should count errors by the kind of the object, and no conflicts", func(ctx SpecContext) {
				pool := "errors-" + name
				deployment := Deployment("pool", Share("2"), in(pool, "z"))
				set := Set("set", deployment)
				e := newEnvironment(holder, deployment, set, Machine("m", Of(set), failing(now)), Node("m"))
				e.api.failing("Machine/", faults["409"])
				e.failingRound(ctx)
				Expect(metric("errors_total")).To(And(HaveKeyWithValue("machine "+pool, 0.0), HaveKeyWithValue("node "+pool, 0.0)))
				e.pass(time.Second)
				e.api.failing("Machine/", errors.New("denied"))
				e.failingRound(ctx)
				Expect(metric("errors_total")).To(And(HaveKeyWithValue("machine "+pool, 1.0), HaveKeyWithValue("node "+pool, 0.0)))
				e.pass(2 * time.Second)
				e.api.failing("Node/", errors.New("denied"))
				e.failingRound(ctx)
				Expect(metric("errors_total")).To(And(HaveKeyWithValue("machine "+pool, 1.0), HaveKeyWithValue("node "+pool, 1.0)))
			})

			It("P11: should tell what is, and not what was to be", func(ctx SpecContext) {
				gauges := []string{"machines", "share_used", "expiry_timestamp_seconds", "since_timestamp_seconds", "share", "drains"}
				of := func(series map[string]float64) map[string]float64 {
					for labels := range series {
						if !strings.Contains(labels, "gauges-"+name) {
							delete(series, labels)
						}
					}
					return series
				}
				tell := func() map[string]map[string]float64 {
					told := map[string]map[string]float64{}
					for _, gauge := range gauges {
						told[gauge] = of(metric(gauge))
					}
					return told
				}
				pool := "gauges-" + name
				deployment := Deployment("pool", Share("2"), in(pool, "z"))
				set := Set("set", deployment)
				e := newEnvironment(holder, deployment, set, Machine("m", Of(set), failing(now)), Node("m", with("yes")))
				e.api.failing("Machine/", errors.New("denied"))
				e.failingRound(ctx)
				none := map[string]float64{}
				Expect(tell()).To(Equal(map[string]map[string]float64{
					"machines": none, "share_used": {"pool " + pool + " z": 0}, "expiry_timestamp_seconds": none, "since_timestamp_seconds": none, "share": {"pool " + pool + " z": 2}, "drains": none,
				}))

				e.api.write = nil
				e.pass(time.Second)
				_, err := e.reconcile(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(tell()).To(Equal(map[string]map[string]float64{
					"machines":                 {"auto pool Failed:Preserved " + pool + " z": 1},
					"share_used":               {"pool " + pool + " z": 1},
					"expiry_timestamp_seconds": {"m pool " + pool + " z": float64(now.Add(72*time.Hour + time.Second).Unix())},
					"since_timestamp_seconds":  {"m pool " + pool + " z": float64(now.Add(time.Second).Unix())},
					"share":                    {"pool " + pool + " z": 2},
					"drains":                   {"pool " + pool + " Draining z": 1},
				}))

				Expect(e.seed.Delete(ctx, deployment)).To(Succeed())
				_, err = e.reconcile(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(tell()).To(Equal(map[string]map[string]float64{
					"machines": none, "share_used": none, "expiry_timestamp_seconds": none, "since_timestamp_seconds": none, "share": none, "drains": none,
				}))
			})

			It("should keep what is counted by pool as long as a MachineDeployment is there, and tell ledgers", func(ctx SpecContext) {
				pool := "gone-" + name
				series := func() int {
					n := 0
					for _, counted := range []string{"transitions_total", "refusals_total", "hold_lead_seconds", "errors_total"} {
						for labels := range metric(counted) {
							if strings.Contains(labels, pool) {
								n++
							}
						}
					}
					return n
				}
				one, two := Deployment("pool", Share("1"), in(pool, "z")), Deployment("other", Share("1"), in(pool, "y"))
				set := Set("set", one)
				e := newEnvironment(holder, one, two, set, Machine("m", Of(set), failing(now)), Node("m"))
				nothing := func(*machinev1alpha1.MachineDeployment, []preservation.Decision, time.Time) {}
				first, second := &forgetful{ledger: nothing}, &forgetful{ledger: nothing}
				e.Ledgers = []Ledger{first, second}
				look := func(name string) {
					_, err := e.reconcileNamed(ctx, name)
					Expect(err).NotTo(HaveOccurred())
				}
				look("other")
				e.settle(ctx)
				before := series()
				Expect(before).NotTo(BeZero())

				Expect(e.seed.Delete(ctx, one)).To(Succeed())
				look("pool")
				Expect(series()).To(Equal(before))
				Expect(e.seed.Delete(ctx, two)).To(Succeed())
				look("other")
				Expect(series()).To(BeZero())
				look("never-seen")
				for _, ledger := range []*forgetful{first, second} {
					Expect(ledger.forgotten).To(Equal([]string{"pool ", "other " + pool, "never-seen "}))
				}
			})

			It("P14: should have no labels that a user wrote", func(ctx SpecContext) {
				deployment := Deployment("pool", Share("2"), in("labels-"+name, ""))
				set := Set("set", deployment)
				e := newEnvironment(holder, deployment, set, Machine("m", Of(set), failing(now)),
					Node("m", func(n *corev1.Node) { n.Labels = map[string]string{"topology.kubernetes.io/zone": "evil"} }))
				e.settle(ctx)
				node := e.node(ctx, "m")
				Condition("Preserved", corev1.ConditionTrue, "evil", "")(node)
				Expect(e.shoot.Status().Update(ctx, node)).To(Succeed())
				e.editMachine(ctx, "m", Annotation(prefix+"cause", "evil"))
				_, err := e.reconcile(ctx)
				Expect(err).NotTo(HaveOccurred())
				for _, name := range []string{"machines", "drains", "transitions_total", "share"} {
					Expect(metric(name)).NotTo(HaveKey(ContainSubstring("evil")))
				}
			})
		})
	}
})
