// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

const (
	namespace = "machine_preservation"
	labelPool = "worker.gardener.cloud/pool"
)

var (
	transitions = prometheus.NewCounterVec(prometheus.CounterOpts{
		Namespace: namespace,
		Name:      "transitions_total",
		Help:      "Transitions that were written, by the id of their rule and the cause of the preservation.",
	}, []string{"rule", "cause"})
	refusals = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: namespace,
		Name:      "refusals_total",
		Help:      "Failed machines that were not preserved as no share was left.",
	})
	holdLead = prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: namespace,
		Name:      "hold_lead_seconds",
		Help:      "Seconds from the hold of a failing machine to the deadline on which machine-controller-manager acts. Below 0 the hold was late.",
		Buckets:   []float64{-60, -10, -1, 0, 0.5, 1, 2, 5, 10, 20, 30},
	})

	groups = newGroupCollector()
)

func init() {
	metrics.Registry.MustRegister(transitions, refusals, holdLead, groups)
}

// groupCollector has the gauges of all MachineDeployments, as of their last reconciliation.
type groupCollector struct {
	machines, share, used, expiry, drains *prometheus.Desc

	mutex   sync.Mutex
	metrics map[string][]prometheus.Metric
}

func newGroupCollector() *groupCollector {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName(namespace, "", name), help, append([]string{"pool", "zone", "machine_deployment"}, labels...), nil)
	}
	return &groupCollector{
		machines: desc("machines", "Preserved machines, by cause and sub-phase.", "cause", "phase"),
		share:    desc("share", "Failed machines of a MachineDeployment that may be auto-preserved."),
		used:     desc("share_used", "Machines in Failed:Preserved, whatever their cause."),
		expiry:   desc("expiry_timestamp_seconds", "When the preservation of a machine ends, in seconds since 1970.", "machine"),
		drains:   desc("drains", "Nodes of machines in Failed:Preserved, by the reason of their condition Preserved.", "reason"),
		metrics:  map[string][]prometheus.Metric{},
	}
}

// Describe implements prometheus.Collector.
func (c *groupCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{c.machines, c.share, c.used, c.expiry, c.drains} {
		ch <- desc
	}
}

// Collect implements prometheus.Collector.
func (c *groupCollector) Collect(ch chan<- prometheus.Metric) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, all := range c.metrics {
		for _, metric := range all {
			ch <- metric
		}
	}
}

// observe replaces the gauges of one MachineDeployment.
func (c *groupCollector) observe(deployment *machinev1alpha1.MachineDeployment, share *int32, decisions []preservation.Decision) {
	type kind struct{ cause, phase string }
	var (
		machines = map[kind]float64{}
		drains   = map[string]float64{}
		expiries = map[string]time.Time{}
		used     float64
		zone     string
	)
	for _, d := range decisions {
		if d.Node != nil && zone == "" {
			zone = d.Node.Labels[corev1.LabelTopologyZone]
		}
		if d.Target == nil {
			continue
		}
		machines[kind{d.Target.Cause, d.Target.Phase(d.Machine.Status.CurrentStatus.Phase)}]++
		expiries[d.Machine.Name] = d.Target.Expiry
		if !d.Target.Failed {
			continue
		}
		used++
		if d.Node == nil {
			continue
		}
		if condition := preservation.PreservedCondition(d.Node); condition != nil && condition.Status == corev1.ConditionTrue && condition.Reason != v1alpha1.ReasonPreserved {
			drains[condition.Reason]++
		}
	}

	var all []prometheus.Metric
	gauge := func(desc *prometheus.Desc, value float64, labels ...string) {
		labels = append([]string{deployment.Spec.Template.Spec.NodeTemplateSpec.Labels[labelPool], zone, deployment.Name}, labels...)
		all = append(all, prometheus.MustNewConstMetric(desc, prometheus.GaugeValue, value, labels...))
	}
	if share != nil {
		gauge(c.share, float64(*share))
	}
	gauge(c.used, used)
	for kind, count := range machines {
		gauge(c.machines, count, kind.cause, kind.phase)
	}
	for reason, count := range drains {
		gauge(c.drains, count, reason)
	}
	for machine, expiry := range expiries {
		gauge(c.expiry, float64(expiry.Unix()), machine)
	}

	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.metrics[deployment.Name] = all
}

// forget drops the gauges of one MachineDeployment.
func (c *groupCollector) forget(deployment string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	delete(c.metrics, deployment)
}

// countTransition counts a transition that was written.
func countTransition(d *preservation.Decision, now time.Time) {
	cause := ""
	if d.Target != nil {
		cause = d.Target.Cause
	} else if d.Current != nil {
		cause = d.Current.Cause
	}
	transitions.WithLabelValues(d.Rule, cause).Inc()
	if d.Target != nil && d.Target.Failed && (d.Current == nil || !d.Current.Failed) && !d.Deadline.IsZero() {
		holdLead.Observe(d.Deadline.Sub(now).Seconds())
	}
}
