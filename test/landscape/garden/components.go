// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package garden

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"

	controllermanagerconfigv1alpha1 "github.com/gardener/gardener/pkg/apis/config/controllermanager/v1alpha1"
	schedulerconfigv1alpha1 "github.com/gardener/gardener/pkg/apis/config/scheduler/v1alpha1"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/cluster"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/process"
)

// ComponentOptions are the options of a component that works with the garden.
type ComponentOptions struct {
	// Path is the path of the executable.
	Path string
	// Garden is the API server.
	Garden *cluster.APIServer
	// Dir is the directory for the configuration. It exists.
	Dir string
	// LogFile is the log file.
	LogFile string
}

// StartControllerManager starts gardener-controller-manager and waits until it is ready.
func StartControllerManager(ctx context.Context, o ComponentOptions) (*process.Process, error) {
	return startComponent(ctx, "gardener-controller-manager",
		controllermanagerconfigv1alpha1.SchemeGroupVersion.String(), "ControllerManagerConfiguration", o)
}

// StartScheduler starts gardener-scheduler and waits until it is ready.
func StartScheduler(ctx context.Context, o ComponentOptions) (*process.Process, error) {
	return startComponent(ctx, "gardener-scheduler",
		schedulerconfigv1alpha1.SchemeGroupVersion.String(), "SchedulerConfiguration", o)
}

// startComponent starts a component with the defaults of its configuration, as far as these do not collide with those of
// other processes.
func startComponent(ctx context.Context, name, apiVersion, kind string, o ComponentOptions) (*process.Process, error) {
	servers, ports := map[string]any{}, map[string]int{}
	for _, server := range []string{"healthProbes", "metrics"} {
		port, err := process.FreePort()
		if err != nil {
			return nil, err
		}
		servers[server], ports[server] = map[string]any{"bindAddress": "127.0.0.1", "port": port}, port
	}
	config, err := json.Marshal(map[string]any{
		"apiVersion":     apiVersion,
		"kind":           kind,
		"leaderElection": map[string]any{"leaderElect": false},
		"server":         servers,
	})
	if err != nil {
		return nil, fmt.Errorf("could not encode the configuration of %s: %w", name, err)
	}
	configFile := filepath.Join(o.Dir, name+".json")
	if err := os.WriteFile(configFile, config, 0o600); err != nil {
		return nil, err
	}
	return process.StartReady(ctx, process.Spec{
		Name:    name,
		Path:    o.Path,
		Args:    []string{"--config=" + configFile},
		Env:     []string{"KUBECONFIG=" + o.Garden.Kubeconfig},
		LogFile: o.LogFile,
	}, process.HTTPOK(http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d/readyz", ports["healthProbes"])))
}
