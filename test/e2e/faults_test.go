// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"syscall"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	admissionv1 "k8s.io/api/admission/v1"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

var podKind = corev1.SchemeGroupVersion.WithKind("Pod")

// crashLoop makes machine-controller-manager ask provider-local for the machine once more, as it does for one that was not
// initialised, and provider-local fail to answer, as it cannot read its own specification. All phases that follow are
// machine-controller-manager's.
func crashLoop(ctx context.Context, c client.Client, machine *machinev1alpha1.Machine) (undo func(context.Context) error, err error) {
	class := &machinev1alpha1.MachineClass{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.Class.Name}, class); err != nil {
		return nil, err
	}
	var providerSpec struct{ Image string }
	if err := json.Unmarshal(class.ProviderSpec.Raw, &providerSpec); err != nil {
		return nil, err
	}
	setImage := func(ctx context.Context, image string) error {
		return c.Patch(ctx, class, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"providerSpec":{"image":%q}}`, image)))
	}
	if err := setImage(ctx, ""); err != nil {
		return nil, err
	}
	undo = func(ctx context.Context) error { return setImage(ctx, providerSpec.Image) }
	patch := []byte(`{"status":{"currentStatus":{"phase":"CrashLoopBackOff"}}}`)
	if err := c.Status().Patch(ctx, machine.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		return nil, errors.Join(err, undo(ctx))
	}
	return undo, nil
}

// refuseEvictions registers a webhook that refuses evictions of pods with a label for hours. Its server is in this process.
func refuseEvictions(ctx context.Context, c client.Client, key, value string) (undo func(context.Context) error, err error) {
	certificate, keyPEM, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return nil, err
	}
	pair, err := tls.X509KeyPair(certificate, keyPEM)
	if err != nil {
		return nil, err
	}
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		review := &admissionv1.AdmissionReview{}
		if err := json.NewDecoder(r.Body).Decode(review); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		pod := &metav1.PartialObjectMetadata{}
		pod.SetGroupVersionKind(podKind)
		err := c.Get(r.Context(), client.ObjectKey{Namespace: review.Request.Namespace, Name: review.Request.Name}, pod)
		review.Response = &admissionv1.AdmissionResponse{UID: review.Request.UID, Allowed: err != nil || pod.Labels[key] != value}
		if !review.Response.Allowed {
			review.Response.Result = &metav1.Status{
				Code: http.StatusTooManyRequests, Reason: metav1.StatusReasonTooManyRequests, Message: "try again later",
				Details: &metav1.StatusDetails{RetryAfterSeconds: int32(2 * time.Hour / time.Second)},
			}
		}
		_ = json.NewEncoder(w).Encode(review)
	}))
	server.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}
	server.StartTLS()

	config := &admissionregistrationv1.ValidatingWebhookConfiguration{
		ObjectMeta: metav1.ObjectMeta{Name: "refuse-evictions"},
		Webhooks: []admissionregistrationv1.ValidatingWebhook{{
			Name:                    "evictions.refuse.example.org",
			AdmissionReviewVersions: []string{"v1"},
			SideEffects:             new(admissionregistrationv1.SideEffectClassNone),
			FailurePolicy:           new(admissionregistrationv1.Ignore),
			ClientConfig:            admissionregistrationv1.WebhookClientConfig{URL: &server.URL, CABundle: certificate},
			Rules: []admissionregistrationv1.RuleWithOperations{{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"pods/eviction"}},
			}},
			NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": metav1.NamespaceDefault}},
		}},
	}
	if err := c.Create(ctx, config); err != nil {
		server.Close()
		return nil, err
	}
	return func(ctx context.Context) error {
		defer server.Close()
		return c.Delete(ctx, config)
	}, nil
}

// killSidecar ends the preservation controller as a crash does.
func killSidecar(ctx context.Context, c client.Client) error {
	return killContainer(ctx, c, "machine-preservation-controller")
}

// killContainer ends a container of machine-controller-manager's pod as a crash does. The process runner starts it again.
func killContainer(ctx context.Context, c client.Client, name string) error {
	pods := &corev1.PodList{}
	if err := c.List(ctx, pods, client.InNamespace(seed.ControlPlaneNamespace(shootName)), client.MatchingLabels{"role": "machine-controller-manager"}); err != nil {
		return err
	}
	for _, pod := range pods.Items {
		for _, status := range pod.Status.ContainerStatuses {
			if status.Name != name || status.State.Running == nil {
				continue
			}
			_, id, _ := strings.Cut(status.ContainerID, "://")
			pid, err := strconv.Atoi(id)
			if err != nil {
				return fmt.Errorf("container %s has id %q: %w", status.Name, status.ContainerID, err)
			}
			return syscall.Kill(pid, syscall.SIGKILL)
		}
	}
	return fmt.Errorf("no container %s runs", name)
}
