// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

func TestPreservation(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Controller Preservation Suite")
}

const (
	preserve = "node.machine.sapcloud.io/preserve"
	prefix   = "machine-preservation.extensions.gardener.cloud/"
	released = prefix + "released"
	// preservedSince stays for as long as the machine does (P13).
	preservedSince = prefix + "preserved-since"
	// maintainedSince does as well (M12).
	maintainedSince = prefix + "maintained-since"
	maintenance     = prefix + "maintenance"
	remediation     = prefix + "remediation"
	disabled        = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	byMCM           = "cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm"
)

var holders = map[string]preservation.Holder{
	"HealthTimer":    preservation.HealthTimer{},
	"PreserveExpiry": preservation.PreserveExpiry{},
}
