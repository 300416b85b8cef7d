// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package seed

import (
	"context"
	"fmt"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
)

// landscape is what has to be known to apply a Shoot. Start writes it to the seed, so that nothing but access to the
// seed is needed to apply one.
type landscape struct {
	shootServer string
	shootCA     []byte
	mcmVersion  string
}

const (
	keyShootServer = "shoot-server"
	keyShootCA     = "shoot-ca.crt"
	keyMCMVersion  = "machine-controller-manager-version"
)

func emptyLandscapeConfigMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "landscape", Namespace: v1beta1constants.GardenNamespace}}
}

func writeLandscape(ctx context.Context, c client.Client, o Options) error {
	shootCA, err := caBundle(o.ShootConfig)
	if err != nil {
		return err
	}
	configMap := emptyLandscapeConfigMap()
	if _, err := controllerutil.CreateOrUpdate(ctx, c, configMap, func() error {
		configMap.Data = map[string]string{
			keyShootServer: o.ShootConfig.Host,
			keyShootCA:     string(shootCA),
			keyMCMVersion:  o.MCMVersion,
		}
		return nil
	}); err != nil {
		return fmt.Errorf("could not write what is known of the landscape: %w", err)
	}
	return nil
}

func writeMCMVersion(ctx context.Context, c client.Client, version string) error {
	configMap := emptyLandscapeConfigMap()
	patch := fmt.Appendf(nil, `{"data":{%q:%q}}`, keyMCMVersion, version)
	if err := c.Patch(ctx, configMap, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("could not write the version of machine-controller-manager: %w", err)
	}
	return nil
}

func readLandscape(ctx context.Context, c client.Client) (*landscape, error) {
	configMap := emptyLandscapeConfigMap()
	if err := c.Get(ctx, client.ObjectKeyFromObject(configMap), configMap); err != nil {
		return nil, fmt.Errorf("could not read what is known of the landscape, was it started: %w", err)
	}
	return &landscape{
		shootServer: configMap.Data[keyShootServer],
		shootCA:     []byte(configMap.Data[keyShootCA]),
		mcmVersion:  configMap.Data[keyMCMVersion],
	}, nil
}

// caBundle returns the certificates by which the API server is recognised.
func caBundle(config *rest.Config) ([]byte, error) {
	config = rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("could not read the certificates of %s: %w", config.Host, err)
	}
	return config.CAData, nil
}
