// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package evidence gathers what is known of nodes and their machines at a time, and keeps it in a file.
package evidence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/panics"
)

// How long one question may take.
var (
	callTimeout = 10 * time.Second
	nodeTimeout = 5 * time.Second
	logTimeout  = 15 * time.Second
	// nodeLogsTime is how long all logs of a node may take.
	nodeLogsTime = 30 * time.Second
)

// Sources is where evidence comes from. The readers must ask the API servers: caches know neither of pages nor of field
// selectors.
type Sources struct {
	// Tool is what gathers, with its version.
	Tool  string
	Clock clock.PassiveClock
	// Name is that of a node, or of a machine where Seed is known.
	Name string
	// Shoot is nil where there is no access to the shoot.
	Shoot client.Reader
	// NodeProxy is nil where the kubelet is not to be asked.
	NodeProxy NodeProxy
	// EarlierLogs are taken where they cannot be had of the node any more, nil for none.
	EarlierLogs *NodeLogs
	// MaxLog is how many bytes of each log are kept, its last ones; 0 is 4 MiB.
	MaxLog int
	// Seed is nil where there is no access to the seed.
	Seed          client.Reader
	SeedNamespace string
	// Host returns all objects that the host of a machine consists of. It is nil where there are no hosts.
	Host func(context.Context, *machinev1alpha1.Machine) ([]unstructured.Unstructured, error)
	// Controller is how the preservation controller runs, or nil if nobody knows. Where it is nil, its Deployment is asked for it.
	Controller *observed.Controller
	// PodLogs are those of the seed, which take the Deployment. Where it is nil, neither they nor the provider's Pod of the machine
	// are looked at.
	PodLogs PodLogs
}

// NodeProxy returns what a kubelet answers to a GET through the shoot's API server. If last is more than 0, only so many bytes at
// the end are of interest.
type NodeProxy func(ctx context.Context, node, path string, query url.Values, last int64) (io.ReadCloser, error)

// PodLogs returns the log of a container.
type PodLogs func(ctx context.Context, namespace, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error)

// whatKubelet is noted where a kubelet cannot be asked for anything.
const whatKubelet observed.Thing = "what the kubelet knows: its configuration, statistics and logs of the node"

// errNoSeed is why there are no machines in a cluster without their API.
var errNoSeed = errors.New("it does not have this API: check that this is the seed")

// ErrNotFound says that there is neither a node nor a machine of the name.
var ErrNotFound = errors.New("neither a node nor a machine with this name was found")

// collector gathers one bundle. What cannot be had is noted in it.
type collector struct {
	Sources
	mu       sync.Mutex
	bundle   *Bundle
	redacted counts

	machine     *machinev1alpha1.Machine
	mcm         *appsv1.Deployment
	siblings    sets.Set[string]
	pool        string
	nodeUnknown bool
}

// Collect gathers what is known of a node and its machine, until the context's deadline. What cannot be had is noted in the
// bundle; it is an error only if there is no such node and machine, or if nothing can be asked, or if the context is cancelled.
func Collect(ctx context.Context, sources Sources) (*Bundle, error) {
	c := newCollector(sources)
	c.readMachines(ctx)
	if err := c.find(ctx); err != nil {
		return nil, err
	}

	var wait sync.WaitGroup
	for _, of := range []struct {
		what   observed.Thing
		gather func(context.Context)
	}{
		{observed.WhatShoot, c.shootObjects},
		{observed.WhatMachineEvents, c.seedEvents},
		{observed.WhatHost, c.hostObjects},
		{"logs of the node", c.ofKubelet},
		{"logs of the seed", c.seedLogs},
	} {
		wait.Go(func() {
			if err := panics.Catch(ctx, func() error { of.gather(ctx); return nil }); err != nil {
				c.note(of.what, cutError{err}) // what was had before is kept
			}
		})
	}
	wait.Wait()
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, ctx.Err()
	}
	c.takeEarlierLogs()
	c.bundle.redacted = c.redacted
	redact(&c.bundle.Snapshot, c.redacted)
	sortSnapshot(&c.bundle.Snapshot)
	slices.SortFunc(c.bundle.files, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	return c.bundle, nil
}

func newCollector(sources Sources) *collector {
	sources.MaxLog = cmp.Or(sources.MaxLog, maxLog)
	c := &collector{Sources: sources, redacted: counts{}, siblings: sets.New[string]()}
	c.bundle = &Bundle{Tool: sources.Tool, Snapshot: observed.Snapshot{Time: sources.Clock.Now().UTC().Truncate(time.Second)}}
	return c
}

// call asks something with the time for it.
func (c *collector) call(ctx context.Context, timeout time.Duration, ask func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return errNoTime
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := panics.Catch(ctx, func() error { return ask(limited) })
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errNoTime
	case limited.Err() != nil:
		return fmt.Errorf("no answer within %s", timeout)
	}
	return err
}

var errNoTime = errors.New("there was no time left")

// try asks something, and notes if it could not be had.
func (c *collector) try(ctx context.Context, what observed.Thing, ask func(context.Context) error) bool {
	err := c.call(ctx, callTimeout, ask)
	c.note(what, err)
	return err == nil
}

// note notes what could not be had, unless the error is nil.
func (c *collector) note(what observed.Thing, err error) {
	if err == nil {
		return
	}
	partial := errors.As(err, new(cutError)) // what was asked for is known
	c.set(func() {
		c.bundle.Snapshot.Missing = append(c.bundle.Snapshot.Missing, observed.Missing{Thing: observed.Thing(line(string(what))), Partial: partial, Reason: line(err.Error())})
	})
}

func (c *collector) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// addFile adds a file with JSON.
func (c *collector) addFile(path string, data []byte) {
	data, n := scrubJSON(data)
	c.set(func() {
		c.redacted.add(redactedCredentials, n)
		c.bundle.files = append(c.bundle.files, file{path: path, data: data})
	})
}

// addLog adds a log without its first bytes, which only tell what the others are the rest of.
func (c *collector) addLog(path string, data []byte, lead int, cut int64, broken bool) {
	data, n := scrubFrom(data, lead)
	c.set(func() {
		c.redacted.add(redactedCredentials, n)
		c.bundle.files = append(c.bundle.files, file{path: path, data: data, log: true, cut: cut, broken: broken, redacted: n})
	})
}
