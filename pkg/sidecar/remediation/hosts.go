// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/drivers"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/panics"
)

// kubeconfigInterval is how often the kubeconfig for the hosts is checked: it may appear later, or be replaced.
const kubeconfigInterval = 5 * time.Second

// Hosts watches the hosts of a shoot's machines. Nothing waits for a kubeconfig that is missing, a cluster that cannot be reached, or a
// kind that the cluster does not serve (P9): the hosts are unknown then, and Hosts keeps trying.
type Hosts struct {
	// Kind is that of the hosts.
	Kind drivers.Kind
	// Namespace is that of the machines.
	Namespace string
	// Kubeconfig is the file for the cluster of the hosts. It may be replaced at any time. The hosts are in the namespace of its
	// context.
	Kubeconfig string
	// Config is for the cluster of the machines. Without a Kubeconfig, the hosts are there, in the namespace of the machines.
	Config *rest.Config

	mutex    sync.Mutex
	known    *host.Driver
	handlers []func(before, after client.Object)
}

// Driver returns the driver of the hosts. It is nil until all hosts have been read once.
func (h *Hosts) Driver() *host.Driver {
	h.mutex.Lock()
	defer h.mutex.Unlock()
	return h.known
}

// errUnknown says that the hosts have not been read yet.
var errUnknown = errors.New("the hosts are not known yet")

// Whole reads live all objects that the host of a machine consists of.
func (h *Hosts) Whole(ctx context.Context, machine *machinev1alpha1.Machine) ([]unstructured.Unstructured, error) {
	driver := h.Driver()
	if driver == nil {
		return nil, errUnknown
	}
	return driver.Whole(ctx, machine)
}

// NameOf returns the name of the host of a machine, empty if it names none.
func (h *Hosts) NameOf(ctx context.Context, machine *machinev1alpha1.Machine) string {
	if driver := h.Driver(); driver != nil {
		return driver.NameOf(ctx, machine)
	}
	key, _ := h.Kind.Key(machine)
	return key.Name
}

// Source returns a source of requests for hosts that are added, changed or removed. For an added or removed host, one of the two objects
// is nil. Both are nil when the hosts have become known.
func (h *Hosts) Source(requestsOf func(ctx context.Context, before, after client.Object) []reconcile.Request) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		h.mutex.Lock()
		defer h.mutex.Unlock()
		h.handlers = append(h.handlers, func(before, after client.Object) {
			for _, request := range requestsOf(ctx, before, after) {
				queue.Add(request)
			}
		})
		return nil
	})
}

// notify calls all handlers for a host. A handler that panics neither prevents the calls of the others nor ends the process.
func (h *Hosts) notify(ctx context.Context, before, after client.Object) {
	h.mutex.Lock()
	handlers := slices.Clone(h.handlers)
	h.mutex.Unlock()
	for _, handle := range handlers {
		_ = panics.Catch(ctx, func() error { handle(before, after); return nil })
	}
}

// Start watches the hosts until the context ends. It implements manager.Runnable.
func (h *Hosts) Start(ctx context.Context) error {
	var (
		log     = logf.FromContext(ctx).WithName(ControllerName)
		current []byte
		news    string
		watch   sync.WaitGroup
		cancel  = func() {}
	)
	defer watch.Wait()
	defer func() { cancel() }()
	look := func(ctx context.Context) error {
		content, config, namespace, err := h.read()
		if err != nil || current != nil && bytes.Equal(content, current) {
			return err
		}
		begun, end := context.WithCancel(ctx)
		hosts, informers, err := h.connect(begun, config, namespace)
		if err != nil {
			end()
			return err
		}
		cancel() // the former hosts stay known until the new ones are
		cancel, current = end, content
		watch.Go(func() {
			if err := hosts.Start(begun); err != nil {
				log.Error(err, "Failed to watch the hosts")
			}
		})
		watch.Go(func() {
			synced := make([]toolscache.InformerSynced, 0, len(informers))
			for _, informer := range informers {
				synced = append(synced, informer.HasSynced)
			}
			if toolscache.WaitForCacheSync(begun.Done(), synced...) {
				h.mutex.Lock()
				h.known = h.driver(hosts, namespace)
				h.mutex.Unlock()
				log.Info("Hosts are known", "namespace", namespace)
				h.notify(ctx, nil, nil)
			}
		})
		return nil
	}
	wait.UntilWithContext(ctx, func(ctx context.Context) {
		text := ""
		if err := look(ctx); err != nil {
			if text = err.Error(); text != news {
				log.Info("Waiting for access to the hosts", "reason", text)
			}
		}
		news = text
	}, kubeconfigInterval)
	return nil
}

// read returns the content of the kubeconfig, and the config and the namespace in it.
func (h *Hosts) read() (content []byte, config *rest.Config, namespace string, err error) {
	if h.Kubeconfig == "" {
		return []byte{}, h.Config, h.Namespace, nil
	}
	if content, err = os.ReadFile(h.Kubeconfig); err != nil {
		return nil, nil, "", fmt.Errorf("failed to read the kubeconfig for the hosts: %w", err)
	}
	if config, namespace, err = host.ReadKubeconfig(content); err != nil {
		return nil, nil, "", fmt.Errorf("failed to use the kubeconfig for the hosts: %w", err)
	}
	config.UserAgent = rest.DefaultKubernetesUserAgent()
	config.QPS, config.Burst = h.Config.QPS, h.Config.Burst
	return content, config, namespace, nil
}

// connect returns the cluster of the hosts and its informers. It starts neither.
func (h *Hosts) connect(ctx context.Context, config *rest.Config, namespace string) (cluster.Cluster, []cache.Informer, error) {
	hosts, err := cluster.New(config, func(o *cluster.Options) {
		o.Logger = logf.FromContext(ctx)
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return h.Kind.Mapper, nil }
		o.Cache = cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}, ByObject: h.Kind.ByObject}
	})
	if err != nil {
		return nil, nil, fmt.Errorf("failed to create the client for the hosts: %w", err)
	}
	var informers []cache.Informer
	for _, object := range h.driver(hosts, namespace).Kind.Objects() {
		informer, err := hosts.GetCache().GetInformer(ctx, object, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, nil, fmt.Errorf("failed to get the informer for hosts: %w", err)
		}
		if _, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc: func(obj any) { h.notify(ctx, nil, obj.(client.Object)) },
			UpdateFunc: func(o, n any) {
				if before, after := o.(client.Object), n.(client.Object); differ(before, after) {
					h.notify(ctx, before, after)
				}
			},
			DeleteFunc: func(obj any) {
				if gone, ok := obj.(toolscache.DeletedFinalStateUnknown); ok {
					obj = gone.Obj
				}
				h.notify(ctx, obj.(client.Object), nil)
			},
		}); err != nil {
			return nil, nil, fmt.Errorf("failed to watch hosts: %w", err)
		}
		informers = append(informers, informer)
	}
	return hosts, informers, nil
}

// differ says whether anything changed that the cache stores. The resource version does not count: it changes with all other fields.
func differ(before, after client.Object) bool {
	same := before.DeepCopyObject().(client.Object)
	same.SetResourceVersion(after.GetResourceVersion())
	return !apiequality.Semantic.DeepEqual(same, after)
}

func (h *Hosts) driver(hosts cluster.Cluster, namespace string) *host.Driver {
	return h.Kind.New(host.Access{Namespace: h.Namespace, HostNamespace: namespace, Cached: hosts.GetCache(), APIReader: hosts.GetAPIReader(), Writer: hosts.GetClient()})
}
