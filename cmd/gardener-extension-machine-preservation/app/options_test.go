// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/cmd/gardener-extension-machine-preservation/app"
	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
)

var _ = Describe("ConfigOptions", func() {
	const head = "apiVersion: config.machine-preservation.extensions.gardener.cloud/v1alpha1\nkind: ControllerConfiguration\n"

	complete := func(config string) (*configv1alpha1.ControllerConfiguration, error) {
		GinkgoHelper()
		path := filepath.Join(GinkgoT().TempDir(), "config.yaml")
		Expect(os.WriteFile(path, []byte(config), 0o600)).To(Succeed())
		options := NewConfigOptions(path)
		err := options.Complete()
		return options.Completed(), err
	}

	It("should use defaults without a file", func() {
		options := NewConfigOptions("")
		Expect(options.Complete()).To(Succeed())
		Expect(options.Completed().AutoPreserveFailedMax).To(HaveValue(BeEquivalentTo(0)))
		Expect(options.Completed().MachinePreserveTimeout).To(HaveValue(Equal(metav1.Duration{Duration: 72 * time.Hour})))
	})

	It("should read a file, and use defaults for what is not set there", func() {
		config, err := complete(head + "autoPreserveFailedMax: 1")
		Expect(err).NotTo(HaveOccurred())
		Expect(config.AutoPreserveFailedMax).To(HaveValue(BeEquivalentTo(1)))
		Expect(config.MachinePreserveTimeout).To(HaveValue(Equal(metav1.Duration{Duration: 72 * time.Hour})))
	})

	DescribeTable("bad files",
		func(config, message string) {
			_, err := complete(config)
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("unknown field", head+"foo: bar", `failed to decode --config: strict decoding error: unknown field "foo"`),
		Entry("no kind", "autoPreserveFailedMax: 1", "failed to decode --config: Object 'Kind' is missing"),
		Entry("bad value", head+"machinePreserveTimeout: 0s", `invalid --config: machinePreserveTimeout: Invalid value: "0s": must be at least 10s`),
	)

	It("should fail without the file", func() {
		Expect(NewConfigOptions("missing").Complete()).To(MatchError(os.ErrNotExist))
	})
})
