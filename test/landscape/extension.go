// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/charts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/webhook/machinecontrollermanager"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/binaries"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/process"
)

const extension = "gardener-extension-machine-preservation"

// startExtension starts the extension with the permissions that its Helm chart gives, and waits until the API server of
// the seed calls its webhooks.
func (l *Landscape) startExtension(ctx context.Context, path string) error {
	values := extensionValues(l.options.Hosts, l.options.MaxMachineHours)
	maps.Copy(values["config"].(map[string]any), l.config)
	objects, err := renderExtension(l.release, values)
	if err != nil {
		return err
	}
	kubeconfig, config := l.Directory.data(extension+".kubeconfig"), l.Directory.data(extension+".yaml")
	if err := l.Seed.GrantRoles(ctx, objects, kubeconfig); err != nil {
		return fmt.Errorf("could not grant access to the seed: %w", err)
	}
	if err := writeConfig(objects, config); err != nil {
		return err
	}
	ports := map[string]int{"webhook": 0, "metrics": 0, "health": 0}
	for name := range ports {
		port, err := process.FreePort()
		if err != nil {
			return err
		}
		ports[name] = port
	}
	c, err := client.New(l.Seed.Config, client.Options{})
	if err != nil {
		return fmt.Errorf("could not make a client of the seed: %w", err)
	}

	args := []string{
		"--config=" + config,
		"--leader-election=false",
		"--heartbeat-namespace=" + v1beta1constants.GardenNamespace,
		"--log-format=text",
		"--webhook-config-namespace=" + v1beta1constants.GardenNamespace,
		"--webhook-config-mode=url",
		fmt.Sprintf("--webhook-config-url=127.0.0.1:%d", ports["webhook"]),
		"--webhook-config-server-host=127.0.0.1",
		fmt.Sprintf("--webhook-config-server-port=%d", ports["webhook"]),
		"--webhook-config-cert-dir=" + l.Directory.data(extension),
		fmt.Sprintf("--metrics-bind-address=127.0.0.1:%d", ports["metrics"]),
		fmt.Sprintf("--health-bind-address=127.0.0.1:%d", ports["health"]),
	}
	if l.options.WithoutSidecar {
		args = append(args, "--disable-webhooks="+machinecontrollermanager.WebhookName)
	}
	l.ExtensionMetrics = fmt.Sprintf("http://127.0.0.1:%d/metrics", ports["metrics"])
	healthy := process.HTTPOK(http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d/readyz", ports["health"]))
	l.extension, err = process.StartReady(ctx, process.Spec{
		Name:    extension,
		Path:    path,
		Args:    args,
		Env:     []string{"KUBECONFIG=" + kubeconfig, "GARDENER_SHOOT_CLIENT=external"}, // no names are resolved as in a cluster
		LogFile: l.Directory.Log(extension),
	}, func(ctx context.Context) error {
		if err := healthy(ctx); err != nil {
			return err
		}
		return webhooksRegistered(ctx, c)
	})
	return l.superviseStarted(l.extension, err)
}

// Reconfigure starts the extension again with some fields of its component configuration, as operators do, until it is called with
// others. What follows from them for the shoots that there are is up to the extension.
func (l *Landscape) Reconfigure(ctx context.Context, config map[string]any) error {
	if err := l.extension.Stop(ctx); err != nil {
		return err
	}
	l.config = config
	return l.startExtension(ctx, (*l.binaries.Load())[extension])
}

// renderExtension returns the objects of the extension's chart in an earlier version, of this one if there is none.
func renderExtension(release *binaries.Release, values map[string]any) ([]*unstructured.Unstructured, error) {
	if release != nil {
		return charts.Extension.RenderArchive(release.Chart, "landscape", v1beta1constants.GardenNamespace, values)
	}
	return charts.Extension.Render("landscape", v1beta1constants.GardenNamespace, values)
}

// writeConfig writes the component configuration that the chart has rendered.
func writeConfig(objects []*unstructured.Unstructured, path string) error {
	for _, object := range objects {
		if config, ok, _ := unstructured.NestedString(object.Object, "data", "config.yaml"); ok {
			return os.WriteFile(path, []byte(config), 0o644)
		}
	}
	return errors.New("the chart has no component configuration")
}

// webhooksRegistered returns an error unless the API server can call the webhooks. It would go on without them.
func webhooksRegistered(ctx context.Context, c client.Client) error {
	config := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := c.Get(ctx, client.ObjectKey{Name: extension}, config); err != nil {
		return fmt.Errorf("webhooks are not registered: %w", err)
	}
	for _, webhook := range config.Webhooks {
		if len(webhook.ClientConfig.CABundle) == 0 {
			return fmt.Errorf("webhook %s has no certificate yet", webhook.Name)
		}
	}
	return nil
}
