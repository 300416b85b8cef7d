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

	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/metrics"
)

// Connection notices whether the shoot's API server answers the requests of the informer for nodes. The informer does not report when
// it cannot watch any more: it continues with what it knows, and tries again.
type Connection struct {
	// Clock is the real clock if it is nil.
	Clock clock.PassiveClock

	// answers says whether the last request was answered, and back since when requests are answered. Before the first answer, the API
	// server counts as away.
	answers atomic.Bool
	back    atomic.Pointer[time.Time]
}

// NewCache returns a cluster's cache whose requests are noticed, and no other requests: a caller may cancel its own request, and the API
// server would count as away until the informer watches again, minutes later.
func (c *Connection) NewCache(config *rest.Config, opts cache.Options) (cache.Cache, error) {
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	config = rest.CopyConfig(config)
	config.Wrap(c.wrap)
	opts.HTTPClient = nil // the cluster's client does not notice the requests
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

// noticedBody is the body of an answer. It calls tooLarge when the answer is too large to be read.
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

// Synced says whether the nodes are up to date: all have been read once, and their changes arrive.
func (n *Nodes) Synced() bool {
	return n.Known() && (n.connection == nil || n.connection.answers.Load())
}

// Back returns since when the shoot's API server answers, again or for the first time. It is zero if it never answered, or without a
// Connection.
func (n *Nodes) Back() time.Time {
	if n.connection == nil {
		return time.Time{}
	}
	return ptr.Deref(n.connection.back.Load(), time.Time{})
}

// Report serves a metric that shows whether the nodes are synced over a connection. Without a call of Report, the metric is not served:
// the package is also part of a process that has no shoot.
func (n *Nodes) Report(connection *Connection) error {
	n.connection = connection
	return metrics.GaugeFunc("shoot_synced", "1 if the shoot's nodes are known as they are now, 0 if their API server is away or denies access.", func() float64 {
		if n.Synced() {
			return 1
		}
		return 0
	})
}
