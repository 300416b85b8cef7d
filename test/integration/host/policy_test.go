// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

const (
	// account is the one for the hosts of a shoot in their cluster, as the documentation has it. Everything here that drives hosts
	// has it, so that the policy must let all of that through.
	account = "system:serviceaccount:" + namespace + ":machine-preservation"
	// other is one that is allowed the same, and that the policy does not concern.
	other = "system:serviceaccount:" + namespace + ":machine-preservation-other"
)

// createPolicy creates the policy for clusters of hosts.
func createPolicy(ctx context.Context) {
	GinkgoHelper()
	manifest, err := os.ReadFile(filepath.Join("..", "..", "..", "example", "host-policy.yaml"))
	Expect(err).NotTo(HaveOccurred())
	for _, document := range strings.Split(string(manifest), "\n---\n")[1:] { // the first is the header
		object := &unstructured.Unstructured{}
		Expect(yaml.UnmarshalStrict([]byte(document), &object.Object)).To(Succeed())
		Expect(c.Create(ctx, object)).To(Succeed())
	}
}

// change is a merge patch of a host.
type change struct {
	what, patch string
	// refused is what the answer names, empty if the change is let through.
	refused string
}

// changes are those of each kind.
var changes = map[string][]change{
	"BareMetalHost": {
		{"image", `{"spec":{"image":{"url":"http://evil.example.com/image"}}}`, "spec.image"},
		{"power", `{"spec":{"online":false}}`, "spec.online"},
		{"consumer", `{"spec":{"consumerRef":{"name":"other"}}}`, "spec.consumerRef"},
		{"consumer taken away", `{"spec":{"consumerRef":null}}`, "spec.consumerRef"},
		{"detached", `{"metadata":{"annotations":{"baremetalhost.metal3.io/detached":""}}}`, "annotation baremetalhost.metal3.io/detached"},
		{"paused", `{"metadata":{"annotations":{"baremetalhost.metal3.io/paused":""}}}`, "annotation baremetalhost.metal3.io/paused"},
		{"somebody else's request", `{"metadata":{"annotations":{"reboot.metal3.io/other":""}}}`, "annotation reboot.metal3.io/other"},
	},
	"ServerClaim": {
		{"power", `{"spec":{"power":"Off"}}`, ""},
		{"image", `{"spec":{"image":"evil.example.com/image"}}`, "spec.image"},
		{"boot", `{"spec":{"ignitionSecretRef":{"name":"evil"}}}`, "spec.ignitionSecretRef"},
	},
}

// commonChanges are those of all kinds.
var commonChanges = []change{
	{"request", fmt.Sprintf(`{"metadata":{"annotations":{%q:"{\"mode\":\"hard\"}",%q:"{}"}}}`, reboot, whose), ""},
	{"request with another owner", fmt.Sprintf(`{"metadata":{"annotations":{%q:"{\"seed\":\"a\"}"}}}`, whose), ""},
	{"request taken back", fmt.Sprintf(`{"metadata":{"annotations":{%q:null,%q:null}}}`, reboot, whose), ""},
	{"nothing", `{}`, ""},
	{"an annotation of somebody else", `{"metadata":{"annotations":{"a":"c"}}}`, "annotation a"},
	{"an annotation of somebody else taken away, beside a request", fmt.Sprintf(`{"metadata":{"annotations":{"a":null,%q:""}}}`, reboot), "annotation a"},
	{"label", `{"metadata":{"labels":{"a":"b"}}}`, "metadata.labels"},
	{"finalizer", `{"metadata":{"finalizers":["example.com/a"]}}`, "metadata.finalizers"},
	{"owner reference", `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"Node","name":"a","uid":"a"}]}}`, "metadata.ownerReferences"},
}

// fence are the specs of the policy for a kind of hosts.
func fence(w world) {
	It("X2, X11: whoever has its kubeconfig may power-cycle a host, and change nothing else of it", func(ctx SpecContext) {
		clientOf := func(name string) client.Client {
			GinkgoHelper()
			someone, err := client.New(environment.As(testEnv.Config, name), client.Options{})
			Expect(err).NotTo(HaveOccurred())
			return someone
		}
		ours, others := clientOf(account), clientOf(other)
		probe := builder.Machine("fenced")
		w.create(ctx, probe)
		Eventually(func() bool { // until the API server knows the policy
			label := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))
			return apierrors.IsForbidden(ours.Patch(ctx, get(ctx, w.kind, probe.Name), label, client.DryRunAll))
		}, patient).Should(BeTrue())
		for i, change := range slices.Concat(commonChanges, changes[w.kind]) {
			By(change.what)
			machine := builder.Machine(fmt.Sprintf("fenced-%d", i))
			w.create(ctx, machine)
			host := get(ctx, w.kind, machine.Name)
			patch := client.RawPatch(types.MergePatchType, []byte(change.patch))
			if change.refused == "" {
				Expect(ours.Patch(ctx, host, patch)).To(Succeed())
				continue
			}
			err := ours.Patch(ctx, host.DeepCopy(), patch)
			Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(HaveSuffix("this account may only power-cycle the host, not change " + change.refused)))
			Expect(others.Patch(ctx, host, patch)).To(Succeed(), "it is no account of ours")
		}
	})
}
