// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

// OwnerOf returns whose request an object has, nil if it does not say so in a way that can be read: then it is somebody else's.
func OwnerOf(object metav1.Object) *remediation.Owner {
	owner := &remediation.Owner{}
	if err := json.Unmarshal([]byte(object.GetAnnotations()[v1alpha1.AnnotationHostOwner]), owner); err != nil || owner.UID == "" {
		return nil
	}
	return owner
}

func isRequested(object metav1.Object) bool {
	_, requested := object.GetAnnotations()[v1alpha1.AnnotationReboot]
	return requested
}

// TakenBy says that somebody else keeps a host off with an annotation (X14).
func TakenBy(annotation string) string {
	return fmt.Sprintf("somebody else asks for it to be off (annotation %s)", annotation)
}

// versionOf returns the version of an object as it is kept in an Owner: that of another object of the same name is never later.
func versionOf(object metav1.Object) string {
	return string(object.GetUID()) + "/" + object.GetResourceVersion()
}

// isLater says that an object is the one of a versionOf, and has changed since (X1).
func isLater(object metav1.Object, version string) bool {
	uid, then, _ := strings.Cut(version, "/")
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), then)
	return err == nil && order > 0 && object.GetUID() == types.UID(uid)
}

// request writes the request of an owner to an object that was read live, unless it has changed.
func (d *Driver) request(ctx context.Context, object *unstructured.Unstructured, owner remediation.Owner) error {
	value, err := json.Marshal(owner)
	if err != nil {
		return fmt.Errorf("failed to serialize the owner: %w", err)
	}
	return d.patch(ctx, object, false, func(annotations map[string]string) {
		annotations[v1alpha1.AnnotationReboot] = ""
		annotations[v1alpha1.AnnotationHostOwner] = string(value)
	})
}

// takeBack removes the request from an object that was read live, unless it has changed.
func (d *Driver) takeBack(ctx context.Context, object *unstructured.Unstructured) error {
	return d.patch(ctx, object, true, func(annotations map[string]string) {
		delete(annotations, v1alpha1.AnnotationReboot)
		delete(annotations, v1alpha1.AnnotationHostOwner)
	})
}

func (d *Driver) patch(ctx context.Context, object *unstructured.Unstructured, on bool, annotate func(map[string]string)) error {
	before := object.DeepCopy()
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotate(annotations)
	object.SetAnnotations(annotations)
	if err := d.Kind.Switch(object, on); err != nil {
		return fmt.Errorf("failed to change %s: %w", describe(object, client.ObjectKeyFromObject(object)), err)
	}
	if err := d.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("failed to patch %s: %w", describe(object, client.ObjectKeyFromObject(object)), err)
	}
	return nil
}
