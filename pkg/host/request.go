// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/resourceversion"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

const (
	// maxCycles is how many cycles of a host are remembered, the newest ones.
	maxCycles = 10
)

// record is what the annotation of an object says: whose request it has, and which cycles the host has had.
type record struct {
	remediation.Owner
	Cycles []remediation.Cycle `json:"cycles,omitempty"`
}

// history is a record without an owner: nobody has a request.
type history struct {
	Seed      string              `json:"seed,omitempty"`
	Namespace string              `json:"namespace"`
	Cycles    []remediation.Cycle `json:"cycles"`
}

// recordOf returns an empty record of an object that has none that can be read.
func recordOf(object metav1.Object) record {
	r := record{}
	if err := json.Unmarshal([]byte(object.GetAnnotations()[v1alpha1.AnnotationHostOwner]), &r); err != nil {
		return record{}
	}
	return r
}

// owner returns nil if there is none.
func (r record) owner() *remediation.Owner {
	if r.UID == "" {
		return nil
	}
	return &r.Owner
}

// OwnerOf returns whose request an object has, nil if it does not say so in a way that can be read: then it is somebody else's.
func OwnerOf(object metav1.Object) *remediation.Owner { return recordOf(object).owner() }

// withCycle returns the cycles of a host, with the one of an owner, from the oldest to the newest.
func withCycle(cycles []remediation.Cycle, owner remediation.Owner) []remediation.Cycle {
	cycles = slices.DeleteFunc(slices.Clone(cycles), func(c remediation.Cycle) bool {
		return c.Machine == owner.UID && c.Began.Equal(owner.Time) || owner.Time.Sub(c.Began) >= remediation.CyclePeriod
	})
	cycles = append(cycles, remediation.Cycle{Machine: owner.UID, Began: owner.Time})
	slices.SortStableFunc(cycles, func(a, b remediation.Cycle) int { return a.Began.Compare(b.Began) })
	return cycles[max(0, len(cycles)-maxCycles):]
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

// request writes the request of an owner to an object that was read live, and its cycle to the history, unless it has changed.
func (d *Driver) request(ctx context.Context, object *unstructured.Unstructured, owner remediation.Owner) error {
	value, err := json.Marshal(record{Owner: owner, Cycles: withCycle(recordOf(object).Cycles, owner)})
	if err != nil {
		return fmt.Errorf("failed to serialize the owner: %w", err)
	}
	return d.patch(ctx, object, func(annotations map[string]string) {
		annotations[v1alpha1.AnnotationReboot] = ""
		annotations[v1alpha1.AnnotationHostOwner] = string(value)
	}, func() error { return d.Kind.Switch(object, false) })
}

// takeBack removes the request from an object that was read live, unless it has changed. The history stays.
func (d *Driver) takeBack(ctx context.Context, object *unstructured.Unstructured) error {
	r := recordOf(object)
	value, err := json.Marshal(history{Seed: r.Seed, Namespace: r.Namespace, Cycles: r.Cycles})
	if err != nil {
		return fmt.Errorf("failed to serialize the history: %w", err)
	}
	return d.patch(ctx, object, func(annotations map[string]string) {
		delete(annotations, v1alpha1.AnnotationReboot)
		delete(annotations, v1alpha1.AnnotationHostOwner)
		if len(r.Cycles) > 0 {
			annotations[v1alpha1.AnnotationHostOwner] = string(value)
		}
	}, func() error { return d.Kind.Switch(object, true) })
}

// forget removes the history from an object that was read live, unless it has changed.
func (d *Driver) forget(ctx context.Context, object *unstructured.Unstructured) error {
	return d.patch(ctx, object, func(annotations map[string]string) { delete(annotations, v1alpha1.AnnotationHostOwner) }, func() error { return nil })
}

// patch changes the annotations of an object that was read live, and what else change does, unless the object has changed.
func (d *Driver) patch(ctx context.Context, object *unstructured.Unstructured, annotate func(map[string]string), change func() error, opts ...client.PatchOption) error {
	before := object.DeepCopy()
	annotations := object.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotate(annotations)
	object.SetAnnotations(annotations)
	if err := change(); err != nil {
		return fmt.Errorf("failed to change %s: %w", describe(object, client.ObjectKeyFromObject(object)), err)
	}
	if err := d.Patch(ctx, object, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), opts...); err != nil {
		return fmt.Errorf("failed to patch %s: %w", describe(before, client.ObjectKeyFromObject(before)), err)
	}
	return nil
}
