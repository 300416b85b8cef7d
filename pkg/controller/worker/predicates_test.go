// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/worker"
)

var _ = Describe("Predicates", func() {
	DescribeTable("#ExtensionPredicate",
		func(extensionType string, class *extensionsv1alpha1.ExtensionClass, expected bool) {
			extension := func(generation int64) *extensionsv1alpha1.Extension {
				e := &extensionsv1alpha1.Extension{ObjectMeta: metav1.ObjectMeta{Generation: generation}}
				e.Spec.Type, e.Spec.Class = extensionType, class
				return e
			}
			p := ExtensionPredicate()
			Expect(p.Create(event.CreateEvent{Object: extension(1)})).To(Equal(expected))
			Expect(p.Update(event.UpdateEvent{ObjectOld: extension(1), ObjectNew: extension(2)})).To(Equal(expected))
			Expect(p.Delete(event.DeleteEvent{Object: extension(1)})).To(Equal(expected))
			Expect(p.Update(event.UpdateEvent{ObjectOld: extension(1), ObjectNew: extension(1)})).To(BeFalse(), "only the status has changed")
		},
		Entry("ours", "machine-preservation", nil, true),
		Entry("ours with explicit class", "machine-preservation", new(extensionsv1alpha1.ExtensionClassShoot), true),
		Entry("of another class", "machine-preservation", new(extensionsv1alpha1.ExtensionClassSeed), false),
		Entry("of another type", "registry-cache", nil, false),
	)

	DescribeTable("#WorkerPredicate", func(change func(*extensionsv1alpha1.Worker), expected bool) {
		oldWorker := &extensionsv1alpha1.Worker{ObjectMeta: metav1.ObjectMeta{Generation: 1}}
		oldWorker.Status.MachineDeployments = []extensionsv1alpha1.MachineDeployment{{Name: "a", Minimum: 1, Maximum: 3}}
		newWorker := oldWorker.DeepCopy()
		change(newWorker)
		Expect(WorkerPredicate().Update(event.UpdateEvent{ObjectOld: oldWorker, ObjectNew: newWorker})).To(Equal(expected))
	},
		Entry("specification", func(w *extensionsv1alpha1.Worker) { w.Generation = 2 }, true),
		Entry("minimum", func(w *extensionsv1alpha1.Worker) { w.Status.MachineDeployments[0].Minimum = 3 }, true),
		Entry("maximum", func(w *extensionsv1alpha1.Worker) { w.Status.MachineDeployments[0].Maximum = 4 }, true),
		Entry("another MachineDeployment", func(w *extensionsv1alpha1.Worker) { w.Status.MachineDeployments = nil }, true),
		Entry("anything else in the status", func(w *extensionsv1alpha1.Worker) {
			w.Status.MachineDeploymentsLastUpdateTime = new(metav1.Now())
			w.Status.MachineDeployments[0].Priority = new(int32(7))
		}, false),
	)

	It("#WorkerPredicate should react when a Worker comes or goes", func() {
		Expect(WorkerPredicate().Create(event.CreateEvent{Object: &extensionsv1alpha1.Worker{}})).To(BeTrue())
		Expect(WorkerPredicate().Delete(event.DeleteEvent{Object: &extensionsv1alpha1.Worker{}})).To(BeTrue())
	})

	DescribeTable("#MachineDeploymentPredicate",
		func(change func(*metav1.ObjectMeta, *machinev1alpha1.MachineDeployment), expected bool) {
			oldDeployment := &machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Generation: 1, Annotations: map[string]string{"a": "b"}}}
			newDeployment := oldDeployment.DeepCopy()
			change(&newDeployment.ObjectMeta, newDeployment)
			Expect(MachineDeploymentPredicate().Update(event.UpdateEvent{ObjectOld: oldDeployment, ObjectNew: newDeployment})).To(Equal(expected))
		},
		Entry("specification", func(m *metav1.ObjectMeta, _ *machinev1alpha1.MachineDeployment) { m.Generation = 2 }, true),
		Entry("annotations", func(m *metav1.ObjectMeta, _ *machinev1alpha1.MachineDeployment) { m.Annotations = nil }, true),
		Entry("labels", func(m *metav1.ObjectMeta, _ *machinev1alpha1.MachineDeployment) {
			m.Labels = map[string]string{"c": "d"}
		}, true),
		Entry("status", func(_ *metav1.ObjectMeta, d *machinev1alpha1.MachineDeployment) { d.Status.Replicas = 1 }, false),
	)

	It("#MachineDeploymentPredicate should react when a MachineDeployment comes or goes", func() {
		var object client.Object = &machinev1alpha1.MachineDeployment{}
		Expect(MachineDeploymentPredicate().Create(event.CreateEvent{Object: object})).To(BeTrue())
		Expect(MachineDeploymentPredicate().Delete(event.DeleteEvent{Object: object})).To(BeTrue())
	})

	It("#MachineClassPredicate should react to new zones", func() {
		var (
			p        = MachineClassPredicate()
			zoneless = &machinev1alpha1.MachineClass{}
			zoned    = &machinev1alpha1.MachineClass{NodeTemplate: &machinev1alpha1.NodeTemplate{Zone: "a"}}
		)
		Expect(p.Create(event.CreateEvent{Object: zoned})).To(BeTrue())
		Expect(p.Update(event.UpdateEvent{ObjectOld: zoneless, ObjectNew: zoned})).To(BeTrue())
		Expect(p.Update(event.UpdateEvent{ObjectOld: zoned, ObjectNew: zoned})).To(BeFalse())
		Expect(p.Delete(event.DeleteEvent{Object: zoned})).To(BeFalse())
	})
})
