// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("UpdateOf", func() {
	var (
		pool = Deployment("pool")
		at   = func(minutes int) time.Time { return Start.Add(time.Duration(minutes) * time.Minute) }
		set  = func(name, revision string, created int) *machinev1alpha1.MachineSet {
			return Set(name, pool, Revision(revision), func(s *machinev1alpha1.MachineSet) { s.CreationTimestamp = metav1.NewTime(at(created)) })
		}
	)

	DescribeTable("D1, D2: what a machine of MachineSet 1, created in minute 5, has missed", func(ctx SpecContext, want facts.Missed, sets ...*machinev1alpha1.MachineSet) {
		scheme := runtime.NewScheme()
		Expect(machinev1alpha1.AddToScheme(scheme)).To(Succeed())
		c := fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(pool)
		for _, s := range sets {
			c.WithObjects(s)
		}
		update, err := UpdateOf(ctx, c.Build(), Machine("m", Of(sets[0]), Created(at(5))))
		Expect(err).NotTo(HaveOccurred())
		Expect(update.Outdated).To(Equal(want.Outdated))
		Expect(update.Since).To(BeTemporally("==", want.Since))
	},
		Entry("nothing", facts.Missed{}, set("1", "1", 0)),
		Entry("an update", facts.Missed{Outdated: true, Since: at(10)}, set("1", "1", 0), set("2", "2", 10)),
		Entry("the first of several: the others begin no drain anew", facts.Missed{Outdated: true, Since: at(10)}, set("1", "1", 0), set("2", "2", 10), set("3", "3", 70)),
		Entry("one that was taken back", facts.Missed{Since: at(10)}, set("1", "3", 0), set("2", "2", 10)),
		Entry("a return to an older MachineSet", facts.Missed{Outdated: true}, set("1", "2", 4), set("0", "3", 0)),
	)
})
