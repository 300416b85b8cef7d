// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"encoding/json"
	"fmt"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/quarantine"
)

// Quarantining is a Kind of whose hosts something stays when their machines go, which can be kept from further ones.
type Quarantining interface {
	// Lasting is the kind of what stays. It has no namespace.
	Lasting() schema.GroupVersionKind
	// IsBound says that what stays is what a host is bound to, by what it says itself.
	IsBound(host, lasting *unstructured.Unstructured) bool
	// IsQuarantined says that no machine gets it.
	IsQuarantined(lasting *unstructured.Unstructured) bool
	// IsServiced says that somebody works on it.
	IsServiced(lasting *unstructured.Unstructured) bool
	// Quarantine changes it so that none does. The machine that has it keeps it.
	Quarantine(lasting *unstructured.Unstructured) error
}

// Lasting returns what stays of the host of a machine when that goes, as the API server has it now, or ErrNoHost.
func (d *Driver) Lasting(ctx context.Context, kind Quarantining, machine *machinev1alpha1.Machine) (*unstructured.Unstructured, error) {
	objects, err := d.Whole(ctx, machine)
	if err != nil {
		return nil, err
	}
	for i := range objects {
		if lasting := &objects[i]; lasting.GroupVersionKind() == kind.Lasting() && kind.IsBound(&objects[0], lasting) {
			return lasting, nil
		}
	}
	return nil, fmt.Errorf("%w: %s %q is bound to no %s", ErrNoHost, objects[0].GetKind(), objects[0].GetName(), kind.Lasting().Kind)
}

// Fleet returns all hosts that the cache knows, by what stays of them, those of other shoots included.
func (d *Driver) Fleet(ctx context.Context, kind Quarantining) ([]quarantine.Host, error) {
	objects, err := d.listIn(ctx, kind.Lasting(), "")
	if err != nil {
		return nil, err
	}
	var fleet []quarantine.Host
	for i := range objects {
		fleet = append(fleet, HostOf(kind, &objects[i]))
	}
	return fleet, nil
}

// LiveFleet returns all hosts as the API server has them now. No more of them is kept than what is returned.
func (d *Driver) LiveFleet(ctx context.Context, kind Quarantining) (fleet []quarantine.Host, err error) {
	err = d.eachLive(ctx, kind.Lasting(), func(lasting *unstructured.Unstructured) { fleet = append(fleet, HostOf(kind, lasting)) })
	return fleet, err
}

// HostOf returns what is known of a host by what stays of it.
func HostOf(kind Quarantining, lasting *unstructured.Unstructured) quarantine.Host {
	return quarantine.Host{
		Name: lasting.GetName(), Record: quarantine.ReadRecord(lasting),
		IsQuarantined: kind.IsQuarantined(lasting), IsServiced: kind.IsServiced(lasting),
	}
}

// Note writes what was decided on a host to what stays of it, which was read live, unless it has changed, in one write. It is refused
// where the API server does not know by what hosts are kept from machines.
func (d *Driver) Note(ctx context.Context, kind Quarantining, lasting *unstructured.Unstructured, decision quarantine.Decision) error {
	value, err := json.Marshal(decision.Record)
	if err != nil {
		return fmt.Errorf("failed to serialize the failures: %w", err)
	}
	before := lasting.DeepCopy()
	annotations := lasting.GetAnnotations()
	if annotations == nil {
		annotations = map[string]string{}
	}
	annotations[v1alpha1.AnnotationHostFailures] = string(value)
	lasting.SetAnnotations(annotations)
	if decision.Quarantine {
		if err := kind.Quarantine(lasting); err != nil {
			return fmt.Errorf("failed to change %s: %w", describe(lasting, client.ObjectKeyFromObject(lasting)), err)
		}
	}
	if err := d.Patch(ctx, lasting, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
		return fmt.Errorf("failed to patch %s: %w", describe(before, client.ObjectKeyFromObject(before)), err)
	}
	return nil
}
