// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

const (
	// format is what is written. Of the one before it, observed.Missing differs, which reads both.
	format         = 2
	manifestName   = "manifest.json"
	indexName      = "index.md"
	controllerName = "seed/controller.json"
	hostsName      = "seed/hosts.json"
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
	// items is how many objects it lists.
	items int
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

func entry(f file) ManifestFile {
	sum := sha256.Sum256(f.data)
	return ManifestFile{Path: f.path, Size: int64(len(f.data)), SHA256: hex.EncodeToString(sum[:]), Cut: f.cut}
}
