// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance

import "sigs.k8s.io/controller-runtime/pkg/client"

// Client is what controllers need of Maintenances: it reads NodeMaintenances from a cache, and writes to the shoot.
type Client interface {
	client.Client
	// Known says that all NodeMaintenances have been read once.
	Known() bool
}
