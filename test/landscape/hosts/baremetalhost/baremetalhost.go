// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package baremetalhost stands for the bare metal operator of metal3, as far as power is concerned. Each Machine has a
// BareMetalHost with its name in its namespace, which is named by an annotation of the Machine, and stays when the Machine is
// gone, without a consumer.
//
// A host is on as long as no reboot annotation is on it. Several clients can keep it off, each with an annotation of its own.
// Where no machine is provisioned on the host, none is heeded. A machine loses its power at once, and the host reports it after
// ReportLag. Other than with a real one, a soft switch-off, which is any without {"mode":"hard"}, is never followed by a hard
// one: a kernel that hangs keeps the machine on. What else there is of a real one's API is not known: a reboot without a client,
// force, a host that is to be offline, is paused or is detached.
//
// A host can be made to misbehave, see package hosts. As with a real one, servicing begins when a host is reported off, whoever
// keeps it off, comes before it is switched on, and ends when the host is deprovisioned, or nothing is to be updated any more.
// Other than with a real one, it is off meanwhile. An error of its power stays until another power is reported, also when
// nothing is to be switched any more. Values of annotations that the real one's webhook refuses are not refused: the API server
// has no way to parse them that would be worth it.
package baremetalhost

import (
	"context"
	_ "embed"
	"fmt"
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

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/simulator"
)

// CRD is the custom resource definition of hosts.
//
//go:embed crd.yaml
var CRD string

// ReportLag is the time from the switch of a machine to the report of its host.
const ReportLag = time.Second

// AddToManager adds the stand-in to the manager of the seed.
func AddToManager(mgr manager.Manager) error {
	options := controller.Options{SkipNameValidation: new(true), MaxConcurrentReconciles: 5}
	if err := builder.ControllerManagedBy(mgr).
		Named("baremetalhost-machine").
		WithOptions(options).
		For(&machinev1alpha1.Machine{}, builder.WithPredicates(createdOrDeleted())).
		Complete(&provisioner{client: mgr.GetClient()}); err != nil {
		return fmt.Errorf("could not add the provisioner of hosts: %w", err)
	}
	if err := builder.ControllerManagedBy(mgr).
		Named("baremetalhost-power").
		WithOptions(options).
		For(New(client.ObjectKey{})).
		Watches(&corev1.Pod{}, handler.EnqueueRequestsFromMapFunc(hostOfPod)).
		Complete(&reconciler{client: mgr.GetClient(), clock: clock.RealClock{}}); err != nil {
		return fmt.Errorf("could not add the controller of hosts: %w", err)
	}
	return nil
}

func createdOrDeleted() predicate.Predicate {
	return predicate.Funcs{UpdateFunc: func(event.UpdateEvent) bool { return false }}
}

func hostOfPod(_ context.Context, pod client.Object) []reconcile.Request {
	machine, ok := simulator.MachineKey(pod)
	if !ok {
		return nil
	}
	return []reconcile.Request{{NamespacedName: machine}}
}
