// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// readTimeout is how long a read takes at most. If the API server is away or does not serve the kind, the watch of a cache cannot begin:
// a read would wait forever, and deadlines with it (X5).
const readTimeout = 5 * time.Second

// New returns an empty object of a kind.
func New(kind schema.GroupVersionKind) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(kind)
	return object
}

// Get reads an object. Errors name it. It returns ErrNoKind if the API server does not serve the kind.
func Get(ctx context.Context, reader client.Reader, key client.ObjectKey, object client.Object) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	if err := reader.Get(ctx, key, object); err != nil {
		return fmt.Errorf("failed to get %s: %w", describe(object, key), kindError(err))
	}
	return nil
}

// list reads the cached hosts of a kind. It returns ErrNoKind if the API server does not serve the kind.
func (a Access) list(ctx context.Context, kind schema.GroupVersionKind) ([]unstructured.Unstructured, error) {
	return a.listIn(ctx, kind, a.HostNamespace)
}

// listIn reads the cached objects of a kind in a namespace. If the namespace is empty, it reads those of all namespaces.
func (a Access) listIn(ctx context.Context, kind schema.GroupVersionKind, namespace string) ([]unstructured.Unstructured, error) {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	if err := a.Cached.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("failed to list %s of %s: %w", kind.Kind, kind.GroupVersion(), kindError(err))
	}
	return list.Items, nil
}

// pageSize is how many objects are read at a time if they need not all be in memory.
const pageSize = 100

// eachLive calls look with each object of a kind without a namespace, read live.
func (a Access) eachLive(ctx context.Context, kind schema.GroupVersionKind, look func(*unstructured.Unstructured)) error {
	for next := ""; ; {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		if err := a.page(ctx, list, next); err != nil {
			return fmt.Errorf("failed to list %s of %s: %w", kind.Kind, kind.GroupVersion(), kindError(err))
		}
		for i := range list.Items {
			look(&list.Items[i])
		}
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}

func (a Access) page(ctx context.Context, list client.ObjectList, from string) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return a.APIReader.List(ctx, list, client.Limit(pageSize), client.Continue(from))
}

// Convert reads the fields of an object that a driver knows.
func Convert(object *unstructured.Unstructured, into any) error {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, into); err != nil {
		return fmt.Errorf("failed to read %s: %w", describe(object, client.ObjectKeyFromObject(object)), err)
	}
	return nil
}

// Strip returns a transform for a cache. Of unstructured objects, it keeps what identifies them, and the given annotations and fields.
// Fields are paths with dots.
func Strip(annotation func(key string) bool, fields ...string) toolscache.TransformFunc {
	fields = slices.Concat([]string{
		"apiVersion", "kind", "metadata.namespace", "metadata.name", "metadata.uid", "metadata.resourceVersion", "metadata.deletionTimestamp",
	}, fields)
	return func(obj any) (any, error) {
		object, ok := obj.(*unstructured.Unstructured)
		if !ok {
			return obj, nil
		}
		kept := map[string]any{}
		for _, field := range fields {
			path := strings.Split(field, ".")
			if value, found, err := unstructured.NestedFieldCopy(object.Object, path...); err == nil && found {
				if err := unstructured.SetNestedField(kept, value, path...); err != nil {
					return nil, err
				}
			}
		}
		for key, value := range object.GetAnnotations() {
			if annotation(key) {
				if err := unstructured.SetNestedField(kept, value, "metadata", "annotations", key); err != nil {
					return nil, err
				}
			}
		}
		return &unstructured.Unstructured{Object: kept}, nil
	}
}

// kindError distinguishes a kind that is not served from an object that does not exist: the API server answers "not found" for both.
func kindError(err error) error {
	if meta.IsNoMatchError(err) || apierrors.IsNotFound(err) && apierrors.HasStatusCause(err, metav1.CauseTypeUnexpectedServerResponse) {
		return fmt.Errorf("%w (%v)", ErrNoKind, err) //nolint:errorlint // it must not pass for an object that was not found
	}
	return err
}

func describe(object client.Object, key client.ObjectKey) string {
	kind := object.GetObjectKind().GroupVersionKind()
	return fmt.Sprintf("%s %q of %s", kind.Kind, strings.TrimPrefix(key.String(), "/"), kind.GroupVersion())
}
