// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

// DefaultMaxSize is how many bytes a bundle has at most, where nobody says otherwise.
const DefaultMaxSize = 8 << 20

const (
	// format is what is written. Of the one before it, observed.Missing differs, which reads both.
	format         = 2
	manifestName   = "manifest.json"
	indexName      = "index.md"
	controllerName = "seed/controller.json"
	hostsName      = "seed/hosts.json"

	// maxUnpacked, maxFiles and maxManifest are how many bytes and files are read of a bundle, which may be anybody's.
	maxUnpacked = 128 << 20
	maxFiles    = 1000
	maxManifest = 1 << 20
	// maxItems is how many objects are read of a list, and maxValues how many fields and items of all files: each takes more
	// memory than the few bytes that it has in a file.
	maxItems  = 10000
	maxValues = 1 << 20
	// minLog is what is left of a log at least before it is left out.
	minLog = 1 << 10
)

// Bundle is the evidence of a node and its machine. It has no Secrets and no values of environment variables.
type Bundle struct {
	// Tool is what gathered it, with its version.
	Tool string
	// Node and Machine are what it is about. One of them may be empty.
	Node, Machine string
	// Snapshot is what the API servers knew.
	Snapshot observed.Snapshot

	// files are further ones, above all logs.
	files    []file
	redacted counts
}

// file is one of a bundle.
type file struct {
	path string
	data []byte
	// log says that it may be cut from its beginning, and cut how many bytes were.
	log bool
	cut int64
	// broken says that only its beginning could be had, and redacted how many texts were taken out of it.
	broken   bool
	redacted int
	// trimmed says that texts were cut out of it.
	trimmed bool
	// rank is in which order files are left out if there is no place, the highest first, where rankOf does not say otherwise.
	rank int
	// what is the thing that others look for where it was left out; empty for nobody.
	what observed.Thing
}

// Manifest says what is in a bundle, and what is not.
type Manifest struct {
	Format int       `json:"format"`
	Tool   string    `json:"tool"`
	Time   time.Time `json:"time"`
	Node   string    `json:"node,omitempty"`
	// Machine is empty where it is not known.
	Machine string `json:"machine,omitempty"`
	// Namespace is that of the control plane in the seed, empty where nothing of it is known.
	Namespace string `json:"namespace,omitempty"`
	// Files are all but the manifest itself.
	Files    []ManifestFile     `json:"files"`
	Redacted []Redacted         `json:"redacted,omitempty"`
	Missing  []observed.Missing `json:"missing,omitempty"`
}

// ManifestFile is a file of a bundle.
type ManifestFile struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"`
	// Cut is how many bytes of a log are missing at its beginning; at least, where only its end was asked for.
	Cut int64 `json:"cut,omitempty"`
}

// Redacted is what was redacted, and how often.
type Redacted struct {
	What  string `json:"what"`
	Count int    `json:"count"`
}

// Size tells of a bundle what it has become.
type Size struct {
	// Bytes is its size, and Files how many there are.
	Bytes, Files int
	// Cut are the paths of logs that are not whole, and LeftOut those of files for which there was no place, or only for a part.
	Cut, LeftOut []string
}

// ErrTooLarge says that not even the least that a bundle has fits.
var ErrTooLarge = errors.New("the evidence is too large")

// WriteTo writes a tar.gz of at most maxSize bytes. Logs are cut first, from their beginning, then labels, annotations and messages
// that do not compress, then what says the least is left out; the manifest says so. Two bundles with the same content are the same bytes.
func (b *Bundle) WriteTo(w io.Writer, maxSize int64) (Size, error) {
	files, redacted, err := b.objects(nil)
	if err != nil {
		return Size{}, err
	}
	return b.write(w, append(files, b.files...), redacted, maxSize)
}

// write writes some files of it.
func (b *Bundle) write(w io.Writer, files []file, redacted counts, maxSize int64) (Size, error) {
	missing := slices.Clone(b.Snapshot.Missing)
	told := *b
	var leftOut []string
	longest, texts := 0, slices.Clone(textSizes)
	for _, f := range files {
		if f.log {
			longest = max(longest, len(f.data))
		}
	}
	for {
		archive, manifest, err := told.pack(files, redacted, missing)
		if err != nil {
			return Size{}, err
		}
		if int64(len(archive)) <= maxSize {
			size := Size{Bytes: len(archive), Files: len(manifest.Files) + 1, LeftOut: leftOut}
			for _, f := range manifest.Files {
				if f.Cut > 0 {
					size.Cut = append(size.Cut, f.Path)
				}
			}
			_, err = w.Write(archive)
			return size, err
		}
		if longest > minLog {
			longest /= 2
			for i := range files {
				files[i] = cutLog(files[i], longest)
			}
			continue
		}
		if len(texts) > 0 {
			for i := range files {
				if files[i].log {
					continue
				}
				data, isCut := cutTexts(files[i].data, texts[0])
				if !isCut {
					continue
				}
				if files[i].data = data; !files[i].trimmed {
					files[i].trimmed = true
					what := "labels, annotations or messages in " + files[i].path
					leftOut = append(leftOut, what)
					missing = append(missing, observed.Missing{Thing: observed.Thing(what), Reason: fmt.Sprintf("they do not fit into %d bytes, because they do not compress", maxSize)})
				}
			}
			texts = texts[1:]
			continue
		}
		rank := 0
		for _, f := range files {
			rank = max(rank, rankOf(f))
		}
		if rank == 0 {
			return Size{}, fmt.Errorf("%w: it has at least %d bytes, more than the allowed %d", ErrTooLarge, len(archive), maxSize)
		}
		longest = 0
		files = slices.DeleteFunc(slices.Clone(files), func(f file) bool {
			if rankOf(f) == rank {
				leftOut = append(leftOut, f.path)
				told.Snapshot = without(told.Snapshot, f.path)
				reason := fmt.Sprintf("it does not fit into %d bytes", maxSize)
				missing = append(missing, observed.Missing{Thing: observed.Thing("file " + f.path), Reason: reason})
				if f.what != "" {
					missing = append(missing, observed.Missing{Thing: f.what, Reason: reason})
				}
				return true
			}
			return false
		})
	}
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
			files = append(files, file{path: path, data: data, rank: rank, what: what})
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

func entry(f file) ManifestFile {
	sum := sha256.Sum256(f.data)
	return ManifestFile{Path: f.path, Size: int64(len(f.data)), SHA256: hex.EncodeToString(sum[:]), Cut: f.cut}
}

// Read returns what a bundle says that the API servers knew. A bundle may be anybody's: it is an error if it has what a bundle
// has not, if it is too large, or if a file is not what the manifest says.
func Read(r io.Reader) (*observed.Snapshot, error) {
	manifest, files, err := open(r)
	if err != nil {
		return nil, err
	}
	return snapshotOf(manifest, files)
}

// open returns the manifest of a bundle, and its files.
func open(r io.Reader) (*Manifest, map[string][]byte, error) {
	files, err := unpack(r)
	if err != nil {
		return nil, nil, fmt.Errorf("this is not a bundle of evidence: %w", err)
	}
	manifest, err := verify(files)
	if err != nil {
		return nil, nil, fmt.Errorf("the bundle of evidence is damaged: %w", err)
	}
	return manifest, files, nil
}

// snapshotOf returns what the files of a bundle say.
func snapshotOf(manifest *Manifest, files map[string][]byte) (*observed.Snapshot, error) {
	count := 0
	for name, data := range files {
		if path.Ext(name) == ".json" {
			count += values(data)
		}
	}
	if count > maxValues {
		return nil, fmt.Errorf("the bundle of evidence has %d fields and items, more than %d", count, maxValues)
	}
	s := &observed.Snapshot{Time: manifest.Time.UTC(), Missing: manifest.Missing}
	var failure error
	decode(files, &s.Shoot.Nodes, &failure, "shoot/nodes.json", "shoot/other-nodes.json")
	decode(files, &s.Shoot.Pods, &failure, "shoot/pods.json")
	decode(files, &s.Shoot.PodDisruptionBudgets, &failure, "shoot/poddisruptionbudgets.json")
	decode(files, &s.Shoot.VolumeAttachments, &failure, "shoot/volumeattachments.json")
	decode(files, &s.Shoot.Events, &failure, "shoot/events.json")
	decode(files, &s.Shoot.Maintenances, &failure, "shoot/nodemaintenances.json")
	_, s.Shoot.HasMaintenances = files["shoot/nodemaintenances.json"]
	if manifest.Namespace != "" {
		s.Seed = &observed.Seed{Namespace: manifest.Namespace}
		decode(files, &s.Seed.Machines, &failure, "seed/machines.json", "seed/other-machines.json")
		decode(files, &s.Seed.MachineSets, &failure, "seed/machinesets.json")
		decode(files, &s.Seed.MachineDeployments, &failure, "seed/machinedeployments.json")
		decode(files, &s.Seed.Events, &failure, "seed/events.json")
		decode(files, &s.Seed.Hosts, &failure, hostsName)
		if data, ok := files[controllerName]; ok {
			if err := json.Unmarshal(data, &s.Seed.Controller); err != nil {
				failure = errors.Join(failure, fmt.Errorf("%s cannot be read: %w", controllerName, err))
			}
		}
	}
	if failure != nil {
		return nil, fmt.Errorf("the bundle of evidence is damaged: %w", failure)
	}
	sortSnapshot(s)
	return s, nil
}

// decode reads lists of objects, as far as they are there.
func decode[T any](files map[string][]byte, into *[]T, failure *error, paths ...string) {
	for _, path := range paths {
		data, ok := files[path]
		if !ok {
			continue
		}
		var list struct {
			Items []json.RawMessage `json:"items"`
		}
		err := json.Unmarshal(data, &list)
		if len(list.Items) > maxItems {
			err = fmt.Errorf("it has %d objects, more than %d", len(list.Items), maxItems)
		}
		for i := 0; err == nil && i < len(list.Items); i++ {
			var item T
			err = json.Unmarshal(list.Items[i], &item)
			*into = append(*into, item)
		}
		if err != nil {
			*failure = errors.Join(*failure, fmt.Errorf("%s cannot be read: %w", path, err))
		}
	}
}

// values returns how many fields and items there are in JSON at most.
func values(data []byte) int {
	count, inText := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			inText = !inText
		case c == '\\':
			i++
		case !inText && (c == '{' || c == '[' || c == ','):
			count++
		}
	}
	return count
}

// unpack returns the files of an archive.
func unpack(r io.Reader) (map[string][]byte, error) {
	zipped, err := gzip.NewReader(r)
	if err != nil {
		return nil, fmt.Errorf("it is not a gzip file: %w", err)
	}
	defer zipped.Close()
	var (
		limited = &io.LimitedReader{R: zipped, N: maxUnpacked}
		tarred  = tar.NewReader(limited)
		files   = map[string][]byte{}
		left    = int64(maxUnpacked)
	)
	for {
		header, err := tarred.Next()
		if errors.Is(err, io.EOF) && limited.N > 0 {
			// What gzip says of all of it is checked at its end.
			if _, err = io.Copy(io.Discard, limited); err != nil {
				return nil, err
			}
			if limited.N > 0 {
				return files, nil
			}
		}
		if limited.N <= 0 {
			return nil, errTooLarge
		}
		if err != nil {
			return nil, err
		}
		name := header.Name
		switch {
		case !validPath(name):
			return nil, fmt.Errorf("path %q points outside of the bundle, or is not written as in bundles", line(name))
		case header.Typeflag != tar.TypeReg:
			return nil, fmt.Errorf("%s is not a regular file", name)
		// Of a sparse file, there is more than there is in the archive. No bundle has any.
		case slices.ContainsFunc(slices.Collect(maps.Keys(header.PAXRecords)), func(key string) bool { return strings.HasPrefix(key, "GNU.sparse.") }):
			return nil, fmt.Errorf("%s is not a regular file", name)
		case header.Size > left:
			return nil, errTooLarge
		case len(files) == maxFiles:
			return nil, fmt.Errorf("it has more than %d files", maxFiles)
		case name == manifestName && header.Size > maxManifest:
			return nil, fmt.Errorf("%s has %d bytes, more than %d", name, header.Size, maxManifest)
		}
		if _, ok := files[name]; ok {
			return nil, fmt.Errorf("%s exists twice", name)
		}
		if files[name], err = io.ReadAll(tarred); err != nil {
			if limited.N <= 0 {
				err = errTooLarge
			}
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		left -= header.Size
	}
}

var errTooLarge = fmt.Errorf("it has more than %d bytes unpacked", maxUnpacked)

// validPath says that a path is one as bundles have them.
func validPath(name string) bool {
	if name == "" || name == "." || path.Clean(name) != name || path.IsAbs(name) || strings.HasPrefix(name, "..") || len(name) > 512 {
		return false
	}
	return !strings.ContainsFunc(name, func(r rune) bool {
		return !(r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("/._-", r))
	})
}

// verify returns the manifest of files that are what it says.
func verify(files map[string][]byte) (*Manifest, error) {
	data, ok := files[manifestName]
	if !ok {
		return nil, fmt.Errorf("it has no %s", manifestName)
	}
	manifest := &Manifest{}
	if err := json.Unmarshal(data, manifest); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w", manifestName, err)
	}
	if manifest.Format < 1 || manifest.Format > format {
		return nil, fmt.Errorf("format %d of %s is not known, only 1 to %d. Use the version that wrote it: %s", manifest.Format, manifestName, format, line(manifest.Tool))
	}
	listed := map[string]bool{manifestName: true}
	for _, f := range manifest.Files {
		// Each digest takes the time for a whole file, and the manifest may have many lines.
		if listed[f.Path] {
			return nil, fmt.Errorf("%s is listed twice in %s", line(f.Path), manifestName)
		}
		listed[f.Path] = true
		data, ok := files[f.Path]
		if !ok {
			return nil, fmt.Errorf("%s is missing", line(f.Path))
		}
		if got := entry(file{data: data}); got.Size != f.Size || got.SHA256 != f.SHA256 {
			return nil, fmt.Errorf("%s is not what %s says: its sha256 is %s and not %s", f.Path, manifestName, got.SHA256, line(f.SHA256))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if !listed[name] {
			return nil, fmt.Errorf("%s is not listed in %s", name, manifestName)
		}
	}
	return manifest, nil
}
