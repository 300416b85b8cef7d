// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"context"
	"errors"
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

// servicingInterval is how often a host is looked at that is being serviced, and is to be released (X18).
const servicingInterval = time.Minute

// Sweeper releases hosts that no cycle needs off, whatever became of the machine they are off for (X2).
type Sweeper struct {
	// Source reads the control-plane namespace from a cache, SourceReader from the API server.
	Source, SourceReader client.Reader
	// Driver returns what reads and switches the hosts, nil as long as they are not known.
	Driver func() *host.Driver
	// Seed is the name by which hosts know the seed.
	Seed string
}

// Reconcile releases the orphans of a control-plane namespace.
func (s *Sweeper) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	driver := s.Driver()
	if driver == nil {
		return reconcile.Result{}, nil // it is called when they are
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	// What is written on a Machine comes before the request for its host: that must be read first.
	hosts, err := driver.Owned(ctx, s.Seed, req.Namespace)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("failed to list the hosts that are asked to be off: %w", err)
	}
	orphans, err := s.orphans(ctx, s.Source, req.Namespace, hosts)
	if err == nil && len(orphans) > 0 {
		orphans, err = s.orphans(ctx, s.SourceReader, req.Namespace, hosts)
	}
	if err != nil {
		return reconcile.Result{}, err
	}
	observeHosts(hosts, orphans)
	var (
		result     reconcile.Result
		errs       []error
		isServiced bool
	)
	for i := range orphans {
		name, owner := nameOf(&orphans[i]), orphans[i].Owner
		if orphans[i].Servicing != "" {
			isServiced = true
			continue
		}
		err := driver.Release(ctx, &orphans[i])
		if apierrors.IsConflict(err) { // somebody else wrote first
			result.RequeueAfter = pace.MinRetry
			continue
		}
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("failed to release host %s: %w", name, err))
			continue
		}
		logf.FromContext(ctx).Info("Released a host that no power cycle needs off", "host", name, "machine", owner.Machine, "machineUID", owner.UID)
	}
	if isServiced && result.IsZero() { // nobody tells when the Server of a ServerClaim is serviced no more
		result.RequeueAfter = servicingInterval
	}
	return result, errors.Join(errs...)
}

func (s *Sweeper) orphans(ctx context.Context, reader client.Reader, namespace string, hosts []remediation.Host) ([]remediation.Host, error) {
	list := &machinev1alpha1.MachineList{}
	if err := reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("failed to list the machines: %w", err)
	}
	machines := make([]*machinev1alpha1.Machine, len(list.Items))
	for i := range list.Items {
		machines[i] = &list.Items[i]
	}
	return remediation.Orphans(hosts, machines), nil
}
