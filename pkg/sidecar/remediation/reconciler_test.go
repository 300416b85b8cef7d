// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// metric returns the values of a metric, by those of its labels.
func metric(name string) map[string]float64 {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != "machine_preservation_"+name {
			continue
		}
		for _, m := range family.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			values[strings.Join(labels, " ")] = m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

var _ = Describe("Reconciler", func() {
	It("X1 X3 X12: should write in order, tell of each step, and succeed", func(ctx SpecContext) {
		e := newEnvironment("m")
		cycles, durations := metric("power_cycles_total"), metric("power_cycle_duration_seconds")
		e.settle(ctx)
		Expect(e.calls).To(BeEmpty(), "nothing is to be done")

		e.ask(ctx, "m")
		e.settle(ctx)
		Expect(e.phase(ctx, "m")).To(Equal("PoweringOff"))
		Expect(e.host(ctx, "m").GetAnnotations()).To(And(HaveKey(reboot), HaveKey(owner)))
		Expect(e.machine(ctx, "m").Finalizers).To(ContainElement(finalizer))
		Expect(metric("hosts_off")).To(HaveKeyWithValue("", 1.0))
		Expect(metric("power_cycle_deadline_timestamp_seconds")).To(HaveKeyWithValue("hosts/m m pool", float64(e.clock.Now().Add(10*time.Minute).Unix())))
		Expect(e.tainted(ctx, "m")).To(BeFalse())

		e.contents = remediation.NodeContents{Pods: 1}
		e.power(ctx, "m")
		Expect(e.settle(ctx)).To(Equal(5 * time.Second))
		Expect(e.phase(ctx, "m")).To(Equal("MakingNodeSafe"))
		Expect(e.tainted(ctx, "m")).To(BeTrue())

		e.contents = remediation.NodeContents{}
		e.pass(5 * time.Second)
		e.settle(ctx)
		Expect(e.phase(ctx, "m")).To(Equal("PoweringOn"))
		Expect(e.host(ctx, "m")).To(beReleased())
		Expect(metric("hosts_off")).To(HaveKeyWithValue("", 0.0))

		e.cycle(ctx, "m")
		Expect(e.phase(ctx, "m")).To(Equal("Succeeded"))
		Expect(e.tainted(ctx, "m")).To(BeFalse())
		Expect(e.machine(ctx, "m").Annotations).NotTo(Or(HaveKey(needs), HaveKey(kept)))
		Expect(e.machine(ctx, "m").Finalizers).To(BeEmpty())
		Expect(metric("power_cycle_deadline_timestamp_seconds")).To(BeEmpty())
		Expect(metric("power_cycles_total")["Succeeded"] - cycles["Succeeded"]).To(Equal(1.0))
		for _, phase := range []string{"PoweringOff", "MakingNodeSafe", "PoweringOn"} {
			Expect(metric("power_cycle_duration_seconds")[phase]-durations[phase]).To(Equal(1.0), phase)
		}
		Expect(e.node(ctx, "m").Status.Conditions).To(ContainElement(And(HaveField("Type", Equal(corev1.NodeConditionType("PowerCycle"))), HaveField("Status", corev1.ConditionFalse), HaveField("Reason", "Succeeded"))))

		var onMachine []string
		for _, event := range e.events {
			if rest, ok := strings.CutPrefix(event, "Machine Normal PowerCycle"); ok {
				onMachine = append(onMachine, strings.SplitN(rest, ":", 2)[0])
			}
		}
		Expect(onMachine).To(Equal([]string{"PoweringOff", "MakingNodeSafe", "PoweringOn", "Succeeded"}))
		Expect(e.events).To(ContainElement(HavePrefix("Node Normal PowerCycleSucceeded")))
		var order []string
		for _, write := range e.writes {
			if len(order) == 0 || order[len(order)-1] != write {
				order = append(order, write)
			}
		}
		Expect(order).To(Equal([]string{
			"patch Machine/m",     // the request is noted
			"patch Host/m",        // off
			"patch Node/m/status", // condition
			"patch Machine/m",     // whose taint it is
			"patch Node/m",        // taint
			"patch Node/m/status", // condition
			"patch Machine/m",     // safe
			"patch Host/m",        // released
			"patch Node/m/status", // condition
			"patch Machine/m",     // on, and back
			"patch Node/m",        // no taint
			"patch Node/m/status", // condition
		}))
		Expect(len(e.calls)).To(BeNumerically("<", 50), strings.Join(e.calls, "\n"))

		calls := len(e.calls)
		e.settle(ctx)
		Expect(e.calls).To(HaveLen(calls), "at rest")
	})

	Describe("X3: crash", func() {
		// gone is what a controller sees that has been killed.
		gone := errors.New("connection reset by peer")
		for name, crash := range map[string]struct{ applied, alone bool }{
			"killed before the write": {},
			"killed after the write":  {applied: true},
			"the write fails":         {alone: true},
			"the answer is lost":      {applied: true, alone: true},
		} {
			It(name, func(ctx SpecContext) {
				for number := 1; ; number++ {
					e := newEnvironment("m", "other")
					e.hang(ctx, "m")
					e.ask(ctx, "m")
					made, hit := 0, false
					e.fail = func(_ string, isWrite bool) error {
						if hit && !crash.alone {
							return gone
						}
						if !isWrite {
							return nil
						}
						if made++; made != number {
							return nil
						}
						hit = true
						if crash.applied {
							return errAnswerLost
						}
						return gone
					}
					for range 30 {
						_, err := e.round(ctx)
						if hit && !crash.alone {
							e.restart()
							e.fail = func(string, bool) error { return nil }
						} else if !hit {
							Expect(err).NotTo(HaveOccurred())
						}
						e.pass(5 * time.Second)
						e.power(ctx, "m")
					}
					by := fmt.Sprintf("write %d: %s", number, strings.Join(e.writes, ", "))
					Expect(e.phase(ctx, "m")).To(Equal("Succeeded"), by)
					Expect(e.tainted(ctx, "m")).To(BeFalse(), by)
					Expect(e.host(ctx, "m")).To(beReleased(), by)
					Expect(e.boots).To(Equal(3), "the host was off once: "+by)
					Expect(e.machine(ctx, "m").Finalizers).To(BeEmpty(), by)
					Expect(e.host(ctx, "other").GetAnnotations()).To(BeEmpty(), by)
					Expect(e.machine(ctx, "other").Annotations).NotTo(HaveKey(phase), by)
					if !hit {
						Expect(number).To(BeNumerically(">", 10))
						return
					}
				}
			})
		}
	})

	It("X16: should power off a healthy machine if somebody asks for it, and none that nobody knows about", func(ctx SpecContext) {
		e := newEnvironment("m", "other")
		e.ask(ctx, "m")
		e.settle(ctx)
		Expect(e.phase(ctx, "m")).To(Equal("PoweringOff"))
		e.ask(ctx, "other")
		e.restart()
		e.settle(ctx)
		Expect(e.machine(ctx, "other").Annotations).NotTo(HaveKey(needs))
		Expect(e.events).To(ContainElement(HavePrefix("Machine Normal PowerCycleRecovered: The request for a power cycle was removed, because the machine is healthy and it is not known")))
	})

	Describe("X16: should look again by itself once a request for a healthy machine would be believed", func() {
		var e *environment
		believes := func(ctx SpecContext) {
			GinkgoHelper()
			e.settle(ctx)
			e.pass(time.Hour)
			e.ask(ctx, "m")
			e.settle(ctx)
			Expect(e.phase(ctx, "m")).To(Equal("PoweringOff"))
		}
		BeforeEach(func(ctx SpecContext) {
			e = newEnvironment("m")
			e.restart()
			Expect(e.settle(ctx)).To(Equal(time.Minute))
		})

		It("after a restart", func(ctx SpecContext) {
			e.pass(time.Minute)
			Expect(e.settle(ctx)).To(BeZero())
			believes(ctx)
		})

		It("after a request that was removed", func(ctx SpecContext) {
			e.pass(59 * time.Second)
			e.ask(ctx, "m")
			Expect(e.settle(ctx)).To(Equal(time.Minute))
			Expect(e.events).To(ContainElement(ContainSubstring("it is not known")))
			e.pass(time.Minute)
			believes(ctx)
		})

		It("a minute after the objects were read first", func(ctx SpecContext) {
			e.restart()
			e.cached = func() {
				e.pass(5 * time.Second)
				e.cached = func() {}
			}
			result, err := e.round(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(result.RequeueAfter).To(Equal(time.Minute))
			e.pass(time.Minute)
			believes(ctx)
		})

		It("where it becomes so while the objects are read", func(ctx SpecContext) {
			e.pass(time.Minute - time.Millisecond)
			e.cached = func() {
				e.pass(time.Second)
				e.cached = func() {}
			}
			result, err := e.round(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(result.RequeueAfter).To(Equal(time.Millisecond))
			believes(ctx)
		})

		It("but not where there is a request on the node that is refused, and cannot be removed", func(ctx SpecContext) {
			n := e.node(ctx, "m")
			e.edit(ctx, n, func() { n.Annotations = map[string]string{request: "now"} })
			e.fail = func(call string, _ bool) error {
				if strings.HasPrefix(call, "patch Node/") {
					return errors.New("denied")
				}
				return nil
			}
			for range 10 {
				result, err := e.round(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(result.RequeueAfter).To(BeNumerically(">=", time.Second), "it is tried again to remove it")
				e.pass(result.RequeueAfter)
			}
		})

		type edit func(now time.Time, ready, deadlock *corev1.NodeCondition)
		set := func(c *corev1.NodeCondition, status corev1.ConditionStatus, since time.Time) {
			c.Status, c.LastTransitionTime = status, metav1.NewTime(since)
		}
		DescribeTable("where it was ill when it was asked for", func(ctx SpecContext, ill, well edit) {
			write := func(do edit) {
				n := e.node(ctx, "m")
				do(e.clock.Now(), &n.Status.Conditions[0], &n.Status.Conditions[1])
				Expect(e.c.Status().Update(ctx, n)).To(Succeed())
				e.settle(ctx)
			}
			e.pass(time.Minute)
			write(ill)
			e.pass(10 * time.Minute)
			e.settle(ctx)
			e.pass(time.Second)
			e.ask(ctx, "m")
			write(well)
			Expect(e.phase(ctx, "m")).To(BeEmpty())
			e.pass(time.Minute)
			Expect(e.settle(ctx)).To(BeZero())
			believes(ctx)
		},
			Entry("and its clock is ahead", edit(func(now time.Time, ready, _ *corev1.NodeCondition) {
				set(ready, corev1.ConditionUnknown, now)
			}), edit(func(now time.Time, ready, _ *corev1.NodeCondition) {
				set(ready, corev1.ConditionTrue, now.Add(2*time.Second))
			})),
			Entry("and always ready", edit(func(now time.Time, _, deadlock *corev1.NodeCondition) {
				set(deadlock, corev1.ConditionTrue, now)
			}), edit(func(now time.Time, _, deadlock *corev1.NodeCondition) {
				set(deadlock, corev1.ConditionFalse, now)
			})),
			Entry("and nobody saw that", edit(func(time.Time, *corev1.NodeCondition, *corev1.NodeCondition) {}), edit(func(now time.Time, ready, _ *corev1.NodeCondition) {
				set(ready, corev1.ConditionTrue, now)
			})),
			Entry("and nobody saw that, and always ready", edit(func(time.Time, *corev1.NodeCondition, *corev1.NodeCondition) {}), edit(func(now time.Time, _, deadlock *corev1.NodeCondition) {
				set(deadlock, corev1.ConditionFalse, now)
			})),
		)
	})

	It("X16: should see live that the machine has recovered, and that it has not", func(ctx SpecContext) {
		e := newEnvironment("m", "other")
		h := e.host(ctx, "m")
		e.edit(ctx, h, func() { h.SetAnnotations(map[string]string{"baremetalhost.metal3.io/paused": ""}) })
		healthy := e.node(ctx, "m")
		e.hang(ctx, "m")
		e.ask(ctx, "m")
		e.settle(ctx)
		Expect(e.phase(ctx, "m")).To(Equal("Waiting"))

		e.Nodes = nodes{lagging{e.intercept(false), healthy}, e.intercept(true), e}
		look := func() {
			_, err := e.round(ctx)
			Expect(err).NotTo(HaveOccurred())
		}
		look()
		Expect(e.phase(ctx, "m")).To(Equal("Waiting"), "only the cache says that it has recovered")
		hanging := e.node(ctx, "m")
		now := e.node(ctx, "m")
		now.Status.Conditions = healthy.Status.Conditions
		Expect(e.c.Status().Update(ctx, now)).To(Succeed())
		e.Nodes = nodes{lagging{e.intercept(false), hanging}, e.intercept(true), e}
		h = e.host(ctx, "m")
		e.edit(ctx, h, func() { h.SetAnnotations(nil) })
		look()
		look()
		Expect(e.host(ctx, "m").GetAnnotations()).NotTo(HaveKey(reboot), "only the cache says that it has not")
		Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(needs))
	})

	It("X20: should put an owner back that got lost, and release the host then", func(ctx SpecContext) {
		e := newEnvironment("m")
		e.ask(ctx, "m")
		e.settle(ctx)
		h := e.host(ctx, "m")
		e.edit(ctx, h, func() { h.SetAnnotations(map[string]string{reboot: ""}) })
		e.settle(ctx)
		Expect(host.OwnerOf(e.host(ctx, "m"))).To(HaveField("UID", BeEquivalentTo("machine-m")))
		e.cycle(ctx, "m")
		Expect(e.phase(ctx, "m")).To(Equal("Succeeded"))
		Expect(e.host(ctx, "m")).To(beReleased())
	})

	It("X18: should not write to a host that is being serviced, of whatever it learns that", func(ctx SpecContext) {
		e := newEnvironment("m")
		e.ask(ctx, "m")
		e.settle(ctx)
		h := e.host(ctx, "m")
		e.edit(ctx, h, func() {
			Expect(unstructured.SetNestedField(h.Object, "servicing", "status", "operationalStatus")).To(Succeed())
		})
		e.settle(ctx)
		Expect(e.c.Delete(ctx, e.machine(ctx, "m"))).To(Succeed())
		e.writes = nil
		for range 3 {
			_, err := e.round(ctx)
			Expect(err).NotTo(HaveOccurred())
			e.pass(time.Minute)
		}
		Expect(e.writes).NotTo(ContainElement("patch Host/m"))
		m := e.machine(ctx, "m")
		e.edit(ctx, m, func() { m.Finalizers = nil })
		e.calls = nil
		result, err := e.Sweeper.Reconcile(ctx, noDeployment)
		Expect(err).NotTo(HaveOccurred())
		Expect(result.RequeueAfter).To(Equal(time.Minute), "an orphan is looked at now and then")
		Expect(e.calls).NotTo(ContainElement("get Host/m"))
		h = e.host(ctx, "m")
		e.edit(ctx, h, func() {
			Expect(unstructured.SetNestedField(h.Object, "OK", "status", "operationalStatus")).To(Succeed())
		})
		e.settle(ctx)
		Expect(e.host(ctx, "m")).To(beReleased())
	})

	It("X21: should begin no cycle of its own while too many machines of the shoot fail, and begin it when it is over", func(ctx SpecContext) {
		e := newEnvironment("m", "", "x", "y", "z")
		e.Storm = facts.StormLimits{MaxFailing: 1, SettlingTime: 10 * time.Minute}
		d := &machinev1alpha1.MachineDeployment{}
		Expect(e.c.Get(ctx, request1.NamespacedName, d)).To(Succeed())
		e.edit(ctx, d, func() { d.Annotations[settings] = `{"automatic":true}` })
		e.hang(ctx, "m")
		e.hang(ctx, "x")
		e.pass(10 * time.Minute)
		m := e.machine(ctx, "m")
		since := e.clock.Now().Add(-10 * time.Minute).Format(time.RFC3339)
		e.edit(ctx, m, func() {
			builder.Preserved("Failed:Preserved", "auto", e.clock.Now().Add(72*time.Hour))(m)
			m.Annotations[v1alpha1.AnnotationFailedSince] = since
		})
		look := func() (again time.Duration) {
			GinkgoHelper()
			for range 5 { // it is preserved without that
				result, err := e.Reconciler.Reconcile(ctx, request1)
				Expect(err).NotTo(HaveOccurred())
				again = result.RequeueAfter
			}
			return again
		}
		Expect(look()).To(Equal(10 * time.Second))
		Expect(e.phase(ctx, "m")).To(BeEmpty())
		Expect(e.host(ctx, "m").GetAnnotations()).To(BeEmpty())

		By("Healing the other one")
		n := e.node(ctx, "x")
		n.Status.Conditions[0].Status, n.Status.Conditions[0].LastTransitionTime = corev1.ConditionTrue, metav1.NewTime(e.clock.Now())
		Expect(e.c.Status().Update(ctx, n)).To(Succeed())
		look()
		Expect(e.phase(ctx, "m")).To(BeEmpty())
		e.pass(10 * time.Minute)
		look()
		Expect(e.phase(ctx, "m")).To(Equal("PoweringOff"))
	})

	It("X8: should ask for one host at a time, also where a cache does not know of the first", func(ctx SpecContext) {
		e := newEnvironment("a", "b")
		e.ask(ctx, "a")
		e.ask(ctx, "b")
		e.settle(ctx)
		Expect(e.phase(ctx, "a")).To(Equal("PoweringOff"))
		Expect(e.phase(ctx, "b")).To(Equal("Waiting"))
		Expect(e.host(ctx, "b").GetAnnotations()).To(BeEmpty())
		Expect(e.calls).To(ContainElement("list *v1alpha1.MachineList"))
		e.cycle(ctx, "a")
		e.cycle(ctx, "b")
		Expect([]string{e.phase(ctx, "a"), e.phase(ctx, "b")}).To(HaveEach("Succeeded"))
	})

	It("X8: should begin nothing within a health timeout of an outage of the shoot, and look again when it is over", func(ctx SpecContext) {
		e := newEnvironment("m")
		e.away = true
		e.ask(ctx, "m")
		Expect(e.settle(ctx)).To(Equal(10 * time.Second))
		Expect(e.phase(ctx, "m")).To(Equal("Waiting"))
		e.away, e.back = false, e.clock.Now()
		Expect(e.settle(ctx)).To(Equal(10 * time.Minute))
		e.pass(10 * time.Minute)
		e.settle(ctx)
		Expect(e.phase(ctx, "m")).To(Equal("PoweringOff"))
	})

	It("P9: should wait for hosts that are not known, and tell why", func(ctx SpecContext) {
		e := newEnvironment("m")
		e.unknown = true
		e.ask(ctx, "m")
		e.settle(ctx)
		Expect(e.events).To(ConsistOf("Machine Normal PowerCycleWaiting: The host is currently not known.", "Node Normal PowerCycleWaiting: The host is currently not known."))
		e.unknown = false
		e.settle(ctx)
		Expect(e.phase(ctx, "m")).To(Equal("PoweringOff"))
	})

	It("X14: should leave a host alone that belongs to somebody else", func(ctx SpecContext) {
		e := newEnvironment("m", "other")
		m := e.machine(ctx, "m")
		e.edit(ctx, m, func() { m.Annotations["metal3.io/BareMetalHost"] = "hosts/other" })
		e.ask(ctx, "m")
		e.settle(ctx)
		Expect(e.host(ctx, "other").GetAnnotations()).To(BeEmpty())
		Expect(e.events).To(ContainElement(HavePrefix("Machine Normal PowerCycleWaiting: No host can be power-cycled: ")))
	})

	It("X2: should release the host of a machine that is being deleted, and then let that go", func(ctx SpecContext) {
		e := newEnvironment("m")
		e.ask(ctx, "m")
		e.settle(ctx)
		Expect(e.c.Delete(ctx, e.machine(ctx, "m"))).To(Succeed())
		e.settle(ctx)
		Expect(e.host(ctx, "m")).To(beReleased())
		Expect(e.c.Get(ctx, client.ObjectKey{Namespace: builder.Namespace, Name: "m"}, &machinev1alpha1.Machine{})).NotTo(Succeed())
	})

	Describe("X2 X10: a cache of hosts that does not know yet that a cycle has begun", func() {
		var e *environment
		BeforeEach(func(ctx SpecContext) {
			e = newEnvironment("m")
			e.hang(ctx, "m")
			driver := *e.Reconciler.Driver()
			driver.Cached = lagging{driver.Cached.(client.Client), e.host(ctx, "m")}
			e.Reconciler.Driver = func() *host.Driver { return &driver }
			e.Sweeper.Driver = e.Reconciler.Driver
			e.ask(ctx, "m")
			Eventually(func() map[string]string {
				_, err := e.round(ctx)
				Expect(err).NotTo(HaveOccurred())
				return e.host(ctx, "m").GetAnnotations()
			}).Should(HaveKey(reboot))
		})

		It("should not end the cycle when the request is withdrawn", func(ctx SpecContext) {
			m := e.machine(ctx, "m")
			e.edit(ctx, m, func() { delete(m.Annotations, needs) })
			e.settle(ctx)
			Expect(e.phase(ctx, "m")).To(Equal("PoweringOff"))
			Expect(e.machine(ctx, "m")).To(HaveField("Finalizers", ConsistOf(finalizer)))
			Expect(e.machine(ctx, "m").Annotations).To(HaveKey(kept))
		})

		DescribeTable("should release the host", func(ctx SpecContext, end func(context.Context)) {
			end(ctx)
			e.settle(ctx)
			Expect(e.host(ctx, "m")).To(beReleased())
		},
			Entry("when a person ends what keeps the machine", func(ctx context.Context) {
				m := e.machine(ctx, "m")
				e.edit(ctx, m, func() { m.Annotations["node.machine.sapcloud.io/preserve"] = "false" })
			}),
			Entry("when power cycles are switched off", func(ctx context.Context) {
				deployment := &machinev1alpha1.MachineDeployment{}
				Expect(e.c.Get(ctx, request1.NamespacedName, deployment)).To(Succeed())
				e.edit(ctx, deployment, func() { delete(deployment.Annotations, settings) })
			}),
			Entry("when the machine is deleted", func(ctx context.Context) { Expect(e.c.Delete(ctx, e.machine(ctx, "m"))).To(Succeed()) }),
		)
	})

	It("X5: should release a host while another MachineDeployment is being confirmed", func(ctx SpecContext) {
		e := newEnvironment("a", "b", "c", "d")
		e.ask(ctx, "a")
		e.settle(ctx)
		Expect(e.host(ctx, "a").GetAnnotations()).To(HaveKey(reboot))
		a := e.machine(ctx, "a")
		e.edit(ctx, a, func() { a.Annotations["node.machine.sapcloud.io/preserve"] = "false" })
		Expect(e.Counting.Acquire(ctx, 1)).To(Succeed(), "for another")
		e.calls = nil
		e.settle(ctx)
		Expect(e.host(ctx, "a")).To(beReleased())
		Expect(e.calls).NotTo(ContainElement("list *v1.NodeList"))
	})

	It("X2 P12: should ask for the contents of all nodes at the same time, and once, before it releases another host", func(ctx SpecContext) {
		e := newEnvironment("a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l")
		deployment := &machinev1alpha1.MachineDeployment{}
		Expect(e.c.Get(ctx, request1.NamespacedName, deployment)).To(Succeed())
		e.edit(ctx, deployment, func() { deployment.Annotations[settings] = `{"maxConcurrent":3}` })
		e.contents = remediation.NodeContents{Pods: 1}
		cycled := []string{"a", "b", "c"}
		for _, name := range cycled {
			e.ask(ctx, name)
		}
		e.settle(ctx)
		for _, name := range cycled {
			e.power(ctx, name)
		}
		e.settle(ctx)
		Expect(e.phase(ctx, "c")).To(Equal("MakingNodeSafe"))

		m := e.machine(ctx, "c")
		e.edit(ctx, m, func() { m.Annotations["node.machine.sapcloud.io/preserve"] = "false" })
		e.pass(time.Minute)
		var (
			both  sync.WaitGroup
			asked atomic.Int32
		)
		both.Add(2)
		e.ReadNodeContents = func(context.Context, string) (remediation.NodeContents, error) {
			switch asked.Add(1) {
			case 1:
				e.pass(10 * time.Second) // the answer takes longer than it counts
				both.Done()
			case 2:
				both.Done()
			}
			both.Wait()
			return remediation.NodeContents{}, errors.New("no answer")
		}
		_, err := e.Reconciler.Reconcile(ctx, request1)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.host(ctx, "c")).To(beReleased())
		Expect(asked.Load()).To(BeEquivalentTo(2))
	})

	It("X2: should let a machine go that belongs to no MachineDeployment any more", func(ctx SpecContext) {
		e := newEnvironment("m")
		e.ask(ctx, "m")
		e.settle(ctx)
		for _, object := range []client.Object{&machinev1alpha1.MachineSet{}, &machinev1alpha1.MachineDeployment{}} {
			Expect(e.c.DeleteAllOf(ctx, object, client.InNamespace(builder.Namespace))).To(Succeed())
		}
		Expect(e.c.Delete(ctx, e.machine(ctx, "m"))).To(Succeed())
		e.settle(ctx)
		Expect(e.machine(ctx, "m").Finalizers).NotTo(BeEmpty())
		for range 3 {
			_, err := e.Reconciler.Reconcile(ctx, noDeployment)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(e.host(ctx, "m")).To(beReleased())
		Expect(e.c.Get(ctx, client.ObjectKey{Namespace: builder.Namespace, Name: "m"}, &machinev1alpha1.Machine{})).NotTo(Succeed())
	})

	It("X12: should tell at the same time of hosts whose machine is gone, and of those whose machine belongs to no MachineDeployment", func(ctx SpecContext) {
		const deadline = "power_cycle_deadline_timestamp_seconds"
		e := newEnvironment("gone", "left")
		deployment := &machinev1alpha1.MachineDeployment{}
		Expect(e.c.Get(ctx, request1.NamespacedName, deployment)).To(Succeed())
		e.edit(ctx, deployment, func() { deployment.Annotations[settings] = `{"maxConcurrent":2}` })
		for i := range 8 { // so that two may be off
			Expect(e.c.Create(ctx, builder.Node(fmt.Sprint("n", i)))).To(Succeed())
			Expect(e.c.Create(ctx, builder.Machine(fmt.Sprint("n", i)))).To(Succeed())
		}
		e.ask(ctx, "gone")
		e.ask(ctx, "left")
		e.settle(ctx)
		Expect(metric(deadline)).To(HaveLen(2))
		e.fail = func(call string, _ bool) error {
			if strings.HasPrefix(call, "patch Host/") {
				return errors.New("away")
			}
			return nil
		}
		m := e.machine(ctx, "gone")
		e.edit(ctx, m, func() { m.Finalizers = nil })
		Expect(e.c.Delete(ctx, m)).To(Succeed())
		for _, object := range []client.Object{&machinev1alpha1.MachineSet{}, deployment} {
			Expect(e.c.DeleteAllOf(ctx, object, client.InNamespace(builder.Namespace))).To(Succeed())
		}
		both := SatisfyAll(HaveLen(2), HaveKey("hosts/gone gone "), HaveKey("hosts/left left -"))
		_, err := e.round(ctx)
		Expect(err).To(MatchError(ContainSubstring("away")))
		for range 2 {
			_, err := e.Reconciler.Reconcile(ctx, noDeployment)
			Expect(err).To(MatchError(ContainSubstring("away")))
			Expect(metric(deadline)).To(both)
			_, err = e.Sweeper.Reconcile(ctx, noDeployment)
			Expect(err).To(MatchError(ContainSubstring("away")))
			Expect(metric(deadline)).To(both)
		}
		e.fail = func(string, bool) error { return nil }
		for range 2 {
			_, err = e.Sweeper.Reconcile(ctx, noDeployment)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(metric(deadline)).To(SatisfyAll(HaveLen(1), HaveKey("hosts/left left -")))
		for range 3 {
			_, err = e.Reconciler.Reconcile(ctx, noDeployment)
			Expect(err).NotTo(HaveOccurred())
		}
		e.power(ctx, "left")
		_, err = e.Reconciler.Reconcile(ctx, noDeployment)
		Expect(err).NotTo(HaveOccurred())
		Expect(metric(deadline)).To(BeEmpty())
	})

	It("X2: should sweep hosts of machines that are gone, or have another one's name, and no others", func(ctx SpecContext) {
		e := newEnvironment("m", "other")
		e.ask(ctx, "m")
		e.settle(ctx)
		e.restart()
		m := e.machine(ctx, "m")
		e.edit(ctx, m, func() { m.Finalizers = nil })
		Expect(e.c.Delete(ctx, m)).To(Succeed())
		other := e.host(ctx, "other")
		foreign := map[string]string{reboot: "", owner: `{"seed":"another","namespace":"shoot--test--two","machine":"other","uid":"x","time":"2026-03-01T12:00:00Z","on":"a/1"}`}
		e.edit(ctx, other, func() { other.SetAnnotations(foreign) })
		e.settle(ctx)
		Expect(e.host(ctx, "m")).To(beReleased())
		Expect(e.host(ctx, "other").GetAnnotations()).To(Equal(foreign))
	})

	It("X2: should sweep what is left of a request that somebody else has taken back", func(ctx SpecContext) {
		e := newEnvironment("m")
		e.ask(ctx, "m")
		e.settle(ctx)
		h, m := e.host(ctx, "m"), e.machine(ctx, "m")
		e.edit(ctx, h, func() { h.SetAnnotations(map[string]string{owner: h.GetAnnotations()[owner]}) })
		e.edit(ctx, m, func() { delete(m.Annotations, needs) })
		e.settle(ctx)
		Expect(e.phase(ctx, "m")).To(Equal("Cancelled"))
		Expect(e.host(ctx, "m")).To(beReleased())
	})

	It("X15: should end all that is ours when there are no settings any more, and wait for a shoot that denies it for 5 minutes only", func(ctx SpecContext) {
		e := newEnvironment("m")
		e.ask(ctx, "m")
		e.settle(ctx)
		deployment := &machinev1alpha1.MachineDeployment{}
		Expect(e.c.Get(ctx, request1.NamespacedName, deployment)).To(Succeed())
		e.edit(ctx, deployment, func() { delete(deployment.Annotations, settings) })
		e.fail = func(call string, _ bool) error {
			if strings.HasPrefix(call, "patch Host/") {
				return errors.New("away")
			}
			return nil
		}
		_, err := e.round(ctx)
		Expect(err).To(MatchError(ContainSubstring("away")))
		Expect(metric("power_cycle_deadline_timestamp_seconds")).To(HaveKeyWithValue("hosts/m m pool", float64(e.clock.Now().Unix())), "X12: it should be released by now")
		e.fail = func(call string, _ bool) error {
			if strings.HasPrefix(call, "patch Node/") {
				return errors.New("denied")
			}
			return nil
		}
		look := func() {
			_, err := e.round(ctx)
			Expect(err).NotTo(HaveOccurred(), "P14: what the shoot denies is no error of ours")
		}
		look()
		Expect(e.host(ctx, "m")).To(beReleased())
		e.pass(5*time.Minute - time.Second)
		look()
		Expect(e.machine(ctx, "m").Finalizers).To(ContainElement(finalizer))
		e.pass(time.Minute)
		look()
		look()
		Expect(e.machine(ctx, "m").Finalizers).To(BeEmpty())
		Expect(e.machine(ctx, "m").Annotations).To(HaveLen(1), "its host")
	})

	It("P14: should go on where the shoot denies the condition of the Node only", func(ctx SpecContext) {
		e := newEnvironment("m")
		e.ask(ctx, "m")
		e.fail = func(call string, _ bool) error {
			if strings.HasPrefix(call, "patch Node/") && strings.HasSuffix(call, "/status") {
				return errors.New("denied")
			}
			return nil
		}
		e.settle(ctx)
		e.power(ctx, "m")
		for range 3 {
			e.settle(ctx)
			e.pass(time.Minute)
		}
		Expect(e.phase(ctx, "m")).To(Equal("PoweringOn"))
		Expect(e.host(ctx, "m")).To(beReleased())
	})

	It("P12: should try again later where it panics on one or on its node", func(ctx SpecContext) {
		for _, bad := range []string{"patch Machine/m", "patch Node/m"} {
			e := newEnvironment("m")
			e.ask(ctx, "m")
			panics := true
			e.fail = func(call string, _ bool) error {
				if panics && strings.HasPrefix(call, bad) {
					panic("what is this")
				}
				return nil
			}
			for range 10 {
				_, err := e.round(ctx)
				if bad == "patch Machine/m" {
					Expect(err).To(MatchError(HaveSuffix("failed to write Machine shoot--test--one/m: panic: what is this")))
				} else {
					Expect(err).NotTo(HaveOccurred())
				}
			}
			if bad == "patch Node/m" {
				Expect(e.host(ctx, "m").GetAnnotations()).To(HaveKey(reboot), "nothing else waits for it")
			}
			panics = false
			e.pass(time.Minute)
			e.settle(ctx)
			Expect(e.phase(ctx, "m")).To(Equal("PoweringOff"))
		}
	})

	It("P14: should not write to a node again and again that cannot be written to", func(ctx SpecContext) {
		e := newEnvironment("m")
		e.ask(ctx, "m")
		e.fail = func(call string, _ bool) error {
			if strings.HasPrefix(call, "patch Node/") {
				return errors.New("denied")
			}
			return nil
		}
		for range 10 {
			_, err := e.round(ctx)
			Expect(err).NotTo(HaveOccurred())
		}
		tried := 0
		for _, write := range e.writes {
			if strings.HasPrefix(write, "patch Node/m") {
				tried++
			}
		}
		Expect(tried).To(Equal(1))
		Expect(e.host(ctx, "m").GetAnnotations()).To(HaveKey(reboot), "nothing else waits for it")
	})

	It("X11: should take a request from a node where that is allowed, and refuse it elsewhere", func(ctx SpecContext) {
		for allowed, wanted := range map[bool]string{true: "PoweringOff", false: ""} {
			e := newEnvironment("m")
			e.AllowNodes = allowed
			n := e.node(ctx, "m")
			e.edit(ctx, n, func() { n.Annotations = map[string]string{request: "now"} })
			e.settle(ctx)
			Expect(e.phase(ctx, "m")).To(Equal(wanted))
			Expect(e.node(ctx, "m").Annotations).NotTo(HaveKey(request))
		}
	})

	It("X12: should tell of a host that could not be released in time", func(ctx SpecContext) {
		e := newEnvironment("m")
		e.ask(ctx, "m")
		e.settle(ctx)
		e.power(ctx, "m")
		e.contents = remediation.NodeContents{VolumeAttachments: 1}
		e.settle(ctx)
		e.pass(10 * time.Minute)
		e.fail = func(call string, isWrite bool) error {
			if isWrite && strings.HasPrefix(call, "patch Host/") {
				return errors.New("away")
			}
			return nil
		}
		for range 3 {
			_, err := e.round(ctx)
			Expect(err).To(MatchError(ContainSubstring("away")))
		}
		Expect(e.phase(ctx, "m")).To(Equal("Failed"))
		Expect(e.events).To(ContainElement("Machine Warning PowerCycleFailed: The node was not made safe within 10m0s: 0 pods and 1 VolumeAttachment were left."))
		Expect(metric("power_cycle_deadline_timestamp_seconds")).To(HaveKey("hosts/m m pool"))
		e.fail = func(string, bool) error { return nil }
		e.settle(ctx)
		Expect(e.host(ctx, "m")).To(beReleased())
		e.power(ctx, "m")
		e.settle(ctx)
		Expect(metric("power_cycle_deadline_timestamp_seconds")).To(BeEmpty())
	})

	It("X12: should tell of a host that has been released, and does not say that it is on", func(ctx SpecContext) {
		e := newEnvironment("m")
		e.ask(ctx, "m")
		e.settle(ctx)
		e.power(ctx, "m")
		e.settle(ctx)
		Expect(e.phase(ctx, "m")).To(Equal("PoweringOn"))
		h := e.host(ctx, "m")
		e.edit(ctx, h, func() { unstructured.RemoveNestedField(h.Object, "status", "poweredOn") })
		deadline := e.clock.Now().Add(10 * time.Minute)
		e.settle(ctx)
		Expect(metric("power_cycle_deadline_timestamp_seconds")).To(HaveKeyWithValue("hosts/m m pool", float64(deadline.Unix())))
	})

	It("X3: should not release a host because a cache does not know yet that its cycle has begun", func(ctx SpecContext) {
		e := newEnvironment("m")
		old := e.machine(ctx, "m")
		e.ask(ctx, "m")
		e.settle(ctx)
		e.Reconciler.Source = lagging{e.Reconciler.Source, old}
		_, err := e.round(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.host(ctx, "m").GetAnnotations()).To(HaveKey(reboot))
	})

	It("X3: should not sweep a host because a cache does not know yet that its cycle has begun", func(ctx SpecContext) {
		e := newEnvironment("m")
		old := e.machine(ctx, "m")
		e.ask(ctx, "m")
		e.settle(ctx)
		e.Sweeper.Source = lagging{e.Reconciler.Source, old}
		_, err := e.Sweeper.Reconcile(ctx, noDeployment)
		Expect(err).NotTo(HaveOccurred())
		Expect(e.host(ctx, "m").GetAnnotations()).To(HaveKey(reboot))
	})

	It("X2: should release what was off when the control plane was restored from another seed", func(ctx SpecContext) {
		e := newEnvironment("m")
		h := e.host(ctx, "m")
		e.edit(ctx, h, func() {
			h.SetAnnotations(map[string]string{reboot: "", owner: `{"seed":"another","namespace":"shoot--test--one","machine":"m","uid":"x","time":"2026-03-01T12:00:00Z","on":"a/1"}`})
		})
		e.settle(ctx)
		Expect(e.host(ctx, "m")).To(beReleased())
	})

	It("X2: should try again without an error if somebody else has written to a host that is swept", func(ctx SpecContext) {
		e := newEnvironment("m")
		e.ask(ctx, "m")
		e.settle(ctx)
		m := e.machine(ctx, "m")
		e.edit(ctx, m, func() { m.Finalizers = nil })
		Expect(e.c.Delete(ctx, m)).To(Succeed())
		e.fail = func(call string, isWrite bool) error {
			if isWrite {
				return apierrors.NewConflict(schema.GroupResource{Resource: "baremetalhosts"}, "m", errors.New(call))
			}
			return nil
		}
		Expect(e.Sweeper.Reconcile(ctx, noDeployment)).To(Equal(reconcile.Result{RequeueAfter: time.Second}))
		Expect(e.host(ctx, "m").GetAnnotations()).To(HaveKey(reboot))
	})

	Describe("X8: nodes of the whole shoot", func() {
		It("should begin none that makes too many of them go away, in whatever MachineDeployment", func(ctx SpecContext) {
			e := newEnvironment("a", "", "b", "c")
			e.ask(ctx, "a")
			e.settle(ctx)
			Expect(e.phase(ctx, "a")).To(Equal("PoweringOff"))
			e.ask(ctx, "b")
			for range 3 {
				_, err := e.Reconciler.Reconcile(ctx, request2)
				Expect(err).NotTo(HaveOccurred())
			}
			Expect(e.phase(ctx, "b")).To(Equal("Waiting"))
			Expect(e.events).To(ContainElement("Machine Normal PowerCycleWaiting: Too many nodes of the shoot would not be ready."))
			Expect(Waiting(e.Reconciler, ctx)).To(ConsistOf(request2))
			e.cycle(ctx, "a")
			Expect(e.phase(ctx, "a")).To(Equal("Succeeded"))
			_, err := e.Reconciler.Reconcile(ctx, request2)
			Expect(err).NotTo(HaveOccurred())
			Expect(e.phase(ctx, "b")).To(Equal("PoweringOff"))
		})

		DescribeTable("should count those that dependency-watchdog counts", func(ctx SpecContext, phase string, machines ...*machinev1alpha1.Machine) {
			e := newEnvironment("m")
			other := builder.Node("other")
			other.Status.Conditions[0].Status = corev1.ConditionUnknown
			Expect(e.c.Create(ctx, other)).To(Succeed())
			Expect(e.c.Status().Update(ctx, other)).To(Succeed())
			for _, machine := range machines {
				Expect(e.c.Create(ctx, machine.DeepCopy())).To(Succeed())
			}
			e.ask(ctx, "m")
			e.settle(ctx)
			Expect(e.phase(ctx, "m")).To(Equal(phase))
		},
			Entry("not that of no machine", "PoweringOff"),
			Entry("that of a machine", "Waiting", builder.Machine("other")),
			Entry("not that of a machine that has failed", "PoweringOff", builder.Machine("other", builder.Phase("Failed", builder.Start))),
			Entry("that of a machine that has the place of one that goes", "Waiting",
				builder.Machine("another", builder.Phase("Terminating", builder.Start), func(m *machinev1alpha1.Machine) { m.Labels["node"] = "other" }), builder.Machine("other")),
		)

		It("should decide on one MachineDeployment at a time", func(ctx SpecContext) {
			e := newEnvironment("a", "", "b", "c")
			e.ask(ctx, "a")
			e.ask(ctx, "b")
			for _, request := range []reconcile.Request{request1, request2} { // both wait to begin
				e.away = true
				_, err := e.Reconciler.Reconcile(ctx, request)
				Expect(err).NotTo(HaveOccurred())
				e.away = false
			}
			var (
				lists       atomic.Int32
				other       sync.WaitGroup
				reads, asks = make(chan struct{}, 1000), make(chan struct{}, 1000)
			)
			e.meanwhile = func(call string) {
				if asks <- struct{}{}; call != "list *v1.NodeList" || lists.Add(1) > 1 {
					return
				}
				for len(asks) > 0 {
					<-asks
				}
				e.cached = func() { reads <- struct{}{} } // nobody but the other reads from now on
				other.Go(func() {
					defer GinkgoRecover()
					_, err := e.Reconciler.Reconcile(ctx, request2)
					Expect(err).NotTo(HaveOccurred())
				})
				Eventually(reads).WithTimeout(10*time.Second).Should(Receive(), "the other looks")
				Consistently(asks, 100*time.Millisecond, time.Millisecond).ShouldNot(Receive(), "and waits before it asks an API server")
			}
			_, err := e.Reconciler.Reconcile(ctx, request1)
			Expect(err).NotTo(HaveOccurred())
			other.Wait()
			Expect([]string{e.phase(ctx, "a"), e.phase(ctx, "b")}).To(Equal([]string{"PoweringOff", "Waiting"}))
		})

		It("should stop waiting for another MachineDeployment when it is to stop", func(ctx SpecContext) {
			e := newEnvironment("m")
			e.ask(ctx, "m")
			Expect(e.Counting.Acquire(ctx, 1)).To(Succeed(), "for another")
			stopped, stop := context.WithCancel(ctx)
			stop()
			_, err := e.Reconciler.Reconcile(stopped, request1)
			Expect(err).To(MatchError(context.Canceled))
			Expect(e.phase(ctx, "m")).To(BeEmpty())
			e.Counting.Release(1)
			e.settle(ctx)
			Expect(e.phase(ctx, "m")).To(Equal("PoweringOff"))
		})

		It("P14: should wait without an error, and look again, where the shoot does not tell", func(ctx SpecContext) {
			e := newEnvironment("m")
			e.ask(ctx, "m")
			e.fail = func(call string, _ bool) error {
				if call == "list *v1.NodeList" {
					return errors.New("denied")
				}
				return nil
			}
			Expect(e.settle(ctx)).To(Equal(10 * time.Second))
			Expect(e.phase(ctx, "m")).NotTo(Equal("PoweringOff"))
			e.fail = func(string, bool) error { return nil }
			e.settle(ctx)
			Expect(e.phase(ctx, "m")).To(Equal("PoweringOff"))
		})
	})

	It("P14: should release a host without a list of the shoot's nodes", func(ctx SpecContext) {
		e := newEnvironment("m")
		e.ask(ctx, "m")
		e.settle(ctx)
		Expect(e.calls).To(ContainElement("list *v1.NodeList"), "X8: before it is asked to be off")
		e.contents = remediation.NodeContents{Pods: 1}
		e.power(ctx, "m")
		e.settle(ctx)
		Expect(e.phase(ctx, "m")).To(Equal("MakingNodeSafe"))
		e.calls = nil
		m := e.machine(ctx, "m")
		Expect(e.c.Delete(ctx, m)).To(Succeed())
		e.settle(ctx)
		Expect(e.host(ctx, "m")).To(beReleased())
		Expect(e.calls).NotTo(ContainElement("list *v1.NodeList"))
	})

	It("X8: should see live that a maintenance of the node has begun", func(ctx SpecContext) {
		e := newEnvironment("m")
		old := e.node(ctx, "m")
		n := e.node(ctx, "m")
		e.edit(ctx, n, func() { n.Annotations = map[string]string{prefix + "maintenance": "{}"} })
		e.ask(ctx, "m")
		all := e.Reconciler.Nodes.(nodes)
		e.Reconciler.Nodes = nodes{lagging{all.Client, old}, all.direct, e}
		for range 3 {
			_, err := e.round(ctx)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(e.phase(ctx, "m")).To(Equal("Waiting"))
		Expect(e.events).To(ContainElement("Machine Normal PowerCycleWaiting: A maintenance of the node is in progress."))
	})

	It("X3: should confirm what is decided on another machine because of what was confirmed", func(ctx SpecContext) {
		e := newEnvironment("a", "b")
		e.ask(ctx, "a")
		old := e.machine(ctx, "a")
		e.ask(ctx, "b")
		a := e.machine(ctx, "a")
		e.edit(ctx, a, func() { delete(a.Annotations, needs) })
		e.Reconciler.Source = lagging{e.Reconciler.Source, old}
		_, err := e.Reconciler.Reconcile(ctx, request1)
		Expect(err).NotTo(HaveOccurred())
		Expect([]string{e.phase(ctx, "a"), e.phase(ctx, "b")}).To(Equal([]string{"", "PoweringOff"}))
		Expect(e.calls).To(ContainElements("get Node/a", "get Host/a", "get Node/b", "get Host/b"))
	})

	It("X10: should not switch a host off before its machine is kept", func(ctx SpecContext) {
		e := newEnvironment("m")
		e.ask(ctx, "m")
		for range 3 {
			_, err := e.Reconciler.Reconcile(ctx, request1)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(e.phase(ctx, "m")).To(Equal("PoweringOff"))
		Expect(e.host(ctx, "m")).To(beReleased())
		e.keep(ctx)
		e.settle(ctx)
		Expect(e.host(ctx, "m").GetAnnotations()).To(HaveKey(reboot))
	})

	It("R6 X10: should end a cycle when operators forbid to keep the machines of the MachineDeployment", func(ctx SpecContext) {
		e := newEnvironment("m")
		e.ask(ctx, "m")
		e.settle(ctx)
		deployment := &machinev1alpha1.MachineDeployment{}
		Expect(e.c.Get(ctx, request1.NamespacedName, deployment)).To(Succeed())
		e.edit(ctx, deployment, func() { deployment.Annotations[forbidden] = "true" })
		e.settle(ctx)
		Expect(e.phase(ctx, "m")).To(Equal("Cancelled"))
		Expect(e.host(ctx, "m")).To(beReleased())
	})

	It("should drop what it knows of a MachineDeployment that is gone", func(ctx SpecContext) {
		e := newEnvironment("m")
		e.ask(ctx, "m")
		e.settle(ctx)
		deployment := &machinev1alpha1.MachineDeployment{}
		deployment.Namespace, deployment.Name = request1.Namespace, request1.Name
		Expect(e.c.Delete(ctx, deployment)).To(Succeed())
		e.settle(ctx)
		Expect(metric("power_cycle_deadline_timestamp_seconds")).NotTo(HaveKey(ContainSubstring("pool")))
	})
})
