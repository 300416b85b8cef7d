// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package garden

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/charts"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/cluster"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/process"
)

// Admission is the name of the admission component of the extension.
const Admission = "gardener-extension-machine-preservation-admission"

// AdmissionOptions are the options of the admission component.
type AdmissionOptions struct {
	// Path is the path of the executable.
	Path string
	// Garden is where the webhook is registered.
	Garden *cluster.APIServer
	// Runtime is what the admission component would run in. It keeps its certificates there.
	Runtime *cluster.APIServer
	// Dir is the directory for kubeconfigs and certificates.
	Dir string
	// LogFile is the log file.
	LogFile string
}

// StartAdmission starts the admission component with the permissions that its Helm charts give, and waits until it is
// registered.
func StartAdmission(ctx context.Context, o AdmissionOptions) (*process.Process, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	gardenKubeconfig, runtimeKubeconfig := filepath.Join(o.Dir, "garden.kubeconfig"), filepath.Join(o.Dir, "runtime.kubeconfig")
	if err := o.Garden.Grant(ctx, charts.AdmissionApplication, gardenKubeconfig); err != nil {
		return nil, fmt.Errorf("could not grant access to the garden: %w", err)
	}
	if err := o.Runtime.Grant(ctx, charts.AdmissionRuntime, runtimeKubeconfig); err != nil {
		return nil, fmt.Errorf("could not grant access to the runtime cluster: %w", err)
	}
	ports := map[string]int{"webhook": 0, "metrics": 0, "health": 0}
	for name := range ports {
		port, err := process.FreePort()
		if err != nil {
			return nil, err
		}
		ports[name] = port
	}
	c, err := newClient(o.Garden.Config)
	if err != nil {
		return nil, err
	}

	healthy := process.HTTPOK(http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d/readyz", ports["health"]))
	return process.StartReady(ctx, process.Spec{
		Name: Admission,
		Path: o.Path,
		Args: []string{
			"--kubeconfig=" + gardenKubeconfig,
			"--runtime-kubeconfig=" + runtimeKubeconfig,
			"--leader-election-namespace=" + v1beta1constants.GardenNamespace,
			"--log-format=text",
			"--webhook-config-namespace=" + v1beta1constants.GardenNamespace,
			"--webhook-config-owner-namespace=" + v1beta1constants.GardenNamespace,
			"--webhook-config-mode=url",
			fmt.Sprintf("--webhook-config-url=127.0.0.1:%d", ports["webhook"]),
			"--webhook-config-server-host=127.0.0.1",
			fmt.Sprintf("--webhook-config-server-port=%d", ports["webhook"]),
			"--webhook-config-cert-dir=" + filepath.Join(o.Dir, "certificates"),
			fmt.Sprintf("--metrics-bind-address=127.0.0.1:%d", ports["metrics"]),
			fmt.Sprintf("--health-bind-address=127.0.0.1:%d", ports["health"]),
		},
		LogFile: o.LogFile,
	}, func(ctx context.Context) error {
		if err := healthy(ctx); err != nil {
			return err
		}
		return registered(ctx, c)
	})
}

func registered(ctx context.Context, c client.Client) error {
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := c.Get(ctx, client.ObjectKey{Name: Admission}, config); err != nil {
		return fmt.Errorf("the webhook is not registered: %w", err)
	}
	for _, webhook := range config.Webhooks {
		if len(webhook.ClientConfig.CABundle) == 0 {
			return fmt.Errorf("webhook %s has no certificate yet", webhook.Name)
		}
	}
	return nil
}
