// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package nodemaintenance_test

import (
	"context"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

func TestNodeMaintenance(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Node Maintenance Integration Suite")
}

var env *environment.Environment

// All of a shoot that gardener-resource-manager brings is there once, as the API server of the seed is that of the shoots: there
// is one shoot.
var _ = BeforeSuite(func(ctx SpecContext) {
	GinkgoT().Setenv("GARDENER_SHOOT_CLIENT", "external") // there is no network of a seed
	env = environment.StartAll()
	env.StartResourceManager(context.WithoutCancel(ctx), nil)
})
