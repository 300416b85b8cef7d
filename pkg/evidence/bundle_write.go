// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"reflect"
	"slices"
	"strings"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

// DefaultMaxSize is how many bytes a bundle has at most, where nobody says otherwise.
const DefaultMaxSize = 8 << 20

// minLog is what is left of a log at least before it is left out.
const minLog = 1 << 10

// Of what Read reads, an eighth is left for the manifest, the index, and what an archive has beside its files.
const (
	maxUnpackedFiles = maxUnpacked / 8 * 7
	maxValuesOfFiles = maxValues / 8 * 7
)

// Size tells of a bundle what it has become.
type Size struct {
	// Bytes is its size, and Files how many there are.
	Bytes, Files int
	// Cut are the paths of logs that are not whole, and LeftOut those of files for which there was no place, or only for a part.
	Cut, LeftOut []string
}

// ErrTooLarge says that not even the least that a bundle has fits.
var ErrTooLarge = errors.New("the evidence is too large")

// WriteTo writes a tar.gz of at most maxSize bytes that Read does not refuse. Logs are cut first, from their beginning, then labels,
// annotations and messages that do not compress, then what says the least is left out; the manifest says so. Two bundles with the same
// content are the same bytes.
func (b *Bundle) WriteTo(w io.Writer, maxSize int64) (Size, error) {
	files, redacted, err := b.objects(nil)
	if err != nil {
		return Size{}, err
	}
	return b.write(w, append(files, b.files...), redacted, maxSize)
}

// draft is a bundle that is being written, without what there is no place for.
type draft struct {
	// told is what its index is about.
	told    Bundle
	files   []file
	missing []observed.Missing
	leftOut []string
}

// write writes some files of it.
func (b *Bundle) write(w io.Writer, files []file, redacted counts, maxSize int64) (Size, error) {
	d := draft{told: *b, files: files, missing: slices.Clone(b.Snapshot.Missing)}
	d.leaveOutUnreadable()
	longest, texts := 0, slices.Clone(textSizes)
	for _, f := range d.files {
		if f.log {
			longest = max(longest, len(f.data))
		}
	}
	for {
		limit, packed := fmt.Sprintf("%d bytes unpacked", maxUnpackedFiles), int64(0)
		if d.unpacked() <= maxUnpackedFiles {
			archive, manifest, err := d.told.pack(d.files, redacted, d.missing)
			if err != nil {
				return Size{}, err
			}
			if packed = int64(len(archive)); packed <= maxSize {
				size := Size{Bytes: len(archive), Files: len(manifest.Files) + 1, LeftOut: d.leftOut}
				for _, f := range manifest.Files {
					if f.Cut > 0 {
						size.Cut = append(size.Cut, f.Path)
					}
				}
				_, err = w.Write(archive)
				return size, err
			}
			limit = fmt.Sprintf("%d bytes", maxSize)
		}
		switch {
		case longest > minLog:
			longest /= 2
			for i := range d.files {
				d.files[i] = cutLog(d.files[i], longest)
			}
		case packed > 0 && len(texts) > 0:
			d.cutTexts(texts[0], limit)
			texts = texts[1:]
		default:
			rank := 0
			for _, f := range d.files {
				rank = max(rank, rankOf(f))
			}
			if rank == 0 {
				return Size{}, fmt.Errorf("%w: it has at least %d bytes, more than the allowed %d", ErrTooLarge, packed, maxSize)
			}
			d.leaveOut("it does not fit into "+limit, func(f file) bool { return rankOf(f) == rank })
		}
	}
}

// leaveOutUnreadable leaves out lists with too many objects, then the files that have the most fields and items, while all have too many.
func (d *draft) leaveOutUnreadable() {
	d.leaveOut(fmt.Sprintf("it has more than %d objects", maxItems), func(f file) bool { return f.items > maxItems })
	for {
		all, most := 0, 0
		for _, f := range d.files {
			n := valuesOf(f.path, f.data)
			all, most = all+n, max(most, n)
		}
		if all <= maxValuesOfFiles {
			return
		}
		d.leaveOut(fmt.Sprintf("it has %d fields and items, and all files may have %d together", most, maxValuesOfFiles),
			func(f file) bool { return valuesOf(f.path, f.data) == most })
	}
}

// unpacked returns how many bytes all files have.
func (d *draft) unpacked() int {
	all := 0
	for _, f := range d.files {
		all += len(f.data)
	}
	return all
}

// cutTexts cuts the texts of objects.
func (d *draft) cutTexts(size float64, limit string) {
	for i := range d.files {
		f := &d.files[i]
		if f.log || strings.HasPrefix(f.path, "node/") { // what a kubelet says has no objects, and may be nested as deeply as it likes
			continue
		}
		data, isCut := cutTexts(f.data, size)
		if !isCut {
			continue
		}
		if f.data = data; !f.trimmed {
			f.trimmed = true
			what := "labels, annotations or messages in " + f.path
			d.leftOut = append(d.leftOut, what)
			d.missing = append(d.missing, observed.Missing{Thing: observed.Thing(what), Reason: "they do not fit into " + limit + ", because they do not compress"})
		}
	}
}

// leaveOut leaves out the files that are chosen, for a reason.
func (d *draft) leaveOut(reason string, chosen func(file) bool) {
	d.files = slices.DeleteFunc(slices.Clone(d.files), func(f file) bool {
		if !chosen(f) {
			return false
		}
		d.leftOut = append(d.leftOut, f.path)
		d.told.Snapshot = without(d.told.Snapshot, f.path)
		d.missing = append(d.missing, observed.Missing{Thing: observed.Thing("file " + f.path), Reason: reason})
		if f.what != "" {
			d.missing = append(d.missing, observed.Missing{Thing: f.what, Reason: reason})
		}
		return true
	})
}

// rankOf returns when a file is left out: the highest is first. What the shoot can make large is before what it cannot.
func rankOf(f file) int {
	switch {
	case f.log:
		return 13
	case f.rank > 0:
		return f.rank
	case strings.HasPrefix(f.path, "node/"):
		return 12
	}
	return 11
}

// without returns what the index tells of a bundle without a file: the number of objects at most.
func without(s observed.Snapshot, path string) observed.Snapshot {
	switch path {
	case "shoot/nodes.json":
		s.Shoot.Nodes = nil
	case "shoot/pods.json":
		s.Shoot.Pods = make([]corev1.Pod, len(s.Shoot.Pods))
	case "shoot/volumeattachments.json":
		s.Shoot.VolumeAttachments = make([]storagev1.VolumeAttachment, len(s.Shoot.VolumeAttachments))
	case "shoot/nodemaintenances.json":
		s.Shoot.Maintenances = nil
	case "shoot/events.json":
		s.Shoot.Events = nil
	case "seed/events.json":
		seed := *s.Seed
		seed.Events = nil
		s.Seed = &seed
	}
	return s
}

// cutLog returns a log's last whole lines.
func cutLog(f file, size int) file {
	if !f.log || len(f.data) <= size {
		return f
	}
	data := f.data[len(f.data)-size:]
	if i := bytes.IndexByte(data, '\n'); i >= 0 {
		data = data[i+1:]
	}
	f.cut += int64(len(f.data) - len(data))
	f.data = data
	return f
}

// objects returns what the API servers knew, as files, and what was redacted in all. If written is not nil, the files are taken
// from it unchanged.
func (b *Bundle) objects(written map[string][]byte) ([]file, counts, error) {
	var (
		files   []file
		failure error
		count   = counts{}
	)
	maps.Copy(count, b.redacted)
	add := func(path string, what observed.Thing, apiVersion, kind string, rank int, items any) {
		data, isWritten := written[path]
		if written == nil {
			encoded, err := encode(apiVersion, kind, items)
			scrubbed, n := scrubJSON(encoded)
			count.add(redactedCredentials, n)
			failure = errors.Join(failure, err)
			data, isWritten = scrubbed, true
		}
		if isWritten {
			files = append(files, file{path: path, data: data, items: reflect.ValueOf(items).Len(), rank: rank, what: what})
		}
	}
	machineAPI, maintenanceAPI := machinev1alpha1.SchemeGroupVersion.String(), maintenancev1alpha1.SchemeGroupVersion.String()
	s := &b.Snapshot
	nodes, otherNodes := split(s.Shoot.Nodes, func(n *corev1.Node) bool { return n.Name == b.Node })
	add("shoot/nodes.json", observed.WhatNode, "v1", "NodeList", 3, nodes)
	if len(otherNodes) > 0 {
		add("shoot/other-nodes.json", observed.WhatNodes, "v1", "NodeList", 10, otherNodes)
	}
	add("shoot/pods.json", observed.WhatPods, "v1", "PodList", 7, s.Shoot.Pods)
	add("shoot/poddisruptionbudgets.json", observed.WhatBudgets, "policy/v1", "PodDisruptionBudgetList", 8, s.Shoot.PodDisruptionBudgets)
	add("shoot/volumeattachments.json", "", "storage.k8s.io/v1", "VolumeAttachmentList", 4, s.Shoot.VolumeAttachments)
	add("shoot/events.json", observed.WhatNodeEvents, "events.k8s.io/v1", "EventList", 6, s.Shoot.Events)
	if s.Shoot.HasMaintenances {
		add("shoot/nodemaintenances.json", observed.WhatMaintenances, maintenanceAPI, "NodeMaintenanceList", 5, s.Shoot.Maintenances)
	}
	if s.Seed != nil {
		machines, otherMachines := split(s.Seed.Machines, func(m *machinev1alpha1.Machine) bool { return m.Name == b.Machine })
		add("seed/machines.json", observed.WhatMachines, machineAPI, "MachineList", 1, machines)
		if len(otherMachines) > 0 {
			add("seed/other-machines.json", observed.WhatOtherMachines, machineAPI, "MachineList", 9, otherMachines)
		}
		add("seed/machinesets.json", "", machineAPI, "MachineSetList", 1, s.Seed.MachineSets)
		add("seed/machinedeployments.json", "", machineAPI, "MachineDeploymentList", 1, s.Seed.MachineDeployments)
		if len(s.Seed.Hosts) > 0 {
			add(hostsName, observed.WhatHost, "v1", "List", 1, s.Seed.Hosts)
		}
		add("seed/events.json", observed.WhatMachineEvents, "events.k8s.io/v1", "EventList", 2, s.Seed.Events)
		if s.Seed.Controller != nil {
			data, err := json.MarshalIndent(s.Seed.Controller, "", "  ")
			data, n := scrubJSON(append(data, '\n'))
			count.add(redactedCredentials, n)
			failure = errors.Join(failure, err)
			files = append(files, file{path: controllerName, data: data, rank: 1, what: observed.WhatController})
		}
	}
	return files, count, failure
}

// split returns those items that are chosen, and the others.
func split[T any](items []T, chosen func(*T) bool) (yes, no []T) {
	for i := range items {
		if chosen(&items[i]) {
			yes = append(yes, items[i])
		} else {
			no = append(no, items[i])
		}
	}
	return yes, no
}

// encode returns a list that kubectl can read as well.
func encode(apiVersion, kind string, items any) ([]byte, error) {
	data, err := json.MarshalIndent(struct {
		APIVersion string         `json:"apiVersion"`
		Kind       string         `json:"kind"`
		Metadata   map[string]any `json:"metadata"`
		Items      any            `json:"items"`
	}{apiVersion, kind, map[string]any{}, items}, "", "  ")
	return append(data, '\n'), err
}

// pack returns the archive of some files, with the manifest and the index before them.
func (b *Bundle) pack(files []file, redacted counts, missing []observed.Missing) ([]byte, *Manifest, error) {
	manifest := &Manifest{Format: format, Tool: b.Tool, Time: b.Snapshot.Time.UTC(), Node: b.Node, Machine: b.Machine, Missing: missing}
	if b.Snapshot.Seed != nil {
		manifest.Namespace = b.Snapshot.Seed.Namespace
	}
	for _, what := range slices.Sorted(maps.Keys(redacted)) {
		manifest.Redacted = append(manifest.Redacted, Redacted{What: what, Count: redacted[what]})
	}
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	for _, f := range files {
		manifest.Files = append(manifest.Files, entry(f))
	}
	index := file{path: indexName, data: index(b, manifest)}
	manifest.Files = slices.Insert(manifest.Files, 0, entry(index))
	data, err := json.MarshalIndent(manifest, "", "  ")
	if err != nil {
		return nil, nil, err
	}
	files = slices.Insert(files, 0, file{path: manifestName, data: append(data, '\n')}, index)

	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	tarred := tar.NewWriter(zipped)
	for _, f := range files {
		if err := tarred.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.path, Size: int64(len(f.data)), Mode: 0o644, ModTime: manifest.Time, Format: tar.FormatPAX}); err != nil {
			return nil, nil, err
		}
		if _, err := tarred.Write(f.data); err != nil {
			return nil, nil, err
		}
	}
	if err := errors.Join(tarred.Close(), zipped.Close()); err != nil {
		return nil, nil, err
	}
	return archive.Bytes(), manifest, nil
}
