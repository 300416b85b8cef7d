// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/text"
)

// Pods watches the pods of single nodes, from when they are asked for (D3, M4).
type Pods struct {
	client kubernetes.Interface
	// ctx ends all watches.
	ctx context.Context
	// known is called when the pods of a node are known, and changed when they have changed since.
	known, changed func(node string)

	mutex  sync.Mutex
	byNode map[string]*podWatch
}

// NewPods returns the pods of a shoot. All watches end with the context. It calls known with the name of a node when its
// pods are known, and changed when they have changed since.
func NewPods(ctx context.Context, c kubernetes.Interface, known, changed func(node string)) *Pods {
	return &Pods{client: c, ctx: ctx, known: known, changed: changed, byNode: map[string]*podWatch{}}
}

type podWatch struct {
	store     toolscache.Store
	hasSynced toolscache.InformerSynced
	end       context.CancelFunc
}

// Of returns the pods of a node, and false as long as they are not known. From the first call on they are watched.
func (w *Pods) Of(node string) ([]drain.Pod, bool) {
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

// Forget ends the watch of a node.
func (w *Pods) Forget(node string) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	if watched, ok := w.byNode[node]; ok {
		watched.end()
		delete(w.byNode, node)
	}
}

func (w *Pods) begin(node string) *podWatch {
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
					w.changed(node)
				}
			},
			UpdateFunc: func(o, n any) {
				if changesPlan(o.(*corev1.Pod), n.(*corev1.Pod)) {
					w.changed(node)
				}
			},
			DeleteFunc: func(any) { w.changed(node) },
		},
	})
	ctx, end := context.WithCancel(w.ctx)
	go informer.RunWithContext(ctx)
	go func() {
		if toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			w.known(node)
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

// podsPage is how many pods are in memory at a time when they are listed, however many a node has.
const podsPage = 50

// ListPods returns the pods of a node as the API server has them.
func ListPods(ctx context.Context, c kubernetes.Interface, node string) ([]drain.Pod, error) {
	var pods []drain.Pod
	opts := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String(), Limit: podsPage}
	for {
		list, err := c.CoreV1().Pods(metav1.NamespaceAll).List(ctx, opts)
		if err != nil {
			return nil, fmt.Errorf("failed to list the pods of node %s: %w", node, text.CutError(err))
		}
		for i := range list.Items {
			pods = append(pods, drain.NewPod(&list.Items[i]))
		}
		if opts.Continue = list.Continue; opts.Continue == "" {
			return pods, nil
		}
	}
}
