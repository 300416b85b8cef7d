// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

const (
	pollInterval = 100 * time.Millisecond
	// shownLines is how many of the last lines of a log are part of an error.
	shownLines = 10
	// tailBytes bounds what is read of a log for them.
	tailBytes = 16 << 10
)

// StartReady starts the process and waits until the check succeeds. A process that does not get ready is ended.
func StartReady(ctx context.Context, spec Spec, check func(context.Context) error) (*Process, error) {
	p, err := Start(spec)
	if err != nil {
		return nil, err
	}
	if err := p.WaitReady(ctx, check); err != nil {
		return nil, errors.Join(err, p.Stop(context.WithoutCancel(ctx)))
	}
	return p, nil
}

// WaitReady waits until the check succeeds. If the process ends or the deadline of the context passes before, the error
// names the process and its log file, and shows the last lines of it.
func (p *Process) WaitReady(ctx context.Context, check func(context.Context) error) error {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-p.done:
			return fmt.Errorf("%s ended before it was ready: %v, its log is %s and ends with:\n%s",
				p.name, p.cmd.ProcessState, p.logFile, LastLines(p.logFile))
		case <-ctx.Done():
			if errors.Is(ctx.Err(), context.Canceled) {
				return fmt.Errorf("the start of %s was interrupted: %w", p.name, ctx.Err())
			}
			return fmt.Errorf("%s did not get ready: %w: %w, its log is %s and ends with:\n%s",
				p.name, ctx.Err(), err, p.logFile, LastLines(p.logFile))
		case <-ticker.C:
		}
	}
}

// HTTPOK returns a check that succeeds when a GET of the URL is answered with status 200.
func HTTPOK(client *http.Client, url string) func(context.Context) error {
	return func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return err
		}
		response, err := client.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			body, _ := io.ReadAll(io.LimitReader(response.Body, 512))
			return fmt.Errorf("%s answered %s: %s", url, response.Status, bytes.TrimSpace(body))
		}
		return nil
	}
}

// LastLines returns the last lines of a log file, or why it cannot be read.
func LastLines(path string) string {
	file, err := os.Open(path)
	if err != nil {
		return err.Error()
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > tailBytes {
		if _, err := file.Seek(-tailBytes, io.SeekEnd); err != nil {
			return err.Error()
		}
	}
	content, err := io.ReadAll(file)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimRight(content, "\n"), []byte("\n"))
	return string(bytes.Join(lines[max(0, len(lines)-shownLines):], []byte("\n")))
}
