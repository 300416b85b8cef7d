// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package hosts

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

// requestTimeout bounds each request to the cluster that the hosts are in.
const requestTimeout = 10 * time.Second

// Driver is what is done with the hosts of a shoot. It is a host.Driver.
type Driver interface {
	Owned(ctx context.Context, seed, namespace string) ([]remediation.Host, error)
	Release(ctx context.Context, host *remediation.Host) error
	Forget(ctx context.Context, seed, namespace string) error
}

// DriverOf returns the driver for the hosts of a shoot, by its control-plane namespace. A NotFound says that nothing reaches them.
type DriverOf func(ctx context.Context, namespace string) (Driver, error)

// NewDriverOf returns a function that makes the driver for the hosts of a shoot: those in the namespace of the kubeconfig's context,
// or in the control-plane namespace. The error is a NotFound if the Secret with the kubeconfig does not exist. Neither reader nor
// writer may be backed by a cache.
func NewDriverOf(reader client.Reader, writer client.Writer, hosts *configv1alpha1.Hosts) DriverOf {
	return func(ctx context.Context, namespace string) (Driver, error) {
		kind, err := drivers.For(hosts.Kind)
		if err != nil {
			return nil, err
		}
		if hosts.KubeconfigSecretName == "" {
			return kind.New(host.Access{Namespace: namespace, HostNamespace: namespace, Cached: reader, APIReader: reader, Writer: writer}), nil
		}
		secret := &corev1.Secret{}
		if err := reader.Get(ctx, client.ObjectKey{Namespace: namespace, Name: hosts.KubeconfigSecretName}, secret); err != nil {
			return nil, fmt.Errorf("failed to get Secret %q: %w", hosts.KubeconfigSecretName, err)
		}
		config, hostNamespace, err := host.ReadKubeconfig(secret.Data[secrets.DataKeyKubeconfig])
		if err != nil {
			return nil, fmt.Errorf("failed to read the kubeconfig in Secret %q: %w", hosts.KubeconfigSecretName, err)
		}
		config.Timeout = requestTimeout
		c, err := client.New(config, client.Options{Mapper: kind.Mapper})
		if err != nil {
			return nil, fmt.Errorf("failed to create the client for the hosts: %w", err)
		}
		return kind.New(host.Access{Namespace: namespace, HostNamespace: hostNamespace, Cached: c, APIReader: c, Writer: c}), nil
	}
}

// Owned returns the hosts that the machines of a shoot own, and what releases them. There are none if the Secret with the kubeconfig
// is gone, because who took it away has seen to them, and if their kind is not served.
func (of DriverOf) Owned(ctx context.Context, namespace, seed string) (Driver, []remediation.Host, error) {
	driver, err := of(ctx, namespace)
	if apierrors.IsNotFound(err) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("failed to reach the hosts: %w", err)
	}
	owned, err := driver.Owned(ctx, seed, namespace)
	if errors.Is(err, host.ErrNoKind) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("failed to list hosts: %w", err)
	}
	return driver, owned, nil
}
