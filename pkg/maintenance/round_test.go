// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// planned is what a round is about: nodes n0, n1, ..., and pending maintenances m0, m1, ... of them, as version 1.
type planned struct {
	nodes, maintenances int
	// parallel is the limit, and promises are those of the last round.
	parallel, promises string
	edit               func(i int, nm *v1alpha1.NodeMaintenance)
	machines           map[string]Machine
	namespaces         Namespaces
}

// decide returns what is decided once all is known, and of which nodes the machine was asked for.
func (p planned) decide() (s Scheduling, asked []string) {
	GinkgoHelper()
	config := &v1alpha1.MaintenanceOperatorConfig{Spec: v1alpha1.MaintenanceOperatorConfigSpec{MaxParallelOperations: value(p.parallel)}}
	config.Annotations = map[string]string{AnnotationRound: p.promises}
	round := NewRound(config, p.namespaces)
	for i := range p.maintenances {
		nm := maintenance(fmt.Sprintf("m%d", i), func(nm *v1alpha1.NodeMaintenance) {
			nm.Spec.NodeName, nm.ResourceVersion, nm.CreationTimestamp = fmt.Sprintf("n%d", i), "1", metav1.NewTime(begin.Add(time.Duration(i)*time.Second))
			SetPhase(&nm.Status, "Pending", "", 0, begin)
		})
		if p.edit != nil {
			p.edit(i, nm)
		}
		round.AddMaintenance(nm)
	}
	for i := range p.nodes {
		round.AddNode(builder.Node(fmt.Sprintf("n%d", i)))
	}
	s, err := round.Decide()
	Expect(err).NotTo(HaveOccurred())
	for _, node := range s.Unknown {
		Expect(s.Scheduled).To(BeEmpty(), "it is not known yet")
		asked = append(asked, node.Name)
		node.SetMachine(p.machines[node.Name])
	}
	s, err = round.Decide()
	Expect(err).NotTo(HaveOccurred())
	Expect(s.Unknown).To(BeEmpty())
	return s, asked
}

var _ = Describe("Round", func() {
	DescribeTable("M10, M15: what is scheduled, taken back and promised", func(p planned, scheduled, withdrawn []string, promises string) {
		s, _ := p.decide()
		Expect(namesOf(s.Scheduled)).To(HaveExactElements(scheduled))
		Expect(namesOf(s.Withdrawn)).To(HaveExactElements(withdrawn))
		if promises == "" {
			Expect(s.Promise).To(BeNil())
			return
		}
		Expect(s.Promise.Lock).To(BeTrue(), "another replica may promise at the same time")
		Expect(s.Promise.Before.GetAnnotations()).To(Equal(map[string]string{AnnotationRound: p.promises}))
		Expect(s.Promise.After.GetAnnotations()).To(Equal(map[string]string{AnnotationRound: promises}))
	},
		Entry("what is chosen is promised", planned{nodes: 3, maintenances: 3, parallel: "2"}, []string{"m0", "m1"}, nil, "uid-m0:1,uid-m1:1"),
		Entry("what was promised comes first, and has its slot", planned{nodes: 3, maintenances: 3, parallel: "2", promises: "uid-m2:1"},
			[]string{"m2", "m0"}, nil, "uid-m2:1,uid-m0:1"),
		Entry("nothing is promised anew where nothing is chosen", planned{nodes: 3, maintenances: 3, parallel: "2", promises: "uid-m1:1,uid-m2:1"}, []string{"m1", "m2"}, nil, ""),
		Entry("what has changed since has no promise", planned{nodes: 3, maintenances: 3, parallel: "1", promises: "uid-m2:0"}, []string{"m0"}, nil, "uid-m0:1"),
		Entry("what was scheduled since is counted once", planned{nodes: 3, maintenances: 3, parallel: "2", promises: "uid-m2:1", edit: func(i int, nm *v1alpha1.NodeMaintenance) {
			if i == 2 {
				SetPhase(&nm.Status, "Scheduled", "", 0, begin)
			}
		}}, []string{"m0"}, nil, "uid-m0:1"),
		Entry("the promise of a machine that terminates is taken back, and counts until then",
			planned{nodes: 3, maintenances: 3, parallel: "1", promises: "uid-m0:1", machines: map[string]Machine{"n0": {Terminating: true}}}, nil, []string{"m0"}, ""),
		Entry("a slot beside it is used",
			planned{nodes: 3, maintenances: 3, parallel: "2", promises: "uid-m0:1", machines: map[string]Machine{"n0": {Terminating: true}}}, []string{"m1"}, []string{"m0"}, "uid-m1:1,uid-m0:1"),
		Entry("so is that of a node that is gone", planned{nodes: 2, maintenances: 3, parallel: "2", promises: "uid-m2:1"}, []string{"m0", "m1"}, []string{"m2"}, "uid-m0:1,uid-m1:1,uid-m2:1"),
		Entry("and that which is more than a lower limit allows, the last one first", planned{nodes: 3, maintenances: 3, parallel: "1", promises: "uid-m0:1,uid-m1:1"}, []string{"m0"}, []string{"m1"}, ""),
		Entry("also with what is in progress", planned{nodes: 3, maintenances: 3, parallel: "1", promises: "uid-m0:1", edit: func(i int, nm *v1alpha1.NodeMaintenance) {
			if i == 1 {
				SetPhase(&nm.Status, "Ready", "", 0, begin)
			}
		}}, nil, []string{"m0"}, ""),
		Entry("nothing is promised of a namespace that is not taken", planned{nodes: 3, maintenances: 3, parallel: "2", promises: "uid-m0:1", namespaces: Namespaces{"ops"}}, nil, nil, ""),
		Entry("what no maintenance may begin on is left out", planned{nodes: 3, maintenances: 3, parallel: "2", machines: map[string]Machine{"n0": {Missing: true}, "n1": {PowerCycled: true}}},
			[]string{"m2"}, nil, "uid-m2:1"),
	)

	DescribeTable("M11: which machines are asked for", func(p planned, want ...string) {
		_, asked := p.decide()
		Expect(asked).To(HaveExactElements(want))
	},
		Entry("those of all nodes that something is pending of", planned{nodes: 4, maintenances: 2, parallel: "1"}, "n0", "n1"),
		Entry("none where nothing is", planned{nodes: 4, parallel: "1"}),
		Entry("none without a slot", planned{nodes: 4, maintenances: 4, parallel: "1", edit: func(i int, nm *v1alpha1.NodeMaintenance) {
			if i == 3 {
				SetPhase(&nm.Status, "Ready", "", 0, begin)
			}
		}}),
		Entry("but for what is promised", planned{nodes: 2, maintenances: 2, parallel: "1", promises: "uid-m1:1"}, "n0", "n1"),
	)

	It("M17: should choose no more than can be written on the configuration, with what was promised before", func() {
		p := planned{nodes: 150, maintenances: 150, parallel: "0"}
		s, _ := p.decide()
		Expect(s.Scheduled).To(HaveLen(MaxChosen))
		Expect(s.Phases).To(Equal(map[string]int{"Pending": 150}))
		Expect(s.Slots).To(Equal(Slots{Free: 150}))

		p.promises = strings.Repeat("uid-m149:1,", 2) + "uid-m148:1"
		s, _ = p.decide()
		Expect(s.Scheduled).To(HaveLen(MaxChosen))
		Expect(namesOf(s.Scheduled)[:3]).To(Equal([]string{"m148", "m149", "m0"}))
		Expect(s.Slots).To(Equal(Slots{Used: 2, Free: 148}))
	})

	DescribeTable("M10: should write on what was requested as long as that is as it was read, and change it", func(edit func(Request, *v1alpha1.NodeMaintenance, time.Time) *intent.Write, phase string) {
		nm := maintenance("m", func(nm *v1alpha1.NodeMaintenance) {
			nm.ResourceVersion = "1"
			SetPhase(&nm.Status, "Pending", "The slot was taken back at 2026-03-01T12:00:00Z.", 0, begin)
		})
		request := NewRequest(nm, nil)
		write := edit(request, nm, begin.Add(time.Nanosecond))
		Expect(write.Status).To(BeTrue())
		Expect(write.Changes()).To(BeTrue())
		Expect(write.Before).To(BeIdenticalTo(nm))
		Expect(PhaseOf(write.After.(*v1alpha1.NodeMaintenance))).To(Equal(phase))

		newer, another := nm.DeepCopy(), nm.DeepCopy()
		newer.ResourceVersion, another.UID = "2", "another"
		Expect(edit(request, newer, begin)).To(BeNil())
		Expect(edit(request, another, begin)).To(BeNil())
	},
		Entry("to schedule it", Request.Schedule, "Scheduled"),
		Entry("to take its promise back, once more", Request.Withdraw, "Pending"),
	)
})
