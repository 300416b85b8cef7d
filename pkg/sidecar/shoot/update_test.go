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

var _ = It("D1, D2: should read what a machine has missed, of its own MachineDeployment only", func(ctx SpecContext) {
	pool, other := Deployment("pool"), Deployment("other")
	old := Set("old", pool, Revision("1"))
	newest := Set("new", pool, Revision("2"), func(s *machinev1alpha1.MachineSet) { s.CreationTimestamp = metav1.NewTime(Start.Add(time.Hour)) })
	scheme := runtime.NewScheme()
	Expect(machinev1alpha1.AddToScheme(scheme)).To(Succeed())
	c := fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(pool, other, old, newest, Set("others", other, Revision("3"))).Build()

	missed, err := NewPools(c).UpdateOf(ctx, Machine("m", Of(old), Created(Start)))
	Expect(err).NotTo(HaveOccurred())
	Expect(missed.Outdated).To(BeTrue())
	Expect(missed.Since).To(BeTemporally("==", newest.CreationTimestamp.Time))

	missed, err = NewPools(c).UpdateOf(ctx, Machine("m", Of(newest), Created(Start.Add(2*time.Hour))))
	Expect(err).NotTo(HaveOccurred())
	Expect(missed).To(Equal(facts.Missed{}))

	missed, err = NewPools(c).UpdateOf(ctx, Machine("m", Of(Set("unknown", pool))))
	Expect(err).NotTo(HaveOccurred())
	Expect(missed).To(Equal(facts.Missed{}))
})

var _ = It("D1: should have missed nothing where the update was taken back in place", func(ctx SpecContext) {
	pool := Deployment("pool", InPlace)
	later := Set("later", pool, Revision("2"), func(s *machinev1alpha1.MachineSet) { s.CreationTimestamp = metav1.NewTime(Start.Add(time.Hour)) })
	newest := Set("newest", pool, Revision("3"))
	scheme := runtime.NewScheme()
	Expect(machinev1alpha1.AddToScheme(scheme)).To(Succeed())
	c := fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(pool, later, newest).Build()
	Expect(NewPools(c).UpdateOf(ctx, Machine("m", Of(newest), Created(Start)))).To(Equal(facts.Missed{}))
	Expect(NewPools(c).UpdateOf(ctx, Machine("m", Of(later), Created(Start)))).To(And(HaveField("Outdated", true), HaveField("Since", BeTemporally("==", Start.Add(time.Hour)))))
})
