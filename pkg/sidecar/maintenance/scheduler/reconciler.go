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
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/tools/pager"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	preservationv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/change"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
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
	pageSize = 100
	// readTimeout is how long an answer to a page may take.
	readTimeout = 10 * time.Second
)

// Reconciler schedules what may be scheduled.
type Reconciler struct {
	// Source reads the control-plane namespace from a cache with shoot.IndexNode.
	Source client.Reader
	Shoot  maintenance.Client
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
	cached, err := r.newRound(ctx, reading{r.Shoot, r.Nodes, 0}, config)
	if err != nil {
		return reconcile.Result{}, err
	}
	cached.tell()
	logf.FromContext(ctx).V(1).Info("Looked at the caches", "used", cached.slots.Used, "free", cached.slots.Free, "pending", cached.phases[v1alpha1.PhasePending],
		"chosen", len(cached.chosen), "promised", len(cached.promised), "withdrawn", len(cached.withdrawn))
	if len(cached.chosen)+len(cached.promised)+len(cached.withdrawn) == 0 {
		return reconcile.Result{}, nil
	}

	live, err := r.newRound(ctx, reading{r.Live, r.Live, pageSize}, config)
	if err != nil {
		return reconcile.Result{}, err
	}
	if err := r.withdraw(ctx, live); err != nil {
		return reconcile.Result{}, err
	}
	if err := r.promise(ctx, config, live); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{}, r.schedule(ctx, live)
}

// round is what is known, and what is chosen of it.
type round struct {
	phases map[string]int
	slots  domain.Slots
	// promised were chosen before, and can still be scheduled. Those that cannot are withdrawn.
	promised, withdrawn []domain.Request
	chosen              []domain.Request
}

// reading is where a round reads from, and how many objects at a time, 0 for all at once.
type reading struct {
	maintenances, nodes client.Reader
	pageSize            int64
}

// newRound reads everything and chooses.
func (r *Reconciler) newRound(ctx context.Context, from reading, config *v1alpha1.MaintenanceOperatorConfig) (*round, error) {
	var (
		current            = &round{phases: map[string]int{}}
		promises           = sets.New(strings.Split(config.Annotations[AnnotationRound], ",")...)
		promised, requests []domain.Request
		targets            = sets.New[string]()
	)
	if err := r.each(ctx, from.maintenances, from.pageSize, &v1alpha1.NodeMaintenanceList{}, func(obj runtime.Object) {
		nm := obj.(*v1alpha1.NodeMaintenance)
		request := domain.NewRequest(nm, r.Namespaces)
		current.phases[domain.PhaseOf(nm)]++
		if request.Pending {
			targets.Insert(request.Node)
		}
		if request.Pending && promises.Has(promiseOf(request)) {
			promised = append(promised, request)
		} else {
			requests = append(requests, request)
		}
	}); err != nil {
		return nil, fmt.Errorf("failed to list the NodeMaintenances: %w", err)
	}

	var (
		nodes   []domain.ScheduledNode
		updated = sets.New[string]() // in place
	)
	if err := r.each(ctx, from.nodes, from.pageSize, &corev1.NodeList{}, func(obj runtime.Object) {
		node := obj.(*corev1.Node)
		nodes = append(nodes, domain.ScheduledNode{
			Name: node.Name, UID: node.UID, Unavailable: domain.IsUnavailable(node), CordonedFor: domain.CordonedFor(node),
		})
		if domain.IsUpdatedInPlace(node) {
			updated.Insert(node.Name)
		}
	}); err != nil {
		return nil, fmt.Errorf("failed to list the nodes: %w", err)
	}
	limits, err := domain.LimitsOf(&config.Spec, len(nodes))
	if err != nil {
		return nil, reconcile.TerminalError(fmt.Errorf("nothing is scheduled with this configuration: %w", err))
	}

	// Where there is no room for any, their machines do not matter.
	current.chosen, current.slots = domain.Schedule(nodes, append(requests, counted(promised)...), limits)
	if len(current.chosen)+len(promised) == 0 {
		return current, nil
	}
	pools := shoot.NewPools(r.Source)
	for i := range nodes {
		if node := &nodes[i]; targets.Has(node.Name) {
			machine, err := maintenance.MachineOf(ctx, pools, node.Name, updated.Has(node.Name))
			if err != nil {
				return nil, err
			}
			node.Excluded = machine.Excludes()
		}
	}
	if len(promised) > 0 {
		current.keep(nodes, requests, promised, limits)
	}
	current.chosen, current.slots = domain.Schedule(nodes, append(requests, counted(promised)...), limits)
	current.chosen = current.chosen[:min(len(current.chosen), max(maxChosen-len(current.promised), 0))]
	return current, nil
}

// keep tells the promises apart that still hold: the node may have become one that nothing is scheduled on (M15), and the
// limits may be lower.
func (r *round) keep(nodes []domain.ScheduledNode, requests, promised []domain.Request, limits domain.Limits) {
	requests = slices.Clone(requests)
	for i := range requests {
		requests[i].Pending = false
	}
	r.promised, _ = domain.Schedule(nodes, append(requests, promised...), limits)
	kept := sets.New[types.UID]()
	for _, request := range r.promised {
		kept.Insert(request.UID)
	}
	r.withdrawn = slices.DeleteFunc(slices.Clone(promised), func(request domain.Request) bool { return kept.Has(request.UID) })
}

// counted returns promised requests as what is in progress: another replica may be about to schedule them.
func counted(promised []domain.Request) []domain.Request {
	promised = slices.Clone(promised)
	for i := range promised {
		promised[i].Pending, promised[i].InProgress = false, true
	}
	return promised
}

// each lists objects, as many at a time as a page has, and uses each. It must not be kept.
func (r *Reconciler) each(ctx context.Context, reader client.Reader, pageSize int64, empty client.ObjectList, use func(runtime.Object)) error {
	pages := pager.New(func(ctx context.Context, opts metav1.ListOptions) (runtime.Object, error) {
		list := empty.DeepCopyObject().(client.ObjectList)
		err := r.read(ctx, func(ctx context.Context) error {
			return reader.List(ctx, list, client.Limit(opts.Limit), client.Continue(opts.Continue))
		})
		if pageSize == 0 { // a cache sets a token that it does not take
			list.SetContinue("")
		}
		return list, err
	})
	pages.PageSize, pages.PageBufferSize = pageSize, 0
	if err := pages.EachListItem(ctx, metav1.ListOptions{}, func(obj runtime.Object) error { use(obj); return nil }); err != nil {
		return text.CutError(err)
	}
	return nil
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
	if _, err := shoot.Apply(ctx, r.Shoot, change.Write{Before: config, After: after}); err != nil {
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
	written, err := r.setPhase(ctx, request, v1alpha1.PhaseScheduled, "A slot is taken.")
	if err != nil || written == nil {
		return err
	}
	logf.FromContext(ctx).Info("Scheduled", "nodeMaintenance", request.NamespacedName, "node", request.Node)
	maintenance.Tell(r.Recorder, domain.Event{Maintenance: written, Reason: domain.EventConditionChanged, Note: v1alpha1.PhaseScheduled})
	return nil
}

// withdraw makes promises void that are not kept. They count until they have changed: another replica may be about to keep
// them, and only the lock on the object itself stops it.
func (r *Reconciler) withdraw(ctx context.Context, live *round) error {
	var errs []error
	// With the time it changes in any case.
	message := fmt.Sprintf("The slot was taken back at %s.", r.Clock.Now().UTC().Format(time.RFC3339Nano))
	for _, request := range live.withdrawn {
		_, err := r.setPhase(ctx, request, v1alpha1.PhasePending, message)
		if client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("failed to withdraw the promise to %s: %w", request.NamespacedName, text.CutError(err)))
		}
	}
	return errors.Join(errs...)
}

// setPhase writes a phase on what was requested, and returns it as it is then, nil if it has changed since.
func (r *Reconciler) setPhase(ctx context.Context, request domain.Request, phase, message string) (*v1alpha1.NodeMaintenance, error) {
	nm := &v1alpha1.NodeMaintenance{}
	if err := r.read(ctx, func(ctx context.Context) error { return r.Live.Get(ctx, request.NamespacedName, nm) }); err != nil {
		return nil, err
	}
	if nm.UID != request.UID || nm.ResourceVersion != request.ResourceVersion {
		return nil, nil
	}
	after := nm.DeepCopy()
	domain.SetPhase(&after.Status, phase, message, nm.Generation, r.Clock.Now())
	written, err := shoot.Apply(ctx, r.Shoot, change.Write{Before: nm, After: after, Status: true})
	if err != nil {
		return nil, err
	}
	return written.(*v1alpha1.NodeMaintenance), nil
}
