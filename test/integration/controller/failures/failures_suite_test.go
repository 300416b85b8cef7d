// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package failures_test

import (
	"context"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	testclock "k8s.io/utils/clock/testing"

	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

func TestFailures(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Failures Integration Suite")
}

var (
	env                  *environment.Environment
	resourceManagerClock = testclock.NewFakeClock(time.Now())
)

// The API server of the seed is that of the shoots: there is one shoot.
var _ = BeforeSuite(func(ctx SpecContext) {
	env = environment.StartAll()
	env.StartResourceManager(context.WithoutCancel(ctx), resourceManagerClock)
})
