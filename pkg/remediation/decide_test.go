// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

func asIs(*machine) {}

var _ = Describe("Decide", func() {
	var (
		w *world
		m *machine
	)
	// start makes a world in which the first machine is asked to be power-cycled.
	start := func(names ...string) {
		w = newWorld(func(format string, args ...any) { Fail(fmt.Sprintf(format, args...)) }, names...)
		m = w.machines[0]
		m.annotate(needsKey, "")
	}
	BeforeEach(func() { start("a") })

	claim := func() time.Time {
		t, _ := time.Parse(time.RFC3339, m.obj.Annotations[claimKey])
		return t
	}
	waits := func(reason string) {
		GinkgoHelper()
		Expect(m.phase()).To(Equal("Waiting"))
		Expect(m.record()["wait"]).To(ContainSubstring(reason))
		Expect(m.host.requested).To(BeFalse())
	}
	beSettled := func() {
		GinkgoHelper()
		w.after(5 * time.Minute)
		Expect(m.phase()).To(BeEmpty())
	}

	It("X1, X2, X3, X12: takes a host and its node through a cycle, each write in its place", func() {
		w.run()
		Expect(w.steps).To(Equal([]string{"machine PoweringOff", "power off", "condition", "machine PoweringOff"}))
		Expect(*m.host.owner).To(Equal(Owner{
			Seed: "seed", Namespace: builder.Namespace, Machine: "a", UID: "machine-a", BootID: m.bootID, Time: w.now, On: "1",
		}))
		Expect(m.obj.Annotations).To(HaveKeyWithValue(attemptKey, "1"))

		w.steps, m.contents = nil, NodeContents{Pods: 1, VolumeAttachments: 1}
		w.now = w.now.Add(30 * time.Second)
		w.act(m)
		Expect(w.steps).To(Equal([]string{"machine MakingNodeSafe", "taint", "condition"}))
		Expect(w.last).To(ConsistOf(MatchFields(IgnoreExtras, Fields{"ReadNodeContents": BeTrue(), "Next": Equal(w.now.Add(5 * time.Second)), "Release": BeFalse()})))
		Expect(m.node.Spec.Taints).To(ConsistOf(corev1.Taint{Key: "node.kubernetes.io/out-of-service", Value: "nodeshutdown", Effect: "NoExecute", TimeAdded: &metav1.Time{Time: w.now}}))

		w.steps, m.contents = nil, NodeContents{}
		w.run()
		Expect(w.steps).To(Equal([]string{"machine PoweringOn", "release", "condition"}))
		Expect(m.obj.Annotations).NotTo(HaveKey(needsKey))

		w.act(m)
		Expect(m.phase()).To(Equal("Starting"))
		Expect(tainted(m.node)).To(BeTrue())
		Expect(m.obj.Finalizers).NotTo(ContainElement(finalizer))

		w.boot(m)
		w.after(time.Minute)
		Expect(m.phase()).To(Equal("Succeeded"))
		Expect(w.outcomes).To(Equal([]string{"Succeeded"}))
		Expect(w.warnings).To(BeEmpty())
		Expect(w.took).To(Equal(map[string]time.Duration{"PoweringOff": 30 * time.Second, "MakingNodeSafe": 0, "PoweringOn": 0, "Starting": time.Minute}))
		Expect(tainted(m.node)).To(BeFalse())
		Expect(m.node.Status.Conditions[1]).To(MatchFields(IgnoreExtras, Fields{"Type": BeEquivalentTo("PowerCycle"), "Status": Equal(corev1.ConditionFalse), "Reason": Equal("Succeeded")}))
		Expect(m.obj.Annotations).NotTo(HaveKey(claimKey))
		Expect(w.events).To(HaveLen(5))

		beSettled()
		Expect(m.marks()).To(ConsistOf(recordKey), "the cycles of the last day")
		Expect(m.node.Status.Conditions).To(HaveLen(1))
		Expect(w.last[0].Next).To(Equal(builder.Start.Add(25 * time.Hour)))
		w.after(24 * time.Hour)
		Expect(m.marks()).To(BeEmpty())
	})

	DescribeTable("V1: has a node wait for a proof from the very write with which it takes pods again", func(validated bool) {
		w.Validated = validated
		w.run()
		m.contents = NodeContents{}
		w.act(m)
		w.run()
		w.act(m)
		w.boot(m)
		w.steps = nil
		w.run()
		Expect(m.phase()).To(Equal("Succeeded"))
		Expect(w.steps).To(And(ContainElement("untaint"), Not(ContainElement("node"))))
		Expect(v1alpha1.IsTainted(m.node)).To(Equal(validated))
	},
		Entry("where its pool wants one", true),
		Entry("and not where it does not", false),
	)

	Describe("X1: a node is only made safe when its host is off since the request", func() {
		It("waits for a host that is on", func() {
			w.run()
			w.after(9 * time.Minute)
			Expect(m.phase()).To(Equal("PoweringOff"))
		})
		It("does not believe what it reported before", func() {
			w.run()
			m.host.reported = false // in the same version
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
			Expect(tainted(m.node)).To(BeFalse())
		})
		It("does not ask a host that is reported off, or of which nothing is known", func() {
			m.host.reported = false
			w.run()
			waits("does not report that it is on")
		})
		It("needs no taint if the Node is gone", func() {
			w.run()
			m.node = nil
			w.act(m)
			Expect(m.phase()).To(Equal("PoweringOn"))
		})
		It("uses somebody else's taint, and leaves it there", func() {
			m.editNode(func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/out-of-service", Value: "mine", Effect: "NoExecute"}}
			})
			w.cycle(m)
			Expect(m.phase()).To(Equal("Starting"))
			w.boot(m)
			w.run()
			Expect(m.node.Spec.Taints).To(HaveLen(1))
		})
		DescribeTable("X1: which pods must leave", func(left bool, pod corev1.Pod) { Expect(MustLeave(&pod)).To(Equal(left)) },
			Entry("one that tolerates nothing", true, corev1.Pod{}),
			Entry("one that tolerates everything", false, tolerating(corev1.Toleration{Operator: "Exists"})),
			Entry("one that tolerates it", false, tolerating(corev1.Toleration{Key: "node.kubernetes.io/out-of-service", Value: "nodeshutdown", Effect: "NoExecute"})),
			Entry("one that tolerates another effect", true, tolerating(corev1.Toleration{Operator: "Exists", Effect: "NoSchedule"})),
			Entry("one that tolerates it for a while", true, tolerating(corev1.Toleration{Operator: "Exists", TolerationSeconds: new(int64(300))})),
			Entry("one that is terminating", true, func() corev1.Pod {
				pod := tolerating(corev1.Toleration{Operator: "Exists"})
				pod.DeletionTimestamp = &metav1.Time{Time: builder.Start}
				return pod
			}()),
		)
	})

	DescribeTable("X1, X5: what there still is of a node",
		func(expected NodeContents, pods []*corev1.Pod, attached []string) {
			var attachments []*storagev1.VolumeAttachment
			for _, name := range attached {
				attachments = append(attachments, &storagev1.VolumeAttachment{Spec: storagev1.VolumeAttachmentSpec{Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}}})
			}
			volumes := []*corev1.PersistentVolume{volume("pv", "n", "claim"), volume("ephemeral", "n", "p-scratch"), volume("foreign", "other", "claim"), {ObjectMeta: metav1.ObjectMeta{Name: "free"}}}
			Expect(NodeContentsOf(pods, attachments, volumes)).To(Equal(expected))
		},
		Entry("nothing", NodeContents{}, nil, nil),
		Entry("a pod and its volume", NodeContents{Pods: 1, VolumeAttachments: 1}, []*corev1.Pod{using("claim")}, []string{"pv"}),
		Entry("X5: a pod that stays keeps its volumes", NodeContents{}, []*corev1.Pod{using("claim", everything)}, []string{"pv", "ephemeral"}),
		Entry("a volume that another pod uses as well", NodeContents{Pods: 1, VolumeAttachments: 1}, []*corev1.Pod{using("claim", everything), using("claim")}, []string{"pv"}),
		Entry("volumes of others, of nobody, and one that is not known", NodeContents{VolumeAttachments: 3}, []*corev1.Pod{using("claim", everything)}, []string{"foreign", "free", "unknown"}),
	)
	It("X1: counts an attachment that names no PersistentVolume", func() {
		Expect(NodeContentsOf(nil, []*storagev1.VolumeAttachment{{}}, nil)).To(Equal(NodeContents{VolumeAttachments: 1}))
	})

	Describe("X2: no host is left off", func() {
		DescribeTable("when the request is removed",
			func(stage func(), phase string) {
				w.run()
				stage()
				m.unset(needsKey)
				w.act(m)
				Expect(m.phase()).To(Equal(phase))
				Expect(m.host.requested).To(BeFalse())
			},
			Entry("X2: while the host is on, when it is off", func() {}, "PoweringOn"),
			Entry("X2: while pods are left", func() { m.contents.Pods = 1; w.act(m) }, "PoweringOn"),
		)
		It("lets a request go that nobody knows of", func() {
			m.unset(needsKey)
			m.host.requested, m.host.owner = true, &Owner{UID: m.obj.UID, On: "1"}
			w.run()
			Expect(w.steps).To(Equal([]string{"release"}))
		})
		It("does not touch the request of another machine", func() {
			m.host.requested, m.host.owner = true, &Owner{UID: "other", On: "1"}
			w.run()
			Expect(m.record()["wait"]).To(ContainSubstring("has requested the host to be off"))
			Expect(m.host.owner).NotTo(BeNil())
		})
		It("releases the host of a Machine that is deleted, and lets it go then", func() {
			w.run()
			w.delete(m)
			w.run()
			Expect(m.host.requested).To(BeFalse())
			Expect(m.obj).To(BeNil())
			Expect(w.outcomes).To(Equal([]string{"Cancelled"}))
			Expect(w.events).To(ContainElement(HavePrefix("PowerCycleCancelled: The power cycle was cancelled, because the machine is being deleted")))
		})
		It("keeps a Machine that is deleted for a minute at most", func() {
			w.run()
			w.delete(m)
			w.hostsAway = true
			w.after(59 * time.Second)
			Expect(m.obj).NotTo(BeNil())
			w.after(time.Second)
			Expect(m.obj).To(BeNil())
			w.hostsAway = false
			m.seen = nil
			Expect(w.sweep()).To(BeTrue())
			Expect(m.host.requested).To(BeFalse())
		})
		It("keeps no Machine that is deleted and was never concerned", func() {
			start("a", "b")
			w.machines[1].bystander = true
			w.delete(w.machines[1])
			w.run()
		})
		DescribeTable("X2: orphans",
			func(orphan bool, edit func(*Host, *machinev1alpha1.Machine)) {
				w.run()
				host, machine := m.host.look(), m.obj.DeepCopy()
				owner := *host.Owner
				host.Owner = &owner
				edit(&host, machine)
				Expect(Orphans([]Host{host}, []*machinev1alpha1.Machine{machine})).To(HaveLen(map[bool]int{true: 1}[orphan]))
			},
			Entry("the host of a cycle is none", false, func(*Host, *machinev1alpha1.Machine) {}),
			Entry("that of a Machine that is gone", true, func(_ *Host, m *machinev1alpha1.Machine) { m.UID = "another" }),
			Entry("that of a Machine without a cycle", true, func(_ *Host, m *machinev1alpha1.Machine) { m.Annotations = nil }),
			Entry("that of a Machine which has another host", true, func(h *Host, _ *machinev1alpha1.Machine) { h.UID = "another" }),
			Entry("one whose owner is not known", false, func(h *Host, _ *machinev1alpha1.Machine) { h.Owner = nil }),
			Entry("one of a cycle whose request somebody has taken back", false, func(h *Host, _ *machinev1alpha1.Machine) { h.Requested = false }),
			Entry("one of no cycle whose request somebody has taken back", true, func(h *Host, m *machinev1alpha1.Machine) { h.Requested, m.Annotations = false, nil }),
		)
		DescribeTable("X2: takes all back of a host from which somebody removed nothing but the request",
			func(stage func(), phase string) {
				m.host.claim, m.contents.Pods = true, 1
				w.run()
				w.act(m)
				stage()
				m.host.requested = false
				w.run()
				w.after(10 * time.Minute)
				Expect(m.host.owner).To(BeNil())
				w.act(m)
				Expect(m.host.on).To(BeTrue())
				Expect(m.phase()).To(Equal(phase))
				Expect(m.obj.Finalizers).NotTo(ContainElement(finalizer))
			},
			Entry("X2: while pods are left", func() {}, "Failed"),
			Entry("X2: while the request is withdrawn", func() { m.unset(needsKey) }, "Cancelled"),
			Entry("X2: while hosts are away and the cycle fails", func() { w.hostsAway = true; w.after(10 * time.Minute); w.hostsAway = false }, "Failed"),
			Entry("X2, X14: while a person stops it", func() { m.annotate(preserve, "false") }, "Cancelled"),
		)
		DescribeTable("X2: a machine that was restored with another UID releases what it had off before",
			func(stage func(), phase string) {
				m.host.claim = true
				w.run()
				stage()
				Expect(m.host.requested).To(BeTrue())
				w.restore()
				Expect(w.sweep()).To(BeFalse(), "it is off for another seed")
				w.run()
				Expect(m.host.owner).To(BeNil())
				Expect(m.phase()).To(Equal(phase))
				w.act(m)
				Expect(m.host.on).To(BeTrue())
				Expect(m.obj.Finalizers).NotTo(ContainElement(finalizer))
				w.boot(m)
				w.run()
				Expect(tainted(m.node)).To(BeFalse())
				beSettled()
			},
			Entry("X2: while it was powered off", func() {}, "Failed"),
			Entry("X2: while its node was made safe", func() { m.contents.Pods = 1; w.act(m) }, "Failed"),
			Entry("X2: when its cycle was over", func() { w.hostsAway = true; w.after(10 * time.Minute); w.hostsAway = false }, "Failed"),
		)
		It("X2: leaves alone what is off for another machine", func() {
			m.unset(needsKey)
			for _, owner := range []Owner{{Namespace: builder.Namespace, Machine: "b", UID: "b", On: "1"}, {Namespace: "other", Machine: "a", UID: "a", On: "1"}} {
				m.host.requested, m.host.owner = true, &owner
				w.run()
				Expect(w.steps).To(BeEmpty())
			}
		})
		It("ends the cycle of a machine that has another host", func() {
			w.run()
			m.host.uid = "another"
			w.run()
			Expect(m.phase()).To(Equal("Failed"))
		})
	})

	It("X2, X3: asks for no host to be off before the Machine is kept for that", func() {
		w.sync()
		w.writesLeft = 1
		w.look()
		w.writesLeft = -1
		m.removeFinalizer()
		w.sync()
		w.steps = nil
		w.look()
		Expect(w.steps).To(Equal([]string{"machine PoweringOff", "condition"}))
		Expect(m.obj.Finalizers).To(ContainElement(finalizer))
	})

	It("X3: decides alike after a crash at each write", func() {
		for writes := range 12 {
			start("a")
			w.writesLeft = writes
			for w.writesLeft > 0 {
				w.engine()
				w.sync()
				w.look()
				m.host.act()
				m.host.report(w.now)
				m.setReady(m.healthy() && m.host.on, w.now)
			}
			w.writesLeft = -1
			for range 3 {
				w.act(m)
			}
			w.boot(m)
			w.run()
			Expect(m.phase()).To(Equal("Succeeded"), "after %d writes", writes)
			Expect(m.begun).To(Equal(1))
		}
	})

	It("X2: keeps nothing for a request that is withdrawn while it waits", func() {
		w.Rollout = true
		w.run()
		m.unset(needsKey)
		w.run()
		Expect(m.marks()).To(BeEmpty())
		Expect(m.node.Status.Conditions).To(HaveLen(1))
	})

	Describe("X4, X6: no reboot loop", func() {
		It("X4: answers a request that is made before the node is back", func() {
			w.cycle(m)
			m.annotate(needsKey, "")
			w.run()
			Expect(m.obj.Annotations).To(HaveKey(needsKey))
			Expect(m.phase()).To(Equal("Starting"))
			w.boot(m)
			w.run()
			Expect(m.obj.Annotations).NotTo(HaveKey(needsKey))
		})
		It("X4: remembers a request until the node is settled", func() {
			w.cycle(m)
			w.boot(m)
			w.run()
			w.after(time.Minute)
			m.annotate(needsKey, "")
			w.after(4*time.Minute - time.Second)
			Expect(m.phase()).To(Equal("Succeeded"))
			Expect(m.obj.Annotations).To(HaveKey(needsKey))
			w.after(time.Second)
			waits("powered on a short time ago")
			w.after(5 * time.Minute)
			Expect(m.phase()).To(Equal("PoweringOff"))
			Expect(m.obj.Annotations).To(HaveKeyWithValue(attemptKey, "1"))
		})
		It("X6: goes on waiting when the cycle before is forgotten, and tells nothing anew", func() {
			w.settings.MaxAttempts = 2
			w.cycle(m)
			w.boot(m)
			w.run()
			w.Rollout = true
			w.after(time.Minute)
			m.annotate(needsKey, "")
			w.run()
			waits("update")
			told := len(w.events)
			w.after(4 * time.Minute)
			waits("update")
			Expect(m.obj.Annotations).NotTo(HaveKey(attemptKey))
			Expect(w.events).To(HaveLen(told))
		})
		It("X4: acts upon a request when the start-up time is over", func() {
			w.settings.MaxAttempts = 2
			m.setReady(false, w.now)
			w.run()
			w.after(10 * time.Minute)
			Expect(m.phase()).To(Equal("Failed"))
			m.annotate(needsKey, "")
			w.run()
			waits("still has time to start")
			w.after(10*time.Minute - time.Second)
			waits("still has time to start")
			w.after(time.Second)
			Expect(m.phase()).To(Equal("PoweringOff"))
			Expect(m.obj.Annotations).To(HaveKeyWithValue(attemptKey, "2"))
		})
		It("X6: removes a request when all attempts are used up", func() {
			w.run()
			w.after(10 * time.Minute)
			m.setReady(false, w.now)
			m.annotate(needsKey, "")
			w.run()
			Expect(m.obj.Annotations).To(HaveKey(needsKey))
			w.after(10 * time.Minute)
			Expect(m.obj.Annotations).NotTo(HaveKey(needsKey))
			Expect(w.events).To(ContainElement(HavePrefix("PowerCycleOutOfAttempts: ")))
			Expect(m.phase()).To(Equal("Failed"))
		})
		It("X4: a checker cannot keep the host off once the node is safe", func() {
			w.run()
			m.host.act()
			m.host.report(w.now)
			for range 10 {
				m.annotate(needsKey, "")
				w.sync()
				w.look()
			}
			Expect(m.host.requested).To(BeFalse())
		})
	})

	Describe("X5: deadlines", func() {
		DescribeTable("X5: when one passes, the host is released, the request removed, and the machine kept for one health timeout",
			func(stage func(), within time.Duration) {
				w.run()
				stage()
				if m.phase() == "Starting" {
					m.annotate(needsKey, "")
				}
				w.after(within - time.Second)
				Expect(m.phase()).NotTo(Equal("Failed"))
				Expect(w.last[0].Deadline).To(Equal(w.now.Add(time.Second)))
				w.after(time.Second)
				Expect(m.phase()).To(Equal("Failed"))
				Expect(w.outcomes).To(Equal([]string{"Failed"}))
				Expect(m.obj.Annotations).NotTo(HaveKey(needsKey))
				Expect(m.host.requested).To(BeFalse())
				Expect(claim()).To(Equal(w.now.Add(healthTimeout)), "X10")
				w.after(healthTimeout)
				Expect(m.obj.Annotations).NotTo(HaveKey(claimKey), "X10")
				Expect(w.last[0].Next).To(Or(BeZero(), BeTemporally(">", w.now.Add(time.Hour))))
			},
			Entry("X5: the host does not go off", func() {}, 10*time.Minute),
			Entry("X5: the host does not go off, and the clock is set back", func() { w.now = w.now.Add(-time.Hour); w.run() }, 10*time.Minute),
			Entry("X5: its power is not reported", func() { m.host.broken = true }, 10*time.Minute),
			Entry("X5: pods are left", func() { m.contents.Pods = 1; w.act(m) }, 10*time.Minute),
			Entry("X5: the shoot is away", func() { w.setShootAway(true); w.act(m) }, 10*time.Minute),
			Entry("X5: the host does not come on", func() { w.act(m); m.host.other = true }, 10*time.Minute),
			Entry("X5: the host does not come on, and the clock is set back",
				func() { w.act(m); m.host.other = true; w.now = w.now.Add(-time.Hour); w.run() }, 10*time.Minute),
			Entry("X5: the node does not come back", func() { w.act(m); w.act(m) }, 10*time.Minute),
		)
		It("X5: comes before a wait", func() {
			w.run()
			w.hostsAway = true
			w.after(10 * time.Minute)
			Expect(m.phase()).To(Equal("Failed"))
			Expect(m.obj.Finalizers).To(ContainElement(finalizer), "X2: until the host is known to be released")
			w.hostsAway = false
			w.run()
			Expect(m.host.requested).To(BeFalse())
		})
	})

	Describe("X8, X14: what is in the way", func() {
		DescribeTable("X8, X14: waits and says why",
			func(reason string, kept bool, block, unblock func()) {
				start("a", "b", "c", "d", "e")
				block()
				w.run()
				waits(reason)
				Expect(claim().IsZero()).To(Equal(!kept))
				Expect(w.events).To(ConsistOf(ContainSubstring(reason)))
				if m.node != nil && !w.ShootAway {
					Expect(m.node.Status.Conditions[len(m.node.Status.Conditions)-1].Message).To(ContainSubstring(reason))
				}
				w.after(time.Hour)
				waits(reason)
				Expect(claim()).To(BeZero(), "nothing is kept for ever")
				unblock()
				w.run()
				Expect(m.phase()).To(Equal("PoweringOff"))
			},
			Entry("X14: a machine without provider id", "no provider ID", false,
				func() { m.obj.Spec.ProviderID = "" }, func() { m.edit(func(map[string]string) { m.obj.Spec.ProviderID = "x" }) }),
			Entry("X14: one that is in CrashLoopBackOff", "created or initialised", false,
				func() { builder.Phase("CrashLoopBackOff", w.now)(m.obj) }, func() { m.edit(func(map[string]string) { builder.Phase("Unknown", w.now)(m.obj) }) }),
			Entry("X14: one that is being initialised", "created or initialised", false,
				func() { builder.Phase("Pending", w.now)(m.obj) }, func() { m.edit(func(map[string]string) { builder.Phase("Running", w.now)(m.obj) }) }),
			Entry("X14: no host", "no host of its own", false, func() { m.noHost = "It has no host of its own." }, func() { m.noHost = "" }),
			Entry("X14: a host that is taken", "parked", true, func() { m.host.taken = "The server is parked." }, func() { m.host.taken = "" }),
			Entry("X14: a host that is not known", "not known", true, func() { w.hostsAway = true }, func() { w.hostsAway = false }),
			Entry("X14: a person forbids it", "=false", false, func() { m.annotate(preserve, "false") }, func() { m.unset(preserve) }),
			Entry("X8: hibernation", "being removed", false, func() { w.Replicas = 0 }, func() { w.Replicas = 5 }),
			Entry("X8: a rollout", "replaced or updated", false, func() { w.Rollout = true }, func() { w.Rollout = false }),
			Entry("X8: a maintenance", "maintenance", true, func() { m.annotateNode(markKey, "") }, func() { m.editNode(func(n *corev1.Node) { delete(n.Annotations, markKey) }) }),
			Entry("X8: an outage of the shoot's API server", "does not answer", true, func() { w.setShootAway(true) }, func() { w.ShootAway = false }),
			Entry("X8: more than 30 % not ready", "not ready", true,
				func() { w.machines[1].setReady(false, w.now); w.machines[2].setReady(false, w.now) }, func() { w.machines[1].setReady(true, w.now) }),
		)
		It("X8: begins while no more than 30 % are not ready", func() {
			start(strings.Split("abcdefghij", "")...)
			for _, other := range w.machines[1:4] {
				other.setReady(false, w.now)
			}
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))

			start(strings.Split("abcdefghij", "")...)
			for _, other := range w.machines[1:5] {
				other.setReady(false, w.now)
			}
			w.run()
			waits("Too many nodes of the pool in this zone are not ready.")
		})
		Describe("a phase that is not known", func() {
			foreign := func() { m.edit(func(map[string]string) { builder.Phase("Rebooting", w.now)(m.obj) }) }
			known := func() { m.edit(func(map[string]string) { builder.Phase("Unknown", w.now)(m.obj) }) }

			DescribeTable("X8: touches nothing for a request that comes then, and heeds it after that", func(ask func()) {
				m.unset(needsKey)
				foreign()
				ask()
				w.AllowNodes = true
				before, node := m.obj, m.node
				w.run()
				w.after(10 * time.Hour)
				Expect(m.obj).To(BeIdenticalTo(before))
				Expect(m.node).To(BeIdenticalTo(node))
				Expect(w.events).To(BeEmpty())
				known()
				w.run()
				Expect(m.phase()).To(Equal("PoweringOff"))
			},
				Entry("on the Machine", func() { m.annotate(needsKey, "") }),
				Entry("on the Node", func() { m.annotateNode(nodeKey, "now") }),
			)
			It("X9: asks for none by itself", func() {
				m.unset(needsKey)
				w.settings.Automatic = true
				m.setReady(false, w.now)
				m.edit(func(map[string]string) {
					builder.Phase("Unknown", w.now.Add(-healthTimeout))(m.obj)
					builder.Preserved("Failed:Preserved", "auto", w.now.Add(72*time.Hour))(m.obj)
				})
				foreign()
				w.run()
				Expect(m.phase()).To(BeEmpty())
				Expect(m.obj.Annotations).NotTo(HaveKey(needsKey))
				known()
				w.run()
				Expect(m.phase()).To(Equal("PoweringOff"))
			})
			It("X10: goes on to keep a machine that waits, and no longer than that", func() {
				m.annotateNode(markKey, "")
				w.run()
				until := claim()
				Expect(until).NotTo(BeZero())
				foreign()
				m.editNode(func(n *corev1.Node) { delete(n.Annotations, markKey) })
				w.run()
				waits("does not know")
				Expect(claim()).To(Equal(until))
				w.after(until.Sub(w.now))
				waits("does not know")
				Expect(claim()).To(BeZero())
				known()
				w.run()
				Expect(m.phase()).To(Equal("PoweringOff"))
			})
			It("X10: keeps none that was not kept before", func() {
				m.annotate(preserve, "false")
				w.run()
				waits("must not be preserved")
				foreign()
				m.unset(preserve)
				w.run()
				waits("does not know")
				Expect(claim()).To(BeZero())
			})
			It("X8: lets a cycle wait again whose host has not been asked to be off", func() {
				w.engineAway = true // nobody keeps the machine yet
				w.run()
				Expect(m.phase()).To(Equal("PoweringOff"))
				foreign()
				w.engineAway = false
				w.run()
				waits("does not know")
				Expect(m.obj.Annotations).NotTo(HaveKey(attemptKey))
			})
			DescribeTable("X2: goes on with a cycle whose host may be off", func(phase string, stage func()) {
				w.run()
				stage()
				Expect(m.phase()).To(Equal(phase))
				foreign()
				m.contents = NodeContents{}
				for range 5 {
					w.act(m)
				}
				Expect(m.host.requested).To(BeFalse())
				w.boot(m)
				w.run()
				Expect(m.phase()).To(Equal("Succeeded"))
			},
				Entry("it is asked to be off", "PoweringOff", func() {}),
				Entry("its node is being made safe", "MakingNodeSafe", func() { m.contents.Pods = 1; w.act(m) }),
				Entry("it is being powered on", "PoweringOn", func() { w.act(m); w.run() }),
				Entry("its node starts", "Starting", func() { w.cycle(m) }),
			)
			It("X2, X5: ends a cycle in time, and leaves no host off", func() {
				m.contents.Pods = 1
				w.run()
				w.act(m)
				foreign()
				w.after(10 * time.Minute)
				Expect(m.phase()).To(Equal("Failed"))
				Expect(m.host.requested).To(BeFalse())
			})
		})
		DescribeTable("X2, X8: begins as many cycles as leave somebody to let the hosts on",
			func(begins int, others *NodeCount, unready ...int) {
				start("a", "b", "c", "d")
				w.settings.MaxConcurrent, w.Others = 4, others
				for i, m := range w.machines {
					m.annotate(needsKey, "")
					m.setReady(!slices.Contains(unready, i), w.now)
				}
				w.run()
				begun := 0
				for _, m := range w.machines {
					begun += m.begun
					if m.begun == 0 {
						Expect(m.record()["wait"]).NotTo(BeEmpty())
						Expect(m.host.requested).To(BeFalse())
					}
				}
				Expect(begun).To(Equal(begins))
			},
			Entry("X8: in the only group", 2, &NodeCount{}),
			Entry("X8: beside others that are ready", 4, &NodeCount{All: 3}),
			Entry("X8: beside others that are as many", 3, &NodeCount{All: 2}),
			Entry("X2, X8: beside groups that are cycled as well", 0, &NodeCount{All: 8, Away: 7}),
			Entry("X8: one that is not ready makes no difference", 2, &NodeCount{All: 2, Away: 1}, 0),
			Entry("X8: not while too many are not ready", 0, &NodeCount{All: 6, Away: 5}, 0),
			Entry("X8: not while nobody knows", 0, nil),
		)
		It("X2, X8: counts nodes that are not ready, and those that are cycled", func() {
			var nodes NodeCount
			nodes.Add(m.node, m.obj, nil)
			nodes.Add(m.node, m.obj, nil)
			Expect(nodes).To(Equal(NodeCount{All: 2}))
			w.run()
			nodes.Add(m.node, m.obj, nil)
			m.setReady(false, w.now)
			nodes.Add(m.node, builder.Machine("m"), nil)
			nodes.Add(&corev1.Node{}, builder.Machine("m"), nil)
			Expect(nodes).To(Equal(NodeCount{All: 5, Away: 3}))
		})
		DescribeTable("X2, X8: leaves out what dependency-watchdog leaves out",
			func(counted bool, machine *machinev1alpha1.Machine, opts ...builder.NodeOption) {
				var nodes NodeCount
				nodes.Add(builder.Node("m", append(opts, builder.NotReady)...), machine, facts.DefaultNodeConditions)
				want := NodeCount{}
				if counted {
					want = NodeCount{All: 1, Away: 1}
				}
				Expect(nodes).To(Equal(want))
			},
			Entry("not a machine that runs", true, builder.Machine("m")),
			Entry("not a machine that is doubted, also one that is held in this phase", true, builder.Machine("m", builder.Phase("Unknown", builder.Start))),
			Entry("not a machine in a phase that is not known", true, builder.Machine("m", builder.Phase("Rebooting", builder.Start))),
			Entry("a node without a machine", false, nil),
			Entry("a machine that has failed, preserved or not", false, builder.Machine("m", builder.Phase("Failed", builder.Start))),
			Entry("a machine that goes", false, builder.Machine("m", builder.Phase("Terminating", builder.Start))),
			Entry("a node with a bad condition", false, builder.Machine("m"), builder.Condition("KernelDeadlock", corev1.ConditionTrue, "", "")),
			Entry("not one of which that is not known", true, builder.Machine("m"), builder.Condition("KernelDeadlock", corev1.ConditionUnknown, "", "")),
			Entry("not one with a condition that is none of its machine's", true,
				builder.Machine("m", func(m *machinev1alpha1.Machine) {
					m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{NodeConditions: new("Broken")}
				}), builder.Condition("KernelDeadlock", corev1.ConditionTrue, "", "")),
			Entry("a node that is being updated in place", false, builder.Machine("m"), builder.Condition("InPlaceUpdate", corev1.ConditionTrue, "ReadyForUpdate", "")),
			Entry("a node whose update in place has failed", false, builder.Machine("m"), builder.Condition("InPlaceUpdate", corev1.ConditionTrue, "UpdateFailed", "")),
			Entry("not a node that is only selected for that", true, builder.Machine("m"), builder.Condition("InPlaceUpdate", corev1.ConditionTrue, "SelectedForUpdate", "")),
		)
		DescribeTable("X2, X8: looks only at what dependency-watchdog would count when the host is off",
			func(begins bool, others NodeCount, machines ...func(*machine)) {
				start("a", "b", "c")
				w.Others, w.NodeConditions = &others, facts.DefaultNodeConditions
				for i, change := range machines {
					change(w.machines[i])
				}
				w.run()
				began := BeZero()
				if begins {
					began = BeNumerically(">", 0)
				}
				Expect(m.begun).To(began, m.record()["wait"])
			},
			Entry("a machine that failed is not away", true, NodeCount{}, asIs, asIs, func(m *machine) { builder.Phase("Failed", w.now)(m.obj); m.setReady(false, w.now) }),
			Entry("machines that go are not there", false, NodeCount{All: 1, Away: 1}, asIs,
				func(m *machine) { builder.Phase("Terminating", w.now)(m.obj) }, func(m *machine) { builder.Phase("Terminating", w.now)(m.obj) }),
			Entry("one whose condition is forgotten with its kubelet is away", false, NodeCount{All: 1, Away: 1},
				func(m *machine) { m.editNode(builder.Condition("DiskPressure", corev1.ConditionTrue, "", "")) },
				func(m *machine) { builder.Phase("Terminating", w.now)(m.obj) }, func(m *machine) { builder.Phase("Terminating", w.now)(m.obj) }),
		)
		DescribeTable("X8, X14: what comes in the way before the host is off makes the cycle wait again, and it does not count",
			func(reason string, block, unblock func()) {
				start("a", "b", "c", "d", "e")
				w.settings.MaxAttempts = 2
				m.setReady(false, w.now)
				w.run()
				w.after(10 * time.Minute)
				Expect(m.phase()).To(Equal("Failed"))
				m.annotate(needsKey, "")
				w.engineAway = true
				m.unset(prefix + "cause")
				w.after(10 * time.Minute)
				Expect(m.phase()).To(Equal("PoweringOff"))
				Expect(m.record()["cycles"]).To(HaveLen(2))
				w.steps, w.events, w.engineAway = nil, nil, false
				block()
				w.run()
				waits(reason)
				Expect(w.steps).NotTo(ContainElement("power off"))
				Expect(w.events).To(ConsistOf(And(HavePrefix("PowerCycleWaiting: "), ContainSubstring(reason))))
				Expect(w.outcomes).To(Equal([]string{"Failed"}))
				Expect(m.obj.Annotations).To(And(HaveKey(needsKey), HaveKeyWithValue(attemptKey, "1")))
				Expect(m.obj.Finalizers).NotTo(ContainElement(finalizer))
				Expect(m.record()).To(And(HaveKey("ended"), HaveKeyWithValue("cycles", HaveLen(1)), Not(HaveKey("began"))))
				unblock()
				w.run()
				Expect(m.phase()).To(Equal("PoweringOff"))
				Expect(m.host.requested).To(BeTrue())
				Expect(m.obj.Annotations).To(HaveKeyWithValue(attemptKey, "2"))
			},
			Entry("X8: hibernation", "being removed", func() { w.Replicas = 0 }, func() { w.Replicas = 5 }),
			Entry("X8: a rollout", "replaced or updated", func() { w.Rollout = true }, func() { w.Rollout = false }),
			Entry("X8: a maintenance", "maintenance", func() { m.annotateNode(markKey, "") }, func() { m.editNode(func(n *corev1.Node) { delete(n.Annotations, markKey) }) }),
			Entry("X8: an outage", "does not answer", func() { w.setShootAway(true) }, func() { w.ShootAway = false }),
			Entry("X8: its end", "a short time ago", func() { w.ShootBack = w.now }, func() { w.now = w.now.Add(healthTimeout) }),
			Entry("X8: nodes of the group", "of the pool in this zone are not ready", func() { w.machines[1].setReady(false, w.now) }, func() { w.machines[1].setReady(true, w.now) }),
			Entry("X2, X8: nodes of the shoot", "of the shoot would not be ready", func() { w.Others = &NodeCount{All: 10, Away: 9} }, func() { w.Others = &NodeCount{All: 10} }),
			Entry("X14: a host that is taken", "parked", func() { m.host.taken = "The server is parked." }, func() { m.host.taken = "" }),
			Entry("X14: a host that is off", "does not report that it is on", func() { m.host.reported = false }, func() { m.host.reported = true }),
		)
		It("X8: waits after an outage also if another controller leads, which does not know of it", func() {
			w.ShootBack = w.now.Add(-time.Millisecond)
			w.run()
			waits("a short time ago")
			w.ShootBack = time.Time{}
			w.after(healthTimeout - time.Second)
			waits("a short time ago")
			w.after(time.Second)
			Expect(m.phase()).To(Equal("PoweringOff"))
			Expect(m.record()).NotTo(HaveKey("notBefore"))
		})
		It("X8: does not wait for a time that was noted by a clock that was ahead, or for a request that was withdrawn", func() {
			w.ShootBack = w.now
			w.run()
			w.ShootBack = time.Time{}
			w.now = w.now.Add(-time.Minute)
			w.run()
			waits("a short time ago")
			w.now = w.now.Add(-time.Second)
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))

			start("a")
			w.ShootBack = w.now
			w.run()
			m.unset(needsKey)
			w.run()
			Expect(m.record()).NotTo(HaveKey("notBefore"))
		})
		Describe("X6, X8: a cycle that waits again while another controller, which leads as well, asks for its host", func() {
			BeforeEach(func() {
				m.setReady(false, w.now)
				w.engineAway = true
				w.run()
				Expect(m.phase()).To(Equal("PoweringOff"))
				w.ShootBack = w.now
				w.run()
				waits("a short time ago")
				owner := Owner{Seed: "seed", Namespace: builder.Namespace, Machine: "a", UID: m.obj.UID, Time: w.now, On: "1"}
				m.host.requested, m.host.owner, m.host.cycles = true, &owner, []Cycle{{Machine: m.obj.UID, Began: w.now}}
				w.run()
				Expect(m.host.requested).To(BeFalse())
			})
			It("counts, and its node has time to start", func() {
				w.after(10*time.Minute - time.Second)
				Expect(m.phase()).To(Equal("Waiting"))
				Expect(claim()).To(BeTemporally(">", w.now))
				w.after(time.Second)
				Expect(w.warnings).To(Equal([]string{"PowerCycleOutOfAttempts"}))
				Expect(m.obj.Annotations).NotTo(HaveKey(needsKey))
				Expect(w.steps).NotTo(ContainElement("power off"))
			})
			It("counts although the node says again and again that it is not ready", func() {
				w.after(6 * time.Minute)
				m.setReady(true, w.now)
				m.setReady(false, w.now)
				w.after(4 * time.Minute)
				Expect(w.warnings).To(Equal([]string{"PowerCycleOutOfAttempts"}))
				Expect(w.steps).NotTo(ContainElement("power off"))
			})
			It("does not count any more when the node has run since", func() {
				w.engineAway = false
				m.setReady(true, w.now)
				w.after(5 * time.Minute)
				Expect(m.obj.Annotations).NotTo(HaveKey(needsKey))
				Expect(m.obj.Annotations).NotTo(HaveKey(attemptKey))
				m.setReady(false, w.now)
				m.annotate(needsKey, "")
				w.after(5 * time.Minute)
				Expect(m.phase()).To(Equal("PoweringOff"))
			})
			It("does not count for another request", func() {
				w.engineAway = false
				m.unset(needsKey)
				w.run()
				m.unset(recordKey)
				m.unset(attemptKey)
				w.after(time.Second)
				m.annotate(needsKey, "")
				w.run()
				waits("a short time ago")
				w.after(10 * time.Minute)
				Expect(m.phase()).To(Equal("PoweringOff"))
			})
		})
		It("X8: does not take for unused what somebody has powered on", func() {
			w.run()
			m.host.requested, w.Rollout = false, true
			w.run()
			Expect(m.phase()).To(Equal("Failed"))
			Expect(w.events).To(ContainElement(ContainSubstring("Somebody else has powered the host on")))
			Expect(m.obj.Annotations).To(HaveKeyWithValue(attemptKey, "1"))
			Expect(m.host.owner).To(BeNil())
		})
		It("X3, X8: begins nothing, switches nothing off and makes nothing safe unless the host was read live", func() {
			rest := func(mayPowerOff bool) Decision {
				GinkgoHelper()
				w.engine()
				w.sync()
				d := w.decide()[0]
				Expect(d.Confirm).To(BeTrue())
				Expect(d.ConfirmOthers).To(Equal(mayPowerOff))
				Expect(d.PowerOff).To(BeNil())
				if d.WriteMachine != nil {
					Expect(UnderWay(d.WriteMachine.After.(*machinev1alpha1.Machine))).To(Equal(UnderWay(m.obj)))
				}
				for _, write := range d.WriteNode {
					Expect(tainted(write.After.(*corev1.Node))).To(BeFalse())
				}
				w.look()
				return w.last[0]
			}
			Expect(rest(true).Confirm).To(BeFalse())
			Expect(m.phase()).To(Equal("PoweringOff"))
			Expect(rest(true).PowerOff).NotTo(BeNil())
			m.host.act()
			m.host.report(w.now)
			w.sync()
			w.look()
			Expect(m.phase()).To(Equal("MakingNodeSafe"))
			rest(false)
			Expect(tainted(m.node)).To(BeTrue())
		})
		It("X8: begins nothing, and switches nothing off, while the others are not counted, and looks again", func() {
			w.Uncounted = true
			w.run()
			waits("not known how many nodes")
			Expect(w.last[0].Next).To(Equal(w.now.Add(5 * time.Second)))
			w.Uncounted = false
			w.engine()
			w.sync()
			w.look()
			Expect(m.phase()).To(Equal("PoweringOff"))
			w.Uncounted = true
			w.run()
			Expect(m.host.requested).To(BeFalse())
			Expect(w.last[0].Next).To(Equal(w.now.Add(5 * time.Second)))
			w.Uncounted = false
			w.run()
			Expect(m.host.requested).To(BeTrue())
		})
		It("X8: waits for a health timeout after an outage", func() {
			w.setShootAway(true)
			w.run()
			w.setShootAway(false)
			w.run()
			waits("a short time ago")
			Expect(w.last[0].Next).To(Equal(w.now.Add(healthTimeout)))
			w.after(healthTimeout)
			Expect(m.phase()).To(Equal("PoweringOff"))
		})
		It("X8: waits for another cycle of the MachineDeployment", func() {
			start("b", "a", "c", "d")
			w.run()
			m = w.machines[1]
			m.annotate(needsKey, "")
			w.run()
			waits("As many machines")
			w.machines[0].annotate(preserve, "false")
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
		})
		It("X8: goes on with a machine of a pool with in-place updates", func() {
			w.Rollout, w.InPlace = true, true
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
		})
		DescribeTable("X8: waits while the machine is updated in place", func(update func()) {
			w.Rollout, w.InPlace = true, true
			update()
			w.run()
			waits("being replaced or updated")
		},
			Entry("selected", func() { m.updateInPlace(machinev1alpha1.SelectedForUpdate) }),
			Entry("drained", func() { m.updateInPlace(machinev1alpha1.DrainSuccessful) }),
			Entry("ready for it", func() { m.updateInPlace(machinev1alpha1.ReadyForUpdate) }),
			Entry("as machine-controller-manager says", func() { m.obj.Status.CurrentStatus.Phase = machinev1alpha1.MachineInPlaceUpdating }),
		)
		It("X8: cycles those first that have waited for the longest", func() {
			start("a", "b", "c", "d")
			w.Rollout = true
			m.unset(needsKey)
			for _, i := range []int{2, 1, 3} {
				w.machines[i].annotate(needsKey, "")
				w.after(time.Second)
			}
			w.settings.MaxConcurrent, w.Rollout = 2, false
			w.run()
			Expect([]string{w.machines[1].phase(), w.machines[2].phase(), w.machines[3].phase()}).To(Equal([]string{"PoweringOff", "PoweringOff", "Waiting"}))
		})
		It("X8: confirms that no other one has begun", func() {
			w.sync()
			Expect(w.decide()[0].Confirm).To(BeTrue())
		})
		It("X8: a request alone stops no maintenance, a cycle does", func() {
			m.annotateNode(markKey, "")
			w.run()
			Expect(UnderWay(m.obj)).To(BeFalse())
			m.editNode(func(n *corev1.Node) { delete(n.Annotations, markKey) })
			w.run()
			Expect(UnderWay(m.obj)).To(BeTrue())
			m.annotateNode(markKey, "")
			w.act(m)
			Expect(m.phase()).To(Equal("PoweringOn"))
		})
		It("X14: false ends a cycle: the host is released, and then the claim dropped", func() {
			w.run()
			m.annotate(preserve, "false")
			w.sync()
			w.steps = nil
			w.look()
			Expect(w.steps).To(Equal([]string{"release"}))
			Expect(m.obj.Annotations).To(HaveKey(claimKey))
			w.run()
			Expect(m.phase()).To(Equal("Cancelled"))
			Expect(m.obj.Annotations).NotTo(Or(HaveKey(claimKey), HaveKey(needsKey)))
		})
	})

	Describe("X9: automatic", func() {
		BeforeEach(func() {
			m.unset(needsKey)
			w.settings.Automatic = true
		})
		It("X9: asks once for each failure, from its deadline on", func() {
			m.keepFailed("auto", w.now.Add(-healthTimeout+time.Minute), w.now)
			w.run()
			Expect(w.steps).To(BeEmpty())
			Expect(w.last[0].Next).To(Equal(w.now.Add(time.Minute)))
			w.after(time.Minute)
			Expect(m.phase()).To(Equal("PoweringOff"))
			w.after(10 * time.Minute)
			Expect(m.phase()).To(Equal("Failed"))
			w.after(time.Hour)
			Expect(m.begun).To(Equal(1))
			Expect(m.obj.Annotations).NotTo(HaveKey(needsKey))
		})
		It("X9: waits for the evidence where it is stored, for a minute from when it is being gathered", func() {
			w.Evidence = true
			m.keepFailed("auto", w.now.Add(-healthTimeout), w.now)
			m.annotate(prefix+"evidence", w.now.Add(-24*time.Hour).Format(time.RFC3339)) // of a failure before
			w.run()
			Expect(w.steps).To(BeEmpty())
			Expect(w.last[0].Next).To(Equal(w.now.Add(10 * time.Minute)))
			w.after(3 * time.Minute)
			m.annotate(prefix+"evidence", "gathering since "+w.now.Format(time.RFC3339))
			w.Process = w.now.Add(time.Second)
			w.after(59 * time.Second)
			Expect(w.last[0].Next).To(Equal(w.now.Add(6*time.Minute+time.Second)), "what gathered it is gone")
			w.Process = w.now.Add(-time.Hour)
			w.run()
			Expect(m.phase()).To(BeEmpty())
			Expect(w.last[0].Next).To(Equal(w.now.Add(time.Second)))
			w.after(time.Second)
			Expect(m.phase()).To(Equal("PoweringOff"))
		})
		DescribeTable("X9: waits for no evidence that has not come ten minutes after the failure", func(evidence func() string) {
			w.Evidence = true
			m.keepFailed("auto", w.now.Add(-healthTimeout-10*time.Minute+time.Second), w.now)
			m.annotate(prefix+"evidence", evidence())
			w.run()
			Expect(w.steps).To(BeEmpty())
			Expect(w.last[0].Next).To(Equal(w.now.Add(time.Second)))
			w.after(time.Second)
			Expect(m.phase()).To(Equal("PoweringOff"))
		},
			Entry("as it is not gathered", func() string { return "" }),
			Entry("as it has only just begun", func() string { return "gathering since " + w.now.Format(time.RFC3339) }),
			Entry("as it was that of a failure before", func() string { return "gathering since " + w.now.Add(-24*time.Hour).Format(time.RFC3339) }),
			Entry("as nobody can read since when", func() string { return "gathering since today" }),
		)
		It("X9: does not wait for evidence that is there", func() {
			w.Evidence = true
			m.keepFailed("auto", w.now.Add(-healthTimeout), w.now)
			m.annotate(prefix+"evidence", w.now.Add(-healthTimeout).Format(time.RFC3339))
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
		})
		DescribeTable("X9: does not ask", func(edit func()) {
			m.keepFailed("auto", w.now.Add(-healthTimeout), w.now)
			edit()
			w.run()
			Expect(w.steps).To(BeEmpty())
		},
			Entry("X9: for what a person wanted to see", func() { m.keepFailed("when-failed", w.now.Add(-healthTimeout), w.now) }),
			Entry("X9: where the pool does not want it", func() { w.settings.Automatic = false }),
			Entry("X9: without a host", func() { m.noHost = "none" }),
			Entry("X9: before the machine has failed", func() { m.annotate(prefix+"phase", "Unknown:Preserved") }),
		)
		It("X9: three times a day", func() {
			for i := range 4 {
				m.keepFailed("auto", w.now.Add(-healthTimeout), w.now)
				w.run()
				if i == 3 {
					Expect(m.phase()).To(BeEmpty())
					Expect(w.last[0].Next).To(Equal(builder.Start.Add(25 * time.Hour)))
					break
				}
				Expect(m.phase()).To(Equal("PoweringOff"))
				w.act(m)
				w.act(m)
				w.boot(m)
				w.run()
				m.unset(prefix + "phase")
				beSettled()
				w.after(5 * time.Minute)
			}
			w.now = builder.Start.Add(25 * time.Hour)
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
		})
	})

	Describe("X21: in a storm", func() {
		BeforeEach(func() {
			m.unset(needsKey)
			w.settings.Automatic = true
			w.Storm = facts.Storm{Failing: 4, Machines: 9, Limit: 3, Next: w.now.Add(time.Minute)}
			m.keepFailed("auto", w.now.Add(-healthTimeout), w.now)
		})
		over := func() { w.Storm = facts.Storm{Failing: 3, Machines: 9, Limit: 3} }
		It("X21: asks for nothing by itself, looks again, and asks when it is over", func() {
			w.run()
			Expect(w.steps).To(BeEmpty())
			Expect(w.last[0].Next).To(Equal(w.now.Add(10 * time.Second)))
			w.Storm.Next = w.now.Add(time.Second)
			w.run()
			Expect(w.last[0].Next).To(Equal(w.now.Add(time.Second)))
			over()
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
		})
		It("X21: does not tell of what it would do either", func() {
			w.settings.Automatic, w.settings.DryRun = false, true
			w.run()
			Expect(w.outcomes).To(BeEmpty())
			over()
			w.run()
			Expect(w.outcomes).To(Equal([]string{"DryRun"}))
		})
		It("X21: lets a request of its own wait, says so, and goes on when it is over", func() {
			over()
			m.host.taken = "somebody else works on it"
			w.run()
			Expect(m.phase()).To(Equal("Waiting"))
			m.host.taken, w.Storm.Failing = "", 4
			w.run()
			waits("Too many machines of the shoot fail at the same time")
			over()
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
		})
		It("X21: lets people ask", func() {
			m.annotate(needsKey, "")
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
		})
		It("X21: lets people ask on the Node while a request of its own waits", func() {
			w.AllowNodes = true
			over()
			m.host.taken = "somebody else works on it"
			w.run()
			Expect(m.phase()).To(Equal("Waiting"))
			m.host.taken, w.Storm.Failing = "", 4
			w.run()
			waits("Too many machines of the shoot fail at the same time")
			m.annotateNode(nodeKey, "now")
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
		})
		It("X21: goes on with a cycle that is under way", func() {
			over()
			w.run()
			w.act(m)
			w.Storm.Failing = 4
			w.act(m)
			w.boot(m)
			w.run()
			Expect(m.phase()).To(Equal("Succeeded"))
		})
	})

	It("X9: tells once for each failure what would be done, and does nothing", func() {
		w.settings.DryRun = true
		m.unset(needsKey)
		m.keepFailed("auto", w.now.Add(-healthTimeout), w.now)
		w.run()
		w.after(time.Hour)
		Expect(w.outcomes).To(Equal([]string{"DryRun"}))
		Expect(w.events).To(ConsistOf(HavePrefix("PowerCycleDryRun: The host would be power-cycled")))
		Expect(w.warnings).To(BeEmpty())
		Expect(m.phase()).To(BeEmpty())
		Expect(DryRun(m.obj)).To(Equal(w.now.Add(-time.Hour)))
		w.settings.Automatic, w.settings.DryRun = true, false
		w.run()
		Expect(m.phase()).To(Equal("PoweringOff"), "it is not taken for an answer")
		Expect(DryRun(m.obj)).To(BeZero())
	})

	It("X9: forgets what would be done once the machine is not preserved any more", func() {
		w.settings.DryRun = true
		m.unset(needsKey)
		m.keepFailed("auto", w.now.Add(-healthTimeout), w.now)
		w.run()
		Expect(m.marks()).To(ConsistOf(recordKey))
		m.unset(prefix + "phase")
		m.unset(prefix + "cause")
		w.run()
		Expect(m.marks()).To(BeEmpty())
	})

	Describe("X10: a host is only switched off while its machine is kept", func() {
		It("X10: keeps it also where the health timeout is as long as there is", func() {
			w.Timeouts.Health = math.MaxInt64
			w.run()
			Expect(m.host.requested).To(BeTrue())
			Expect(claim()).To(BeTemporally(">", w.now.AddDate(200, 0, 0)))
		})
		It("X10: waits for that, says so, and fails when the time is over", func() {
			w.engineAway = true
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
			Expect(m.node.Status.Conditions[1].Message).To(ContainSubstring("not preserved for the power cycle yet"))
			w.after(10 * time.Minute)
			Expect(m.host.owner).To(BeNil())
			Expect(w.steps).NotTo(ContainElement("power off"))
			Expect(m.phase()).To(Equal("Failed"))
			Expect(w.events).To(ContainElement(ContainSubstring("not preserved for the power cycle within 10m0s")))
		})
		DescribeTable("X10: what keeps it",
			func(off bool, keep func(map[string]string)) {
				w.engineAway = true
				w.run()
				m.edit(keep)
				w.run()
				Expect(m.host.requested).To(Equal(off))
			},
			Entry("X10: the cycle", true, func(a map[string]string) {
				a[prefix+"cause"], a[prefix+"expiry-time"] = "remediation", a[claimKey]
			}),
			Entry("X10: the cycle and something else", true, func(a map[string]string) {
				a[prefix+"cause"], a[prefix+"expiry-time"] = "auto", a[claimKey]
				a[prefix+"claims"] = "auto=" + a[claimKey] + ",remediation=" + a[claimKey]
			}),
			Entry("X10: something else", false, func(a map[string]string) {
				a[prefix+"cause"], a[prefix+"expiry-time"] = "auto", a[claimKey]
			}),
			Entry("X10: a cycle that was long ago", false, func(a map[string]string) {
				a[prefix+"cause"], a[prefix+"expiry-time"] = "remediation", w.now.Format(time.RFC3339)
			}),
		)
		DescribeTable("X10: operators who forbid it keep a cycle from beginning, and end it",
			func(forbid func()) {
				w.run()
				Expect(m.host.requested).To(BeTrue())
				forbid()
				w.run()
				Expect(m.phase()).To(Equal("Cancelled"))
				Expect(m.host.owner).To(BeNil())
				m.annotate(needsKey, "")
				m.setReady(false, w.now)
				w.settings.MaxAttempts = 2
				w.after(10 * time.Minute)
				waits("The operators forbid")
				Expect(claim()).To(BeZero())
			},
			Entry("X10: for the machine", func() { m.annotate(prefix+"forbidden", "true") }),
			Entry("X10: for all", func() { w.Forbidden = true }),
		)
	})

	It("X10: keeps the machine as long as the deadlines add up to, and one health timeout", func() {
		w.run()
		Expect(claim()).To(Equal(w.now.Add(40 * time.Minute)))
		w.after(5 * time.Minute)
		w.cycle(m)
		Expect(claim()).To(Equal(w.now.Add(35 * time.Minute)))
	})

	Describe("X11: requests on Nodes", func() {
		BeforeEach(func() {
			m.unset(needsKey)
			m.annotateNode(nodeKey, "now")
		})
		It("X11: are taken over where operators allow it", func() {
			w.AllowNodes = true
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
			Expect(m.node.Annotations).NotTo(HaveKey(nodeKey))
		})
		It("X4, X11: are answered by the cycle during which they are made", func() {
			w.AllowNodes = true
			w.run()
			w.act(m)
			w.act(m)
			Expect(m.phase()).To(Equal("Starting"))
			m.annotateNode(nodeKey, "now")
			w.run()
			Expect(m.node.Annotations).NotTo(HaveKey(nodeKey))
			w.boot(m)
			w.run()
			Expect(m.phase()).To(Equal("Succeeded"))
			Expect(m.obj.Annotations).NotTo(HaveKey(needsKey))
		})
		It("X11: wait while a shoot does not let them go", func() {
			w.AllowNodes, m.denied = true, true
			w.run()
			waits("still on the Node")
		})
		It("X11: are refused otherwise", func() {
			w.run()
			Expect(m.phase()).To(BeEmpty())
			Expect(m.node.Annotations).NotTo(HaveKey(nodeKey))
			Expect(w.events).To(ConsistOf(HavePrefix("PowerCycleRefused: ")))
		})
	})

	Describe("X13: proof", func() {
		DescribeTable("X13: a node that comes back",
			func(proven bool, before, after string) {
				m.editNode(func(n *corev1.Node) { n.Status.NodeInfo.BootID = before })
				w.cycle(m)
				m.editNode(func(n *corev1.Node) { n.Status.NodeInfo.BootID = after })
				m.setReady(true, w.now)
				w.run()
				if proven {
					Expect(m.phase()).To(Equal("Succeeded"))
				} else {
					Expect(m.phase()).To(Equal("Starting"))
				}
				Expect(tainted(m.node)).To(Equal(!proven))
				w.after(10 * time.Minute)
				w.after(5 * time.Minute)
				Expect(tainted(m.node)).To(BeFalse(), "not for ever")
			},
			Entry("X13: with another boot id", true, id(1), id(2)),
			Entry("X13: with the old one", false, id(1), id(1)),
			Entry("X13: with nothing that is one", false, id(1), "forged"),
			Entry("X13: with none", false, id(1), ""),
			Entry("X13: in capital letters", false, "a"+id(1)[1:], "A"+id(1)[1:]),
			Entry("X13: without one to be believed before", true, "forged", id(2)),
		)
		It("X13: says that the node was not back", func() {
			w.cycle(m)
			w.after(10 * time.Minute)
			Expect(w.events).To(ContainElement(ContainSubstring("The node was not back within")))
		})
		It("X13: says that the node was never off", func() {
			w.cycle(m)
			m.setReady(true, w.now)
			w.after(10 * time.Minute)
			Expect(w.events).To(ContainElement(ContainSubstring("not rebooted")))
		})
		It("X13: is not enough if the node is not healthy", func() {
			w.cycle(m)
			m.editNode(func(n *corev1.Node) { n.Status.NodeInfo.BootID = id(2) })
			w.run()
			Expect(m.phase()).To(Equal("Starting"))
		})
		Context("while the shoot denies that what the last cycle has left is removed", func() {
			BeforeEach(func() {
				w.cycle(m)
				w.boot(m)
				m.denied = true
				w.run()
				w.after(10 * time.Minute)
				Expect(tainted(m.node)).To(BeTrue())
			})
			It("P14, X15: knows whose the taint is, and no longer than it is there", func() {
				Expect(m.record()).To(HaveKeyWithValue("tainted", true))
				m.denied = false
				w.run()
				Expect(tainted(m.node)).To(BeFalse())
				Expect(m.record()).NotTo(HaveKey("tainted"), "a taint that comes later would be somebody else's")
			})
			It("P14, X4: answers a request", func() {
				m.annotate(needsKey, "")
				w.run()
				Expect(m.phase()).To(Equal("PoweringOff"))
				m.denied = false
				w.act(m)
				w.act(m)
				w.boot(m)
				w.run()
				Expect(m.phase()).To(Equal("Succeeded"))
				Expect(tainted(m.node)).To(BeFalse())
			})
		})
		It("X13: unties the node also if it comes late", func() {
			w.cycle(m)
			w.after(10 * time.Minute)
			Expect(tainted(m.node)).To(BeTrue())
			w.boot(m)
			w.run()
			Expect(m.phase()).To(Equal("Failed"))
			Expect(tainted(m.node)).To(BeFalse())
			beSettled()
		})
	})

	It("X13: has not succeeded before the host is reported on", func() {
		w.cycle(m)
		m.host.other = true
		m.host.act()
		m.host.report(w.now)
		w.boot(m)
		m.host.reported, m.host.on = false, true
		w.boot(m)
		w.run()
		Expect(m.phase()).NotTo(Equal("Succeeded"))
		m.host.other = false
		m.host.report(w.now)
		w.run()
		Expect(m.phase()).To(Equal("Succeeded"))
	})
	It("X13: takes no boot id for a proof that changed before the host was reported off", func() {
		w.run()
		m.editNode(func(n *corev1.Node) { n.Status.NodeInfo.BootID = w.newBootID() })
		w.act(m)
		w.act(m)
		m.setReady(true, w.now)
		w.after(10 * time.Minute)
		Expect(m.phase()).To(Equal("Failed"))
		Expect(w.events).To(ContainElement(ContainSubstring("has not rebooted")))
	})

	Describe("X16: a healthy machine is not powered off", func() {
		dropped := func(note string) {
			GinkgoHelper()
			Expect(w.steps).NotTo(ContainElement("power off"))
			Expect(m.obj.Annotations).NotTo(HaveKey(needsKey))
			Expect(m.obj.Annotations).NotTo(HaveKey(claimKey))
			told := slices.DeleteFunc(slices.Clone(w.events), func(event string) bool { return !strings.HasPrefix(event, "PowerCycleRecovered") })
			Expect(told).To(ConsistOf(ContainSubstring(note)))
		}
		askFailing := func() {
			m.unset(needsKey)
			m.setReady(false, w.now)
			w.run()
			m.annotate(needsKey, "")
		}
		DescribeTable("X16: a request for a machine that has failed goes when it has recovered", func(hinder, heal func()) {
			askFailing()
			hinder()
			w.run()
			w.after(time.Minute)
			Expect(m.phase()).To(Equal("Waiting"))
			m.setReady(true, w.now)
			w.run()
			dropped("has recovered")
			heal()
			w.after(20 * time.Minute)
			dropped("has recovered")
		},
			Entry("X16: while the host is paused", func() { m.host.taken = "it is paused" }, func() { m.host.taken = "" }),
			Entry("X16: while the pool is updated", func() { w.Rollout = true }, func() { w.Rollout = false }),
			Entry("X16: while the host is not known", func() { w.hostsAway = true }, func() { w.hostsAway = false }),
		)
		It("X16: the machine recovers when the cycle has begun, and the host is still on", func() {
			askFailing()
			w.engineAway = true
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
			m.setReady(true, w.now)
			w.engineAway = false
			w.run()
			dropped("has recovered")
			Expect(m.phase()).To(BeEmpty())
		})
		It("X16: the automatic asks again after a cycle that failed, and the node returns", func() {
			w.settings.Automatic, w.settings.MaxAttempts = true, 2
			m.unset(needsKey)
			m.keepFailed("auto", w.now.Add(-healthTimeout), w.now)
			w.run()
			w.act(m)
			m.host.broken = true
			w.after(10 * time.Minute)
			Expect(m.phase()).To(Equal("Failed"))
			m.edit(func(a map[string]string) { a[prefix+"failed-since"] = w.now.Add(-healthTimeout).Format(time.RFC3339) })
			w.run()
			waits("")
			m.host.broken = false
			m.host.act()
			m.host.report(w.now)
			w.boot(m)
			w.run()
			Expect(m.obj.Annotations).NotTo(HaveKey(needsKey))
			w.after(20 * time.Minute)
			Expect(m.host.requested).To(BeFalse())
			Expect(w.outcomes).To(Equal([]string{"Failed"}))
		})
		It("X16: a person asks for a healthy machine, and gets what was asked for", func() {
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
		})
		It("X16: it is not known whether it was healthy when it was asked for, because nobody looked", func() {
			m.unasked = time.Time{}
			w.run()
			dropped("request it again")
		})
		It("X16: a cache that lags says of a machine that is just failing that it is healthy", func() {
			m.unasked = m.node.Status.Conditions[0].LastTransitionTime.Add(59 * time.Second)
			w.run()
			dropped("request it again")
		})
		It("X16: looks again when it is certain that nobody had asked before the machine was healthy", func() {
			m.unset(needsKey)
			w.run()
			m.setReady(false, w.now)
			w.run()
			m.setReady(true, w.now)
			w.run()
			Expect(w.last[0].Next).To(Equal(w.now.Add(time.Minute)))
			w.after(time.Minute)
			Expect(w.last[0].Next).To(BeZero())
			w.now = w.now.Add(time.Hour)
			m.annotate(needsKey, "")
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
		})
		It("X16: the cache says that it has recovered, and it has not", func() {
			askFailing()
			m.host.taken = "it is paused"
			w.run()
			m.stale = true
			w.run()
			waits("it is paused")
		})
		It("X16: takes no checker for a person that asks late, or again and again", func() {
			w.cycle(m)
			w.boot(m)
			w.run()
			Expect(m.phase()).To(Equal("Succeeded"))
			w.steps = nil
			for range 100 {
				w.after(20 * time.Second)
				m.annotate(needsKey, "")
				w.after(20 * time.Second)
			}
			Expect(w.steps).NotTo(ContainElement("power off"))
			Expect(m.obj.Annotations).NotTo(HaveKey(needsKey))
		})
		It("X16: a node that is healthy in the future is so now", func() {
			m.unset(needsKey)
			m.editNode(func(n *corev1.Node) {
				n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(w.now.Add(24 * time.Hour))
			})
			w.run()
			w.after(time.Minute)
			m.annotate(needsKey, "")
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
		})
		It("X6, X16: a cycle that did nothing before the machine recovered does not count", func() {
			askFailing()
			w.engineAway = true
			w.run()
			m.setReady(true, w.now)
			w.engineAway = false
			w.run()
			m.setReady(false, w.now)
			m.annotate(needsKey, "")
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
			Expect(m.obj.Annotations).To(HaveKeyWithValue(attemptKey, "1"))
			Expect(m.record()["cycles"]).To(HaveLen(1))
		})
		It("X16: judges as soon as the shoot answers", func() {
			w.setShootAway(true)
			w.run()
			waits("does not answer")
			w.ShootAway = false
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
		})
		It("X16: forgets for whom a request was that was withdrawn", func() {
			m.host.taken = "it is paused"
			w.run()
			m.unset(needsKey)
			w.run()
			m.setReady(false, w.now)
			m.annotate(needsKey, "")
			w.run()
			m.setReady(true, w.now)
			m.host.taken = ""
			w.run()
			dropped("has recovered")
		})
		It("X16: asks for nothing by itself while the machine is healthy", func() {
			w.settings.Automatic = true
			m.unset(needsKey)
			m.keepFailed("auto", w.now.Add(-healthTimeout), w.now)
			m.setReady(true, w.now)
			w.run()
			Expect(m.marks()).To(BeEmpty())
		})
	})

	Describe("X17: grace after any start of the host", func() {
		It("X17: waits for as long as a node may take to start, whoever switched the host on", func() {
			m.host.changed = w.now.Add(-time.Second)
			w.run()
			waits("powered on a short time ago")
			w.after(10*time.Minute - 2*time.Second)
			waits("powered on a short time ago")
			w.after(time.Second)
			Expect(m.host.requested).To(BeTrue())
		})
		It("X17: steps back if somebody else has rebooted the host since the cycle began", func() {
			w.engineAway = true
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
			m.host.changed = w.now
			w.engineAway = false
			w.run()
			waits("powered on a short time ago")
		})
		It("X17: believes clocks that differ a little", func() {
			m.host.changed = w.now.Add(time.Minute)
			w.after(11*time.Minute - time.Second)
			waits("powered on a short time ago")
			w.after(time.Second)
			Expect(m.host.requested).To(BeTrue())
		})
		It("X17: a clock that is ahead hides no start", func() {
			m.host.taken = "it is paused"
			w.run()
			w.after(20 * time.Minute)
			m.host.taken, m.host.changed = "", w.now.Add(time.Second)
			w.run()
			waits("powered on a short time ago")
		})
		It("X17: counts from the request what is far in the future", func() {
			m.host.changed = w.now.Add(365 * 24 * time.Hour)
			w.run()
			waits("powered on a short time ago")
			w.after(10 * time.Minute)
			Expect(m.host.requested).To(BeTrue())
		})
	})

	Describe("X18: a host that is being serviced", func() {
		DescribeTable("X18: the deadlines stand still, the machine is kept, and the host is left alone", func(phase string, reach func()) {
			m.host.flashes = true
			w.run()
			w.act(m)
			reach()
			w.run()
			Expect(m.phase()).To(Equal(phase))
			m.host.servicing = true
			w.run()
			w.steps = nil
			w.after(time.Hour)
			Expect(m.phase()).To(Equal(phase))
			Expect(claim()).To(BeTemporally(">", w.now))
			Expect(w.steps).To(BeEmpty())
			Expect(w.last[0].Deadline).To(Equal(w.now.Add(time.Hour)))
			Expect(w.last[0].Next).To(Equal(w.now.Add(time.Hour)))

			m.host.servicing, m.contents = false, NodeContents{}
			w.run()
			w.act(m)
			w.act(m)
			w.act(m)
			w.boot(m)
			w.run()
			Expect(w.outcomes).To(Equal([]string{"Succeeded"}))
		},
			Entry("X18: as soon as it is off", "PoweringOff", func() {}),
			Entry("X18: when it is powered on again", "PoweringOn", func() { m.host.servicing = false; w.run() }),
		)
		DescribeTable("X18: has failed if that takes longer than allowed, which is told, and the host is still left alone", func(pass func()) {
			m.host.flashes = true
			w.run()
			w.act(m)
			Expect(w.events).To(ContainElement(And(HavePrefix("PowerCycleServicing"), ContainSubstring("firmware"))))
			pass()
			Expect(m.phase()).To(Equal("Failed"))
			Expect(w.events).To(ContainElement(HavePrefix("PowerCycleFailed: The host was serviced for longer than 2h")))
			Expect(w.warnings).To(Equal([]string{"PowerCycleFailed"}))
			Expect(claim()).To(Equal(w.now.Add(healthTimeout)))
			Expect(w.last[0].Deadline).To(Equal(w.now))
			w.after(time.Hour)
			Expect(m.obj.Annotations).NotTo(HaveKey(claimKey))
			Expect(m.host.requested).To(BeTrue())
			m.host.servicing, w.hostsAway = false, false
			w.run()
			Expect(m.host.requested).To(BeFalse())
		},
			Entry("X18: at a time", func() { w.after(2 * time.Hour) }),
			Entry("X18: again and again", func() {
				for range 2 {
					w.after(50 * time.Minute)
					m.host.servicing = false
					w.sync()
					w.look()
					m.host.servicing = true
					w.run()
				}
				w.after(20 * time.Minute)
			}),
			Entry("X18: as far as is known", func() { w.hostsAway = true; w.sync(); w.after(2 * time.Hour) }),
			Entry("X18: with an error in the middle of it", func() {
				w.after(time.Hour)
				m.host.servicing, m.host.err = false, "the BMC is away"
				w.run()
				m.host.servicing, m.host.err = true, ""
				w.after(time.Hour)
			}),
		)
		It("X2, X18: is released when that is over, also if its machine is being deleted", func() {
			m.host.flashes = true
			w.run()
			w.act(m)
			w.delete(m)
			w.run()
			Expect(m.host.requested).To(BeTrue())
			w.after(time.Minute)
			Expect(m.obj).To(BeNil())
			m.host.servicing = false
			Expect(w.sweep()).To(BeTrue())
			Expect(m.host.requested).To(BeFalse())
		})
		It("X18: none begins meanwhile", func() {
			m.host.servicing = true
			w.run()
			waits("serviced")
		})
	})

	Describe("X20: whose host it is", func() {
		DescribeTable("X20: an owner that got lost is put back, and the cycle goes on", func(reach func()) {
			w.run()
			reach()
			m.host.lost = true
			w.run()
			Expect(w.steps).To(ContainElement("restore"))
			w.act(m)
			w.act(m)
			w.act(m)
			w.boot(m)
			w.run()
			Expect(w.outcomes).To(Equal([]string{"Succeeded"}))
			Expect(m.host.requested).To(BeFalse())
		},
			Entry("X20: while the host is powered off", func() {}),
			Entry("X20: while its node is made safe", func() { m.contents.Pods = 1; w.act(m); m.contents.Pods = 0 }),
		)
		It("X2, X20: an owner that got lost is put back after a cycle that failed, and of a machine that is deleted", func() {
			w.run()
			m.host.lost = true
			w.hostsAway = true
			w.after(10 * time.Minute)
			Expect(m.phase()).To(Equal("Failed"))
			w.hostsAway = false
			w.delete(m)
			w.run()
			Expect(m.obj).To(BeNil())
			Expect(m.host.requested).To(BeFalse())
		})
		It("X14, X20: leaves alone what somebody else keeps off when the cycle is over", func() {
			w.cycle(m)
			w.after(10 * time.Minute)
			Expect(m.phase()).To(Equal("Failed"))
			m.host.requested, m.host.lost, m.host.owner = true, true, &Owner{UID: "other"}
			w.steps = nil
			w.after(time.Hour)
			Expect(w.steps).NotTo(ContainElements("restore"))
			Expect(m.host.requested).To(BeTrue())
		})
		It("X4, X6: has used its attempt up if somebody took the request away from the host, whatever is in the way then", func() {
			w.run()
			m.host.on = false
			m.host.requested, m.host.owner = false, nil
			m.host.act()
			m.host.changed = w.now
			w.run()
			Expect(m.phase()).To(Equal("Failed"))
			w.after(20 * time.Minute)
			Expect(m.host.requested).To(BeFalse())
		})
		It("X6, X20: does not know that the node has not run while nothing is known of it", func() {
			m.host.cycles = []Cycle{{Machine: "before", Began: w.now.Add(-time.Hour)}}
			w.setShootAway(true)
			w.run()
			Expect(m.obj.Annotations).To(HaveKey(needsKey))
		})
		It("X20: does not take for its own what it has not seen there", func() {
			w.engineAway = true
			w.run()
			m.host.requested, m.host.lost, m.host.owner = true, true, &Owner{UID: "other"}
			w.engineAway = false
			w.run()
			Expect(w.steps).NotTo(ContainElement("restore"))
			Expect(m.phase()).To(Equal("Waiting"))
		})
		It("X6, X20: counts what the host has had for another machine, as long as the node of this one has not run", func() {
			m.host.cycles = []Cycle{{Machine: "before", Began: w.now.Add(-time.Hour)}}
			m.editNode(func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(w.now.Add(-time.Minute)) })
			m.setReady(false, w.now)
			w.run()
			Expect(m.obj.Annotations).NotTo(HaveKey(needsKey))
			Expect(w.events).To(ContainElement(HavePrefix("PowerCycleOutOfAttempts: The request for a power cycle was removed, because the host has been power-cycled 1 time")))

			start("a")
			m.host.cycles = []Cycle{{Machine: "before", Began: w.now.Add(-time.Hour)}}
			m.editNode(func(n *corev1.Node) { n.CreationTimestamp = metav1.NewTime(w.now.Add(-5 * time.Minute)) })
			m.setReady(false, w.now)
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
		})
		It("X9, X20: asks for no more than three cycles of a host a day, for whatever machine", func() {
			w.settings.Automatic = true
			m.unset(needsKey)
			first := w.now.Add(-20 * time.Hour)
			for i := range 3 {
				m.host.cycles = append(m.host.cycles, Cycle{Machine: types.UID(fmt.Sprint(i)), Began: first.Add(time.Duration(i) * time.Hour)})
			}
			m.keepFailed("auto", w.now.Add(-healthTimeout), w.now)
			w.run()
			Expect(m.phase()).To(BeEmpty())
			Expect(w.last[0].Next).To(Equal(first.Add(24 * time.Hour)))
			w.after(4 * time.Hour)
			Expect(m.phase()).To(Equal("PoweringOff"))
		})
		It("X20: a node that is ready since a time in the future settles all the same", func() {
			w.cycle(m)
			w.boot(m)
			m.editNode(func(n *corev1.Node) {
				n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(w.now.Add(24 * time.Hour))
			})
			w.run()
			Expect(m.phase()).To(Equal("Succeeded"))
			w.after(5*time.Minute - time.Second)
			Expect(m.phase()).To(Equal("Succeeded"))
			w.after(time.Second)
			Expect(m.phase()).To(BeEmpty())
		})
		It("X5, X20: says what the host's own controller says", func() {
			m.host.err = "no route to the BMC"
			m.host.broken = true
			w.run()
			w.after(10 * time.Minute)
			Expect(w.events).To(ContainElement("PowerCycleFailed: The host was not off within 10m0s. The controller of the host reports: no route to the BMC"))
		})
	})

	Describe("X8: limits of shoot and seed", func() {
		It("X8: begins no more than there may be in the shoot", func() {
			start("a", "b", "c", "d", "e", "f", "g")
			w.settings.MaxConcurrent, w.MaxPerShoot, w.OtherCycles = 3, 2, 1
			for _, m := range w.machines[1:3] {
				m.annotate(needsKey, "")
			}
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
			Expect(w.machines[1].record()["wait"]).To(ContainSubstring("of the shoot are already being power-cycled"))
			w.OtherCycles = 0
			w.run()
			Expect(w.machines[1].phase()).To(Equal("PoweringOff"))
			Expect(w.machines[2].phase()).To(Equal("Waiting"))
			_, awaits := AwaitsGrant(w.machines[2].obj)
			Expect(awaits).To(BeFalse(), "it waits for something else")
		})
		It("X8: begins with a grant only, and uses it up", func() {
			w.NeedsGrant = true
			w.run()
			waits("until the extension allows it")
			since, awaits := AwaitsGrant(m.obj)
			Expect(awaits).To(BeTrue())
			Expect(since).To(Equal(w.now))
			Expect(m.obj.Labels).To(HaveKeyWithValue(prefix+"power-cycle", "true"))
			m.annotate(prefix+"power-cycle-grant", w.now.Format(time.RFC3339))
			w.run()
			waits("until the extension allows it")
			m.annotate(prefix+"power-cycle-grant", w.now.Add(time.Minute).Format(time.RFC3339))
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
			Expect(m.obj.Annotations).NotTo(HaveKey(prefix + "power-cycle-grant"))
		})
		It("X19: is labelled as long as its host may be off, and says until when", func() {
			w.run()
			m.edit(func(map[string]string) { m.obj.Labels = nil })
			w.run()
			Expect(m.obj.Labels).To(HaveKey(prefix + "power-cycle"))
			Expect(OffUntil(m.obj, w.settings)).To(Equal(w.now.Add(10 * time.Minute)))
			w.act(m)
			w.now = w.now.Add(time.Minute)
			w.act(m)
			Expect(OffUntil(m.obj, w.settings)).To(Equal(w.now.Add(10 * time.Minute)))
			w.boot(m)
			w.run()
			Expect(m.obj.Labels).NotTo(HaveKey(prefix + "power-cycle"))
			Expect(OffUntil(m.obj, w.settings)).To(BeZero())
		})
	})

	Describe("X15: the end", func() {
		ended := func() {
			GinkgoHelper()
			Expect(m.host.requested).To(BeFalse())
			Expect(tainted(m.node)).To(BeFalse())
			Expect(m.node.Status.Conditions).To(HaveLen(1))
			Expect(m.obj.Annotations).NotTo(HaveKey(needsKey))
		}
		DescribeTable("X10, X15: releases the host, removes all marks, and keeps the machine while its node is away",
			func(stage func()) {
				w.run()
				stage()
				w.Settings = nil
				w.run()
				ended()
				Expect(m.marks()).To(ConsistOf(claimKey))
				Expect(claim()).To(Equal(w.now.Add(healthTimeout)))
				Expect(w.decide()[0].Next).To(Equal(claim()))
				w.after(healthTimeout)
				Expect(m.marks()).To(BeEmpty())
			},
			Entry("X15: while the host is powered off", func() { m.setReady(false, w.now) }),
			Entry("X15: while the node is made safe", func() { m.contents.Pods = 1; w.act(m) }),
			Entry("X15: while the host is powered on", func() { w.act(m) }),
			Entry("X15: while the node is awaited", func() { w.act(m); w.act(m) }),
			Entry("X15: after a cycle that failed", func() { w.act(m); w.act(m); w.after(10 * time.Minute) }),
			Entry("X15: when nobody has looked for long", func() { w.act(m); w.now = claim().Add(-time.Minute) }),
		)
		DescribeTable("X10: does not keep a machine", func(stage func()) {
			w.run()
			stage()
			w.run()
			ended()
			Expect(m.marks()).To(BeEmpty())
		},
			Entry("X10: whose node is still healthy", func() { w.Settings = nil }),
			Entry("X10: whose node is back", func() {
				w.act(m)
				w.Settings = nil
				w.run()
				w.act(m)
				w.boot(m)
			}),
			Entry("X10: whose node is back when its pool has power cycles again", func() {
				settings := w.Settings
				w.act(m)
				w.Settings = nil
				w.run()
				w.Settings = settings
				w.run()
				Expect(m.marks()).To(ConsistOf(claimKey))
				w.act(m)
				w.boot(m)
			}),
			Entry("X10: that a person no longer wants", func() {
				w.act(m)
				m.annotateNode("node.machine.sapcloud.io/preserve", "false")
				w.Settings = nil
			}),
			Entry("X10: that operators forbid to preserve", func() {
				w.act(m)
				m.annotate(prefix+"forbidden", "true")
				w.Settings = nil
			}),
		)
		DescribeTable("X10: keeps no machine for longer than a node has to start, whatever its health timeout is", func(stage func()) {
			w.Timeouts.Health = 24 * time.Hour
			w.run()
			w.act(m)
			stage()
			w.Settings = nil
			w.run()
			Expect(claim()).To(Equal(w.now.Add(10 * time.Minute)))
			w.after(10 * time.Minute)
			Expect(m.marks()).To(BeEmpty())
		},
			Entry("X10: while the host is powered on", func() {}),
			Entry("X10: after a cycle that failed", func() { w.act(m); w.after(10 * time.Minute); Expect(claim()).To(Equal(w.now.Add(24 * time.Hour))) }),
			Entry("X10: after a cycle that failed, when the next one waits", func() {
				w.settings.MaxAttempts = 2
				w.act(m)
				w.after(10 * time.Minute)
				m.annotateNode(markKey, "")
				m.annotate(needsKey, "")
				w.run()
				Expect(m.phase()).To(Equal("Waiting"))
			}),
			Entry("X10: also if the clock is set back", func() {
				w.Settings = nil
				w.run()
				w.now = w.now.Add(-time.Hour)
			}),
		)
		It("X10: does not keep a machine that was not preserved yet", func() {
			m.setReady(false, w.now)
			w.engineAway = true
			w.run()
			Expect(m.phase()).To(Equal("PoweringOff"))
			w.Settings = nil
			w.run()
			Expect(m.marks()).To(BeEmpty())
		})
		It("X15: leaves a taint like its own to whoever has put it on the node", func() {
			m.editNode(func(n *corev1.Node) {
				n.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/out-of-service", Value: "nodeshutdown", Effect: "NoExecute"}}
			})
			m.host.reported = false
			w.run()
			waits("does not report that it is on")
			w.Settings = nil
			w.run()
			Expect(m.marks()).To(BeEmpty())
			Expect(tainted(m.node)).To(BeTrue())
		})
		It("X15: drops requests that wait, and keeps no machine for them", func() {
			m.setReady(false, w.now)
			m.annotateNode(markKey, "")
			w.run()
			Expect(m.phase()).To(Equal("Waiting"))
			Expect(claim()).NotTo(BeZero())
			w.Settings = nil
			w.run()
			Expect(m.marks()).To(BeEmpty())
		})
		It("X15: remembers what is left as long as it cannot be removed", func() {
			w.act(m)
			w.act(m)
			w.Settings, m.denied = nil, false
			w.setShootAway(true)
			w.run()
			Expect(m.host.requested).To(BeFalse())
			Expect(m.marks()).To(ContainElement(recordKey))
			w.setShootAway(false)
			w.run()
			Expect(m.marks()).To(ConsistOf(claimKey))
		})
		It("X15: leaves requests alone that nobody has taken note of", func() {
			w.Settings = nil
			w.run()
			Expect(w.steps).To(BeEmpty())
		})
	})

	It("X3: takes what cannot be read for nothing", func() {
		w.run()
		m.annotate(recordKey, "{")
		w.run()
		Expect(m.phase()).To(Equal("Failed"))
		Expect(m.host.requested).To(BeFalse())
	})

	Describe("whose record is lost", func() {
		var (
			foreign = func() {
				m.editNode(func(n *corev1.Node) {
					n.Spec.Taints = []corev1.Taint{{Key: "node.kubernetes.io/out-of-service", Value: "nodeshutdown", Effect: "NoExecute"}}
				})
			}
			isMadeSafe = func() {
				m.annotate(needsKey, "")
				w.run()
				m.contents = NodeContents{Pods: 1}
				w.act(m)
				w.run()
				Expect(m.phase()).To(Equal("MakingNodeSafe"))
				Expect(tainted(m.node)).To(BeTrue())
			}
			comma = func() { m.annotate(recordKey, `{"tainted":true,}`) }
			zone  = func() { m.annotate(recordKey, `{"began":"2026-03-01T12:00:00","tainted":true}`) }
			gone  = func() { m.unset(recordKey) }
			all   = func() { m.unset(recordKey); m.unset(phaseKey) }
		)

		DescribeTable("X3, X13: takes its taint off and forgets the cycle", func(lose func()) {
			isMadeSafe()
			lose()
			w.run()
			w.act(m)
			w.boot(m)
			w.after(time.Minute)
			Expect(tainted(m.node)).To(BeTrue(), "it is not settled, and nobody knows which boot id it had")
			w.after(5 * time.Minute)
			Expect(m.healthy()).To(BeTrue())
			Expect(tainted(m.node)).To(BeFalse())
			Expect(m.phase()).To(BeEmpty())
		},
			Entry("with a comma too many", comma),
			Entry("with a time without a zone", zone),
			Entry("altogether", gone),
			Entry("together with the phase", all),
			Entry("because somebody emptied it", func() { m.annotate(recordKey, "{}") }),
		)

		It("X13: takes the boot id of the cycle before for one when the next cycle had to wait again", func() {
			w.settings.MaxAttempts = 2
			isMadeSafe()
			w.after(10 * time.Minute)
			Expect(m.phase()).To(Equal("Failed"))
			w.act(m)
			w.engineAway = true
			m.annotate(needsKey, "")
			m.unset(prefix + "cause")
			w.after(10 * time.Minute)
			Expect(m.phase()).To(Equal("PoweringOff"))
			w.engineAway = false
			m.annotateNode(markKey, "")
			w.run()
			Expect(m.phase()).To(Equal("Waiting"))
			w.boot(m)
			w.after(time.Minute)
			Expect(m.healthy()).To(BeTrue())
			Expect(tainted(m.node)).To(BeFalse())
		})

		It("X13: takes no old boot id for a proof", func() {
			m.host.lies = true
			isMadeSafe()
			gone()
			w.run()
			w.act(m)
			m.setReady(false, w.now)
			w.after(time.Minute)
			m.setReady(true, w.now)
			w.after(time.Second)
			Expect(tainted(m.node)).To(BeTrue())
			w.after(5 * time.Minute)
			Expect(tainted(m.node)).To(BeFalse())
		})

		It("X4, X6: settles a cycle that had failed, and takes the next request", func() {
			isMadeSafe()
			w.after(10 * time.Minute)
			Expect(m.phase()).To(Equal("Failed"))
			w.act(m)
			gone()
			w.run()
			w.boot(m)
			w.after(time.Minute)
			w.after(5 * time.Minute)
			Expect(m.phase()).To(BeEmpty())
			m.annotate(needsKey, "")
			w.after(time.Minute)
			Expect(w.warnings).NotTo(ContainElement("PowerCycleOutOfAttempts"))
		})

		It("X15: leaves the taint of others on the node of a machine that only waits", func() {
			m.annotate(needsKey, "")
			foreign()
			m.host.taken = "x"
			w.run()
			Expect(m.phase()).To(Equal("Waiting"))
			gone()
			w.run()
			Expect(tainted(m.node)).To(BeTrue())
			w.Settings = nil
			w.run()
			Expect(tainted(m.node)).To(BeTrue())
		})

		It("X15: leaves the taint of others after a cycle that never tainted the node is settled", func() {
			m.annotate(needsKey, "")
			w.run()
			w.after(10 * time.Minute)
			Expect(m.phase()).To(Equal("Failed"))
			gone()
			w.run()
			w.after(48 * time.Hour)
			foreign()
			w.after(time.Minute)
			Expect(tainted(m.node)).To(BeTrue())
		})
	})
})

var _ = Describe("ReadSettings", func() {
	deployment := func(value string) *machinev1alpha1.MachineDeployment {
		return &machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{prefix + "power-cycle-settings": value}}}
	}
	It("reads what is set", func() {
		Expect(ReadSettings(deployment(`{"automatic":true,"fencing":"OutOfServiceTaint","maxAttempts":2,"maxConcurrent":3,"powerOffTimeout":"1m","powerOnTimeout":"2m0s","nodeStartupTimeout":"3m"}`))).
			To(PointTo(Equal(Settings{Automatic: true, MaxAttempts: 2, MaxConcurrent: 3, PowerOff: time.Minute, PowerOn: 2 * time.Minute, NodeStartup: 3 * time.Minute})))
	})
	DescribeTable("X9: tells what automatic is", func(value string, automatic, dryRun bool) {
		settings := defaults()
		settings.Automatic, settings.DryRun = automatic, dryRun
		Expect(ReadSettings(deployment(`{"automatic":` + value + `}`))).To(Equal(settings))
	},
		Entry("on", "true", true, false),
		Entry("off", "false", false, false),
		Entry("only told of", `"DryRun"`, false, true),
	)
	It("has the defaults for the rest", func() { Expect(ReadSettings(deployment("{}"))).To(Equal(defaults())) })
	It("has none without the annotation", func() { Expect(ReadSettings(&machinev1alpha1.MachineDeployment{})).To(BeNil()) })
	DescribeTable("refuses", func(value string) {
		_, err := ReadSettings(deployment(value))
		Expect(err).To(MatchError(ContainSubstring("power-cycle-settings")))
	},
		Entry("what is no JSON", "{"),
		Entry("a time of nothing", `{"powerOnTimeout":"0s"}`),
		Entry("another way to make nodes safe", `{"fencing":"DeleteNode"}`),
		Entry("no attempt", `{"maxAttempts":0}`),
		Entry("X9: an automatic that a later version may have", `{"automatic":"Sometimes"}`),
	)
})

var _ = DescribeTable("X9: DryRun tells when a machine would have been power-cycled", func(record string, want time.Time) {
	m := builder.Machine("m")
	if record != "" {
		metav1.SetMetaDataAnnotation(&m.ObjectMeta, recordKey, record)
	}
	Expect(DryRun(m)).To(BeTemporally("==", want))
},
	Entry("never", "", time.Time{}),
	Entry("not", `{"asked":"2026-03-01T12:00:00Z"}`, time.Time{}),
	Entry("then", `{"dryRun":"2026-03-01T12:00:00Z"}`, time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)),
	Entry("nobody knows", "{", time.Time{}),
)

var everything = corev1.Toleration{Operator: "Exists"}

// using returns a pod with a claim of that name, and an ephemeral volume.
func using(claim string, tolerations ...corev1.Toleration) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "p"},
		Spec: corev1.PodSpec{Tolerations: tolerations, Volumes: []corev1.Volume{
			{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}},
			{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}},
			{Name: "other"},
		}},
	}
}

func volume(name, namespace, claim string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PersistentVolumeSpec{ClaimRef: &corev1.ObjectReference{Namespace: namespace, Name: claim}},
	}
}

func tolerating(t corev1.Toleration) corev1.Pod {
	return corev1.Pod{Spec: corev1.PodSpec{Tolerations: []corev1.Toleration{t}}}
}

// id returns a boot id.
func id(i int) string { return fmt.Sprintf("00000000-0000-4000-8000-0000000000%02d", i+50) }
