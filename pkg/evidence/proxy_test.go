// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/rest"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
)

var _ = Describe("The node proxy", func() {
	get := func(ctx context.Context, handler http.HandlerFunc, path string, query url.Values, last int64) (string, error) {
		GinkgoHelper()
		server := httptest.NewServer(handler)
		defer server.Close()
		proxy, err := NewNodeProxy(&rest.Config{Host: server.URL})
		Expect(err).NotTo(HaveOccurred())
		body, err := proxy(ctx, "node-1", path, query, last)
		if err != nil {
			return "", err
		}
		defer body.Close()
		data, err := io.ReadAll(body)
		return string(data), err
	}

	It("should ask the kubelet through the API server", func(ctx SpecContext) {
		Expect(get(ctx, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.RequestURI()) }, "logs/", url.Values{"query": {"kubelet"}}, 0)).
			To(Equal("/api/v1/nodes/node-1/proxy/logs/?query=kubelet"))
	})

	It("should take the end of a file", func(ctx SpecContext) {
		file := strings.NewReader("0123456789")
		Expect(get(ctx, func(w http.ResponseWriter, r *http.Request) { http.ServeContent(w, r, "x", time.Time{}, file) }, "logs/kern.log", nil, 3)).To(Equal("789"))
	})

	It("should not follow a kubelet to another host, and give that its token", func(ctx SpecContext) {
		asked := false
		other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
		defer other.Close()
		_, err := get(ctx, func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, strings.Replace(other.URL, "127.0.0.1", "localhost", 1), http.StatusFound)
		}, "logs/", nil, 0)
		Expect(err).To(HaveOccurred())
		Expect(asked).To(BeFalse())
	})

	It("should say what a dead kubelet is, and ask once", func(ctx SpecContext) {
		asked := 0
		_, err := get(ctx, func(w http.ResponseWriter, _ *http.Request) {
			asked++
			w.Header().Set("Retry-After", "1")
			http.Error(w, "dial tcp 10.0.0.1:10250: i/o timeout", http.StatusServiceUnavailable)
		}, "configz", nil, 0)
		Expect(apierrors.IsServiceUnavailable(err)).To(BeTrue(), "%v", err)
		Expect(asked).To(Equal(1))
	})
})
