// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"cmp"
	"maps"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"k8s.io/apimachinery/pkg/watch"

	failuresv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/failures/v1alpha1"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

func init() {
	resources["machinefailures"] = resource{GroupVersionKind: failuresv1alpha1.SchemeGroupVersion.WithKind("MachineFailure"), whole: true}
}

// ledger is what the oracle knows of the failures of machines, and of what is written of them.
type ledger struct {
	entries map[string]*ledgerEntry
	failed  []failedMachine
}

type ledgerEntry struct {
	*failuresv1alpha1.MachineFailure
	writes int
}

// failedMachine is a failure that others can see, too: machine-controller-manager has marked the machine Failed, or we have said it.
type failedMachine struct {
	name string
	at   time.Time
	kept bool
}

// observeLedger blames what is written more often than once at the begin of a failure, and once at its end.
func (o *oracle) observeLedger(change *Change) {
	if o.ledger.entries == nil {
		o.ledger.entries = map[string]*ledgerEntry{}
	}
	entry := o.ledger.entries[change.name]
	switch {
	case change.Type == watch.Deleted: // there are too many
		return
	case entry == nil:
		entry = &ledgerEntry{}
		o.ledger.entries[change.name] = entry
		o.seen["entry of a failure"]++
	case change.Type == watch.Added:
		o.blame("ledger", "the failure %s is written once more", change.name)
	case entry.Status != nil:
		o.blame("ledger", "the failure %s is written after its end", change.name)
	}
	entry.MachineFailure = fromUnstructured[failuresv1alpha1.MachineFailure](change.Object)
	if entry.writes++; entry.writes > 2 {
		o.blame("ledger", "the failure %s is written %d times", change.name, entry.writes)
	}
}

// observeFailed notes that a machine has failed, unless it is one that was let go of after a failure.
func (o *oracle) observeFailed(name string, s *subject, before *machinev1alpha1.Machine, was rules.Machine) {
	if o.alone || before == nil || s.machine == nil || s.machine.DeletionTimestamp != nil {
		return
	}
	isFailed := func(m *machinev1alpha1.Machine) bool {
		return m.Status.CurrentStatus.Phase == machinev1alpha1.MachineFailed
	}
	if is := s.record; is.Phase == rules.FailedPreserved && was.Phase != rules.FailedPreserved || !is.Kept && !was.Kept && isFailed(s.machine) && !isFailed(before) {
		o.ledger.failed = append(o.ledger.failed, failedMachine{name, time.Now(), is.Kept})
	}
	if isFailed(before) && !isFailed(s.machine) {
		o.excuseFailures(name)
	}
}

// excuseFailures is called when a machine is gone, or not Failed any more. Of one that was not kept, which nothing is written on, nobody
// knows whom a fault has kept from seeing it.
func (o *oracle) excuseFailures(name string) {
	o.ledger.failed = slices.DeleteFunc(o.ledger.failed, func(f failedMachine) bool {
		return f.name == name && !f.kept && o.last(rules.Fault).After(f.at.Add(-soon))
	})
}

// restOfLedger blames a failure that is in the ledger not at all, twice, or without an end.
func (o *oracle) restOfLedger() {
	if o.alone {
		return
	}
	byMachine := map[string][]*ledgerEntry{}
	for _, entry := range o.ledger.entries {
		byMachine[entry.Spec.Machine] = append(byMachine[entry.Spec.Machine], entry)
	}
	for _, name := range slices.Sorted(maps.Keys(byMachine)) {
		entries := byMachine[name]
		slices.SortFunc(entries, func(a, b *ledgerEntry) int { return cmp.Compare(a.Spec.FailedAt.Unix(), b.Spec.FailedAt.Unix()) })
		for i, entry := range entries {
			switch {
			case entry.Status == nil:
				o.blame("ledger", "the failure %s has no end", entry.Name)
			case i > 0 && entry.Spec.FailedAt.Before(&entries[i-1].Status.EndedAt):
				o.blame("ledger", "%s and %s are one failure of %s", entries[i-1].Name, entry.Name, name)
			}
		}
	}
	for _, failed := range o.ledger.failed {
		if !slices.ContainsFunc(byMachine[failed.name], func(entry *ledgerEntry) bool {
			return !entry.Spec.FailedSince.After(failed.at) && (entry.Status == nil || !entry.Status.EndedAt.Time.Before(failed.at.Truncate(time.Second)))
		}) {
			o.blame("ledger", "the failure of %s at %s is not there", failed.name, failed.at.Format(time.DateTime))
		}
	}
}
