// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package environment

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/spf13/cobra"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	logzap "sigs.k8s.io/controller-runtime/pkg/log/zap"
)

const (
	// StartTimeout is how long it takes at most until a component works.
	StartTimeout = 5 * time.Minute
	// StopTimeout is how long it takes at most until a component has stopped.
	StopTimeout = 5 * time.Minute
)

// SetLogger has everything log where Ginkgo shows it if a test fails.
func SetLogger() {
	logf.SetLogger(logzap.New(logzap.UseDevMode(true), logzap.WriteTo(GinkgoWriter)))
}

// Running is what runs in this process.
type Running struct {
	// Stopped is closed when nothing of it runs any more.
	Stopped chan struct{}
	cancel  context.CancelFunc
}

// Run runs functions until the end of the container, or until they are stopped. The test fails if one of them does.
func Run(ctx context.Context, functions ...func(context.Context) error) *Running {
	GinkgoHelper()
	ctx, cancel := context.WithCancel(ctx)
	r := &Running{Stopped: make(chan struct{}), cancel: cancel}
	var running sync.WaitGroup
	for _, function := range functions {
		running.Go(func() {
			defer GinkgoRecover()
			Expect(function(ctx)).To(Succeed())
		})
	}
	go func() {
		running.Wait()
		close(r.Stopped)
	}()
	DeferCleanup(r.Stop)
	return r
}

// Stop stops it and waits until nothing of it runs any more.
func (r *Running) Stop() {
	GinkgoHelper()
	r.cancel()
	Eventually(r.Stopped).WithTimeout(StopTimeout).Should(BeClosed())
}

// RunCommand runs a command like Run, and waits until it is ready, for which there may be further conditions. Its arguments depend on where
// it is asked for its health.
func RunCommand(ctx context.Context, command *cobra.Command, arguments func(healthAddress string) []string, conditions ...func(Gomega)) *Running {
	GinkgoHelper()
	healthAddress := FreeAddress()
	command.SetArgs(arguments(healthAddress))
	r := Run(ctx, command.ExecuteContext)
	Eventually(func(g Gomega) {
		select {
		case <-r.Stopped:
			StopTrying("the command has stopped").Now()
		default:
		}
		response, err := http.Get("http://" + healthAddress + "/readyz")
		g.Expect(err).NotTo(HaveOccurred())
		defer response.Body.Close()
		g.Expect(response).To(HaveHTTPStatus(http.StatusOK))
		for _, condition := range conditions {
			condition(g)
		}
	}).WithTimeout(StartTimeout).Should(Succeed())
	return r
}

// WebhookFlags have a command serve its webhooks at an address of this machine.
func WebhookFlags() []string {
	GinkgoHelper()
	address := FreeAddress()
	host, port, err := net.SplitHostPort(address)
	Expect(err).NotTo(HaveOccurred())
	return []string{
		"--webhook-config-mode=url",
		"--webhook-config-url=" + address,
		"--webhook-config-server-host=" + host,
		"--webhook-config-server-port=" + port,
		"--webhook-config-cert-dir=" + GinkgoT().TempDir(),
	}
}

// FreeAddress returns an address of this machine that nobody listens on.
func FreeAddress() string {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer listener.Close()
	return listener.Addr().String()
}
