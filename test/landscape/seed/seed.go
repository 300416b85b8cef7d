// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package seed makes a seed of an API server, as far as the worker nodes of a shoot are concerned. It runs Gardener's
// own code:
//
//   - the custom resource definitions of Gardener, machine-controller-manager, VPA and Prometheus operator,
//   - gardener-resource-manager: the ManagedResource controllers (also their health) with the shoot and with the seed as
//     target, the token requestor for the shoot, and the webhook that mounts service account tokens into pods,
//   - provider-local: the Worker controller and the control-plane webhook,
//   - for a Shoot (ApplyShoot, MigrateShoot, DeleteShoot), those components of gardenlet that deploy gardenlet's access
//     to the shoot, Extension and Worker resources, and machine-controller-manager.
//
// Emulated is what gardenlet's flow does around these components: the namespaces, the Cluster resource, the cloud
// provider's secret, the user data of the machines (there is no OperatingSystemConfig), and the deletion of a namespace,
// as the seed has no controller manager. The seed has one node, see package node. Further controllers, such as those of
// podrunner and simulator, can be added to the same manager.
package seed

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	localinstall "github.com/gardener/gardener/pkg/provider-local/apis/local/install"
	resourcemanagerclient "github.com/gardener/gardener/pkg/resourcemanager/client"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	certutil "k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/process"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed/crds"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed/node"
)

const loopback = "127.0.0.1"

// Options configures a seed.
type Options struct {
	// SeedConfig and ShootConfig are those of administrators of the two API servers.
	SeedConfig, ShootConfig *rest.Config
	// MCMVersion is the version of machine-controller-manager, for example "v0.62.1". It becomes the tag of the image.
	MCMVersion string
	// MachineCRDDir is the directory with the custom resource definitions of machine-controller-manager. Those that come
	// with Gardener are used if it is empty.
	MachineCRDDir string
	// CRDs are further custom resource definitions, as manifests.
	CRDs []string
	// LogDir is the directory in which podrunner writes the logs of containers.
	LogDir string
	// AddToManager adds further controllers to the manager of the seed.
	AddToManager []func(manager.Manager) error
}

// Start installs everything in the seed, and returns when the webhooks and the controllers serve. They end with the
// context, or before if one fails: the channel then gets the error, and nil otherwise.
func Start(ctx context.Context, o Options) (<-chan error, error) {
	scheme := runtime.NewScheme()
	if err := kubernetesclient.AddSeedSchemeToScheme(scheme); err != nil {
		return nil, fmt.Errorf("could not make the scheme: %w", err)
	}
	localinstall.Install(scheme)
	seedConfig, shootConfig := unlimited(o.SeedConfig), unlimited(o.ShootConfig)

	c, err := client.New(seedConfig, client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("could not make a client of the seed: %w", err)
	}
	if err := crds.Deploy(ctx, c, o.MachineCRDDir, o.CRDs...); err != nil {
		return nil, err
	}
	if err := deployPrerequisites(ctx, c, o); err != nil {
		return nil, err
	}

	serving, err := newServing()
	if err != nil {
		return nil, err
	}
	mgr, err := manager.New(seedConfig, manager.Options{
		Scheme:        scheme,
		Metrics:       metricsserver.Options{BindAddress: "0"},
		WebhookServer: serving.server(),
		Controller:    config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		return nil, fmt.Errorf("could not make the manager of the seed: %w", err)
	}
	shoot, err := cluster.New(shootConfig, func(options *cluster.Options) { options.Scheme = resourcemanagerclient.TargetScheme })
	if err != nil {
		return nil, fmt.Errorf("could not make a client of the shoot: %w", err)
	}
	if err := mgr.Add(shoot); err != nil {
		return nil, fmt.Errorf("could not add the shoot to the manager: %w", err)
	}
	if err := addControllers(ctx, mgr, shoot); err != nil {
		return nil, err
	}
	webhooks, err := addWebhooks(mgr, serving)
	if err != nil {
		return nil, err
	}
	if err := node.AddToManager(mgr, o.LogDir); err != nil {
		return nil, fmt.Errorf("could not add the node of the seed: %w", err)
	}
	for _, add := range o.AddToManager {
		if err := add(mgr); err != nil {
			return nil, err
		}
	}

	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		defer cancel()
		ended <- mgr.Start(ctx)
	}()
	if err := waitUntilServing(ctx, mgr); err != nil {
		cancel()
		return nil, fmt.Errorf("controllers of the seed did not start: %w", errors.Join(err, <-ended))
	}
	if err := webhooks.register(ctx, c); err != nil {
		cancel()
		return nil, errors.Join(err, <-ended)
	}
	return ended, nil
}

// unlimited returns a copy of the configuration without client-side rate limit.
func unlimited(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.QPS = -1
	return config
}

// deployPrerequisites creates what the components expect in any seed.
func deployPrerequisites(ctx context.Context, c client.Client, o Options) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1beta1constants.GardenNamespace}}
	if _, err := controllerutil.CreateOrUpdate(ctx, c, namespace, func() error {
		metav1.SetMetaDataLabel(&namespace.ObjectMeta, v1beta1constants.GardenRole, v1beta1constants.GardenNamespace)
		return nil
	}); err != nil {
		return fmt.Errorf("could not create namespace %s: %w", namespace.Name, err)
	}
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: v1beta1constants.PriorityClassNameShootControlPlane300}}
	if _, err := controllerutil.CreateOrUpdate(ctx, c, class, func() error {
		class.Value = 999998300
		return nil
	}); err != nil {
		return fmt.Errorf("could not create priority class %s: %w", class.Name, err)
	}
	return writeLandscape(ctx, c, o)
}

// serving is how the webhooks are served.
type serving struct {
	port        int
	certPEM     []byte
	certificate tls.Certificate
}

func newServing() (*serving, error) {
	port, err := process.FreePort()
	if err != nil {
		return nil, fmt.Errorf("could not find a free port for the webhooks: %w", err)
	}
	certPEM, keyPEM, err := certutil.GenerateSelfSignedCertKey("webhooks", []net.IP{net.ParseIP(loopback)}, nil)
	if err != nil {
		return nil, fmt.Errorf("could not make a certificate for the webhooks: %w", err)
	}
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return nil, fmt.Errorf("could not use the certificate for the webhooks: %w", err)
	}
	return &serving{port: port, certPEM: certPEM, certificate: certificate}, nil
}

func (s *serving) server() webhook.Server {
	return webhook.NewServer(webhook.Options{
		Host: loopback,
		Port: s.port,
		TLSOpts: []func(*tls.Config){func(config *tls.Config) {
			config.GetCertificate = func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return &s.certificate, nil }
		}},
	})
}
