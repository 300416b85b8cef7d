// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package webhook has what the webhooks of the extension share: they never block a request, and each sees what the webhooks of
// other extensions have added.
package webhook

import (
	"context"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	"github.com/prometheus/client_golang/prometheus"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/metrics"
)

// timeoutSeconds is how long the API server waits at most. All reads are cached, so an answer takes milliseconds.
const timeoutSeconds int32 = 5

// failures counts what nobody would notice: the API server gets the same answer as for what needs no change.
var failures = metrics.Counter("webhook_failures_total", "Requests that a webhook has let through unchanged, because it failed.", "webhook")

// New returns a mutating webhook for resources in the namespaces of shoots that have the extension enabled. If it cannot
// be reached or fails, the API server goes on as if it did not exist.
func New(mgr manager.Manager, name string, mutator extensionswebhook.Mutator, objectSelector *metav1.LabelSelector, types ...extensionswebhook.Type) (*extensionswebhook.Webhook, error) {
	webhook, err := extensionswebhook.New(mgr, extensionswebhook.Args{
		Name:   name,
		Path:   name,
		Target: extensionswebhook.TargetSeed,
		NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{
			v1beta1constants.LabelExtensionPrefix + v1alpha1.ExtensionType: "true",
		}},
		ObjectSelector: objectSelector,
		Mutators:       map[extensionswebhook.Mutator][]extensionswebhook.Type{mutator: types},
	})
	if err != nil {
		return nil, err
	}

	webhook.FailurePolicy = new(admissionregistrationv1.Ignore)
	webhook.TimeoutSeconds = new(timeoutSeconds)
	webhook.Webhook = &admission.Webhook{Handler: failOpen{Handler: webhook.Webhook, failures: failures.WithLabelValues(name)}}
	return webhook, nil
}

// failOpen allows what the handler inside refuses. failurePolicy Ignore is not enough: it is about webhooks that do not
// answer, while an answer that says no, because it is made of an error or a panic, is obeyed.
type failOpen struct {
	admission.Handler
	failures prometheus.Counter
}

func (f failOpen) Handle(ctx context.Context, request admission.Request) admission.Response {
	response := f.Handler.Handle(ctx, request)
	if response.Allowed {
		return response
	}

	reason := ""
	if response.Result != nil {
		reason = response.Result.Message
	}
	f.failures.Inc()
	logf.FromContext(ctx).Info("Webhook failed, going on without it", "kind", request.Kind.Kind, "namespace", request.Namespace, "name", request.Name, "reason", reason)
	return admission.Allowed("")
}
