// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package podrunner

import (
	"context"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/podrunner/podexec"
)

var _ = Describe("container", func() {
	It("should tell its process, and start it again when it was killed", func() {
		c := &container{name: "sleep", logFile: filepath.Join(GinkgoT().TempDir(), "log"), command: podexec.Command{Path: "/bin/sleep", Args: []string{"60"}}}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan struct{})
		DeferCleanup(func() {
			cancel()
			<-ended
		})
		grace := time.Second
		go func() {
			defer close(ended)
			c.run(ctx, &grace, func(string) {})
		}()

		pid := func(g Gomega) int {
			id, ok := strings.CutPrefix(c.status().ContainerID, "process://")
			g.Expect(ok).To(BeTrue())
			pid, err := strconv.Atoi(id)
			g.Expect(err).NotTo(HaveOccurred())
			return pid
		}
		var first int
		Eventually(func(g Gomega) { first = pid(g) }).Should(Succeed())
		Expect(syscall.Kill(first, syscall.SIGKILL)).To(Succeed())
		Eventually(func(g Gomega) {
			g.Expect(pid(g)).NotTo(Equal(first))
			g.Expect(c.status().RestartCount).To(BeEquivalentTo(1))
		}).WithTimeout(time.Minute).Should(Succeed())
	})
})
