// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package panics keeps a goroutine that deals with one object of many from ending the process when it panics: what the object
// says may be anybody's. Controller-runtime recovers its own goroutines only, and what client-go starts panics on.
package panics

import (
	"context"
	"fmt"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
)

// Catch calls a function and returns its error, or an error if it panics, which is logged with the stack.
func Catch(ctx context.Context, do func() error) (err error) {
	defer func() {
		if r := recover(); r != nil {
			for _, handle := range utilruntime.PanicHandlers {
				handle(ctx, r)
			}
			err = fmt.Errorf("panic: %s", brief.Cut(fmt.Sprint(r)))
		}
	}()
	return do()
}
