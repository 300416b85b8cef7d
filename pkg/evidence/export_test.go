// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// SetTimeouts has all questions take this long at most, and returns what puts the times back.
func SetTimeouts(timeout time.Duration) func() {
	call, node, logs := callTimeout, nodeTimeout, logTimeout
	callTimeout, nodeTimeout, logTimeout = timeout, timeout, timeout
	return func() { callTimeout, nodeTimeout, logTimeout = call, node, logs }
}

// AddLog adds a log to a bundle.
func (b *Bundle) AddLog(path string, data []byte) {
	b.files = append(b.files, file{path: path, data: data, log: true})
}

// RedactPod, Scrub and RedactNode are for tests.
func RedactPod(pod *corev1.Pod) map[string]int {
	c := counts{}
	redactPod(pod, c)
	return c
}

func Scrub(text string) string {
	data, _ := scrub([]byte(text))
	return string(data)
}

func RedactNode(node *corev1.Node) { redactNode(node, counts{}) }

// ScrubJSON is for tests.
func ScrubJSON(text string) string {
	data, _ := scrubJSON([]byte(text))
	return string(data)
}

// Line, ReadLog, Naming, Steps and RedactConfigz are for tests.
var (
	Line    = line
	Steps   = steps
	ReadLog = readLog
	Naming  = naming
)

func RedactConfigz(data []byte) ([]byte, error) { return redactConfigz(data, counts{}) }
