// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package maintenance gives the controllers of node maintenances access to the shoot's NodeMaintenances, even before their
// resource definitions exist.
package maintenance

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	logzap "sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/panics"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// IndexNode is the index of NodeMaintenances by the name of their node.
const IndexNode = "spec.nodeName"

// ConfigKey is the name of the configuration that counts.
var ConfigKey = client.ObjectKey{Namespace: v1alpha1.ConfigNamespace, Name: v1alpha1.ConfigName}

// Client is what controllers need of Maintenances: it reads NodeMaintenances from a cache, and writes to the shoot.
type Client interface {
	client.Client
	// Known says that all NodeMaintenances have been read once.
	Known() bool
}

// All returns the NodeMaintenances, none as long as they are not known: who asks is called once they are.
func All(ctx context.Context, c Client) []*v1alpha1.NodeMaintenance {
	list := &v1alpha1.NodeMaintenanceList{}
	if !c.Known() {
		return nil
	}
	if err := c.List(ctx, list); err != nil { // of a cache that has synced
		logf.FromContext(ctx).Error(err, "Failed to list the NodeMaintenances")
	}
	all := make([]*v1alpha1.NodeMaintenance, len(list.Items))
	for i := range list.Items {
		all[i] = &list.Items[i]
	}
	return all
}

// Maintenances reads and writes the NodeMaintenances of a shoot. It keeps nobody waiting who starts while the shoot's API
// server is away (P9), or as long as it does not know them (M17): their watches are begun again and again.
type Maintenances struct {
	client.Client
	shoot.Access

	maintenances, config cache.Informer
	level                zap.AtomicLevel
	log                  logr.Logger
}

// ByObject returns how the cache of the shoot keeps what Maintenances reads. The controllers change copies only.
func ByObject() map[client.Object]cache.ByObject {
	return map[client.Object]cache.ByObject{
		&v1alpha1.NodeMaintenance{}:           {Transform: shoot.Strip(stripMaintenance), UnsafeDisableDeepCopy: new(true)},
		&v1alpha1.MaintenanceOperatorConfig{}: {Transform: shoot.Strip(stripConfig)},
	}
}

// stripMaintenance keeps of a NodeMaintenance what is read. What is written are patches between two stripped objects, which leave
// alone what was stripped. So nothing is taken from lists: a patch replaces finalizers, owners and conditions as a whole.
func stripMaintenance(nm *v1alpha1.NodeMaintenance) {
	nm.Labels = nil
	nm.Annotations = shoot.ReadAnnotations(nm.Annotations,
		v1alpha1.AnnotationReadyTime, v1alpha1.AnnotationWaitStartTime, v1alpha1.AnnotationInitiallyUnschedulable,
		v1alpha1.AnnotationIgnoreGarbageCollector, v1alpha1.AnnotationDrainStartTime, v1alpha1.AnnotationEnded,
	)
}

// stripConfig keeps of a configuration that does not count only what it takes to say so.
func stripConfig(config *v1alpha1.MaintenanceOperatorConfig) {
	if maintenance.IsConfig(config) {
		return
	}
	config.ObjectMeta = metav1.ObjectMeta{
		Namespace: config.Namespace, Name: config.Name, UID: config.UID, ResourceVersion: config.ResourceVersion, Generation: config.Generation,
		DeletionTimestamp: config.DeletionTimestamp,
	}
	config.Spec = v1alpha1.MaintenanceOperatorConfigSpec{}
}

// NewMaintenances returns the NodeMaintenances of a cluster that the caller starts.
func NewMaintenances(ctx context.Context, shoot cluster.Cluster) (*Maintenances, error) {
	m := &Maintenances{Client: shoot.GetClient(), Access: shoot, level: zap.NewAtomicLevel()}
	m.log = logzap.New(logzap.Level(m.level))
	if err := shoot.GetFieldIndexer().IndexField(ctx, &v1alpha1.NodeMaintenance{}, IndexNode, func(obj client.Object) []string {
		return []string{obj.(*v1alpha1.NodeMaintenance).Spec.NodeName}
	}); err != nil {
		return nil, fmt.Errorf("failed to index the NodeMaintenances: %w", err)
	}
	var err error
	if m.maintenances, err = shoot.GetCache().GetInformer(ctx, &v1alpha1.NodeMaintenance{}, cache.BlockUntilSynced(false)); err != nil {
		return nil, fmt.Errorf("failed to get the informer for NodeMaintenances: %w", err)
	}
	if m.config, err = shoot.GetCache().GetInformer(ctx, &v1alpha1.MaintenanceOperatorConfig{}, cache.BlockUntilSynced(false)); err != nil {
		return nil, fmt.Errorf("failed to get the informer for their configuration: %w", err)
	}
	return m, m.followLevel()
}

// Known says that all NodeMaintenances have been read once.
func (m *Maintenances) Known() bool { return m.maintenances.HasSynced() }

// WhenKnown calls a function once all NodeMaintenances have been read.
func (m *Maintenances) WhenKnown(ctx context.Context, call func()) {
	whenSynced(ctx, m.maintenances, call)
}

func whenSynced(ctx context.Context, informer cache.Informer, call func()) {
	go func() {
		if toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
			_ = panics.Catch(ctx, func() error { call(); return nil })
		}
	}()
}

// Config returns the configuration that counts, nil if there is none or nobody knows.
func (m *Maintenances) Config(ctx context.Context) (*v1alpha1.MaintenanceOperatorConfig, error) {
	config := &v1alpha1.MaintenanceOperatorConfig{}
	if !m.config.HasSynced() {
		return nil, nil
	}
	if err := m.Get(ctx, ConfigKey, config); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return config, nil
}

// Source returns a source of requests for NodeMaintenances that are added, changed or removed, and for all of them once they
// are known: a controller may drop what it is asked before. It does not wait for them. Requests that come too often are put
// off, and become one (P14).
func (m *Maintenances) Source(requestsOf func(context.Context, *v1alpha1.NodeMaintenance) []reconcile.Request) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		m.WhenKnown(ctx, func() {
			for _, nm := range All(ctx, m) {
				for _, request := range shoot.Requests(ctx, requestsOf, nm) {
					queue.Add(request)
				}
			}
		})
		return (&source.Informer{Informer: m.maintenances, Handler: shoot.EnqueuePaced(requestsOf)}).Start(ctx, queue)
	})
}

// ConfigSource returns a source of requests for changes of the spec of the configuration, and once more when all of them are known:
// Config does not return it before. What else is written on it is no reason to look again: a round of scheduling that has written
// its promises there keeps them itself, or is tried again. The generation tells less than the spec: an object that takes the place
// of another one while the watch is away has the same.
func (m *Maintenances) ConfigSource(requests func(context.Context) []reconcile.Request) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		whenSynced(ctx, m.config, func() {
			for _, request := range requests(ctx) {
				queue.Add(request)
			}
		})
		return m.ConfigsSource(func(ctx context.Context, config *v1alpha1.MaintenanceOperatorConfig) []reconcile.Request {
			if !maintenance.IsConfig(config) {
				return nil
			}
			return requests(ctx)
		}, shoot.OnUpdate(func(o, n *v1alpha1.MaintenanceOperatorConfig) bool {
			return !apiequality.Semantic.DeepEqual(o.Spec, n.Spec)
		})).Start(ctx, queue)
	})
}

// ConfigsSource returns a source of requests for all configurations, of which only one counts.
func (m *Maintenances) ConfigsSource(requestsOf func(context.Context, *v1alpha1.MaintenanceOperatorConfig) []reconcile.Request, which ...predicate.Predicate) source.Source {
	return &source.Informer{Informer: m.config, Handler: shoot.EnqueuePaced(requestsOf), Predicates: which}
}

// Log returns the logger of a controller of maintenances, whose level is that of the configuration.
func (m *Maintenances) Log(name string) func(*reconcile.Request) logr.Logger {
	log := m.log.WithName(name)
	return func(request *reconcile.Request) logr.Logger {
		if request != nil {
			return log.WithValues("namespace", request.Namespace, "name", request.Name)
		}
		return log
	}
}

// levels are those that are not the default, which is zapcore.InfoLevel.
var levels = map[v1alpha1.LogLevel]zapcore.Level{v1alpha1.LogLevelDebug: zapcore.DebugLevel, v1alpha1.LogLevelError: zapcore.ErrorLevel}

func (m *Maintenances) followLevel() error {
	follow := func(obj any) {
		if config, ok := obj.(*v1alpha1.MaintenanceOperatorConfig); ok && maintenance.IsConfig(config) {
			m.level.SetLevel(levels[config.Spec.LogLevel])
		}
	}
	_, err := m.config.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: follow, UpdateFunc: func(_, obj any) { follow(obj) }})
	return err
}
