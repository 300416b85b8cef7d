// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// The agents whose writes are counted. The containers of one pod share the pod's service account in the seed, so the user
// alone does not tell them apart.
const (
	agentSidecar  = "machine-preservation-controller"
	agentManager  = "machine-controller-manager"
	agentProvider = "machine-controller-manager-provider-local"
)

// write is a request of a service account that changes an object.
type write struct {
	agent string
	verb  string
	// resource is with the subresource: "nodes/status".
	resource string
	name     string
	at       time.Time
	// refused says that nothing was written because of a conflict, or of a test that a JSON patch has failed.
	refused bool
}

// writes are in the order of the API server's log.
type writes []write

// readWrites reads the writes from the audit logs of API servers.
func readWrites(paths ...string) (writes, error) {
	var all writes
	for _, path := range paths {
		file, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		parsed, err := parseWrites(file)
		_ = file.Close() // it was only read
		if err != nil {
			return nil, fmt.Errorf("could not read audit log %s: %w", path, err)
		}
		all = append(all, parsed...)
	}
	return all, nil
}

// parseWrites returns the writes of an audit log: all requests that could change something, whether or not they did, but
// for Leases.
func parseWrites(log io.Reader) (writes, error) {
	var (
		parsed writes
		lines  = bufio.NewReader(log)
	)
	for {
		line, err := lines.ReadBytes('\n')
		if err == io.EOF {
			return parsed, nil // what follows the last line is being written
		}
		if err != nil {
			return nil, err
		}
		event := auditv1.Event{}
		if err := json.Unmarshal(line, &event); err != nil {
			return nil, err
		}
		if event.Stage != auditv1.StageResponseComplete || event.ObjectRef == nil || !isWrite(event.Verb) {
			continue
		}
		resource := event.ObjectRef.Resource
		if resource == "leases" {
			continue
		}
		if event.ObjectRef.Subresource != "" {
			resource += "/" + event.ObjectRef.Subresource
		}
		agent, _, _ := strings.Cut(event.UserAgent, "/")
		parsed = append(parsed, write{
			agent:    agent,
			verb:     event.Verb,
			resource: resource,
			name:     event.ObjectRef.Name,
			at:       event.RequestReceivedTimestamp.Time,
			refused:  event.ResponseStatus != nil && slices.Contains([]int32{http.StatusConflict, http.StatusUnprocessableEntity}, event.ResponseStatus.Code),
		})
	}
}

func isWrite(verb string) bool {
	switch verb {
	case "create", "update", "patch", "delete", "deletecollection":
		return true
	}
	return false
}

// of returns the writes of some agents.
func (w writes) of(agents ...string) writes {
	return w.where(func(w write) bool { return slices.Contains(agents, w.agent) })
}

// between returns the writes within a time.
func (w writes) between(from, to time.Time) writes {
	return w.where(func(w write) bool { return !w.at.Before(from) && w.at.Before(to) })
}

// from returns the writes from a time on.
func (w writes) from(from time.Time) writes {
	return w.where(func(w write) bool { return !w.at.Before(from) })
}

// untilDeletion returns the writes before a Machine is deleted, which are all if it is not.
func (w writes) untilDeletion() writes {
	if i := slices.IndexFunc(w, func(w write) bool { return w.resource == "machines" && w.verb == "delete" }); i >= 0 {
		return w.where(func(before write) bool { return before.at.Before(w[i].at) })
	}
	return w
}

// to returns the writes to a Machine and its Node.
func (w writes) to(machine, node string) writes {
	return w.where(func(w write) bool {
		switch resource, _, _ := strings.Cut(w.resource, "/"); resource {
		case "machines":
			return w.name == machine
		case "nodes":
			return w.name == node
		}
		return false
	})
}

// toLedger returns how many entries of the ledger were written, and how often the one was that was written most. What deletes old ones is
// no write of an entry.
func (w writes) toLedger() (entries, most int) {
	counts := map[string]int{}
	for _, write := range w {
		if resource, _, _ := strings.Cut(write.resource, "/"); resource == "machinefailures" && write.verb != "delete" {
			counts[write.name]++
			most = max(most, counts[write.name])
		}
	}
	return len(counts), most
}

// refused returns the writes that had no effect because of a conflict.
func (w writes) refused() writes {
	return w.where(func(w write) bool { return w.refused })
}

func (w writes) where(matches func(write) bool) writes {
	var matching writes
	for _, write := range w {
		if matches(write) {
			matching = append(matching, write)
		}
	}
	return matching
}

// String counts the writes by what they are.
func (w writes) String() string {
	counts := map[string]int{}
	var kinds []string
	for _, write := range w {
		kind := write.verb + " " + write.resource
		if counts[kind]++; counts[kind] == 1 {
			kinds = append(kinds, kind)
		}
	}
	for i, kind := range kinds {
		kinds[i] = fmt.Sprintf("%d %s", counts[kind], kind)
	}
	return strings.Join(kinds, ", ")
}
