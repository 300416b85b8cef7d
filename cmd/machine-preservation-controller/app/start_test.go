// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"context"
	"errors"
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
	It("P9: should wait for the API servers when none is there, and not end", func(ctx SpecContext) {
		config := clientcmdapi.NewConfig()
		config.Clusters["nobody"] = &clientcmdapi.Cluster{Server: "http://127.0.0.1:1"}
		config.Contexts["nobody"] = &clientcmdapi.Context{Cluster: "nobody"}
		config.CurrentContext = "nobody"
		content, err := clientcmd.Write(*config)
		Expect(err).NotTo(HaveOccurred())
		kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(os.WriteFile(kubeconfig, content, 0o600)).To(Succeed())

		cmd := NewCommand()
		cmd.SetArgs([]string{"--namespace=a", "--control-kubeconfig=" + kubeconfig, "--target-kubeconfig=" + kubeconfig,
			"--holder=health-timer", "--metrics-bind-address=0", "--health-probe-bind-address=0"})
		running, cancel := context.WithCancel(context.WithoutCancel(ctx))
		// It takes the manager half a minute to give its caches up.
		DeferCleanup(cancel)
		ended := make(chan error, 1)
		go func() {
			defer GinkgoRecover()
			ended <- cmd.ExecuteContext(running)
		}()
		Consistently(ended, 2*time.Second).ShouldNot(Receive())
	})

	It("should end when the shoot's caches do, which the manager does not wait for", func(ctx SpecContext) {
		runnable := Beside(broken{})
		Expect(runnable.Start(ctx)).To(MatchError("failed to run the shoot's caches: fake"))
		_, waitedFor := runnable.(interface{ GetCache() cache.Cache })
		Expect(waitedFor).To(BeFalse())
	})
})
