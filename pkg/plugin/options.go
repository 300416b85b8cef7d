// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package plugin is kubectl preserve, the command line for preserved machines.
package plugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	failuresv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/failures/v1alpha1"
	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

// scheme knows what the plugin reads and writes.
var scheme = runtime.NewScheme()

func init() {
	utilruntime.Must(kubernetesscheme.AddToScheme(scheme))
	utilruntime.Must(machinev1alpha1.AddToScheme(scheme))
	utilruntime.Must(failuresv1alpha1.AddToScheme(scheme))
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

	// shoot and seed are used instead of what the flags lead to, if set.
	shoot, seed client.WithWatch
	// nodeProxy and podLogs are used beside them.
	nodeProxy evidence.NodeProxy
	podLogs   evidence.PodLogs
	// isTerminal says that a person sits at a stream.
	isTerminal func(stream any) bool
	// patience is how long an answer is waited for that takes a running extension a second or two.
	patience time.Duration
}

// newOptions returns options that write to the streams.
func newOptions(streams genericiooptions.IOStreams) *Options {
	return &Options{
		IOStreams: streams,
		Shoot:     genericclioptions.NewConfigFlags(true).WithWarningPrinter(streams),
		Clock:     clock.RealClock{},
		patience:  10 * time.Second,
		isTerminal: func(stream any) bool {
			file, ok := stream.(*os.File)
			return ok && term.IsTerminal(int(file.Fd())) // #nosec G115 -- a file descriptor is small
		},
	}
}

// errNoSeed says what a command lacks that needs the seed.
var errNoSeed = errors.New("this needs access to the seed: pass --seed-namespace, and --seed-kubeconfig unless it is your current one")

// shootClient returns a client for the shoot.
func (o *Options) shootClient() (client.WithWatch, *rest.Config, error) {
	if o.shoot != nil {
		return o.shoot, nil, nil
	}
	config, err := o.Shoot.ToRESTConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("no access to the shoot: %w", err)
	}
	// kubectl's default is a server on this machine, which nobody means.
	if raw, err := o.Shoot.ToRawKubeConfigLoader().RawConfig(); err == nil && len(raw.Clusters) == 0 && *o.Shoot.APIServer == "" && config.Host == "http://localhost:8080" {
		return nil, nil, errors.New("no access to the shoot: there is no kubeconfig: set KUBECONFIG, or pass --kubeconfig")
	}
	return newClient(config)
}

// seedClient returns a client for the seed. Whoever did not name a control plane gets errNoSeed.
func (o *Options) seedClient() (client.WithWatch, *rest.Config, error) {
	if o.SeedNamespace == "" {
		return nil, nil, errNoSeed
	}
	if o.seed != nil {
		return o.seed, nil, nil
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = o.SeedKubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, &clientcmd.ConfigOverrides{CurrentContext: o.SeedContext}).ClientConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("no access to the seed: %w", err)
	}
	return newClient(config)
}

// newClient returns a client that asks an API server for nothing but objects: it knows which kinds there are.
func newClient(config *rest.Config) (client.WithWatch, *rest.Config, error) {
	c, err := client.NewWithWatch(config, client.Options{Scheme: scheme, Mapper: mapper()})
	return c, config, err
}

// clusterScoped are the kinds of the scheme that the plugin reads and that are in no namespace.
var clusterScoped = sets.New("Node", "VolumeAttachment", "PersistentVolume", "Namespace", "MachineFailure")

func mapper() meta.RESTMapper {
	mapper := meta.NewDefaultRESTMapper(nil)
	for gvk := range scheme.AllKnownTypes() {
		scope := meta.RESTScopeNamespace
		if clusterScoped.Has(gvk.Kind) {
			scope = meta.RESTScopeRoot
		}
		mapper.Add(gvk, scope)
	}
	return mapper
}

// sources returns who is asked about a node, or about all of them if the name is empty.
func (o *Options) sources(name string) (evidence.Sources, error) {
	shoot, seed, err := o.clients()
	if err != nil {
		return evidence.Sources{}, err
	}
	return evidence.Sources{Clock: o.Clock, Name: name, Shoot: shoot, Seed: seed, SeedNamespace: o.SeedNamespace}, nil
}

// look shows something of what a bundle of evidence says, or of what read reads if no file is named. Errors name the file.
func (o *Options) look(ctx context.Context, from, name string, read func(context.Context, evidence.Sources) (*observed.Snapshot, error), show func(*observed.Snapshot) error) error {
	s, err := o.known(ctx, from, name, read)
	if err == nil {
		err = show(s)
	}
	if err != nil && from != "" {
		return fmt.Errorf("--from=%s: %w", from, err)
	}
	return err
}

// known returns what a bundle of evidence says, or what read reads if no file is named.
func (o *Options) known(ctx context.Context, from, name string, read func(context.Context, evidence.Sources) (*observed.Snapshot, error)) (*observed.Snapshot, error) {
	if from == "" {
		sources, err := o.sources(name)
		if err != nil {
			return nil, err
		}
		return read(ctx, sources)
	}
	if o.wantsSeed() {
		return nil, errors.New("must not be set with --seed-namespace, --seed-kubeconfig or --seed-context, because only the file is read")
	}
	file, err := os.Open(from) // #nosec G304 -- the user's own
	if err != nil {
		return nil, err
	}
	defer file.Close() // #nosec G307 -- only read
	return evidence.Read(file)
}

// missesIn says of what a bundle may not have why it may not.
func missesIn(from string, err error) error {
	if from == "" {
		return err
	}
	return fmt.Errorf("%w. A bundle has one node, and the other nodes of its pool in the same zone if it was gathered with the seed", err)
}

func addFromFlag(cmd *cobra.Command, from *string) {
	cmd.Flags().StringVar(from, "from", "", "Read this bundle of evidence, written by 'kubectl preserve evidence', instead of the clusters")
}

// wantsSeed says that somebody wants what the seed knows.
func (o *Options) wantsSeed() bool {
	return o.SeedNamespace != "" || o.SeedKubeconfig != "" || o.SeedContext != ""
}

// clients returns the shoot's client, and the seed's, which is nil without a namespace of a control plane.
func (o *Options) clients() (shoot, seed client.WithWatch, err error) {
	if shoot, _, err = o.shootClient(); err != nil {
		return nil, nil, err
	}
	if !o.wantsSeed() {
		return shoot, nil, nil
	}
	seed, _, err = o.seedClient()
	return shoot, seed, err
}
