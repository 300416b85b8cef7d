// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"time"
)

// egress is an EgressSelectorConfiguration.
const egress = `apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport:
      uds:
        udsName: %s
`

// serveEgress lets an API server reach kubelets, until it is ended: an API server refuses to ask loopback addresses, and what is
// tried listens nowhere else. So whatever address a Node has, its port is that of a kubelet here.
func serveEgress(file string) (end func(), err error) {
	dir, err := os.MkdirTemp("", "kubelets") // the path of a socket must be short
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(dir, "socket")
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", socket)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	server := &http.Server{Handler: http.HandlerFunc(connect), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = server.Serve(listener) }()
	end = func() {
		_ = server.Close()
		_ = os.RemoveAll(dir)
	}
	if err := os.WriteFile(file, fmt.Appendf(nil, egress, socket), 0o600); err != nil {
		end()
		return nil, err
	}
	return end, nil
}

func connect(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodConnect {
		http.Error(w, "only CONNECT is served", http.StatusMethodNotAllowed)
		return
	}
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	kubelet, err := (&net.Dialer{}).DialContext(r.Context(), "tcp", net.JoinHostPort("127.0.0.1", port))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadGateway)
		return
	}
	defer kubelet.Close()
	asking, buffered, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer asking.Close()
	if _, err := io.WriteString(asking, "HTTP/1.1 200 OK\r\n\r\n"); err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(kubelet, buffered)
		_ = kubelet.Close()
	}()
	_, _ = io.Copy(asking, kubelet)
}
