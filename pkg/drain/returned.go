// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
)

const (
	// minReturn is how long after a deletion a pod that came back is asked to go for the first time. It doubles up to maxReturn.
	minReturn, maxReturn = time.Second, 5 * time.Minute
	// clockSkew is how far behind the clock may be that tells when a pod was created.
	clockSkew = time.Minute
	// rememberedFor is how long after the last deletion of its pods an owner is known, and maxOwners how many are.
	rememberedFor, maxOwners = time.Hour, 1000
)

// Deletions tell, by owner, what was deleted on a node: by them a pod is known that comes back after others of its owner were
// deleted by force (D6). They are kept in memory only. Where they are lost, as in a restart, such a pod is deleted by force once
// more, and its back-off begins anew.
type Deletions map[string]Deletion

// Deletion is what was deleted of an owner.
type Deletion struct {
	// First is when pods were deleted by force for the first time, and Last when any were deleted for the last time.
	First, Last time.Time
	// Returns is how often those that came back were asked to go.
	Returns int
}

// returned says that a pod came back after others of its owner were deleted by force.
func (d Deletions) returned(p Pod) bool {
	before, ok := d[p.Owner]
	return ok && p.Created.After(before.First.Add(-clockSkew))
}

// again returns what is done with a pod that came back, and from when on: it has its grace period, and the back-off before that.
func (d Deletions) again(p Pod) (Verb, time.Time) {
	if !p.GraceEnds.IsZero() {
		return Delete, p.GraceEnds
	}
	before := d[p.Owner]
	backoff := maxReturn
	if n := before.Returns; n < 9 { // so that it does not overflow
		backoff = min(minReturn<<n, maxReturn)
	}
	return Terminate, before.Last.Add(backoff)
}

// Note takes down actions that were carried out in a single look, and returns the owners whose pods came back for the first time.
// Several pods of an owner count as one: they go, and come back, together.
func (d Deletions) Note(actions []Action, now time.Time) (owners []string) {
	for owner, before := range d {
		if now.Sub(before.Last) > rememberedFor {
			delete(d, owner)
		}
	}
	touched := map[string]bool{} // whether pods that came back were asked to go
	for _, action := range actions {
		if action.Verb == Delete || action.Verb == Terminate {
			touched[action.Pod.Owner] = touched[action.Pod.Owner] || action.Verb == Terminate
		}
	}
	for owner, returned := range touched {
		before, known := d[owner]
		switch {
		case !known && len(d) >= maxOwners:
			continue
		case !known:
			before.First = now
		}
		if returned {
			if before.Returns++; before.Returns == 1 {
				owners = append(owners, owner)
			}
		}
		before.Last = now
		d[owner] = before
	}
	slices.Sort(owners)
	return owners
}

// ReturnsText says, for the one Event on all of them, whose pods came back.
func ReturnsText(owners []string) string {
	return fmt.Sprintf("Pods came back after they were deleted by force. They are deleted again, with their grace period, at growing intervals of up to %s: pods of %s",
		maxReturn, strings.Join(brief.First(owners, maxNamed), ", "))
}
