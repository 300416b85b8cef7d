// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

//go:build !mcm061

package mcm

import (
	"github.com/gardener/machine-controller-manager/pkg/util/provider/app/options"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/driver"
	machinecontroller "github.com/gardener/machine-controller-manager/pkg/util/provider/machinecontroller"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machineutils"
	"k8s.io/client-go/tools/record"
)

// Generation is the one of MCM that is compiled in.
const Generation = "0.62"

func newMachineController(c *clients, namespace string, cloud driver.Driver, defaults *options.MCServer) (machinecontroller.Controller, error) {
	machines := c.machineInformers.Machine().V1alpha1()
	return machinecontroller.NewController(namespace, c.machines.MachineV1alpha1(), c.seed, c.shoot, cloud, c.shootInformers,
		c.seedInformers.Core().V1().Secrets(), machines.MachineClasses(), machines.Machines(),
		&record.FakeRecorder{}, defaults.SafetyOptions, defaults.NodeConditions, "", kubernetesVersion,
		machineutils.RetryPeriod(defaults.ResourceExhaustedRetry.Duration))
}
