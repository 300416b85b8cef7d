// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"context"
	"net/http"
	"strings"
	"sync"
)

// Calls are the requests to the shoot that a controller makes, but for those that keep the nodes up to date.
type Calls struct {
	mutex sync.Mutex
	made  []string
	// watches is the number of watches of pods that are open.
	watches int
}

// Wrap counts what is sent by a transport.
func (c *Calls) Wrap(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		if req.URL.Path != "/api/v1/nodes" {
			watches := req.URL.Query().Get("watch") != "" && strings.HasSuffix(req.URL.Path, "/pods")
			c.mutex.Lock()
			c.made = append(c.made, req.Method+" "+req.URL.Path+" "+req.URL.Query().Get("fieldSelector"))
			if watches {
				c.watches++
			}
			c.mutex.Unlock()
			if watches {
				context.AfterFunc(req.Context(), func() {
					c.mutex.Lock()
					defer c.mutex.Unlock()
					c.watches--
				})
			}
		}
		return next.RoundTrip(req)
	})
}

// Open returns how many watches of pods are open.
func (c *Calls) Open() int {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.watches
}

// Take returns all requests since the last call.
func (c *Calls) Take() []string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	made := c.made
	c.made = nil
	return made
}

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return r(req) }
