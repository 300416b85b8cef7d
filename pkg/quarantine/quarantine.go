// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package quarantine decides which hosts are put into quarantine because machines fail on them again and again. It is pure. Its
// facts are noted on the hosts, where nobody in the shoot can write.
package quarantine

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

const (
	// sameFailure is within which time of a failure another one of the same machine is the same: machine-controller-manager writes over
	// the start of its timer.
	sameFailure = 10 * time.Minute
	// stormTime is within which time of each other machines fail for the same reason, if they do on stormHosts others: a bad image, a network that
	// is down. It is not the host's.
	stormTime  = 30 * time.Minute
	stormHosts = 2
	// shootStormTime is the same of machines of one shoot: one that never joins is replaced by another that does not, each on another
	// host and after its creation timeout.
	shootStormTime = 6 * time.Hour
	// settleTime is how long a failure has been noted when it is decided what it comes to: what fails at the same time has one reason, and
	// nobody knows of what others are about to note. After decideTime nobody decides on it any more, but on the next one.
	settleTime = 30 * time.Second
	decideTime = 5 * time.Minute
	// shootPeriod is in which time there is one host at most on behalf of a shoot.
	shootPeriod = 24 * time.Hour
	// share is of how many hosts one may be out of use.
	share = 10
	// maxFailures is how many failures are noted of a host, the newest ones.
	maxFailures = 20
)

// Settings are those of the operators.
type Settings struct {
	// Failures is how many machines must fail on a host within the Period. 0: nothing is put into quarantine.
	Failures int
	Period   time.Duration
}

// Seen is a failure of a machine as it is seen.
type Seen struct {
	Machine types.UID
	// Since is when its timer began to run.
	Since time.Time
	// Expected says that it is not the host's: somebody works on the machine, or none of the shoot is well.
	Expected bool
}

// Failure is one of a machine, and At when it was noted.
type Failure struct {
	Machine types.UID `json:"machine"`
	At      time.Time `json:"at"`
	// Shoot is whose machine it is: the seed and the namespace of its control plane.
	Shoot string `json:"shoot,omitempty"`
	// Excused says that it counts for nothing: it was expected, somebody worked on the host, or that was in quarantine.
	Excused bool `json:"excused,omitempty"`
}

// Mark is on whose behalf a host was put into quarantine, and At when.
type Mark struct {
	Seed      string    `json:"seed"`
	Namespace string    `json:"namespace"`
	At        time.Time `json:"at"`
}

// Record is what is noted on a host.
type Record struct {
	Failures []Failure `json:"failures,omitempty"`
	// Quarantined is the last time that it was put into quarantine. It stays there when it is let out.
	Quarantined *Mark `json:"quarantined,omitempty"`
}

// ReadRecord returns an empty record of a host that has none that can be read.
func ReadRecord(host metav1.Object) Record {
	r := Record{}
	if err := json.Unmarshal([]byte(host.GetAnnotations()[v1alpha1.AnnotationHostFailures]), &r); err != nil {
		return Record{}
	}
	return r
}

// Host is what is known of a host. All that there are make up the fleet.
type Host struct {
	Name   string
	Record Record
	// IsQuarantined says that no machine gets it, whoever has seen to that.
	IsQuarantined bool
	// IsServiced says that somebody works on it.
	IsServiced bool
}

// Decision is what is to be written on a host.
type Decision struct {
	Record Record
	// IsNew says that the failure had not been noted.
	IsNew bool
	// Wait is after which time to decide again, zero for never.
	Wait time.Duration
	// Quarantine says that the host is to be put into quarantine, and Count how many failures count.
	Quarantine bool
	Count      int
	// Refused says in words why it is not although enough machines have failed on it.
	Refused string
}

// Decide returns what a failure of a machine on a host comes to.
func Decide(host Host, fleet []Host, seen Seen, by Mark, settings Settings) Decision {
	now := by.At
	d := Decision{Record: host.Record}
	isOld := func(f Failure) bool { return now.Sub(f.At) >= settings.Period || f.At.Sub(now) >= sameFailure } // or the clock was wrong
	if now.Sub(seen.Since) >= settings.Period {
		return d
	}
	noted := Failure{Machine: seen.Machine, At: now, Shoot: by.Seed + "/" + by.Namespace, Excused: seen.Expected || host.IsServiced || host.IsQuarantined}
	isNoted := func(f Failure) bool { return f.Machine == seen.Machine && !seen.Since.After(f.At.Add(sameFailure)) }
	if i := slices.IndexFunc(host.Record.Failures, isNoted); i >= 0 {
		noted = host.Record.Failures[i]
	} else {
		d.IsNew = true
		d.Record.Failures = append(slices.DeleteFunc(slices.Clone(host.Record.Failures), isOld), noted)
		d.Record.Failures = d.Record.Failures[max(0, len(d.Record.Failures)-maxFailures):]
	}
	age := now.Sub(noted.At)
	if noted.Excused || host.IsQuarantined || host.IsServiced || age >= decideTime {
		return d
	}
	for _, f := range d.Record.Failures {
		if before := host.Record.Quarantined; !f.Excused && (before == nil || f.At.After(before.At)) && !isStorm(f, host.Name, fleet) {
			d.Count++
		}
	}
	if settings.Failures == 0 || d.Count < settings.Failures {
		return d
	}
	if d.Wait = max(0, settleTime-age); d.Wait > 0 {
		return d
	}
	if d.Refused = refusal(fleet, by); d.Refused == "" {
		d.Quarantine, d.Record.Quarantined = true, &by
	}
	return d
}

// isStorm says that machines failed on several other hosts at about the same time.
func isStorm(f Failure, name string, fleet []Host) bool {
	isSame := func(other Failure) bool {
		apart := other.At.Sub(f.At).Abs()
		return apart <= stormTime || apart <= shootStormTime && f.Shoot != "" && other.Shoot == f.Shoot
	}
	others := 0
	for _, host := range fleet {
		if host.Name != name && slices.ContainsFunc(host.Record.Failures, isSame) {
			others++
		}
	}
	return others >= stormHosts
}

// refusal says in words why a host is not put into quarantine now, empty for nothing.
func refusal(fleet []Host, by Mark) string {
	outOfUse := 0
	for _, host := range fleet {
		if last := host.Record.Quarantined; last != nil && last.Seed == by.Seed && last.Namespace == by.Namespace && by.At.Sub(last.At) < shootPeriod {
			return fmt.Sprintf("host %s was put into quarantine for this shoot less than %s ago", host.Name, shootPeriod)
		}
		if host.IsQuarantined || host.IsServiced {
			outOfUse++
		}
	}
	if (outOfUse+1)*share > len(fleet) {
		return fmt.Sprintf("at most one of %d hosts may be out of use, and %d of %d already are", share, outOfUse, len(fleet))
	}
	return ""
}
