// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gardener/gardener/pkg/utils/secrets"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/drivers"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

// hostTimeout bounds each request to the cluster that the hosts are in.
const hostTimeout = 10 * time.Second

// errNoHosts says that the component configuration has no hosts, where some of a shoot may be off.
var errNoHosts = errors.New("the component configuration has no hosts any more, but some of this shoot may still be off: " +
	"configure them again, with disabled: true, until all Shoots have been reconciled")

// HostDriver is what is done with the hosts of a shoot. It is a host.Driver.
type HostDriver interface {
	Owned(ctx context.Context, seed, namespace string) ([]remediation.Host, error)
	Release(ctx context.Context, host *remediation.Host) error
	Forget(ctx context.Context, seed, namespace string) error
}

// hostDriverFor returns a function that makes the driver for the hosts of a shoot: those in the namespace of the kubeconfig's context,
// or in the control-plane namespace. The error is a NotFound if the Secret with the kubeconfig does not exist.
func hostDriverFor(seed client.Client, hosts *configv1alpha1.Hosts) func(ctx context.Context, namespace string) (HostDriver, error) {
	return func(ctx context.Context, namespace string) (HostDriver, error) {
		kind, err := drivers.For(hosts.Kind)
		if err != nil {
			return nil, err
		}
		if hosts.KubeconfigSecretName == "" {
			return kind.New(host.Access{Namespace: namespace, HostNamespace: namespace, Cached: seed, APIReader: seed, Writer: seed}), nil
		}
		secret := &corev1.Secret{}
		if err := seed.Get(ctx, client.ObjectKey{Namespace: namespace, Name: hosts.KubeconfigSecretName}, secret); err != nil {
			return nil, fmt.Errorf("failed to get Secret %q: %w", hosts.KubeconfigSecretName, err)
		}
		config, hostNamespace, err := host.ReadKubeconfig(secret.Data[secrets.DataKeyKubeconfig])
		if err != nil {
			return nil, fmt.Errorf("failed to read the kubeconfig in Secret %q: %w", hosts.KubeconfigSecretName, err)
		}
		config.Timeout = hostTimeout
		c, err := client.New(config, client.Options{Mapper: kind.Mapper})
		if err != nil {
			return nil, fmt.Errorf("failed to create the client for the hosts: %w", err)
		}
		return kind.New(host.Access{Namespace: namespace, HostNamespace: hostNamespace, Cached: c, APIReader: c, Writer: c}), nil
	}
}

// ownedHosts returns the hosts that the machines of a shoot own, and what releases them. There are none if the Secret with the
// kubeconfig is gone, as who took it away has seen to them, and if their kind is not served.
func (a *Actuator) ownedHosts(ctx context.Context, namespace, seed string) (HostDriver, []remediation.Host, error) {
	if a.Hosts == nil {
		return nil, nil, errNoHosts
	}
	driver, err := a.HostDriver(ctx, namespace)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("failed to reach the hosts: %w", err)
	}
	hosts, err := driver.Owned(ctx, seed, namespace)
	if errors.Is(err, host.ErrNoKind) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("failed to list hosts: %w", err)
	}
	return driver, hosts, nil
}

// release releases all hosts of a shoot (X2), and removes what else of it is on hosts (X15). It goes on after an error.
func (a *Actuator) release(ctx context.Context, namespace, seed string) error {
	driver, hosts, err := a.ownedHosts(ctx, namespace, seed)
	if err != nil || driver == nil {
		return err
	}
	var errs []error
	for i := range hosts {
		if err := driver.Release(ctx, &hosts[i]); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("failed to release host %s/%s: %w", hosts[i].Namespace, hosts[i].Name, err))
		}
	}
	if err := driver.Forget(ctx, seed, namespace); err != nil {
		errs = append(errs, fmt.Errorf("failed to remove what is known of power cycles from hosts: %w", err))
	}
	return errors.Join(errs...)
}
