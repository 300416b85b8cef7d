// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
	sidecarshoot "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

const (
	// shootTimeout bounds each request to the shoot's API server.
	shootTimeout = 10 * time.Second
	// nodesTimeout is how long Delete tries to clean the nodes of preserved machines, counted like removalTimeout. It includes the time until
	// the container is gone. A shoot that denies it must not prevent their release (P14).
	nodesTimeout = removalTimeout + 5*time.Minute
)

// errNoToken says that the access secret is too young.
var errNoToken = errors.New("not yet written")

// holder returns which preservation controller is at work, empty if none is.
func (a *Actuator) holder(ctx context.Context, namespace string) (string, error) {
	return preservationcontroller.Holder(ctx, a.Client, namespace, a.Clock.Now())
}

// endPreservations ends all preservations of a shoot that goes on without this extension (P10), and cleans its nodes. If these are not to
// be waited for any longer, it cleans those that it can for some time, because it may have been something else that was waited for. Of a
// shoot that is deleted, the machines go anyway (T10).
func (a *Actuator) endPreservations(ctx context.Context, namespace string, shoot *gardencorev1beta1.Shoot, waitForNodes bool) error {
	if shoot == nil || shoot.DeletionTimestamp != nil {
		return nil
	}

	machines, err := a.machines(ctx, namespace)
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(machines, func(m machinev1alpha1.Machine) bool { return preservation.IsMarked(&m) }) {
		return nil
	}

	var holder domain.Holder = domain.HealthTimer{}
	canExpire, err := a.Schemas.MachinesCanExpire(ctx)
	if err != nil {
		return err
	}
	if canExpire {
		holder = domain.PreserveExpiry{}
	}
	end := func(ctx context.Context, shoot client.Client) error {
		return (&preservation.Reconciler{
			Source:       a.Client,
			SourceReader: a.Client,
			Nodes:        nodes{shoot},
			Holder:       holder,
			Timeouts:     facts.DefaultTimeouts,
			Clock:        a.Clock,
			Events:       preservation.Events{Source: a.Recorder},
		}).End(ctx, namespace)
	}
	endWithNodes := func(ctx context.Context) error {
		// Without the access secret nodes cannot be cleaned. Usually it was taken away when all had ended, and what is left on
		// machines is an operator's.
		shootClient, err := a.ShootClient(ctx, namespace)
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("failed to create the client for the shoot: %w", err)
		}
		return end(ctx, shootClient)
	}
	if waitForNodes {
		return endWithNodes(ctx)
	}
	impatient, cancel := context.WithTimeout(ctx, forceTimeout)
	defer cancel()
	if endWithNodes(impatient) == nil {
		return nil
	}
	return end(ctx, nil)
}

// nodes are read from the API server, if there is a client.
type nodes struct{ client.Client }

func (n nodes) Known() bool { return n.Client != nil }

// shootScheme is what is known of shoots.
var shootScheme = runtime.NewScheme()

func init() {
	utilruntime.Must(corev1.AddToScheme(shootScheme))
	utilruntime.Must(maintenancev1alpha1.AddToScheme(shootScheme))
}

// shootClient returns a function that makes a client for a shoot's nodes and maintenances, with the identity and the
// permissions of the preservation controller. The error is a NotFound if its access secret does not exist.
func shootClient(seed client.Client) func(ctx context.Context, namespace string) (client.Client, error) {
	return func(ctx context.Context, namespace string) (client.Client, error) {
		secret := &corev1.Secret{}
		if err := seed.Get(ctx, client.ObjectKey{Namespace: namespace, Name: preservationcontroller.AccessSecretName}, secret); err != nil {
			return nil, fmt.Errorf("failed to get access secret: %w", err)
		}
		token, ca := secret.Data[resourcesv1alpha1.DataKeyToken], secret.Data[resourcesv1alpha1.DataKeyCABundle]
		if len(token) == 0 || len(ca) == 0 {
			return nil, fmt.Errorf("gardener-resource-manager has %w both %s and %s into Secret %q",
				errNoToken, resourcesv1alpha1.DataKeyToken, resourcesv1alpha1.DataKeyCABundle, secret.Name)
		}
		server, err := shootServer(ctx, seed, namespace)
		if err != nil {
			return nil, err
		}

		// Discovery would ask for all that the shoot has.
		mapper := meta.NewDefaultRESTMapper(nil)
		mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
		mapper.Add(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), meta.RESTScopeRoot)
		mapper.Add(maintenancev1alpha1.SchemeGroupVersion.WithKind("NodeMaintenance"), meta.RESTScopeNamespace)
		return client.New(&rest.Config{
			Host:            server,
			BearerToken:     string(token),
			TLSClientConfig: rest.TLSClientConfig{CAData: ca},
			Timeout:         shootTimeout,
			WrapTransport:   sidecarshoot.Limit, // an APIService of the shoot may name who answers (P14)
		}, client.Options{Mapper: mapper, Scheme: shootScheme})
	}
}

// shootServer returns the address of a shoot's API server in the seed, or the one outside of it where Gardener's own
// clients of shoots are to use that.
func shootServer(ctx context.Context, seed client.Client, namespace string) (string, error) {
	if os.Getenv("GARDENER_SHOOT_CLIENT") != "external" {
		return fmt.Sprintf("https://%s.%s.svc", v1beta1constants.DeploymentNameKubeAPIServer, namespace), nil
	}
	shoot, err := extensionscontroller.GetShoot(ctx, seed, namespace)
	if err != nil {
		return "", fmt.Errorf("failed to get Shoot: %w", err)
	}
	for _, address := range shoot.Status.AdvertisedAddresses {
		if address.Name == v1beta1constants.AdvertisedAddressExternal {
			return address.URL, nil
		}
	}
	return "", fmt.Errorf("the Shoot in Cluster %q has no advertised address %q", namespace, v1beta1constants.AdvertisedAddressExternal)
}
