// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package cluster runs Kubernetes control planes without containers.
package cluster

import (
	"context"
	"fmt"
	"net/http"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/process"
)

// Etcd is a running etcd.
type Etcd struct {
	*process.Process
	// URL is the address for clients.
	URL string
}

// seldomCollected lets a server trade memory for processor time, of which the tests have less: a third of the time of an API server would
// be garbage collection.
var seldomCollected = []string{"GOGC=300"}

// StartEtcd starts etcd with its data in the given directory, which must not outlive it: nothing is synced to the disk.
func StartEtcd(ctx context.Context, path, dataDir, logFile string) (*Etcd, error) {
	clientPort, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	peerPort, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	clientURL := fmt.Sprintf("http://127.0.0.1:%d", clientPort)
	peerURL := fmt.Sprintf("http://127.0.0.1:%d", peerPort)

	p, err := process.StartReady(ctx, process.Spec{
		Name: "etcd",
		Path: path,
		Args: []string{
			"--data-dir=" + dataDir,
			"--unsafe-no-fsync",
			"--listen-client-urls=" + clientURL,
			"--advertise-client-urls=" + clientURL,
			"--listen-peer-urls=" + peerURL,
			"--initial-advertise-peer-urls=" + peerURL,
			"--initial-cluster=default=" + peerURL,
			"--log-level=warn",
		},
		Env:     seldomCollected,
		LogFile: logFile,
	}, process.HTTPOK(http.DefaultClient, clientURL+"/readyz"))
	if err != nil {
		return nil, err
	}
	return &Etcd{Process: p, URL: clientURL}, nil
}
