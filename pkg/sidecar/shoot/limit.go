// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
)

const (
	// answerTimeout is how long a request to the shoot may take. For a watch, it is how long the answer may take to begin. Most callers
	// have a shorter timeout.
	answerTimeout = 30 * time.Second
	// maxRefusal is how many bytes are read of an error answer. client-go cannot decode a longer one: it knows only the status code
	// then, and logs no more than that.
	maxRefusal = 8 << 10
	// maxList is how many bytes a list, or a page of a list, may have. maxObject is how many bytes an object or an event of a watch may
	// have. Kubernetes stores objects of at most 1.5 MiB, which are larger in JSON.
	maxList, maxObject = 32 << 20, 8 << 20
)

// errTooLarge says that the rest of an answer was not read.
var errTooLarge = errors.New("the answer has more")

// Limit returns a transport that protects against the shoot (P14): the shoot can neither make callers wait, nor make them repeat a
// request, log long answers, or hold answers in memory that are larger than what Kubernetes stores. A webhook, or the settings of the
// API server's flow control, determine how long a request takes, what the answer is, and with Retry-After, when client-go repeats the
// request, which may be in decades. An aggregated API server determines all of that. It must not redirect the request, and the token
// with it, to another server.
func Limit(next http.RoundTripper) http.RoundTripper {
	return roundTripper(func(req *http.Request) (*http.Response, error) {
		ctx, cancel := context.WithCancelCause(req.Context())
		timeout := time.AfterFunc(answerTimeout, func() { cancel(context.DeadlineExceeded) })
		done := func() { timeout.Stop(); cancel(nil) }

		response, err := next.RoundTrip(req.WithContext(ctx))
		if err != nil {
			done()
			return nil, err
		}
		response.Header.Del("Retry-After")
		limited := &limitedBody{Reader: response.Body, Closer: response.Body, done: done}
		what := req.Method + " " + req.URL.Path
		switch watches := req.URL.Query().Get("watch"); {
		case response.StatusCode >= http.StatusBadRequest:
			limited.Reader = io.LimitReader(response.Body, maxRefusal)
		case response.StatusCode >= http.StatusMultipleChoices:
			_ = limited.Close()
			return nil, fmt.Errorf("redirected with status %d, which is not followed: %s", response.StatusCode, what)
		case watches != "" && watches != "false" && watches != "0":
			timeout.Stop()
			limited.Reader = &boundedReader{Reader: response.Body, what: "an event of " + what, most: maxObject, ends: eventsOf(response.Header)}
		case req.Method == http.MethodGet && isList(req.URL.Path):
			limited.Reader = &boundedReader{Reader: response.Body, what: what, most: maxList, ends: never}
		default:
			limited.Reader = &boundedReader{Reader: response.Body, what: what, most: maxObject, ends: never}
		}
		response.Body = limited
		return response, nil
	})
}

// isList says whether a path is that of a resource, and not that of an object.
func isList(path string) bool {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "api":
		parts = parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		parts = parts[3:]
	default:
		return false
	}
	return len(parts) == 1 || len(parts) == 3 && parts[0] == "namespaces"
}

// limitedBody is the body of an answer.
type limitedBody struct {
	io.Reader
	io.Closer
	done func()
}

// Close implements io.Closer.
func (b *limitedBody) Close() error {
	defer b.done()
	return b.Closer.Close()
}

// boundedReader reads up to a number of bytes, counted from the start or from the last end of an event.
type boundedReader struct {
	io.Reader
	// what is the name of the answer in the error.
	what string
	most int
	// ends says whether an event ends with a byte.
	ends func(byte) bool

	read int
}

// Read implements io.Reader.
func (b *boundedReader) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	for i, c := range p[:n] {
		if b.read++; b.read > b.most {
			return i, fmt.Errorf("%w than %d bytes: %s", errTooLarge, b.most, b.what)
		}
		if b.ends(c) {
			b.read = 0
		}
	}
	return n, err
}

func never(byte) bool { return false }

// eventsOf returns a function that recognizes the ends of the events of a watch. If the format is not known, all events together are
// bounded.
func eventsOf(header http.Header) func(byte) bool {
	contentType, _, _ := mime.ParseMediaType(header.Get("Content-Type"))
	switch contentType {
	case "application/json", "":
		return (&jsonEvents{}).ends
	case "application/vnd.kubernetes.protobuf":
		return (&frames{}).ends
	}
	return never
}

// jsonEvents are JSON values, one after the other. A newline does not mark the end of a value, because a value may have newlines.
type jsonEvents struct {
	depth             int
	quoted, backslash bool
}

func (j *jsonEvents) ends(c byte) bool {
	switch {
	case j.backslash:
		j.backslash = false
	case j.quoted:
		j.backslash, j.quoted = c == '\\', c != '"'
	case c == '"':
		j.quoted = true
	case c == '{' || c == '[':
		j.depth++
	case c == '}' || c == ']':
		j.depth--
		return j.depth <= 0
	}
	return false
}

// frames are messages, each preceded by its length in four bytes.
type frames struct {
	header []byte
	left   uint32
}

func (f *frames) ends(c byte) bool {
	if f.left > 0 {
		f.left--
		return f.left == 0
	}
	if f.header = append(f.header, c); len(f.header) < 4 {
		return false
	}
	f.left, f.header = binary.BigEndian.Uint32(f.header), f.header[:0]
	return f.left == 0
}
