// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package lock locks files among processes. The kernel releases a lock when its process ends, in whatever way.
package lock

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const retryInterval = 100 * time.Millisecond

// Lock is a lock that this process holds.
type Lock struct {
	file *os.File
}

// Acquire creates the file if needed, and waits for its lock.
func Acquire(ctx context.Context, path string) (*Lock, error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	for {
		acquired, err := try(file, syscall.LOCK_EX)
		switch {
		case err != nil:
			file.Close()
			return nil, err
		case acquired:
			return &Lock{file: file}, nil
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, fmt.Errorf("another process holds %s: %w", path, ctx.Err())
		case <-time.After(retryInterval):
		}
	}
}

// Release releases the lock.
func (l *Lock) Release() { l.file.Close() }

// Held tells whether any process holds the lock of the file.
func Held(path string) (bool, error) {
	file, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer file.Close()
	acquired, err := try(file, syscall.LOCK_SH)
	return !acquired, err
}

func try(file *os.File, how int) (bool, error) {
	err := syscall.Flock(int(file.Fd()), how|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("could not lock %s: %w", file.Name(), err)
	}
	return true, nil
}
