// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package oracle_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	. "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

var _ = Describe("reading", func() {
	later := now.Add(time.Hour)

	It("should read all claims, also when there is one, and the expiry where it counts", func() {
		m := ReadMachine(builder.Machine("m", builder.Preserved(FailedPreserved, "auto", later)))
		Expect(m.Claims).To(Equal(map[string]time.Time{"auto": later}))
		Expect(m).To(And(HaveField("Kept", true), HaveField("Phase", FailedPreserved), HaveField("Expiry", later)))
		Expect(m.CausesSince(later)).To(Equal([]string{"auto"}), "as long as nobody lets go of it")

		both := "auto=" + now.Format(time.RFC3339) + ",maintenance=" + later.Format(time.RFC3339)
		m = ReadMachine(builder.Machine("m", builder.Preserved(FailedPreserved, "auto", later), builder.Annotation(builder.NoteClaims, both), builder.Native(now)))
		Expect(m.Claims).To(Equal(map[string]time.Time{"auto": now, "maintenance": later}))
		Expect(m).To(And(HaveField("Written", later), HaveField("Expiry.Unix()", now.Unix())))
		Expect(m.IsOnlyWorkedOn(ago(time.Second))).To(BeFalse())
		Expect(m.IsOnlyWorkedOn(now)).To(BeTrue())
		Expect(m.IsWorkedOn(later)).To(BeFalse())
	})

	It("should read nothing where nothing is, or that is on its way out", func() {
		Expect(ReadMachine(builder.Machine("m"))).To(Equal(Machine{Status: machinev1alpha1.MachineRunning, Claims: map[string]time.Time{}}))
		Expect(ReadMachine(builder.Machine("m", builder.Preserved(FailedPreserved, "auto", later), builder.Deleted(now)))).To(And(HaveField("Kept", false), HaveField("Terminating", true)))
	})

	It("should read what machine-controller-manager writes without us", func() {
		m := builder.Machine("m", builder.Native(later), builder.Phase(machinev1alpha1.MachineFailed, now), builder.Annotation(v1alpha1.AnnotationPreserve, "auto-preserved"))
		Expect(ReadManagers(m).UsesShare(now)).To(BeTrue())
		builder.Annotation(v1alpha1.AnnotationPreserve, "now")(m)
		Expect(ReadManagers(m)).To(And(HaveField("Kept", true), HaveField("Phase", FailedPreserved)))
		Expect(ReadManagers(m).UsesShare(now)).To(BeFalse())
		Expect(ReadManagers(builder.Machine("m")).Kept).To(BeFalse())
	})
})
