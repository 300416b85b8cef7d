// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// patience is for how long the extension may be busy.
const patience = 30 * time.Minute

// call is a request that the API server has answered.
type call struct {
	verb string
	// resource is with the subresource: "extensions/status".
	resource string
	// fields is the field selector.
	fields   string
	from, to time.Time
}

// checks are what the health checks do, and nothing else.
var checks = sets.New("update extensions/status", "list machines", "list pods")

func (c call) kind() string { return c.verb + " " + c.resource }

// audit is the log of an API server. It knows the calls of one user.
type audit struct {
	path, user string

	offset int64
	calls  calls
	// checks are the calls of health checks, which are made every minute, whatever happens.
	checks calls
	// watches are the resources that were watched, with the field selector.
	watches map[string]bool
}

// read adds what has been logged since the last time.
func (a *audit) read() error {
	file, err := os.Open(a.path)
	if err != nil {
		return err
	}
	defer file.Close()
	if _, err := file.Seek(a.offset, io.SeekStart); err != nil {
		return err
	}

	lines := bufio.NewReader(file)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return nil // what follows the last line is being written
		}
		if err != nil {
			return err
		}
		a.offset += int64(len(line))
		event := auditv1.Event{}
		if err := json.Unmarshal(line, &event); err != nil {
			return fmt.Errorf("could not read the audit log %s: %w", a.path, err)
		}
		if event.User.Username == a.user && event.ObjectRef != nil {
			a.add(&event)
		}
	}
}

func (a *audit) add(event *auditv1.Event) {
	c := call{
		verb:     event.Verb,
		resource: event.ObjectRef.Resource,
		from:     event.RequestReceivedTimestamp.Time,
		to:       event.StageTimestamp.Time,
	}
	if event.ObjectRef.Subresource != "" {
		c.resource += "/" + event.ObjectRef.Subresource
	}
	if parsed, err := url.Parse(event.RequestURI); err == nil {
		c.fields = parsed.Query().Get("fieldSelector")
	}

	switch {
	case c.verb == "watch":
		if a.watches == nil {
			a.watches = map[string]bool{}
		}
		a.watches[strings.TrimSpace(c.resource+" "+c.fields)] = true
	case c.resource == "leases": // the heartbeat, whatever happens
	case event.Stage != auditv1.StageResponseComplete:
	case checks.Has(c.kind()):
		a.checks = append(a.checks, c)
	default:
		a.calls = append(a.calls, c)
	}
}

// quiet waits until there has been no call for some time, but those of health checks.
func (a *audit) quiet(ctx context.Context, period time.Duration) error {
	started := time.Now()
	for {
		if time.Since(started) > patience {
			return fmt.Errorf("the extension does not come to rest, its last calls are: %s", a.calls.since(time.Now().Add(-period)))
		}
		if err := a.read(); err != nil {
			return err
		}
		last := started
		if len(a.calls) > 0 && a.calls[len(a.calls)-1].to.After(last) {
			last = a.calls[len(a.calls)-1].to
		}
		if time.Since(last) > period {
			return nil
		}
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
}

// calls are in the order in which they were answered.
type calls []call

// since returns the calls that were received from a time on.
func (c calls) since(from time.Time) calls {
	return slices.DeleteFunc(slices.Clone(c), func(c call) bool { return c.from.Before(from) })
}

// of returns the calls for a resource.
func (c calls) of(verb, resource string) calls {
	return slices.DeleteFunc(slices.Clone(c), func(c call) bool { return c.verb != verb || c.resource != resource })
}

// String counts the calls by what they are, the most frequent first.
func (c calls) String() string {
	counts := map[string]int{}
	for _, call := range c {
		counts[call.kind()]++
	}
	kinds := slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		if counts[a] != counts[b] {
			return counts[b] - counts[a]
		}
		return strings.Compare(a, b)
	})
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%d %s", counts[kind], kind)
	}
	if len(kinds) == 0 {
		return "none"
	}
	return strings.Join(kinds, ", ")
}

// pause waits, unless the benchmark ends before.
func pause(ctx context.Context, period time.Duration) error {
	select {
	case <-time.After(period):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
