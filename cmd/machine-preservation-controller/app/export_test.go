// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// What the tests look at beside the exported names.
var (
	StripMachineDeployment = shoot.Strip(stripMachineDeployment)
	StripMachineSet        = shoot.Strip(stripMachineSet)
	StripMachine           = shoot.Strip(stripMachine)
	StripNode              = stripNode
)

// Beside returns what runs a cluster's caches.
func Beside(c cluster.Cluster) manager.Runnable { return beside{c} }

// StrategiesOf returns the drain strategies that flags say.
func StrategiesOf(opts *Options) (drain.Strategies, error) { return opts.DrainStrategies.strategies() }

// AwaitConfig reads the kubeconfig of the shoot when it is there.
var AwaitConfig = awaitConfig
