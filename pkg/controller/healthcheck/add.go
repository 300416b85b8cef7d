// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package healthcheck shows in conditions of the Extension, and so of the Shoot, what prevents machines from being preserved.
// Gardener itself checks the ManagedResource with the permissions in the shoot.
package healthcheck

import (
	"context"
	"time"

	extensionsconfigv1alpha1 "github.com/gardener/gardener/extensions/pkg/apis/config/v1alpha1"
	extensionshealthcheck "github.com/gardener/gardener/extensions/pkg/controller/healthcheck"
	"github.com/gardener/gardener/extensions/pkg/webhook/controlplane/genericmutator"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controlplane"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
)

const (
	// ControllerName is the name of the controller.
	ControllerName = "healthcheck"

	// A check writes the status of the Extension, as Gardener takes conditions for stale that are older than five minutes.
	syncPeriod = time.Minute
	// patience is how long something may be under way before it counts as a failure: pods are replaced, webhooks are away
	// while they are updated, providers replace MachineDeployments.
	patience = 5 * time.Minute
)

// ConditionPreservedMachinesKept is the condition of the Extension that tells whether preserved machines are about to be
// deleted. The Shoot's own conditions do not show that, because all its nodes may be ready.
const ConditionPreservedMachinesKept gardencorev1beta1.ConditionType = "PreservedMachinesKept"

// ConditionPoolsCanGrow is the condition of the Extension that tells whether preserved machines keep a pool at its maximum, so that the
// cluster-autoscaler adds no machines. That affects neither the health of the control plane nor that of nodes.
const ConditionPoolsCanGrow gardencorev1beta1.ConditionType = "PoolsCanGrow"

// ConditionEvidenceKept is the condition of the Extension that tells whether the control plane has less evidence than its own budget allows,
// because the budget of the seed is used up. That does not affect the health of the control plane.
const ConditionEvidenceKept gardencorev1beta1.ConditionType = "EvidenceKept"

// AddOptions are options for AddToManager.
type AddOptions struct {
	// Controller are the options of the controller.
	Controller controller.Options
	// Ensurer is that of the webhook.
	Ensurer genericmutator.Ensurer
	// Planner determines the shares.
	Planner *controlplane.Planner
	// Schemas tells whether shares have native fields.
	Schemas *machinecrd.Schemas
	// Hosts finds the hosts that are off, nil where there are none.
	Hosts *hosts.Finder
	// Evidence says that evidence is stored.
	Evidence bool
	// ExtensionClasses are the classes of Extensions that are handled, by default those of shoots.
	ExtensionClasses []extensionsv1alpha1.ExtensionClass
}

// AddToManager adds the controller to the manager.
func AddToManager(mgr manager.Manager, options AddOptions) error {
	var checks []extensionshealthcheck.ConditionTypeToHealthCheck
	add := func(condition gardencorev1beta1.ConditionType, of check) {
		checks = append(checks, extensionshealthcheck.ConditionTypeToHealthCheck{ConditionType: string(condition), HealthCheck: of})
	}
	add(gardencorev1beta1.ShootControlPlaneHealthy, (&Container{Reader: mgr.GetClient(), APIReader: mgr.GetAPIReader(), Ensurer: options.Ensurer, Clock: clock.RealClock{}}).Check)
	add(gardencorev1beta1.ShootControlPlaneHealthy, (&Shares{Reader: mgr.GetClient(), Planner: options.Planner, Schemas: options.Schemas}).Check)
	add(ConditionPreservedMachinesKept, (&Holds{Reader: mgr.GetClient(), APIReader: mgr.GetAPIReader()}).Check)
	add(ConditionPoolsCanGrow, (&Maxima{Reader: mgr.GetClient(), APIReader: mgr.GetAPIReader()}).Check)
	if options.Hosts != nil {
		add(gardencorev1beta1.ShootControlPlaneHealthy, (&Hosts{options.Hosts}).Check)
	}
	// Former versions wrote these. Gardener takes conditions for stale that nobody writes any more.
	former := sets.New[gardencorev1beta1.ConditionType](gardencorev1beta1.ShootSystemComponentsHealthy, gardencorev1beta1.ShootEveryNodeReady)
	if options.Evidence {
		add(ConditionEvidenceKept, (&Evidence{APIReader: mgr.GetAPIReader()}).Check)
	} else {
		former.Insert(ConditionEvidenceKept)
	}
	return extensionshealthcheck.DefaultRegistration(
		v1alpha1.ExtensionType,
		extensionsv1alpha1.SchemeGroupVersion.WithKind(extensionsv1alpha1.ExtensionResource),
		func() client.ObjectList { return &extensionsv1alpha1.ExtensionList{} },
		func() extensionsv1alpha1.Object { return &extensionsv1alpha1.Extension{} },
		mgr,
		extensionshealthcheck.DefaultAddArgs{
			Controller:        options.Controller,
			HealthCheckConfig: extensionsconfigv1alpha1.HealthCheckConfig{SyncPeriod: metav1.Duration{Duration: syncPeriod}},
			ExtensionClasses:  options.ExtensionClasses,
		},
		nil,
		checks,
		former,
	)
}

// check is a health check that needs nothing but the namespace of the Extension.
type check func(ctx context.Context, namespace string) (*extensionshealthcheck.SingleCheckResult, error)

// Check implements HealthCheck.
func (c check) Check(ctx context.Context, key types.NamespacedName) (*extensionshealthcheck.SingleCheckResult, error) {
	return c(ctx, key.Namespace)
}

// SetLoggerSuffix implements HealthCheck.
func (check) SetLoggerSuffix(string, string) {}

func healthy() *extensionshealthcheck.SingleCheckResult {
	return &extensionshealthcheck.SingleCheckResult{Status: gardencorev1beta1.ConditionTrue}
}

// progressing becomes a failure when it has lasted for the time of patience.
func progressing(detail string) *extensionshealthcheck.SingleCheckResult {
	return &extensionshealthcheck.SingleCheckResult{Status: gardencorev1beta1.ConditionProgressing, Detail: detail, ProgressingThreshold: new(patience)}
}

func unhealthy(detail string, codes ...gardencorev1beta1.ErrorCode) *extensionshealthcheck.SingleCheckResult {
	return &extensionshealthcheck.SingleCheckResult{Status: gardencorev1beta1.ConditionFalse, Detail: detail, Codes: codes}
}
