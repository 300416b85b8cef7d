// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package garden makes a garden of an API server: with gardener-apiserver, gardener-controller-manager and
// gardener-scheduler, with the admission component of the extension, and with what operators have in a garden so that
// Shoots can be created. What does the work of gardenlet is in package gardenlet.
package garden

import (
	"context"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	"time"

	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	"github.com/gardener/gardener/pkg/utils/flow"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

//go:embed garden.yaml
var objects []byte

// Deploy creates what operators have in a garden, with the ControllerRegistration of the extension from the checkout.
func Deploy(ctx context.Context, config *rest.Config, checkout string) error {
	registration, err := os.ReadFile(filepath.Join(checkout, "example", "controller-registration.yaml"))
	if err != nil {
		return fmt.Errorf("could not read the registration of the extension: %w", err)
	}
	for _, manifest := range [][]byte{objects, registration} {
		if err := apply(ctx, config, manifest); err != nil {
			return fmt.Errorf("could not deploy what operators have in a garden: %w", err)
		}
	}
	return nil
}

// apply creates objects. It tries again for a while: gardener-apiserver does not know at once what was just created.
func apply(ctx context.Context, config *rest.Config, manifest []byte) error {
	applier, err := kubernetesclient.NewApplierForConfig(config)
	if err != nil {
		return fmt.Errorf("could not make a client of the garden: %w", err)
	}
	return flow.TaskFn(func(ctx context.Context) error {
		return applier.ApplyManifest(ctx, kubernetesclient.NewManifestReader(manifest), kubernetesclient.DefaultMergeFuncs)
	}).RetryUntilTimeout(500*time.Millisecond, 2*time.Minute)(ctx)
}

func newClient(config *rest.Config) (client.Client, error) {
	c, err := client.New(config, client.Options{Scheme: kubernetesclient.GardenScheme})
	if err != nil {
		return nil, fmt.Errorf("could not make a client of the garden: %w", err)
	}
	return c, nil
}
