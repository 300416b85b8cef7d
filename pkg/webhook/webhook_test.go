// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"errors"
	"net/http"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/webhook"
)

// fakeManager is as much of a manager as New needs.
type fakeManager struct{ manager.Manager }

func (fakeManager) GetScheme() *runtime.Scheme { return scheme.Scheme }
func (fakeManager) GetClient() client.Client   { return nil }

type mutateFunc func(client.Object) error

// mutator is a key of a map, which a function cannot be.
type mutator struct{ mutate mutateFunc }

func (m *mutator) Mutate(_ context.Context, object, _ client.Object) error { return m.mutate(object) }

var _ = Describe("#New", func() {
	newWebhook := func(mutate mutateFunc) *extensionswebhook.Webhook {
		GinkgoHelper()
		w, err := webhook.New(fakeManager{}, "foo", &mutator{mutate},
			&metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}, extensionswebhook.Type{Obj: &corev1.ConfigMap{}})
		Expect(err).NotTo(HaveOccurred())
		return w
	}
	handle := func(mutate mutateFunc, raw string) admission.Response {
		return newWebhook(mutate).Webhook.Handle(context.Background(), admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Kind:   metav1.GroupVersionKind{Version: "v1", Kind: "ConfigMap"},
			Object: runtime.RawExtension{Raw: []byte(raw)},
		}})
	}

	It("should return a webhook that is called for shoots with the extension only, and that nothing waits for", func() {
		w := newWebhook(func(client.Object) error { return nil })
		Expect(w.Name).To(Equal("foo"))
		Expect(w.Target).To(Equal("seed"))
		Expect(w.Action).To(Equal("mutating"))
		Expect(w.NamespaceSelector).To(Equal(&metav1.LabelSelector{MatchLabels: map[string]string{"extensions.gardener.cloud/machine-preservation": "true"}}))
		Expect(w.ObjectSelector).To(Equal(&metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}}))
		Expect(w.FailurePolicy).To(HaveValue(Equal(admissionregistrationv1.Ignore)))
		Expect(w.TimeoutSeconds).To(HaveValue(BeEquivalentTo(5)))
	})

	It("should mutate", func() {
		before := failures()
		response := handle(func(object client.Object) error {
			object.SetLabels(map[string]string{"c": "d"})
			return nil
		}, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"x"}}`)
		Expect(response.Allowed).To(BeTrue())
		Expect(failures()).To(Equal(before))
		Expect(string(response.Patch)).To(MatchJSON(`[{"op":"add","path":"/metadata/labels","value":{"c":"d"}}]`))
	})

	DescribeTable("should allow the request, change nothing and count it",
		func(mutate mutateFunc, raw string) {
			before := failures()
			response := handle(mutate, raw)
			Expect(response.Allowed).To(BeTrue())
			Expect(response.Result.Code).To(BeEquivalentTo(http.StatusOK))
			Expect(response.Patches).To(BeEmpty())
			Expect(response.Patch).To(BeEmpty())
			Expect(failures()).To(Equal(before + 1))
		},
		Entry("when the mutator fails", mutateFunc(func(object client.Object) error {
			object.SetLabels(map[string]string{"c": "d"})
			return errors.New("fake")
		}), `{"apiVersion":"v1","kind":"ConfigMap"}`),
		Entry("when the mutator panics", mutateFunc(func(client.Object) error { panic("fake") }), `{"apiVersion":"v1","kind":"ConfigMap"}`),
		Entry("when the object cannot be decoded", mutateFunc(func(client.Object) error { return nil }), `{`),
	)
})

// failures returns how often the webhook has failed, which is told from the start.
func failures() float64 {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		if family.GetName() == "machine_preservation_webhook_failures_total" {
			Expect(family.GetMetric()).To(HaveLen(1))
			Expect(family.GetMetric()[0].GetLabel()[0].GetValue()).To(Equal("foo"))
			return family.GetMetric()[0].GetCounter().GetValue()
		}
	}
	return 0
}
