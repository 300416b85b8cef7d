// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package text makes what others wrote fit to be passed on: a value on a Node, or what a budget or a webhook answered
// (P14).
package text

import (
	"strings"
	"unicode"
)

// limit is how many characters of what others wrote are passed on.
const limit = 128

// Cut returns the first 128 characters that can be printed of a text that others wrote.
func Cut(text string) string {
	var (
		b     strings.Builder
		count int
	)
	for _, r := range text {
		if count == limit {
			break
		}
		switch {
		case unicode.IsPrint(r):
		case unicode.IsSpace(r):
			r = ' '
		default:
			continue
		}
		b.WriteRune(r)
		count++
	}
	return b.String()
}

// CutError returns an error with the first characters of another one's text, and is the other one in all else.
func CutError(err error) error { return cutError{err} }

type cutError struct{ error }

// Error implements error.
func (e cutError) Error() string { return Cut(e.error.Error()) }

// Unwrap returns the error as it was.
func (e cutError) Unwrap() error { return e.error }
