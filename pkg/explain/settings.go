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
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// settings are those of a preservation controller that decide about machines and pods.
type settings struct {
	group preservation.Group
	// storm says when too many machines of the shoot fail at the same time.
	storm facts.StormLimits
	// maxHours is how many machine-hours of a month operators allow, 0 for any number.
	maxHours int32
	// strategies are those of the drain of an update; nil if nothing helps it.
	strategies *drain.Strategies
}

// flags are those of the preservation controller that settings are made of.
type flags struct {
	settings
	controlled drain.Strategies
	helps      bool
	patterns   []string
	holder     string
}

// addTo adds the flags to a set, with the controller's defaults.
func (f *flags) addTo(fs *pflag.FlagSet) {
	g, strategies := &f.group, &f.controlled
	fs.StringVar(&f.holder, "holder", "", "")
	fs.DurationVar(&g.MaxTimeout, "max-machine-preserve-timeout", v1alpha1.DefaultMaxMachinePreserveTimeout, "")
	fs.Int32Var(&f.maxHours, "max-machine-hours", 0, "")
	fs.DurationVar(&g.Timeouts.Health, "machine-health-timeout", facts.DefaultTimeouts.Health, "")
	fs.DurationVar(&g.Timeouts.Creation, "machine-creation-timeout", facts.DefaultTimeouts.Creation, "")
	fs.DurationVar(&g.Timeouts.Drain, "machine-drain-timeout", facts.DefaultTimeouts.Drain, "")
	fs.StringSliceVar(&g.NodeConditions, "node-conditions", facts.DefaultNodeConditions, "")
	fs.Int32Var(&f.storm.MaxFailing, "storm-max-failing", 0, "")
	fs.Int32Var(&f.storm.MaxFailingPercent, "storm-max-failing-percent", 0, "")
	fs.DurationVar(&f.storm.SettlingTime, "storm-settling-time", v1alpha1.DefaultStormSettlingTime, "")
	fs.BoolVar(&g.Maintenance.Enabled, "node-maintenance", false, "")
	fs.DurationVar(&g.Maintenance.MaxHoldTime, "node-maintenance-max-hold-time", v1alpha1.DefaultMaxHoldTime, "")
	fs.BoolVar(&g.Remediation.Enabled, "power-cycle", false, "")
	fs.BoolVar(&f.helps, "drain-strategies", false, "")
	fs.BoolVar(&strategies.Disabled, "drain-strategies-disabled", false, "")
	fs.DurationVar(&strategies.Timeout, "drain-strategies-timeout", 45*time.Minute, "")
	fs.DurationVar(&strategies.ExpectedDrainTime, "expected-drain-time", 8*time.Minute, "")
	fs.DurationVar(&strategies.PDBForceDrainTimeout, "pdb-force-drain-timeout", time.Hour, "")
	fs.StringArrayVar(&f.patterns, "drain-ignored-namespace-pattern", nil, "")
}

// CountsHours says that a preservation controller counts machine-hours (P17).
func CountsHours(controller *observed.Controller) bool {
	settings, _ := settingsOf(controller)
	return controller != nil && settings.maxHours > 0
}

// settingsOf returns what the arguments of a preservation controller say, and its defaults where they say nothing. Of one that is
// not known, maintenances and remediations are believed: objects say that there are any. An error says what cannot be read; the
// settings are good for the rest.
func settingsOf(controller *observed.Controller) (settings, error) {
	f := &flags{}
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.ParseErrorsAllowlist.UnknownFlags = true
	f.addTo(fs)

	var errs []error
	if controller != nil {
		errs = append(errs, fs.Parse(controller.Args))
	} else {
		f.group.Maintenance.Enabled, f.group.Remediation.Enabled = true, true
	}
	for _, pattern := range f.patterns {
		compiled, err := drain.CompileNamespacePattern(pattern)
		if err != nil {
			errs = append(errs, fmt.Errorf("--drain-ignored-namespace-pattern=%q: %w", pattern, err))
			f.controlled.Disabled = true // as the controller does: it may be there to protect pods
			continue
		}
		f.controlled.IgnoredNamespaces = append(f.controlled.IgnoredNamespaces, compiled)
	}
	switch f.holder {
	case "preserve-expiry":
		f.group.Holder = preservation.PreserveExpiry{}
	case "health-timer":
		f.group.Holder = preservation.HealthTimer{}
	case "":
	default:
		errs = append(errs, fmt.Errorf("--holder=%q is not known", f.holder))
	}
	if f.helps {
		f.strategies = &f.controlled
	}
	return f.settings, errors.Join(errs...)
}
