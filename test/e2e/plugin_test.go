// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/conformance"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
)

// pluginOf returns kubectl preserve as the landscape has built it.
func pluginOf(l *landscape.Landscape, shoot client.Client) *conformance.Plugin {
	absolute := func(path string) string {
		path, err := filepath.Abs(path)
		if err != nil {
			panic(err)
		}
		return path
	}
	return &conformance.Plugin{
		Binary:          absolute(filepath.Join(l.Directory.Binaries(), "kubectl-preserve")),
		SeedKubeconfig:  absolute(l.Directory.SeedKubeconfig()),
		ShootKubeconfig: absolute(l.Directory.ShootKubeconfig()),
		Kubelet: func(ctx context.Context, node string, handler http.Handler) (func(), error) {
			return serveKubelet(ctx, shoot, node, handler)
		},
	}
}

// serveKubelet serves the kubelet of a node. Its address is one for documentation: the landscape's API server finds it by its
// port, and refuses to ask a loopback address.
func serveKubelet(ctx context.Context, shoot client.Client, node string, handler http.Handler) (func(), error) {
	server := httptest.NewTLSServer(handler)
	patch, err := json.Marshal(map[string]any{"status": map[string]any{
		"addresses":       []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.1"}},
		"daemonEndpoints": corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: int32(server.Listener.Addr().(*net.TCPAddr).Port)}},
	}})
	if err == nil {
		err = shoot.Status().Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node}}, client.RawPatch(types.MergePatchType, patch))
	}
	if err != nil {
		server.Close()
		return nil, err
	}
	return server.Close, nil
}
