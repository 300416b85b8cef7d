// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package oracle_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	. "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

var _ = Describe("leftovers", func() {
	It("should find nothing where nothing is but what is to stay", func() {
		m := builder.Machine("m", builder.Annotation(v1alpha1.AnnotationMachinePriority, "3"), builder.Annotation(v1alpha1.AnnotationLastAppliedNodePreserveValue, ""),
			builder.Annotation(builder.NotePreservedSince, "2026-01-01T12:00:00Z/2026-01-01T13:00:00Z"), builder.Annotation(builder.NoteMaintainedSince, "2026-01-01T12:00:00Z"),
			builder.Annotation(v1alpha1.AnnotationPowerCycleRecord, "{}"))
		Expect(Leftovers(m, builder.Node("m"))).To(BeEmpty())
		m = builder.Machine("m", builder.Annotation(v1alpha1.AnnotationPreservationRecord, `{"version":1,"spent":{"kept":{"since":"2026-01-01T12:00:00Z"}}}`))
		Expect(Leftovers(m, builder.Node("m"))).To(BeEmpty())
	})

	It("should find all that can be left", func() {
		m := builder.Machine("m", builder.Phase("Unknown", now), builder.Native(now), builder.Annotation(v1alpha1.AnnotationMachinePriority, "5"),
			builder.Annotation(v1alpha1.AnnotationCause, "auto"), builder.Annotation(v1alpha1.AnnotationPreserve, "now"), builder.Annotation(builder.NoteReleased, "2026-01-01T12:00:00Z"),
			builder.Annotation(v1alpha1.AnnotationNeedsRemediation, ""), builder.Annotation(v1alpha1.AnnotationPowerCyclePhase, "Starting"), builder.Annotation(v1alpha1.AnnotationRemediation, "x"))
		m.Finalizers = []string{v1alpha1.FinalizerHost, "other"}
		Expect(Leftovers(m, nil)).To(ConsistOf(
			ContainSubstring("cause=auto"), ContainSubstring("preserve=now"), ContainSubstring("released="), ContainSubstring("machinepriority.machine.sapcloud.io=5"),
			"Machine: phase Unknown", "Machine: expiry in the status", ContainSubstring("external-remediation"), ContainSubstring("power-cycle-phase=Starting"),
			ContainSubstring("/remediation=x"), ContainSubstring("finalizer "+v1alpha1.FinalizerHost), "Node: there is none",
		))
		node := builder.Node("m", builder.NodeAnnotation(v1alpha1.AnnotationScaleDownDisabledByMCM, "true"), builder.NodeAnnotation(v1alpha1.AnnotationMaintenance, "x"),
			builder.NodeAnnotation(v1alpha1.AnnotationPowerCycle, "now"), builder.Taint(v1alpha1.TaintPreserved, now), builder.Taint(v1alpha1.GroupName+"/maintenance", now),
			builder.Taint(corev1.TaintNodeOutOfService, now), builder.Condition("Preserved", corev1.ConditionTrue, "", ""), builder.Condition("Drained", "", "", ""),
			builder.Condition(v1alpha1.ConditionPowerCycle, "", "", ""))
		node.Spec.Unschedulable = true
		Expect(Leftovers(builder.Machine("m"), node)).To(ConsistOf(
			ContainSubstring("scale-down-disabled-by-mcm=true"), ContainSubstring("Node: "+v1alpha1.AnnotationMaintenance), ContainSubstring("power-cycle=now"),
			ContainSubstring("taint "+v1alpha1.TaintPreserved), ContainSubstring("taint "+v1alpha1.GroupName), ContainSubstring("taint node.kubernetes.io/out-of-service"),
			ContainSubstring("condition Preserved is True"), ContainSubstring("condition Drained"), ContainSubstring("condition PowerCycle"), "Node: cordoned",
		))
	})

	It("should not find what people have put there to stay", func() {
		Expect(Leftovers(builder.Machine("m"), builder.Node("m", builder.NodeAnnotation(v1alpha1.AnnotationPreserve, "false")), v1alpha1.AnnotationPreserve)).To(BeEmpty())
		Expect(Leftovers(builder.Machine("m"), builder.Node("m", builder.Condition("Drained", corev1.ConditionTrue, "KubectlDrainCompleted", "")))).To(BeEmpty(), "D13")
	})

	DescribeTable("what is left on a host", func(on bool, annotations map[string]string, left ...any) {
		host := &unstructured.Unstructured{Object: map[string]any{"status": map[string]any{"poweredOn": on}}}
		host.SetAnnotations(annotations)
		Expect(LeftoversOfHost(host)).To(ConsistOf(left...))
	},
		Entry("nothing", true, nil),
		Entry("a history", true, map[string]string{v1alpha1.AnnotationHostOwner: `{"namespace":"shoot--a","cycles":[{"machine":"uid","began":"2026-03-01T12:00:00Z"}]}`}),
		Entry("a request", false, map[string]string{v1alpha1.AnnotationReboot: "", v1alpha1.AnnotationHostOwner: `{"uid":"uid"}`},
			"host: off", ContainSubstring("reboot.metal3.io"), ContainSubstring("power-cycle-owner")),
	)
})
