// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
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

// IsRequested says that an object has the request to be off, whoever's.
func IsRequested(object metav1.Object) bool {
	_, requested := object.GetAnnotations()[v1alpha1.AnnotationReboot]
	return requested
}

// VersionOf returns the version of an object as it is kept in an Owner: that of another object of the same name is never later.
func VersionOf(object metav1.Object) string {
	return string(object.GetUID()) + "/" + object.GetResourceVersion()
}

// IsLater says that an object is the one of a VersionOf, and has changed since (X1).
func IsLater(object metav1.Object, version string) bool {
	uid, then, _ := strings.Cut(version, "/")
	order, err := resourceversion.CompareResourceVersion(object.GetResourceVersion(), then)
	return err == nil && order > 0 && object.GetUID() == types.UID(uid)
}

// Changed returns a Conflict unless a host that was read live is the same as before, on, and nobody's (X1, X14).
func Changed(resource schema.GroupResource, before, live *remediation.Host) error {
	var reason string
	switch {
	case live.UID != before.UID:
		reason = "it is another object now"
	case live.Requested:
		reason = "it is asked to be off already"
	case live.Taken != "":
		reason = live.Taken
	case live.On == nil || !*live.On:
		reason = "it is not reported to be on"
	default:
		return nil
	}
	return apierrors.NewConflict(resource, live.Name, errors.New(reason))
}

// Request writes the request of an owner and whatever else is edited to an object that was read live, unless it has changed.
func (a Access) Request(ctx context.Context, object *unstructured.Unstructured, owner remediation.Owner, reboot string, edit func(*unstructured.Unstructured) error) error {
	value, err := json.Marshal(owner)
	if err != nil {
		return fmt.Errorf("failed to serialize the owner: %w", err)
	}
	return a.patch(ctx, object, func(annotations map[string]string) {
		annotations[v1alpha1.AnnotationReboot] = reboot
		annotations[v1alpha1.AnnotationHostOwner] = string(value)
	}, edit)
}

// TakeBack removes the request of a host's owner from an object of which only kind, namespace and name need be known, with
// whatever else is edited. One that has another owner by now, or none, is left alone (X2).
func (a Access) TakeBack(ctx context.Context, object *unstructured.Unstructured, host *remediation.Host, edit func(*unstructured.Unstructured) error) error {
	if host.Owner == nil {
		return nil
	}
	if err := Get(ctx, a.APIReader, client.ObjectKeyFromObject(object), object); err != nil {
		return client.IgnoreNotFound(err)
	}
	if owner := OwnerOf(object); owner == nil || owner.UID != host.Owner.UID {
		return nil
	}
	return client.IgnoreNotFound(a.patch(ctx, object, func(annotations map[string]string) {
		delete(annotations, v1alpha1.AnnotationReboot)
		delete(annotations, v1alpha1.AnnotationHostOwner)
	}, edit))
}

func (a Access) patch(ctx context.Context, object *unstructured.Unstructured, annotate func(map[string]string), edit func(*unstructured.Unstructured) error) error {
	before := object.DeepCopy()
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotate(annotations)
	object.SetAnnotations(annotations)
	if edit != nil {
		if err := edit(object); err != nil {
			return fmt.Errorf("failed to change %s: %w", describe(object, client.ObjectKeyFromObject(object)), err)
		}
	}
	if err := a.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})); err != nil {
		return fmt.Errorf("failed to patch %s: %w", describe(object, client.ObjectKeyFromObject(object)), err)
	}
	return nil
}

// Live says of a host that it was read live. It passes an error on.
func Live(h *remediation.Host, err error) (*remediation.Host, error) {
	if h != nil {
		h.Live = true
	}
	return h, err
}

// For returns the host of a machine as that sees it: a request of any other machine is not its own, and is in its way.
func For(machine *machinev1alpha1.Machine, h *remediation.Host) *remediation.Host {
	if h.Owner != nil && h.Owner.UID != machine.UID {
		h.OffSinceRequest = false
		if h.Requested {
			h.Taken = fmt.Sprintf("it is off for machine %s/%s, which had it before", h.Owner.Namespace, h.Owner.Machine)
		}
	}
	return h
}
