// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

const (
	// maxEarly is of how many machines early logs are kept, and maxEarlyLog how many bytes of each of their logs: they are in memory.
	maxEarly    = 4
	maxEarlyLog = 128 << 10
	// earlyTime is how long the logs of one machine may take, and earlyRetry after which time a kubelet that did not answer is asked again.
	earlyTime  = 15 * time.Second
	earlyRetry = time.Minute
)

// earlyLogs gathers logs of nodes as soon as their machines are Unknown: a kubelet that answers then may not any more when they have
// failed. One machine at a time, beside what stores evidence, which never waits for it. What a restart forgets is gathered anew if the
// machine has not failed by then.
type earlyLogs struct {
	source client.Client
	gather func(ctx context.Context, node string) *evidence.NodeLogs

	mu   sync.Mutex
	logs map[string]*evidence.NodeLogs
	// stored are the machines whose evidence is stored: it may be gathered again, but others come first.
	stored sets.Set[string]
}

func newEarlyLogs(source client.Client, gather func(context.Context, string) *evidence.NodeLogs) *earlyLogs {
	return &earlyLogs{source: source, gather: gather, logs: map[string]*evidence.NodeLogs{}, stored: sets.New[string]()}
}

func (e *earlyLogs) addToManager(mgr manager.Manager) error {
	type seen struct {
		phase    machinev1alpha1.MachinePhase
		isMarked bool
	}
	return builder.ControllerManagedBy(mgr).
		Named(ControllerName+"-early-logs").
		For(&machinev1alpha1.Machine{}, builder.WithPredicates(shoot.OnChange(func(machine *machinev1alpha1.Machine) seen {
			return seen{machine.Status.CurrentStatus.Phase, retention.IsMarked(machine)}
		}))).
		WithOptions(pace.Options(1, minRetry, maxRetry)).
		Complete(e)
}

// Reconcile gathers the logs of the node of a machine that is Unknown, and forgets those of one that has recovered or is gone.
func (e *earlyLogs) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	machine := &machinev1alpha1.Machine{}
	if err := e.source.Get(ctx, req.NamespacedName, machine); apierrors.IsNotFound(err) {
		e.forget(req.Name)
		return reconcile.Result{}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	switch phase, node := machine.Status.CurrentStatus.Phase, machine.Labels[machinev1alpha1.NodeLabelKey]; {
	case phase == machinev1alpha1.MachineRunning:
		e.forget(machine.Name)
		return reconcile.Result{}, nil
	case retention.FailureOf(machine) != "":
		if retention.IsMarked(machine) {
			e.markStored(machine.Name)
		}
		return reconcile.Result{}, nil
	case machine.DeletionTimestamp != nil:
		e.forget(machine.Name)
		return reconcile.Result{}, nil
	case phase != machinev1alpha1.MachineUnknown || node == "" || e.of(machine.Name) != nil:
		return reconcile.Result{}, nil
	case !e.hasPlace():
		return reconcile.Result{RequeueAfter: earlyRetry}, nil
	}
	limited, cancel := context.WithTimeout(ctx, earlyTime)
	defer cancel()
	logs := e.gather(limited, machine.Labels[machinev1alpha1.NodeLabelKey])
	if logs == nil {
		return reconcile.Result{RequeueAfter: earlyRetry}, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.logs[machine.Name] = logs
	return reconcile.Result{}, nil
}

// hasPlace makes room for the logs of one more machine, and says whether there is some: those that are not stored yet keep theirs.
func (e *earlyLogs) hasPlace() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.logs) >= maxEarly {
		if stored, ok := e.stored.PopAny(); ok {
			delete(e.logs, stored)
		}
	}
	return len(e.logs) < maxEarly
}

func (e *earlyLogs) markStored(machine string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.logs[machine] != nil {
		e.stored.Insert(machine)
	}
}

func (e *earlyLogs) forget(machine string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.logs, machine)
	e.stored.Delete(machine)
}

// of returns the logs of a machine, nil if there are none.
func (e *earlyLogs) of(machine string) *evidence.NodeLogs {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.logs[machine]
}
