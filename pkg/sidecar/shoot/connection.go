// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
)

// Connection notices whether the shoot's API server answers the requests that keep the nodes up to date. The informer
// tells nobody when it cannot watch any more: it goes on with what it knows, and tries again.
type Connection struct {
	// Clock is a real one if it is nil.
	Clock clock.PassiveClock

	// answers says that the last request was answered, and back since when they are: before the first it counts as away.
	answers atomic.Bool
	back    atomic.Pointer[time.Time]
}

// NewCache returns a cluster's cache whose requests are noticed. Only these are: what else is asked for may be given up by who asks,
// and nothing would say again that the API server answers until the informer watches anew, in minutes.
func (c *Connection) NewCache(config *rest.Config, opts cache.Options) (cache.Cache, error) {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	config = rest.CopyConfig(config)
	config.Wrap(c.wrap)
	opts.HTTPClient = nil // that of the cluster does not notice them
	opts.NewInformer = newInformer(opts.ByObject)
	return cache.New(config, opts)
}

// wrap returns a transport that notices the answers to requests that list or watch nodes.
func (c *Connection) wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		response, err := next.RoundTrip(req)
		if req.Method == http.MethodGet && strings.HasSuffix(req.URL.Path, "/api/v1/nodes") {
			answers := err == nil && response.StatusCode < http.StatusBadRequest
			if !c.answers.Swap(answers) && answers {
				c.back.Store(new(c.Clock.Now()))
			}
			if err == nil {
				response.Body = &noticedBody{response.Body, func() { c.answers.Store(false) }}
			}
		}
		return response, err
	})
}

// noticedBody is the body of an answer that tells when it is too large to be read.
type noticedBody struct {
	io.ReadCloser
	tooLarge func()
}

// Read implements io.Reader.
func (b *noticedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if errors.Is(err, errTooLarge) {
		b.tooLarge()
	}
	return n, err
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }

// Synced says that all nodes are known as they are now: they have been read once, and changes to them arrive.
func (n *Nodes) Synced() bool {
	return n.Known() && (n.connection == nil || n.connection.answers.Load())
}

// Back returns since when the shoot's API server answers, again or for the first time; zero if it never has, or nobody reports.
func (n *Nodes) Back() time.Time {
	if n.connection == nil {
		return time.Time{}
	}
	return ptr.Deref(n.connection.back.Load(), time.Time{})
}

// Report serves a metric that tells whether the nodes are synced over a connection. It is not served where nobody reports:
// the package is also part of a process that has no shoot.
func (n *Nodes) Report(connection *Connection) error {
	n.connection = connection
	return metrics.Registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "machine_preservation_shoot_synced",
		Help: "1 if the shoot's nodes are known as they are now, 0 if their API server is away or denies access.",
	}, func() float64 {
		if n.Synced() {
			return 1
		}
		return 0
	}))
}
