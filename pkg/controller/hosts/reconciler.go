// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"errors"
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

const (
	// interval is how often it is looked again at hosts that are off for too long: nobody tells when their cluster can be reached, a
	// preservation controller is gone, or servicing is over.
	interval = time.Minute

	// EventReasonReleased says that the extension has released a host.
	EventReasonReleased = remediation.EventPrefix + "HostReleased"
	eventActionRelease  = "Release"
)

// Reconciler releases the hosts of a control plane that are off for longer than they may be, if no preservation controller is there
// to do so, and tells of all of them (X19). It writes nothing on Machines: a preservation controller that comes back finds the
// deadline passed.
type Reconciler struct {
	Finder
	// Recorder records on Machines what became of their hosts.
	Recorder events.EventRecorder
}

// Reconcile looks at the hosts of the control-plane namespace that the request names, and again at the next deadline.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	namespace := req.Name
	found, err := r.Find(ctx, namespace)
	if err != nil {
		return reconcile.Result{}, errors.Join(found.Unreachable, err)
	}
	var (
		now  = r.Clock.Now()
		errs = []error{found.Unreachable}
		next time.Time
	)
	for i := range found.Off {
		off := &found.Off[i]
		at := off.Until.Add(grace)
		if !now.Before(at) {
			at = now.Add(interval)
			if err := r.release(ctx, namespace, found.Driver, off); err != nil {
				errs = append(errs, err)
			}
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	// Those that were released just now are among them, until it is looked again.
	measure(namespace, len(found.Overdue(now)))
	if next.IsZero() && found.Driver != nil { // the host of a cycle that has begun may be asked to be off at any time, without that the Machine changes
		begun, err := r.HasMachines(ctx, namespace)
		errs = append(errs, err)
		if begun {
			next = now.Add(interval)
		}
	}
	if err := errors.Join(errs...); err != nil || next.IsZero() {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: next.Sub(now)}, nil
}

// release releases a host, unless it is being serviced (X18), or a preservation controller is at work. That is read right before, because
// the preservation controller may have come back. If it comes back after that, both release the same host, which does no harm.
func (r *Reconciler) release(ctx context.Context, namespace string, driver Driver, off *Off) error {
	log := logf.FromContext(ctx).WithValues("host", off.String(), "until", off.Until)
	if driver == nil { // the hosts cannot be reached
		return nil
	}
	if off.Servicing != "" {
		log.Info("A host is off for too long, but is being serviced", "reason", brief.Cut(off.Servicing))
		return nil
	}
	holder, err := preservationcontroller.Holder(ctx, r.APIReader, namespace, r.Clock.Now())
	if err != nil {
		return err
	}
	if holder != "" {
		log.Info("A host is off for too long, and left to the preservation controller", "holder", holder)
		return nil
	}
	if err := driver.Release(ctx, &off.Host); err != nil {
		return fmt.Errorf("failed to release host %s: %w", off, err)
	}
	log.Info("Released a host that was off for too long, because no preservation controller is at work")
	machine := &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: off.Owner.Machine, UID: off.Owner.UID}}
	r.Recorder.Eventf(machine, nil, corev1.EventTypeWarning, EventReasonReleased, eventActionRelease, "%s", brief.Note(fmt.Sprintf(
		"Host %s/%s should have been powered on by %s. The extension released it, because no preservation controller is running.",
		off.Namespace, off.Name, off.Until.UTC().Format(time.RFC3339))))
	return nil
}
