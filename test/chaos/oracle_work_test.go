// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strconv"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts/baremetalhost"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

var _ = Describe("oracle of machines that are worked on", func() {
	const pool = "pool"
	var (
		o   *oracle
		now time.Time
	)

	after := func(d time.Duration) { now = now.Add(d) }
	machine := func(name string, annotations ...string) *machinev1alpha1.Machine {
		m := &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
			Name: name, Annotations: map[string]string{}, Labels: map[string]string{deploymentLabel: pool, machinev1alpha1.NodeLabelKey: "node-of-" + name},
		}}
		m.Status.CurrentStatus.Phase = machinev1alpha1.MachineRunning
		for i := 0; i < len(annotations); i += 2 {
			m.Annotations[annotations[i]] = annotations[i+1]
		}
		return m
	}
	kept := func(name, cause, phase string, others ...string) *machinev1alpha1.Machine {
		return machine(name, append(others, v1alpha1.AnnotationCause, cause, v1alpha1.AnnotationPhase, phase,
			v1alpha1.AnnotationExpiryTime, now.Add(time.Hour).UTC().Format(time.RFC3339))...)
	}
	terminating := func(m *machinev1alpha1.Machine) *machinev1alpha1.Machine {
		m.DeletionTimestamp = &metav1.Time{Time: now}
		return m
	}
	deployment := func(replicas, updated int32) {
		d := &machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: pool, Annotations: map[string]string{v1alpha1.AnnotationAutoPreserveFailedMax: "1"}}}
		d.Spec.Replicas, d.Status.Replicas, d.Status.UpdatedReplicas = replicas, replicas, updated
		o.sawDeployment(d, now)
	}
	node := func(machine string, edit ...func(*corev1.Node)) {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-" + machine, Annotations: map[string]string{}}}
		for _, edit := range edit {
			edit(n)
		}
		o.sawNode(n, false, now)
	}
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	outOfService := func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeOutOfService}} }
	maintain := func(name, machine, phase string, edit ...func(*maintenancev1alpha1.NodeMaintenance)) *maintenancev1alpha1.NodeMaintenance {
		nm := &maintenancev1alpha1.NodeMaintenance{
			ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{maintenancev1alpha1.Finalizer}},
			Spec:       maintenancev1alpha1.NodeMaintenanceSpec{NodeName: "node-of-" + machine},
			Status:     maintenancev1alpha1.NodeMaintenanceStatus{Conditions: []metav1.Condition{{Type: maintenancev1alpha1.ConditionReady, Reason: phase}}},
		}
		for _, edit := range edit {
			edit(nm)
		}
		o.sawMaintenance(nm, false, now)
		return nm
	}
	deleted := func(nm *maintenancev1alpha1.NodeMaintenance) { nm.DeletionTimestamp = &metav1.Time{Time: now} }
	host := func(name string, on bool, annotations ...string) *unstructured.Unstructured {
		h := baremetalhost.New(client.ObjectKey{Name: name})
		Expect(unstructured.SetNestedField(h.Object, on, "status", "poweredOn")).To(Succeed())
		keys := map[string]string{}
		for _, key := range annotations {
			keys[key] = "{}"
		}
		h.SetAnnotations(keys)
		o.sawHost(h, now)
		return h
	}
	violations := func() []string {
		o.tick(now.Add(lag + time.Millisecond))
		texts := []string{}
		for _, v := range o.violations {
			texts = append(texts, v.machine+" "+v.text)
		}
		return texts
	}

	BeforeEach(func() {
		o = newOracle(func(text string) { GinkgoWriter.Println(text) })
		now = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
		deployment(3, 3)
		after(10 * time.Minute)
	})

	It("should go by what shoot.yaml says", func() {
		shoot, err := seed.DecodeShoot(shootManifest)
		Expect(err).NotTo(HaveOccurred())
		config := &v1alpha1.MachinePreservationConfig{}
		Expect(json.Unmarshal(shoot.Spec.Extensions[0].ProviderConfig.Raw, config)).To(Succeed())
		Expect(config.NodeMaintenance.MaxParallelOperations).To(HaveValue(Equal(intstr.FromInt(maxParallel))))
		Expect(config.Workers).NotTo(BeEmpty())
		for _, worker := range config.Workers {
			Expect(worker.PowerCycle.PowerOffTimeout.Duration).To(Equal(powerOff))
		}
	})

	Describe("M12: the end of a machine whose node is under maintenance", func() {
		BeforeEach(func() {
			o.saw(machine("m"), false, now)
			node("m")
			maintain("one", "m", maintenancev1alpha1.PhaseReady)
			after(2 * time.Minute)
		})

		It("should be blamed, with the history", func() {
			o.saw(terminating(machine("m")), false, now)
			Expect(violations()).To(ConsistOf(And(ContainSubstring("m was terminated while it was"), ContainSubstring("one has had its node"), ContainSubstring("M12"))))
			Expect(o.machines["m"].lines).To(ContainElement(ContainSubstring("saw: NodeMaintenance one: Ready")))
		})

		It("M15: should be blamed although the maintenance ends because of that", func() {
			o.saw(kept("m", "maintenance", rules.FailedPreserved), false, now)
			after(2 * time.Minute)
			o.saw(terminating(kept("m", "maintenance", rules.FailedPreserved)), false, now)
			maintain("one", "m", maintenancev1alpha1.PhasePending)
			Expect(violations()).To(ConsistOf(ContainSubstring("M12")))
			Expect(o.machines["m"].lines).To(ContainElement(ContainSubstring("was terminated without a reason")))
		})

		It("should be blamed if its requestor has failed, or its object waits for another requestor", func() {
			maintain("one", "m", maintenancev1alpha1.PhaseRequestorFailed)
			o.saw(terminating(machine("m")), false, now)
			Expect(violations()).To(ConsistOf(ContainSubstring("M12")))
		})

		DescribeTable("should not be blamed with a reason", func(reason func()) {
			reason()
			o.saw(terminating(machine("m")), false, now)
			Expect(violations()).To(BeEmpty())
		},
			Entry("a maintenance that has just begun", func() {
				maintain("one", "m", maintenancev1alpha1.PhasePending)
				maintain("one", "m", maintenancev1alpha1.PhaseScheduled)
				after(settling)
			}),
			Entry("a maintenance that waits", func() { maintain("one", "m", maintenancev1alpha1.PhasePending) }),
			Entry("a maintenance that is over", func() { maintain("one", "m", maintenancev1alpha1.PhaseReady, deleted) }),
			Entry("false on the Node", func() {
				node("m", func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationPreserve] = "false" })
				after(10 * time.Minute)
			}),
			Entry("false on the Machine", func() { o.saw(machine("m", v1alpha1.AnnotationPreserve, "false"), false, now); after(10 * time.Minute) }),
			Entry("an expiry that an operator has edited", func() { o.did("m", rules.ExpiryEdited, "expiry", now); after(10 * time.Minute) }),
			Entry("a sidecar that is not there, and it had not failed", func() { o.killedSidecar(now); after(takeover) }),
		)

		It("should not be blamed if the end of the maintenance is seen a moment later", func() {
			o.saw(terminating(machine("m")), false, now)
			after(time.Second)
			maintain("one", "m", maintenancev1alpha1.PhaseReady, deleted)
			after(time.Minute)
			Expect(violations()).To(BeEmpty())
		})
	})

	Describe("M12, M13, X10: the end of what it is kept for", func() {
		It("should not be blamed when the maintenance is over, or the power cycle", func() {
			o.saw(kept("m", "maintenance", "Running:Preserved"), false, now)
			o.saw(kept("n", "remediation", rules.FailedPreserved, v1alpha1.AnnotationPowerCyclePhase, v1alpha1.PowerCycleStarting), false, now)
			nm := maintain("one", "m", maintenancev1alpha1.PhaseReady)
			after(time.Minute)
			maintain("one", "m", maintenancev1alpha1.PhaseReady, deleted)
			o.sawMaintenance(nm, true, now)
			o.saw(kept("n", "remediation", rules.FailedPreserved, v1alpha1.AnnotationPowerCyclePhase, v1alpha1.PowerCycleSucceeded), false, now)
			after(time.Second)
			o.saw(machine("m"), false, now)
			o.saw(machine("n", v1alpha1.AnnotationPowerCyclePhase, v1alpha1.PowerCycleSucceeded), false, now)
			Expect(violations()).To(BeEmpty())
		})

		It("should be blamed while they go on", func() {
			o.saw(kept("m", "maintenance", "Running:Preserved"), false, now)
			maintain("one", "m", maintenancev1alpha1.PhaseReady)
			after(5 * time.Minute)
			o.saw(kept("n", "remediation", rules.FailedPreserved, v1alpha1.AnnotationPowerCyclePhase, v1alpha1.PowerCycleMakingNodeSafe, v1alpha1.AnnotationNeedsRemediation, ""), false, now)
			o.saw(kept("n", "remediation", rules.FailedPreserved, v1alpha1.AnnotationPowerCyclePhase, v1alpha1.PowerCycleStarting), false, now)
			after(time.Second)
			o.saw(machine("m"), false, now)
			o.saw(machine("n", v1alpha1.AnnotationPowerCyclePhase, v1alpha1.PowerCycleStarting), false, now)
			Expect(violations()).To(ConsistOf(ContainSubstring("m was let go without a reason"), ContainSubstring("n was let go without a reason")))
		})
	})

	Describe("M10: the limit of maintenances", func() {
		BeforeEach(func() {
			for i := range maxParallel {
				name := strconv.Itoa(i)
				o.saw(machine(name), false, now)
				node(name)
				maintain("nm-"+name, name, maintenancev1alpha1.PhaseReady)
			}
			node("more")
		})

		It("should be blamed on all nodes that are under maintenance together", func() {
			maintain("more", "more", maintenancev1alpha1.PhaseScheduled)
			Expect(violations()).To(And(HaveLen(maxParallel+1), ContainElements(ContainSubstring("0 is one of 4"), ContainSubstring("node-of-more is one of 4 nodes under maintenance, and there may be 3"))))
		})

		It("should not be blamed on what waits, is for the same node, is over, or for a node that is gone", func() {
			maintain("waits", "more", maintenancev1alpha1.PhasePending)
			maintain("same", "0", maintenancev1alpha1.PhaseScheduled)
			maintain("over", "more", maintenancev1alpha1.PhaseReady, deleted, func(nm *maintenancev1alpha1.NodeMaintenance) { nm.Finalizers = nil })
			maintain("gone", "nobody", maintenancev1alpha1.PhaseReady)
			Expect(violations()).To(BeEmpty())
		})

		It("should not be blamed if the end of a node is seen a moment later", func() {
			maintain("more", "more", maintenancev1alpha1.PhaseScheduled)
			o.sawNode(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-0"}}, true, now.Add(time.Second))
			Expect(violations()).To(BeEmpty())
		})
	})

	Describe("M3: the cordon of a node that was handed over", func() {
		BeforeEach(func() {
			o.saw(machine("m"), false, now)
			node("m", cordoned)
			maintain("one", "m", maintenancev1alpha1.PhaseReady)
			after(time.Minute)
		})

		It("should be blamed if nobody puts it back for longer than the back-off allows", func() {
			node("m")
			after(2*rules.ShortestCordon + overdue - lag - time.Second)
			Expect(violations()).To(BeEmpty())
			after(2 * time.Second)
			Expect(violations()).To(ConsistOf(ContainSubstring("m was handed over, and is not cordoned for more than 1m5s (M3)")))
		})

		DescribeTable("should not be blamed", func(reason func()) {
			node("m")
			reason()
			after(10 * time.Minute)
			Expect(violations()).To(BeEmpty())
		},
			Entry("if none is asked for", func() {
				maintain("one", "m", maintenancev1alpha1.PhaseReady, func(nm *maintenancev1alpha1.NodeMaintenance) { nm.Spec.Cordon = new(false) })
			}),
			Entry("if the maintenance ends", func() { maintain("one", "m", maintenancev1alpha1.PhaseReady, deleted) }),
			Entry("if it was set back", func() { maintain("one", "m", maintenancev1alpha1.PhasePending) }),
			Entry("if the machine goes", func() { o.did("m", rules.Deleted, "deleted", now); o.saw(terminating(machine("m")), false, now) }),
			Entry("while the shoot's API server is away", func() { o.shootAway(true, now) }),
		)
	})

	Describe("X1: a node that is made safe", func() {
		BeforeEach(func() {
			o.saw(machine("m"), false, now)
			node("m")
			host("m", true)
			after(time.Minute)
		})

		It("should be blamed if its host is on", func() {
			node("m", outOfService)
			Expect(violations()).To(ConsistOf(ContainSubstring("m its node was made safe, and its host was on (X1)")))
		})

		It("should not be blamed if its host is off, or that is seen a moment later", func() {
			node("m", outOfService)
			after(time.Second)
			host("m", false, v1alpha1.AnnotationReboot)
			Expect(violations()).To(BeEmpty())
		})

		It("should not be blamed if the taint is seen when the shoot's API server is back, and the host is on again", func() {
			host("m", false, v1alpha1.AnnotationReboot)
			tainted := metav1.NewTime(now)
			after(3 * time.Minute)
			host("m", true)
			after(time.Minute)
			node("m", outOfService, func(n *corev1.Node) { n.Spec.Taints[0].TimeAdded = &tainted })
			Expect(violations()).To(BeEmpty())
		})
	})

	It("X5: should blame a host that is asked to be off beyond its deadline, also while the shoot's API server is away", func() {
		host("m", true, v1alpha1.AnnotationReboot)
		host("n", false, v1alpha1.AnnotationReboot)
		o.shootAway(true, now)
		after(30 * time.Second)
		host("m", false, v1alpha1.AnnotationReboot)
		host("n", false)
		after(powerOff + overdue - 30*time.Second - lag - time.Second)
		Expect(violations()).To(BeEmpty())
		after(2 * time.Second)
		Expect(violations()).To(ConsistOf(ContainSubstring("m its host is asked to be off for more than 1m45s")))
	})

	It("H1: should not blame a machine whose kernel hung until it had no power", func() {
		for _, name := range []string{"m", "n"} {
			o.saw(kept(name, "auto", rules.FailedPreserved), false, now)
			host(name, true)
			after(10 * time.Minute)
		}
		o.breaks("m", "kernel-hang", now)
		o.breaks("n", "kubelet-dead", now)
		host("m", true, v1alpha1.AnnotationReboot)
		host("n", true, v1alpha1.AnnotationReboot)
		after(time.Minute)
		o.saw(kept("m", "auto", "Running:Preserved"), false, now)
		o.saw(kept("n", "auto", "Running:Preserved"), false, now)
		Expect(violations()).To(And(ContainElement(ContainSubstring("n is taken for healthy")), Not(ContainElement(ContainSubstring("m is taken for healthy")))))
	})
})
