// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

import (
	"context"
	"io"
	"net/http"
	"time"
)

const (
	// answerTimeout is how long a request to the shoot may take; one that watches, until it begins to be answered. Most
	// callers wait for less.
	answerTimeout = 30 * time.Second
	// maxRefusal is how many bytes are read of an answer that is an error. client-go cannot decode what is longer: it then
	// knows the status code, and logs no more than that.
	maxRefusal = 8 << 10
)

// Limit returns a transport on which the shoot can neither make anybody wait nor have anything repeated or logged at
// length (P14). A webhook or the settings of its API server's flow control decide on how long a request takes, what is
// answered, and with Retry-After on when client-go repeats the request, which may be in decades.
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
		switch refused := response.StatusCode >= http.StatusBadRequest; {
		case refused:
			limited.Reader = io.LimitReader(response.Body, maxRefusal)
		case req.URL.Query().Get("watch") != "":
			timeout.Stop()
		}
		response.Body = limited
		return response, nil
	})
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
