// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"go.uber.org/zap"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logzap "sigs.k8s.io/controller-runtime/pkg/log/zap"
)

// MachineChanged and MachineSetChanged select changes that MachineOf reads.
var (
	MachineChanged    = machineChanged
	MachineSetChanged = machineSetChanged
)

// NewFor returns Maintenances of informers and a client.
func NewFor(c client.Client, maintenances, config cache.Informer) (*Maintenances, error) {
	m := &Maintenances{Client: c, maintenances: maintenances, config: config, level: zap.NewAtomicLevel()}
	m.log = logzap.New(logzap.Level(m.level))
	return m, m.followLevel()
}
