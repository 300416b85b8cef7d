// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package quarantine notes on hosts when machines fail on them, and puts hosts into quarantine on which that happens again and
// again.
package quarantine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/failure"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/metrics"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/quarantine"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

// ControllerName is the name of the controller.
const ControllerName = "quarantine"

// Reasons of the Events on Machines.
const (
	// EventQuarantined says that no further machine gets the host, because too many machines have failed on it.
	EventQuarantined = "HostQuarantined"
	// EventNotQuarantined says why the host is not put into quarantine although enough machines have failed on it.
	EventNotQuarantined = "HostNotQuarantined"

	eventAction = "QuarantineHost"
)

const (
	// maxItems is how many failures are remembered at a time, and maxWait for how long one waits for its host.
	maxItems = 2048
	maxWait  = time.Hour
	// driverInterval is how often it is looked whether the hosts are known.
	driverInterval = 5 * time.Second
)

const outcomeQuarantined, outcomeRefused = "quarantined", "refused"

var quarantines = metrics.Counter("host_quarantines_total", "Hosts that were put into quarantine because of repeated failures, and failures after which a host was not, although it had enough of them.", "outcome")

// Reconciler notes one failure at a time.
type Reconciler struct {
	Settings quarantine.Settings
	// Seed and Namespace are on whose behalf hosts are put into quarantine.
	Seed, Namespace string
	// Kind is that of the hosts, and Driver reaches them. It returns nil as long as they are not known.
	Kind   host.Quarantining
	Driver func() *host.Driver
	// Timeouts are machine-controller-manager's defaults.
	Timeouts facts.Timeouts
	Clock    clock.PassiveClock
	Recorder events.EventRecorder

	mutex sync.Mutex
	// failures are those that go on, by the name of their machine.
	failures map[string]item
	// running is how many machines run, by the name of their MachineDeployment.
	running map[string]int
	// enqueue adds a request. Nil: nobody is there yet.
	enqueue func(reconcile.Request)
}

// item is a failure of a machine of a MachineDeployment.
type item struct {
	deployment string
	machine    *machinev1alpha1.Machine
	failure    quarantine.Seen
	seen       time.Time
	// done says that nothing more is to be written because of it.
	done bool
}

// AddToManager adds the Reconciler to a manager of a control-plane namespace.
func (r *Reconciler) AddToManager(mgr manager.Manager) error {
	r.Clock = clock.RealClock{}
	r.Recorder = mgr.GetEventRecorder(ControllerName)
	for _, outcome := range []string{outcomeQuarantined, outcomeRefused} { // an increase can be seen only of what was there before
		quarantines.WithLabelValues(outcome)
	}
	return builder.ControllerManagedBy(mgr).
		Named(ControllerName).
		WatchesRawSource(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			r.mutex.Lock()
			defer r.mutex.Unlock()
			r.enqueue = queue.Add
			for name := range r.failures {
				r.enqueue(r.request(name))
			}
			return nil
		})).
		WithOptions(pace.Options(1, pace.MinRetry, pace.MaxRetry)).
		Complete(pace.RetryConflicts(r))
}

func (r *Reconciler) request(machine string) reconcile.Request {
	return reconcile.Request{NamespacedName: client.ObjectKey{Namespace: r.Namespace, Name: machine}}
}

// Observe takes note of what was decided on the machines of a MachineDeployment. It waits for nothing. What the shoot says of machines
// that are being deleted already counts for nothing, but a failure that was seen before stays one: the host is theirs for a while. Power
// cycles are no failures: they come after these, or because people ask for them.
func (r *Reconciler) Observe(deployment *machinev1alpha1.MachineDeployment, decisions []preservation.Decision, now time.Time) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.failures == nil {
		r.failures, r.running = map[string]item{}, map[string]int{}
	}
	r.running[deployment.Name] = 0
	for i := range decisions {
		machine := decisions[i].Machine
		if machine.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning && machine.DeletionTimestamp == nil {
			r.running[deployment.Name]++
		}
		seen := failure.Of(&decisions[i], r.Timeouts, now)
		known, ok := r.failures[machine.Name]
		isKnown := ok && known.machine.UID == machine.UID
		switch {
		case isKnown && machine.DeletionTimestamp != nil:
			continue
		case seen == nil, seen.Going, seen.OnlyPowerCycled:
			delete(r.failures, machine.Name)
			continue
		case isKnown, len(r.failures) >= maxItems:
			continue
		}
		r.failures[machine.Name] = item{
			deployment: deployment.Name, machine: machine, seen: now,
			failure: quarantine.Seen{Machine: machine.UID, Since: seen.Since, Expected: seen.Expected},
		}
		if r.enqueue != nil {
			r.enqueue(r.request(machine.Name))
		}
	}
	maps.DeleteFunc(r.failures, func(name string, i item) bool { // its machine is gone
		return i.deployment == deployment.Name && !slices.ContainsFunc(decisions, func(d preservation.Decision) bool { return d.Machine.Name == name })
	})
}

// Forget drops the failures of a MachineDeployment that is gone.
func (r *Reconciler) Forget(deployment, _ string) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	maps.DeleteFunc(r.failures, func(_ string, i item) bool { return i.deployment == deployment })
	delete(r.running, deployment)
}

// Reconcile notes the failure of a machine on its host.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	r.mutex.Lock()
	known, ok := r.failures[req.Name]
	// Where no machine of the shoot runs, the reason may be its control plane, or the way to that.
	known.failure.Expected = known.failure.Expected || !slices.ContainsFunc(slices.Collect(maps.Values(r.running)), func(n int) bool { return n > 0 })
	r.mutex.Unlock()
	now := r.Clock.Now()
	if !ok || known.done {
		return reconcile.Result{}, nil
	}
	driver := r.Driver()
	var (
		wait time.Duration
		err  error
	)
	switch {
	case driver != nil:
		wait, err = r.note(ctx, driver, known, now)
	case now.Sub(known.seen) < maxWait:
		return reconcile.Result{RequeueAfter: driverInterval}, nil
	}
	switch {
	case errors.Is(err, host.ErrNoHost):
		logf.FromContext(ctx).Info("There is no host to decide on because of a failure", "machine", req.Name, "reason", err.Error())
	case err != nil && now.Sub(known.seen) < maxWait:
		return reconcile.Result{}, err
	case wait > 0:
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if again, ok := r.failures[req.Name]; ok && again.machine.UID == known.machine.UID {
		again.done = true
		r.failures[req.Name] = again
	}
	return reconcile.Result{}, nil
}

// note decides on a host, writes that in one write, and returns after which time to do so again, zero for never. The cache may not know
// yet what was written last, so no host is put into quarantine because of what it says.
func (r *Reconciler) note(ctx context.Context, driver *host.Driver, known item, now time.Time) (time.Duration, error) {
	fleet, err := driver.Fleet(ctx, r.Kind)
	if err != nil {
		return 0, err
	}
	lasting, err := driver.Lasting(ctx, r.Kind, known.machine)
	if err != nil {
		return 0, err
	}
	before := host.HostOf(r.Kind, lasting)
	by := quarantine.Mark{Seed: r.Seed, Namespace: r.Namespace, At: now.UTC().Truncate(time.Second)}
	d := quarantine.Decide(before, fleet, known.failure, by, r.Settings)
	if d.Quarantine {
		if fleet, err = driver.LiveFleet(ctx, r.Kind); err != nil {
			return 0, err
		}
		d = quarantine.Decide(before, fleet, known.failure, by, r.Settings)
	}
	if d.IsNew || d.Quarantine {
		err = driver.Note(ctx, r.Kind, lasting, d)
	}
	if d.Quarantine && (apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || apierrors.IsForbidden(err)) { // nor will it be later
		d.Quarantine, d.Refused, err = false, "the API server of the hosts refused it: "+brief.End(err.Error()), nil
	}
	if err != nil {
		return 0, err
	}
	r.tell(ctx, known.machine, before.Name, d)
	return d.Wait, nil
}

func (r *Reconciler) tell(ctx context.Context, machine *machinev1alpha1.Machine, name string, d quarantine.Decision) {
	log := logf.FromContext(ctx).WithValues("machine", machine.Name, "host", name, "failures", d.Count)
	what := fmt.Sprintf("Machines have failed on host %s %s within %s.", name, brief.Count(d.Count, "time"), r.Settings.Period)
	switch {
	case d.Quarantine:
		log.Info("The host is put into quarantine")
		quarantines.WithLabelValues(outcomeQuarantined).Inc()
		r.Recorder.Eventf(machine, nil, corev1.EventTypeWarning, EventQuarantined, eventAction, "%s", what+" The host was put into quarantine: no other machine gets it until somebody takes it out.")
	case d.Refused != "":
		log.Info("The host is not put into quarantine", "reason", d.Refused)
		quarantines.WithLabelValues(outcomeRefused).Inc()
		r.Recorder.Eventf(machine, nil, corev1.EventTypeWarning, EventNotQuarantined, eventAction, "%s", brief.Note(what+" The host was not put into quarantine, because "+d.Refused+"."))
	case d.IsNew:
		log.Info("A failure is noted on the host")
	}
}
