// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"errors"
	"net/http"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	clienttesting "k8s.io/client-go/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// NewClientBuilder returns a builder of fake clients without managed fields, for which each write would build a RESTMapper of the whole
// scheme. Its clients cannot apply. They answer a JSON patch that fails a test as an API server does: do not replace their interceptors, but wrap
// the client.
func NewClientBuilder(scheme *runtime.Scheme) *fakeclient.ClientBuilder {
	return fakeclient.NewClientBuilder().WithScheme(scheme).
		WithObjectTracker(clienttesting.NewObjectTracker(scheme, serializer.NewCodecFactory(scheme).UniversalDecoder())).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				return Unprocessable(c.Patch(ctx, obj, patch, opts...))
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				return Unprocessable(c.SubResource(subresource).Patch(ctx, obj, patch, opts...))
			},
		})
}

// Unprocessable returns what an API server answers instead of an error: 422 to a JSON patch that fails a test, or names a path that there is not.
func Unprocessable(err error) error {
	if !errors.Is(err, jsonpatch.ErrTestFailed) && !errors.Is(err, jsonpatch.ErrMissing) {
		return err
	}
	return apierrors.NewGenericServerResponse(http.StatusUnprocessableEntity, "", schema.GroupResource{}, "", err.Error(), 0, false)
}
