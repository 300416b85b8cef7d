// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strconv"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

var _ = Describe("oracle", func() {
	const pool = "pool"
	var (
		o   *oracle
		now time.Time
	)

	after := func(d time.Duration) { now = now.Add(d) }
	deployment := func(replicas int32, share int, updated int32) {
		d := &machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: pool, Annotations: map[string]string{
			v1alpha1.AnnotationAutoPreserveFailedMax: strconv.Itoa(share),
		}}}
		d.Spec.Replicas, d.Status.Replicas, d.Status.UpdatedReplicas = replicas, replicas, updated
		o.sawDeployment(d, now)
	}
	machine := func(name string, annotations ...string) *machinev1alpha1.Machine {
		m := &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{deploymentLabel: pool}, Annotations: map[string]string{}}}
		m.Status.CurrentStatus.Phase = machinev1alpha1.MachineUnknown
		for i := 0; i < len(annotations); i += 2 {
			m.Annotations[annotations[i]] = annotations[i+1]
		}
		return m
	}
	keptMachine := func(name, cause, phase string, expiry time.Time) *machinev1alpha1.Machine {
		return machine(name, v1alpha1.AnnotationCause, cause, v1alpha1.AnnotationPhase, phase, v1alpha1.AnnotationExpiryTime, expiry.UTC().Format(time.RFC3339))
	}
	terminating := func(m *machinev1alpha1.Machine) *machinev1alpha1.Machine {
		m.DeletionTimestamp = &metav1.Time{Time: now}
		return m
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
		deployment(3, 1, 3)
		after(10 * time.Minute)
	})

	Describe("the end of a preservation", func() {
		var expiry time.Time

		BeforeEach(func() {
			expiry = now.Add(10 * time.Minute)
			o.saw(keptMachine("m", "auto", rules.FailedPreserved, expiry), false, now)
			after(2 * time.Minute)
		})

		It("should be blamed without a reason, with the history", func() {
			o.saw(machine("m"), false, now)
			Expect(violations()).To(ConsistOf(ContainSubstring("m was let go without a reason")))
			Expect(o.machines["m"].lines).To(ContainElement(ContainSubstring("saw: Failed:Preserved (auto)")))
		})

		It("should be blamed if the machine is terminated while it is kept, or vanishes", func() {
			o.saw(terminating(keptMachine("m", "auto", rules.FailedPreserved, expiry)), false, now)
			o.saw(keptMachine("n", "now", "Running:Preserved", expiry), false, now)
			o.saw(keptMachine("n", "now", "Running:Preserved", expiry), true, now)
			Expect(violations()).To(ConsistOf(ContainSubstring("m was terminated without"), ContainSubstring("n was terminated without")))
		})

		DescribeTable("should not be blamed with a reason", func(reason func()) {
			reason()
			o.saw(machine("m"), false, now)
			o.saw(terminating(machine("m")), false, now)
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
			o.saw(machine("m"), false, now)
			after(time.Second)
			deployment(2, 1, 2)
			after(time.Minute)
			Expect(violations()).To(BeEmpty())
		})
	})

	It("H1: should blame a machine that is taken for healthy and cannot be, but not a moment after it broke", func() {
		expiry := now.Add(time.Hour)
		for _, name := range []string{"long", "just", "healed"} {
			o.saw(keptMachine(name, "auto", rules.FailedPreserved, expiry), false, now)
		}
		o.breaks("long", "kubelet-dead", now)
		o.breaks("healed", "kubelet-dead", now)
		after(10 * time.Minute)
		o.breaks("just", "kubelet-dead", now)
		o.breaks("healed", "", now)
		after(time.Second)
		for _, name := range []string{"long", "just", "healed"} {
			o.saw(keptMachine(name, "now", "Running:Preserved", expiry), false, now)
		}
		Expect(violations()).To(ContainElement(ContainSubstring("long is taken for healthy")))
		Expect(violations()).NotTo(ContainElement(Or(ContainSubstring("just is taken"), ContainSubstring("healed is taken"))))
	})

	Describe("the share", func() {
		var expiry time.Time

		BeforeEach(func() {
			expiry = now.Add(time.Hour)
			o.saw(keptMachine("m", "auto", rules.FailedPreserved, expiry), false, now)
			o.saw(keptMachine("asked", "when-failed", rules.FailedPreserved, expiry), false, now)
			o.saw(keptMachine("healthy", "auto", "Running:Preserved", expiry), false, now)
		})

		It("should be blamed on all who have one place together", func() {
			o.saw(keptMachine("n", "auto", rules.FailedPreserved, expiry), false, now)
			Expect(violations()).To(ConsistOf(ContainSubstring("m was one of 2"), ContainSubstring("n was one of 2")))
		})

		It("should not be blamed if it was raised, although that is seen a moment later", func() {
			o.saw(keptMachine("n", "auto", rules.FailedPreserved, expiry), false, now)
			after(time.Second)
			deployment(3, 2, 3)
			after(time.Minute)
			Expect(violations()).To(BeEmpty())
		})

		It("should not be blamed if it is raised later", func() {
			o.saw(keptMachine("n", "auto", rules.FailedPreserved, expiry), false, now)
			after(lag + time.Second)
			deployment(3, 2, 3)
			Expect(violations()).To(HaveLen(2))
		})

		It("should be blamed only a while after it was lowered", func() {
			deployment(3, 0, 3)
			after(aftermath)
			o.saw(machine("other"), false, now)
			Expect(violations()).To(BeEmpty())
			after(time.Second)
			o.saw(machine("another"), false, now)
			Expect(violations()).To(ConsistOf(ContainSubstring("m was one of 1")))
		})
	})

	It("P10: should blame what is kept beyond its expiry, and wait for the shoot's API server and for the sidecar", func() {
		o.saw(keptMachine("m", "auto", rules.FailedPreserved, now), false, now)
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
})
