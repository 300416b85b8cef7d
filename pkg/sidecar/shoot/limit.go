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
	// answerTimeout is how long a request to the shoot may take; one that watches, until it begins to be answered. Most
	// callers wait for less.
	answerTimeout = 30 * time.Second
	// maxRefusal is how many bytes are read of an answer that is an error. client-go cannot decode what is longer: it then
	// knows the status code, and logs no more than that.
	maxRefusal = 8 << 10
	// maxList is how many bytes a list may have, or a page of one, and maxObject an object or an event of a watch. Kubernetes stores
	// objects of at most 1.5 MiB, of which JSON makes more.
	maxList, maxObject = 32 << 20, 8 << 20
)

// errTooLarge is the error of an answer that is not read any further.
var errTooLarge = errors.New("the answer has more")

// Limit returns a transport on which the shoot can neither make anybody wait nor have anything repeated, logged at length, or kept in
// memory that is larger than what Kubernetes stores (P14). A webhook or the settings of its API server's flow control decide on how
// long a request takes, what is answered, and with Retry-After on when client-go repeats the request, which may be in decades. An
// aggregated API server decides on all of it, and is refused to send the request, and the token with it, elsewhere.
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

// isList says that a path is that of a resource, and not of an object.
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

// boundedReader reads up to a number of bytes, from the start or since the last end of an event.
type boundedReader struct {
	io.Reader
	// what is read, as it is called in the error.
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

// eventsOf returns what tells the ends of the events of a watch. Where the format is not known, they are bounded in sum.
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

// jsonEvents are values of JSON, one after the other. That they end with a newline says nothing: there may be some within a value.
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

// frames are messages behind their length, in four bytes.
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
