// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/hours"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

const (
	// accountInterval is how often the account is written while machines are preserved.
	accountInterval = time.Hour
	// accountRetry is when to try again to write it.
	accountRetry = 30 * time.Second
)

// Hours keeps the account of a shoot's machine-hours (P17), and a limit on them (P18). It is in a ConfigMap of our own:
// machine-controller-manager copies annotations of MachineDeployments to their MachineSets, which would be one more write for each of
// ours, and an account on a MachineDeployment would begin anew with its pool.
type Hours struct {
	// Max is how many machine-hours of a month people and the share may preserve machines for.
	Max int32
	// Client writes the ConfigMap, Reader reads it from the API server. Namespace is that of the Machines.
	Client    client.Client
	Reader    client.Reader
	Namespace string

	mutex   sync.Mutex
	account hours.Account
	// stored is the ConfigMap as it was read or written last; nil before it was read. It has no version if it does not exist.
	stored *corev1.ConfigMap
	// reading is closed when somebody has read it, who is about to. unread is why that failed, and triedAt when it was tried.
	reading chan struct{}
	unread  error
	triedAt time.Time
	// saved is when the account was written last, urgent says that it is to be written now, and failed since when that was tried. After a
	// restart it is written with the first machine that is preserved: who is restarted more than once an hour would never write it.
	saved  time.Time
	urgent bool
	failed time.Time
	// writing says that somebody is writing it.
	writing bool
	// spentAt is when the limit is reached, as all MachineDeployments know it.
	spentAt time.Time
	// note is what people are to be told, and untold the MachineDeployments on which they are not told yet.
	note   string
	untold sets.Set[string]
}

// observe counts the time of the machines of a MachineDeployment, and returns what is left, and which other MachineDeployments are to
// know. It returns an error if the account could not be read: then nothing is limited.
func (h *Hours) observe(ctx context.Context, deployment *machinev1alpha1.MachineDeployment, members []facts.Member, now time.Time) (left *preservation.Hours, others []string, err error) {
	if h == nil {
		return nil, nil, nil
	}
	seen := make([]hours.Seen, 0, len(members))
	for _, m := range members {
		seen = append(seen, seenOf(m.Machine))
	}

	h.mutex.Lock()
	defer h.mutex.Unlock()
	if err := h.load(ctx, now); err != nil {
		return &preservation.Hours{}, nil, err
	}
	before, spentAt := h.account, h.spentAt
	h.account = before.Advance(deployment.Name, poolOf(deployment), seen, now)
	h.account.Max = h.Max
	h.urgent = h.urgent || turned(before, h.account)
	note := h.settle(now)
	others = slices.DeleteFunc(h.account.Deployments(now), func(name string) bool { return name == deployment.Name })
	if note != "" {
		h.note, h.untold = note, sets.New(append(others, deployment.Name)...)
	} else if h.spentAt.IsZero() || !spentAt.IsZero() && !h.spentAt.Before(spentAt) {
		others = nil
	}
	machineHours.Reset()
	for pool, used := range h.account.UsedByPool(now) {
		machineHours.WithLabelValues(pool).Set((time.Duration(used) * time.Second).Hours())
	}
	machineHoursMax.WithLabelValues().Set(float64(h.Max))
	return &preservation.Hours{SpentAt: h.spentAt, Until: h.account.End()}, others, nil
}

func seenOf(machine *machinev1alpha1.Machine) hours.Seen {
	kept, until := preservation.Counted(machine)
	return hours.Seen{UID: machine.UID, Since: kept.Since, Ended: kept.Until, Until: until}
}

// settle takes note of what is reached, and returns what people are to be told.
func (h *Hours) settle(now time.Time) string {
	before := h.account
	after, note := before.Settle(now)
	h.account, h.spentAt = after, after.Spent(now)
	h.urgent = h.urgent || before.SpentAt.IsZero() && !after.SpentAt.IsZero() || before.Told != after.Told
	return note
}

// turned says that machines are not preserved any more, or are again, of which nobody else knows since when.
func turned(before, after hours.Account) bool {
	for uid, m := range before.Machines {
		if m.Expires.IsZero() != after.Machines[uid].Expires.IsZero() {
			return true
		}
	}
	return false
}

// load reads the account: once, and again after somebody else has written it. The mutex is unlocked meanwhile. All MachineDeployments wait
// for it, so that it is not tried again at once if it fails (P12).
func (h *Hours) load(ctx context.Context, now time.Time) error {
	for h.stored == nil && h.reading != nil {
		reading := h.reading
		h.mutex.Unlock()
		select {
		case <-reading:
		case <-ctx.Done():
		}
		h.mutex.Lock()
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	switch {
	case h.stored != nil:
		return nil
	case h.unread != nil && now.Before(h.triedAt.Add(accountRetry)):
		return h.unread
	}
	stored, account, seen, err := h.read(ctx, now)
	if h.unread, h.triedAt = err, now; err != nil {
		return err
	}
	h.stored, h.account = stored, account.Resume(seen, now)
	h.urgent = h.urgent || turned(account, h.account)
	return nil
}

// read reads the account, and the machines that there are: nobody may have counted for a while, and what has ended, or is gone, since then must
// not count on until its MachineDeployment is seen.
func (h *Hours) read(ctx context.Context, now time.Time) (stored *corev1.ConfigMap, account hours.Account, seen []hours.Seen, err error) {
	h.reading = make(chan struct{})
	h.mutex.Unlock()
	defer func() {
		h.mutex.Lock()
		close(h.reading)
		h.reading = nil
	}()

	stored = &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: h.Namespace, Name: hours.ConfigMapName}}
	err = executor.Call(ctx, patience, func(ctx context.Context) error { return h.Reader.Get(ctx, client.ObjectKeyFromObject(stored), stored) })
	if client.IgnoreNotFound(err) != nil {
		return nil, account, nil, fmt.Errorf("failed to read the account of machine-hours: %w", err)
	}
	machines := &machinev1alpha1.MachineList{}
	if err := h.Client.List(ctx, machines, client.InNamespace(h.Namespace)); err != nil {
		return nil, account, nil, fmt.Errorf("failed to list the machines: %w", err)
	}
	for i := range machines.Items {
		seen = append(seen, seenOf(&machines.Items[i]))
	}
	account = hours.New(now)
	if value, ok := stored.Data[hours.Key]; ok {
		if read, err := hours.Decode(value); err != nil {
			logf.FromContext(ctx).Error(err, "Beginning a new account of machine-hours")
		} else {
			account = read
		}
	}
	return stored, account, seen, nil
}

// forget drops the machines of a MachineDeployment that is gone.
func (h *Hours) forget(deployment string) {
	if h == nil {
		return
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	before := h.account
	h.account = before.Forget(deployment)
	h.untold.Delete(deployment)
	h.urgent = h.urgent || turned(before, h.account)
}

// take returns what people are to be told on a MachineDeployment, once.
func (h *Hours) take(deployment string) string {
	if h == nil {
		return ""
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if !h.untold.Has(deployment) {
		return ""
	}
	h.untold.Delete(deployment)
	return h.note
}

// open writes an account that was never written, before the first machine is preserved: an account counts nothing from before it began, and
// whoever comes after a crash would begin it then.
func (h *Hours) open(ctx context.Context, deployment *machinev1alpha1.MachineDeployment, decisions []preservation.Decision, now time.Time) {
	begins := func(d preservation.Decision) bool { return !d.BeginsUntil().IsZero() }
	if h == nil || !slices.ContainsFunc(decisions, begins) {
		return
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.stored == nil || h.stored.ResourceVersion != "" || h.writing || now.Before(h.failed.Add(accountRetry)) {
		return
	}
	seen := make([]hours.Seen, len(decisions))
	for i, d := range decisions {
		if seen[i] = seenOf(d.Machine); begins(d) {
			seen[i] = hours.Seen{UID: d.Machine.UID, Since: now, Until: d.BeginsUntil()}
		}
	}
	h.account = h.account.Advance(deployment.Name, poolOf(deployment), seen, now)
	_ = h.write(ctx, now) // save tries again
}

// save writes the account if that is due, and returns when to look again because of a MachineDeployment; zero for never. Nobody else waits
// for the write (P12).
func (h *Hours) save(ctx context.Context, deployment string, now time.Time) time.Time {
	if h == nil {
		return time.Time{}
	}
	h.mutex.Lock()
	defer h.mutex.Unlock()
	if h.stored == nil {
		return now.Add(accountRetry) // it could not be read
	}
	preserved := h.account.Deployments(now)
	if h.urgent || len(preserved) > 0 && !now.Before(h.saved.Add(accountInterval)) {
		if wait := h.failed.Add(accountRetry); !h.failed.IsZero() && now.Before(wait) {
			return wait
		}
		if h.writing {
			return now.Add(accountRetry)
		}
		if err := h.write(ctx, now); err != nil {
			return now.Add(accountRetry)
		}
		h.saved = now
	}
	if !slices.Contains(preserved, deployment) {
		return time.Time{}
	}
	next := pace.Earliest(h.saved.Add(accountInterval), h.account.Warns(now))
	return pace.Earliest(next, h.account.End()) // how long the hours of the next month last is known only then
}

// write writes the account. The mutex is unlocked meanwhile.
func (h *Hours) write(ctx context.Context, now time.Time) error {
	after := h.stored.DeepCopy()
	after.Data = map[string]string{hours.Key: h.account.Encode()}
	isNew := after.ResourceVersion == ""
	switch {
	case isNew:
		after.Labels = map[string]string{"app.kubernetes.io/managed-by": "machine-preservation-controller"}
	case after.Data[hours.Key] == h.stored.Data[hours.Key]:
		h.urgent, h.failed = false, time.Time{}
		return nil
	}
	h.writing, h.urgent = true, false
	h.mutex.Unlock()
	err := executor.Call(ctx, patience, func(ctx context.Context) error {
		if isNew {
			return h.Client.Create(ctx, after)
		}
		return h.Client.Update(ctx, after)
	})
	h.mutex.Lock()
	h.writing = false
	if err == nil {
		h.stored, h.failed = after, time.Time{}
		return nil
	}
	logf.FromContext(ctx).V(1).Info("The account of machine-hours could not be written", "reason", err.Error())
	h.failed, h.urgent = now, true
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) {
		h.stored = nil // what was counted since it was read is counted again
	}
	return err
}

// observeHours has the time of the machines counted, and other MachineDeployments look at what is left of it.
func (r *Reconciler) observeHours(ctx context.Context, deployment *machinev1alpha1.MachineDeployment, members []facts.Member, now time.Time) *preservation.Hours {
	left, others, err := r.Hours.observe(ctx, deployment, members, now)
	if err != nil {
		logf.FromContext(ctx).Error(err, "Machine-hours are neither counted nor limited until the next look")
	}
	for _, name := range others {
		if r.enqueue != nil {
			r.enqueue(reconcile.Request{NamespacedName: client.ObjectKey{Namespace: deployment.Namespace, Name: name}})
		}
	}
	return left
}

// tellHours warns of machine-hours that are used up, or nearly: on each MachineDeployment with preserved machines, and on the nodes of those.
func (r *Reconciler) tellHours(deployment *machinev1alpha1.MachineDeployment, decisions []preservation.Decision) {
	note := r.Hours.take(deployment.Name)
	if note == "" {
		return
	}
	r.Events.Source.Eventf(deployment, nil, corev1.EventTypeWarning, preservation.EventMachineHours, preservation.EventAction, "%s", note)
	if r.Events.Shoot == nil {
		return
	}
	for i := range decisions {
		if d := &decisions[i]; d.Node != nil && d.Current != nil {
			r.Events.Shoot.Eventf(d.Node, nil, corev1.EventTypeWarning, preservation.EventMachineHours, preservation.EventAction, "%s", note)
		}
	}
}
