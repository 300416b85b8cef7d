// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/simulator"
)

var _ = Describe("Hosts", func() {
	It("should name the valid kinds", func() {
		Expect(Validate("")).To(Succeed())
		Expect(Validate(BareMetalHost)).To(Succeed())
		Expect(Validate("vm")).To(MatchError(`invalid kind of hosts "vm", valid are: baremetalhost, ironcore-0.3, ironcore-0.7`))
	})

	DescribeTable("#Obeys", func(misbehaviour Misbehaviour, on, off bool) {
		Expect(misbehaviour.Obeys(true)).To(Equal(on))
		Expect(misbehaviour.Obeys(false)).To(Equal(off))
	},
		Entry("no misbehaviour", Misbehaviour(""), true, true),
		Entry("never off", NeverOff, true, false),
		Entry("never on", NeverOn, false, true),
		Entry("old boot id", OldBootID, true, true),
		Entry("late", LateReport, true, true),
		Entry("serviced", Servicing, true, true),
		Entry("error", PowerError, false, false),
	)

	Describe("#Switch", func() {
		const uuidRegexp = "^[0-9a-f]{8}-([0-9a-f]{4}-){3}[0-9a-f]{12}$"
		var (
			now = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)
			c   client.Client
			key = client.ObjectKey{Namespace: "shoot--a", Name: "m"}
		)

		switchTo := func(ctx SpecContext, misbehaviour Misbehaviour, on bool) simulator.Power {
			GinkgoHelper()
			pod, err := Machine(ctx, c, key)
			Expect(err).NotTo(HaveOccurred())
			power, err := misbehaviour.Switch(ctx, c, pod, on, now)
			Expect(err).NotTo(HaveOccurred())
			pod, err = Machine(ctx, c, key)
			Expect(err).NotTo(HaveOccurred())
			Expect(simulator.PowerOf(pod)).To(Equal(power))
			return power
		}

		BeforeEach(func() {
			podKey := simulator.PodKey(key)
			c = fakeclient.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(
				&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: podKey.Namespace, Name: podKey.Name, UID: "first"}}).Build()
		})

		It("should find no machine where there is none", func(ctx SpecContext) {
			Expect(Machine(ctx, c, client.ObjectKey{Namespace: "shoot--a", Name: "other"})).To(BeNil())
		})

		It("should give each boot an id of its own", func(ctx SpecContext) {
			Expect(switchTo(ctx, "", false)).To(Equal(simulator.Power{Since: now, BootID: "first"}))
			on := switchTo(ctx, "", true)
			Expect(on.On).To(BeTrue())
			Expect(on.BootID).To(MatchRegexp(uuidRegexp))
			Expect(switchTo(ctx, "", false).BootID).To(Equal(on.BootID))
			Expect(switchTo(ctx, "", true).BootID).NotTo(Equal(on.BootID))
		})

		It("should change nothing where nothing is to be switched", func(ctx SpecContext) {
			Expect(switchTo(ctx, "", true)).To(Equal(simulator.Power{On: true, BootID: "first"}))
		})

		It("should keep the id of a machine that pretends to have been off", func(ctx SpecContext) {
			switchTo(ctx, OldBootID, false)
			Expect(switchTo(ctx, OldBootID, true)).To(Equal(simulator.Power{On: true, Since: now, BootID: "first"}))
		})
	})
})
