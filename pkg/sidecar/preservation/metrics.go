// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/metrics"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

const (
	labelDeployment = "machine_deployment"

	// Kinds of the objects that errors are counted by.
	kindMachine = "machine"
	kindNode    = "node"
	kindLease   = "lease"

	// causeOther stands for whatever somebody wrote in place of a cause.
	causeOther = "other"
)

var (
	causes = preservation.Causes()
	// outcomes are those of validations.
	outcomes = []string{preservation.WhyValidated.ID, preservation.WhyNotValidated.ID}

	transitions = metrics.Counter("transitions_total", "Transitions that were written, by their rule, their reason and the cause of the preservation.", "rule", "reason", "cause", "pool")
	refusals    = metrics.Counter("refusals_total", "Failed machines that were not preserved although they might have been.", "pool")
	validations = metrics.Counter("validations_total", "Machines that were validated after they came back, or were not in time, by pool and outcome.", "pool", "outcome")
	holdLead    = metrics.Histogram("hold_lead_seconds", "Seconds from the hold of a failing machine to the deadline at which machine-controller-manager acts. Below 0, the hold was late.", []float64{-60, -10, -1, 0, 0.5, 1, 2, 5, 10, 20, 30}, "pool", "cause")
	errorsTotal = metrics.Counter("errors_total", "Attempts to carry out a decision that failed, by the kind of the object.", "pool", "kind")

	machineHours    = metrics.Gauge("machine_hours", "Machine-hours for which requests and auto-preservation have preserved machines since the beginning of the month in UTC.", "pool")
	machineHoursMax = metrics.Gauge("machine_hours_max", "Machine-hours of all pools that operators allow in a month.")

	// The gauges of a MachineDeployment, as its last reconciliation has left it. A scrape that comes while they are being
	// replaced misses some of them, for microseconds: no alert depends on a single scrape.
	machines = metrics.Gauge("machines", "Preserved machines, by cause and sub-phase.", "pool", "zone", labelDeployment, "cause", "phase")
	share    = metrics.Gauge("share", "Places of a MachineDeployment for auto-preservation. Of those that share their places, the first one by name has them all, and the others have 0.", "pool", "zone", labelDeployment)
	used     = metrics.Gauge("share_used", "Machines in Failed:Preserved, of any cause, except those that only a maintenance or a power cycle preserves.", "pool", "zone", labelDeployment)
	expiry   = metrics.Gauge("expiry_timestamp_seconds", "When the preservation of a machine ends, in seconds since 1970.", "pool", "zone", labelDeployment, "machine")
	since    = metrics.Gauge("since_timestamp_seconds", "When the preservation of a machine began, in seconds since 1970.", "pool", "zone", labelDeployment, "machine")
	drains   = metrics.Gauge("drains", "Nodes of machines in Failed:Preserved, by the reason of their condition Preserved.", "pool", "zone", labelDeployment, "reason")

	storm   = metrics.Gauge("storm", "1 while more machines of the shoot fail at the same time than operators allow, else 0.")
	failing = metrics.Gauge("machines_failing", "Machines of the shoot that fail at the same time.")

	gauges = []*prometheus.GaugeVec{machines, share, used, expiry, since, drains}
)

// poolOf returns the worker pool of a MachineDeployment, as Gardener has its nodes labelled.
func poolOf(deployment *machinev1alpha1.MachineDeployment) string {
	return deployment.Spec.Template.Spec.NodeTemplateSpec.Labels[facts.LabelPool]
}

// observe replaces the gauges of one MachineDeployment by what is written on its machines: as they were read, or as a task
// has left them.
func observe(deployment *machinev1alpha1.MachineDeployment, group preservation.Group, ended []*task, now time.Time) {
	tasks := make(map[types.UID]*task, len(ended))
	for _, task := range ended {
		tasks[task.uid()] = task
	}
	pool := poolOf(deployment)
	with := func(gauge *prometheus.GaugeVec, labels ...string) prometheus.Gauge {
		zone := deployment.Spec.Template.Spec.NodeTemplateSpec.Labels[corev1.LabelTopologyZone]
		return gauge.WithLabelValues(append([]string{pool, zone, deployment.Name}, labels...)...)
	}

	forget(deployment.Name)
	if group.Share != nil {
		places := *group.Share
		if !group.CountsPlaces() {
			places = 0
		}
		with(share).Set(float64(places))
	}
	with(used).Set(0)
	for _, member := range group.Members {
		if task := tasks[member.Machine.UID]; task != nil {
			member.Machine, member.Node = task.machine(), task.node()
		}
		record := preservation.ReadRecord(member.Machine)
		if record == nil {
			continue
		}
		with(machines, causeLabel(record.Cause()), record.Phase(member.Machine.Status.CurrentStatus.Phase)).Inc()
		if at := record.Expiry(); !at.IsZero() {
			with(expiry, member.Machine.Name).Set(float64(at.Unix()))
		}
		if !record.Since.IsZero() {
			with(since, member.Machine.Name).Set(float64(record.Since.Unix()))
		}
		if record.Failed && record.HasPlace(now) {
			with(used).Inc()
		}
		if !record.Drains() || member.Node == nil {
			continue
		}
		if c := preservation.PreservedCondition(member.Node); c != nil && c.Status == corev1.ConditionTrue && v1alpha1.IsDrainReason(c.Reason) {
			with(drains, c.Reason).Inc()
		}
	}

	// An increase can be seen only of what was there before.
	refusals.WithLabelValues(pool)
	if group.Validation != nil {
		for _, outcome := range outcomes {
			validations.WithLabelValues(pool, outcome)
		}
	}
	for _, kind := range []string{kindMachine, kindNode, kindLease} {
		errorsTotal.WithLabelValues(pool, kind)
	}
	for _, cause := range causes {
		holdLead.WithLabelValues(pool, cause)
	}
}

// observeStorm replaces the gauges of the shoot.
func observeStorm(s facts.Storm) {
	value := 0.0
	if s.IsOn() {
		value = 1
	}
	storm.WithLabelValues().Set(value)
	failing.WithLabelValues().Set(float64(s.Failing))
}

// forget drops the gauges of one MachineDeployment.
func forget(deployment string) {
	for _, gauge := range gauges {
		gauge.DeletePartialMatch(prometheus.Labels{labelDeployment: deployment})
	}
}

// forgetPool drops what is counted by pool.
func forgetPool(pool string) {
	for _, counted := range []interface{ DeletePartialMatch(prometheus.Labels) int }{transitions, refusals, validations, holdLead, errorsTotal} {
		counted.DeletePartialMatch(prometheus.Labels{"pool": pool})
	}
}

// countTransition counts a transition that was written.
func countTransition(d *preservation.Decision, pool string, now time.Time) {
	cause := causeOther
	if d.Target != nil {
		cause = causeLabel(d.Target.Cause())
	} else if d.Current != nil {
		cause = causeLabel(d.Current.Cause())
	}
	transitions.WithLabelValues(string(d.Rule), d.Why.ID, cause, pool).Inc()
	if slices.Contains(outcomes, d.Why.ID) {
		validations.WithLabelValues(pool, d.Why.ID).Inc()
	}
	if d.Target != nil && d.Target.Failing() && (d.Current == nil || !d.Current.Failing()) && !d.Deadline.IsZero() {
		holdLead.WithLabelValues(pool, cause).Observe(d.Deadline.Sub(now).Seconds())
	}
}

func causeLabel(cause string) string {
	if slices.Contains(causes, cause) {
		return cause
	}
	return causeOther
}
