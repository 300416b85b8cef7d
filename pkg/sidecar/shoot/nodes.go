// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package shoot gives the controllers of the sidecar the shoot's nodes, also when the shoot's API server is away.
package shoot

import (
	"context"
	"fmt"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/panics"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

// IndexNode is the index of Machines by the name of their node.
const IndexNode = "node"

// Access is what a cluster has beside its client. A manager can neither start nor wait for what embeds it instead of the cluster.
type Access interface {
	GetAPIReader() client.Reader
	GetEventRecorder(name string) events.EventRecorder
}

// Nodes reads and writes the nodes of a shoot. Unlike a cluster that is watched in the usual way, it does not keep the
// manager from starting while the shoot's API server is away (P9).
type Nodes struct {
	client.Client
	Access

	informer   cache.Informer
	connection *Connection
}

// NewNodes returns the nodes of a cluster that the caller starts.
func NewNodes(ctx context.Context, shoot cluster.Cluster) (*Nodes, error) {
	informer, err := shoot.GetCache().GetInformer(ctx, &corev1.Node{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("failed to get the informer for nodes: %w", err)
	}
	return &Nodes{Client: shoot.GetClient(), Access: shoot, informer: informer}, nil
}

// Known says that all nodes have been read once.
func (n *Nodes) Known() bool { return n.informer.HasSynced() }

// changeBurst and changeInterval bound how often what changes all the time is looked at.
const changeBurst, changeInterval = 10, time.Second

// Source returns a source of requests for nodes that are added, removed, or changed as the predicate says. It does not
// wait for the nodes. Requests that come too often are put off, and become one (P14): whatever is due at a certain time
// anyway is in time (P12).
func (n *Nodes) Source(mapNode func(context.Context, *corev1.Node) []reconcile.Request, changed predicate.TypedPredicate[*corev1.Node]) source.Source {
	return &source.Informer{
		Informer: n.informer,
		Handler:  EnqueuePaced(mapNode),
		Predicates: []predicate.Predicate{predicate.Funcs{UpdateFunc: func(e event.UpdateEvent) bool {
			return changed.Update(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: e.ObjectOld.(*corev1.Node), ObjectNew: e.ObjectNew.(*corev1.Node)})
		}}},
	}
}

// Requests returns the requests for an object, none if the function panics: it is called where nobody recovers.
func Requests[T client.Object](ctx context.Context, requestsOf func(context.Context, T) []reconcile.Request, obj T) []reconcile.Request {
	var requests []reconcile.Request
	_ = panics.Catch(ctx, func() error { requests = requestsOf(ctx, obj); return nil })
	return requests
}

// EnqueuePaced returns a handler that makes requests of objects. Those that come too often are put off, and become one
// (P14).
func EnqueuePaced[T client.Object](requestsOf func(context.Context, T) []reconcile.Request) handler.EventHandler {
	paces := &pace.Pace[reconcile.Request]{Burst: changeBurst, Interval: changeInterval}
	enqueue := func(ctx context.Context, obj client.Object, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
		for _, request := range Requests(ctx, requestsOf, obj.(T)) {
			if wait := paces.Take(request, time.Now()); wait > 0 {
				queue.AddAfter(request, wait)
				continue
			}
			queue.Add(request)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(ctx, e.Object, queue)
		},
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(ctx, e.ObjectNew, queue)
		},
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			enqueue(ctx, e.Object, queue)
		},
	}
}

// ReadNode returns a node, nil if there is none.
func ReadNode(ctx context.Context, reader client.Reader, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("failed to read node %s: %w", name, brief.CutError(err))
	}
	return node, nil
}

// MachineOf returns the machine of a node from a cache with IndexNode, or nil. Of several, as a name is used again while the
// VM before is still being deleted, it is one that stays.
func MachineOf(ctx context.Context, reader client.Reader, node string) (*machinev1alpha1.Machine, error) {
	machines := &machinev1alpha1.MachineList{}
	if err := reader.List(ctx, machines, client.MatchingFields{IndexNode: node}); err != nil {
		return nil, fmt.Errorf("failed to look up the machine of node %s: %w", node, err)
	}
	if len(machines.Items) == 0 {
		return nil, nil
	}
	stays := slices.IndexFunc(machines.Items, func(m machinev1alpha1.Machine) bool { return m.DeletionTimestamp == nil })
	return &machines.Items[max(stays, 0)], nil
}

// DeploymentOf returns the MachineDeployment that owns a machine through its MachineSet, or nil if the reader does not
// know one of them.
func DeploymentOf(ctx context.Context, reader client.Reader, machine *machinev1alpha1.Machine) (*machinev1alpha1.MachineDeployment, error) {
	set, deployment := &machinev1alpha1.MachineSet{}, &machinev1alpha1.MachineDeployment{}
	if known, err := readController(ctx, reader, machine, "MachineSet", set); !known || err != nil {
		return nil, err
	}
	if known, err := readController(ctx, reader, set, "MachineDeployment", deployment); !known || err != nil {
		return nil, err
	}
	return deployment, nil
}

// MachinesOf returns the machines of a MachineDeployment as a reader has them, by its MachineSets as another one has these, and
// whether they are being replaced or updated (P3).
func MachinesOf(ctx context.Context, setReader, machineReader client.Reader, deployment *machinev1alpha1.MachineDeployment) (machines []*machinev1alpha1.Machine, rollout bool, err error) {
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return nil, false, reconcile.TerminalError(fmt.Errorf("failed to parse the selector: %w", err))
	}
	opts := []client.ListOption{client.InNamespace(deployment.Namespace), client.MatchingLabelsSelector{Selector: selector}}

	sets := &machinev1alpha1.MachineSetList{}
	if err := setReader.List(ctx, sets, opts...); err != nil {
		return nil, false, fmt.Errorf("failed to list the MachineSets: %w", err)
	}
	list := &machinev1alpha1.MachineList{}
	if err := machineReader.List(ctx, list, opts...); err != nil {
		return nil, false, fmt.Errorf("failed to list the machines: %w", err)
	}
	machines, rollout = facts.MachinesOf(deployment, sets.Items, list.Items)
	return machines, rollout, nil
}

// ForcesVolumes says whether a machine's pool is set to risk that pods run twice. It is not where the reader does not know: a
// pod that is kept can be deleted later, a volume that was written to twice cannot be mended.
func ForcesVolumes(ctx context.Context, reader client.Reader, machine *machinev1alpha1.Machine) (bool, error) {
	deployment, err := DeploymentOf(ctx, reader, machine)
	if err != nil || deployment == nil {
		return false, err
	}
	return deployment.Annotations[v1alpha1.AnnotationForceDeletePodsWithVolumes] == "true", nil
}

// Pools knows the MachineSets of the MachineDeployments of a namespace. It lists them once, when it is asked for the first
// time: it is for a single look at many machines, and not for concurrent use.
type Pools struct {
	client.Reader

	sets    map[types.UID][]machinev1alpha1.MachineSet // by the UID of the MachineDeployment
	rolling map[types.UID]bool
}

// NewPools returns the pools that a reader knows.
func NewPools(reader client.Reader) *Pools {
	return &Pools{Reader: reader, rolling: map[types.UID]bool{}}
}

func (p *Pools) setsOf(ctx context.Context, deployment *machinev1alpha1.MachineDeployment) ([]machinev1alpha1.MachineSet, error) {
	if p.sets == nil {
		list := &machinev1alpha1.MachineSetList{}
		if err := p.List(ctx, list, client.InNamespace(deployment.Namespace)); err != nil {
			return nil, fmt.Errorf("failed to list the MachineSets: %w", err)
		}
		p.sets = map[types.UID][]machinev1alpha1.MachineSet{}
		for i := range list.Items {
			if owner := metav1.GetControllerOfNoCopy(&list.Items[i]); owner != nil {
				p.sets[owner.UID] = append(p.sets[owner.UID], list.Items[i])
			}
		}
	}
	return p.sets[deployment.UID], nil
}

// UpdateOf returns what the machine has missed, nothing if the reader does not know its MachineDeployment.
func (p *Pools) UpdateOf(ctx context.Context, machine *machinev1alpha1.Machine) (facts.Missed, error) {
	deployment, err := DeploymentOf(ctx, p, machine)
	if err != nil || deployment == nil {
		return facts.Missed{}, err
	}
	owned, err := p.setsOf(ctx, deployment)
	if err != nil {
		return facts.Missed{}, err
	}
	missed := facts.MissedBy(machine, owned)
	if facts.PoolOf(deployment).InPlace && !missed.Outdated { // an update that was taken back in place has deleted nothing
		missed.Since = time.Time{}
	}
	return missed, nil
}

// IsRolling says that a MachineDeployment replaces its machines (P3). One that updates in place keeps MachineSets of older
// revisions without replacing anything.
func (p *Pools) IsRolling(ctx context.Context, deployment *machinev1alpha1.MachineDeployment) (bool, error) {
	if facts.PoolOf(deployment).InPlace {
		return false, nil
	}
	rolling, known := p.rolling[deployment.UID]
	if !known {
		owned, err := p.setsOf(ctx, deployment)
		if err != nil {
			return false, err
		}
		if len(owned) > 1 {
			if _, rolling, err = MachinesOf(ctx, p, p, deployment); err != nil {
				return false, err
			}
		}
		p.rolling[deployment.UID] = rolling
	}
	return rolling, nil
}

// readController reads the object of a kind that controls the given one, and returns false if there is none.
func readController(ctx context.Context, reader client.Reader, controlled client.Object, kind string, controller client.Object) (bool, error) {
	ref := metav1.GetControllerOfNoCopy(controlled)
	if ref == nil || ref.Kind != kind {
		return false, nil
	}
	err := reader.Get(ctx, client.ObjectKey{Namespace: controlled.GetNamespace(), Name: ref.Name}, controller)
	if client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("failed to look up the %s of %s: %w", kind, controlled.GetName(), err)
	}
	return err == nil, nil
}

// IndexMachines adds IndexNode to a cache.
func IndexMachines(ctx context.Context, indexer client.FieldIndexer) error {
	return indexer.IndexField(ctx, &machinev1alpha1.Machine{}, IndexNode, func(obj client.Object) []string {
		if name := obj.GetLabels()[machinev1alpha1.NodeLabelKey]; name != "" {
			return []string{name}
		}
		return nil
	})
}
