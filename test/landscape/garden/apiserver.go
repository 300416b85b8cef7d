// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package garden

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	gardencorev1 "github.com/gardener/gardener/pkg/apis/core/v1"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	operationsv1alpha1 "github.com/gardener/gardener/pkg/apis/operations/v1alpha1"
	securityv1alpha1 "github.com/gardener/gardener/pkg/apis/security/v1alpha1"
	seedmanagementv1alpha1 "github.com/gardener/gardener/pkg/apis/seedmanagement/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/cluster"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/process"
)

// apiServerName is the name of gardener-apiserver and of its Service.
const apiServerName = "gardener-apiserver"

var groupVersions = []schema.GroupVersion{
	gardencorev1.SchemeGroupVersion,
	gardencorev1beta1.SchemeGroupVersion,
	operationsv1alpha1.SchemeGroupVersion,
	securityv1alpha1.SchemeGroupVersion,
	seedmanagementv1alpha1.SchemeGroupVersion,
}

// APIServerOptions are the options of gardener-apiserver.
type APIServerOptions struct {
	// Path is the path of the executable.
	Path string
	// Etcd is where Gardener's objects are kept.
	Etcd *cluster.Etcd
	// Garden is the API server that passes on the requests for Gardener's APIs.
	Garden *cluster.APIServer
	// Dir is the directory for key and certificate.
	Dir string
	// LogFile is the log file.
	LogFile string
}

// StartAPIServer starts gardener-apiserver with all admission plugins that are on by default, registers Gardener's APIs
// and waits until they are served by the garden.
func StartAPIServer(ctx context.Context, o APIServerOptions) (*process.Process, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	// The garden expects the name of a Service.
	certificate, key, err := cert.GenerateSelfSignedCertKey(apiServerName+"."+v1beta1constants.GardenNamespace+".svc", nil, []string{"localhost"})
	if err != nil {
		return nil, fmt.Errorf("could not make a certificate for %s: %w", apiServerName, err)
	}
	certFile, keyFile := filepath.Join(o.Dir, "tls.crt"), filepath.Join(o.Dir, "tls.key")
	if err := errors.Join(os.WriteFile(certFile, certificate, 0o600), os.WriteFile(keyFile, key, 0o600)); err != nil {
		return nil, err
	}
	port, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("https://localhost:%d", port)
	client, err := rest.HTTPClientFor(&rest.Config{TLSClientConfig: rest.TLSClientConfig{CAData: certificate}})
	if err != nil {
		return nil, err
	}

	p, err := process.StartReady(ctx, process.Spec{
		Name: apiServerName,
		Path: o.Path,
		Args: []string{
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", port),
			"--tls-cert-file=" + certFile,
			"--tls-private-key-file=" + keyFile,
			"--etcd-servers=" + o.Etcd.URL,
			"--cluster-identity=landscape",
			"--kubeconfig=" + o.Garden.Kubeconfig,
			"--authentication-kubeconfig=" + o.Garden.Kubeconfig,
			"--authorization-kubeconfig=" + o.Garden.Kubeconfig,
			"--authorization-always-allow-paths=/readyz",
		},
		LogFile: o.LogFile,
	}, process.HTTPOK(client, address+"/readyz"))
	if err != nil {
		return nil, err
	}
	if err := register(ctx, o.Garden.Config, int32(port), certificate); err != nil {
		return nil, errors.Join(err, p.Stop(context.WithoutCancel(ctx)))
	}
	return p, nil
}

// register makes the garden pass on requests to the port, and waits until it does.
func register(ctx context.Context, config *rest.Config, port int32, caBundle []byte) error {
	c, err := newClient(config)
	if err != nil {
		return err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: v1beta1constants.GardenNamespace}}
	if err := c.Create(ctx, namespace); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("could not create namespace %s: %w", namespace.Name, err)
	}
	service := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: apiServerName, Namespace: namespace.Name}}
	if _, err := controllerutil.CreateOrUpdate(ctx, c, service, func() error {
		service.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "localhost"}
		return nil
	}); err != nil {
		return fmt.Errorf("could not write service %s: %w", service.Name, err)
	}

	var apiServices []*apiregistrationv1.APIService
	for _, groupVersion := range groupVersions {
		apiService := &apiregistrationv1.APIService{ObjectMeta: metav1.ObjectMeta{Name: groupVersion.Version + "." + groupVersion.Group}}
		if _, err := controllerutil.CreateOrUpdate(ctx, c, apiService, func() error {
			apiService.Spec = apiregistrationv1.APIServiceSpec{
				Group:                groupVersion.Group,
				Version:              groupVersion.Version,
				Service:              &apiregistrationv1.ServiceReference{Namespace: service.Namespace, Name: service.Name, Port: &port},
				CABundle:             caBundle,
				GroupPriorityMinimum: 9999,
				VersionPriority:      19,
			}
			return nil
		}); err != nil {
			return fmt.Errorf("could not register %s: %w", groupVersion, err)
		}
		apiServices = append(apiServices, apiService)
	}
	return waitUntilServed(ctx, c, config, apiServices)
}

// waitUntilServed waits until the APIs are served and can be discovered.
func waitUntilServed(ctx context.Context, c client.Client, config *rest.Config, apiServices []*apiregistrationv1.APIService) error {
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return fmt.Errorf("could not make a discovery client: %w", err)
	}
	var last error
	if err := wait.PollUntilContextCancel(ctx, 200*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		last = func() error {
			for _, apiService := range apiServices {
				if err := c.Get(ctx, client.ObjectKeyFromObject(apiService), apiService); err != nil {
					return err
				}
				if err := health.CheckAPIService(apiService); err != nil {
					return err
				}
			}
			_, lists, err := discoveryClient.ServerGroupsAndResources()
			if err != nil {
				return err
			}
			discovered := map[string]int{}
			for _, list := range lists {
				discovered[list.GroupVersion] = len(list.APIResources)
			}
			for _, groupVersion := range groupVersions {
				if discovered[groupVersion.String()] == 0 {
					return fmt.Errorf("%s cannot be discovered", groupVersion)
				}
			}
			return nil
		}()
		return last == nil, nil
	}); err != nil {
		return fmt.Errorf("the garden does not serve Gardener's APIs: %w: %w", err, last)
	}
	return nil
}
