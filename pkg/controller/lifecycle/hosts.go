// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

// errNoHosts says that the component configuration has no hosts, where some of a shoot may be off.
var errNoHosts = errors.New("the component configuration no longer has hosts, but some hosts of this shoot may still be off: " +
	"configure hosts again with disabled: true until all Shoots have been reconciled")

// ownedHosts returns the hosts that the machines of a shoot own, and what releases them.
func (a *Actuator) ownedHosts(ctx context.Context, namespace, seed string) (hosts.Driver, []remediation.Host, error) {
	if a.Config.Hosts == nil {
		return nil, nil, errNoHosts
	}
	return a.HostDriver.Owned(ctx, namespace, seed)
}

// release releases all hosts of a shoot (X2), and removes what else of it is on hosts (X15). It goes on after an error.
func (a *Actuator) release(ctx context.Context, namespace, seed string) error {
	driver, owned, err := a.ownedHosts(ctx, namespace, seed)
	if err != nil || driver == nil {
		return err
	}
	var errs []error
	for i := range owned {
		if err := driver.Release(ctx, &owned[i]); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("failed to release host %s/%s: %w", owned[i].Namespace, owned[i].Name, err))
		}
	}
	if err := driver.Forget(ctx, seed, namespace); err != nil {
		errs = append(errs, fmt.Errorf("failed to remove what is known of power cycles from hosts: %w", err))
	}
	return errors.Join(errs...)
}
