// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package seed

import (
	"context"
	"errors"
	"fmt"

	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	"github.com/gardener/gardener/pkg/provider-local/controller/infrastructure"
	"github.com/gardener/gardener/pkg/provider-local/local"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

const (
	// projectName is the project to which all Shoots belong.
	projectName = "local"

	defaultMachineType         = "local"
	defaultMachineImageName    = "local"
	defaultMachineImageVersion = "1.0.0"
)

// ControlPlaneNamespace returns the namespace in the seed for the control plane of a Shoot.
func ControlPlaneNamespace(shootName string) string {
	return gardenerutils.ComputeTechnicalID(projectName, &gardencorev1beta1.Shoot{ObjectMeta: metav1.ObjectMeta{Name: shootName}})
}

// MachineNamespace returns the namespace in the seed for the machine pods of a Shoot.
func MachineNamespace(shootName string) string {
	return infrastructure.NamespaceName(ControlPlaneNamespace(shootName))
}

// DecodeShoot decodes a Shoot manifest strictly.
func DecodeShoot(manifest []byte) (*gardencorev1beta1.Shoot, error) {
	shoot := &gardencorev1beta1.Shoot{}
	if err := yaml.UnmarshalStrict(manifest, shoot); err != nil {
		return nil, fmt.Errorf("could not decode the Shoot: %w", err)
	}
	if gvk := shoot.GroupVersionKind(); gvk != gardencorev1beta1.SchemeGroupVersion.WithKind("Shoot") {
		return nil, fmt.Errorf("want a Shoot of %s, got %s", gardencorev1beta1.SchemeGroupVersion, gvk)
	}
	return shoot, nil
}

// ApplyShoot does with a Shoot what gardenlet does in a reconciliation, in gardenlet's order: namespaces and their
// labels, Cluster, secrets, Extensions (it waits for those that a controller takes care of), machine-controller-manager,
// Worker. An Extension that the Shoot no longer has is deleted. It may be called from any process, and again with a
// changed Shoot. It does not wait for the machines, see WaitForShoot.
//
// Machine types, machine images and zones need not exist anywhere: the cloud profile has whatever the Shoot asks for. A
// change of the machine image's version is a way to start a rolling update.
func ApplyShoot(ctx context.Context, seedConfig *rest.Config, shoot *gardencorev1beta1.Shoot) error {
	o, err := newOperation(ctx, seedConfig, shoot.Name)
	if err != nil {
		return err
	}
	if o.shoot, err = complete(shoot, o.shoot); err != nil {
		return err
	}
	if o.cloudProfile, err = cloudProfileFor(o.shoot); err != nil {
		return err
	}
	o.seed = newSeed(o.shoot)
	return o.reconcile(ctx)
}

// ApplyGardenShoot does the same with a Shoot of a garden, which is complete, and with the CloudProfile and the Seed that it
// refers to.
func ApplyGardenShoot(ctx context.Context, seedConfig *rest.Config, shoot *gardencorev1beta1.Shoot, cloudProfile *gardencorev1beta1.CloudProfile, seed *gardencorev1beta1.Seed) error {
	o, err := newOperation(ctx, seedConfig, shoot.Name)
	if err != nil {
		return err
	}
	o.shoot, o.cloudProfile, o.seed = shoot.DeepCopy(), cloudProfile, seed
	return o.reconcile(ctx)
}

// WaitForShoot waits until the machines of a Shoot are there (or gone, if it is hibernated), as gardenlet does at the end
// of a reconciliation.
func WaitForShoot(ctx context.Context, seedConfig *rest.Config, shootName string) error {
	o, err := newOperation(ctx, seedConfig, shootName)
	if err != nil {
		return err
	}
	if o.shoot == nil {
		return fmt.Errorf("there is no Shoot %s", shootName)
	}
	return o.finish(ctx)
}

// DeleteShoot does what gardenlet does when a Shoot is deleted, and waits until all of it is gone.
func DeleteShoot(ctx context.Context, seedConfig *rest.Config, shootName string) error {
	o, err := newOperation(ctx, seedConfig, shootName)
	if err != nil {
		return err
	}
	return o.delete(ctx)
}

// complete adds to a Shoot what gardener-apiserver would add, and the status that it has reached so far.
func complete(shoot, previous *gardencorev1beta1.Shoot) (*gardencorev1beta1.Shoot, error) {
	shoot = shoot.DeepCopy()
	gardencorev1beta1.SetObjectDefaults_Shoot(shoot)
	shoot.Namespace = "garden-" + projectName

	switch {
	case shoot.Name == "":
		return nil, errors.New("metadata.name of the Shoot is missing")
	case shoot.Spec.Kubernetes.Version == "":
		return nil, errors.New("spec.kubernetes.version of the Shoot is missing")
	case shoot.Spec.Provider.Type != local.Type:
		return nil, fmt.Errorf("spec.provider.type of the Shoot must be %q", local.Type)
	case len(shoot.Spec.Provider.Workers) == 0:
		return nil, errors.New("spec.provider.workers of the Shoot is empty")
	}
	for i := range shoot.Spec.Provider.Workers {
		machine := &shoot.Spec.Provider.Workers[i].Machine
		if machine.Type == "" {
			machine.Type = defaultMachineType
		}
		if machine.Image == nil {
			machine.Image = &gardencorev1beta1.ShootMachineImage{Name: defaultMachineImageName}
		}
		if machine.Image.Version == nil {
			machine.Image.Version = new(defaultMachineImageVersion)
		}
	}

	operation := gardencorev1beta1.LastOperationTypeCreate
	if previous != nil {
		shoot.UID = previous.UID
		shoot.CreationTimestamp = previous.CreationTimestamp
		shoot.Generation = previous.Generation + 1
		shoot.Status = previous.Status
		operation = v1beta1helper.ComputeOperationType(shoot.ObjectMeta, shoot.Status.LastOperation)
	} else {
		shoot.UID = uuid.NewUUID()
		shoot.CreationTimestamp = metav1.Now()
		shoot.Generation = 1
		shoot.Status.UID = shoot.UID
		shoot.Status.TechnicalID = ControlPlaneNamespace(shoot.Name)
		shoot.Status.SeedName = new(seedName)
	}
	shoot.Spec.SeedName = new(seedName)
	setLastOperation(shoot, operation, gardencorev1beta1.LastOperationStateProcessing)
	return shoot, nil
}

func setLastOperation(shoot *gardencorev1beta1.Shoot, operation gardencorev1beta1.LastOperationType, state gardencorev1beta1.LastOperationState) {
	shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: operation, State: state, LastUpdateTime: metav1.Now()}
	if state == gardencorev1beta1.LastOperationStateSucceeded {
		shoot.Status.LastOperation.Progress = 100
	}
}
