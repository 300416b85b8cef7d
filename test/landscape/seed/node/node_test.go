// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package node

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
)

var _ = Describe("node", func() {
	It("serves the log of a container", func() {
		dir := GinkgoT().TempDir()
		Expect(os.WriteFile(filepath.Join(dir, "machine-controller-manager-sidecar.log"), []byte("a line\n"), 0o600)).To(Succeed())
		server := httptest.NewServer(handler(dir))
		DeferCleanup(server.Close)

		response, err := http.Get(server.URL + "/containerLogs/shoot--local--a/machine-controller-manager-5df5dc7bf4-0/sidecar")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(response.Body.Close)
		Expect(response.StatusCode).To(Equal(http.StatusOK))
		Expect(io.ReadAll(response.Body)).To(Equal([]byte("a line\n")))
	})

	It("executes nothing, successfully", func(ctx SpecContext) {
		server := httptest.NewServer(handler(""))
		DeferCleanup(server.Close)
		file := filepath.Join(GinkgoT().TempDir(), "file")
		address, err := url.Parse(server.URL + "/exec/infra/machine/node?output=1&error=1&command=touch&command=" + file)
		Expect(err).NotTo(HaveOccurred())

		executor, err := remotecommand.NewSPDYExecutor(&rest.Config{Host: server.URL}, http.MethodPost, address)
		Expect(err).NotTo(HaveOccurred())
		output := &bytes.Buffer{}
		Expect(executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: output, Stderr: output})).To(Succeed())
		Expect(output.String()).To(BeEmpty())
		Expect(file).NotTo(BeAnExistingFile())
	})

	It("registers where it serves, again after a restart", func(ctx SpecContext) {
		c := fakeclient.NewClientBuilder().WithScheme(scheme.Scheme).WithStatusSubresource(&corev1.Node{}).Build()
		for _, port := range []int32{1000, 2000} {
			Expect(register(ctx, c, port)).To(Succeed())
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: Name}}
			Expect(c.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
			Expect(node.Status.DaemonEndpoints.KubeletEndpoint.Port).To(Equal(port))
			Expect(node.Status.Addresses).To(ContainElement(HaveField("Address", "127.0.0.1")))
		}
	})
})
