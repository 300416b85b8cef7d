// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package simulator stands for the machines of provider-local. Such a machine is a Pod in the seed, in which a kubelet
// would run. Nothing runs in it here: the simulator sets the Pod Running and registers a Node for it in the shoot, which
// kwok serves as long as the simulator lets the kubelet live. What API servers ask kubelets for is answered by package kubelet. The Node is not registered before machine-controller-manager
// knows its name: it would be taken for a left-over of another machine. The Pod gets ready, as a pod of provider-local
// does, when its Node has been registered. A Pod that is deleted goes away at once, and its Node is no longer served.
//
// # Failures
//
// A machine fails in the way that the annotation FailureAnnotation of its Pod says:
//
//   - kubelet-dead: the Node is no longer served. The node lifecycle controller finds out.
//   - kernel-hang: the same, until the machine's host is switched off. Machines have hosts only if the landscape has.
//   - node-not-ready: the Node is served, but not ready.
//   - never-joins: no Node is registered. This can only be set as long as there is none.
//
// Without the annotation the machine is well: removing it is how a machine recovers. A machine that has never joined then
// joins. Another value changes nothing, and a Warning event on the Pod tells so.
//
// A Pod does not exist before its machine is created. Hence the same annotation on the control-plane namespace is the
// default for machines that are created while it is there. It is copied to their Pods, so removing it from the namespace
// does not heal them.
//
// # Power
//
// Where machines have hosts, these switch them by the annotation PowerAnnotation of the Pod. Without power the kubelet is
// dead at once, and so is what runs in the pods of the Node. With power again the kubelet lives after BootTime: it has
// started the containers of the Node's pods anew, and reports another boot id, unless the host pretends to have been off.
package simulator

import (
	"context"
	"fmt"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// The labels that provider-local puts on machine pods, and the prefix of their names.
const (
	labelMachine = "machine"
	podPrefix    = "machine-"
)

// AddToManager adds the simulator to the manager of the seed. The configuration is that of an administrator of the shoot.
func AddToManager(mgr manager.Manager, shootConfig *rest.Config) error {
	shootConfig = rest.CopyConfig(shootConfig)
	shootConfig.QPS = -1
	// Nodes are not cached: there are many, they change often, and few of the changes are of interest here.
	shootClient, err := client.New(shootConfig, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("could not make a client of the shoot: %w", err)
	}
	version, err := serverVersion(shootConfig)
	if err != nil {
		return err
	}
	kubelets, err := newKubelets()
	if err != nil {
		return err
	}
	if err := mgr.Add(manager.RunnableFunc(kubelets.stopAllAtEnd)); err != nil {
		return fmt.Errorf("could not add the kubelets: %w", err)
	}
	if err := builder.ControllerManagedBy(mgr).
		Named("simulator").
		WithOptions(controller.Options{SkipNameValidation: new(true), MaxConcurrentReconciles: 10}).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(isMachinePod))).
		Watches(&machinev1alpha1.Machine{}, handler.EnqueueRequestsFromMapFunc(podOfMachine), builder.WithPredicates(nodeAssigned())).
		Complete(&reconciler{
			seed:           mgr.GetClient(),
			shoot:          shootClient,
			recorder:       mgr.GetEventRecorder("simulator"),
			kubeletVersion: version,
			kubelets:       kubelets,
			clock:          clock.RealClock{},
		}); err != nil {
		return fmt.Errorf("could not add the simulator: %w", err)
	}
	return nil
}

func isMachinePod(object client.Object) bool {
	return object.GetLabels()[labelMachine] != ""
}

func podOfMachine(_ context.Context, machine client.Object) []reconcile.Request {
	return []reconcile.Request{{NamespacedName: PodKey(client.ObjectKeyFromObject(machine))}}
}

// nodeAssigned is true when machine-controller-manager has assigned a node to a machine. Machines change often.
func nodeAssigned() predicate.Predicate {
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return isNodeAssigned(e.Object) },
		UpdateFunc: func(e event.UpdateEvent) bool { return isNodeAssigned(e.ObjectNew) && !isNodeAssigned(e.ObjectOld) },
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

func isNodeAssigned(object client.Object) bool {
	machine, ok := object.(*machinev1alpha1.Machine)
	return ok && machine.Spec.ProviderID != "" && machine.Labels[machinev1alpha1.NodeLabelKey] != ""
}
