// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	restclient "k8s.io/client-go/rest"
)

// NewNodeProxy returns what asks kubelets through the API server of the configuration. Nobody is asked yet.
func NewNodeProxy(config *restclient.Config) (NodeProxy, error) {
	config = restclient.CopyConfig(config)
	config.APIPath, config.GroupVersion, config.NegotiatedSerializer = "/api", &corev1.SchemeGroupVersion, scheme.Codecs.WithoutConversion()
	asks, err := restclient.HTTPClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("failed to create the client for kubelets: %w", err)
	}
	// The API server passes a redirect to another host on. Who follows gives its token to that host.
	asks.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	core, err := restclient.RESTClientForConfigAndClient(config, asks)
	if err != nil {
		return nil, fmt.Errorf("failed to create the client for kubelets: %w", err)
	}
	return func(ctx context.Context, node, path string, query url.Values, last int64) (io.ReadCloser, error) {
		// One segment, since the / at the end of a folder would be lost among several.
		request := core.Get().AbsPath("/api/v1/nodes/" + url.PathEscape(node) + "/proxy/" + path).MaxRetries(0)
		for key, values := range query {
			for _, value := range values {
				request.Param(key, value)
			}
		}
		if last > 0 {
			request.SetHeader("Range", fmt.Sprintf("bytes=-%d", last))
		}
		return request.Stream(ctx)
	}, nil
}
