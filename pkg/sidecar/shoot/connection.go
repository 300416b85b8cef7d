// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"net/http"
	"strings"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Connection notices whether the shoot's API server answers the requests that keep the nodes up to date. The informer
// tells nobody when it cannot watch any more: it goes on with what it knows, and tries again.
type Connection struct{ lost atomic.Bool }

// Wrap returns a transport that notices the answers to requests that list or watch nodes.
func (c *Connection) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(req)
		if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/api/v1/nodes") {
			c.lost.Store(err != nil || response.StatusCode >= http.StatusBadRequest)
		}
		return response, err
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// Synced says that all nodes are known as they are now: they have been read once, and changes to them arrive.
func (n *Nodes) Synced() bool {
	return n.Known() && (n.connection == nil || !n.connection.lost.Load())
}

// Report serves a metric that tells whether the nodes are synced over a connection.
func (n *Nodes) Report(connection *Connection) {
	n.connection = connection
	synced.nodes.Store(n)
}

var synced = &syncedCollector{desc: prometheus.NewDesc("machine_preservation_shoot_synced",
	"1 if the shoot's nodes are known as they are now, 0 if their API server is away or denies access.", nil, nil)}

func init() { metrics.Registry.MustRegister(synced) }

// syncedCollector serves nothing where nothing is reported: the package is also part of a process that has no shoot.
type syncedCollector struct {
	desc  *prometheus.Desc
	nodes atomic.Pointer[Nodes]
}

// Describe implements prometheus.Collector.
func (c *syncedCollector) Describe(ch chan<- *prometheus.Desc) { ch <- c.desc }

// Collect implements prometheus.Collector.
func (c *syncedCollector) Collect(ch chan<- prometheus.Metric) {
	if nodes := c.nodes.Load(); nodes != nil {
		value := 0.0
		if nodes.Synced() {
			value = 1
		}
		ch <- prometheus.MustNewConstMetric(c.desc, prometheus.GaugeValue, value)
	}
}
