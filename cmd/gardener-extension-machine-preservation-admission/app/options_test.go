// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"os"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	. "github.com/gardener/gardener-extension-machine-preservation/cmd/gardener-extension-machine-preservation-admission/app"
)

var _ = Describe("Options", func() {
	// kubeconfig returns a file that leads to the given host.
	kubeconfig := func(host string) string {
		GinkgoHelper()
		config := clientcmdapi.NewConfig()
		config.Clusters["test"] = &clientcmdapi.Cluster{Server: host}
		config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test"}
		config.CurrentContext = "test"
		path := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(clientcmd.WriteToFile(*config, path)).To(Succeed())
		return path
	}

	DescribeTable("clusters",
		func(arguments []string, environment map[string]string, expectedGarden, expectedRuntime string) {
			for i, argument := range arguments {
				flag, host, _ := strings.Cut(argument, "=")
				arguments[i] = flag + "=" + kubeconfig(host)
			}
			for _, name := range []string{"GARDEN_KUBECONFIG", "KUBECONFIG"} {
				path := ""
				if host := environment[name]; host != "" {
					path = kubeconfig(host)
				}
				GinkgoT().Setenv(name, path)
			}

			garden, runtime, err := Hosts(arguments...)
			Expect(err).NotTo(HaveOccurred())
			Expect(garden).To(Equal(expectedGarden))
			Expect(runtime).To(Equal(expectedRuntime))
		},
		Entry("flags", []string{"--kubeconfig=https://a", "--runtime-kubeconfig=https://b"}, nil, "https://a", "https://b"),
		Entry("flags before the environment", []string{"--kubeconfig=https://a", "--runtime-kubeconfig=https://b"},
			map[string]string{"GARDEN_KUBECONFIG": "https://c", "KUBECONFIG": "https://d"}, "https://a", "https://b"),
		Entry("the garden that Gardener names", []string{"--runtime-kubeconfig=https://b"},
			map[string]string{"GARDEN_KUBECONFIG": "https://c", "KUBECONFIG": "https://d"}, "https://c", "https://b"),
		Entry("the garden is not the runtime cluster", nil,
			map[string]string{"GARDEN_KUBECONFIG": "https://c", "KUBECONFIG": "https://d"}, "https://c", "https://d"),
		Entry("a garden that is not split", nil, map[string]string{"KUBECONFIG": "https://d"}, "https://d", "https://d"),
	)

	It("should fail without the file", func() {
		_, _, err := Hosts("--kubeconfig=missing")
		Expect(err).To(MatchError(os.ErrNotExist))
	})
})
