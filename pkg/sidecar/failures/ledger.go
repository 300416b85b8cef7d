// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package failures writes the failure history of a shoot. What must still be completed is only in the open entries: after a restart,
// they are listed. No other controller waits for it, whatever the shoot answers.
package failures

import (
	"context"
	"fmt"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	failuresv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/failures/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/failure"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

const (
	// maxItems is how many failures are remembered at a time, more than machines fail at once in a shoot.
	maxItems = 2048
	// callTimeout bounds each call.
	callTimeout = 5 * time.Second
	// lookInterval is how often an open failure is looked at if nothing tells of its machine. Nobody is asked for that.
	lookInterval = time.Minute
	// upkeepDelay is after which time entries that are too many are deleted: more may come meanwhile.
	upkeepDelay = 10 * time.Second
	// maxWait is for how long what the shoot refuses to take is remembered after its machine is gone.
	maxWait = 24 * time.Hour
	// maxDeletions is how many are deleted at a time.
	maxDeletions = 100
	// pageSize is how many entries are in memory at a time, and maxPages how many pages of them are read.
	pageSize, maxPages = 100, 50
)

// Ledger begins and completes entries, one machine at a time.
type Ledger struct {
	// Namespace is that of the Machines.
	Namespace string
	// Source reads them from a cache, SourceReader from the API server.
	Source       client.Client
	SourceReader client.Reader
	// Nodes reads nodes from a cache.
	Nodes Nodes
	// Shoot has the entries. It asks the API server.
	Shoot client.Client
	// Timeouts and NodeConditions are machine-controller-manager's defaults.
	Timeouts       facts.Timeouts
	NodeConditions []string
	// HostOf returns the name of the host of a machine, empty if it names none. Nil: there are no hosts.
	HostOf func(context.Context, *machinev1alpha1.Machine) string
	// EvidenceOf returns the name of the stored evidence of a failure, empty for none. Nil: none is stored.
	EvidenceOf func(ctx context.Context, machine string, since time.Time) string
	Clock      clock.PassiveClock

	mutex sync.Mutex
	// items are the failures that are not over, by the name of their machine.
	items map[string]*item
	// loaded says that the open entries were read. Before that, it is not known which have been begun.
	loaded bool
	// trouble is how the shoot refused what was asked for last: until then, it is not asked again.
	trouble pace.Failure
	// pools are those whose series are there, hosts those that have failed lately.
	pools sets.Set[string]
	hosts hosts
	// enqueue adds a request. Nil: nobody is there yet.
	enqueue func(reconcile.Request, time.Duration)
}

// Nodes reads the shoot's nodes.
type Nodes interface {
	client.Reader
	// Known says that the nodes have been read once.
	Known() bool
}

// item is a failure that is not over.
type item struct {
	*failure.Entry
	place failure.Place
	// seen is the machine with its node as they were when it was seen to have failed, until the entry is there: they may be gone by then.
	seen facts.Member
	// begun says that the entry is there.
	begun bool
	// gone is since when the machine is not there any more; zero while it is.
	gone time.Time
}

// Observe takes note of what was decided on the machines of a MachineDeployment. It waits for nothing.
func (l *Ledger) Observe(deployment *machinev1alpha1.MachineDeployment, decisions []preservation.Decision, now time.Time) {
	labels := deployment.Spec.Template.Spec.NodeTemplateSpec.Labels
	place := failure.Place{Pool: labels[facts.LabelPool], Zone: labels[corev1.LabelTopologyZone]}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if !l.pools.Has(place.Pool) {
		if l.pools == nil {
			l.pools = sets.New[string]()
		}
		l.pools.Insert(place.Pool)
		announce(place.Pool)
	}
	for i := range decisions {
		d := &decisions[i]
		seen := failure.Of(d, l.Timeouts, now)
		if seen == nil {
			continue
		}
		name := d.Machine.Name
		known := l.items[name]
		switch {
		case known == nil && len(l.items) >= maxItems:
			dropped.Inc()
			continue
		case known == nil:
			known = &item{Entry: seen, place: place, seen: d.Member}
			l.add(name, known)
		case known.IsOf(d.Machine):
			known.Learn(seen)
		}
		if d.IsReleased() {
			known.Release(d.Why)
		}
	}
}

// Forget drops the series of a pool that is gone.
func (l *Ledger) Forget(_, pool string) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.pools.Has(pool) {
		l.pools.Delete(pool)
		failures.DeletePartialMatch(prometheus.Labels{"pool": pool})
	}
}

// add remembers a failure, and has it looked at. The mutex is locked.
func (l *Ledger) add(machine string, i *item) {
	if l.items == nil {
		l.items = map[string]*item{}
	}
	l.items[machine] = i
	if l.enqueue != nil {
		l.enqueue(l.request(machine), 0)
	}
}

// request returns the request for a machine, that for what is there of all for the empty name.
func (l *Ledger) request(machine string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: l.Namespace, Name: machine}}
}

// Reconcile begins or completes the entry of a machine, or looks after all entries if the request has no name. What the shoot refuses
// is no error: it is tried again, and holds nothing up.
func (l *Ledger) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	l.mutex.Lock()
	known, loaded, until := l.items[req.Name], l.loaded, l.trouble.Until
	l.mutex.Unlock()
	if now := l.Clock.Now(); now.Before(until) {
		return reconcile.Result{RequeueAfter: until.Sub(now)}, nil
	}
	var (
		again time.Duration
		err   error
	)
	if !loaded {
		err = l.load(ctx)
	}
	switch {
	case err != nil:
	case req.Name == "":
		again, err = l.lookAfter(ctx)
	case known != nil:
		again, err = l.look(ctx, req.Name)
	}

	if pace.OnlyConflicts(err) { // somebody has written the entry meanwhile, which is no trouble of the shoot's
		return reconcile.Result{RequeueAfter: pace.MinRetry}, nil
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if err == nil {
		l.trouble = pace.Failure{}
		return reconcile.Result{RequeueAfter: again}, nil
	}
	wait, news := l.trouble.Again(err, l.Clock.Now())
	if news {
		logf.FromContext(ctx).Info("The failure history waits for the shoot", "reason", err.Error(), "retryAfter", wait.String())
	}
	return reconcile.Result{RequeueAfter: wait}, nil
}

// load reads which entries are open.
func (l *Ledger) load(ctx context.Context) error {
	for page, next := 0, ""; page < maxPages; page++ {
		list := &failuresv1alpha1.MachineFailureList{}
		if err := l.call(ctx, func(ctx context.Context) error {
			return l.Shoot.List(ctx, list, client.HasLabels{failuresv1alpha1.LabelOpen}, client.Limit(pageSize), client.Continue(next))
		}); err != nil {
			return fmt.Errorf("failed to list the open entries: %w", err)
		}
		l.mutex.Lock()
		for i := range list.Items {
			l.open(&list.Items[i])
		}
		l.mutex.Unlock()
		if next = list.Continue; next == "" {
			break
		}
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.loaded = true
	return nil
}

// open remembers an entry that is open. The mutex is locked.
func (l *Ledger) open(f *failuresv1alpha1.MachineFailure) {
	entry, known := failure.Opened(f), l.items[f.Spec.Machine]
	switch {
	case f.Status != nil || len(f.Spec.Machine) == 0: // not one of ours
	case known != nil && !known.begun && (known.UID == entry.UID || known.Name == entry.Name): // what is known by now was decided later
		entry.Learn(known.Entry)
		known.Entry, known.seen, known.begun = entry, facts.Member{}, true
	case known == nil && len(l.items) < maxItems:
		l.add(f.Spec.Machine, &item{Entry: entry, begun: true})
	}
}

// look looks at the failure of a machine, and returns when to look again, 0 for never.
func (l *Ledger) look(ctx context.Context, name string) (time.Duration, error) {
	member, err := l.member(ctx, name)
	if err != nil {
		return 0, err
	}
	l.mutex.Lock()
	known := l.items[name]
	if known == nil {
		l.mutex.Unlock()
		return 0, nil
	}
	if member != nil && !known.IsOf(member.Machine) {
		member = nil
	}
	now := l.Clock.Now()
	status := known.Look(member, l.NodeConditions, now)
	switch {
	case member != nil:
		known.gone = time.Time{}
	case known.gone.IsZero():
		known.gone = now
	case now.Sub(known.gone) > maxWait:
		delete(l.items, name)
		l.mutex.Unlock()
		dropped.Inc()
		return 0, nil
	}
	entry, place, seen, begun := *known.Entry, known.place, known.seen, known.begun
	if member != nil {
		seen = *member
	}
	l.mutex.Unlock()

	if !begun {
		if err := l.begin(ctx, &entry, place, seen); err != nil {
			return 0, err
		}
		l.mutex.Lock()
		known.seen, known.begun = facts.Member{}, true
		l.mutex.Unlock()
	}
	if status == nil {
		return lookInterval, nil
	}
	if err := l.complete(ctx, &entry, status, name); err != nil {
		return 0, err
	}
	l.mutex.Lock()
	defer l.mutex.Unlock()
	delete(l.items, name)
	return 0, nil
}

// member returns a machine with its node as the caches have them, and nil if it is gone.
func (l *Ledger) member(ctx context.Context, name string) (*facts.Member, error) {
	m := &facts.Member{Machine: &machinev1alpha1.Machine{}}
	if err := l.Source.Get(ctx, client.ObjectKey{Namespace: l.Namespace, Name: name}, m.Machine); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("failed to read the machine: %w", err)
	}
	if node := m.Machine.Labels[machinev1alpha1.NodeLabelKey]; node != "" {
		if m.NodeUnknown = !l.Nodes.Known(); !m.NodeUnknown {
			var err error
			if m.Node, err = shoot.ReadNode(ctx, l.Nodes, node); err != nil {
				return nil, err
			}
		}
	}
	return m, nil
}

// begin writes an entry if there is none. What cannot be had of the machine is not in it: the next look may find less.
func (l *Ledger) begin(ctx context.Context, entry *failure.Entry, place failure.Place, m facts.Member) error {
	found := failure.Found{Place: place, Machine: m.Machine, Node: m.Node, Unhealthy: l.NodeConditions}
	l.find(ctx, &found)
	f := entry.New(m.Machine.Name, found)
	err := l.call(ctx, func(ctx context.Context) error { return l.Shoot.Create(ctx, f) })
	switch {
	case apierrors.IsAlreadyExists(err): // before a crash, or without an answer
		return nil
	case apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err): // nor would it be later
		dropped.Inc()
		logf.FromContext(ctx).Info("The shoot refuses an entry of the failure history", "entry", f.Name, "reason", err.Error())
		return nil
	case err != nil:
		return fmt.Errorf("failed to create an entry: %w", err)
	}
	outcome := outcomeReplaced
	if entry.Decision.Kept {
		outcome = outcomeKept
	}
	failures.WithLabelValues(place.Pool, failure.MetricReason(f.Spec.Reason), outcome).Inc()
	if f.Spec.Host != "" {
		l.mutex.Lock()
		if l.hosts == nil {
			l.hosts = hosts{}
		}
		l.hosts.fail(f.Spec.Host, f.Spec.FailedAt.Time, l.Clock.Now())
		l.mutex.Unlock()
	}
	if l.enqueue != nil {
		l.enqueue(l.request(""), upkeepDelay)
	}
	return nil
}

// find asks the API servers for what the caches do not keep.
func (l *Ledger) find(ctx context.Context, found *failure.Found) {
	if l.HostOf != nil {
		found.Host = l.HostOf(ctx, found.Machine)
	}
	live := &machinev1alpha1.Machine{}
	if err := l.call(ctx, func(ctx context.Context) error {
		return l.SourceReader.Get(ctx, client.ObjectKeyFromObject(found.Machine), live)
	}); err == nil && live.UID == found.Machine.UID {
		found.Machine = live
	}
	node := found.Machine.Labels[machinev1alpha1.NodeLabelKey]
	if node == "" {
		return
	}
	_ = l.call(ctx, func(ctx context.Context) error {
		live, err := shoot.ReadNode(ctx, l.Shoot, node)
		if live != nil {
			found.Node = live
		}
		return err
	})
	if found.Node == nil {
		return
	}
	pods := &metav1.PartialObjectMetadataList{}
	pods.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("PodList"))
	if err := l.call(ctx, func(ctx context.Context) error {
		return l.Shoot.List(ctx, pods, client.MatchingFields{"spec.nodeName": node}, client.Limit(failuresv1alpha1.MaxPods))
	}); err == nil {
		found.Pods, found.MorePods = pods.Items, pods.Continue != ""
	}
}

// complete writes how a failure has ended. An entry that is gone, or that somebody has completed, stays that.
func (l *Ledger) complete(ctx context.Context, entry *failure.Entry, status *failuresv1alpha1.MachineFailureStatus, machine string) error {
	f := &failuresv1alpha1.MachineFailure{}
	if err := l.call(ctx, func(ctx context.Context) error { return l.Shoot.Get(ctx, client.ObjectKey{Name: entry.Name}, f) }); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("failed to read an entry: %w", err)
	}
	if f.Status != nil {
		return nil
	}
	if l.EvidenceOf != nil {
		status.Evidence = l.EvidenceOf(ctx, machine, entry.Since)
	}
	run := executor.Run{Shoot: l.Shoot, Timeout: callTimeout}
	run.Do(ctx, intent.Write{Before: f, After: entry.Complete(f, status), Lock: true})
	if err := run.Err(); err != nil && !apierrors.IsInvalid(err) { // somebody has made it what it must not be
		return fmt.Errorf("failed to complete an entry: %w", err)
	}
	return nil
}

// lookAfter deletes the entries that are too many.
func (l *Ledger) lookAfter(ctx context.Context) (time.Duration, error) {
	var all []metav1.PartialObjectMetadata
	for page, next := 0, ""; page < maxPages; page++ {
		list := &metav1.PartialObjectMetadataList{}
		list.SetGroupVersionKind(failuresv1alpha1.SchemeGroupVersion.WithKind("MachineFailureList"))
		if err := l.call(ctx, func(ctx context.Context) error {
			return l.Shoot.List(ctx, list, client.Limit(pageSize), client.Continue(next))
		}); err != nil {
			return 0, fmt.Errorf("failed to list the entries: %w", err)
		}
		for i := range list.Items { // the rest of it may be large
			m := &list.Items[i]
			all = append(all, metav1.PartialObjectMetadata{TypeMeta: m.TypeMeta, ObjectMeta: metav1.ObjectMeta{
				Name: m.Name, UID: m.UID, CreationTimestamp: m.CreationTimestamp, Labels: m.Labels,
			}})
		}
		if next = list.Continue; next == "" {
			break
		}
	}
	superfluous := failure.Superfluous(all)
	run := executor.Run{Shoot: l.Shoot, Timeout: callTimeout}
	for i := range superfluous[:min(len(superfluous), maxDeletions)] {
		m := &superfluous[i]
		run.Do(ctx, intent.Write{Before: &failuresv1alpha1.MachineFailure{ObjectMeta: m.ObjectMeta}, Delete: true})
	}
	if err := run.Err(); err != nil {
		return 0, err
	}
	if len(superfluous) > maxDeletions {
		return upkeepDelay, nil
	}
	return 0, nil
}

// call makes a call. What the shoot says of it is cut (P14).
func (l *Ledger) call(ctx context.Context, do func(context.Context) error) error {
	return brief.CutError(executor.Call(ctx, callTimeout, do))
}
