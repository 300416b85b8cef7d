// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package kwok is the kubelet of the simulated machines.
package kwok

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/process"
)

const (
	// LabelKubelet on a node says whether its kubelet lives: only nodes with the value KubeletAlive get heartbeats, and
	// only their pods are run and terminated. It is a label since kwok goes on with the heartbeats of a node that loses
	// an annotation.
	LabelKubelet = "landscape.machine-preservation/kubelet"
	// KubeletAlive is the value of LabelKubelet of a node whose kubelet lives.
	KubeletAlive = "alive"
	// AnnotationReady with the value "false" on a node makes a kubelet that lives report the node as not ready.
	AnnotationReady = "landscape.machine-preservation/ready"

	// A lease is renewed four times in its duration.
	leaseDurationSeconds = 8
)

//go:embed stages.yaml
var stages []byte

// Start starts kwok for the cluster of the kubeconfig. Its configuration is written to the given directory.
func Start(path, kubeconfig, dir, logFile string) (*process.Process, error) {
	config := filepath.Join(dir, "kwok.yaml")
	if err := os.WriteFile(config, stages, 0o600); err != nil {
		return nil, fmt.Errorf("could not write the configuration of kwok: %w", err)
	}
	return process.Start(process.Spec{
		Name: "kwok",
		Path: path,
		Args: []string{
			"--kubeconfig=" + kubeconfig,
			"--config=" + config,
			fmt.Sprintf("--manage-nodes-with-label-selector=%s=%s", LabelKubelet, KubeletAlive),
			fmt.Sprintf("--node-lease-duration-seconds=%d", leaseDurationSeconds),
			"--v=WARN",
		},
		LogFile: logFile,
	})
}
