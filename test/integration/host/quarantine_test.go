// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/ironcore"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/quarantine"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

// quarantined are the specs of Servers that no further machine gets.
func quarantined(w world, driver **host.Driver) {
	kind := ironcore.Kind{}

	It("is noted on the Server how often machines failed on it, and then it is unclaimable", func(ctx SpecContext) {
		machine := builder.Machine("offender")
		w.create(ctx, machine)
		mark := &quarantine.Mark{Seed: "seed", Namespace: builder.Namespace, At: builder.Start}
		record := quarantine.Record{Failures: []quarantine.Failure{{Machine: machine.UID, At: builder.Start}}}
		for _, d := range []quarantine.Decision{{Record: record}, {Record: quarantine.Record{Failures: record.Failures, Quarantined: mark}, Quarantine: true}} {
			server, err := (*driver).Lasting(ctx, kind, machine)
			Expect(err).NotTo(HaveOccurred())
			stale := server.DeepCopy()
			Expect((*driver).Note(ctx, kind, server, d)).To(Succeed())
			Expect(apierrors.IsConflict((*driver).Note(ctx, kind, stale, d))).To(BeTrue())
			want := quarantine.Host{Name: "offender", Record: d.Record, IsQuarantined: d.Quarantine}
			Expect(host.HostOf(kind, get(ctx, "Server", "offender"))).To(Equal(want))
			Eventually(func() ([]quarantine.Host, error) { return (*driver).Fleet(ctx, kind) }, patient).Should(ContainElement(want), "what the cache keeps")
			Expect((*driver).LiveFleet(ctx, kind)).To(ContainElement(want))
		}
		claim := get(ctx, "ServerClaim", "offender")
		Expect(claim.GetAnnotations()).To(Equal(map[string]string{"a": "b"}))
	})

	It("X11: whoever has its kubeconfig may put Servers of its claims into quarantine, and change nothing else of any", func(ctx SpecContext) {
		ours, err := client.New(environment.As(testEnv.Config, account), client.Options{})
		Expect(err).NotTo(HaveOccurred())
		machine := builder.Machine("inmate")
		w.create(ctx, machine)
		patch := func(body string) error {
			return ours.Patch(ctx, get(ctx, "Server", "inmate"), client.RawPatch(types.MergePatchType, []byte(body)))
		}
		refused := func(changed string) OmegaMatcher {
			return And(MatchError(apierrors.IsForbidden, "IsForbidden"), MatchError(HaveSuffix("this account may only power-cycle the host, not change "+changed)))
		}
		const note = `{"metadata":{"annotations":{"machine-preservation.extensions.gardener.cloud/host-failures":"{}"}}}`
		Expect(patch(note)).To(Succeed())
		Expect(patch(`{"spec":{"unclaimable":true}}`)).To(Succeed())
		Expect(patch(`{"spec":{"unclaimable":false}}`)).To(refused("spec.unclaimable"))
		Expect(patch(`{"spec":{"power":"Off"}}`)).To(refused("spec.power"))
		Expect(patch(`{"spec":{"serverClaimRef":null}}`)).To(refused("spec.serverClaimRef"))
		Expect(patch(`{"metadata":{"annotations":{"metal.ironcore.dev/operation":"park"}}}`)).To(refused("annotation metal.ironcore.dev/operation"))
		Expect(patch(`{"metadata":{"annotations":{"` + whose + `":"{}"}}}`)).To(refused("annotation " + whose))

		By("Being a Server of nobody, or of somebody else")
		for _, ref := range []any{nil, map[string]any{"namespace": "elsewhere", "name": "inmate"}} {
			server := get(ctx, "Server", "inmate")
			unstructured.RemoveNestedField(server.Object, "spec", "serverClaimRef")
			if ref != nil {
				Expect(unstructured.SetNestedField(server.Object, ref, "spec", "serverClaimRef")).To(Succeed())
			}
			Expect(c.Update(ctx, server)).To(Succeed())
			Expect(patch(`{"metadata":{"annotations":{"machine-preservation.extensions.gardener.cloud/host-failures":"[]"}}}`)).To(
				MatchError(ContainSubstring("this account may only put Servers into quarantine whose claims it may power-cycle")))
		}
	})

	It("is refused where metal-operator does not know it, and nothing is written", func(ctx SpecContext) {
		crd := &unstructured.Unstructured{}
		crd.SetAPIVersion("apiextensions.k8s.io/v1")
		crd.SetKind("CustomResourceDefinition")
		Expect(c.Get(ctx, client.ObjectKey{Name: "servers.metal.ironcore.dev"}, crd)).To(Succeed())
		versions, _, err := unstructured.NestedSlice(crd.Object, "spec", "versions")
		Expect(err).NotTo(HaveOccurred())
		unstructured.RemoveNestedField(versions[0].(map[string]any), "schema", "openAPIV3Schema", "properties", "spec", "properties", "unclaimable")
		unstructured.RemoveNestedField(versions[0].(map[string]any), "additionalPrinterColumns")
		Expect(unstructured.SetNestedSlice(crd.Object, versions, "spec", "versions")).To(Succeed())
		Expect(c.Update(ctx, crd)).To(Succeed())

		machine := builder.Machine("old")
		w.create(ctx, machine)
		Eventually(func(g Gomega) { // the API server serves the definition of before for a while
			server, err := (*driver).Lasting(ctx, kind, machine)
			g.Expect(err).NotTo(HaveOccurred())
			err = (*driver).Note(ctx, kind, server, quarantine.Decision{Quarantine: true})
			g.Expect(apierrors.IsBadRequest(err) || apierrors.IsInvalid(err)).To(BeTrue(), "%v", err)
			g.Expect(err).To(MatchError(ContainSubstring("spec.unclaimable")))
		}).WithTimeout(time.Minute).WithPolling(time.Second).Should(Succeed())
	})
}
