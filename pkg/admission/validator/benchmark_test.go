// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package validator_test

import (
	"encoding/json"
	"maps"
	"slices"
	"testing"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/admission/validator"
	"github.com/gardener/gardener-extension-machine-preservation/test/hostile"
)

// BenchmarkHostile measures a request with the largest configuration that is read, from the request to the response.
func BenchmarkHostile(b *testing.B) {
	scheme := runtime.NewScheme()
	utilruntime.Must(gardencorev1beta1.AddToScheme(scheme))
	webhook := admission.WithValidator(scheme, validator.Shoot{})

	for _, name := range slices.Sorted(maps.Keys(hostile.Configs)) {
		shoot := newShoot()
		shoot.SetGroupVersionKind(gardencorev1beta1.SchemeGroupVersion.WithKind("Shoot"))
		shoot.Spec.Extensions[1].ProviderConfig = &runtime.RawExtension{Raw: []byte(hostile.Configs[name](64 << 10))}
		raw, err := json.Marshal(shoot)
		if err != nil {
			b.Fatal(err)
		}
		request := admission.Request{AdmissionRequest: admissionv1.AdmissionRequest{
			Operation: admissionv1.Create,
			Object:    runtime.RawExtension{Raw: raw},
		}}

		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				response := webhook.Handle(b.Context(), request)
				if response.Allowed {
					b.Fatal("allowed")
				}
				if _, err := json.Marshal(response); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
