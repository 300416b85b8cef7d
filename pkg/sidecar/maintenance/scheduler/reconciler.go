// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package scheduler gives slots to the NodeMaintenances of a shoot.
package scheduler

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	preservationv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/text"
)

const (
	// AnnotationRound on the configuration has what the last round has chosen: the UID and the resource version of each, with
	// a colon in between and commas between them. It is written before they are scheduled, and counts for those that are not
	// yet: the sum of what is in progress is bound by a lock on this one object (M10).
	AnnotationRound = preservationv1alpha1.GroupName + "/scheduling-round"

	// maxChosen is how many one round chooses. The next one follows at once.
	maxChosen = 100
	// pageSize is how many objects are in memory at a time.
	pageSize = 250
	// readTimeout is how long an answer to a page may take.
	readTimeout = 10 * time.Second
)

// Maintenances reads NodeMaintenances from a cache, and writes them.
type Maintenances interface {
	client.Client
	// Known says that all have been read once.
	Known() bool
}

// Reconciler schedules what may be scheduled.
type Reconciler struct {
	// Source reads the control-plane namespace from a cache with shoot.IndexNode.
	Source client.Reader
	Shoot  Maintenances
	// Nodes reads nodes from a cache, and Live everything of the shoot from the API server.
	Nodes, Live client.Reader
	// Namespaces are those from which objects are taken.
	Namespaces domain.Namespaces
	Clock      clock.PassiveClock
	Recorder   events.EventRecorder
}

// Reconcile looks at what is in the caches, and where that leaves something to be scheduled, takes a round on live reads. The
// caches may lag: what changes them brings the next look.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	if !r.Shoot.Known() {
		return reconcile.Result{}, nil // it is called when they are
	}
	config := &v1alpha1.MaintenanceOperatorConfig{}
	if err := r.read(ctx, func(ctx context.Context) error { return r.Live.Get(ctx, maintenance.ConfigKey, config) }); err != nil {
		if apierrors.IsNotFound(err) {
			logf.FromContext(ctx).Info("Nothing is scheduled without the configuration", "key", maintenance.ConfigKey)
			return reconcile.Result{}, nil // it is called when there is one
		}
		return reconcile.Result{}, fmt.Errorf("failed to read the configuration: %w", text.CutError(err))
	}
	cached, err := r.newRound(ctx, r.Shoot, r.Nodes, config)
	if err != nil {
		return reconcile.Result{}, err
	}
	cached.tell()
	if len(cached.chosen)+len(cached.promised) == 0 {
		return reconcile.Result{}, nil
	}

	live, err := r.newRound(ctx, r.Live, r.Live, config)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.promise(ctx, config, live); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.schedule(ctx, live)
}

// round is what is known, and what is chosen of it.
type round struct {
	phases   map[string]int
	slots    domain.Slots
	promised []domain.Request
	chosen   []domain.Request
}

// newRound reads everything and chooses.
func (r *Reconciler) newRound(ctx context.Context, maintenances, nodes client.Reader, config *v1alpha1.MaintenanceOperatorConfig) (*round, error) {
	var (
		current  = &round{phases: map[string]int{}}
		promises = sets.New(strings.Split(config.Annotations[AnnotationRound], ",")...)
		targets  = sets.New[string]()
		requests []domain.Request
	)
	if err := r.eachPage(ctx, maintenances, &v1alpha1.NodeMaintenanceList{}, func(list client.ObjectList) {
		items := list.(*v1alpha1.NodeMaintenanceList).Items
		for i := range items {
			request := domain.NewRequest(&items[i], r.Namespaces)
			current.phases[domain.PhaseOf(&items[i])]++
			if request.Pending && promises.Has(promiseOf(request)) {
				current.promised = append(current.promised, request)
				request.Pending, request.InProgress = false, true
			}
			if request.Pending {
				targets.Insert(request.Node)
			}
			requests = append(requests, request)
		}
	}); err != nil {
		return nil, fmt.Errorf("failed to list the NodeMaintenances: %w", err)
	}

	var (
		seen []domain.ScheduledNode
		errs []error
	)
	if err := r.eachPage(ctx, nodes, &corev1.NodeList{}, func(list client.ObjectList) {
		items := list.(*corev1.NodeList).Items
		for i := range items {
			node := domain.ScheduledNode{
				Name: items[i].Name, UID: items[i].UID, Unavailable: domain.IsUnavailable(&items[i]), CordonedFor: domain.CordonedFor(&items[i]),
			}
			if targets.Has(node.Name) {
				machine, err := maintenance.MachineOf(ctx, r.Source, &items[i])
				errs = append(errs, err)
				node.Excluded = machine.Excludes()
			}
			seen = append(seen, node)
		}
	}); err != nil {
		return nil, fmt.Errorf("failed to list the nodes: %w", err)
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}

	limits, err := domain.LimitsOf(&config.Spec, len(seen))
	if err != nil {
		return nil, reconcile.TerminalError(fmt.Errorf("nothing is scheduled with this configuration: %w", err))
	}
	current.chosen, current.slots = domain.Schedule(seen, requests, limits)
	current.chosen = current.chosen[:min(len(current.chosen), max(maxChosen-len(current.promised), 0))]
	return current, nil
}

// eachPage lists from the API server, some at a time, or from a cache, all at once.
func (r *Reconciler) eachPage(ctx context.Context, reader client.Reader, empty client.ObjectList, use func(client.ObjectList)) error {
	var opts []client.ListOption
	if reader == r.Live {
		opts = append(opts, client.Limit(pageSize))
	}
	for {
		list := empty.DeepCopyObject().(client.ObjectList)
		if err := r.read(ctx, func(ctx context.Context) error { return reader.List(ctx, list, opts...) }); err != nil {
			return text.CutError(err)
		}
		use(list)
		if reader != r.Live || list.GetContinue() == "" {
			return nil
		}
		opts = []client.ListOption{client.Limit(pageSize), client.Continue(list.GetContinue())}
	}
}

func (r *Reconciler) read(ctx context.Context, read func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	return read(ctx)
}

// promiseOf identifies a request as it was read: once it has changed, nobody can schedule it because of a promise.
func promiseOf(request domain.Request) string {
	return string(request.UID) + ":" + request.ResourceVersion
}

// promise writes what is chosen on the configuration as it was read before everything else: whoever takes a round from then
// on counts it, and whoever has begun one before fails here.
func (r *Reconciler) promise(ctx context.Context, config *v1alpha1.MaintenanceOperatorConfig, live *round) error {
	if len(live.chosen) == 0 {
		return nil
	}
	var promises []string
	for _, request := range slices.Concat(live.promised, live.chosen) {
		promises = append(promises, promiseOf(request))
	}
	after := config.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, AnnotationRound, strings.Join(promises, ","))
	if _, err := maintenance.Apply(ctx, r.Shoot, domain.Write{Before: config, After: after}); err != nil {
		return fmt.Errorf("failed to write what is chosen: %w", text.CutError(err))
	}
	return nil
}

// schedule writes the phase of all that is promised. One of which this fails has changed: it is looked at anew.
func (r *Reconciler) schedule(ctx context.Context, live *round) error {
	var errs []error
	for _, request := range slices.Concat(live.promised, live.chosen) {
		err := r.scheduleOne(ctx, request)
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("failed to schedule %s: %w", request.NamespacedName, text.CutError(err)))
		}
	}
	return errors.Join(errs...)
}

func (r *Reconciler) scheduleOne(ctx context.Context, request domain.Request) error {
	nm := &v1alpha1.NodeMaintenance{}
	if err := r.read(ctx, func(ctx context.Context) error { return r.Live.Get(ctx, request.NamespacedName, nm) }); err != nil {
		return err
	}
	if nm.UID != request.UID || nm.ResourceVersion != request.ResourceVersion {
		return nil
	}
	after := nm.DeepCopy()
	domain.SetPhase(&after.Status, v1alpha1.PhaseScheduled, "A slot is taken.", nm.Generation, r.Clock.Now())
	written, err := maintenance.Apply(ctx, r.Shoot, domain.Write{Before: nm, After: after, Status: true})
	if err != nil {
		return err
	}
	logf.FromContext(ctx).Info("Scheduled", "nodeMaintenance", request.NamespacedName, "node", request.Node)
	maintenance.Tell(r.Recorder, domain.Event{
		Maintenance: written.(*v1alpha1.NodeMaintenance), Reason: domain.EventConditionChanged, Note: v1alpha1.PhaseScheduled,
	})
	return nil
}
