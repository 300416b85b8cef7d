// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
)

// archiveOf returns a bundle of two files whose manifest is right if it says nothing.
func archiveOf(f testing.TB, kind byte, manifest, path, content string) []byte {
	f.Helper()
	if manifest == "" {
		sum := sha256.Sum256([]byte(content))
		data, err := json.Marshal(Manifest{Format: 1, Namespace: "shoot--a--b", Files: []ManifestFile{{Path: path, Size: int64(len(content)), SHA256: hex.EncodeToString(sum[:])}}})
		if err != nil {
			f.Fatal(err)
		}
		manifest = string(data)
	}
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	tarred := tar.NewWriter(zipped)
	for _, file := range []struct {
		kind       byte
		name, data string
	}{{tar.TypeReg, "manifest.json", manifest}, {kind, path, content}} {
		header := &tar.Header{Typeflag: file.kind, Name: file.name, Linkname: file.data, Size: int64(len(file.data))}
		if tarred.WriteHeader(header) == nil {
			_, _ = tarred.Write([]byte(file.data))
		}
	}
	_, _ = tarred.Close(), zipped.Close()
	return out.Bytes()
}

// FuzzReadArchive reads what may be no archive at all.
func FuzzReadArchive(f *testing.F) {
	var example bytes.Buffer
	if _, err := exampleBundle().WriteTo(&example, DefaultMaxSize); err != nil {
		f.Fatal(err)
	}
	f.Add(example.Bytes())
	f.Add(example.Bytes()[:example.Len()/2])
	f.Add(archiveOf(f, tar.TypeSymlink, "", "shoot/nodes.json", "/etc/passwd"))
	f.Add([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) { read(t, data) })
}

// FuzzRead reads bundles that say anything.
func FuzzRead(f *testing.F) {
	for _, path := range []string{"shoot/nodes.json", "shoot/pods.json", "shoot/events.json", "shoot/nodemaintenances.json", "seed/machines.json", "seed/controller.json", "node/configz.json"} {
		for _, content := range []string{`{"items":[{"metadata":{"name":"a","creationTimestamp":"0001-01-01T00:00:00Z"},"status":{"conditions":[{"type":"Ready"},{}]}}]}`, `{"items":[null,{}]}`, `{"items":{}}`, `[[[[`, `{"args":["--a",""]}`, "\xff"} {
			f.Add(byte(tar.TypeReg), "", path, content)
		}
	}
	f.Add(byte(tar.TypeReg), `{"format":1,"time":"9999-12-31T23:59:59Z","files":[{"path":"a","size":-1}],"missing":[{"what":"a","reason":"\u001b[2J"}]}`, "a", "")
	f.Add(byte(tar.TypeLink), "", "../a", "manifest.json")
	f.Fuzz(func(t *testing.T, kind byte, manifest, path, content string) {
		read(t, archiveOf(t, kind, manifest, path, content))
	})
}

// read says that what is read can be told, and what cannot be is told in few words.
func read(t *testing.T, data []byte) {
	t.Helper()
	s, err := Read(bytes.NewReader(data))
	switch {
	case err != nil && s != nil:
		t.Error("a snapshot beside an error")
	case err != nil && len(err.Error()) > 8<<10:
		t.Errorf("an error of %d bytes: %.200q", len(err.Error()), err)
	case err == nil:
		Timeline(s, "n", "m")
	}
}

// FuzzScrub says that what is scrubbed is no longer than a few times what it was, and that JSON stays JSON.
func FuzzScrub(f *testing.F) {
	for _, text := range []string{
		"", "password: |\n  hunter2\n\n\n  hunter2\n", "a\n- token: >-\n\n\n\n", "--token hunter2", `"pwd": "a\\"b"`, "https://a:b@c https://:0@", "cookie=", "eyJhbGciOi.eyJzdWIiOi.", "abcdef.0123456789abcdef",
		"-----BEGIN PRIVATE KEY-----\nx\n-----END PRIVATE KEY-----", "-----END RSA PRIVATE KEY-----", "sig=a&sig=b&auth='", "authorization: digest a=b, c=d", "\xff\x00",
		`{"a":"token: |\n\n\n","b":["<<<<<<<< sig=a"]}`, strings.Repeat("[", 2000) + strings.Repeat("]", 2000), `{"staticPodURLHeader":{"a":["b"]},"c":1E20}`,
	} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		scrubbed := Scrub(text)
		if len(scrubbed) > 4*len(text)+64 {
			t.Errorf("%d bytes become %d: %.200q", len(text), len(scrubbed), scrubbed)
		}
		if strings.Contains(scrubbed, "PRIVATE KEY-----") && strings.Contains(scrubbed, "-----BEGIN ") && strings.Contains(text, "-----BEGIN RSA PRIVATE KEY-----") {
			t.Errorf("a private key is left: %.200q", scrubbed)
		}
		if asJSON := ScrubJSON(text); len(asJSON) > 8*len(text)+64 || json.Valid([]byte(text)) && !json.Valid([]byte(asJSON)) {
			t.Errorf("%.200q becomes %.200q", text, asJSON)
		}
		if config, err := RedactConfigz([]byte(text)); err == nil && (len(config) > 128*len(text)+64 || !json.Valid(config)) {
			t.Errorf("%d bytes of a configuration become %d", len(text), len(config))
		}
		if said := Line(text); len([]rune(said)) > 515 || strings.ContainsAny(said, "\x1b\n") {
			t.Errorf("%q is no line", said)
		}
	})
}

// FuzzRedactPod says that of any pod nothing is left that must not be kept.
func FuzzRedactPod(f *testing.F) {
	canary := "hunter2"
	for _, pod := range []string{
		`{"spec":{"containers":[{"env":[{"name":"a","value":"hunter2"}],"command":["hunter2"],"args":["hunter2"],"lifecycle":{"preStop":{"exec":{"command":["hunter2"]}}}}],"initContainers":[{}],"ephemeralContainers":[{"env":[{"value":"hunter2"}]}]}}`,
		`{"spec":{"containers":[{"livenessProbe":{"httpGet":{"httpHeaders":[{"value":"hunter2"}]}}}],"volumes":[{"csi":{"volumeAttributes":{"a":"hunter2"}}},{"ephemeral":{}}]},"status":{"containerStatuses":[{"state":{"terminated":{"message":"hunter2"}}}]}}`,
		`{"metadata":{"annotations":{"a":"hunter2","kubernetes.io/a":"{hunter2}"}}}`, `null`,
	} {
		f.Add([]byte(pod))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pod := &corev1.Pod{}
		if json.Unmarshal(data, pod) != nil {
			return
		}
		before, _ := json.Marshal(pod)
		RedactPod(pod)
		after, err := json.Marshal(pod)
		if err != nil || len(after) > len(before) {
			t.Errorf("%d bytes become %d: %v", len(before), len(after), err)
		}
		for _, container := range append(pod.Spec.InitContainers, pod.Spec.Containers...) {
			if said := fmt.Sprint(container.Command, container.Args, container.LivenessProbe, container.Lifecycle); strings.Contains(said, canary) {
				t.Errorf("it is left: %s", said)
			}
			for _, env := range container.Env {
				if env.Value != "" {
					t.Errorf("%s is left", env.Name)
				}
			}
		}
	})
}
