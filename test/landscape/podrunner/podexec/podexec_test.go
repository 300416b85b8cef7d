// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package podexec_test

import (
	"os"
	"os/exec"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/podrunner/podexec"
)

var _ = Describe("Command", func() {
	run := func(command podexec.Command) string {
		GinkgoHelper()
		variable, err := command.EnvVar()
		Expect(err).NotTo(HaveOccurred())
		child := exec.Command(podexec.SelfPath)
		child.Env = append(os.Environ(), variable)
		child.SysProcAttr = podexec.SysProcAttr()
		output, err := child.CombinedOutput()
		Expect(err).NotTo(HaveOccurred(), string(output))
		return string(output)
	}

	It("shows the directories where they shall be, and nothing of it to the host", func() {
		entries, err := os.ReadDir("/run")
		Expect(err).NotTo(HaveOccurred())
		first, second := GinkgoT().TempDir(), GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(first, "token"), []byte("1\n"), 0o600)).To(Succeed())
		Expect(os.WriteFile(filepath.Join(second, "token"), []byte("2\n"), 0o600)).To(Succeed())

		output := run(podexec.Command{
			Path:     "/bin/sh",
			Args:     []string{"-c", "cat /var/run/podexec-test/a/token /run/podexec-test/b/token; echo $(hostname) $A${LANDSCAPE_PODEXEC:-none}; ls /run/"},
			Env:      []string{"A=b", "PATH=" + os.Getenv("PATH")},
			Hostname: "pod-1",
			Mounts: []podexec.Mount{
				{Source: first, Target: "/var/run/podexec-test/a"},
				{Source: second, Target: "/var/run/podexec-test/b"},
			},
		})
		Expect(output).To(HavePrefix("1\n2\npod-1 bnone\n"))
		for _, entry := range entries {
			Expect(output).To(ContainSubstring("\n" + entry.Name() + "\n"))
		}
		Expect("/run/podexec-test").NotTo(BeADirectory())
	})

	It("says what went wrong", func() {
		variable, err := podexec.Command{Path: "/does/not/exist"}.EnvVar()
		Expect(err).NotTo(HaveOccurred())
		child := exec.Command(podexec.SelfPath)
		child.Env = []string{variable}
		child.SysProcAttr = podexec.SysProcAttr()
		output, err := child.CombinedOutput()
		Expect(err).To(HaveOccurred())
		Expect(child.ProcessState.ExitCode()).To(Equal(127))
		Expect(string(output)).To(ContainSubstring("could not start the container: could not execute /does/not/exist"))
	})
})
