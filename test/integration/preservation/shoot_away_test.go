// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"context"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/cmd/machine-preservation-controller/app"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/sidecar"
)

// gate returns an address at which connections end at once, until the function that is returned is called. From then on, they are forwarded
// until the end of the test. Nobody else gets the address meanwhile.
func gate(to string) (from string, open func()) {
	GinkgoHelper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(listener.Close)
	var isOpen atomic.Bool
	go func() {
		for {
			in, err := listener.Accept()
			if err != nil {
				return
			}
			if !isOpen.Load() {
				in.Close()
				continue
			}
			out, err := net.Dial("tcp", to)
			if err != nil {
				in.Close()
				continue
			}
			pipe := func(to, from net.Conn) {
				defer to.Close()
				_, _ = io.Copy(to, from)
			}
			go pipe(in, out)
			go pipe(out, in)
		}
	}()
	return listener.Addr().String(), func() { isOpen.Store(true) }
}

var _ = Describe("Command", func() {
	It("P9: should hold machines while the shoot's API server is away, and mark the nodes when it is back", func(ctx SpecContext) {
		generation := sidecar.Generations["machine-controller-manager 0.62"]
		api := sidecar.Start(ctx, generation)
		set := sidecar.Pool(ctx, api, "pool", builder.Share("1"))
		node := sidecar.NewNode("node", builder.NotReady)
		Expect(api.Create(ctx, node)).To(Succeed())
		machine := sidecar.NewMachine("m", node.Name, set)
		Expect(api.Create(ctx, machine)).To(Succeed())
		builder.Phase(machinev1alpha1.MachineUnknown, time.Now().Add(-10*time.Minute+10*time.Second))(machine)
		Expect(api.Status().Update(ctx, machine)).To(Succeed())

		host, err := url.Parse(api.Config.Host)
		Expect(err).NotTo(HaveOccurred())
		content, err := os.ReadFile(api.Kubeconfig)
		Expect(err).NotTo(HaveOccurred())
		away, back := gate(host.Host)
		Expect(string(content)).To(ContainSubstring(host.Host))
		target := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
		Expect(os.WriteFile(target, []byte(strings.ReplaceAll(string(content), host.Host, away)), 0o600)).To(Succeed())

		command := app.NewCommand()
		command.SetArgs([]string{
			"--namespace=" + builder.Namespace, "--control-kubeconfig=" + api.Kubeconfig, "--target-kubeconfig=" + target,
			"--holder=" + generation.Flag, "--metrics-bind-address=0", "--health-probe-bind-address=" + environment.FreeAddress(),
		})
		environment.Run(context.WithoutCancel(ctx), command.ExecuteContext)

		Eventually(ctx, func(g Gomega) {
			g.Expect(api.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
			g.Expect(machine.Annotations).To(HaveKeyWithValue("machine-preservation.extensions.gardener.cloud/phase", "Failed:Preserved"))
			g.Expect(machine.Status.CurrentStatus.PreserveExpiryTime).NotTo(BeNil())
		}).Should(Succeed())
		current := &corev1.Node{}
		Expect(api.Get(ctx, client.ObjectKeyFromObject(node), current)).To(Succeed())
		Expect(current.ResourceVersion).To(Equal(node.ResourceVersion))

		back()
		Eventually(ctx, func(g Gomega) {
			g.Expect(api.Get(ctx, client.ObjectKeyFromObject(node), current)).To(Succeed())
			g.Expect(current.Annotations).To(HaveKeyWithValue("cluster-autoscaler.kubernetes.io/scale-down-disabled", "true"))
			g.Expect(current.Spec.Taints).To(ContainElement(HaveField("Key", "node.machine.sapcloud.io/preserved")))
		}).Should(Succeed())
	}, SpecTimeout(10*time.Minute))
})
