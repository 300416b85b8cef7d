// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app

import (
	"errors"
	"fmt"
	"time"

	"github.com/spf13/pflag"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/drivers"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/quarantine"
)

const (
	inCluster = "inClusterConfig"

	// The holders that --holder knows.
	holderPreserveExpiry = "preserve-expiry"
	holderHealthTimer    = "health-timer"
)

// Options are the flags of the command.
type Options struct {
	Namespace              string
	ControlKubeconfig      string
	TargetKubeconfig       string
	Holder                 string
	MaxPreserveTimeout     time.Duration
	MaxMachineHours        int32
	Timeouts               facts.Timeouts
	NodeConditions         []string
	Storm                  facts.StormLimits
	DrainStrategies        DrainStrategies
	DrainConditions        bool
	NodeMaintenance        NodeMaintenance
	PowerCycle             PowerCycle
	Evidence               Evidence
	Failures               bool
	MetricsBindAddress     string
	HealthProbeBindAddress string
}

// DrainStrategies are the flags of the timed drain strategies. Nothing of them happens if they are not enabled.
type DrainStrategies struct {
	Enabled                  bool
	Strategies               drain.Strategies
	IgnoredNamespacePatterns []string
}

// NodeMaintenance are the flags of node maintenances. Nothing of them happens if they are not enabled.
type NodeMaintenance struct {
	Enabled     bool
	MaxHoldTime time.Duration
	MaxOvertime time.Duration
	Namespaces  []string
}

// PowerCycle are the flags of power cycles. Nothing of them happens if they are not enabled.
type PowerCycle struct {
	Enabled bool
	// HostKind is the kind of the hosts, SeedName the name by which they know the seed, and HostKubeconfig the file that leads
	// to them; empty if they are beside the Machines.
	HostKind, SeedName, HostKubeconfig string
	ShootRequests                      bool
	// MaxPerShoot is how many machines are power-cycled at a time, 0 for any number. With Grants, the extension has a say in that.
	MaxPerShoot  int32
	Grants       bool
	MaxServicing time.Duration
	// Quarantine is after how many failures within which time no other machine gets a host.
	Quarantine quarantine.Settings
}

// Evidence are the flags of stored evidence. Nothing of it happens if it is not enabled.
type Evidence struct {
	Enabled bool
	// Retention is for how long evidence is kept after its machine is gone.
	Retention time.Duration
	// Budget is how many bytes of it are stored.
	Budget int64
	// NodeLogs says that logs of nodes are part of it.
	NodeLogs bool
}

// AddFlags adds the flags to a set. The timeouts and the node conditions default to those of machine-controller-manager.
func (o *Options) AddFlags(fs *pflag.FlagSet) {
	fs.StringVar(&o.Namespace, "namespace", "", "Namespace of the Machines.")
	fs.StringVar(&o.ControlKubeconfig, "control-kubeconfig", inCluster, "Kubeconfig file of the cluster with the Machines, or "+inCluster+".")
	fs.StringVar(&o.TargetKubeconfig, "target-kubeconfig", "", "Kubeconfig file of the cluster with the Nodes.")
	fs.StringVar(&o.Holder, "holder", "", "How machine-controller-manager is told not to terminate a machine: "+holderPreserveExpiry+" for 0.62 and newer, "+holderHealthTimer+" for older ones.")
	fs.DurationVar(&o.MaxPreserveTimeout, "max-machine-preserve-timeout", v1alpha1.DefaultMaxMachinePreserveTimeout, "Longest time for which a machine is preserved, counted from when a request or the share first preserved it. The count starts again once the machine has been healthy, not preserved and without a request 'now' for its health timeout. Maintenances and power cycles have limits of their own.")
	fs.Int32Var(&o.MaxMachineHours, "max-machine-hours", 0, "Largest number of machine-hours in a calendar month (UTC) for which requests and the share preserve machines of the shoot. 0 means that machine-hours are neither counted nor limited. Maintenances, power cycles and validations do not count.")
	fs.DurationVar(&o.Timeouts.Health, "machine-health-timeout", facts.DefaultTimeouts.Health, "Time after which machine-controller-manager marks an unhealthy machine Failed.")
	fs.DurationVar(&o.Timeouts.Creation, "machine-creation-timeout", facts.DefaultTimeouts.Creation, "Time after which machine-controller-manager marks a machine that has not joined Failed.")
	fs.DurationVar(&o.Timeouts.Drain, "machine-drain-timeout", facts.DefaultTimeouts.Drain, "Time after which pods are deleted by force.")
	fs.StringSliceVar(&o.NodeConditions, "node-conditions", facts.DefaultNodeConditions, "Comma-separated types of the node conditions that make a machine unhealthy for machine-controller-manager.")
	fs.Int32Var(&o.Storm.MaxFailing, "storm-max-failing", 0, "Largest number of machines that may fail at the same time before no machine is auto-preserved or power-cycled automatically. 0 means no limit.")
	fs.Int32Var(&o.Storm.MaxFailingPercent, "storm-max-failing-percent", 0, "The same limit as a percentage of the machines that have a Node, rounded up. The lower limit applies. 0 means no limit.")
	fs.DurationVar(&o.Storm.SettlingTime, "storm-settling-time", v1alpha1.DefaultStormSettlingTime, "Time for which a machine still counts as failing after its Node has become Ready again.")
	fs.BoolVar(&o.DrainStrategies.Enabled, "drain-strategies", false, "Whether drain strategies apply to nodes that machine-controller-manager drains because of an update.")
	fs.BoolVar(&o.DrainStrategies.Strategies.Disabled, "drain-strategies-disabled", false, "Whether drain strategies leave all pods alone and only report drains that fail.")
	fs.DurationVar(&o.DrainStrategies.Strategies.Timeout, "drain-strategies-timeout", 45*time.Minute, "Time that a node has to drain before drain strategies act.")
	fs.DurationVar(&o.DrainStrategies.Strategies.ExpectedDrainTime, "expected-drain-time", 8*time.Minute, "Time that the drain of a node takes in the best case.")
	fs.DurationVar(&o.DrainStrategies.Strategies.PDBForceDrainTimeout, "pdb-force-drain-timeout", time.Hour, "Time after --expected-drain-time for which PodDisruptionBudgets are still respected.")
	fs.StringArrayVar(&o.DrainStrategies.IgnoredNamespacePatterns, "drain-ignored-namespace-pattern", nil, "Regular expression that matches the whole name of a namespace whose pods are left alone. Can be repeated.")
	fs.BoolVar(&o.DrainConditions, "drain-conditions", false, "Whether nodes show each drain in the conditions DrainInProgress and Drained of Kubernetes.")
	fs.BoolVar(&o.NodeMaintenance.Enabled, "node-maintenance", false, "Whether NodeMaintenances of the shoot are carried out.")
	fs.DurationVar(&o.NodeMaintenance.MaxHoldTime, "node-maintenance-max-hold-time", v1alpha1.DefaultMaxHoldTime, "Longest time for which the machine of a node under maintenance is preserved. Limited by --max-machine-preserve-timeout.")
	fs.DurationVar(&o.NodeMaintenance.MaxOvertime, "node-maintenance-max-overtime", v1alpha1.DefaultMaxNodeMaintenanceOvertime, "Time for which a NodeMaintenance may keep its node after its Ready time is over, because its requestor has failed or, after its deletion, because additional requestors have not released it. 0 means no limit.")
	fs.StringSliceVar(&o.NodeMaintenance.Namespaces, "node-maintenance-namespaces", nil, "Comma-separated namespaces whose NodeMaintenances are carried out. All namespaces if empty.")
	fs.BoolVar(&o.PowerCycle.Enabled, "power-cycle", false, "Whether to power-cycle the hosts of machines.")
	fs.StringVar(&o.PowerCycle.HostKind, "host-kind", "", "Kind of the hosts.")
	fs.StringVar(&o.PowerCycle.SeedName, "seed-name", "", "Name of this seed, which is written on hosts.")
	fs.StringVar(&o.PowerCycle.HostKubeconfig, "host-kubeconfig", "", "Kubeconfig file of the cluster with the hosts. The file may be created or replaced later. Without the flag, the hosts are in the cluster with the Machines.")
	fs.BoolVar(&o.PowerCycle.ShootRequests, "power-cycle-shoot-requests", false, "Whether power cycles can be requested on Nodes.")
	fs.Int32Var(&o.PowerCycle.MaxPerShoot, "power-cycle-max-per-shoot", 0, "Largest number of machines that are power-cycled at a time. 0 means no limit.")
	fs.BoolVar(&o.PowerCycle.Grants, "power-cycle-grants", false, "Whether a power cycle begins only after the extension has granted it.")
	fs.DurationVar(&o.PowerCycle.MaxServicing, "power-cycle-max-servicing", v1alpha1.DefaultMaxServicing, "Longest time for which the deadlines of a power cycle are paused while its host is being serviced.")
	fs.IntVar(&o.PowerCycle.Quarantine.Failures, "quarantine-failures", 0, "Number of failures of machines on a host within --quarantine-period after which the host is put into quarantine. 0 disables quarantine. Only with --power-cycle.")
	fs.DurationVar(&o.PowerCycle.Quarantine.Period, "quarantine-period", 0, "Time within which failures of machines on a host are counted together.")
	fs.BoolVar(&o.Evidence.Enabled, "evidence", false, "Whether to store evidence of failed machines that are preserved.")
	fs.DurationVar(&o.Evidence.Retention, "evidence-retention", v1alpha1.DefaultEvidenceRetention, "Time for which evidence is kept after its machine is gone.")
	fs.Int64Var(&o.Evidence.Budget, "evidence-budget", v1alpha1.DefaultEvidenceBudget, "Largest number of bytes of evidence that are stored.")
	fs.BoolVar(&o.Evidence.NodeLogs, "evidence-node-logs", false, "Whether to request logs of nodes from their kubelets and store them too.")
	fs.BoolVar(&o.Failures, "failures", false, "Whether to record failures of machines in the shoot, as MachineFailures.")
	fs.StringVar(&o.MetricsBindAddress, "metrics-bind-address", ":10260", "Address on which metrics are served.")
	fs.StringVar(&o.HealthProbeBindAddress, "health-probe-bind-address", ":10261", "Address on which health probes are served.")
}

// quarantining returns the kind of the hosts that may be put into quarantine, nil if none are to be.
func (o *Options) quarantining() (host.Quarantining, error) {
	kind, err := drivers.For(configv1alpha1.HostKind(o.PowerCycle.HostKind))
	if err != nil || o.PowerCycle.Quarantine.Failures == 0 {
		return nil, nil //nolint:nilerr // that of the kind is told anyway
	}
	quarantining, ok := kind.Kind.(host.Quarantining)
	if !ok {
		return nil, fmt.Errorf("--quarantine-failures=%d: hosts of kind %s cannot be put into quarantine", o.PowerCycle.Quarantine.Failures, o.PowerCycle.HostKind)
	}
	return quarantining, nil
}

// Validate returns an error that names each flag which cannot be used as it is, and what is valid.
func (o *Options) Validate() error {
	var errs []error
	for _, flag := range []struct{ name, value string }{
		{"namespace", o.Namespace},
		{"control-kubeconfig", o.ControlKubeconfig},
		{"target-kubeconfig", o.TargetKubeconfig},
	} {
		if flag.value == "" {
			errs = append(errs, fmt.Errorf("--%s must be set", flag.name))
		}
	}
	if _, err := o.holder(); err != nil {
		errs = append(errs, err)
	}
	if o.PowerCycle.Enabled {
		if _, err := drivers.For(configv1alpha1.HostKind(o.PowerCycle.HostKind)); err != nil {
			errs = append(errs, fmt.Errorf("--host-kind: %w", err))
		}
		if _, err := o.quarantining(); err != nil {
			errs = append(errs, err)
		}
		if o.PowerCycle.SeedName == "" {
			errs = append(errs, errors.New("--seed-name must be set"))
		}
	}
	if o.Evidence.Budget < v1alpha1.MinEvidenceBudget {
		errs = append(errs, fmt.Errorf("--evidence-budget=%d must be at least %d", o.Evidence.Budget, v1alpha1.MinEvidenceBudget))
	}
	if o.PowerCycle.MaxPerShoot < 0 {
		errs = append(errs, fmt.Errorf("--power-cycle-max-per-shoot=%d must not be negative", o.PowerCycle.MaxPerShoot))
	}
	if o.Storm.MaxFailing < 0 {
		errs = append(errs, fmt.Errorf("--storm-max-failing=%d must not be negative", o.Storm.MaxFailing))
	}
	if o.Storm.MaxFailingPercent < 0 || o.Storm.MaxFailingPercent > 100 {
		errs = append(errs, fmt.Errorf("--storm-max-failing-percent=%d must be between 0 and 100", o.Storm.MaxFailingPercent))
	}
	if o.MaxPreserveTimeout < v1alpha1.MinMachinePreserveTimeout {
		errs = append(errs, fmt.Errorf("--max-machine-preserve-timeout=%s must be at least %s", o.MaxPreserveTimeout, v1alpha1.MinMachinePreserveTimeout))
	}
	if o.MaxMachineHours < 0 {
		errs = append(errs, fmt.Errorf("--max-machine-hours=%d must not be negative", o.MaxMachineHours))
	}
	if o.NodeMaintenance.MaxOvertime < 0 {
		errs = append(errs, fmt.Errorf("--node-maintenance-max-overtime=%s must not be negative", o.NodeMaintenance.MaxOvertime))
	}
	for _, flag := range []struct {
		name  string
		value time.Duration
	}{
		{"machine-health-timeout", o.Timeouts.Health},
		{"machine-creation-timeout", o.Timeouts.Creation},
		{"machine-drain-timeout", o.Timeouts.Drain},
		{"storm-settling-time", o.Storm.SettlingTime},
		{"drain-strategies-timeout", o.DrainStrategies.Strategies.Timeout},
		{"expected-drain-time", o.DrainStrategies.Strategies.ExpectedDrainTime},
		{"node-maintenance-max-hold-time", o.NodeMaintenance.MaxHoldTime},
		{"power-cycle-max-servicing", o.PowerCycle.MaxServicing},
		{"evidence-retention", o.Evidence.Retention},
	} {
		if flag.value <= 0 {
			errs = append(errs, fmt.Errorf("--%s=%s must be greater than 0", flag.name, flag.value))
		}
	}
	return errors.Join(errs...)
}

// strategies returns the drain strategies. Those with a pattern that cannot be compiled do nothing: it may be there to
// protect pods. The error then says which.
func (d *DrainStrategies) strategies() (drain.Strategies, error) {
	strategies := d.Strategies
	for _, pattern := range d.IgnoredNamespacePatterns {
		compiled, err := drain.CompileNamespacePattern(pattern)
		if err != nil {
			strategies.Disabled = true
			return strategies, fmt.Errorf("--drain-ignored-namespace-pattern=%q cannot be used: %w", pattern, err)
		}
		strategies.IgnoredNamespaces = append(strategies.IgnoredNamespaces, compiled)
	}
	return strategies, nil
}

func (o *Options) holder() (preservation.Holder, error) {
	switch o.Holder {
	case holderPreserveExpiry:
		return preservation.PreserveExpiry{}, nil
	case holderHealthTimer:
		return preservation.HealthTimer{}, nil
	}
	return nil, fmt.Errorf("--holder=%q must be %s or %s", o.Holder, holderPreserveExpiry, holderHealthTimer)
}
