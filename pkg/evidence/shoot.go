// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"io"
	"regexp"
	"slices"
	"strings"

	eventsv1 "k8s.io/api/events/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

const (
	// controlPlane takes the place of the namespace in the seed.
	controlPlane = "control-plane"
	eventsName   = "seed/events.json"
)

// fromSeed are the files with what the seed knows that are for the owner of the shoot as well.
var fromSeed = []string{"seed/machines.json", "seed/other-machines.json", "seed/machinesets.json", "seed/machinedeployments.json", eventsName}

// forOperators are the reasons of Events on Machines that stay in the seed. Their notes quote errors of API servers, with addresses, name
// hosts, or count the failures of other shoots on a host.
var forOperators = []string{"EvidenceIncomplete", "EvidenceFailed", "HostQuarantined", "HostNotQuarantined", "PowerCycleHostReleased"}

// WriteForShoot reads a bundle, and writes what of it is for the owner of the shoot, as a bundle of at most maxSize bytes: what the shoot
// and its nodes know, and of the seed the machines and their Events, without what these say of the seed itself.
func WriteForShoot(w io.Writer, r io.Reader, maxSize int64) (Size, error) {
	manifest, written, err := open(r)
	if err != nil {
		return Size{}, err
	}
	if err := leaveSeed(manifest, written); err != nil {
		return Size{}, err
	}
	s, err := snapshotOf(manifest, written)
	if err != nil {
		return Size{}, err
	}
	b := &Bundle{Tool: manifest.Tool, Node: manifest.Node, Machine: manifest.Machine, Snapshot: *s}
	files, _, err := b.objects(written)
	if err != nil {
		return Size{}, err
	}
	for _, f := range manifest.Files {
		if strings.HasPrefix(f.Path, "node/") {
			files = append(files, file{path: f.Path, data: written[f.Path], log: strings.HasPrefix(f.Path, "node/logs/"), cut: f.Cut})
		}
	}
	redacted := counts{}
	for _, r := range manifest.Redacted {
		redacted.add(r.What, r.Count)
	}
	return b.write(w, files, redacted, maxSize)
}

// address is what a text has that tells where an API server is.
var address = regexp.MustCompile(`://|\bdial\b|\blookup\b|\b\d+\.\d+\.\d+\.\d+\b`)

// leaveSeed removes the files that are the seed's, the name of its namespace, addresses of API servers, Events for operators, and who
// reported the others.
func leaveSeed(manifest *Manifest, files map[string][]byte) error {
	if files[controllerName] != nil {
		manifest.Missing = append(manifest.Missing, observed.Missing{Thing: observed.WhatController, Reason: "they stay in the seed"})
	}
	for i := range manifest.Missing {
		// Of hosts, reasons name others than the machine does.
		if m := manifest.Missing[i]; address.MatchString(m.Reason) || m.Thing == observed.WhatHost {
			manifest.Missing[i].Reason = "it could not be asked"
		}
	}
	if files[hostsName] != nil {
		manifest.Missing = append(manifest.Missing, observed.Missing{Thing: observed.WhatHost, Reason: "it stays in the seed"})
	}
	var namespace *regexp.Regexp
	if manifest.Namespace != "" {
		// Names of machines begin with it as well, and the shoot knows these.
		namespace = regexp.MustCompile(`\b` + regexp.QuoteMeta(manifest.Namespace) + `([^a-z0-9-])`)
		manifest.Namespace = controlPlane
	}
	for path, data := range files {
		switch {
		case strings.HasPrefix(path, "shoot/"), strings.HasPrefix(path, "node/"):
		case slices.Contains(fromSeed, path):
			if namespace != nil {
				files[path] = namespace.ReplaceAll(data, []byte(controlPlane+"$1"))
			}
		default:
			delete(files, path)
		}
	}
	if files[eventsName] == nil {
		return nil
	}
	var (
		events []eventsv1.Event
		err    error
	)
	decode(files, &events, &err, eventsName)
	if err != nil {
		return err
	}
	count := len(events)
	events = slices.DeleteFunc(events, func(e eventsv1.Event) bool { return slices.Contains(forOperators, e.Reason) })
	if len(events) < count {
		manifest.Missing = append(manifest.Missing, observed.Missing{Thing: observed.WhatMachineEvents, Partial: true, Reason: "those for operators stay in the seed"})
	}
	for i := range events {
		events[i].ReportingInstance, events[i].DeprecatedSource.Host = "", "" // pods and nodes of the seed
	}
	files[eventsName], err = encode("events.k8s.io/v1", "EventList", events)
	return err
}
