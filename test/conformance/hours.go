// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"time"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/hours"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	// hoursLeft is how much is left of the machine-hours when the scenario begins.
	hoursLeft = 100 * time.Second
	usedUp    = "as many machine-hours this month as operators allow"
)

// machineHours: a machine is auto-preserved until the machine-hours of the month are used up. The preservation controller crashes meanwhile, and
// counts the time all the same, once. No other machine is preserved after that, whether it fails or is requested. When operators raise the limit,
// requests count again.
func machineHours(p *Pool) {
	account := p.beginAccount(1, hoursLeft)
	p.t.Cleanup(func() { p.limitHours(0) })
	p.limitHours(1)
	machines := p.running(2)
	first, second := machines[0], machines[1]

	p.fail(first, KubeletDead)
	p.preserved(first, failedPreserved, "auto")
	since, err := time.Parse(time.RFC3339, builder.Noted(p.fresh(p, first))[builder.NotePreservedSince])
	p.Expect(err).NotTo(HaveOccurred())
	p.Expect(p.KillSidecar(p.ctx)).To(Succeed())
	p.told(first, "MachinePreservationEnded", usedUp)
	p.waitForEvent(p.Seed, p.Namespace, p.deploymentName, "MachineHoursUsed", "all 1 machine-hours")
	p.eventually(func(g Gomega) {
		a := readAccount(p.ctx, g, p.Seed, account)
		g.Expect(a.SpentAt).To(BeTemporally("~", since.Add(hoursLeft), 10*time.Second))
		g.Expect(a.Pools[p.name]).To(BeNumerically("~", hoursLeft/time.Second, 10))
		g.Expect(time.Duration(a.Used(time.Now())) * time.Second).To(BeNumerically("~", time.Hour, 10*time.Second))
	})
	p.gone(first)

	p.fail(second, KubeletDead)
	p.told(second, "MachinePreservationRefused", usedUp)
	p.gone(second)

	third := p.running(2)[0]
	p.request(third, "now")
	p.nodeEvent(third, "MachinePreservationRefused", usedUp)
	p.ordinary(third)
	p.withdraw(third)

	p.limitHours(1000)
	p.request(third, "now")
	p.preserved(third, runningPreserved, "now")
	p.withdraw(third)
	p.ordinary(third)
}

// beginAccount begins an account of which so much is left, before anybody counts. It is deleted when the scenario ends.
func (p *Pool) beginAccount(limit int, left time.Duration) *corev1.ConfigMap {
	p.t.Helper()
	account := hours.New(time.Now())
	account.Pools = map[string]int64{"conformance": int64((time.Duration(limit)*time.Hour - left) / time.Second)}
	stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: hours.ConfigMapName}, Data: map[string]string{hours.Key: account.Encode()}}
	remove := func(ctx context.Context) error { return client.IgnoreNotFound(p.Seed.Delete(ctx, stored.DeepCopy())) }
	p.Expect(remove(p.ctx)).To(Succeed())
	p.clearOthers()
	p.Expect(p.Seed.Create(p.ctx, stored)).To(Succeed())
	p.t.Cleanup(func() {
		if err := remove(context.WithoutCancel(p.ctx)); err != nil {
			p.t.Errorf("The account could not be deleted: %v", err)
		}
	})
	return stored
}

// clearOthers has no machine preserved in other pools, where other scenarios may have left some: they would use machine-hours as well.
func (p *Pool) clearOthers() {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		for name := range p.replicas {
			deployment := &machinev1alpha1.MachineDeployment{}
			g.Expect(p.Seed.Get(p.ctx, client.ObjectKey{Namespace: p.Namespace, Name: name}, deployment)).To(Succeed())
			machines, err := p.machinesOf(p.ctx, deployment)
			g.Expect(err).NotTo(HaveOccurred())
			for i := range machines {
				_, _, err := p.clean(p.ctx, &machines[i])
				g.Expect(err).NotTo(HaveOccurred())
				g.Expect(machines[i].Annotations).NotTo(HaveKey(prefix + "cause"))
			}
		}
	})
}

func readAccount(ctx context.Context, g Gomega, seed client.Reader, stored *corev1.ConfigMap) hours.Account {
	fresh := &corev1.ConfigMap{}
	g.Expect(seed.Get(ctx, client.ObjectKeyFromObject(stored), fresh)).To(Succeed())
	account, err := hours.Decode(fresh.Data[hours.Key])
	g.Expect(err).NotTo(HaveOccurred())
	return account
}

// limitHours has operators say how many machine-hours there are, 0 for any number, and waits until the preservation controller knows it. The
// permission for the account comes with a reconciliation of the Extension, which gardenlet asks for with each one of the Shoot.
func (p *Pool) limitHours(limit int32) {
	p.t.Helper()
	p.t.Logf("maxMachineHours: %d", limit)
	p.Expect(p.LimitMachineHours(context.WithoutCancel(p.ctx), limit)).To(Succeed())
	p.eventually(func(g Gomega) {
		extension, err := p.extension(p.ctx)
		g.Expect(err).NotTo(HaveOccurred())
		g.Expect(patchAnnotations(p.ctx, p.Seed, extension, map[string]any{v1beta1constants.GardenerOperation: v1beta1constants.GardenerOperationReconcile})).To(Succeed())
	})
	if limit == 0 {
		p.configured(Not(ContainElement(HavePrefix("--max-machine-hours="))))
		return
	}
	p.configured(ContainElement(fmt.Sprintf("--max-machine-hours=%d", limit)))
}
