// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package hours keeps account of the machine-hours for which people and the share preserve machines, by pool and calendar month in UTC
// (P17), and says when a limit on them is reached (P18). It is pure: the time is an argument.
package hours

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// version is that of the accounts that are written. An account of a later version may mean something else: nothing is counted on it.
const version = 1

// ConfigMapName is the name of the ConfigMap that the account is in, in the namespace of the Machines, and Key the key there.
const (
	ConfigMapName = "machine-preservation-hours"
	Key           = "account"
)

// warnAt is the percentage of the limit that people are warned at.
const warnAt = 80

// monthLayout is how months are written. Months in this form are in the order of time.
const monthLayout = "2006-01"

// Account is the account of a shoot in one month. Times are whole seconds in UTC. An Account is never changed in place.
type Account struct {
	Version int `json:"version"`
	// Began is when the account began. What was before is not counted.
	Began time.Time `json:"began"`
	// Max is how many machine-hours of the month operators allow, for those who read the account.
	Max int32 `json:"max"`
	// Month is the calendar month in UTC, like 2026-11.
	Month string `json:"month"`
	// Pools are the machine-seconds of the month by pool.
	Pools map[string]int64 `json:"pools,omitempty"`
	// Machines are those that are preserved, or were and are still there.
	Machines map[types.UID]Machine `json:"machines,omitempty"`
	// SpentAt is when the limit was reached; zero if it was not reached in this month.
	SpentAt time.Time `json:"spentAt,omitzero"`
	// Told is what percentage of the limit people were told of: warnAt, 100, or none.
	Told int32 `json:"told,omitempty"`
}

// Machine is a machine in an account.
type Machine struct {
	// Deployment is the name of its MachineDeployment, and Pool that of its pool.
	Deployment string `json:"deployment"`
	Pool       string `json:"pool"`
	// Counted is until when its time is counted.
	Counted time.Time `json:"counted"`
	// Expires is until when people or the share preserve it; zero if they do not any more.
	Expires time.Time `json:"expires,omitzero"`
}

// Seen is a machine of a MachineDeployment as it is now.
type Seen struct {
	UID types.UID
	// Since is since when people or the share have preserved it, with times in between in which they did not; zero for never.
	Since time.Time
	// Until is until when they preserve it; zero if they do not.
	Until time.Time
	// Ended is when that was over, if they do not and it is known.
	Ended time.Time
}

// New returns an account that begins now.
func New(now time.Time) Account {
	now = seconds(now)
	return Account{Version: version, Began: now, Month: now.Format(monthLayout)}
}

// Decode reads an account.
func Decode(value string) (Account, error) {
	a := Account{}
	if err := json.Unmarshal([]byte(value), &a); err != nil {
		return Account{}, fmt.Errorf("failed to decode the account: %w", err)
	}
	if a.Version < 1 || a.Version > version {
		return Account{}, fmt.Errorf("the account has version %d, and this version knows %d", a.Version, version)
	}
	if _, err := time.Parse(monthLayout, a.Month); err != nil {
		return Account{}, errors.New("the account has no month")
	}
	return a, nil
}

// Encode is the reverse of Decode. The same account has the same bytes.
func (a Account) Encode() string {
	value, err := json.Marshal(a)
	if err != nil { // it is numbers, strings and times
		panic(err)
	}
	return string(value)
}

func seconds(t time.Time) time.Time { return t.UTC().Truncate(time.Second) }

func (a Account) begin() time.Time {
	t, _ := time.Parse(monthLayout, a.Month)
	return t
}

// End returns when the month is over.
func (a Account) End() time.Time { return a.begin().AddDate(0, 1, 0) }

// clockError is by how much a clock may be wrong. An account of a month that begins later was written by one that is worse: until then,
// nothing would be counted.
const clockError = 24 * time.Hour

// At returns the account in the month of now. A clock that goes back a little does not bring a former month back.
func (a Account) At(now time.Time) Account {
	month, wrong := now.UTC().Format(monthLayout), a.begin().After(now.Add(clockError))
	if month <= a.Month && !wrong {
		return a
	}
	a.Month, a.Pools, a.SpentAt, a.Told = month, nil, time.Time{}, 0
	begin := a.begin()
	if wrong {
		a.Began = earliest(a.Began, seconds(now))
	}
	a.Machines = maps.Clone(a.Machines)
	for uid, m := range a.Machines {
		// The others show by it that they were not preserved in this month.
		if m.Counted.Before(begin) && !m.Expires.IsZero() {
			m.Counted = begin
		}
		if wrong {
			m.Counted = earliest(m.Counted, seconds(now))
		}
		a.Machines[uid] = m
	}
	return a
}

// Advance counts the time of the machines of a MachineDeployment until now. The same machines at the same time change nothing, and a time
// is never counted twice. A machine that is seen for the first time counts from when it was preserved, but not from before the account.
func (a Account) Advance(deployment, pool string, seen []Seen, now time.Time) Account {
	a = a.At(now)
	pools, machines := maps.Clone(a.Pools), maps.Clone(a.Machines)
	if pools == nil {
		pools = map[string]int64{}
	}
	if machines == nil {
		machines = map[types.UID]Machine{}
	}
	there := make(map[types.UID]bool, len(seen))
	now = seconds(now)
	for _, s := range seen {
		there[s.UID] = true
		m, known := machines[s.UID]
		switch {
		case s.Until.IsZero() && s.Since.IsZero() && (!known || m.Expires.IsZero() && m.Counted.Before(a.begin())):
			delete(machines, s.UID) // there is nothing to count twice any more
			continue
		case !known && s.Until.IsZero():
			m.Counted = now
		case !known:
			m.Counted = latest(seconds(s.Since), a.Began, a.begin())
		case m.Expires.IsZero() && m.Counted.Before(now): // it is preserved anew
			if since := seconds(s.Since); since.After(m.Counted) {
				m.Counted = since
			} else {
				m.Counted = now
			}
		}
		if until := seconds(s.Until); !s.Until.IsZero() || s.Ended.IsZero() {
			m.Expires = until
		} else if ended := seconds(s.Ended); ended.Before(m.Expires) { // nobody has looked since
			m.Expires = ended
		}
		m.Deployment, m.Pool = deployment, pool
		if more := m.uncounted(now); more > 0 {
			pools[pool] += int64(more / time.Second)
			m.Counted = m.Counted.Add(more)
		}
		if !m.Expires.After(now) { // something else may preserve it
			m.Expires = time.Time{}
		}
		machines[s.UID] = m
	}
	maps.DeleteFunc(machines, func(uid types.UID, m Machine) bool { return m.Deployment == deployment && !there[uid] })
	a.Pools, a.Machines = pools, machines
	return a
}

// Resume counts the time of the machines of all MachineDeployments until now, after nobody may have done so for a while. Of machines that are
// gone it is not known until when they were preserved: what is not counted yet is not counted.
func (a Account) Resume(seen []Seen, now time.Time) Account {
	a = a.At(now)
	pools, of := map[string]string{}, map[types.UID]string{}
	for uid, m := range a.Machines {
		pools[m.Deployment], of[uid] = m.Pool, m.Deployment
	}
	for _, deployment := range slices.Sorted(maps.Keys(pools)) {
		its := slices.DeleteFunc(slices.Clone(seen), func(s Seen) bool { return of[s.UID] != deployment })
		a = a.Advance(deployment, pools[deployment], its, now)
	}
	return a
}

// uncounted returns the time until now that is to be counted yet.
func (m Machine) uncounted(now time.Time) time.Duration {
	if now.After(m.Expires) {
		now = m.Expires
	}
	return max(now.Sub(m.Counted), 0)
}

func latest(times ...time.Time) time.Time { return slices.MaxFunc(times, time.Time.Compare) }

func earliest(times ...time.Time) time.Time { return slices.MinFunc(times, time.Time.Compare) }

// Forget drops the machines of a MachineDeployment that is gone. What they took stays.
func (a Account) Forget(deployment string) Account {
	a.Machines = maps.Clone(a.Machines)
	maps.DeleteFunc(a.Machines, func(_ types.UID, m Machine) bool { return m.Deployment == deployment })
	return a
}

// Used returns the machine-seconds of the month until now, with what is to be counted yet.
func (a Account) Used(now time.Time) int64 {
	var used int64
	for _, s := range a.UsedByPool(now) {
		used += s
	}
	return used
}

// UsedByPool returns the same by pool.
func (a Account) UsedByPool(now time.Time) map[string]int64 {
	a, now = a.At(now), seconds(now)
	used := make(map[string]int64, len(a.Pools))
	maps.Copy(used, a.Pools)
	for _, m := range a.Machines {
		if more := m.uncounted(now); more > 0 {
			used[m.Pool] += int64(more / time.Second)
		}
	}
	return used
}

// Limit returns the machine-seconds that operators allow.
func (a Account) Limit() int64 { return int64(a.Max) * int64(time.Hour/time.Second) }

// Spent returns when the limit is, or was, reached, if nothing changes; zero if that is not in this month.
func (a Account) Spent(now time.Time) time.Time {
	a = a.At(now)
	if !a.SpentAt.IsZero() {
		return a.SpentAt
	}
	return a.Reaches(a.Limit(), now)
}

// Settle returns the account with what is reached by now, and what people are to be told of that: once each, unless operators change the limit.
// It is empty for nothing.
func (a Account) Settle(now time.Time) (after Account, note string) {
	a = a.At(now)
	used, told := a.Used(now), a.Told
	if used < a.Limit() { // or operators have raised it
		a.SpentAt = time.Time{}
	}
	if at := a.Spent(now); !at.IsZero() && !at.After(now) {
		a.SpentAt = at
	}
	switch percent := used * 100 / max(a.Limit(), 1); {
	case percent >= 100:
		a.Told = 100
	case percent >= warnAt:
		a.Told = warnAt
	default:
		a.Told = 0
	}
	over := a.End().Format(time.RFC3339)
	switch {
	case a.Told <= told:
	case a.Told == 100:
		note = fmt.Sprintf("Machines of the shoot have been preserved for all %d machine-hours that operators allow in %s (UTC). Preserved machines are released, and no others are preserved until %s, "+
			"except for maintenances and power cycles", a.Max, a.Month, over)
	default:
		note = fmt.Sprintf("Machines of the shoot have been preserved for %d of the %d machine-hours that operators allow in %s (UTC). When all are used, preserved machines are released, "+
			"and no others are preserved until %s, except for maintenances and power cycles. Release machines that you do not need any more", used/int64(time.Hour/time.Second), a.Max, a.Month, over)
	}
	return a, note
}

// Warns returns when people are to be warned, if nothing changes; zero if they were, or if that is not in this month.
func (a Account) Warns(now time.Time) time.Time {
	if a = a.At(now); a.Told >= warnAt {
		return time.Time{}
	}
	return a.Reaches((a.Limit()*warnAt+99)/100, now)
}

// Deployments returns the names of the MachineDeployments with machines that are preserved.
func (a Account) Deployments(now time.Time) []string {
	var names []string
	for _, m := range a.Machines {
		if m.Expires.After(now) {
			names = append(names, m.Deployment)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// Reaches returns when so many machine-seconds of the month will be used, if machines go on being preserved until they expire, and no
// others are; zero if that is not in this month. It is now if they are used already.
func (a Account) Reaches(limit int64, now time.Time) time.Time {
	a, now = a.At(now), seconds(now)
	left := limit - a.Used(now)
	if left <= 0 {
		return now
	}
	var ends []time.Time
	for _, m := range a.Machines {
		if m.Expires.After(now) {
			ends = append(ends, m.Expires)
		}
	}
	slices.SortFunc(ends, time.Time.Compare)
	for i, end := range ends {
		rate := int64(len(ends) - i)
		if until := int64(end.Sub(now) / time.Second); until*rate < left {
			left -= until * rate
			now = end
			continue
		}
		at := now.Add(time.Duration((left+rate-1)/rate) * time.Second)
		if !at.Before(a.End()) {
			return time.Time{}
		}
		return at
	}
	return time.Time{}
}
