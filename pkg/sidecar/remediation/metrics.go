// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"cmp"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/metrics"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

const (
	labelDeployment = "machine_deployment"

	// What the label says of hosts whose machine is gone, and of machines of no MachineDeployment, is the name of none. Each of
	// the two has one owner: the Sweeper, and the Reconciler.
	machineGone, withoutDeployment = "", "-"
)

var (
	cycles    = metrics.Counter("power_cycles_total", "Power cycles of hosts that have ended, by outcome.", "outcome")
	durations = metrics.Histogram("power_cycle_duration_seconds", "Seconds that power cycles were in a phase.", []float64{1, 5, 15, 30, 60, 120, 300, 600, 1200, 3600}, "phase")
	hostsOff  = metrics.Gauge("hosts_off", "Hosts that a power cycle requests to be off.")
	deadlines = metrics.Gauge("power_cycle_deadline_timestamp_seconds", "Time by which a host that is off, or requested to be off, for a power cycle must be powered on, in seconds since 1970.", labelDeployment, "machine", "host")
)

// count counts what has come to its end.
func count(d *remediation.Decision) {
	if d.Passed != "" {
		durations.WithLabelValues(d.Passed).Observe(d.Took.Seconds())
	}
	if d.Outcome != "" {
		cycles.WithLabelValues(d.Outcome).Inc()
	}
}

// labelOf returns what the label says of the machines of a request.
func labelOf(req reconcile.Request) string { return cmp.Or(req.Name, withoutDeployment) }

// observe replaces the deadlines of the hosts of a MachineDeployment.
func observe(deployment string, decisions []remediation.Decision) {
	// An increase can be seen only of what was there before.
	for _, outcome := range []string{v1alpha1.PowerCycleSucceeded, v1alpha1.PowerCycleFailed, v1alpha1.PowerCycleCancelled, remediation.DryRunOutcome} {
		cycles.WithLabelValues(outcome)
	}
	forget(deployment)
	for _, d := range decisions {
		if at := deadlineOf(&d); !at.IsZero() {
			deadlines.WithLabelValues(deployment, d.Machine.Name, nameOf(d.Host)).Set(float64(at.Unix()))
		}
	}
}

// deadlineOf returns by when a host must be off no longer; zero if it is on, or off for another reason. Of one that does not say whether
// it is, it may be.
func deadlineOf(d *remediation.Decision) time.Time {
	h := d.Host
	if h == nil {
		return time.Time{}
	}
	asked := h.Requested && h.Owner != nil && (h.Owner.UID == d.Machine.UID || d.Release)
	switch {
	case !asked && h.On != nil && *h.On:
		return time.Time{}
	case asked && d.Deadline.IsZero(): // it should have been released by now
		return h.Owner.Time
	}
	return d.Deadline
}

// observeHosts replaces what is known of all hosts of a control plane: how many are to be off, and the orphans among them,
// which should not.
func observeHosts(hosts, orphans []remediation.Host) {
	off := 0
	for _, h := range hosts {
		if h.Requested {
			off++
		}
	}
	hostsOff.WithLabelValues().Set(float64(off))
	forget(machineGone)
	for _, h := range orphans {
		deadlines.WithLabelValues(machineGone, h.Owner.Machine, nameOf(&h)).Set(float64(h.Owner.Time.Unix()))
	}
}

func nameOf(h *remediation.Host) string { return h.Namespace + "/" + h.Name }

// forget drops the deadlines of the hosts of a MachineDeployment.
func forget(deployment string) {
	deadlines.DeletePartialMatch(prometheus.Labels{labelDeployment: deployment})
}
