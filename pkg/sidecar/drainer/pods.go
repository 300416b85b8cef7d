// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drainer

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/paging"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// settling is how long changes of pods wait to be looked at: those that come together are looked at together.
const settling = time.Second

// Pods knows the pods of nodes.
type Pods interface {
	// Of returns the pods of a node, and false as long as they are not known. From the first call on they are watched.
	Of(node string) ([]drain.Pod, bool)
	// Forget ends the watch.
	Forget(node string)
}

// WatchPods returns the pods of a shoot, which are watched node by node, from when they are asked for (D3, M4). All watches end with
// the context. It has a node be looked at when its pods are known, and when they have changed since.
func WatchPods(ctx context.Context, c kubernetes.Interface, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) Pods {
	return &podWatches{ctx: ctx, client: c, queue: queue, byNode: map[string]*podWatch{}}
}

type podWatches struct {
	// ctx ends all watches.
	ctx    context.Context
	client kubernetes.Interface
	queue  workqueue.TypedRateLimitingInterface[reconcile.Request]

	mutex  sync.Mutex
	byNode map[string]*podWatch
}

type podWatch struct {
	store     toolscache.Store
	hasSynced toolscache.InformerSynced
	end       context.CancelFunc
}

func (w *podWatches) Of(node string) ([]drain.Pod, bool) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	watched, ok := w.byNode[node]
	if !ok {
		watched = w.begin(node)
		w.byNode[node] = watched
	}
	if !watched.hasSynced() {
		return nil, false
	}
	var pods []drain.Pod
	for _, obj := range watched.store.List() {
		pods = append(pods, drain.NewPod(obj.(*corev1.Pod)))
	}
	return pods, true
}

func (w *podWatches) Forget(node string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if watched, ok := w.byNode[node]; ok {
		watched.end()
		delete(w.byNode, node)
	}
}

func (w *podWatches) begin(node string) *podWatch {
	changed := func() { w.queue.AddAfter(shoot.RequestFor(node), settling) }
	ofNode := func(opts metav1.ListOptions) metav1.ListOptions {
		opts.FieldSelector = fields.OneTermEqualSelector("spec.nodeName", node).String()
		return opts
	}
	pods := w.client.CoreV1().Pods(metav1.NamespaceAll)
	store, informer := toolscache.NewInformerWithOptions(toolscache.InformerOptions{
		ListerWatcher: toolscache.ToListWatcherWithWatchListSemantics(&toolscache.ListWatch{
			ListWithContextFunc: func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
				return pods.List(ctx, ofNode(opts))
			},
			WatchFuncWithContext: func(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error) {
				return pods.Watch(ctx, ofNode(opts))
			},
		}, w.client),
		ObjectType: &corev1.Pod{},
		Transform:  stripPod,
		Handler: toolscache.ResourceEventHandlerDetailedFuncs{
			AddFunc: func(_ any, isInInitialList bool) {
				if !isInInitialList {
					changed()
				}
			},
			UpdateFunc: func(o, n any) {
				if changesPlan(o.(*corev1.Pod), n.(*corev1.Pod)) {
					changed()
				}
			},
			DeleteFunc: func(any) { changed() },
		},
	})
	ctx, end := context.WithCancel(w.ctx)
	go informer.RunWithContext(ctx)
	go func() {
		if toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			w.queue.Add(shoot.RequestFor(node))
		}
	}()
	return &podWatch{store: store, hasSynced: informer.HasSynced, end: end}
}

// changesPlan says whether something else may be to be done with a pod.
func changesPlan(o, n *corev1.Pod) bool {
	was, is := drain.NewPod(o), drain.NewPod(n)
	return was.UID != is.UID || was.Managed != is.Managed || !was.GraceEnds.Equal(is.GraceEnds) || !slices.Equal(was.Finalizers, is.Finalizers) || was.Forced != is.Forced || was.Finished != is.Finished ||
		!maps.Equal(was.Labels, is.Labels)
}

// stripPod leaves what drain.NewPod reads.
func stripPod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	stripped := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:         p.Namespace,
			Name:              p.Name,
			UID:               p.UID,
			ResourceVersion:   p.ResourceVersion,
			Labels:            p.Labels,
			CreationTimestamp: p.CreationTimestamp,
			DeletionTimestamp: p.DeletionTimestamp,
			Finalizers:        shortened(p.Finalizers),

			DeletionGracePeriodSeconds: p.DeletionGracePeriodSeconds,
		},
		Status: corev1.PodStatus{Phase: p.Status.Phase},
	}
	if ref := metav1.GetControllerOfNoCopy(p); ref != nil {
		names := shortened([]string{ref.APIVersion, ref.Kind, ref.Name})
		stripped.OwnerReferences = []metav1.OwnerReference{{APIVersion: names[0], Kind: names[1], Name: names[2], Controller: ref.Controller}}
	}
	if _, ok := p.Annotations[corev1.MirrorPodAnnotationKey]; ok { // its value says nothing
		stripped.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: ""}
	}
	read := drain.NewPod(p)
	if read.Volumes {
		stripped.Spec.Volumes = append(stripped.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}})
	}
	if read.EmptyDir {
		stripped.Spec.Volumes = append(stripped.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
	}
	if len(read.Resources) > 0 {
		names := corev1.ResourceList{}
		for _, name := range read.Resources {
			names[name] = resource.Quantity{}
		}
		stripped.Spec.Containers = []corev1.Container{{Resources: corev1.ResourceRequirements{Limits: names}}}
	}
	return stripped, nil
}

// maxNames is how many finalizers of a pod are kept, more than are told apart, and maxName how many bytes of a name, more than one has
// that means something.
const maxNames, maxName = 16, 512

func shortened(names []string) []string {
	var short []string
	for _, name := range names[:min(len(names), maxNames)] {
		if len(name) > maxName {
			name = strings.Clone(name[:maxName])
		}
		short = append(short, name)
	}
	return short
}

// podsOf asks for a page of a node's pods.
func podsOf(node, page string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(), Limit: podsPage, Continue: page}
}

// listPods returns a page of pods. kubectl's own list of pods to drain keeps all pages, and fails as a whole when it cannot look one
// DaemonSet up.
func listPods(ctx context.Context, c kubernetes.Interface, opts metav1.ListOptions) (*corev1.PodList, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	page := &corev1.PodList{}
	return page, once(c.CoreV1().RESTClient().Get()).Resource("pods").VersionedParams(&opts, scheme.ParameterCodec).Do(ctx).Into(page)
}

// ListPods returns the pods of a node as the API server has them. Of those that a drain has nothing to do with, there is only their name
// and why that is.
func ListPods(ctx context.Context, c kubernetes.Interface, node string) ([]drain.Pod, error) {
	timed, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	var (
		pods []drain.Pod
		size int
	)
	if err := paging.Each(timed, podsOf(node, ""), maxPods, func(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
		return listPods(ctx, c, opts)
	}, func() { pods, size = nil, 0 }, func(page *corev1.PodList) error {
		for i := range page.Items {
			pod := drain.NewPod(&page.Items[i])
			if pod.Belongs() {
				pod = drain.Pod{Namespace: pod.Namespace, Name: pod.Name, DaemonSet: shortened([]string{pod.DaemonSet})[0], Mirror: pod.Mirror, Finished: pod.Finished}
			}
			pod.Finalizers = shortened(pod.Finalizers)
			if size += sizeOfPod(pod); size > maxPodBytes {
				return fmt.Errorf("they have more than %d bytes", maxPodBytes)
			}
			pods = append(pods, pod)
		}
		return nil
	}); err != nil && timed.Err() != nil {
		return nil, fmt.Errorf("failed to list the pods of node %s: it takes longer than %s", node, listTime)
	} else if err != nil {
		return nil, fmt.Errorf("failed to list the pods of node %s: %s", node, reasonOf(err))
	}
	return pods, nil
}

// sizeOfPod returns about how many bytes it takes to know what users wrote on a pod.
func sizeOfPod(p drain.Pod) int {
	size := 0
	for key, value := range p.Labels {
		size += 64 + len(key) + len(value)
	}
	for _, finalizer := range p.Finalizers {
		size += 16 + len(finalizer)
	}
	for _, name := range p.Resources {
		size += 16 + len(name)
	}
	return size
}
