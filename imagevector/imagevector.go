// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package imagevector knows the container images that the extension deploys.
package imagevector

import (
	_ "embed"
	"fmt"

	"github.com/gardener/gardener/pkg/utils/imagevector"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/component-base/version"
)

const imageNameMachinePreservationController = "machine-preservation-controller"

//go:embed images.yaml
var imagesYAML []byte

// images holds the images of this version, or what the environment variable IMAGEVECTOR_OVERWRITE has in their place.
var images imagevector.ImageVector

func init() {
	var err error
	images, _, err = imagevector.Read(imagesYAML)
	utilruntime.Must(err)
	images, _, err = imagevector.WithEnvOverride(images, nil, imagevector.OverrideEnv)
	utilruntime.Must(err)
}

// MachinePreservationController returns the image of the machine-preservation-controller. Its tag is the version of this
// binary, unless it is overwritten.
func MachinePreservationController() (string, error) {
	image, err := images.FindImage(imageNameMachinePreservationController)
	if err != nil {
		return "", fmt.Errorf("failed to find image: %w", err)
	}
	image.WithOptionalTag(version.Get().GitVersion)
	return image.String(), nil
}
