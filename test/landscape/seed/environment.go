// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package seed

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	localv1alpha1 "github.com/gardener/gardener/pkg/provider-local/apis/local/v1alpha1"
	"github.com/gardener/gardener/pkg/provider-local/local"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
)

// seedName is the name of the seed.
const seedName = "local"

// cloudProfileFor returns a cloud profile with everything that the Shoot asks for.
func cloudProfileFor(shoot *gardencorev1beta1.Shoot) (*gardencorev1beta1.CloudProfile, error) {
	var (
		machineTypes = sets.New(defaultMachineType)
		zones        = sets.New[string]()
		images       = map[string]sets.Set[string]{}
	)
	for _, pool := range shoot.Spec.Provider.Workers {
		machineTypes.Insert(pool.Machine.Type)
		zones.Insert(pool.Zones...)
		if images[pool.Machine.Image.Name] == nil {
			images[pool.Machine.Image.Name] = sets.New[string]()
		}
		images[pool.Machine.Image.Name].Insert(*pool.Machine.Image.Version)
	}

	profile := &gardencorev1beta1.CloudProfile{
		ObjectMeta: metav1.ObjectMeta{Name: "local"},
		Spec: gardencorev1beta1.CloudProfileSpec{
			Type:    local.Type,
			Regions: []gardencorev1beta1.Region{{Name: shoot.Spec.Region}},
			Kubernetes: gardencorev1beta1.KubernetesSettings{
				Versions: []gardencorev1beta1.ExpirableVersion{{Version: shoot.Spec.Kubernetes.Version}},
			},
		},
	}
	for _, zone := range sets.List(zones) {
		profile.Spec.Regions[0].Zones = append(profile.Spec.Regions[0].Zones, gardencorev1beta1.AvailabilityZone{Name: zone})
	}
	for _, machineType := range sets.List(machineTypes) {
		profile.Spec.MachineTypes = append(profile.Spec.MachineTypes, gardencorev1beta1.MachineType{
			Name:   machineType,
			CPU:    resource.MustParse("2"),
			GPU:    resource.MustParse("0"),
			Memory: resource.MustParse("8Gi"),
			Usable: new(true),
		})
	}

	providerConfig := &localv1alpha1.CloudProfileConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: localv1alpha1.SchemeGroupVersion.String(), Kind: "CloudProfileConfig"},
	}
	for _, name := range slices.Sorted(maps.Keys(images)) {
		var (
			image         = gardencorev1beta1.MachineImage{Name: name}
			providerImage = localv1alpha1.MachineImages{Name: name}
		)
		for _, version := range sets.List(images[name]) {
			image.Versions = append(image.Versions, gardencorev1beta1.MachineImageVersion{
				ExpirableVersion: gardencorev1beta1.ExpirableVersion{Version: version},
			})
			providerImage.Versions = append(providerImage.Versions, localv1alpha1.MachineImageVersion{
				Version: version,
				Image:   name + ":" + version,
			})
		}
		profile.Spec.MachineImages = append(profile.Spec.MachineImages, image)
		providerConfig.MachineImages = append(providerConfig.MachineImages, providerImage)
	}
	encoded, err := json.Marshal(providerConfig)
	if err != nil {
		return nil, fmt.Errorf("could not encode the provider's part of the cloud profile: %w", err)
	}
	profile.Spec.ProviderConfig = &runtime.RawExtension{Raw: encoded}
	return profile, nil
}

func newSeed(shoot *gardencorev1beta1.Shoot) *gardencorev1beta1.Seed {
	return &gardencorev1beta1.Seed{
		ObjectMeta: metav1.ObjectMeta{Name: seedName},
		Spec: gardencorev1beta1.SeedSpec{
			Provider: gardencorev1beta1.SeedProvider{Type: local.Type, Region: shoot.Spec.Region},
		},
	}
}
