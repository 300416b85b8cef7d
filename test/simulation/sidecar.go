// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/gardener/gardener-extension-machine-preservation/cmd/machine-preservation-controller/app"
	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/test/simulation/mcm"
)

// old says that MCM knows nothing of preservation.
const old = mcm.Generation == "0.61"

// runSidecar is the process of this project, as its command puts it together, but for leader election, which would be most of
// what happens. It has the settings of a history.
func runSidecar(ctx context.Context, life *Life, h History) error {
	opts := &app.Options{
		Namespace:          namespace,
		Holder:             "preserve-expiry",
		MaxPreserveTimeout: h.longest(),
		MaxMachineHours:    int32(h.Hours), // #nosec G115 -- a few
		Timeouts:           facts.Timeouts{Health: healthTimeout, Creation: creationTimeout, Drain: drainTimeout},
		NodeConditions:     facts.DefaultNodeConditions,
		DrainConditions:    h.ShowsDrains,
		NodeMaintenance:    app.NodeMaintenance{Enabled: true, MaxHoldTime: maxHoldTime},
		PowerCycle:         app.PowerCycle{Enabled: true, HostKind: string(configv1alpha1.HostKindBareMetalHost), SeedName: seedName, ShootRequests: true},
		Storm:              h.Storm,
		Failures:           true,
		MetricsBindAddress: "0",
	}
	if old {
		opts.Holder = "health-timer"
	}
	metrics.Registry = prometheus.NewRegistry() // the one of the last start has the metrics already
	mgr, err := app.NewManager(ctx, opts, life.config("seed"), life.config("shoot"), func(o *manager.Options) {
		o.LeaderElection = false
		o.Controller = config.Controller{
			SkipNameValidation: new(true),  // it is started again in the same program
			RecoverPanic:       new(false), // it is to be seen
			UsePriorityQueue:   new(false), // it updates metrics twice a second, which is most of what happens when nothing does
		}
		o.GracefulShutdownTimeout = new(time.Minute)
	})
	if err != nil {
		return err
	}
	return mgr.Start(ctx)
}
