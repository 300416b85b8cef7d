// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	. "github.com/gardener/gardener-extension-machine-preservation/cmd/machine-preservation-controller/app"
)

// broken is a cluster whose caches cannot run.
type broken struct{ cluster.Cluster }

// Start implements cluster.Cluster.
func (broken) Start(context.Context) error { return errors.New("fake") }

var _ = Describe("Start", func() {
	// There is one, as the names of controllers and metrics are taken for good.
	It("P9: should answer probes while it waits for access to the shoot, start when it has it, and not end when no API server is there", func(ctx SpecContext) {
		dir := GinkgoT().TempDir()
		control, target, token := filepath.Join(dir, "control"), filepath.Join(dir, "target"), filepath.Join(dir, "token")
		write(control, nobody(""))
		write(target, nobody(token))
		metrics, probes := freeAddress(), freeAddress()
		ended := start(ctx, control, target, metrics, probes)
		status := func(url string) func() int {
			return func() int {
				response, err := http.Get(url)
				if err != nil {
					return 0
				}
				defer response.Body.Close()
				return response.StatusCode
			}
		}

		for _, path := range []string{"/healthz", "/readyz"} {
			Eventually(status("http://" + probes + path)).Should(Equal(http.StatusOK))
		}
		Consistently(status("http://"+metrics+"/metrics"), time.Second).Should(BeZero())

		write(token, []byte("token"))
		Eventually(status("http://"+metrics+"/metrics"), 20*time.Second).Should(Equal(http.StatusOK))
		Consistently(ended, 2*time.Second).ShouldNot(Receive())
		Expect(status("http://" + probes + "/healthz")()).To(Equal(http.StatusOK))
	})

	DescribeTable("should wait for a kubeconfig that can be used",
		func(ctx SpecContext, prepare func(kubeconfig, token string)) {
			kubeconfig, token := filepath.Join(GinkgoT().TempDir(), "kubeconfig"), filepath.Join(GinkgoT().TempDir(), "token")
			prepare(kubeconfig, token)
			impatient, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
			defer cancel()
			_, err := AwaitConfig(impatient, kubeconfig)
			Expect(err).To(MatchError(context.DeadlineExceeded))

			write(kubeconfig, nobody(token))
			write(token, []byte("token"))
			config, err := AwaitConfig(ctx, kubeconfig)
			Expect(err).NotTo(HaveOccurred())
			Expect(config.Host).To(Equal("https://127.0.0.1:1"))
			Expect(config.BearerTokenFile).To(Equal(token))
		},
		Entry("when there is none", func(string, string) {}),
		Entry("when there is no token", func(kubeconfig, token string) { write(kubeconfig, nobody(token)) }),
		Entry("when the token is empty", func(kubeconfig, token string) {
			write(kubeconfig, nobody(token))
			write(token, nil)
		}),
	)

	It("should end when the shoot's caches do, which the manager does not wait for", func(ctx SpecContext) {
		runnable := Beside(broken{})
		Expect(runnable.Start(ctx)).To(MatchError("failed to run the shoot's caches: fake"))
		_, waitedFor := runnable.(interface{ GetCache() cache.Cache })
		Expect(waitedFor).To(BeFalse())
	})
})

// nobody returns a kubeconfig of an API server that is not there, with a token in a file, if that is given. It must be HTTPS:
// client-go sends no token otherwise.
func nobody(tokenFile string) []byte {
	GinkgoHelper()
	config := clientcmdapi.NewConfig()
	config.Clusters["nobody"] = &clientcmdapi.Cluster{Server: "https://127.0.0.1:1"}
	config.AuthInfos["nobody"] = &clientcmdapi.AuthInfo{TokenFile: tokenFile}
	config.Contexts["nobody"] = &clientcmdapi.Context{Cluster: "nobody", AuthInfo: "nobody"}
	config.CurrentContext = "nobody"
	content, err := clientcmd.Write(*config)
	Expect(err).NotTo(HaveOccurred())
	return content
}

func write(file string, content []byte) {
	GinkgoHelper()
	Expect(os.WriteFile(file, content, 0o600)).To(Succeed())
}

// start runs the command until the end of the test, and returns how it ends before.
func start(ctx context.Context, control, target, metrics, probes string) <-chan error {
	cmd := NewCommand()
	cmd.SetArgs([]string{"--namespace=a", "--control-kubeconfig=" + control, "--target-kubeconfig=" + target,
		"--holder=health-timer", "--metrics-bind-address=" + metrics, "--health-probe-bind-address=" + probes,
		"--power-cycle", "--host-kind=BareMetalHost", "--seed-name=seed", "--host-kubeconfig=" + control + "-hosts", "--evidence"})
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	// It takes the manager half a minute to give its caches up.
	DeferCleanup(cancel)
	ended := make(chan error, 1)
	go func() {
		defer GinkgoRecover()
		ended <- cmd.ExecuteContext(running)
	}()
	return ended
}

func freeAddress() string {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	defer listener.Close()
	return listener.Addr().String()
}
