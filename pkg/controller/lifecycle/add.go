// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package lifecycle handles Extension resources: it enables and disables preservation for a shoot.
package lifecycle

import (
	"context"
	"fmt"

	"github.com/gardener/gardener/extensions/pkg/controller/extension"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
)

// ControllerName is the name of the controller.
const ControllerName = "lifecycle"

// AddOptions are options for AddToManager.
type AddOptions struct {
	// Controller are the options of the controller.
	Controller controller.Options
	// IgnoreOperationAnnotation says whether Extensions are reconciled at every change.
	IgnoreOperationAnnotation bool
	// Schemas tells how machines are held.
	Schemas *machinecrd.Schemas
	// Config is the component configuration.
	Config configv1alpha1.ControllerConfiguration
	// ExtensionClasses are the classes of Extensions that are handled, by default those of shoots.
	ExtensionClasses []extensionsv1alpha1.ExtensionClass
}

// AddToManager adds the controller to the manager.
func AddToManager(ctx context.Context, mgr manager.Manager, options AddOptions) error {
	// The manager's client would start watches on all kinds of resources of the seed.
	uncached, err := client.New(mgr.GetConfig(), client.Options{
		HTTPClient: mgr.GetHTTPClient(),
		Scheme:     mgr.GetScheme(),
		Mapper:     mgr.GetRESTMapper(),
	})
	if err != nil {
		return fmt.Errorf("failed to create client: %w", err)
	}

	return extension.Add(mgr, extension.AddArgs{
		Actuator: &Actuator{
			Client:          uncached,
			Clock:           clock.RealClock{},
			ShootClient:     shootClient(uncached),
			EndMaintenances: maintenance.End,
			Config:          options.Config,
			HostDriver:      hosts.NewDriverOf(uncached, uncached, options.Config.Hosts),
			Schemas:         options.Schemas,
			Recorder:        mgr.GetEventRecorder(ControllerName),
		},
		Name:                      ControllerName,
		FinalizerSuffix:           v1alpha1.ExtensionType,
		Type:                      v1alpha1.ExtensionType,
		ControllerOptions:         options.Controller,
		Predicates:                extension.DefaultPredicates(ctx, mgr, options.IgnoreOperationAnnotation),
		IgnoreOperationAnnotation: options.IgnoreOperationAnnotation,
		ExtensionClasses:          options.ExtensionClasses,
	})
}
