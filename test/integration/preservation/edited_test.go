// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/sidecar"
)

var _ = Describe("Edited expiry", func() {
	for _, form := range []string{"2030-01-02T03:04:05Z", "2030-01-02T03:04:05+01:00", "2030-01-02T03:04:05.5Z"} {
		It("P6 P10: should not hinder the end of a preservation: "+form, func(ctx SpecContext) {
			api := sidecar.Start(ctx, sidecar.Generations["machine-controller-manager 0.62"])
			set := sidecar.Pool(ctx, api, "pool", builder.Share("1"))
			machine := sidecar.NewMachine("m", "", set)
			Expect(api.Create(ctx, machine)).To(Succeed())
			builder.Phase(machinev1alpha1.MachineFailed, time.Now())(machine)
			Expect(api.Status().Update(ctx, machine)).To(Succeed())
			edit := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"status":{"currentStatus":{"preserveExpiryTime":%q}}}`, form))
			Expect(api.Status().Patch(ctx, machine, edit)).To(Succeed())

			phase := func(phase machinev1alpha1.MachinePhase) intent.Write {
				return intent.Write{Before: machine, Status: true, LockEdits: true, Edit: intent.Edit(func(m *machinev1alpha1.Machine) { m.Status.CurrentStatus.Phase = phase })}
			}
			annotate := func(name string) intent.Write {
				return intent.Write{Before: machine, LockEdits: true, Edit: intent.Edit(func(m *machinev1alpha1.Machine) { m.Annotations = map[string]string{name: "true"} })}
			}
			Expect(executor.Apply(ctx, api, phase(machinev1alpha1.MachineUnknown), annotate("ended")).Err()).To(Succeed())
			is := &machinev1alpha1.Machine{}
			Expect(api.Get(ctx, client.ObjectKeyFromObject(machine), is)).To(Succeed())
			Expect(is).To(And(HaveField("Annotations", HaveKeyWithValue("ended", "true")), HaveField("Status.CurrentStatus.Phase", machinev1alpha1.MachineUnknown)))

			for _, late := range []intent.Write{phase(machinev1alpha1.MachinePending), annotate("again")} {
				err := executor.Apply(ctx, api, late).Err()
				Expect(err).To(HaveOccurred())
				Expect(pace.OnlyConflicts(err)).To(BeTrue(), "%v", err)
			}
		}, SpecTimeout(10*time.Minute))
	}
})
