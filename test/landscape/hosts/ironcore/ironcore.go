// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package ironcore runs the metal-operator, and gives each Machine a Server that it takes care of, and a ServerClaim with the
// Machine's name in its namespace, as machine-controller-manager's provider for ironcore does. The Machine's provider id names
// the claim. A Machine that is gone takes both with it, unless annotation AnnotationLasting is on the Server: then the Server stays.
// As long as there are such Servers, metal-operator chooses among them for new claims, and has 10 seconds to find one that is free.
//
// The BMC of a Server is the mock that metal-operator's own tests use, with a proxy before it: through this one hosts
// misbehave (see package hosts, the annotation is on the Server), and machines whose kernel hangs do not shut down gracefully.
// A machine is switched as its Server reports it. What is left out, as in metal-operator's tests, is the discovery of Servers,
// and the boot operator: boot configurations are ready at once.
package ironcore

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/process"
)

const (
	// GracefulTimeout is how long metal-operator waits for a machine to shut down before it takes its power.
	GracefulTimeout = 10 * time.Second

	loopback = "127.0.0.1"
)

// CRDs returns the custom resource definitions of a checkout of metal-operator.
func CRDs(dir string) ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(dir, "config", "crd", "bases", "*.yaml"))
	if err != nil {
		return nil, fmt.Errorf("could not list the custom resource definitions of metal-operator: %w", err)
	}
	manifests := make([]string, 0, len(paths))
	for _, path := range paths {
		manifest, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("could not read a custom resource definition: %w", err)
		}
		manifests = append(manifests, string(manifest))
	}
	return manifests, nil
}

// Operator is a metal-operator.
type Operator struct {
	// Kind is that of the hosts, which says its version.
	Kind string
	// Dir is a checkout, and Path the executable that is built of it.
	Dir, Path string
	// LogFile is appended to.
	LogFile string
}

// Start starts metal-operator for the cluster of the kubeconfig, which has its custom resource definitions, and waits until it
// is ready. Its registry, to which machines would report in their discovery, cannot be kept from listening on all addresses.
func Start(ctx context.Context, operator Operator, kubeconfig string) (*process.Process, error) {
	ports := map[string]int{"registry": 0, "health": 0}
	for name := range ports {
		port, err := process.FreePort()
		if err != nil {
			return nil, err
		}
		ports[name] = port
	}
	args := []string{
		"--kubeconfig=" + kubeconfig,
		"--enforce-power-off",
		"--power-polling-interval=200ms",
		"--power-polling-timeout=" + GracefulTimeout.String(),
		"--server-resync-interval=30s",
		"--probe-image=none",
		"--probe-os-image=none",
		"--metrics-bind-address=0",
		fmt.Sprintf("--health-probe-bind-address=%s:%d", loopback, ports["health"]),
		fmt.Sprintf("--registry-url=http://%s:%d", loopback, ports["registry"]),
		fmt.Sprintf("--registry-port=%d", ports["registry"]),
	}
	if operator.Kind == hosts.IronCore07 { // v0.3 knows no such flag, and this one does not start without that file
		args = append(args, "--discovery-ignition-path="+filepath.Join(operator.Dir, "config", "manager", "ignition-template.yaml"))
	}
	return process.StartReady(ctx, process.Spec{
		Name:    "metal-operator",
		Path:    operator.Path,
		Args:    args,
		Env:     []string{"ENABLE_WEBHOOKS=false"},
		LogFile: operator.LogFile,
	}, process.HTTPOK(http.DefaultClient, fmt.Sprintf("http://%s:%d/readyz", loopback, ports["health"])))
}

// AddToManager adds the controller that gives hosts of that kind to machines to the manager of the seed. Their BMCs are processes
// of the executable redfish, which end with the manager.
func AddToManager(mgr manager.Manager, kind, redfish, logFile string) error {
	bmcs := &bmcs{client: mgr.GetClient(), path: redfish, logFile: logFile, running: map[string]*bmc{}}
	if err := mgr.Add(manager.RunnableFunc(bmcs.stopAllAtEnd)); err != nil {
		return fmt.Errorf("could not add the BMCs: %w", err)
	}
	if err := builder.ControllerManagedBy(mgr).
		Named("ironcore-access").
		For(&corev1.Namespace{}, builder.WithPredicates(predicate.NewPredicateFuncs(isControlPlane))).
		Complete(&access{client: mgr.GetClient(), config: mgr.GetConfig()}); err != nil {
		return fmt.Errorf("could not add the controller of the access to hosts: %w", err)
	}
	if err := builder.ControllerManagedBy(mgr).
		Named("ironcore").
		WithOptions(controller.Options{SkipNameValidation: new(true), MaxConcurrentReconciles: 5}).
		For(&machinev1alpha1.Machine{}, builder.WithPredicates(predicate.Or[client.Object](createdOrDeleted(), identified()))).
		Watches(newObject(kindServer, client.ObjectKey{}), handler.EnqueueRequestsFromMapFunc(machineOfServer)).
		Watches(newObject(kindServerClaim, client.ObjectKey{}), &handler.EnqueueRequestForObject{}, builder.WithPredicates(createdOrDeleted())).
		Watches(newObject(kindBootConfiguration, client.ObjectKey{}), &handler.EnqueueRequestForObject{}).
		Complete(&reconciler{client: mgr.GetClient(), clock: clock.RealClock{}, bmcs: bmcs, ignore: operationIgnore[kind]}); err != nil {
		return fmt.Errorf("could not add the controller of hosts: %w", err)
	}
	return nil
}

func createdOrDeleted() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

// identified is true when a machine has got a provider id.
func identified() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
		before, isMachine := e.ObjectOld.(*machinev1alpha1.Machine)
		after, ok := e.ObjectNew.(*machinev1alpha1.Machine)
		return isMachine && ok && before.Spec.ProviderID != after.Spec.ProviderID
	}}
}

func machineOfServer(_ context.Context, server client.Object) []reconcile.Request {
	machine, ok := machineOf(server)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: machine}}
}
