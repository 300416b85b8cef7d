// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package brief makes what others wrote, or what there may be much of, fit to be passed on: a value on a Node, what a budget
// or a webhook answered, or the names of pods (P14).
package brief

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
)

const (
	// limit is how many characters of what others wrote are passed on.
	limit = 128
	// maxNote is how many bytes of a note the API server accepts in an Event.
	maxNote = 1024

	ellipsis = "..."
)

// Printable returns what can be printed of a text that others wrote, in one line: terminals obey what cannot.
func Printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case unicode.IsPrint(r):
			return r
		case unicode.IsSpace(r):
			return ' '
		}
		return -1
	}, text)
}

// Cut returns the first 128 characters that can be printed of a text that others wrote.
func Cut(text string) string {
	text = Printable(text)
	count := 0
	for i := range text {
		if count == limit {
			return text[:i]
		}
		count++
	}
	return text
}

// End returns the last 256 characters that can be printed of a text that others wrote, with an ellipsis if these are not all. An API
// server that refuses a patch repeats the whole object before it says what is wrong with it.
func End(text string) string {
	characters := []rune(Printable(text))
	if len(characters) <= 2*limit {
		return string(characters)
	}
	return ellipsis + string(characters[len(characters)-2*limit:])
}

// Note returns as much of a text as the API server accepts for the note of an Event, with an ellipsis if it is not all.
func Note(text string) string {
	if len(text) <= maxNote {
		return strings.ToValidUTF8(text, "")
	}
	return strings.ToValidUTF8(text[:maxNote-len(ellipsis)], "") + ellipsis
}

// First returns the first n of a list, and in words how many more there are.
func First(list []string, n int) []string {
	if more := len(list) - n; more > 0 {
		return append(slices.Clone(list[:n]), More(more))
	}
	return list
}

// More says that n more are not named.
func More(n int) string { return fmt.Sprintf("and %d more", n) }

// Count says how many there are of a thing, which is named in the singular and has a regular plural: 1 place, 2 places.
func Count[N int | int32 | int64](n N, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// Duration returns a duration without the units at its end that are 0.
func Duration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// CutError returns an error with the first characters of another one's text, and is the other one in all else; nil for nil.
func CutError(err error) error {
	if err == nil {
		return nil
	}
	return cutError{err}
}

type cutError struct{ error }

// Error implements error.
func (e cutError) Error() string { return Cut(e.error.Error()) }

// Unwrap returns the error as it was.
func (e cutError) Unwrap() error { return e.error }
