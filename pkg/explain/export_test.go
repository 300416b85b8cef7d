// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package explain

import "github.com/spf13/pflag"

// AddFlags adds the flags of the preservation controller that are read.
func AddFlags(fs *pflag.FlagSet) { (&flags{}).addTo(fs) }
