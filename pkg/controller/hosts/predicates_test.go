// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package hosts_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Predicates", func() {
	updated := func(p predicate.Predicate, before, after client.Object) bool {
		return p.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
	}

	It("X19: Machines that enter another phase, are being deleted, come or go", func() {
		p, machine := MachinePredicate(), builder.Machine("m", builder.Annotation(prefix+"power-cycle-phase", "PoweringOff"))
		Expect(p.Create(event.CreateEvent{Object: machine})).To(BeTrue())
		Expect(p.Delete(event.DeleteEvent{Object: machine})).To(BeTrue())
		Expect(updated(p, machine, builder.Machine("m", builder.Annotation(prefix+"power-cycle-phase", "MakingNodeSafe")))).To(BeTrue())
		deleted := machine.DeepCopy()
		deleted.DeletionTimestamp = &metav1.Time{Time: builder.Start}
		Expect(updated(p, machine, deleted)).To(BeTrue())
		Expect(updated(p, machine, builder.Machine("m", builder.Annotation(prefix+"power-cycle-phase", "PoweringOff"), builder.Created(builder.Start.Add(time.Hour))))).To(BeFalse())
	})

	It("X19: MachineDeployments whose settings change or go", func() {
		p, with, without := MachineDeploymentPredicate(), builder.Deployment("pool", builder.DeploymentAnnotation(settings, "{}")), builder.Deployment("pool")
		Expect(p.Create(event.CreateEvent{Object: with})).To(BeFalse())
		Expect(updated(p, with, without)).To(BeTrue())
		Expect(updated(p, with, builder.Deployment("pool", builder.DeploymentAnnotation(settings, "{}"), builder.Replicas(7)))).To(BeFalse())
		Expect(p.Delete(event.DeleteEvent{Object: with})).To(BeTrue())
		Expect(p.Delete(event.DeleteEvent{Object: without})).To(BeFalse())
	})

	It("X19: access Secrets that say that hosts may be off, when they come", func() {
		p := AccessSecretPredicate()
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shoot-access-machine-preservation-controller", Annotations: map[string]string{prefix + "power-cycle-seed": "seed"}}}
		Expect(p.Create(event.CreateEvent{Object: secret})).To(BeTrue())
		Expect(updated(p, secret, secret)).To(BeFalse())
		Expect(p.Delete(event.DeleteEvent{Object: secret})).To(BeFalse())
		secret.Name = "other"
		Expect(p.Create(event.CreateEvent{Object: secret})).To(BeFalse())
		Expect(p.Create(event.CreateEvent{Object: &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shoot-access-machine-preservation-controller"}}})).To(BeFalse())
	})
})
