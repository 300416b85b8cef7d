// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package podrunner runs the pods of machine-controller-manager without containers: it is the deployment controller and
// the kubelet for them.
//
// For each Deployment with the labels of machine-controller-manager it keeps pods, replaces them after a change of the
// template (the new one is started before the old one is stopped) and writes the status. The containers of such a pod
// run as processes with the command, arguments and environment of the container. What would be an image is looked up in
// a table of executables. Each process has namespaces of its own, in which the volumes of the container are mounted where
// the container wants them, with contents as the kubelet makes them (secrets, config maps and tokens of the pod's service
// account are kept up to date), and in which the host has the name of the pod: leader election depends on it. A process
// that ends is started again after a growing delay. "kubectl delete pod" restarts everything, as in any cluster.
//
// The network of the host is shared, hence the ports that the containers declare are translated: see PortsAnnotation
// for where they are found. Probes, resources, init containers and security contexts are not looked at.
package podrunner

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed/node"
)

// PortsAnnotation is put on a pod and maps each port that its containers declare to the port of 127.0.0.1 that stands
// for it, as a JSON object.
const PortsAnnotation = "landscape.machine-preservation/ports"

// selector selects the Deployments and the pods of machine-controller-manager.
var selector = labels.SelectorFromSet(labels.Set{"app": "kubernetes", "role": "machine-controller-manager"})

// Options configures the runner.
type Options struct {
	// Dir takes the volumes of the pods (pods/<uid>) and the logs (log/<deployment>-<container>.log).
	Dir string
	// Binaries maps the name of an image, without registry and tag, to the executable that stands for it. It is called for
	// each new pod: those that run keep the executables that they were started with.
	Binaries func() map[string]string
}

// AddToManager adds the runner to the manager of the seed. When the manager ends, all processes are stopped; the pods
// stay and run again when the next manager starts.
func AddToManager(mgr manager.Manager, o Options) error {
	host, port, err := apiServerAddress(mgr.GetConfig())
	if err != nil {
		return err
	}
	dir, err := filepath.Abs(o.Dir)
	if err != nil {
		return fmt.Errorf("could not make %s an absolute path: %w", o.Dir, err)
	}

	if err := builder.ControllerManagedBy(mgr).
		Named("podrunner-deployment").
		WithOptions(controller.Options{SkipNameValidation: new(true)}).
		For(&appsv1.Deployment{}, builder.WithPredicates(predicate.NewPredicateFuncs(isSelected))).
		Owns(&corev1.Pod{}).
		Complete(&deploymentReconciler{client: mgr.GetClient()}); err != nil {
		return fmt.Errorf("could not add the controller of deployments: %w", err)
	}

	pods := &podReconciler{
		client:   mgr.GetClient(),
		recorder: mgr.GetEventRecorder("podrunner"),
		dir:      dir,
		binaries: o.Binaries,
		environment: environment{
			apiServerHost: host,
			apiServerPort: port,
		},
		changes: make(chan event.GenericEvent),
		running: map[types.NamespacedName]*runningPod{},
	}
	if err := builder.ControllerManagedBy(mgr).
		Named("podrunner-pod").
		WithOptions(controller.Options{SkipNameValidation: new(true), MaxConcurrentReconciles: 5}).
		For(&corev1.Pod{}, builder.WithPredicates(predicate.NewPredicateFuncs(isOurPod))).
		Watches(&corev1.Secret{}, handler.EnqueueRequestsFromMapFunc(pods.mountedBy(secretNames))).
		Watches(&corev1.ConfigMap{}, handler.EnqueueRequestsFromMapFunc(pods.mountedBy(configMapNames))).
		WatchesRawSource(source.Channel(pods.changes, &handler.EnqueueRequestForObject{})).
		Complete(pods); err != nil {
		return fmt.Errorf("could not add the controller of pods: %w", err)
	}
	if err := mgr.Add(manager.RunnableFunc(pods.stopAllAtEnd)); err != nil {
		return fmt.Errorf("could not add the end of the pods: %w", err)
	}
	return nil
}

func isSelected(object client.Object) bool {
	return selector.Matches(labels.Set(object.GetLabels()))
}

func isOurPod(object client.Object) bool {
	pod, ok := object.(*corev1.Pod)
	return ok && isSelected(pod) && pod.Spec.NodeName == node.Name
}

func apiServerAddress(config *rest.Config) (string, string, error) {
	address, err := url.Parse(config.Host)
	if err != nil {
		return "", "", fmt.Errorf("could not parse the address of the API server: %w", err)
	}
	host, port, err := net.SplitHostPort(address.Host)
	if err != nil {
		return "", "", fmt.Errorf("could not find the port of the API server in %q: %w", config.Host, errors.Unwrap(err))
	}
	return host, port, nil
}

// mountedBy returns a function that maps an object to the pods that mount it.
func (r *podReconciler) mountedBy(names func(corev1.Volume) []string) handler.MapFunc {
	return func(ctx context.Context, object client.Object) []reconcile.Request {
		pods := &corev1.PodList{}
		if err := r.client.List(ctx, pods, client.InNamespace(object.GetNamespace()), client.MatchingLabelsSelector{Selector: selector}); err != nil {
			return nil
		}
		var requests []reconcile.Request
		for _, pod := range pods.Items {
			if mounts(&pod, object.GetName(), names) {
				requests = append(requests, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(&pod)})
			}
		}
		return requests
	}
}

func mounts(pod *corev1.Pod, name string, names func(corev1.Volume) []string) bool {
	for _, volume := range pod.Spec.Volumes {
		for _, mounted := range names(volume) {
			if mounted == name {
				return true
			}
		}
	}
	return false
}

func secretNames(volume corev1.Volume) []string {
	var names []string
	if volume.Secret != nil {
		names = append(names, volume.Secret.SecretName)
	}
	if volume.Projected != nil {
		for _, source := range volume.Projected.Sources {
			if source.Secret != nil {
				names = append(names, source.Secret.Name)
			}
		}
	}
	return names
}

func configMapNames(volume corev1.Volume) []string {
	var names []string
	if volume.ConfigMap != nil {
		names = append(names, volume.ConfigMap.Name)
	}
	if volume.Projected != nil {
		for _, source := range volume.Projected.Sources {
			if source.ConfigMap != nil {
				names = append(names, source.ConfigMap.Name)
			}
		}
	}
	return names
}
