// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package quarantine

// Remembers returns how many failures are in memory.
func (r *Reconciler) Remembers() int {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	return len(r.failures)
}
