// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/procfs"
)

// memory is what a process occupies, in bytes.
type memory struct {
	// resident is what it occupies now, peak what it has ever occupied.
	resident, peak uint64
}

func (m memory) String() string {
	return fmt.Sprintf("%d MiB (peak %d MiB)", m.resident>>20, m.peak>>20)
}

// memory returns what the extension occupies.
func (e *extension) memory() (memory, error) {
	p, err := procfs.NewProc(e.PID())
	if err != nil {
		return memory{}, err
	}
	status, err := p.NewStatus()
	if err != nil {
		return memory{}, err
	}
	return memory{resident: status.VmRSS, peak: status.VmHWM}, nil
}

// reconciliations returns how often a controller has reconciled.
func (e *extension) reconciliations(ctx context.Context, controller string) (int, error) {
	families, err := e.metrics(ctx)
	if err != nil {
		return 0, err
	}
	total := 0.0
	for _, metric := range families["controller_runtime_reconcile_total"].GetMetric() {
		if labelOf(metric, "controller") == controller {
			total += metric.GetCounter().GetValue()
		}
	}
	return int(total), nil
}

// webhook returns how long a webhook took since the extension was started.
func (e *extension) webhook(ctx context.Context, name string) (*dto.Histogram, error) {
	families, err := e.metrics(ctx)
	if err != nil {
		return nil, err
	}
	for _, metric := range families["controller_runtime_webhook_latency_seconds"].GetMetric() {
		if labelOf(metric, "webhook") == "/"+name {
			return metric.GetHistogram(), nil
		}
	}
	return nil, fmt.Errorf("there is no metric of webhook %s", name)
}

func labelOf(metric *dto.Metric, name string) string {
	for _, label := range metric.GetLabel() {
		if label.GetName() == name {
			return label.GetValue()
		}
	}
	return ""
}

// metrics returns all metrics by their names. Native histograms are in the binary format only.
func (e *extension) metrics(ctx context.Context) (map[string]*dto.MetricFamily, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, e.metricsURL, nil)
	if err != nil {
		return nil, err
	}
	format := expfmt.NewFormat(expfmt.TypeProtoDelim)
	request.Header.Set("Accept", string(format))
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()

	families := map[string]*dto.MetricFamily{}
	decoder := expfmt.NewDecoder(response.Body, format)
	for {
		family := &dto.MetricFamily{}
		if err := decoder.Decode(family); errors.Is(err, io.EOF) {
			return families, nil
		} else if err != nil {
			return nil, fmt.Errorf("could not read the metrics of the extension: %w", err)
		}
		families[family.GetName()] = family
	}
}

// quantile returns the upper bound of the bucket of a native histogram that a quantile of the observations is in, 0 if
// there are none. Buckets are narrow: each bound is a tenth above the one before, or a fifth if they are far apart.
func quantile(histogram *dto.Histogram, q float64) time.Duration {
	var (
		rank        = math.Ceil(q * float64(histogram.GetSampleCount()))
		seen, count int64
		index       int32
		deltas      = histogram.GetPositiveDelta()
	)
	for _, span := range histogram.GetPositiveSpan() {
		index += span.GetOffset()
		for range span.GetLength() {
			count += deltas[0]
			deltas = deltas[1:]
			if seen += count; float64(seen) >= rank {
				// Bucket i of schema s ends at 2^(i * 2^-s).
				bound := math.Exp2(float64(index) * math.Exp2(-float64(histogram.GetSchema())))
				return time.Duration(bound * float64(time.Second))
			}
			index++
		}
	}
	return 0
}

// percentile returns the smallest of the durations that is not exceeded by the given percentage of them, 0 if there are
// none.
func percentile(durations []time.Duration, percentage float64) time.Duration {
	if len(durations) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(durations))
	rank := int(math.Ceil(percentage / 100 * float64(len(sorted))))
	return sorted[max(rank, 1)-1]
}
