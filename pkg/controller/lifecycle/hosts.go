// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

// errNoHosts says that the component configuration has no hosts, where some of a shoot may be off.
var errNoHosts = errors.New("the component configuration no longer has hosts, but some hosts of this shoot may still be off: " +
	"configure hosts again with disabled: true until all Shoots have been reconciled")

// errUnreachable says that the cluster of the hosts does not answer.
var errUnreachable = errors.New("the hosts cannot be reached, and the log of the extension says why")

// ownedHosts returns the hosts that the machines of a shoot own, and what releases them.
func (a *Actuator) ownedHosts(ctx context.Context, namespace, seed string) (hosts.Driver, []remediation.Host, error) {
	if a.Config.Hosts == nil {
		return nil, nil, errNoHosts
	}
	driver, owned, err := a.HostDriver.Owned(ctx, namespace, seed)
	return driver, owned, withoutAddress(ctx, err)
}

// withoutAddress returns an error without the address of the cluster of the hosts, and logs it with that: the owner of the Shoot reads why an
// Extension is not ready.
func withoutAddress(ctx context.Context, err error) error {
	if !errors.As(err, new(*url.Error)) {
		return err
	}
	logf.FromContext(ctx).Error(err, "The hosts cannot be reached")
	return errUnreachable
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
			errs = append(errs, fmt.Errorf("failed to release host %s/%s: %w", owned[i].Namespace, owned[i].Name, withoutAddress(ctx, err)))
		}
	}
	if err := driver.Forget(ctx, seed, namespace); err != nil {
		errs = append(errs, fmt.Errorf("failed to remove what is known of power cycles from hosts: %w", withoutAddress(ctx, err)))
	}
	return errors.Join(errs...)
}
