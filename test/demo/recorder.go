// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"time"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/podrunner"
)

const (
	scrapeInterval = 5 * time.Second

	jobExtension = "gardener-extension-machine-preservation"
	jobSidecar   = "machine-preservation-controller"
	portSidecar  = 10260
)

// recorder keeps what the components serve.
type recorder struct {
	dir       string
	seed      client.Client
	namespace string
	extension string
}

// record keeps what the components serve while a story is played, and the rules that are there at its end.
func (r *recorder) record(ctx context.Context, play func(context.Context) error) error {
	group, played := errgroup.WithContext(ctx)
	recorded, stop := context.WithCancel(played)
	group.Go(func() error { return r.run(recorded) })
	group.Go(func() error {
		defer stop()
		return play(played)
	})
	return errors.Join(group.Wait(), r.rules(ctx))
}

// rules keeps the alerts and the recording rules of the shoot, and how the Prometheus of all shoots tells them apart.
func (r *recorder) rules(ctx context.Context) error {
	rule := &monitoringv1.PrometheusRule{}
	if err := r.seed.Get(ctx, client.ObjectKey{Namespace: r.namespace, Name: "shoot-" + jobSidecar}, rule); err != nil {
		return fmt.Errorf("could not read the rules: %w", err)
	}
	for i := range rule.Spec.Groups {
		rule.Spec.Groups[i].Labels = map[string]string{"cluster": r.namespace}
	}
	content, err := yaml.Marshal(rule.Spec)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(r.dir, "rules.yaml"), content, 0o644)
}

// run scrapes until the context ends. A component that cannot be reached is not recorded at that time.
func (r *recorder) run(ctx context.Context) error {
	ticker := time.NewTicker(scrapeInterval)
	defer ticker.Stop()
	for {
		now := time.Now()
		targets := map[string]string{jobExtension: r.extension}
		if url := r.sidecar(ctx); url != "" {
			targets[jobSidecar] = url
		}
		for job, url := range targets {
			if err := r.scrape(ctx, job, url, now); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// sidecar returns the URL of the metrics of the sidecar, nothing as long as there is none.
func (r *recorder) sidecar(ctx context.Context) string {
	pods := &corev1.PodList{}
	if err := r.seed.List(ctx, pods, client.InNamespace(r.namespace), client.MatchingLabels{
		v1beta1constants.LabelRole: v1beta1constants.DeploymentNameMachineControllerManager,
	}); err != nil {
		return ""
	}
	for _, pod := range pods.Items {
		ports := map[int32]int32{}
		if err := json.Unmarshal([]byte(pod.Annotations[podrunner.PortsAnnotation]), &ports); err == nil && ports[portSidecar] != 0 {
			return fmt.Sprintf("http://127.0.0.1:%d/metrics", ports[portSidecar])
		}
	}
	return ""
}

// scrape keeps an answer. That there is none is no error: Prometheus would go on as well.
func (r *recorder) scrape(ctx context.Context, job, url string, at time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, scrapeInterval)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil
	}
	defer response.Body.Close()
	content, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		return nil
	}
	dir := filepath.Join(r.dir, job)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, fmt.Sprintf("%d.prom", at.UnixMilli())), content, 0o644)
}
