// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// settings are those of a preservation controller that decide about machines and pods.
type settings struct {
	group preservation.Group
	// strategies are those of the drain of an update; nil if nothing helps it.
	strategies *drain.Strategies
}

// settingsOf returns what the arguments of a preservation controller say, and its defaults where they say nothing. An error
// says what cannot be read; the settings are good for the rest.
func settingsOf(controller *evidence.Controller) (settings, error) {
	var (
		s          = settings{}
		g          = &s.group
		strategies drain.Strategies
		helps      bool
		patterns   []string
		holder     string
	)
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	fs.StringVar(&holder, "holder", "", "")
	fs.DurationVar(&g.MaxTimeout, "max-machine-preserve-timeout", v1alpha1.DefaultMaxMachinePreserveTimeout, "")
	fs.DurationVar(&g.Timeouts.Health, "machine-health-timeout", preservation.DefaultTimeouts.Health, "")
	fs.DurationVar(&g.Timeouts.Creation, "machine-creation-timeout", preservation.DefaultTimeouts.Creation, "")
	fs.DurationVar(&g.Timeouts.Drain, "machine-drain-timeout", preservation.DefaultTimeouts.Drain, "")
	fs.StringSliceVar(&g.NodeConditions, "node-conditions", preservation.DefaultNodeConditions, "")
	fs.BoolVar(&g.Maintenance.Enabled, "node-maintenance", controller == nil, "")
	fs.DurationVar(&g.Maintenance.MaxHoldTime, "node-maintenance-max-hold-time", v1alpha1.DefaultMaxHoldTime, "")
	fs.BoolVar(&g.Remediation.Enabled, "power-cycle", controller == nil, "")
	fs.BoolVar(&helps, "drain-strategies", false, "")
	fs.BoolVar(&strategies.Disabled, "drain-strategies-disabled", false, "")
	fs.DurationVar(&strategies.Timeout, "drain-strategies-timeout", 45*time.Minute, "")
	fs.DurationVar(&strategies.ExpectedDrainTime, "expected-drain-time", 8*time.Minute, "")
	fs.DurationVar(&strategies.PDBForceDrainTimeout, "pdb-force-drain-timeout", time.Hour, "")
	fs.StringArrayVar(&patterns, "drain-ignored-namespace-pattern", nil, "")

	var errs []error
	if controller != nil {
		errs = append(errs, fs.Parse(controller.Args))
	}
	for _, pattern := range patterns {
		compiled, err := drain.CompileNamespacePattern(pattern)
		if err != nil {
			errs = append(errs, fmt.Errorf("--drain-ignored-namespace-pattern=%q: %w", pattern, err))
			strategies.Disabled = true // as the controller does: it may be there to protect pods
			continue
		}
		strategies.IgnoredNamespaces = append(strategies.IgnoredNamespaces, compiled)
	}
	switch holder {
	case "preserve-expiry":
		g.Holder = preservation.PreserveExpiry{}
	case "health-timer":
		g.Holder = preservation.HealthTimer{}
	case "":
	default:
		errs = append(errs, fmt.Errorf("--holder=%q is not known", holder))
	}
	if helps {
		s.strategies = &strategies
	}
	return s, errors.Join(errs...)
}
