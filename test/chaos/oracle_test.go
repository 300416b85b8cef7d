// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"strconv"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts/baremetalhost"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// What is judged is tested in package oracle. Here it is tested that it is judged, on what, and with what excuses.
var _ = Describe("oracle", func() {
	var (
		o   *oracle
		now time.Time
	)

	after := func(d time.Duration) { now = now.Add(d) }
	deployment := func(replicas int32, share int, updated int32) {
		d := builder.Deployment("pool", builder.Replicas(replicas), builder.Share(strconv.Itoa(share)))
		d.Status.Replicas, d.Status.UpdatedReplicas = replicas, updated
		o.sawDeployment(d, now)
	}
	saw := func(name string, opts ...builder.MachineOption) { o.saw(builder.Machine(name, opts...), false, now) }
	kept := func(cause, phase string) builder.MachineOption {
		return builder.Preserved(phase, cause, now.Add(time.Hour))
	}
	node := func(name string, opts ...builder.NodeOption) { o.sawNode(builder.Node(name, opts...), false, now) }
	cordoned := func(n *corev1.Node) { n.Spec.Unschedulable = true }
	maintain := func(name, node, phase string, edit ...func(*maintenancev1alpha1.NodeMaintenance)) *maintenancev1alpha1.NodeMaintenance {
		nm := &maintenancev1alpha1.NodeMaintenance{
			ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{maintenancev1alpha1.Finalizer}},
			Spec:       maintenancev1alpha1.NodeMaintenanceSpec{NodeName: node},
			Status:     maintenancev1alpha1.NodeMaintenanceStatus{Conditions: []metav1.Condition{{Type: maintenancev1alpha1.ConditionReady, Reason: phase}}},
		}
		for _, edit := range edit {
			edit(nm)
		}
		o.sawMaintenance(nm, false, now)
		return nm
	}
	deleted := func(nm *maintenancev1alpha1.NodeMaintenance) { nm.DeletionTimestamp = &metav1.Time{Time: now} }
	host := func(name string, on bool, annotations ...string) {
		h := baremetalhost.New(client.ObjectKey{Name: name})
		Expect(unstructured.SetNestedField(h.Object, on, "status", "poweredOn")).To(Succeed())
		keys := map[string]string{}
		for _, key := range annotations {
			keys[key] = "{}"
		}
		h.SetAnnotations(keys)
		o.sawHost(h, now)
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
		now = builder.Start
		deployment(3, 1, 3)
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

	Describe("the end of a preservation", func() {
		BeforeEach(func() {
			saw("m", kept("auto", rules.FailedPreserved))
			after(2 * time.Minute)
		})

		It("should be blamed without a reason, with the history", func() {
			saw("m")
			Expect(violations()).To(ConsistOf(ContainSubstring("m was let go without a reason")))
			Expect(o.machines["m"].lines).To(ContainElement(ContainSubstring("saw: Failed:Preserved (auto)")))
		})

		It("should be blamed if the machine is terminated while it is kept, or vanishes", func() {
			saw("m", kept("auto", rules.FailedPreserved), builder.Deleted(now))
			saw("n", kept("now", rules.RunningPreserved))
			o.saw(builder.Machine("n"), true, now)
			Expect(violations()).To(ConsistOf(ContainSubstring("m was terminated without"), ContainSubstring("n was terminated without")))
		})

		DescribeTable("should not be blamed with a reason", func(reason func()) {
			reason()
			saw("m")
			saw("m", builder.Deleted(now))
			Expect(violations()).To(BeEmpty())
		},
			Entry("what was done to it", func() { o.did("m", rules.Requested, "request false", now); after(time.Minute) }),
			Entry("a scale-down", func() { deployment(2, 1, 2); after(time.Minute) }),
			Entry("a lowered share", func() { deployment(3, 0, 3); after(time.Minute) }),
			Entry("a rolling update that takes long", func() { deployment(3, 1, 0); after(5 * time.Minute) }),
			Entry("what was done before an outage", func() {
				o.did("m", rules.Requested, "request false", now)
				after(time.Second)
				o.shootAway(true, now)
				after(4 * time.Minute)
				o.shootAway(false, now)
				after(time.Minute)
			}),
		)

		It("should not be blamed if the reason is seen a moment later", func() {
			saw("m")
			after(time.Second)
			deployment(2, 1, 2)
			after(time.Minute)
			Expect(violations()).To(BeEmpty())
		})
	})

	It("M13, X10: should not blame the end of what is kept for a maintenance or a power cycle when that is over, but while it goes on", func() {
		cycle := func(phase string) builder.MachineOption {
			return builder.Annotation(v1alpha1.AnnotationPowerCyclePhase, phase)
		}
		for _, name := range []string{"m", "n"} {
			saw(name, kept("maintenance", rules.RunningPreserved))
			maintain("of-"+name, name, maintenancev1alpha1.PhaseReady)
			saw(name+"-cycled", kept("remediation", rules.FailedPreserved), cycle(v1alpha1.PowerCycleMakingNodeSafe))
		}
		after(5 * time.Minute)
		o.sawMaintenance(maintain("of-m", "m", maintenancev1alpha1.PhaseReady, deleted), true, now)
		saw("m-cycled", kept("remediation", rules.FailedPreserved), cycle(v1alpha1.PowerCycleSucceeded))
		saw("n-cycled", kept("remediation", rules.FailedPreserved), cycle(v1alpha1.PowerCycleStarting))
		after(time.Second)
		saw("m")
		saw("m-cycled", cycle(v1alpha1.PowerCycleSucceeded))
		saw("n")
		saw("n-cycled", cycle(v1alpha1.PowerCycleStarting))
		Expect(violations()).To(ConsistOf(ContainSubstring("n was let go without a reason"), ContainSubstring("n-cycled was let go without a reason")))
	})

	It("H1: should blame a machine that is taken for healthy, but not a moment after it broke, or if its kernel hung until it had no power", func() {
		broken := map[string]string{"long": "kubelet-dead", "healed": "kubelet-dead", "hung": "kernel-hang", "just": "kubelet-dead"}
		for name, failure := range broken {
			saw(name, kept("auto", rules.FailedPreserved))
			host(name, true)
			if name != "just" {
				o.breaks(name, failure, now)
			}
		}
		after(10 * time.Minute)
		o.breaks("just", broken["just"], now)
		o.breaks("healed", "", now)
		host("long", true, v1alpha1.AnnotationReboot)
		host("hung", true, v1alpha1.AnnotationReboot)
		after(time.Second)
		for name := range broken {
			saw(name, kept("now", rules.RunningPreserved))
		}
		Expect(violations()).To(ContainElement(ContainSubstring("long is taken for healthy")))
		Expect(violations()).NotTo(ContainElement(MatchRegexp("(just|healed|hung) is taken")))
	})

	Describe("P1: the share", func() {
		BeforeEach(func() {
			saw("m", kept("auto", rules.FailedPreserved))
			saw("asked", kept("when-failed", rules.FailedPreserved))
		})

		It("should be blamed on all who have one place together", func() {
			saw("n", kept("auto", rules.FailedPreserved))
			Expect(violations()).To(ConsistOf(ContainSubstring("m was one of 2"), ContainSubstring("n was one of 2")))
		})

		DescribeTable("should be raised before, but for what is seen a moment later", func(later time.Duration, count int) {
			saw("n", kept("auto", rules.FailedPreserved))
			after(later)
			deployment(3, 2, 3)
			after(time.Minute)
			Expect(violations()).To(HaveLen(count))
		},
			Entry(nil, time.Second, 0),
			Entry(nil, lag+time.Second, 2),
		)

		It("should be blamed only a while after it was lowered", func() {
			deployment(3, 0, 3)
			after(aftermath)
			saw("other")
			Expect(violations()).To(BeEmpty())
			after(time.Second)
			saw("another")
			Expect(violations()).To(ConsistOf(ContainSubstring("m was one of 1")))
		})
	})

	It("P10: should blame what is kept beyond its expiry, and wait for the shoot's API server and for the sidecar", func() {
		saw("m", builder.Preserved(rules.FailedPreserved, "auto", now))
		o.shootAway(true, now)
		after(5 * time.Minute)
		o.tick(now)
		o.shootAway(false, now)
		o.tick(now)
		after(30 * time.Second)
		o.killedSidecar(now)
		after(30 * time.Second)
		Expect(violations()).To(BeEmpty())
		after(30 * time.Second)
		Expect(violations()).To(ConsistOf(ContainSubstring("m is kept for more than 45s beyond its expiry")))
	})

	Describe("M12: the end of a machine whose node is under maintenance", func() {
		BeforeEach(func() {
			saw("m")
			node("m")
			maintain("one", "m", maintenancev1alpha1.PhaseReady)
			after(2 * time.Minute)
		})

		It("should be blamed, with the history", func() {
			maintain("one", "m", maintenancev1alpha1.PhaseRequestorFailed)
			saw("m", builder.Deleted(now))
			Expect(violations()).To(ConsistOf(And(ContainSubstring("m was terminated while it was"), ContainSubstring("one has had its node"), ContainSubstring("M12"))))
			Expect(o.machines["m"].lines).To(ContainElement(ContainSubstring("saw: NodeMaintenance one: Ready")))
		})

		It("M15: should be blamed although the maintenance ends because of that", func() {
			saw("m", kept("maintenance", rules.FailedPreserved))
			after(2 * time.Minute)
			saw("m", kept("maintenance", rules.FailedPreserved), builder.Deleted(now))
			maintain("one", "m", maintenancev1alpha1.PhasePending)
			Expect(violations()).To(ConsistOf(ContainSubstring("M12")))
			Expect(o.machines["m"].lines).To(ContainElement(ContainSubstring("was terminated without a reason")))
		})

		DescribeTable("should not be blamed with a reason", func(reason func()) {
			reason()
			saw("m", builder.Deleted(now))
			Expect(violations()).To(BeEmpty())
		},
			Entry("a maintenance that has just begun", func() {
				maintain("one", "m", maintenancev1alpha1.PhasePending)
				maintain("one", "m", maintenancev1alpha1.PhaseScheduled)
				after(settling)
			}),
			Entry("a maintenance that waits", func() { maintain("one", "m", maintenancev1alpha1.PhasePending) }),
			Entry("false on the Node", func() {
				node("m", builder.NodeAnnotation(v1alpha1.AnnotationPreserve, "false"))
				after(10 * time.Minute)
			}),
			Entry("an end that came before", func() { saw("m", builder.Annotation(builder.NoteReleased, "2026-03-01T12:00:00Z")) }),
			Entry("an expiry that an operator has edited", func() { o.did("m", rules.ExpiryEdited, "expiry", now); after(10 * time.Minute) }),
			Entry("a sidecar that is not there", func() { o.killedSidecar(now); after(takeover) }),
		)

		It("should not be blamed if the end of the maintenance is seen a moment later", func() {
			saw("m", builder.Deleted(now))
			after(time.Second)
			maintain("one", "m", maintenancev1alpha1.PhaseReady, deleted)
			after(time.Minute)
			Expect(violations()).To(BeEmpty())
		})
	})

	Describe("M10: the limit of maintenances", func() {
		BeforeEach(func() {
			for i := range maxParallel {
				name := strconv.Itoa(i)
				saw(name)
				node(name)
				maintain("nm-"+name, name, maintenancev1alpha1.PhaseReady)
			}
			node("more")
		})

		It("should be blamed on all nodes that are under maintenance together", func() {
			maintain("more", "more", maintenancev1alpha1.PhaseScheduled)
			Expect(violations()).To(And(HaveLen(maxParallel+1), ContainElements(ContainSubstring("0 is one of 4"), ContainSubstring("more is one of 4 nodes under maintenance, and there may be 3"))))
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
			o.sawNode(builder.Node("0"), true, now.Add(time.Second))
			Expect(violations()).To(BeEmpty())
		})
	})

	DescribeTable("M3: a node that was handed over, and that nobody cordons again", func(reason func(), blamed ...any) {
		saw("m")
		node("m", cordoned)
		maintain("one", "m", maintenancev1alpha1.PhaseReady)
		after(time.Minute)
		node("m")
		reason()
		after(2*rules.ShortestCordon + overdue - lag - time.Second)
		Expect(violations()).To(BeEmpty())
		after(2 * time.Second)
		Expect(violations()).To(ConsistOf(blamed...))
	},
		Entry("should be blamed", func() {}, ContainSubstring("m was handed over, and is not cordoned for more than 47s (M3)")),
		Entry("should not be if none is asked for", func() {
			maintain("one", "m", maintenancev1alpha1.PhaseReady, func(nm *maintenancev1alpha1.NodeMaintenance) { nm.Spec.Cordon = new(false) })
		}),
		Entry("should not be if the maintenance ends", func() { maintain("one", "m", maintenancev1alpha1.PhaseReady, deleted) }),
		Entry("should not be if it was set back", func() { maintain("one", "m", maintenancev1alpha1.PhasePending) }),
		Entry("should not be if the machine goes", func() { o.did("m", rules.Deleted, "deleted", now); saw("m", builder.Deleted(now)) }),
		Entry("should not be while the shoot's API server is away", func() { o.shootAway(true, now) }),
	)

	DescribeTable("X1: a node that is made safe", func(seen time.Duration, off bool, blamed ...any) {
		saw("m")
		node("m")
		host("m", true)
		after(time.Minute)
		tainted := now
		if off {
			host("m", false, v1alpha1.AnnotationReboot)
			after(3 * time.Minute)
			host("m", true)
			after(time.Minute)
		}
		node("m", builder.Taint(corev1.TaintNodeOutOfService, tainted))
		after(seen)
		o.tick(now)
		host("m", false, v1alpha1.AnnotationReboot)
		Expect(violations()).To(ConsistOf(blamed...))
	},
		Entry("should be blamed if its host is on", lag+time.Minute, false, ContainSubstring("m its node was made safe, and its host was on (X1)")),
		Entry("should not be if that is seen a moment later", time.Second, false),
		Entry("should not be if the taint is seen when the shoot's API server is back, and the host is on again", time.Minute, true),
	)

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
})
