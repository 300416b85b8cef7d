// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package imagevector_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/component-base/version"

	"github.com/gardener/gardener-extension-machine-preservation/imagevector"
)

var _ = Describe("#MachinePreservationController", func() {
	It("should have the version of the extension", func() {
		Expect(imagevector.MachinePreservationController()).To(Equal(
			"europe-docker.pkg.dev/gardener-project/public/gardener/extensions/machine-preservation-controller:" + version.Get().GitVersion))
	})

	// The environment is read when the process starts, so each entry has a process of its own.
	DescribeTable("should be overwritten by the environment",
		func(overwrite, expected string) {
			file := filepath.Join(GinkgoT().TempDir(), "images_overwrite.yaml")
			Expect(os.WriteFile(file, []byte(overwrite), 0o600)).To(Succeed())
			command := exec.Command(os.Args[0], printImage)
			command.Env = append(os.Environ(), "IMAGEVECTOR_OVERWRITE="+file)
			Expect(command.Output()).To(BeEquivalentTo(expected))
		},
		Entry("another version",
			"images: [{name: machine-preservation-controller, repository: example.com/foo, tag: v9}]",
			"example.com/foo:v9"),
		Entry("the same version from another registry",
			"images: [{name: machine-preservation-controller, repository: example.com/foo}]",
			"example.com/foo:"+version.Get().GitVersion),
		Entry("a digest",
			"images: [{name: machine-preservation-controller, ref: \"example.com/foo@sha256:0123456789012345678901234567890123456789012345678901234567890123\"}]",
			"example.com/foo@sha256:0123456789012345678901234567890123456789012345678901234567890123"),
		Entry("another image",
			"images: [{name: foo, repository: example.com/foo, tag: v9}]",
			"europe-docker.pkg.dev/gardener-project/public/gardener/extensions/machine-preservation-controller:"+version.Get().GitVersion),
	)
})

// printImage is the argument with which this program prints the image, rather than running tests.
const printImage = "print-image"

func init() {
	if len(os.Args) == 2 && os.Args[1] == printImage {
		image, err := imagevector.MachinePreservationController()
		if err != nil {
			panic(err)
		}
		fmt.Print(image)
		os.Exit(0)
	}
}
