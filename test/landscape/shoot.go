// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

import (
	"fmt"
	"syscall"
)

// FreezeShoot freezes the API server of the shoot, with all watches and requests that are under way, until the returned
// function is called: nobody is refused, and nobody is answered.
func (l *Landscape) FreezeShoot() (thaw func() error, err error) {
	signal := func(s syscall.Signal) error {
		if err := syscall.Kill(l.Shoot.PID(), s); err != nil {
			return fmt.Errorf("could not send %s to the API server of the shoot: %w", s, err)
		}
		return nil
	}
	return func() error { return signal(syscall.SIGCONT) }, signal(syscall.SIGSTOP)
}
