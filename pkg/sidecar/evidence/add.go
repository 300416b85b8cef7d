// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"k8s.io/component-base/version"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

// ControllerName is the name of the controller.
const ControllerName = "evidence"

const (
	// What failed is tried again after minRetry at first, and never later than after maxRetry: it is gathered anew then.
	minRetry, maxRetry = time.Second, 5 * time.Minute
	// parallel is of how many machines evidence is gathered at a time. Each takes memory.
	parallel = retention.MaxStoredNames - retention.MaxStored
	// maxLog is how many bytes of each log are gathered. A bundle that is stored has no place for more.
	maxLog = 512 << 10
)

// AddToManager adds the Reconciler to a manager of a control-plane namespace.
func (r *Reconciler) AddToManager(mgr manager.Manager, namespace string, clients *Clients) error {
	r.Source = mgr.GetClient()
	r.Store = clients.seed
	r.Clock = clock.RealClock{}
	r.Recorder = mgr.GetEventRecorder(ControllerName)
	early := &earlyLogs{}
	if clients.kubelets != nil {
		early = newEarlyLogs(r.Source, func(ctx context.Context, node string) *evidence.NodeLogs {
			return evidence.CollectNodeLogs(ctx, evidence.Sources{Clock: r.Clock, Name: node, NodeProxy: clients.kubelets, MaxLog: maxEarlyLog})
		})
		if err := early.addToManager(mgr); err != nil {
			return err
		}
	}
	r.Collect = func(ctx context.Context, machine string) (*evidence.Bundle, error) {
		return evidence.Collect(ctx, evidence.Sources{
			Tool:          "machine-preservation-controller " + version.Get().GitVersion,
			Clock:         r.Clock,
			Name:          machine,
			Shoot:         clients.shoot,
			NodeProxy:     clients.kubelets,
			MaxLog:        maxLog,
			EarlierLogs:   early.of(machine),
			Seed:          clients.seed,
			SeedNamespace: namespace,
			Host:          r.Host,
			Controller:    &observed.Controller{Injected: true, Args: r.Args},
		})
	}
	serveZeros()
	copier := &Copier{Namespace: namespace, Seed: clients.seed, Shoot: clients.shoot}
	if err := copier.addToManager(mgr); err != nil {
		return err
	}
	r.Changed = copier.Look

	return builder.ControllerManagedBy(mgr).
		Named(ControllerName).
		Watches(&machinev1alpha1.Machine{}, handler.EnqueueRequestsFromMapFunc(requestsFor), builder.WithPredicates(machineChanged())).
		WatchesRawSource(pace.Once(upkeepOf(namespace))). // there may be no machine any more
		WithOptions(pace.Options(parallel, minRetry, maxRetry)).
		Complete(pace.RetryConflicts(r))
}

// requestsFor returns the request for a machine that evidence is to be stored of, and that for what is stored: of another machine,
// it may have to go.
func requestsFor(_ context.Context, obj client.Object) []reconcile.Request {
	requests := []reconcile.Request{upkeepOf(obj.GetNamespace())}
	if retention.FailureOf(obj.(*machinev1alpha1.Machine)) != "" {
		requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(obj)})
	}
	return requests
}

// upkeepOf is the request for what is stored in a namespace.
func upkeepOf(namespace string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: namespace}}
}
