// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

func TestEvidence(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Evidence in the Shoot Integration Suite")
}

var env *environment.Environment

// The API server of the seed is that of the shoots: there is one shoot.
var _ = BeforeSuite(func(ctx SpecContext) {
	config := filepath.Join(GinkgoT().TempDir(), "config.yaml")
	Expect(os.WriteFile(config, []byte(`apiVersion: config.machine-preservation.extensions.gardener.cloud/v1alpha1
kind: ControllerConfiguration
evidence:
  enabled: true
`), 0o600)).To(Succeed())
	env = environment.StartAll("--config=" + config)
	env.StartResourceManager(context.WithoutCancel(ctx), nil)
})
