// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package process_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/process"
)

var _ = Describe("Process", func() {
	var logFile string

	BeforeEach(func() {
		logFile = filepath.Join(GinkgoT().TempDir(), "log", "test.log")
	})

	start := func(script string, env ...string) *process.Process {
		GinkgoHelper()
		p, err := process.Start(process.Spec{Name: "test", Path: "sh", Args: []string{"-c", script}, Env: env, LogFile: logFile})
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(p.Stop)
		return p
	}
	logged := func() string {
		content, err := os.ReadFile(logFile)
		Expect(err).NotTo(HaveOccurred())
		return string(content)
	}

	Describe("#Start", func() {
		It("should append the output to the log file, and add to the environment", func() {
			Eventually(start("echo $GREETING; echo $HOME", "GREETING=first").Done()).Should(BeClosed())
			Eventually(start("echo $GREETING >&2", "GREETING=second").Done()).Should(BeClosed())
			Expect(logged()).To(Equal("first\n" + os.Getenv("HOME") + "\nsecond\n"))
		})

		It("should fail if there is no such executable", func() {
			_, err := process.Start(process.Spec{Name: "nothing", Path: "/does/not/exist", LogFile: logFile})
			Expect(err).To(And(MatchError(ContainSubstring("could not start nothing")), MatchError(os.ErrNotExist)))
		})

		It("should start a process that ends with its parent, however that ends", func() {
			parent := exec.Command(os.Args[0])
			parent.Env = append(os.Environ(), parentVariable+"="+GinkgoT().TempDir())
			output, err := parent.StdoutPipe()
			Expect(err).NotTo(HaveOccurred())
			Expect(parent.Start()).To(Succeed())
			DeferCleanup(func() {
				_ = parent.Process.Kill()
				_ = parent.Wait()
			})

			var child int
			_, err = fmt.Fscanln(output, &child)
			Expect(err).NotTo(HaveOccurred())
			Expect(runs(child)).To(BeTrue())

			Expect(parent.Process.Kill()).To(Succeed())
			Eventually(func() bool { return runs(child) }).Should(BeFalse())
		})

		It("should start a process that does not end with the thread that asked for it", func() {
			started := make(chan *process.Process)
			go func() {
				defer GinkgoRecover()
				// Without unlocking, the thread ends with the goroutine.
				runtime.LockOSThread()
				started <- start("exec sleep 60")
			}()
			Consistently((<-started).Done(), 200*time.Millisecond).ShouldNot(BeClosed())
		})
	})

	Describe("#Err", func() {
		It("should be nil while the process runs", func() {
			Expect(start("exec sleep 60").Err()).To(Succeed())
		})

		It("should say how the process ended and where its log is", func() {
			for script, expected := range map[string]string{"exit 0": "exit status 0", "exit 3": "exit status 3", "kill -9 $$": "killed"} {
				p := start(script)
				Eventually(p.Done()).Should(BeClosed())
				Expect(p.Err()).To(MatchError(And(HavePrefix("test ended"), ContainSubstring(expected), ContainSubstring(logFile))))
			}
		})
	})

	Describe("#Stop", func() {
		It("should let the process end by itself", func(ctx SpecContext) {
			p := start("trap 'echo bye; exit 1' TERM; echo ready; while true; do sleep 0.01; done")
			Eventually(logged).Should(Equal("ready\n"))

			Expect(p.Stop(ctx)).To(Succeed())
			Expect(logged()).To(HaveSuffix("bye\n"))
			Expect(p.Err()).To(Succeed())
			Expect(p.Stop(ctx)).To(Succeed())
		})

		It("should kill a process that does not end by itself until the context ends", func(ctx SpecContext) {
			p := start("trap '' TERM; echo ready; while true; do sleep 0.01; done")
			Eventually(logged).Should(Equal("ready\n"))

			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			Expect(p.Stop(short)).To(Succeed())
			Expect(p.Done()).To(BeClosed())
			Expect(p.Err()).To(Succeed())
		})
	})

	Describe("#WaitReady", func() {
		It("should wait until the check succeeds", func(ctx SpecContext) {
			calls := 0
			Expect(start("exec sleep 60").WaitReady(ctx, func(context.Context) error {
				if calls++; calls < 3 {
					return errors.New("not yet")
				}
				return nil
			})).To(Succeed())
			Expect(calls).To(Equal(3))
		})

		It("should fail with the last lines of the log when the process ends", func(ctx SpecContext) {
			p := start("for i in $(seq 20); do echo line $i; done; exit 7")
			Expect(p.WaitReady(ctx, func(context.Context) error { return errors.New("not yet") })).To(MatchError(And(
				HavePrefix("test ended before it was ready: exit status 7"),
				ContainSubstring(logFile),
				HaveSuffix("line 19\nline 20"),
				Not(ContainSubstring("line 10\n")),
			)))
		})

		It("should fail with what the check said when the context ends", func(ctx SpecContext) {
			p := start("echo busy; exec sleep 60")
			Eventually(logged).Should(Equal("busy\n"))
			short, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			Expect(p.WaitReady(short, func(context.Context) error { return errors.New("not yet") })).To(And(
				MatchError(HavePrefix("test did not get ready")),
				MatchError(context.DeadlineExceeded),
				MatchError(ContainSubstring("not yet")),
				MatchError(ContainSubstring("busy")),
			))
		})
	})

	Describe("#StartReady", func() {
		It("should end a process that does not get ready", func(ctx SpecContext) {
			short, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
			defer cancel()
			_, err := process.StartReady(short, process.Spec{Name: "test", Path: "sh", Args: []string{"-c", "echo $$; exec sleep 60"}, LogFile: logFile},
				func(context.Context) error {
					Eventually(logged).ShouldNot(BeEmpty(), "it runs, however late")
					return errors.New("not yet")
				})
			Expect(err).To(MatchError(ContainSubstring("not yet")))

			var pid int
			_, err = fmt.Sscanln(logged(), &pid)
			Expect(err).NotTo(HaveOccurred())
			Expect(runs(pid)).To(BeFalse())
		})
	})

	Describe("#HTTPOK", func() {
		It("should succeed with status 200 only", func(ctx SpecContext) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != "/readyz" {
					w.WriteHeader(http.StatusInternalServerError)
					_, _ = io.WriteString(w, "still starting")
				}
			}))
			DeferCleanup(server.Close)
			Expect(process.HTTPOK(server.Client(), server.URL+"/readyz")(ctx)).To(Succeed())
			Expect(process.HTTPOK(server.Client(), server.URL+"/other")(ctx)).To(MatchError(ContainSubstring("still starting")))
		})
	})

	Describe("#FreePort", func() {
		It("should return ports on which one can listen, never the same twice", func() {
			ports := map[int]bool{}
			for range 20 {
				port, err := process.FreePort()
				Expect(err).NotTo(HaveOccurred())
				Expect(ports).NotTo(HaveKey(port))
				ports[port] = true

				listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
				Expect(err).NotTo(HaveOccurred())
				Expect(listener.Close()).To(Succeed())
			}
		})
	})
})

// runs tells whether the process exists and has not ended yet: who adopts it may be late with taking its exit status.
func runs(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err == nil && !bytes.Contains(stat, []byte(") Z "))
}
