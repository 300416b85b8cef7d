// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"context"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/sidecar"
)

// lagging is a client whose cache never gets to know of a change to a Machine.
type lagging struct {
	client.Client
	machines *machinev1alpha1.MachineList
}

// List implements client.Client.
func (l *lagging) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	machines, ok := list.(*machinev1alpha1.MachineList)
	if !ok {
		return l.Client.List(ctx, list, opts...)
	}
	if l.machines == nil {
		l.machines = &machinev1alpha1.MachineList{}
		if err := l.Client.List(ctx, l.machines, opts...); err != nil {
			return err
		}
	}
	l.machines.DeepCopyInto(machines)
	return nil
}

// known are nodes that are read from the API server.
type known struct{ client.Client }

// Known implements preservation.Nodes.
func (known) Known() bool { return true }

var _ = Describe("Lagging cache", func() {
	It("P6: should not let a preservation begin once more, with a later expiry", func(ctx SpecContext) {
		generation := sidecar.Generations["machine-controller-manager 0.62"]
		api := sidecar.Start(ctx, generation)
		set := sidecar.Pool(ctx, api, "pool", builder.Share("1"))
		node := sidecar.NewNode("node", builder.NodeAnnotation("node.machine.sapcloud.io/preserve", "now"))
		Expect(api.Create(ctx, node)).To(Succeed())
		machine := sidecar.NewMachine("m", node.Name, set)
		Expect(api.Create(ctx, machine)).To(Succeed())
		builder.Phase(machinev1alpha1.MachineRunning, time.Now())(machine)
		Expect(api.Status().Update(ctx, machine)).To(Succeed())

		clock := testclock.NewFakePassiveClock(time.Now())
		reconciler := &preservation.Reconciler{
			Source:       &lagging{Client: api},
			SourceReader: api,
			Nodes:        known{api},
			NodeReader:   api,
			Holder:       generation.Holder,
			MaxTimeout:   v1alpha1.DefaultMaxMachinePreserveTimeout,
			Timeouts:     facts.DefaultTimeouts,
			Clock:        clock,
			Events:       preservation.Events{Source: &events.FakeRecorder{}},
		}
		request := reconcile.Request{NamespacedName: client.ObjectKey{Namespace: builder.Namespace, Name: "pool"}}
		_, err := reconciler.Reconcile(ctx, request)
		Expect(err).NotTo(HaveOccurred())
		Expect(api.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		expiry := machine.Status.CurrentStatus.PreserveExpiryTime
		Expect(expiry).NotTo(BeNil())
		Expect(builder.Noted(machine)).To(HaveKeyWithValue(builder.NoteExpiryInStatus, string(machine.UID)))

		clock.SetTime(clock.Now().Add(time.Minute))
		_, err = reconciler.Reconcile(ctx, request)
		Expect(err).NotTo(HaveOccurred())
		Expect(api.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		Expect(machine.Status.CurrentStatus.PreserveExpiryTime).To(Equal(expiry))
	}, SpecTimeout(10*time.Minute))
})
