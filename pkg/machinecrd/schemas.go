// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package machinecrd tells what the API of the installed machine-controller-manager can hold. Its version says nothing
// about that, and both change while the extension runs: a landscape is upgraded, and sometimes downgraded again.
package machinecrd

import (
	"context"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/fields"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"
)

const (
	machines           = "machines.machine.sapcloud.io"
	machineDeployments = "machinedeployments.machine.sapcloud.io"
	version            = "v1alpha1"
)

// Schemas reads the CustomResourceDefinitions of machine-controller-manager.
type Schemas struct {
	// Machines reads the definition of Machines.
	Machines client.Reader
	// MachineDeployments reads the definition of MachineDeployments.
	MachineDeployments client.Reader

	machines cache.Cache
}

// AddToManager returns Schemas that watch the two definitions and no others, as long as the manager runs.
func AddToManager(mgr manager.Manager) (*Schemas, error) {
	watch := func(name string) (cache.Cache, error) {
		c, err := cache.New(mgr.GetConfig(), cache.Options{
			HTTPClient: mgr.GetHTTPClient(),
			Scheme:     mgr.GetScheme(),
			Mapper:     mgr.GetRESTMapper(),
			ByObject: map[client.Object]cache.ByObject{
				&apiextensionsv1.CustomResourceDefinition{}: {
					Field:                 fields.OneTermEqualSelector("metadata.name", name),
					UnsafeDisableDeepCopy: new(true), // it is only looked at
				},
			},
		})
		if err != nil {
			return nil, fmt.Errorf("failed to create a cache for CustomResourceDefinition %q: %w", name, err)
		}
		return c, mgr.Add(c)
	}

	machineReader, err := watch(machines)
	if err != nil {
		return nil, err
	}
	machineDeploymentReader, err := watch(machineDeployments)
	if err != nil {
		return nil, err
	}
	return &Schemas{Machines: machineReader, MachineDeployments: machineDeploymentReader, machines: machineReader}, nil
}

// MachinesSource returns a source of requests, which the mapper makes when the definition of Machines is installed or
// changes. Only call it on Schemas that AddToManager has returned.
func (s *Schemas) MachinesSource(mapper handler.TypedMapFunc[*apiextensionsv1.CustomResourceDefinition, reconcile.Request]) source.Source {
	return source.Kind(s.machines, &apiextensionsv1.CustomResourceDefinition{}, handler.TypedEnqueueRequestsFromMapFunc(mapper),
		predicate.TypedGenerationChangedPredicate[*apiextensionsv1.CustomResourceDefinition]{})
}

// MachinesCanExpire returns whether a Machine's status can hold the end of its preservation. If so, machine-controller-
// manager leaves a preserved machine alone until then.
func (s *Schemas) MachinesCanExpire(ctx context.Context) (bool, error) {
	return hasField(ctx, s.Machines, machines, "status", "currentStatus", "preserveExpiryTime")
}

// MachineDeploymentsCanPreserve returns whether a MachineDeployment can hold the settings of machine-controller-manager's
// own preservation.
func (s *Schemas) MachineDeploymentsCanPreserve(ctx context.Context) (bool, error) {
	return hasField(ctx, s.MachineDeployments, machineDeployments, "spec", "autoPreserveFailedMachineMax")
}

// hasField returns false as well if there is no such definition.
func hasField(ctx context.Context, reader client.Reader, name string, path ...string) (bool, error) {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, crd); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("failed to get CustomResourceDefinition %q: %w", name, err)
	}

	for _, v := range crd.Spec.Versions {
		if v.Name == version && v.Schema != nil && v.Schema.OpenAPIV3Schema != nil {
			return schemaHasField(v.Schema.OpenAPIV3Schema, path), nil
		}
	}
	return false, nil
}

func schemaHasField(schema *apiextensionsv1.JSONSchemaProps, path []string) bool {
	if len(path) == 0 {
		return true
	}
	child, ok := schema.Properties[path[0]]
	return ok && schemaHasField(&child, path[1:])
}
