// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"path/filepath"
	"sync"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

// Account is a ServiceAccount whose requests are remembered.
type Account struct {
	// Kubeconfig is the path of its kubeconfig.
	Kubeconfig string

	mutex    sync.Mutex
	requests sets.Set[Permission]
	refused  sets.Set[string]
}

// NewAccount returns an account for a ServiceAccount. It works until the end of the suite.
func NewAccount(ctx context.Context, env *environment.Environment, namespace, name string) *Account {
	GinkgoHelper()
	a := &Account{
		Kubeconfig: filepath.Join(GinkgoT().TempDir(), "kubeconfig"),
		requests:   sets.New[Permission](),
		refused:    sets.New[string](),
	}

	request := &authenticationv1.TokenRequest{}
	serviceAccount := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}}
	Expect(env.Client.SubResource("token").Create(ctx, serviceAccount, request)).To(Succeed())

	target, _, err := rest.DefaultServerUrlFor(env.Config)
	Expect(err).NotTo(HaveOccurred())
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(env.Config))
	Expect(err).NotTo(HaveOccurred())
	server := httptest.NewTLSServer(a.recorder(target, transport)) // clients send tokens only to these
	DeferCleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})

	config := clientcmdapi.NewConfig()
	config.Clusters["api"] = &clientcmdapi.Cluster{
		Server:                   server.URL,
		CertificateAuthorityData: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
	}
	config.AuthInfos["account"] = &clientcmdapi.AuthInfo{Token: request.Status.Token}
	config.Contexts["api"] = &clientcmdapi.Context{Cluster: "api", AuthInfo: "account"}
	config.CurrentContext = "api"
	Expect(clientcmd.WriteToFile(*config, a.Kubeconfig)).To(Succeed())
	return a
}

func (a *Account) recorder(target *url.URL, transport http.RoundTripper) http.Handler {
	resolver := &apirequest.RequestInfoFactory{
		APIPrefixes:          sets.NewString("api", "apis"),
		GrouplessAPIPrefixes: sets.NewString("api"),
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ModifyResponse: func(response *http.Response) error {
			info, err := resolver.NewRequestInfo(response.Request)
			if err != nil {
				return err
			}
			a.mutex.Lock()
			defer a.mutex.Unlock()
			if response.StatusCode == http.StatusForbidden {
				a.refused.Insert(response.Request.Method + " " + response.Request.URL.String())
			}
			if !info.IsResourceRequest {
				return nil
			}
			request := Permission{Namespace: info.Namespace, Verb: info.Verb, Group: info.APIGroup, Resource: info.Resource, Name: info.Name}
			if info.Subresource != "" {
				request.Resource += "/" + info.Subresource
			}
			a.requests.Insert(request)
			// Whether an informer lists before it watches depends on the versions of both sides.
			if request.Verb == "watch" {
				request.Verb = "list"
				a.requests.Insert(request)
			}
			return nil
		},
	}
}

// Requests returns what the account has asked for.
func (a *Account) Requests() []Permission {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.requests.UnsortedList()
}

// Refused returns the requests that the account had no permission for.
func (a *Account) Refused() []string {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return sets.List(a.refused)
}
