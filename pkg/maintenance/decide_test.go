// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	v1alpha1preservation "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	markKey   = "machine-preservation.extensions.gardener.cloud/maintenance"
	recordKey = "machine-preservation.extensions.gardener.cloud/maintenance-cordon"
	finalizer = "maintenance.nvidia.com/finalizer"
)

// world is a node, and all that is asked for it. It carries decisions out.
type world struct {
	Facts
	now time.Time
	// refuseNode says that nothing can be written on the node.
	refuseNode bool
	// events are the reasons and notes of all that was told, steps what was written, and last the last decision.
	events, steps []string
	last          Outcome
	evicted       []string
}

func newWorld(maintenances ...*v1alpha1.NodeMaintenance) *world {
	w := &world{now: begin}
	w.Node = builder.Node("n")
	w.PodsKnown = true
	w.Maintenances = maintenances
	return w
}

type maintenanceOption func(*v1alpha1.NodeMaintenance)

// maintenance returns a new object with the defaults of the resource definition.
func maintenance(name string, opts ...maintenanceOption) *v1alpha1.NodeMaintenance {
	nm := &v1alpha1.NodeMaintenance{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name), CreationTimestamp: metav1.NewTime(begin)},
		Spec:       v1alpha1.NodeMaintenanceSpec{RequestorID: "some.one.acme.com", NodeName: "n", Cordon: new(true)},
	}
	for _, opt := range opts {
		opt(nm)
	}
	return nm
}

func draining(spec v1alpha1.DrainSpec) maintenanceOption {
	return func(nm *v1alpha1.NodeMaintenance) { nm.Spec.DrainSpec = &spec }
}

func waiting(spec v1alpha1.WaitForPodCompletionSpec) maintenanceOption {
	return func(nm *v1alpha1.NodeMaintenance) { nm.Spec.WaitForPodCompletion = &spec }
}

func inPhase(phase string) maintenanceOption {
	return func(nm *v1alpha1.NodeMaintenance) { SetPhase(&nm.Status, phase, "", 0, begin) }
}

func uncordoned(nm *v1alpha1.NodeMaintenance) { nm.Spec.Cordon = new(false) }

// schedule does what the scheduler does.
func (w *world) schedule(nm *v1alpha1.NodeMaintenance) {
	GinkgoHelper()
	Expect(NewRequest(w.get(nm), nil).Pending).To(BeTrue(), "is pending")
	SetPhase(&w.get(nm).Status, "Scheduled", "", 0, w.now)
}

// get returns the object as it is now, nil if it is gone.
func (w *world) get(nm *v1alpha1.NodeMaintenance) *v1alpha1.NodeMaintenance {
	i := slices.IndexFunc(w.Maintenances, func(m *v1alpha1.NodeMaintenance) bool { return m.UID == nm.UID })
	if i < 0 {
		return nil
	}
	return w.Maintenances[i]
}

func (w *world) phase(nm *v1alpha1.NodeMaintenance) string { return PhaseOf(w.get(nm)) }

func (w *world) message(nm *v1alpha1.NodeMaintenance) string {
	return meta.FindStatusCondition(w.get(nm).Status.Conditions, "Ready").Message
}

func (w *world) delete(nm *v1alpha1.NodeMaintenance) {
	w.get(nm).DeletionTimestamp = &metav1.Time{Time: w.now}
	w.collect()
}

func (w *world) collect() {
	w.Maintenances = slices.DeleteFunc(w.Maintenances, func(nm *v1alpha1.NodeMaintenance) bool {
		return nm.DeletionTimestamp != nil && len(nm.Finalizers) == 0
	})
}

// step decides once and writes, and returns whether there was something to write, or to be read before.
func (w *world) step() bool {
	before := w.Facts
	w.last = Decide(w.Facts, w.now)
	again := Decide(before, w.now)
	ExpectWithOffset(1, again.Writes).To(Equal(w.last.Writes), "it is decided alike")
	for _, write := range w.last.Writes {
		switch after := write.After.(type) {
		case *corev1.Node:
			if w.refuseNode {
				continue
			}
			if write.Status {
				w.Node.Status = after.Status
			} else {
				status := w.Node.Status
				w.Node = after.DeepCopy()
				w.Node.Status = status
			}
			w.steps = append(w.steps, "node")
		case *v1alpha1.NodeMaintenance:
			nm := w.get(after)
			if write.Status {
				nm.Status = after.Status
				w.steps = append(w.steps, "status of "+nm.Name)
			} else {
				nm.ObjectMeta = after.ObjectMeta
				w.steps = append(w.steps, "meta of "+nm.Name)
			}
		}
	}
	for _, event := range w.last.Events {
		w.events = append(w.events, event.Reason+": "+event.Note)
	}
	w.collect()
	w.EndingSince = w.last.EndingSince
	w.MaintenancesLive = w.MaintenancesLive || w.last.ReadMaintenances
	return len(w.last.Writes) > 0 || w.last.ReadMaintenances
}

// run goes on until there is nothing to do but to wait.
func (w *world) run() {
	GinkgoHelper()
	w.evicted = nil
	for range 40 {
		if w.step() {
			continue
		}
		if w.last.ReadPods {
			w.PodsLive = true
			continue
		}
		for _, action := range w.last.Actions {
			w.evicted = append(w.evicted, action.Pod.Name)
		}
		w.MaintenancesLive, w.PodsLive = false, false
		return
	}
	Fail("it never ends")
}

func (w *world) after(d time.Duration) {
	GinkgoHelper()
	w.now = w.now.Add(d)
	w.run()
}

// scheduled returns a world in which a maintenance went as far as it can.
func scheduled(nm *v1alpha1.NodeMaintenance, pods ...drain.Pod) *world {
	GinkgoHelper()
	w := newWorld(nm)
	w.Pods = pods
	w.run()
	w.schedule(nm)
	w.run()
	return w
}

// nodeConditions are the types of those that tell of a maintenance, with "no " before those that are False.
func (w *world) nodeConditions() []string {
	var types []string
	for _, c := range w.Node.Status.Conditions {
		if !IsNodeCondition(c.Type) {
			continue
		}
		if c.Status == corev1.ConditionFalse {
			types = append(types, "no "+string(c.Type))
			continue
		}
		ExpectWithOffset(1, c.Status).To(Equal(corev1.ConditionTrue))
		types = append(types, string(c.Type))
	}
	return types
}

// beCleaned is a node on which nothing of a maintenance is left.
func beCleaned() gomegatypes.GomegaMatcher {
	return And(
		HaveField("Spec.Unschedulable", false), HaveField("Spec.Taints", BeEmpty()),
		HaveField("Annotations", Not(Or(HaveKey(markKey), HaveKey(recordKey)))), WithTransform(IsMarked, BeFalse()),
	)
}

func beCordonedFor(nm *v1alpha1.NodeMaintenance) gomegatypes.GomegaMatcher {
	return And(
		HaveField("Spec.Unschedulable", true), HaveField("Spec.Taints", BeEmpty()), HaveField("Annotations", HaveKeyWithValue(recordKey, string(nm.UID))),
		WithTransform(CordonedFor, Equal(nm.UID)), WithTransform(IsMarked, BeTrue()),
	)
}

// legacy is a record as earlier versions wrote it.
func legacy(nm *v1alpha1.NodeMaintenance) corev1.Taint {
	return corev1.Taint{Key: markKey, Value: string(nm.UID), Effect: corev1.TaintEffectNoSchedule}
}

func podOf(name string, edit ...func(*drain.Pod)) drain.Pod {
	pod := drain.Pod{Namespace: "shop", Name: name, Managed: true}
	for _, e := range edit {
		e(&pod)
	}
	return pod
}

var _ = Describe("Decide", func() {
	It("M8: should let an object go with its node that something else owns as well", func() {
		nm := maintenance("a", func(nm *v1alpha1.NodeMaintenance) {
			nm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "c", UID: "c"}, {APIVersion: "example.com/v1", Kind: "Node", Name: "n", UID: "n"}}
		})
		w := newWorld(nm)
		w.run()
		Expect(w.phase(nm)).To(Equal("Pending"))
		Expect(w.get(nm).OwnerReferences).To(HaveLen(3))
		Expect(w.get(nm).OwnerReferences).To(ContainElement(metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "node-n"}))
	})

	It("M1, M8: should make a new object pending, and let it go with its node", func() {
		nm := maintenance("a")
		w := newWorld(nm)
		w.run()
		Expect(w.phase(nm)).To(Equal("Pending"))
		Expect(w.get(nm).OwnerReferences).To(ConsistOf(metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: "n", UID: "node-n"}))
		Expect(w.events).To(ConsistOf("ConditionChanged: Pending"))
		Expect(w.nodeConditions()).To(ConsistOf("MaintenancePlanned"))
		Expect(w.Node.Spec.Unschedulable).To(BeFalse())
		Expect(w.Node.Annotations).NotTo(HaveKey(markKey))
		w.delete(nm)
		w.run()
		Expect(w.Node).To(beCleaned())
	})

	DescribeTable("M1, M15, M17: what stays pending, and why", func(edit func(*world, *v1alpha1.NodeMaintenance), message string) {
		nm := maintenance("a")
		w := newWorld(nm)
		edit(w, nm)
		w.run()
		Expect(w.phase(nm)).To(Equal("Pending"))
		Expect(w.message(nm)).To(ContainSubstring(message))
		Expect(w.events).To(ContainElement(HavePrefix("MaintenanceRefused: ")))
		chosen := []Request{}
		if w.Node != nil {
			node := ScheduledNode{Name: "n", UID: w.Node.UID, Excluded: w.Machine.Excludes()}
			chosen, _ = Schedule([]ScheduledNode{node}, []Request{NewRequest(w.get(nm), w.Namespaces)}, limits("0", "", 1))
		}
		Expect(chosen).To(BeEmpty())
		if w.Node != nil {
			Expect(w.Node).To(beCleaned())
		}
		told := len(w.events)
		w.run()
		Expect(w.events).To(HaveLen(told), "once")
	},
		Entry("no node", func(w *world, _ *v1alpha1.NodeMaintenance) { w.Node = nil }, "Node n does not exist"),
		Entry("another node of that name", func(_ *world, nm *v1alpha1.NodeMaintenance) {
			nm.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Node", Name: "n", UID: "before"}}
		}, "Node n does not exist"),
		Entry("a bad selector of pods to wait for", func(_ *world, nm *v1alpha1.NodeMaintenance) {
			nm.Spec.WaitForPodCompletion = &v1alpha1.WaitForPodCompletionSpec{PodSelector: "a in"}
		}, `spec.waitForPodCompletion.podSelector "a in" cannot be read`),
		Entry("a bad selector of pods to drain", func(_ *world, nm *v1alpha1.NodeMaintenance) {
			nm.Spec.DrainSpec = &v1alpha1.DrainSpec{PodSelector: "!"}
		}, `spec.drainSpec.podSelector "!" cannot be read`),
		Entry("a bad regular expression", func(_ *world, nm *v1alpha1.NodeMaintenance) {
			nm.Spec.DrainSpec = &v1alpha1.DrainSpec{PodEvictionFilters: []v1alpha1.PodEvictionFilterEntry{{ByResourceNameRegex: "gpu"}, {ByResourceNameRegex: "("}}}
		}, "spec.drainSpec.podEvictionFilters[1].byResourceNameRegex \"(\" cannot be used"),
		Entry("a missing regular expression", func(_ *world, nm *v1alpha1.NodeMaintenance) {
			nm.Spec.DrainSpec = &v1alpha1.DrainSpec{PodEvictionFilters: []v1alpha1.PodEvictionFilterEntry{{}}}
		}, "spec.drainSpec.podEvictionFilters[0].byResourceNameRegex must be set"),
		Entry("an expression that takes too much", func(_ *world, nm *v1alpha1.NodeMaintenance) {
			nm.Spec.DrainSpec = &v1alpha1.DrainSpec{PodEvictionFilters: []v1alpha1.PodEvictionFilterEntry{{ByResourceNameRegex: "((a{100}){100}){100}"}}}
		}, "cannot be used"),
		Entry("a requestor that the resource definition should not have let pass", func(_ *world, nm *v1alpha1.NodeMaintenance) { nm.Spec.RequestorID = "a b" }, "spec.requestorID"),
		Entry("more requestors than the resource definition should have let pass", func(_ *world, nm *v1alpha1.NodeMaintenance) {
			nm.Spec.AdditionalRequestors = make([]string, v1alpha1.MaxAdditionalRequestors+1)
		}, "spec.additionalRequestors has more than 100 entries"),
		Entry("a namespace that is not taken", func(w *world, _ *v1alpha1.NodeMaintenance) { w.Namespaces = Namespaces{"ops"} }, "in this namespace have no effect"),
		Entry("no machine", func(w *world, _ *v1alpha1.NodeMaintenance) { w.Machine.Missing = true }, "no Machine"),
		Entry("a machine that is on its way out", func(w *world, _ *v1alpha1.NodeMaintenance) { w.Machine.Terminating = true }, "being terminated"),
		Entry("an update in place", func(w *world, _ *v1alpha1.NodeMaintenance) { w.Machine.UpdatedInPlace = true }, "updated in place"),
		Entry("a rolling update", func(w *world, _ *v1alpha1.NodeMaintenance) { w.Machine.Rolling = true }, "being replaced"),
		Entry("hibernation", func(w *world, _ *v1alpha1.NodeMaintenance) { w.Machine.Hibernating = true }, "being removed"),
		Entry("a host that is power-cycled", func(w *world, _ *v1alpha1.NodeMaintenance) { w.Machine.PowerCycled = true }, "power-cycled"),
		Entry("a phase that is not known", func(w *world, _ *v1alpha1.NodeMaintenance) { w.Machine.PhaseNotKnown = true }, "does not know"),
	)

	It("M2, M3, M6, M12: should go through all phases, each write after what must be there before", func() {
		nm := maintenance("a", waiting(v1alpha1.WaitForPodCompletionSpec{}), draining(v1alpha1.DrainSpec{}))
		w := newWorld(nm)
		w.run()
		w.steps = nil
		w.schedule(nm)
		w.run()
		Expect(w.steps[:2]).To(HaveExactElements("meta of a", "node"))
		Expect(w.phase(nm)).To(Equal("Ready"))
		Expect(w.events).To(HaveExactElements("ConditionChanged: Pending", "ConditionChanged: Cordon", "ConditionChanged: WaitForPodCompletion", "ConditionChanged: Draining", "ConditionChanged: Ready"))
		Expect(meta.IsStatusConditionTrue(w.get(nm).Status.Conditions, "Ready")).To(BeTrue())
		Expect(w.get(nm).Finalizers).To(ConsistOf(finalizer))
		Expect(w.get(nm).Annotations).To(And(
			HaveKeyWithValue("maintenance.nvidia.com/ready-time", "2026-03-01T12:00:00Z"),
			HaveKeyWithValue("maintenance.nvidia.com/wait-pod-completion-start-time", "2026-03-01T12:00:00Z"),
			HaveKeyWithValue("maintenance.nvidia.com/node-initial-state.unschedulable", "false"),
		))
		Expect(w.Node).To(beCordonedFor(nm))
		Expect(w.Node.Annotations).To(HaveKeyWithValue(markKey, "2026-03-01T12:00:00Z"))
		Expect(w.nodeConditions()).To(ConsistOf("Drained", "MaintenanceInProgress"))
		Expect(w.last.WatchPods).To(BeFalse())

		w.delete(nm)
		w.run()
		Expect(w.Maintenances).To(BeEmpty())
		Expect(w.Node).To(beCleaned())
	})

	It("M2: should do nothing to a node as long as the finalizer cannot be written", func() {
		nm := maintenance("a")
		w := newWorld(nm)
		w.run()
		w.schedule(nm)
		outcome := Decide(w.Facts, w.now)
		Expect(outcome.Writes).To(HaveLen(1))
		Expect(outcome.Writes[0].After.GetFinalizers()).To(ConsistOf(finalizer))
	})

	It("M16: should tell of each phase on the node, and leave conditions of others alone", func() {
		nm := maintenance("a", waiting(v1alpha1.WaitForPodCompletionSpec{PodSelector: "wait"}), draining(v1alpha1.DrainSpec{PodSelector: "go"}))
		w := scheduled(nm, podOf("w", func(p *drain.Pod) { p.Labels = map[string]string{"wait": ""} }), podOf("g", func(p *drain.Pod) { p.Labels = map[string]string{"go": ""} }))
		Expect(w.nodeConditions()).To(ConsistOf("MaintenancePlanned"))
		w.Pods = w.Pods[1:]
		w.run()
		Expect(w.nodeConditions()).To(ConsistOf("DrainInProgress"))
		Expect(w.Node.Status.Conditions).To(ContainElement(And(HaveField("Type", corev1.NodeConditionType("DrainInProgress")), HaveField("Message", ContainSubstring("default/a of some.one.acme.com")))))
		builder.Condition("MaintenancePlanned", corev1.ConditionTrue, "Other", "of somebody else")(w.Node)
		w.Pods = nil
		w.run()
		Expect(w.nodeConditions()).To(ConsistOf("MaintenancePlanned", "MaintenanceInProgress", "Drained"))
		w.delete(nm)
		w.run()
		Expect(w.nodeConditions()).To(ConsistOf("MaintenancePlanned"))
	})

	DescribeTable("M3, D13, M16: should take nothing back from a node because of maintenances that a cache has not followed", func(opts ...maintenanceOption) {
		nm := maintenance("a", append(opts, waiting(v1alpha1.WaitForPodCompletionSpec{PodSelector: "wait"}), draining(v1alpha1.DrainSpec{}))...)
		w := scheduled(nm, podOf("w", func(p *drain.Pod) { p.Labels = map[string]string{"wait": ""} }), podOf("g"))
		w.DrainConditions = true
		phases := []string{"Pending", "Scheduled", "WaitForPodCompletion", "Draining", "Ready"}
		for i, phase := range phases[2:] {
			Expect(w.phase(nm)).To(Equal(phase))
			live, node := w.get(nm).DeepCopy(), w.Node.DeepCopy()
			for _, before := range phases[:i+2] {
				SetPhase(&w.get(nm).Status, before, "", 0, w.now)
				outcome := Decide(w.Facts, w.now)
				Expect(outcome.Writes).NotTo(ContainElement(HaveField("Before", BeAssignableToTypeOf(node))), before)
				Expect(outcome.ReadMaintenances).To(Equal(before != "Scheduled" || phase != "WaitForPodCompletion"), "the node shows no difference of these")
			}
			w.Maintenances = []*v1alpha1.NodeMaintenance{live}
			w.run()
			Expect(w.Node).To(Equal(node))
			w.Pods = w.Pods[min(1, len(w.Pods)):]
			w.run()
		}
	},
		Entry("with a cordon"),
		Entry("without one", maintenanceOption(uncordoned)),
	)

	DescribeTable("M16: should tell of no drain where there is none, and change conditions once", func(drainConditions bool) {
		nm := maintenance("a")
		w := newWorld(nm)
		w.DrainConditions = drainConditions
		w.run()
		w.schedule(nm)
		var shown [][]string
		for w.step() {
			shown = append(shown, w.nodeConditions())
		}
		Expect(slices.CompactFunc(shown, slices.Equal)).To(Equal([][]string{{"MaintenancePlanned"}, {"MaintenanceInProgress"}}))
		w.get(nm).Spec.DrainSpec = &v1alpha1.DrainSpec{}
		w.run()
		Expect(w.nodeConditions()).To(ConsistOf("MaintenanceInProgress"), "nothing has been drained")
	},
		Entry("where only maintenances are shown", false),
		Entry("D13: where all drains are", true),
	)

	It("M16: should tell of a maintenance without a drain while its node is open", func() {
		nm := maintenance("a")
		w := newWorld(nm)
		w.run()
		w.schedule(nm)
		for w.phase(nm) != "Draining" {
			w.step()
		}
		w.Node.Spec.Unschedulable = false
		w.CordonAfter = w.now.Add(time.Minute)
		w.run()
		Expect(w.phase(nm)).To(Equal("Draining"))
		Expect(w.nodeConditions()).To(ConsistOf("MaintenancePlanned"))
	})

	Describe("what others see of its drain", func() {
		var (
			nm *v1alpha1.NodeMaintenance
			w  *world
			// said checks of whom the conditions are that tell of a drain.
			said = func(reason string) {
				GinkgoHelper()
				for _, c := range w.Node.Status.Conditions {
					if drain.IsCondition(c.Type) {
						Expect(c.Reason).To(Equal(reason))
					}
				}
			}
			kubectl = func(inProgress, drained corev1.ConditionStatus, reason string) {
				builder.Condition("DrainInProgress", inProgress, reason, "")(w.Node)
				builder.Condition("Drained", drained, reason, "")(w.Node)
			}
			// start has the maintenance drain its node, on which a pod is left, once somebody has done something to that.
			start = func(before func(*world)) {
				GinkgoHelper()
				nm = maintenance("a", draining(v1alpha1.DrainSpec{}))
				w = newWorld(nm)
				w.Pods, w.DrainConditions = []drain.Pod{podOf("g")}, true
				before(w)
				w.run()
				w.schedule(nm)
				w.run()
				Expect(w.phase(nm)).To(Equal("Draining"))
			}
			nothing = func(*world) {}
			finish  = func() {
				GinkgoHelper()
				w.Pods = nil
				w.run()
				Expect(w.phase(nm)).To(Equal("Ready"))
			}
		)

		It("D13, M16: should be as that of other drains, if that is wanted", func() {
			start(nothing)
			Expect(w.nodeConditions()).To(ConsistOf("DrainInProgress", "no Drained"))
			said("NodeMaintenance")
			finish()
			Expect(w.nodeConditions()).To(ConsistOf("no DrainInProgress", "Drained", "MaintenanceInProgress"))
			w.delete(nm)
			w.run()
			Expect(w.Node).To(beCleaned())
		})

		It("D13, M16: should be that of the preservation when the maintenance is over", func() {
			start(nothing)
			finish()
			builder.Condition("Preserved", corev1.ConditionTrue, "Draining", "")(w.Node)
			w.run()
			said("NodeMaintenance")
			w.delete(nm)
			w.run()
			said("MachinePreservation")
			Expect(w.nodeConditions()).To(ConsistOf("DrainInProgress", "no Drained"))
		})

		It("D13, M16: should be nothing where nothing is drained", func() {
			nm = maintenance("a")
			w = newWorld(nm)
			w.DrainConditions = true
			w.run()
			w.schedule(nm)
			w.run()
			Expect(w.nodeConditions()).To(ConsistOf("MaintenanceInProgress"))
		})

		It("D13: should be written once at the begin and once at the end, whatever somebody takes away", func() {
			start(nothing)
			remove := func() {
				w.Node.Status.Conditions = slices.DeleteFunc(w.Node.Status.Conditions, func(c corev1.NodeCondition) bool { return drain.IsCondition(c.Type) })
				w.run()
			}
			remove()
			Expect(w.nodeConditions()).To(BeEmpty())
			finish()
			Expect(w.nodeConditions()).To(ConsistOf("no DrainInProgress", "Drained", "MaintenanceInProgress"))
			remove()
			Expect(w.nodeConditions()).To(ConsistOf("MaintenanceInProgress"))
		})

		It("D13: should be what a maintenance without the setting shows as soon as it is switched off, and the rest once the drain goes on", func() {
			start(nothing)
			w.DrainConditions = false
			w.run()
			Expect(w.nodeConditions()).To(ConsistOf("DrainInProgress"))
			w.DrainConditions = true
			w.run()
			Expect(w.nodeConditions()).To(ConsistOf("DrainInProgress"))
			finish()
			Expect(w.nodeConditions()).To(ConsistOf("no DrainInProgress", "Drained", "MaintenanceInProgress"))
			w.DrainConditions = false
			w.run()
			Expect(w.nodeConditions()).To(ConsistOf("Drained", "MaintenanceInProgress"))
		})

		DescribeTable("D13, M16: should leave what somebody else says who drains the node, too", func(all, before bool) {
			start(func(w *world) {
				w.DrainConditions = all
				if before {
					kubectl("False", "True", "KubectlDrainCompleted")
				}
			})
			if before {
				said("KubectlDrainCompleted")
			} else {
				said("NodeMaintenance")
			}
			kubectl("True", "False", "KubectlDrainStarted")
			w.run()
			said("KubectlDrainStarted")
			finish()
			said("KubectlDrainStarted")
			kubectl("False", "True", "KubectlDrainCompleted")
			w.run()
			w.delete(nm)
			w.run()
			Expect(w.nodeConditions()).To(ConsistOf("no DrainInProgress", "Drained"))
			said("KubectlDrainCompleted")
			Expect(Clean(w.Node)).To(BeEmpty())
		},
			Entry("where drains are shown", true, false),
			Entry("where drains are shown, and theirs was there before", true, true),
			Entry("where only maintenances are", false, false),
			Entry("where only maintenances are, and theirs was there before", false, true),
		)

		It("D13: should be refused if somebody else has written meanwhile", func() {
			start(nothing)
			w.Pods = nil
			for w.step() {
				for _, write := range w.last.Writes {
					if node, ok := write.After.(*corev1.Node); ok && write.Status {
						Expect(write.Lock).To(Equal(drain.Touches(write.Before.(*corev1.Node), node)))
					}
				}
			}
			writes := Clean(w.Node)
			Expect(writes).To(HaveEach(HaveField("Lock", true)))
			Expect(writes[len(writes)-1].Status).To(BeTrue())
		})
	})

	DescribeTable("M12: should say what becomes of the machine if the node fails", func(hold Hold, text string) {
		nm := maintenance("a")
		w := newWorld(nm)
		w.Machine.Hold = hold
		w.run()
		w.schedule(nm)
		w.run()
		Expect(w.phase(nm)).To(Equal("Ready"))
		Expect(w.message(nm)).To(Equal("The node is ready for the requestor." + text))
	},
		Entry("it is preserved", Hold{Until: begin.Add(time.Hour), Why: "x"}, " If the node fails, its machine is preserved until 2026-03-01T13:00:00Z."),
		Entry("it is not", Hold{Why: "operators forbid it"}, " If the node fails, the maintenance does not preserve its machine, because operators forbid it."),
		Entry("nobody knows", Hold{}, ""),
	)

	DescribeTable("M14: which nodes are unavailable", func(unavailable bool, opts ...builder.NodeOption) {
		Expect(IsUnavailable(builder.Node("n", opts...))).To(Equal(unavailable))
	},
		Entry("not one that is ready", false),
		Entry("not one with a taint of others", false, builder.Taint("some", begin)),
		Entry("one that takes no pods", true, func(n *corev1.Node) { n.Spec.Unschedulable = true }),
		Entry("one that is not ready", true, builder.NotReady),
		Entry("that of a failed machine that is preserved", true, builder.Taint(v1alpha1preservation.TaintPreserved, begin)),
	)

	Describe("M3: cordon", func() {
		It("M3: should leave a node cordoned that was cordoned before", func() {
			nm := maintenance("a")
			w := newWorld(nm)
			w.Node.Spec.Unschedulable = true
			w.run()
			w.schedule(nm)
			w.run()
			Expect(w.phase(nm)).To(Equal("Ready"))
			Expect(w.get(nm).Annotations).To(HaveKeyWithValue("maintenance.nvidia.com/node-initial-state.unschedulable", "true"))
			Expect(w.Node.Annotations).NotTo(HaveKey(recordKey))
			w.delete(nm)
			w.run()
			Expect(w.Node.Spec.Unschedulable).To(BeTrue())
			Expect(IsMarked(w.Node)).To(BeFalse())
		})

		It("M3, M5: should cordon a node that was cordoned before and is opened meanwhile, and undo no more than that", func() {
			nm := maintenance("a", draining(v1alpha1.DrainSpec{}))
			w := newWorld(nm)
			w.Pods = []drain.Pod{podOf("a")}
			w.Node.Spec.Unschedulable = true
			w.run()
			w.schedule(nm)
			w.run()
			Expect(w.phase(nm)).To(Equal("Draining"))
			Expect(w.Node.Annotations).NotTo(HaveKey(recordKey))

			w.Node.Spec.Unschedulable = false
			w.CordonAfter = w.now.Add(time.Minute)
			w.run()
			Expect(w.Node.Spec.Unschedulable).To(BeFalse(), "not before its time")
			Expect(w.evicted).To(BeEmpty(), "others would come")
			w.now = w.CordonAfter
			Expect(w.step()).To(BeTrue())
			Expect(w.last.PutBack).To(BeTrue())
			Expect(w.Node).To(beCordonedFor(nm))
			w.Pods = nil
			w.run()
			Expect(w.phase(nm)).To(Equal("Ready"))
			Expect(w.get(nm).Annotations).To(HaveKeyWithValue("maintenance.nvidia.com/node-initial-state.unschedulable", "true"), "what was found")
			w.delete(nm)
			w.run()
			Expect(w.Node).To(beCleaned(), "as it was before we cordoned it")
		})

		It("M3: should not cordon where that is not wanted, and honour a change of that at once", func() {
			nm := maintenance("a", uncordoned)
			w := scheduled(nm)
			Expect(w.phase(nm)).To(Equal("Ready"))
			Expect(w.Node.Spec.Unschedulable).To(BeFalse())
			w.get(nm).Spec.Cordon = nil
			w.run()
			Expect(w.Node).To(beCordonedFor(nm))
			w.get(nm).Spec.Cordon = new(false)
			w.run()
			Expect(w.Node).To(And(HaveField("Spec.Unschedulable", false), HaveField("Annotations", Not(HaveKey(recordKey)))))
		})

		It("M3: should put a cordon back that has vanished, but not before its time", func() {
			nm := maintenance("a")
			w := scheduled(nm)
			w.CordonAfter = w.now.Add(time.Minute)
			w.Node.Spec.Unschedulable = false
			w.run()
			Expect(w.Node.Spec.Unschedulable).To(BeFalse())
			Expect(w.last.Next).To(Equal(w.CordonAfter))
			w.now = w.CordonAfter
			Expect(w.step()).To(BeTrue())
			Expect(w.last.PutBack).To(BeTrue())
			Expect(w.Node).To(beCordonedFor(nm))
			w.run()
			Expect(w.last.PutBack).To(BeFalse())

			w.Node.Spec.Unschedulable = false
			delete(w.Node.Annotations, recordKey)
			w.run()
			Expect(w.Node).To(beCordonedFor(nm))
		})

		DescribeTable("V1 M7: should taint a node in the very write in which it is given back", func(edit func(*world), tainted bool) {
			nm := maintenance("a")
			w := scheduled(nm)
			w.Machine.Validated = true
			edit(w)
			w.delete(nm)
			for range 10 {
				was := w.Node.Spec.Unschedulable
				if !w.step() {
					break
				}
				if was && !w.Node.Spec.Unschedulable {
					Expect(v1alpha1preservation.IsTainted(w.Node)).To(Equal(tainted))
				}
			}
			Expect(w.Node.Annotations).NotTo(Or(HaveKey(markKey), HaveKey(recordKey)))
			Expect(v1alpha1preservation.IsTainted(w.Node)).To(Equal(tainted))
		},
			Entry("where the pool wants a proof", func(*world) {}, true),
			Entry("not where it does not", func(w *world) { w.Machine.Validated = false }, false),
			Entry("not where the machine is terminated", func(w *world) { w.Machine.Terminating = true }, false),
			Entry("not where the machines are replaced", func(w *world) { w.Machine.Rolling = true }, false),
			Entry("not where nobody has had the node", func(w *world) { w.Node.Status.Conditions = w.Node.Status.Conditions[:1] }, false),
			Entry("also where nobody has had the node, but its machine was to be validated before", func(w *world) {
				w.Node.Status.Conditions, w.Machine.Unvalidated = w.Node.Status.Conditions[:1], true
			}, true),
		)

		It("M3: should keep no pod of a DaemonSet away that tolerates what Kubernetes makes it tolerate", func() {
			w := scheduled(maintenance("a"))
			Expect(w.Node.Spec.Unschedulable).To(BeTrue())
			Expect(w.Node.Spec.Taints).To(BeEmpty())
		})

		DescribeTable("M3: should carry on what an earlier version has recorded, and leave nothing of its taint", func(edit func(*world), match func(*v1alpha1.NodeMaintenance) gomegatypes.GomegaMatcher) {
			nm := maintenance("a")
			w := scheduled(nm)
			other := corev1.Taint{Key: "other", Effect: corev1.TaintEffectNoSchedule}
			delete(w.Node.Annotations, recordKey)
			w.Node.Spec.Taints = []corev1.Taint{other, legacy(nm)}
			Expect(CordonedFor(w.Node)).To(Equal(nm.UID))
			if edit != nil {
				edit(w)
			}
			w.steps = nil
			w.run()
			Expect(w.Node.Spec.Taints).To(ConsistOf(other))
			w.Node.Spec.Taints = nil
			Expect(w.Node).To(match(nm))
			if len(w.Maintenances) > 0 {
				Expect(w.steps).To(HaveExactElements("node"), "one write")
				Expect(w.last.PutBack).To(BeFalse())
				w.delete(nm)
				w.run()
				Expect(w.Node).To(beCleaned())
			}
		},
			Entry("as it was left", nil, beCordonedFor),
			Entry("uncordoned meanwhile", func(w *world) { w.Node.Spec.Unschedulable = false }, beCordonedFor),
			Entry("recorded in both ways, and uncordoned by a version in between", func(w *world) { w.Node.Annotations[recordKey] = "uid-a" }, beCordonedFor),
			Entry("a maintenance that does not want a cordon any more", func(w *world) { w.Maintenances[0].Spec.Cordon = new(false) },
				func(*v1alpha1.NodeMaintenance) gomegatypes.GomegaMatcher {
					return And(HaveField("Spec.Unschedulable", false), WithTransform(CordonedFor, BeEmpty()))
				}),
			Entry("one that is gone", func(w *world) { w.Maintenances = nil }, func(*v1alpha1.NodeMaintenance) gomegatypes.GomegaMatcher { return beCleaned() }),
			Entry("one that is deleted", func(w *world) { w.delete(w.Maintenances[0]) }, func(*v1alpha1.NodeMaintenance) gomegatypes.GomegaMatcher { return beCleaned() }),
		)

		It("M3: should hand a node over that an earlier version has cordoned", func() {
			one, two := maintenance("a"), maintenance("b")
			w := scheduled(one)
			delete(w.Node.Annotations, recordKey)
			w.Node.Spec.Taints = []corev1.Taint{legacy(one)}
			w.Maintenances = append(w.Maintenances, two)
			w.run()
			w.delete(one)
			w.schedule(two)
			for w.step() {
				Expect(w.Node.Spec.Unschedulable).To(BeTrue())
			}
			Expect(w.Node).To(beCordonedFor(two))
			Expect(w.get(two).Annotations).To(HaveKeyWithValue("maintenance.nvidia.com/node-initial-state.unschedulable", "false"))
		})

		It("M3: should leave a cordon to whoever takes the record from it", func() {
			nm := maintenance("a")
			w := scheduled(nm)
			delete(w.Node.Annotations, recordKey)
			w.run()
			Expect(w.Node.Annotations).NotTo(HaveKey(recordKey))
			w.delete(nm)
			w.run()
			Expect(w.Node.Spec.Unschedulable).To(BeTrue())
		})

		It("M3: should not take the cordon of somebody who was faster for its own", func() {
			nm := maintenance("a")
			w := newWorld(nm)
			w.run()
			w.schedule(nm)
			for w.get(nm).Annotations["maintenance.nvidia.com/node-initial-state.unschedulable"] == "" {
				Expect(w.step()).To(BeTrue())
			}
			w.Node.Spec.Unschedulable = true
			w.run()
			Expect(w.phase(nm)).To(Equal("Ready"))
			w.delete(nm)
			w.run()
			Expect(w.Node.Spec.Unschedulable).To(BeTrue())
		})

		Describe("M3: pods that got in while the node was not cordoned", func() {
			var (
				nm  *v1alpha1.NodeMaintenance
				w   *world
				web = func(p *drain.Pod) { p.Labels = map[string]string{"app": "web"} }
			)

			BeforeEach(func() {
				nm = maintenance("a", draining(v1alpha1.DrainSpec{PodSelector: "app=web"}))
				w = scheduled(nm)
				Expect(w.phase(nm)).To(Equal("Ready"))
				w.now = w.now.Add(time.Hour)
			})

			uncordon := func(pods ...drain.Pod) {
				w.Node.Spec.Unschedulable = false
				w.Pods = pods
			}
			ready := func() {
				GinkgoHelper()
				Expect(w.phase(nm)).To(Equal("Ready"))
				condition := meta.FindStatusCondition(w.get(nm).Status.Conditions, "Ready")
				Expect(condition.Status).To(Equal(metav1.ConditionTrue))
				Expect(condition.LastTransitionTime.Time).To(BeTemporally("==", begin), "M9: it is so since it became so")
				Expect(w.get(nm).Annotations).To(HaveKeyWithValue("maintenance.nvidia.com/ready-time", "2026-03-01T12:00:00Z"))
			}

			DescribeTable("M3, M16: should evict them by the same plan, and say so, while the requestor works on", func(drainConditions bool) {
				w.DrainConditions = drainConditions
				w.run()
				before := w.nodeConditions()
				uncordon(podOf("late", web), podOf("other"), podOf("driver", web, func(p *drain.Pod) { p.DaemonSet = "driver" }))
				w.run()
				Expect(w.Node).To(beCordonedFor(nm))
				Expect(w.evicted).To(ConsistOf("late"))
				Expect(w.last.WatchPods).To(BeTrue())
				ready()
				Expect(w.message(nm)).To(And(HavePrefix("The node is ready for the requestor."), ContainSubstring("was not cordoned"), ContainSubstring("shop/late"), Not(ContainSubstring("other"))))
				Expect(w.get(nm).Status.Drain).To(PointTo(MatchFields(IgnoreExtras, Fields{"EvictionPods": BeEquivalentTo(1), "DrainProgress": BeZero(), "WaitForEviction": ConsistOf("shop/late")})))
				Expect(w.events).To(ContainElement(HavePrefix("MaintenanceCordonVanished: ")))
				Expect(w.nodeConditions()).To(Equal(before), "machine-controller-manager looks at each change of them, and uncordons")
				Expect(w.Node.Status.Conditions).To(ContainElement(And(HaveField("Type", drain.ConditionDrained), HaveField("Message", ContainSubstring("while it was not cordoned")))))

				w.Pods = w.Pods[1:]
				w.after(5 * time.Second)
				ready()
				Expect(w.message(nm)).To(Equal("The node is ready for the requestor."))
				Expect(w.get(nm).Status.Drain).To(PointTo(MatchFields(IgnoreExtras, Fields{"DrainProgress": BeEquivalentTo(100), "WaitForEviction": BeEmpty()})))
				Expect(w.last.WatchPods).To(BeFalse(), "M4")
				Expect(w.last.Next).To(BeZero())
				Expect(w.Node.Status.Conditions).To(ContainElement(And(HaveField("Type", drain.ConditionDrained), HaveField("Message", HaveSuffix("has drained the node.")))))
			},
				Entry("where only maintenances are shown", false),
				Entry("D13: where all drains are", true),
			)

			It("M3: should look out for those that were on their way to the node when it was cordoned", func() {
				uncordon()
				w.run()
				Expect(w.last.WatchPods).To(BeTrue())
				Expect(w.last.Next).To(Equal(w.now.Add(5 * time.Second)))
				w.Pods = []drain.Pod{podOf("bound", web)}
				w.run()
				Expect(w.evicted).To(ConsistOf("bound"))
				w.Pods = nil
				w.after(5 * time.Second)
				Expect(w.last.WatchPods).To(BeFalse())
				Expect(w.last.Next).To(BeZero())
			})

			It("M3: should not evict as long as the node is open, and know of it after a crash", func() {
				w.CordonAfter = w.now.Add(time.Minute)
				uncordon(podOf("late", web))
				w.run()
				Expect(w.evicted).To(BeEmpty(), "others would come")
				Expect(w.last.WatchPods).To(BeFalse())
				Expect(w.last.Next).To(Equal(w.CordonAfter))
				w.Memory = Memory{}
				w.Node.Spec.Unschedulable = true // by somebody
				w.run()
				Expect(w.evicted).To(ConsistOf("late"))
				ready()
			})

			It("M3: should lose none of them by a crash between any two writes", func() {
				uncordon(podOf("late", web))
				for w.step() {
					w.Memory = Memory{}
				}
				w.run()
				Expect(w.Node).To(beCordonedFor(nm))
				Expect(w.evicted).To(ConsistOf("late"))
			})

			It("M3: should come to an end however often the cordon vanishes, and neither write nor watch in between", func() {
				for range 3 {
					uncordon(podOf("late", web))
					w.run()
					Expect(w.evicted).To(ConsistOf("late"))
					w.Pods = nil
					w.after(5 * time.Second)
					ready()
					written := len(w.steps)
					w.after(10 * time.Minute)
					Expect(w.steps).To(HaveLen(written))
					Expect(w.last.WatchPods).To(BeFalse())
				}
			})

			It("M3, M6: should do so for a requestor that has failed as well", func() {
				meta.SetStatusCondition(&w.get(nm).Status.Conditions, metav1.Condition{Type: "RequestorFailed", Status: "True", Reason: "FailedMaintenance"})
				w.run()
				uncordon(podOf("late", web))
				w.run()
				Expect(w.phase(nm)).To(Equal("RequestorFailed"))
				Expect(w.events).To(ContainElement("ConditionChanged: RequestorFailed"))
				Expect(w.message(nm)).To(ContainSubstring("shop/late"))
				Expect(w.evicted).To(ConsistOf("late"))
			})

			It("M3, M5: should name what is in the way, and try again", func() {
				uncordon(podOf("bare", web, func(p *drain.Pod) { p.Managed = false }))
				w.run()
				Expect(w.evicted).To(BeEmpty())
				Expect(w.message(nm)).To(ContainSubstring("shop/bare (has no controller"))
				ready()
				w.get(nm).Spec.DrainSpec.Force = true
				w.run()
				Expect(w.evicted).To(ConsistOf("bare"))
			})

			It("M3, M7: should stop when the maintenance is over", func() {
				uncordon(podOf("late", web))
				w.run()
				w.delete(nm)
				w.run()
				Expect(w.evicted).To(BeEmpty())
				Expect(w.last.WatchPods).To(BeFalse())
				Expect(w.Node).To(beCleaned())
			})

			It("M3: should drain nothing for one that asks for no drain", func() {
				w.get(nm).Spec.DrainSpec = nil
				uncordon(podOf("late", web))
				w.run()
				Expect(w.Node).To(beCordonedFor(nm))
				Expect(w.evicted).To(BeEmpty())
				Expect(w.last.WatchPods).To(BeFalse())
				Expect(w.message(nm)).To(Equal("The node is ready for the requestor."))
			})

			It("M3: should not drain because a drain is asked for once the node is ready", func() {
				nm = maintenance("a")
				w = scheduled(nm, podOf("late", web))
				w.get(nm).Spec.DrainSpec = &v1alpha1.DrainSpec{}
				w.run()
				Expect(w.evicted).To(BeEmpty())
			})
		})

		DescribeTable("M3, M5: should not hand a node over that is open", func(opts ...maintenanceOption) {
			nm := maintenance("a", append(opts, waiting(v1alpha1.WaitForPodCompletionSpec{}))...)
			w := scheduled(nm, podOf("a"))
			Expect(w.phase(nm)).To(Equal("WaitForPodCompletion"))
			w.Node.Spec.Unschedulable, w.CordonAfter = false, w.now.Add(time.Minute)
			w.Pods = nil
			w.run()
			Expect(w.phase(nm)).To(Equal("Draining"))
			Expect(w.message(nm)).To(ContainSubstring("cordoned again"))
			Expect(w.last.Next).To(Equal(w.CordonAfter))
			w.after(time.Minute)
			Expect(w.phase(nm)).To(Equal("Ready"))
			Expect(w.Node).To(beCordonedFor(nm))
		},
			Entry("with a drain", draining(v1alpha1.DrainSpec{})),
			Entry("without one"),
		)

		It("M3: should hand a node over to its next maintenance without uncordoning it", func() {
			one, two := maintenance("a"), maintenance("b")
			w := scheduled(one)
			w.Maintenances = append(w.Maintenances, two)
			w.run()
			Expect(w.phase(two)).To(Equal("Pending"))
			w.delete(one)
			w.run()
			Expect(w.get(one)).NotTo(BeNil(), "waits for the scheduler")
			Expect(w.last.Next).To(Equal(begin.Add(5 * time.Second)))
			w.schedule(two)
			for w.step() {
				Expect(w.Node.Spec.Unschedulable).To(BeTrue())
			}
			w.run()
			Expect(w.get(one)).To(BeNil())
			Expect(w.phase(two)).To(Equal("Ready"))
			Expect(w.Node).To(beCordonedFor(two))
			Expect(w.get(two).Annotations).To(HaveKeyWithValue("maintenance.nvidia.com/node-initial-state.unschedulable", "false"))
			w.delete(two)
			w.run()
			Expect(w.Node).To(beCleaned())
		})

		It("M3: should not wait for a next maintenance that does not want the node cordoned", func() {
			one, two := maintenance("a"), maintenance("b", uncordoned)
			w := scheduled(one)
			w.Maintenances = append(w.Maintenances, two)
			w.run()
			Expect(w.Node).To(beCordonedFor(one))
			w.delete(one)
			w.run()
			Expect(w.get(one)).To(BeNil())
			Expect(w.Node.Spec.Unschedulable).To(BeFalse())
		})

		It("M3: should not wait for ever for the next maintenance", func() {
			one, two := maintenance("a"), maintenance("b")
			w := scheduled(one)
			w.Maintenances = append(w.Maintenances, two)
			w.run()
			w.delete(one)
			w.run()
			Expect(w.Node).To(beCordonedFor(one))
			w.after(5 * time.Second)
			Expect(w.get(one)).To(BeNil())
			Expect(w.Node.Spec.Unschedulable).To(BeFalse())
			Expect(w.nodeConditions()).To(ConsistOf("MaintenancePlanned"))
		})

		DescribeTable("M3, M15: should be undone without maintenances, except on nodes that machine-controller-manager empties", func(emptied bool, edit func(*corev1.Node)) {
			w := newWorld(maintenance("a", draining(v1alpha1.DrainSpec{})))
			w.DrainConditions = true
			w.run()
			w.schedule(w.Maintenances[0])
			w.run()
			edit(w.Node)
			writes := Clean(w.Node)
			Expect(writes).To(HaveLen(2))
			Expect(writes[1].After.(*corev1.Node).Status.Conditions).NotTo(ContainElement(HaveField("Reason", "NodeMaintenance")))
			node := writes[0].After.(*corev1.Node)
			Expect(node.Spec.Unschedulable).To(Equal(emptied))
			Expect(node.Annotations).NotTo(Or(HaveKey(markKey), HaveKey(recordKey)))
		},
			Entry("an ordinary one", false, func(*corev1.Node) {}),
			Entry("one that is being deleted", true, func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: begin} }),
			Entry("one whose machine is terminated", true, builder.Condition("Terminating", corev1.ConditionTrue, "", "")),
			Entry("one whose machine is not", false, builder.Condition("Terminating", corev1.ConditionFalse, "", "")),
			Entry("one that is updated in place", true, builder.Condition(machinev1alpha1.NodeInPlaceUpdate, corev1.ConditionTrue, machinev1alpha1.SelectedForUpdate, "")),
		)

		It("M3: should undo a cordon whose maintenance is gone", func() {
			w := scheduled(maintenance("a"))
			w.Maintenances = nil
			w.run()
			Expect(w.Node).To(beCleaned())
		})
	})

	Describe("M4: waiting for pods", func() {
		selected := func(p *drain.Pod) { p.Labels = map[string]string{"app": "important"} }
		spec := v1alpha1.WaitForPodCompletionSpec{PodSelector: "app=important", TimeoutSeconds: 60}

		It("M4: should wait for the pods that the selector selects, and name them", func() {
			nm := maintenance("a", waiting(spec))
			w := scheduled(nm, podOf("b", selected), podOf("a", selected), podOf("other"),
				podOf("ds", selected, func(p *drain.Pod) { p.DaemonSet = "ds" }), podOf("mirror", selected, func(p *drain.Pod) { p.Mirror = true }),
				podOf("done", selected, func(p *drain.Pod) { p.Finished = true }))
			Expect(w.phase(nm)).To(Equal("WaitForPodCompletion"))
			Expect(w.get(nm).Status.WaitForCompletion).To(HaveExactElements("shop/a", "shop/b"))
			Expect(w.message(nm)).To(ContainSubstring("shop/a, shop/b"))
			Expect(w.last.WatchPods).To(BeTrue())
			Expect(w.last.Next).To(Equal(begin.Add(time.Minute)))
			w.Pods = w.Pods[2:]
			w.run()
			Expect(w.phase(nm)).To(Equal("Ready"))
			Expect(w.get(nm).Status.WaitForCompletion).To(BeEmpty())
		})

		It("M4: should go on at the timeout, to the second, also after a restart", func() {
			nm := maintenance("a", waiting(spec))
			w := scheduled(nm, podOf("a", selected))
			w.after(59 * time.Second)
			Expect(w.phase(nm)).To(Equal("WaitForPodCompletion"))
			w.after(time.Second)
			Expect(w.phase(nm)).To(Equal("Ready"))
			Expect(w.get(nm).Status.WaitForCompletion).To(BeEmpty())
		})

		It("M4: should wait for as long as it takes without a timeout, and do nothing while the pods are not known", func() {
			nm := maintenance("a", waiting(v1alpha1.WaitForPodCompletionSpec{}))
			w := scheduled(nm, podOf("a"))
			w.after(1000 * time.Hour)
			Expect(w.phase(nm)).To(Equal("WaitForPodCompletion"))
			Expect(w.last.Next).To(BeZero())
			w.PodsKnown, w.Pods = false, nil
			w.run()
			Expect(w.phase(nm)).To(Equal("WaitForPodCompletion"))
			Expect(w.last.WatchPods).To(BeTrue())
		})

		It("M4: should name no more pods than the status may have", func() {
			nm := maintenance("a", waiting(v1alpha1.WaitForPodCompletionSpec{}))
			var pods []drain.Pod
			for i := range 300 {
				pods = append(pods, podOf(strings.Repeat("p", i+1)))
			}
			w := scheduled(nm, pods...)
			Expect(w.get(nm).Status.WaitForCompletion).To(HaveLen(100))
			Expect(len(w.message(nm))).To(BeNumerically("<", 1024))
		})
	})

	Describe("M5: draining", func() {
		gpu := func(p *drain.Pod) { p.Resources = []corev1.ResourceName{"cpu", "nvidia.com/gpu-a100"} }
		rdma := func(p *drain.Pod) { p.Resources = []corev1.ResourceName{"example.nvidia.com/rdma_shared"} }
		unmanaged := func(p *drain.Pod) { p.Managed = false }
		emptyDir := func(p *drain.Pod) { p.EmptyDir = true }
		going := func(p *drain.Pod) { p.GraceEnds = begin.Add(time.Minute) }
		labelled := func(p *drain.Pod) { p.Labels = map[string]string{"app": "web"} }
		filters := []v1alpha1.PodEvictionFilterEntry{{ByResourceNameRegex: "nvidia.com/gpu-*"}, {ByResourceNameRegex: "nvidia.com/rdma*"}}

		DescribeTable("M5: which pods are evicted, and what blocks", func(spec v1alpha1.DrainSpec, pods []drain.Pod, evicted []string, blocked ...string) {
			nm := maintenance("a", draining(spec))
			w := scheduled(nm, pods...)
			Expect(w.evicted).To(Equal(evicted))
			if len(evicted)+len(blocked) == 0 {
				Expect(w.phase(nm)).To(Equal("Ready"))
				return
			}
			Expect(w.phase(nm)).To(Equal("Draining"))
			for _, b := range blocked {
				Expect(w.message(nm)).To(ContainSubstring(b))
			}
		},
			Entry("all", v1alpha1.DrainSpec{}, []drain.Pod{podOf("a"), podOf("b", gpu)}, []string{"a", "b"}),
			Entry("neither DaemonSet, nor mirror, nor finished pods", v1alpha1.DrainSpec{}, []drain.Pod{
				podOf("ds", func(p *drain.Pod) { p.DaemonSet = "ds" }), podOf("m", func(p *drain.Pod) { p.Mirror = true }), podOf("f", func(p *drain.Pod) { p.Finished = true }),
			}, nil),
			Entry("those that the selector selects", v1alpha1.DrainSpec{PodSelector: "app=web"}, []drain.Pod{podOf("a"), podOf("b", labelled)}, []string{"b"}),
			Entry("those that one of the filters selects, unanchored", v1alpha1.DrainSpec{PodEvictionFilters: filters}, []drain.Pod{podOf("a"), podOf("b", gpu), podOf("c", rdma)}, []string{"b", "c"}),
			Entry("those that both select", v1alpha1.DrainSpec{PodSelector: "app=web", PodEvictionFilters: filters}, []drain.Pod{podOf("a", labelled), podOf("b", gpu), podOf("c", rdma, labelled)}, []string{"c"}),
			Entry("a pod without a controller blocks", v1alpha1.DrainSpec{}, []drain.Pod{podOf("a"), podOf("b", unmanaged)}, nil, "shop/b (has no controller"),
			Entry("not with force", v1alpha1.DrainSpec{Force: true}, []drain.Pod{podOf("b", unmanaged)}, []string{"b"}),
			Entry("a pod with an emptyDir blocks", v1alpha1.DrainSpec{}, []drain.Pod{podOf("a"), podOf("b", emptyDir)}, nil, "shop/b (has an emptyDir"),
			Entry("not with deleteEmptyDir", v1alpha1.DrainSpec{DeleteEmptyDir: true}, []drain.Pod{podOf("b", emptyDir)}, []string{"b"}),
			Entry("each needs its own", v1alpha1.DrainSpec{Force: true, DeleteEmptyDir: true}, []drain.Pod{podOf("b", emptyDir, unmanaged)}, []string{"b"}),
			Entry("what is filtered out is no obstacle", v1alpha1.DrainSpec{PodEvictionFilters: filters}, []drain.Pod{podOf("a", emptyDir), podOf("b", unmanaged), podOf("c", gpu)}, []string{"c"}),
			Entry("nor what the selector leaves out", v1alpha1.DrainSpec{PodSelector: "app=web"}, []drain.Pod{podOf("a", emptyDir), podOf("c", labelled)}, []string{"c"}),
			Entry("nor what is on its way, which is not asked again", v1alpha1.DrainSpec{}, []drain.Pod{podOf("a", unmanaged, going), podOf("b")}, []string{"b"}),
		)

		It("M5: should report how far it is, and what is in the way", func() {
			nm := maintenance("a", draining(v1alpha1.DrainSpec{PodSelector: "app=web"}))
			w := scheduled(nm, podOf("a", labelled), podOf("b", labelled), podOf("c", labelled), podOf("other"))
			Expect(w.get(nm).Status.Drain).To(PointTo(Equal(v1alpha1.DrainStatus{TotalPods: 4, EvictionPods: 3, WaitForEviction: []string{"shop/a", "shop/b", "shop/c"}})))
			w.Pods, w.Refused, w.EvictAfter = w.Pods[1:], []string{"namespace shop: budget web"}, w.now.Add(time.Second)
			w.run()
			Expect(w.get(nm).Status.Drain).To(PointTo(Equal(v1alpha1.DrainStatus{TotalPods: 4, EvictionPods: 3, DrainProgress: 33, WaitForEviction: []string{"shop/b", "shop/c"}})))
			Expect(w.message(nm)).To(Equal("Draining since 2026-03-01T12:00:00Z. Pods left: shop/b, shop/c. Blocked by: namespace shop: budget web."))
			Expect(w.evicted).To(BeEmpty())
			Expect(w.last.Next).To(Equal(w.EvictAfter))
			w.after(time.Second)
			Expect(w.evicted).To(HaveExactElements("b", "c"))
			w.Pods = w.Pods[2:]
			w.run()
			Expect(w.phase(nm)).To(Equal("Ready"))
			Expect(w.get(nm).Status.Drain).To(PointTo(Equal(v1alpha1.DrainStatus{TotalPods: 4, EvictionPods: 3, DrainProgress: 100})))
		})

		It("M5: should try anew after the timeout, and say since when", func() {
			nm := maintenance("a", draining(v1alpha1.DrainSpec{TimeoutSeconds: new(int32(60))}))
			w := scheduled(nm, podOf("a"), podOf("b"))
			w.Refused = []string{"namespace shop: budget web"}
			Expect(w.last.Next).To(BeTemporally("~", begin.Add(time.Minute), time.Microsecond))
			w.after(60 * time.Second)
			Expect(w.events).NotTo(ContainElement(HavePrefix("MaintenanceDrainTimedOut")))
			w.Pods = w.Pods[1:]
			w.after(time.Nanosecond)
			Expect(w.events).To(ContainElement("MaintenanceDrainTimedOut: The node is not drained after 1m0s, and the drain is retried. Pods left: shop/b. Blocked by: namespace shop: budget web."))
			Expect(w.phase(nm)).To(Equal("Draining"))
			Expect(w.get(nm).Status.Drain).To(PointTo(Equal(v1alpha1.DrainStatus{TotalPods: 1, EvictionPods: 1, WaitForEviction: []string{"shop/b"}})))
			Expect(w.message(nm)).To(HavePrefix("Draining since 2026-03-01T12:00:00Z, retried at 2026-03-01T12:01:00Z. Pods left: shop/b."))
			Expect(w.evicted).To(ConsistOf("b"))
			told := len(w.events)
			w.after(50 * time.Second)
			Expect(w.events).To(HaveLen(told))
			w.after(11 * time.Second)
			Expect(w.message(nm)).To(ContainSubstring("retried at 2026-03-01T12:02:01Z"))
			Expect(w.events).To(HaveLen(told), "it was told just now")
			for range 3 {
				w.after(61 * time.Second)
			}
			Expect(w.events).To(HaveLen(told + 1))
		})

		It("M5: should name pods that do not end as their node does not answer", func() {
			nm := maintenance("a", draining(v1alpha1.DrainSpec{TimeoutSeconds: new(int32(0))}))
			w := scheduled(nm, podOf("a", going))
			w.after(2 * time.Minute)
			Expect(w.message(nm)).To(HaveSuffix("Pods left: shop/a."), "its node answers")
			w = newWorld(nm)
			builder.NotReady(w.Node)
			nm.Status, nm.Annotations, nm.Finalizers = v1alpha1.NodeMaintenanceStatus{}, nil, nil
			w.Pods = []drain.Pod{podOf("b", going), podOf("a", going)}
			w.run()
			w.schedule(nm)
			w.run()
			Expect(w.message(nm)).To(HaveSuffix("Pods left: shop/a, shop/b."))
			Expect(w.last.Next).To(Equal(begin.Add(time.Minute)))
			w.after(time.Minute)
			Expect(w.message(nm)).To(HaveSuffix("Blocked by: shop/a (its node does not answer), shop/b (its node does not answer)."))
			Expect(w.evicted).To(BeEmpty())
		})

		It("M5, D6: should name pods that do not end with the finalizers that keep them", func() {
			nm := maintenance("a", draining(v1alpha1.DrainSpec{TimeoutSeconds: new(int32(0))}))
			w := scheduled(nm, podOf("a", going, func(p *drain.Pod) { p.Finalizers = []string{"acme.com/backup"} }))
			Expect(w.message(nm)).To(HaveSuffix("Pods left: shop/a."))
			Expect(w.last.Next).To(Equal(begin.Add(time.Minute)))
			w.after(time.Minute)
			Expect(w.message(nm)).To(HaveSuffix("Blocked by: shop/a (acme.com/backup)."))
			Expect(w.evicted).To(BeEmpty())
		})

		It("M5: should neither write nor tell all the time because the timeout is short", func() {
			nm := maintenance("a", draining(v1alpha1.DrainSpec{TimeoutSeconds: new(int32(1))}))
			w := scheduled(nm, podOf("a"))
			w.Refused, w.EvictAfter = []string{"namespace shop: budget web"}, begin.Add(24*time.Hour)
			w.run()
			told, written := len(w.events), len(w.steps)
			for range 3600 {
				w.after(time.Second)
			}
			Expect(len(w.events) - told).To(And(BeNumerically(">=", 11), BeNumerically("<=", 13)))
			Expect(w.events[told]).To(HavePrefix("MaintenanceDrainTimedOut: The node is not drained after 31s"))
			Expect(len(w.steps) - written).To(BeNumerically("<=", 3*120))
		})

		It("M5: should never time out with 0, and after five minutes by default", func() {
			never, byDefault := maintenance("a", draining(v1alpha1.DrainSpec{TimeoutSeconds: new(int32(0))})), maintenance("a", draining(v1alpha1.DrainSpec{}))
			w := scheduled(never, podOf("a"))
			Expect(w.last.Next).To(BeZero())
			w.after(1000 * time.Hour)
			Expect(w.events).NotTo(ContainElement(HavePrefix("MaintenanceDrainTimedOut")))
			w = scheduled(byDefault, podOf("a"))
			Expect(w.last.Next).To(BeTemporally("~", begin.Add(5*time.Minute), time.Microsecond))
		})

		It("M5: should honour a changed spec at once, and fail closed on one that cannot be read", func() {
			nm := maintenance("a", draining(v1alpha1.DrainSpec{}))
			w := scheduled(nm, podOf("a", emptyDir))
			Expect(w.evicted).To(BeEmpty())
			w.get(nm).Spec.DrainSpec.DeleteEmptyDir = true
			w.run()
			Expect(w.evicted).To(ConsistOf("a"))
			w.get(nm).Spec.DrainSpec.PodEvictionFilters = []v1alpha1.PodEvictionFilterEntry{{ByResourceNameRegex: "["}}
			w.run()
			Expect(w.evicted).To(BeEmpty())
			Expect(w.phase(nm)).To(Equal("Draining"))
			Expect(w.message(nm)).To(ContainSubstring("Nothing is done"))
			w.get(nm).Spec.DrainSpec = nil
			w.run()
			Expect(w.phase(nm)).To(Equal("Ready"))
			Expect(w.get(nm).Status.Drain).To(BeNil())
		})

		It("M5: should look at the API server once more before the node is ready", func() {
			nm := maintenance("a", draining(v1alpha1.DrainSpec{}))
			w := newWorld(nm)
			w.run()
			w.schedule(nm)
			for w.step() {
			}
			Expect(w.phase(nm)).To(Equal("Draining"))
			Expect(w.last.ReadPods).To(BeTrue())
			w.PodsUnread = true
			w.run()
			Expect(w.phase(nm)).To(Equal("Draining"))
			Expect(w.message(nm)).To(ContainSubstring("It is not known whether pods are left, because they cannot be listed."))
			w.PodsUnread, w.PodsLive, w.Pods = false, true, []drain.Pod{podOf("late")}
			w.run()
			Expect(w.phase(nm)).To(Equal("Draining"))
			Expect(w.evicted).To(ConsistOf("late"))
			Expect(w.get(nm).Status.Drain).To(PointTo(MatchFields(IgnoreExtras, Fields{"DrainProgress": BeZero(), "WaitForEviction": ConsistOf("shop/late")})))
		})

		It("M3, M5: should not say that all is evicted where pods come before an open node could be handed over", func() {
			nm := maintenance("a", draining(v1alpha1.DrainSpec{PodSelector: "app=web"}))
			w := newWorld(nm)
			w.Pods, w.PodsUnread = []drain.Pod{podOf("other")}, true
			w.run()
			w.schedule(nm)
			w.run()
			w.Node.Spec.Unschedulable = false
			w.CordonAfter = w.now.Add(time.Minute)
			w.PodsUnread = false
			w.run()
			Expect(w.phase(nm)).To(Equal("Draining"))
			Expect(w.get(nm).Status.Drain).To(PointTo(Equal(v1alpha1.DrainStatus{TotalPods: 1, DrainProgress: 100})))
			w.Pods = append(w.Pods, podOf("late", func(p *drain.Pod) { p.Labels = map[string]string{"app": "web"} }))
			w.run()
			Expect(w.get(nm).Status.Drain).To(PointTo(Equal(v1alpha1.DrainStatus{TotalPods: 1, WaitForEviction: []string{"shop/late"}})))
		})

		It("M5: should do nothing while the pods are not known", func() {
			nm := maintenance("a", draining(v1alpha1.DrainSpec{}))
			w := scheduled(nm, podOf("a"))
			Expect(w.phase(nm)).To(Equal("Draining"))
			w.PodsKnown, w.Pods = false, nil
			w.after(time.Minute)
			Expect(w.phase(nm)).To(Equal("Draining"))
			Expect(w.last.WatchPods).To(BeTrue())
			Expect(w.last.ReadPods).To(BeFalse())
		})
	})

	Describe("M6, M7: the end", func() {
		failed := func(status metav1.ConditionStatus) metav1.Condition {
			return metav1.Condition{Type: "RequestorFailed", Status: status, Reason: "FailedMaintenance", LastTransitionTime: metav1.NewTime(begin)}
		}

		It("M6, M7: should keep the node of a requestor that has failed until that is cleared", func() {
			nm := maintenance("a")
			w := scheduled(nm)
			meta.SetStatusCondition(&w.get(nm).Status.Conditions, failed("True"))
			w.run()
			Expect(w.phase(nm)).To(Equal("RequestorFailed"))
			Expect(meta.IsStatusConditionTrue(w.get(nm).Status.Conditions, "Ready")).To(BeFalse())
			Expect(meta.FindStatusCondition(w.get(nm).Status.Conditions, "Ready").Message).To(HaveSuffix("is cleared, or for as long as the operators allow."))
			w.delete(nm)
			w.run()
			Expect(w.get(nm)).NotTo(BeNil())
			Expect(w.Node).To(beCordonedFor(nm))
			meta.SetStatusCondition(&w.get(nm).Status.Conditions, failed("False"))
			w.run()
			Expect(w.get(nm)).To(BeNil())
			Expect(w.Node).To(beCleaned())
		})

		It("M6: should go back to Ready when it is cleared, with the time of before", func() {
			nm := maintenance("a")
			w := scheduled(nm)
			meta.SetStatusCondition(&w.get(nm).Status.Conditions, failed("True"))
			w.after(time.Minute)
			meta.RemoveStatusCondition(&w.get(nm).Status.Conditions, "RequestorFailed")
			w.run()
			Expect(w.phase(nm)).To(Equal("Ready"))
			Expect(w.get(nm).Annotations).To(HaveKeyWithValue("maintenance.nvidia.com/ready-time", "2026-03-01T12:00:00Z"))
		})

		It("M6, M9: should be ready since it became so, however late that can be written", func() {
			nm := maintenance("a")
			w := scheduled(nm)
			delete(w.get(nm).Annotations, "maintenance.nvidia.com/ready-time")
			w.after(time.Minute)
			Expect(w.get(nm).Annotations).To(HaveKeyWithValue("maintenance.nvidia.com/ready-time", "2026-03-01T12:00:00Z"))
		})

		It("M7: should wait for additional requestors once it is ready", func() {
			nm := maintenance("a", func(nm *v1alpha1.NodeMaintenance) { nm.Spec.AdditionalRequestors = []string{"other"} })
			w := scheduled(nm)
			w.delete(nm)
			w.run()
			Expect(w.phase(nm)).To(Equal("Ready"))
			Expect(w.message(nm)).To(ContainSubstring("other"))
			Expect(w.Node).To(beCordonedFor(nm))
			w.get(nm).Spec.AdditionalRequestors = nil
			w.run()
			Expect(w.get(nm)).To(BeNil())
			Expect(w.Node).To(beCleaned())
		})

		DescribeTable("M7: should clean up in every phase", func(phase string) {
			nm := maintenance("a", waiting(v1alpha1.WaitForPodCompletionSpec{PodSelector: "wait"}), draining(v1alpha1.DrainSpec{}),
				func(nm *v1alpha1.NodeMaintenance) { nm.Spec.AdditionalRequestors = []string{"other"} })
			w := newWorld(nm)
			w.Pods = []drain.Pod{podOf("a")}
			handedOver := phase == "Ready" || phase == "RequestorFailed"
			if phase == "WaitForPodCompletion" {
				w.Pods[0].Labels = map[string]string{"wait": ""}
			}
			if handedOver {
				w.Pods = nil
			}
			w.run()
			w.schedule(nm)
			if phase == "RequestorFailed" {
				meta.SetStatusCondition(&w.get(nm).Status.Conditions, failed("True"))
			}
			for range 30 {
				if w.phase(nm) == phase && slices.Contains(w.get(nm).Finalizers, finalizer) {
					break
				}
				w.step()
				w.PodsLive = w.last.ReadPods
			}
			Expect(w.phase(nm)).To(Equal(phase))
			w.delete(nm)
			w.run()
			if handedOver { // only there others may be at work on the node
				Expect(w.phase(nm)).To(Equal(phase))
				meta.RemoveStatusCondition(&w.get(nm).Status.Conditions, "RequestorFailed")
				w.run()
				Expect(w.phase(nm)).To(Equal("Ready"))
				Expect(w.Node).To(beCordonedFor(nm))
				w.get(nm).Spec.AdditionalRequestors = nil
				w.run()
			}
			Expect(w.Maintenances).To(BeEmpty())
			Expect(w.Node).To(beCleaned())
			Expect(w.last.Actions).To(BeEmpty())
			Expect(w.last.WatchPods).To(BeFalse())
		},
			Entry("Scheduled", "Scheduled"), Entry("Cordon", "Cordon"), Entry("waiting", "WaitForPodCompletion"), Entry("draining", "Draining"), Entry("Ready", "Ready"),
			Entry("RequestorFailed", "RequestorFailed"),
		)

		It("M7: should let go of one whose node is gone, whether it is deleted or not", func() {
			for _, deleted := range []bool{true, false} {
				nm := maintenance("a", draining(v1alpha1.DrainSpec{}))
				w := scheduled(nm, podOf("a"))
				w.Node = nil
				if deleted {
					w.delete(nm)
				}
				w.run()
				if deleted {
					Expect(w.Maintenances).To(BeEmpty())
					continue
				}
				Expect(w.phase(nm)).To(Equal("Pending"))
				Expect(w.get(nm).Finalizers).To(BeEmpty())
				Expect(w.events).To(ContainElement("MaintenanceSetBack: Node n does not exist."))
			}
		})

		It("M3, M7, M10: should be over without our finalizer, whoever keeps the object", func() {
			one, two := maintenance("a"), maintenance("b")
			w := scheduled(one)
			w.get(one).Finalizers = append(w.get(one).Finalizers, "acme.com/audit")
			w.delete(one)
			w.run()
			Expect(w.get(one).Finalizers).To(ConsistOf("acme.com/audit"))
			Expect(w.Node).To(beCleaned())
			Expect(w.last.Next).To(BeZero())

			w.Maintenances = append(w.Maintenances, two)
			w.run()
			chosen, slots := Schedule([]ScheduledNode{{Name: "n", UID: w.Node.UID}},
				[]Request{NewRequest(w.get(one), nil), NewRequest(w.get(two), nil)}, limits("1", "1", 1))
			Expect(namesOf(chosen)).To(HaveExactElements("b"))
			Expect(slots).To(Equal(Slots{Free: 1}))
			w.schedule(two)
			w.run()
			Expect(w.phase(two)).To(Equal("Ready"))
			Expect(w.Node).To(beCordonedFor(two))
			w.delete(two)
			w.run()
			Expect(w.get(two)).To(BeNil())
			Expect(w.Node).To(beCleaned())
		})

		It("M7: should not give the finalizer up before the node is cleaned", func() {
			nm := maintenance("a")
			w := scheduled(nm)
			w.refuseNode = true
			w.delete(nm)
			for range 5 {
				w.step()
			}
			Expect(w.get(nm)).NotTo(BeNil())
		})
	})

	DescribeTable("M15: should set back what is under way", func(edit func(*Machine), cordoned bool) {
		nm := maintenance("a", draining(v1alpha1.DrainSpec{}))
		w := scheduled(nm, podOf("a"))
		edit(&w.Machine)
		w.run()
		Expect(w.phase(nm)).To(Equal("Pending"))
		Expect(w.get(nm).Finalizers).To(BeEmpty())
		Expect(w.get(nm).Annotations).To(BeEmpty())
		Expect(w.get(nm).Status.Drain).To(BeNil())
		Expect(w.Node.Spec.Unschedulable).To(Equal(cordoned))
		Expect(IsMarked(w.Node)).To(BeFalse())
		Expect(w.events).To(ContainElement(HavePrefix("MaintenanceSetBack: ")))
		Expect(w.evicted).To(BeEmpty())

		w.Machine = Machine{}
		w.Node.Spec.Unschedulable = false
		w.run()
		w.schedule(nm)
		w.Pods = nil
		w.run()
		Expect(w.phase(nm)).To(Equal("Ready"), "from the beginning")
	},
		Entry("when the machine is terminated, whose node stays closed", func(m *Machine) { m.Terminating = true }, true),
		Entry("when it is updated in place, whose node stays closed", func(m *Machine) { m.UpdatedInPlace = true }, true),
		Entry("when the shoot hibernates", func(m *Machine) { m.Hibernating = true }, false),
		Entry("when its host is power-cycled", func(m *Machine) { m.PowerCycled = true }, false),
	)

	DescribeTable("M15: should go on", func(edit func(*Machine)) {
		nm := maintenance("a", draining(v1alpha1.DrainSpec{}))
		w := scheduled(nm, podOf("a"))
		edit(&w.Machine)
		w.run()
		Expect(w.phase(nm)).To(Equal("Draining"))
	},
		Entry("while the pool rolls: there the machine goes", func(m *Machine) { m.Rolling = true }),
		Entry("while the machine is in a phase that is not known", func(m *Machine) { m.PhaseNotKnown = true }),
	)

	It("M17: should set back what is of a namespace that is not taken any more", func() {
		nm := maintenance("a")
		w := scheduled(nm)
		w.Namespaces = Namespaces{"ops"}
		w.run()
		Expect(w.phase(nm)).To(Equal("Pending"))
		Expect(w.Node).To(beCleaned())
	})

	DescribeTable("M17: should keep what is of a namespace that is not taken away from the node of another one", func(phase string, holds bool) {
		nm, alien := maintenance("b", draining(v1alpha1.DrainSpec{})), maintenance("a", func(nm *v1alpha1.NodeMaintenance) {
			nm.Namespace, nm.Finalizers = "evil", []string{finalizer}
			SetPhase(&nm.Status, phase, "", 0, begin)
		})
		w := newWorld(nm)
		w.Namespaces = Namespaces{"default"}
		w.run()
		w.schedule(nm)
		w.run()
		Expect(w.phase(nm)).To(Equal("Ready"))
		since := w.Node.Annotations[markKey]
		w.Maintenances = []*v1alpha1.NodeMaintenance{alien, w.get(nm)}
		if holds {
			w.Node.Annotations[recordKey] = string(alien.UID)
		}
		w.now = w.now.Add(time.Minute)
		for w.step() {
			Expect(w.Node.Spec.Unschedulable).To(BeTrue())
			Expect(w.Node.Annotations).To(HaveKeyWithValue(markKey, since))
		}
		Expect(w.Node).To(beCordonedFor(nm))
		Expect(w.phase(nm)).To(Equal("Ready"))
		Expect(w.phase(alien)).To(Equal("Pending"))
		Expect(w.message(alien)).To(ContainSubstring("in this namespace have no effect"))
		Expect(w.get(alien).Finalizers).To(BeEmpty())
		w.delete(nm)
		w.run()
		Expect(w.Node).To(beCleaned())
	},
		Entry("one that is scheduled", "Scheduled", false),
		Entry("one that is ready", "Ready", false),
		Entry("one for which the node is cordoned", "Ready", true),
	)

	It("M17: should not let what is of a namespace that is not taken use a slot, once nothing is left of it on the node", func() {
		nm := maintenance("a")
		w := scheduled(nm)
		w.Namespaces = Namespaces{"ops"}
		used := func() int {
			_, slots := Schedule([]ScheduledNode{{Name: "n", CordonedFor: CordonedFor(w.Node)}}, []Request{NewRequest(w.get(nm), w.Namespaces)}, limits("1", "", 1))
			return slots.Used
		}
		Expect(used()).To(Equal(1))
		for InProgress(w.get(nm)) && CordonedFor(w.Node) != "" {
			Expect(w.step()).To(BeTrue())
		}
		Expect(InProgress(w.get(nm))).To(BeTrue())
		Expect(used()).To(BeZero())
	})

	It("M17: should survive whatever is written into a status, and take a phase that does not exist for none", func() {
		nm := maintenance("a")
		SetPhase(&nm.Status, "Whatever", "", 0, begin)
		w := newWorld(nm)
		w.run()
		Expect(w.phase(nm)).To(Equal("Pending"))
		for _, phase := range Phases {
			nm := maintenance("a", draining(v1alpha1.DrainSpec{}), waiting(v1alpha1.WaitForPodCompletionSpec{}))
			SetPhase(&nm.Status, phase, "", 0, begin)
			nm.Annotations = map[string]string{
				"maintenance.nvidia.com/wait-pod-completion-start-time":           "9999-12-31T23:59:59Z",
				"machine-preservation.extensions.gardener.cloud/drain-start-time": "x/y",
				"maintenance.nvidia.com/node-initial-state.unschedulable":         "maybe",
				"maintenance.nvidia.com/ready-time":                               "never",
			}
			w := newWorld(nm)
			w.run()
			if phase != "Pending" {
				Expect(w.get(nm).Finalizers).To(ConsistOf(finalizer))
			}
			w.delete(nm)
			w.run()
			Expect(w.Maintenances).To(BeEmpty())
			Expect(w.Node).To(beCleaned())
		}
	})

	DescribeTable("M17: should write no more than a status may have, whatever is written into a spec while it is under way", func(edit func(*v1alpha1.NodeMaintenanceSpec)) {
		long := strings.Repeat("x", 100_000)
		nm := maintenance("a", waiting(v1alpha1.WaitForPodCompletionSpec{}), draining(v1alpha1.DrainSpec{}))
		w := scheduled(nm, podOf("a"))
		for _, phase := range []string{"WaitForPodCompletion", "Draining", "Ready"} {
			Expect(w.phase(nm)).To(Equal(phase))
			spec := w.get(nm).Spec.DeepCopy()
			w.get(nm).Spec.AdditionalRequestors = slices.Repeat([]string{long}, 1000)
			w.get(nm).Spec.WaitForPodCompletion = &v1alpha1.WaitForPodCompletionSpec{PodSelector: "a in " + long}
			edit(&w.get(nm).Spec)
			if phase == "Ready" {
				w.delete(nm)
			}
			w.run()
			Expect(w.phase(nm)).To(Equal(phase))
			Expect(len(w.message(nm))).To(BeNumerically("<", 1024))
			for _, c := range w.Node.Status.Conditions {
				Expect(len(c.Message)).To(BeNumerically("<", 1024))
			}
			w.get(nm).Spec = *spec
			if phase == "WaitForPodCompletion" {
				w.get(nm).Spec.WaitForPodCompletion = nil
			} else {
				w.Pods = nil
			}
			w.run()
		}
		Expect(w.get(nm)).To(BeNil())
	},
		Entry("a selector", func(s *v1alpha1.NodeMaintenanceSpec) {
			s.DrainSpec = &v1alpha1.DrainSpec{PodSelector: strings.Repeat("!", 4000)}
		}),
		Entry("a selector that is too long", func(s *v1alpha1.NodeMaintenanceSpec) {
			s.DrainSpec = &v1alpha1.DrainSpec{PodSelector: strings.Repeat("!", 100_000)}
		}),
		Entry("a regular expression", func(s *v1alpha1.NodeMaintenanceSpec) {
			s.DrainSpec = &v1alpha1.DrainSpec{PodEvictionFilters: []v1alpha1.PodEvictionFilterEntry{{ByResourceNameRegex: strings.Repeat("(", 100_000)}}}
		}),
		Entry("a requestor", func(s *v1alpha1.NodeMaintenanceSpec) {
			s.RequestorID, s.DrainSpec = strings.Repeat("x", 100_000), &v1alpha1.DrainSpec{PodSelector: "!"}
		}),
	)

	It("M3: should keep two that are in progress at a time from fighting for the node", func() {
		one, two := maintenance("a"), maintenance("b")
		w := scheduled(one)
		w.Maintenances = append(w.Maintenances, two)
		w.run()
		SetPhase(&w.get(two).Status, "Ready", "", 0, begin)
		w.run()
		Expect(w.Node).To(beCordonedFor(one))
		w.delete(one)
		w.run()
		Expect(w.get(one)).To(BeNil())
		w.run()
		Expect(w.Node).To(beCordonedFor(two))
	})
})

var _ = DescribeTable("M10: which MaintenanceOperatorConfig counts", func(namespace, name string, counts bool) {
	Expect(IsConfig(&v1alpha1.MaintenanceOperatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}})).To(Equal(counts))
},
	Entry("the one that is named like that in its namespace", v1alpha1.ConfigNamespace, "default", true),
	Entry("none with another name", v1alpha1.ConfigNamespace, "other", false),
	Entry("none in another namespace", "other", "default", false),
)

var _ = DescribeTable("M7: how a shoot that is to do without is left", func(edit maintenanceOption, want ...string) {
	nm := maintenance("a", func(nm *v1alpha1.NodeMaintenance) {
		nm.Finalizers, nm.Annotations = []string{"other", finalizer}, map[string]string{v1alpha1.AnnotationReadyTime: "x", "other": "stays"}
		nm.Status.Drain = &v1alpha1.DrainStatus{}
	}, edit)
	steps := []string{}
	for _, write := range CleanMaintenance(nm, begin) {
		Expect(write.Before).To(BeIdenticalTo(nm))
		Expect(write.Lock).To(BeTrue(), "others have it, too")
		after := write.After.(*v1alpha1.NodeMaintenance)
		if write.Status {
			Expect(after.Status.Drain).To(BeNil())
			steps = append(steps, PhaseOf(after))
			continue
		}
		Expect(after.Finalizers).To(Equal([]string{"other"}))
		Expect(after.Annotations).To(Equal(map[string]string{"other": "stays"}))
		steps = append(steps, "released")
	}
	Expect(steps).To(HaveExactElements(want))
},
	Entry("one that is under way is pending before it is released", inPhase("Ready"), "Pending", "released"),
	Entry("one that is deleted is released", maintenanceOption(func(nm *v1alpha1.NodeMaintenance) {
		inPhase("Ready")(nm)
		nm.DeletionTimestamp = new(metav1.NewTime(begin))
	}), "released"),
	Entry("one that is pending and has been under way as well", inPhase("Pending"), "released"),
	Entry("one that never was is left alone", maintenanceOption(func(nm *v1alpha1.NodeMaintenance) { nm.Finalizers = nil })),
)
