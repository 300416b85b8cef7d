// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clienttesting "k8s.io/client-go/testing"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
)

// NewClientBuilder returns a builder of fake clients without managed fields, for which each write would build a RESTMapper of the whole
// scheme. Its clients cannot apply.
func NewClientBuilder(scheme *runtime.Scheme) *fakeclient.ClientBuilder {
	return fakeclient.NewClientBuilder().WithScheme(scheme).
		WithObjectTracker(clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder()))
}
