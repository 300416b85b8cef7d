// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sort"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

const (
	// pageSize is how many objects are asked for at a time. Each may have 1.5 MiB.
	pageSize = 50
	// maxListed is how many bytes are kept of a list.
	maxListed = 4 << 20
	// maxEvents is how many Events are kept of a list, the last ones, maxEvent how many bytes one has at most, and maxText how
	// many bytes are kept of what it says.
	maxEvents = 500
	maxEvent  = 4 << 10
	maxText   = 1 << 10
)

// cutError says that the rest of what is asked for is not kept.
type cutError struct{ error }

// list reads a list in pages, and returns those items that keep says are of interest, also if not all could be read. Keep may
// remove from them what is not to be kept.
func list[T any, L client.ObjectList](ctx context.Context, reader client.Reader, into L, items func(L) []T, keep func(*T) bool, opts ...client.ListOption) ([]T, error) {
	var kept []T
	size, next := 0, ""
	for {
		// What is decoded into a page before would be written over, or show through.
		page := into.DeepCopyObject().(L)
		if err := reader.List(ctx, page, append(slices.Clone(opts), client.Limit(pageSize), client.Continue(next))...); err != nil {
			return kept, err
		}
		for _, item := range items(page) {
			if keep != nil && !keep(&item) {
				continue
			}
			if size += sizeOf(&item); size > maxListed {
				return kept, cutError{fmt.Errorf("there are more than the first %d, which have %d bytes", len(kept), maxListed)}
			}
			kept = append(kept, item)
		}
		if next = page.GetContinue(); next == "" {
			return kept, nil
		}
	}
}

// sizeOf returns about how many bytes an object has.
func sizeOf(object any) int {
	if sized, ok := object.(interface{ Size() int }); ok {
		return sized.Size()
	}
	data, err := json.Marshal(object)
	if err != nil {
		return maxListed
	}
	return len(data)
}

func eventsIn(l *eventsv1.EventList) []eventsv1.Event { return l.Items }

// readLast returns the last of those Events that keep says are of interest. It is an error if there are more.
func readLast(ctx context.Context, reader client.Reader, keep func(*eventsv1.Event) bool, opts ...client.ListOption) ([]eventsv1.Event, error) {
	var last lastEvents
	_, err := list(ctx, reader, &eventsv1.EventList{}, eventsIn, func(e *eventsv1.Event) bool {
		if keep == nil || keep(e) {
			last.add(e)
		}
		return false
	}, opts...)
	events, cut := last.all()
	if err == nil {
		err = cut
	}
	return events, err
}

// lastEvents keeps the last Events that it is given, without what says nothing of what happened.
type lastEvents struct {
	events []eventsv1.Event
	cut    int
}

func (l *lastEvents) add(e *eventsv1.Event) {
	e.ObjectMeta = metav1.ObjectMeta{Namespace: e.Namespace, Name: e.Name, UID: e.UID, CreationTimestamp: e.CreationTimestamp}
	e.Note = cutText(e.Note)
	if e.Size() > maxEvent {
		l.cut++
		return
	}
	if l.events = append(l.events, *e); len(l.events) == 2*maxEvents {
		l.trim()
	}
}

func (l *lastEvents) trim() {
	slices.SortStableFunc(l.events, func(a, b eventsv1.Event) int { return observed.LastSeen(&a).Compare(observed.LastSeen(&b)) })
	if cut := len(l.events) - maxEvents; cut > 0 {
		l.events = slices.Delete(l.events, 0, cut)
		l.cut += cut
	}
}

// all returns the Events, and an error if there were more.
func (l *lastEvents) all() ([]eventsv1.Event, error) {
	if l.trim(); l.cut > 0 {
		return l.events, cutError{fmt.Errorf("there are %d more than the last %d", l.cut, len(l.events))}
	}
	return l.events, nil
}

// sortSnapshot brings all into an order that does not depend on how it was read.
func sortSnapshot(s *observed.Snapshot) {
	byName(s.Shoot.Nodes)
	byName(s.Shoot.Pods)
	byName(s.Shoot.PodDisruptionBudgets)
	byName(s.Shoot.VolumeAttachments)
	byName(s.Shoot.Maintenances)
	s.Shoot.Events = sortEvents(s.Shoot.Events)
	slices.SortFunc(s.Missing, func(a, b observed.Missing) int {
		return cmp.Or(cmp.Compare(a.What(), b.What()), cmp.Compare(a.Reason, b.Reason))
	})
	if s.Seed == nil {
		return
	}
	byName(s.Seed.Machines)
	byName(s.Seed.MachineSets)
	byName(s.Seed.MachineDeployments)
	s.Seed.Events = sortEvents(s.Seed.Events)
}

// byName sorts in place. It makes no copies of objects to compare them: of 1,000 that would be many megabytes.
func byName[T any, P interface {
	*T
	metav1.Object
}](items []T) {
	sort.Slice(items, func(i, j int) bool {
		x, y := P(&items[i]), P(&items[j])
		return cmp.Or(cmp.Compare(x.GetNamespace(), y.GetNamespace()), cmp.Compare(x.GetName(), y.GetName())) < 0
	})
}

// sortEvents sorts Events by namespace and name, and drops those that were read twice.
func sortEvents(events []eventsv1.Event) []eventsv1.Event {
	byName(events)
	return slices.CompactFunc(events, func(a, b eventsv1.Event) bool { return a.Namespace == b.Namespace && a.Name == b.Name })
}
