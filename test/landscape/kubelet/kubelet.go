// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package kubelet answers as a kubelet whose logs can be queried (enableSystemLogQuery), for what evidence asks one: its configuration,
// its statistics, and the journal of its node. A module of its own, test/nodelogs, compares it with the real one.
package kubelet

import (
	"compress/gzip"
	"embed"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	utilvalidation "k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	maxLines         = 100000
	maxServices      = 4
	maxServiceLength = 256
)

var (
	inNoName = regexp.MustCompile(`[^a-zA-Z0-9._:@-]`)
	// unknown are the parameters of a query that the real one knows and this one does not.
	unknown = []string{"sinceTime", "untilTime", "pattern"}
)

// Journal is what the services of a node have logged, by their names and the boots, of which the running one is the first. A service has
// all boots that the journal knows.
type Journal map[string][][]string

// Handler returns what answers for the kubelet of a node. The journal is read for each query. There are no files in /var/log.
func Handler(node string, journal func() Journal) http.Handler {
	answer := func(content string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = io.WriteString(w, content)
		}
	}
	mux, files := http.NewServeMux(), http.StripPrefix("/logs/", http.FileServerFS(embed.FS{}))
	mux.Handle("/configz", answer(`{"kubeletconfig":{"maxPods":110,"enableSystemLogQuery":true}}`))
	mux.Handle("/stats/summary", answer(fmt.Sprintf(`{"node":{"nodeName":%q},"pods":[]}`, node)))
	mux.HandleFunc("/logs/", func(w http.ResponseWriter, r *http.Request) {
		q, invalid := read(r.URL.Query())
		switch {
		case len(invalid) > 0:
			http.Error(w, invalid.ToAggregate().Error(), http.StatusBadRequest)
		case q == nil:
			files.ServeHTTP(w, r)
		case r.URL.Path != "/logs/":
			http.Error(w, "path not allowed in query mode", http.StatusNotAcceptable)
		default:
			q.answer(w, r, journal())
		}
	})
	return mux
}

// query is of the logs of services.
type query struct {
	services    []string
	boot, lines *int
	// others are parameters that only the real one knows.
	others []string
}

// read returns nil if there is no query.
func read(values url.Values) (*query, field.ErrorList) {
	var (
		q       query
		invalid field.ErrorList
	)
	for _, service := range values["query"] {
		if strings.TrimSpace(service) != "" {
			q.services = append(q.services, service)
		}
	}
	if values.Has("query") && len(q.services) == 0 {
		invalid = append(invalid, field.Invalid(field.NewPath("query"), values["query"], "may not be empty"))
	}
	number := func(name string) *int {
		value := values.Get(name)
		if value == "" {
			return nil
		}
		n, err := strconv.Atoi(value)
		if err != nil {
			invalid = append(invalid, field.Invalid(field.NewPath(name), value, err.Error()))
		}
		return &n
	}
	q.boot, q.lines = number("boot"), number("tailLines")
	q.others = slices.DeleteFunc(slices.Clone(unknown), func(name string) bool { return values.Get(name) == "" })
	if len(invalid) == 0 && len(q.services) == 0 && len(q.others) == 0 && q.boot == nil && q.lines == nil {
		return nil, nil
	}
	return &q, invalid
}

func (q *query) validate() field.ErrorList {
	var invalid field.ErrorList
	path := field.NewPath("query")
	for _, service := range q.services {
		switch {
		case len(service) > maxServiceLength:
			invalid = append(invalid, field.Invalid(path, service, fmt.Sprintf("length must be less than %d", maxServiceLength)))
		case inNoName.MatchString(service):
			invalid = append(invalid, field.Invalid(path, service, "input contains unsupported characters"))
		}
	}
	if len(q.services) > maxServices {
		invalid = append(invalid, field.TooMany(path, len(q.services), maxServices))
	}
	if len(q.services) == 0 {
		invalid = append(invalid, field.Required(path, "cannot be empty with options"))
	}
	if q.boot != nil && *q.boot > 0 {
		invalid = append(invalid, field.Invalid(field.NewPath("boot"), *q.boot, "must be less than 1"))
	}
	if q.lines != nil {
		for _, reason := range utilvalidation.IsInRange(*q.lines, 0, maxLines) {
			invalid = append(invalid, field.Invalid(field.NewPath("tailLines"), *q.lines, reason))
		}
	}
	return invalid
}

func (q *query) answer(w http.ResponseWriter, r *http.Request, journal Journal) {
	if len(q.others) > 0 || slices.ContainsFunc(q.services, func(service string) bool { return strings.ContainsAny(service, `/\`) }) {
		http.Error(w, fmt.Sprintf("kubelets of the landscape know neither files nor %v", unknown), http.StatusNotImplemented)
		return
	}
	if invalid := q.validate(); len(invalid) > 0 {
		http.Error(w, invalid.ToAggregate().Error(), http.StatusNotAcceptable)
		return
	}
	w.Header().Set("Content-Type", "text/plain;charset=UTF-8")
	out := io.Writer(w)
	if r.Header.Get("Accept-Encoding") == "gzip" {
		w.Header().Set("Content-Encoding", "gzip")
		zipped := gzip.NewWriter(w)
		defer zipped.Close()
		out = zipped
	}
	q.write(out, journal)
}

// write writes what journalctl says of the services that it knows, and what the kubelet says of others.
func (q *query) write(w io.Writer, journal Journal) {
	var others, units []string
	for _, service := range q.services {
		known := false
		for unit := range journal {
			known = known || strings.HasSuffix(unit, service) // the kubelet looks for it anywhere in what journalctl lists
		}
		if known {
			units = append(units, service)
		} else {
			others = append(others, service)
		}
	}
	if len(units) > 0 {
		q.writeJournal(w, journal, units)
	}
	if len(others) > 0 && (q.boot != nil || q.lines != nil) {
		fmt.Fprintf(w, "\noptions present and query resolved to log files for %v\ntry without specifying options\n", others)
		return
	}
	for _, service := range others {
		fmt.Fprintf(w, "\nlog not found for %s\n", service)
	}
}

func (q *query) writeJournal(w io.Writer, journal Journal, units []string) {
	var lines []string
	for _, unit := range units {
		switch boots := journal[unit]; {
		case len(boots) == 0: // it is only a part of another one's name
		case q.boot == nil:
			for _, boot := range slices.Backward(boots) {
				lines = append(lines, boot...)
			}
		case -*q.boot >= len(boots):
			fmt.Fprintf(w, "Data from the specified boot (%d) is not available: No such boot ID in journal\n", *q.boot)
			return
		default:
			lines = append(lines, boots[-*q.boot]...)
		}
	}
	if q.lines != nil {
		lines = lines[max(0, len(lines)-*q.lines):]
	}
	if len(lines) == 0 {
		lines = []string{"-- No entries --"}
	}
	for _, line := range lines {
		fmt.Fprintln(w, line)
	}
}
