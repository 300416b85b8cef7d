// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package gardenlet_test

import (
	"context"
	"errors"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	. "github.com/gardener/gardener-extension-machine-preservation/test/landscape/garden/gardenlet"
)

var _ = Describe("ShootReconciler", func() {
	var (
		c          client.Client
		reconciler *ShootReconciler
		shoot      *gardencorev1beta1.Shoot
		// applied are the Shoots that were applied, deleted are the names of those that were deleted.
		applied []*gardencorev1beta1.Shoot
		deleted []string
		failure error
	)

	BeforeEach(func() {
		applied, deleted, failure = nil, nil, nil
		shoot = &gardencorev1beta1.Shoot{
			ObjectMeta: metav1.ObjectMeta{Name: "demo", Namespace: "garden-local", UID: "1", Generation: 3},
			Spec: gardencorev1beta1.ShootSpec{
				SeedName:     new("local"),
				CloudProfile: &gardencorev1beta1.CloudProfileReference{Kind: "CloudProfile", Name: "profile"},
			},
		}
	})

	start := func() {
		c = fakeclient.NewClientBuilder().WithScheme(kubernetesclient.GardenScheme).WithStatusSubresource(shoot).WithObjects(
			shoot,
			&gardencorev1beta1.CloudProfile{ObjectMeta: metav1.ObjectMeta{Name: "profile"}},
			&gardencorev1beta1.Seed{ObjectMeta: metav1.ObjectMeta{Name: "local"}},
		).Build()
		reconciler = &ShootReconciler{
			Client:   c,
			Clock:    clock.RealClock{},
			Identity: gardencorev1beta1.Gardener{Name: "gardenlet"},
			Apply: func(_ context.Context, shoot *gardencorev1beta1.Shoot, cloudProfile *gardencorev1beta1.CloudProfile, seed *gardencorev1beta1.Seed) error {
				Expect(cloudProfile.Name).To(Equal("profile"))
				Expect(seed.Name).To(Equal("local"))
				applied = append(applied, shoot.DeepCopy())
				return failure
			},
			Delete: func(_ context.Context, name string) error {
				deleted = append(deleted, name)
				return failure
			},
		}
	}
	run := func(ctx SpecContext) error {
		_, err := reconciler.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(shoot)})
		return err
	}
	get := func(ctx SpecContext) error { return c.Get(ctx, client.ObjectKeyFromObject(shoot), shoot) }

	It("leaves a Shoot alone that is not scheduled", func(ctx SpecContext) {
		shoot.Spec.SeedName = nil
		start()
		Expect(run(ctx)).To(Succeed())
		Expect(get(ctx)).To(Succeed())
		Expect(applied).To(BeEmpty())
		Expect(shoot.Finalizers).To(BeEmpty())
	})

	It("creates a Shoot, and reports", func(ctx SpecContext) {
		start()
		Expect(run(ctx)).To(Succeed())

		Expect(applied).To(HaveLen(1))
		Expect(applied[0].Finalizers).To(ConsistOf("gardener"))
		Expect(applied[0].Status.TechnicalID).To(Equal("shoot--local--demo"))
		Expect(*applied[0].Status.LastOperation).To(And(HaveField("Type", BeEquivalentTo("Create")), HaveField("State", BeEquivalentTo("Processing"))))

		Expect(get(ctx)).To(Succeed())
		Expect(*shoot.Status.LastOperation).To(And(
			HaveField("Type", BeEquivalentTo("Create")),
			HaveField("State", BeEquivalentTo("Succeeded")),
			HaveField("Progress", BeEquivalentTo(100)),
		))
		Expect(shoot.Status.ObservedGeneration).To(Equal(int64(3)))
		Expect(shoot.Status.SeedName).To(HaveValue(Equal("local")))
		Expect(shoot.Status.UID).To(BeEquivalentTo("1"))
		Expect(shoot.Status.Gardener.Name).To(Equal("gardenlet"))
		Expect(shoot.Status.IsHibernated).To(BeFalse())
	})

	It("hibernates a Shoot that exists", func(ctx SpecContext) {
		shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: "Create", State: "Succeeded"}
		shoot.Spec.Hibernation = &gardencorev1beta1.Hibernation{Enabled: new(true)}
		start()
		Expect(run(ctx)).To(Succeed())
		Expect(applied[0].Status.IsHibernated).To(BeFalse())
		Expect(get(ctx)).To(Succeed())
		Expect(shoot.Status.LastOperation.Type).To(BeEquivalentTo("Reconcile"))
		Expect(shoot.Status.IsHibernated).To(BeTrue())
	})

	It("reports errors until it succeeds", func(ctx SpecContext) {
		failure = errors.New("no machines")
		start()
		Expect(run(ctx)).To(MatchError(failure))
		Expect(get(ctx)).To(Succeed())
		Expect(*shoot.Status.LastOperation).To(And(
			HaveField("Type", BeEquivalentTo("Create")),
			HaveField("State", BeEquivalentTo("Error")),
			HaveField("Description", ContainSubstring("no machines")),
		))
		Expect(shoot.Status.LastErrors).To(ConsistOf(HaveField("Description", "no machines")))

		failure = nil
		Expect(run(ctx)).To(Succeed())
		Expect(get(ctx)).To(Succeed())
		Expect(*shoot.Status.LastOperation).To(And(HaveField("Type", BeEquivalentTo("Create")), HaveField("State", BeEquivalentTo("Succeeded"))))
		Expect(shoot.Status.LastErrors).To(BeEmpty())
	})

	Describe("deletion", func() {
		BeforeEach(func() {
			shoot.DeletionTimestamp = new(metav1.Now())
			shoot.Finalizers = []string{"gardener"}
		})

		It("lets go of a Shoot when all of it is gone", func(ctx SpecContext) {
			failure = errors.New("still there")
			start()
			Expect(run(ctx)).To(MatchError(failure))
			Expect(get(ctx)).To(Succeed())
			Expect(*shoot.Status.LastOperation).To(And(HaveField("Type", BeEquivalentTo("Delete")), HaveField("State", BeEquivalentTo("Error"))))

			failure = nil
			Expect(run(ctx)).To(Succeed())
			Expect(deleted).To(Equal([]string{"demo", "demo"}))
			Expect(applied).To(BeEmpty())
			Expect(get(ctx)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
		})

		It("does not begin again when it is over", func(ctx SpecContext) {
			shoot.Finalizers = []string{"someone-else"}
			start()
			Expect(run(ctx)).To(Succeed())
			Expect(deleted).To(BeEmpty())
		})
	})
})
