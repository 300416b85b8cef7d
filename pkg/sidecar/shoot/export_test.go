// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot

// What the tests look at beside the exported names.
var Bounded = bounded

// Answers says that the last request for nodes was answered.
func (c *Connection) Answers() bool { return c.answers.Load() }
