// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("MachineOf", func() {
	until := Start.Add(time.Hour)

	DescribeTable("V1: whether a machine is to be validated after a maintenance", func(ctx SpecContext, wanted, validated, unvalidated bool, opts ...MachineOption) {
		scheme := runtime.NewScheme()
		Expect(machinev1alpha1.AddToScheme(scheme)).To(Succeed())
		pool := Deployment("pool", Replicas(1))
		set := Set("pool-1", pool, Revision("1"))
		if wanted {
			pool.Annotations = map[string]string{v1alpha1.AnnotationValidation: `{"condition":"GPUHealthy","timeout":"15m","onTimeout":"Keep"}`}
		}
		source := fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(pool, set, Machine("n", append(opts, Of(set))...)).
			WithIndex(&machinev1alpha1.Machine{}, "node", func(o client.Object) []string { return []string{o.GetLabels()["node"]} }).Build()
		m, err := MachineOf(ctx, shoot.NewPools(source), "n", false)
		Expect(err).NotTo(HaveOccurred())
		Expect(m.Missing).To(BeFalse())
		Expect([]bool{m.Validated, m.Unvalidated}).To(Equal([]bool{validated, unvalidated}))
	},
		Entry("one that is preserved for it", true, true, false, Preserved("Running:Preserved", "maintenance", until)),
		Entry("one that was to be validated before", true, true, true,
			Annotation(v1alpha1.AnnotationCause, "maintenance"), Annotation(v1alpha1.AnnotationExpiryTime, until.Format(time.RFC3339)),
			Annotation(v1alpha1.AnnotationPreservationRecord, `{"version":1,"validatingSince":"2026-01-02T03:04:05Z"}`)),
		Entry("not where the pool wants no proof", false, false, false, Preserved("Running:Preserved", "maintenance", until)),
		Entry("not where it is not preserved", true, false, false),
		Entry("not where something else preserves it", true, false, false, Preserved("Running:Preserved", "now", until)),
	)
})

var _ = DescribeTable("M15: whether a rollout may have begun or ended", func(change func(s *machinev1alpha1.MachineSet), want bool) {
	before := Set("pool-1", Deployment("pool"), Revision("1"), func(s *machinev1alpha1.MachineSet) { s.Spec.Replicas, s.Status.Replicas = 2, 2 })
	after := before.DeepCopy()
	change(after)
	Expect(MachineSetChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})).To(Equal(want))
},
	Entry("another revision", Revision("2"), true),
	Entry("no machine is wanted any more, whatever the status says", func(s *machinev1alpha1.MachineSet) { s.Spec.Replicas = 0 }, true),
	Entry("the last machine is gone", func(s *machinev1alpha1.MachineSet) { s.Status.Replicas = 0 }, true),
	Entry("fewer machines", func(s *machinev1alpha1.MachineSet) { s.Spec.Replicas, s.Status.Replicas = 1, 1 }, false),
)
