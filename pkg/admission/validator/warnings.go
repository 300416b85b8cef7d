// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package validator

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	versionutils "github.com/gardener/gardener/pkg/utils/version"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

// firstWithPreservation is the version of Gardener that comes with machine-controller-manager 0.62 and does not wait for
// preserved machines.
const firstWithPreservation = "1.147.0"

// warnings returns what the owner of a Shoot should know about a valid configuration. Each names the field, its value where
// there is one, and what it does not do. The version of Gardener is empty for a Shoot that has never been reconciled.
func warnings(gardenerVersion string, isSelfHosted bool, pools []share.Pool, config *preservation.MachinePreservationConfig, limits *configv1alpha1.ControllerConfiguration, extensionPath *field.Path) admission.Warnings {
	w := &collector{
		pools:       pools,
		config:      config,
		configPath:  extensionPath.Child("providerConfig"),
		workersPath: field.NewPath("spec", "provider", "workers"),
	}
	switch {
	case isSelfHosted:
		w.add(extensionPath, "no machine is preserved, because self-hosted Shoots are not supported")
		return w.warnings
	case len(pools) == 0:
		w.add(extensionPath, "no machine is preserved, because the Shoot has no workers")
	}
	// Of the defaults of the extension's own configuration, nothing is known here.
	if limits != nil {
		w.limits = configv1alpha1.ControllerConfiguration{
			MaxAutoPreserveFailed:     limits.MaxAutoPreserveFailed,
			MaxMachinePreserveTimeout: limits.MaxMachinePreserveTimeout,
			Hosts:                     limits.Hosts,
			Evidence:                  limits.Evidence,
		}
	}
	w.ofGardener(gardenerVersion, extensionPath)
	for i := range config.Workers {
		w.ofWorker(i)
	}
	if limits != nil {
		w.ofPowerCycles()
		w.ofEvidence()
	}
	w.ofForce(config.MachineControllerManager, settingsPath(w.configPath))
	for i := range pools {
		w.ofLimits(i)
		w.ofZones(i)
	}
	w.ofDrainStrategies()
	w.ofDrainConditions()
	w.ofNodeMaintenance()
	return w.warnings
}

type collector struct {
	pools                   []share.Pool
	config                  *preservation.MachinePreservationConfig
	limits                  configv1alpha1.ControllerConfiguration
	configPath, workersPath *field.Path

	warnings admission.Warnings
}

// add adds a warning, once: a value may hold for several pools.
func (w *collector) add(fldPath *field.Path, format string, arguments ...any) {
	if warning := fldPath.String() + ": " + fmt.Sprintf(format, arguments...); !slices.Contains(w.warnings, warning) {
		w.warnings = append(w.warnings, warning)
	}
}

// values returns what the Shoot sets for a worker pool.
func (w *collector) values(pool int) share.Values {
	return share.ValuesFor(w.pools[pool], w.workersPath.Index(pool), w.config, w.configPath, nil)
}

// settings returns what holds for a worker pool.
func (w *collector) settings(pool int) share.Settings {
	return share.SettingsFor(w.pools[pool], w.config, &w.limits)
}

// ofGardener warns of a Gardener that takes preserved machines for ones that are not ready yet, and of how long that can
// last. It is a warning about the version that has reconciled the Shoot last, as nothing else in a Shoot tells which
// machine-controller-manager it has.
func (w *collector) ofGardener(version string, extensionPath *field.Path) {
	if older, err := versionutils.CompareVersions(version, "<", firstWithPreservation); err != nil || !older || len(w.pools) == 0 {
		return
	}
	longest := time.Duration(0)
	for i := range w.pools {
		timeout := w.settings(i).MachinePreserveTimeout
		if w.values(i).MachinePreserveTimeout.Effective().Source == "" {
			timeout = v1alpha1.DefaultMachinePreserveTimeout
		}
		longest = max(longest, timeout)
	}
	w.add(extensionPath, "with Gardener %s, each change of the Shoot waits for preserved failed machines, and fails while there are any: for up to %s, unless a request or the operators set another time. Gardener %s and later do not wait for them",
		version, longest, firstWithPreservation)
}

// ofWorker warns of what the configuration sets for one worker pool.
func (w *collector) ofWorker(index int) {
	settings := w.config.Workers[index].MachineControllerManager
	if settings == nil {
		return
	}
	poolIndex := slices.IndexFunc(w.pools, func(p share.Pool) bool { return p.Name == w.config.Workers[index].Name })
	fldPath := settingsPath(w.configPath.Child("workers").Index(index))

	values := w.values(poolIndex)
	warnOfPrecedence(w, values.AutoPreserveFailedMax)
	warnOfPrecedence(w, values.MachinePreserveTimeout)

	// autoPreserveFailedMax can only be 0 there, and must be set where the one for all pools is greater.
	if pool := w.pools[poolIndex]; pool.Limit() == 0 && (settings.MachinePreserveTimeout != nil || settings.ForceDeletePodsWithVolumes != nil) {
		if pool.Maximum == 0 {
			w.add(fldPath, "has no effect while the maximum of worker pool %q is 0", pool.Name)
		} else {
			w.add(fldPath, "applies only to machines that are preserved on request: worker pool %q has no auto-preservation, because its only machine may run system components", pool.Name)
		}
	}

	w.ofForce(settings, fldPath)
}

// warnOfPrecedence warns if the configuration sets for a worker pool what the Shoot's own field sets as well. Nothing else
// goes before that.
func warnOfPrecedence[T any](w *collector, values share.Ranked[T]) {
	if len(values) > 1 && values[1].Source == share.SourceShoot {
		w.add(values[0].Path, "%v overrides %v in %s", values[0].Value, values[1].Value, values[1].Path)
	}
}

func (w *collector) ofForce(settings *preservation.MachineControllerManagerSettings, fldPath *field.Path) {
	if settings != nil && ptr.Deref(settings.ForceDeletePodsWithVolumes, false) {
		w.add(fldPath.Child("forceDeletePodsWithVolumes"), "true can destroy data: if a node does not answer although its machine still runs, pods run twice with the same volume")
	}
}

// ofLimits warns if operators allow less than what is set for a worker pool.
func (w *collector) ofLimits(index int) {
	values := w.values(index)
	if number, limit := values.AutoPreserveFailedMax.Effective(), w.limits.MaxAutoPreserveFailed; limit != nil && number.Value > *limit {
		w.add(number.Path, "%d is more than the operators allow, so %d is used: no more machines of a worker pool are auto-preserved at a time", number.Value, *limit)
	}
	if timeout, limit := values.MachinePreserveTimeout.Effective(), w.limits.MaxMachinePreserveTimeout; limit != nil && timeout.Value > limit.Duration {
		w.add(timeout.Path, "%s is longer than the operators allow, so %s is used: no machine is preserved for longer", timeout.Value, limit.Duration)
	}
}

// ofZones warns if zones of a worker pool get nothing of the number that holds for it.
func (w *collector) ofZones(index int) {
	pool, number := w.pools[index], w.values(index).AutoPreserveFailedMax.Effective()
	settings := w.settings(index)
	if number.Value = settings.AutoPreserveFailedMax; number.Value == 0 || settings.SharedIn != "" {
		return
	}

	var shares, without []string
	for i, of := range share.OverZones(number.Value, len(pool.Zones)) {
		shares = append(shares, strconv.Itoa(int(of)))
		if of == 0 {
			without = append(without, strconv.Quote(pool.Zones[i]))
		}
	}
	if len(without) > 0 {
		w.add(number.Path, "%d is distributed over the zones of worker pool %q as %s: in zone %s, failed machines are preserved only on request",
			number.Value, pool.Name, strings.Join(shares, ", "), strings.Join(without, " or "))
	}
}

// ofDrainStrategies warns of deadlines that come in another order than their names suggest.
func (w *collector) ofDrainStrategies() {
	strategies := w.config.DrainStrategies
	if strategies == nil || *strategies.Disabled {
		return
	}
	fldPath := w.configPath.Child("drainStrategies")
	timeout, pdbDeadline := strategies.Timeout.Duration, providerconfig.PDBDeadline(strategies)
	if pdbDeadline < timeout {
		w.add(fldPath.Child("pdbForceDrainTimeout"), "pods that a PodDisruptionBudget protects are deleted after %s, sooner than all others, which are deleted after %s", pdbDeadline, timeout)
	}
	for _, pool := range w.pools {
		drainTimeout := ptr.Deref(pool.MachineDrainTimeout, metav1.Duration{Duration: facts.DefaultTimeouts.Drain}).Duration
		for _, deadline := range []struct {
			field string
			after time.Duration
		}{{"timeout", timeout}, {"pdbForceDrainTimeout", pdbDeadline}} {
			if deadline.after > drainTimeout {
				w.add(fldPath.Child(deadline.field), "has no effect for worker pool %q: it passes %s after the drain began, but machine-controller-manager deletes all pods by force after its machineDrainTimeout of %s", pool.Name, deadline.after, drainTimeout)
			}
		}
	}
}

// ofDrainConditions warns of machines that are unhealthy for machine-controller-manager as soon as their nodes show a drain (D13).
func (w *collector) ofDrainConditions() {
	if !ptr.Deref(w.config.DrainConditions, false) {
		return
	}
	for i, pool := range w.pools {
		for _, t := range pool.NodeConditions {
			if drain.IsCondition(corev1.NodeConditionType(t)) {
				w.add(w.workersPath.Index(i).Child("machineControllerManager", "nodeConditions"), "with %s, machine-controller-manager takes each machine for unhealthy whose node shows a drain in this condition, and replaces the machine after its machineHealthTimeout", t)
			}
		}
	}
}

// ofNodeMaintenance warns of limits that let nothing or everything happen, and of machines that are not preserved for as long as
// they may be worked on.
func (w *collector) ofNodeMaintenance() {
	maintenance := w.config.NodeMaintenance
	if maintenance == nil {
		return
	}
	fldPath := w.configPath.Child("nodeMaintenance")
	isZero := func(number *intstr.IntOrString) bool {
		return number != nil && (number.String() == "0" || number.String() == "0%")
	}
	switch {
	case isZero(maintenance.MaxUnavailable):
		w.add(fldPath.Child("maxUnavailable"), "%s means that no maintenance begins on an available node", maintenance.MaxUnavailable)
	case isZero(maintenance.MaxParallelOperations) && maintenance.MaxUnavailable == nil:
		w.add(fldPath.Child("maxParallelOperations"), "%s means no limit: if requestors ask for all nodes, all are drained at once. To limit that, set a higher number or maxUnavailable", maintenance.MaxParallelOperations)
	}

	hold, holdPath := maintenance.MaxHoldTime.Duration, fldPath.Child("maxHoldTime")
	if limit := w.limits.MaxMachinePreserveTimeout; limit != nil && hold > limit.Duration {
		w.add(holdPath, "%s is longer than the operators allow, so %s is used: no machine is preserved for longer", hold, limit.Duration)
		hold = limit.Duration
	}
	if ready := maintenance.MaxNodeMaintenanceTime.Duration; hold <= ready {
		w.add(holdPath, "after %s of maintenance, machine-controller-manager replaces the machine if its node fails, although the requestor may work on the node for %s from when it is Ready (maxNodeMaintenanceTime)", hold, ready)
	}
}

// ofPowerCycles warns of what the landscape has no hosts for, or what its operators do not allow.
func (w *collector) ofPowerCycles() {
	hosts := w.limits.Hosts
	for i, worker := range w.config.Workers {
		fldPath := w.configPath.Child("workers").Index(i).Child("powerCycle")
		switch {
		case worker.PowerCycle == nil:
		case hosts == nil || hosts.Disabled:
			w.add(fldPath, "has no effect, because the landscape has no hosts that can be power-cycled")
		case v1alpha1.AutomaticPowerCycle(*worker.PowerCycle.Automatic) == v1alpha1.AutomaticTrue && !hosts.Automatic:
			w.add(fldPath.Child("automatic"), "true has no effect, because the operators do not allow it: machines are power-cycled only on request. To see which would be power-cycled, set DryRun")
		}
	}
}

// ofEvidence warns of what the Shoot has asked for before operators have disabled it. Others are refused.
func (w *collector) ofEvidence() {
	if forbiddenEvidence(w.config, &w.limits, w.configPath) != nil {
		w.add(w.configPath.Child("evidence", "enabled"), "true has no effect, because the operators have not enabled evidence")
	}
	if forbiddenRetention(w.config, &w.limits, w.configPath) != nil {
		longest := w.limits.Evidence.MaxRetention.Duration
		w.add(w.configPath.Child("evidence", "retention"), "%s is longer than the operators allow, so %s is used", w.config.Evidence.Retention.Duration, longest)
	}
}

// settingsPath returns the path of the settings below that of what has them.
func settingsPath(fldPath *field.Path) *field.Path {
	return fldPath.Child("machineControllerManager")
}
