// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package plugin is kubectl preserve: what people do with preserved machines.
package plugin

import (
	"errors"
	"fmt"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
)

// scheme knows what the plugin reads and writes.
var scheme = runtime.NewScheme()

func init() {
	utilruntime.Must(kubernetesscheme.AddToScheme(scheme))
	utilruntime.Must(machinev1alpha1.AddToScheme(scheme))
	utilruntime.Must(maintenancev1alpha1.AddToScheme(scheme))
}

// Options are what all commands have in common.
type Options struct {
	genericiooptions.IOStreams
	// Shoot is how the shoot is reached: kubectl's own flags.
	Shoot *genericclioptions.ConfigFlags
	// SeedKubeconfig and SeedContext are how the seed is reached, and SeedNamespace is that of the shoot's control plane there.
	SeedKubeconfig, SeedContext, SeedNamespace string
	Clock                                      clock.WithTicker
}

// NewOptions returns options that write to the streams.
func NewOptions(streams genericiooptions.IOStreams) *Options {
	return &Options{
		IOStreams: streams,
		Shoot:     genericclioptions.NewConfigFlags(true).WithWarningPrinter(streams),
		Clock:     clock.RealClock{},
	}
}

// errNoSeed says what a command lacks that needs the seed.
var errNoSeed = errors.New("this needs access to the seed: pass --seed-namespace, and --seed-kubeconfig unless it is your current one")

// shootClient returns a client for the shoot.
func (o *Options) shootClient() (client.WithWatch, *rest.Config, error) {
	config, err := o.Shoot.ToRESTConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("no access to the shoot: %w", err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	return c, config, err
}

// seedClient returns a client for the seed. Whoever did not name a control plane gets errNoSeed.
func (o *Options) seedClient() (client.WithWatch, *rest.Config, error) {
	if o.SeedNamespace == "" {
		return nil, nil, errNoSeed
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.SeedKubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.SeedContext}).ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("no access to the seed: %w", err)
	}
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme})
	return c, config, err
}
