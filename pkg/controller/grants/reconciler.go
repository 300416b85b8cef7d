// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

// Reconciler lets as many power cycles begin as operators allow at a time in the seed, in turn (X8).
type Reconciler struct {
	// Client reads Machines with LabelPowerCycle from a cache, and writes them.
	Client client.Client
	// APIReader does not: a cache may not know yet what was granted last.
	APIReader client.Reader
	// Limit is how many there may be, at least one.
	Limit int32
	Clock clock.PassiveClock
}

// Reconcile looks at the whole seed, whatever the request is. While no machine waits, nothing is asked of the API server.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	machines, err := list(ctx, r.Client)
	if err != nil || !slices.ContainsFunc(machines, awaitsGrant) {
		return reconcile.Result{}, err
	}
	if machines, err = list(ctx, r.APIReader); err != nil {
		return reconcile.Result{}, err
	}
	now := r.Clock.Now()
	decision := Decide(machines, int(r.Limit), now)
	var errs []error
	for _, machine := range decision.Grants {
		if err := r.grant(ctx, machine, now.Add(validity)); err != nil {
			errs = append(errs, fmt.Errorf("failed to grant a power cycle to Machine %q: %w", client.ObjectKeyFromObject(machine), err))
			continue
		}
		logf.FromContext(ctx).Info("Granted a power cycle", "machine", client.ObjectKeyFromObject(machine))
	}
	if err := errors.Join(errs...); err != nil || decision.Next.IsZero() {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: decision.Next.Sub(now)}, nil
}

// grant is refused if the Machine has changed since it was read: its request may be gone, or its cycle may have begun.
func (r *Reconciler) grant(ctx context.Context, machine *machinev1alpha1.Machine, until time.Time) error {
	object := &metav1.PartialObjectMetadata{ObjectMeta: machine.ObjectMeta}
	object.SetGroupVersionKind(machinev1alpha1.SchemeGroupVersion.WithKind("Machine"))
	patch := client.MergeFromWithOptions(object.DeepCopy(), client.MergeFromWithOptimisticLock{})
	metav1.SetMetaDataAnnotation(&object.ObjectMeta, v1alpha1.AnnotationPowerCycleGrant, until.UTC().Format(time.RFC3339))
	return client.IgnoreNotFound(r.Client.Patch(ctx, object, patch))
}

func awaitsGrant(machine *machinev1alpha1.Machine) bool {
	_, awaits := remediation.AwaitsGrant(machine)
	return awaits
}

// list returns the metadata of the Machines of all control planes that may be power-cycled.
func list(ctx context.Context, reader client.Reader) ([]*machinev1alpha1.Machine, error) {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(machinev1alpha1.SchemeGroupVersion.WithKind("MachineList"))
	if err := reader.List(ctx, list, client.HasLabels{v1alpha1.LabelPowerCycle}); err != nil {
		return nil, fmt.Errorf("failed to list Machines: %w", err)
	}
	machines := make([]*machinev1alpha1.Machine, 0, len(list.Items))
	for i := range list.Items {
		machines = append(machines, &machinev1alpha1.Machine{ObjectMeta: list.Items[i].ObjectMeta})
	}
	return machines, nil
}
