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

// Quarantining is a Kind whose hosts have an object that stays when the machine is deleted, and that can be closed to further machines.
type Quarantining interface {
	// Lasting is the kind of the object that stays. It has no namespace.
	Lasting() schema.GroupVersionKind
	// IsBound says whether the object that stays belongs to a host, according to that object.
	IsBound(host, lasting *unstructured.Unstructured) bool
	// IsQuarantined says whether no machine gets the object any more.
	IsQuarantined(lasting *unstructured.Unstructured) bool
	// IsServiced says whether somebody works on it.
	IsServiced(lasting *unstructured.Unstructured) bool
	// Quarantine changes the object so that no further machine gets it. A machine that has it already does not lose it.
	Quarantine(lasting *unstructured.Unstructured) error
}

// Lasting reads live the object that stays of a machine's host when the machine is deleted, or returns ErrNoHost.
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

// Fleet returns all hosts whose lasting objects are in the cache, including those of other shoots.
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

// LiveFleet reads all hosts live. It holds no more of them in memory than what it returns.
func (d *Driver) LiveFleet(ctx context.Context, kind Quarantining) (fleet []quarantine.Host, err error) {
	err = d.eachLive(ctx, kind.Lasting(), func(lasting *unstructured.Unstructured) { fleet = append(fleet, HostOf(kind, lasting)) })
	return fleet, err
}

// HostOf returns a host from its lasting object.
func HostOf(kind Quarantining, lasting *unstructured.Unstructured) quarantine.Host {
	return quarantine.Host{
		Name: lasting.GetName(), Record: quarantine.ReadRecord(lasting),
		IsQuarantined: kind.IsQuarantined(lasting), IsServiced: kind.IsServiced(lasting),
	}
}

// Note writes a decision on a host to its lasting object, in one write. The object must have been read live. The write fails if the
// object has changed, or if the API server does not know the field that keeps hosts from machines.
func (d *Driver) Note(ctx context.Context, kind Quarantining, lasting *unstructured.Unstructured, decision quarantine.Decision) error {
	value, err := json.Marshal(decision.Record)
	if err != nil {
		return fmt.Errorf("failed to serialize the failures: %w", err)
	}
	return d.patch(ctx, lasting, func(annotations map[string]string) { annotations[v1alpha1.AnnotationHostFailures] = string(value) }, func() error {
		if !decision.Quarantine {
			return nil
		}
		return kind.Quarantine(lasting)
	}, client.FieldValidation(metav1.FieldValidationStrict))
}
