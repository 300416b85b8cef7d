// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"archive/tar"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

const (
	// maxUnpacked, maxFiles and maxManifest are how many bytes and files are read of a bundle, which may be anybody's.
	maxUnpacked = 128 << 20
	maxFiles    = 1000
	maxManifest = 1 << 20
	// maxItems is how many objects are read of a list, and maxValues how many fields and items of all files: each takes more
	// memory than the few bytes that it has in a file.
	maxItems  = 10000
	maxValues = 1 << 20
)

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
		count += valuesOf(name, data)
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

// valuesOf returns what a file of a bundle adds to those that are counted of all files: nothing if it is no JSON.
func valuesOf(name string, data []byte) int {
	if path.Ext(name) != ".json" {
		return 0
	}
	values, _ := measure(data)
	return values
}

// measure returns how many fields and items there are in JSON at most, and how deeply it is nested. It makes nothing of them: that would
// take the memory that is to be bounded.
func measure(data []byte) (values, deepest int) {
	depth, inText := 0, false
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == '"':
			inText = !inText
		case c == '\\':
			i++
		case inText:
		case c == '{', c == '[':
			values++
			depth++
			deepest = max(deepest, depth)
		case c == '}', c == ']':
			depth--
		case c == ',':
			values++
		}
	}
	return values, deepest
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
