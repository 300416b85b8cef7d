// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package metrics makes the metrics of this project, and has them served by the process that imports them. The reference of
// metrics is generated from its calls.
package metrics

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Namespace begins the name of each metric.
const Namespace = "machine_preservation"

// Counter returns a counter. As a Gauge and a Histogram, it serves nothing before WithLabelValues was called, even if it has no labels.
func Counter(name, help string, labels ...string) *prometheus.CounterVec {
	return promauto.With(metrics.Registry).NewCounterVec(prometheus.CounterOpts{Namespace: Namespace, Name: name, Help: help}, labels)
}

// Gauge returns a gauge.
func Gauge(name, help string, labels ...string) *prometheus.GaugeVec {
	return promauto.With(metrics.Registry).NewGaugeVec(prometheus.GaugeOpts{Namespace: Namespace, Name: name, Help: help}, labels)
}

// Histogram returns a histogram with the upper bounds of its buckets.
func Histogram(name, help string, buckets []float64, labels ...string) *prometheus.HistogramVec {
	return promauto.With(metrics.Registry).NewHistogramVec(prometheus.HistogramOpts{Namespace: Namespace, Name: name, Help: help, Buckets: buckets}, labels)
}

// GaugeFunc has a gauge served whose value is asked for each time. It returns an error if it is served already.
func GaugeFunc(name, help string, value func() float64) error {
	return metrics.Registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: Namespace, Name: name, Help: help}, value))
}
