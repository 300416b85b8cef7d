// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package landscape_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/binaries"
)

const mcmModule = "github.com/gardener/machine-controller-manager"

// The tagged module is in the module cache: a changed copy of it stands for somebody's checkout.
var _ = DescribeTable("a checkout of machine-controller-manager should be in both binaries", func(ctx SpecContext, name, generation string) {
	GinkgoT().Setenv("MCM_SOURCE", "")
	tagged, err := binaries.Source(ctx, name, mcmModule)
	Expect(err).NotTo(HaveOccurred())
	checkout := filepath.Join(GinkgoT().TempDir(), "machine-controller-manager")
	Expect(os.CopyFS(checkout, os.DirFS(tagged.Dir))).To(Succeed())
	for _, options := range []string{"cmd/machine-controller-manager/app/options/options.go", "pkg/util/provider/app/options/options.go"} {
		path := filepath.Join(checkout, options)
		content, err := os.ReadFile(path)
		Expect(err).NotTo(HaveOccurred())
		changed := strings.Replace(string(content), "The port that", "Changed: the port that", 1)
		Expect(changed).NotTo(Equal(string(content)))
		Expect(os.Chmod(path, 0o644)).To(Succeed(), "the module cache is not to be written")
		Expect(os.WriteFile(path, []byte(changed), 0o644)).To(Succeed())
	}

	// What is built is kept for this test alone, while Go's own cache is that of all.
	goCache, err := exec.CommandContext(ctx, "go", "env", "GOCACHE").Output()
	Expect(err).NotTo(HaveOccurred())
	GinkgoT().Setenv("GOCACHE", strings.TrimSpace(string(goCache)))
	GinkgoT().Setenv("XDG_CACHE_HOME", GinkgoT().TempDir())
	GinkgoT().Setenv("MCM", generation)
	GinkgoT().Setenv("MCM_SOURCE", checkout)

	paths, err := binaries.Ensure(ctx, GinkgoWriter, name)
	Expect(err).NotTo(HaveOccurred())
	for _, binary := range []string{"machine-controller-manager", "machine-controller-manager-provider-local"} {
		help, _ := exec.CommandContext(ctx, paths[binary], "--help").CombinedOutput()
		Expect(string(help)).To(ContainSubstring("Changed: the port that"), binary)
	}
	Expect(binaries.Source(ctx, name, mcmModule)).To(Equal(binaries.Module{Version: tagged.Version + "-checkout", Dir: checkout}))
},
	Entry("0.61", binaries.MCM061, "0.61"),
	Entry("0.62", binaries.MCM062, "0.62"),
)
