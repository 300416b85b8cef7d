// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/tsdb"
)

// record is a database with all that was recorded, and with what the rules made of it.
type record struct {
	dir        string
	db         *tsdb.DB
	engine     *promql.Engine
	start, end time.Time
	// step is the time between scrapes.
	step time.Duration
}

// load does with the record what Prometheus would have done at the time.
func load(ctx context.Context, dir string) (*record, error) {
	scrapes, err := filepath.Glob(filepath.Join(dir, "*", "*.prom"))
	if err != nil {
		return nil, err
	}
	// By time, and the jobs of one time.
	at := map[int64][]string{}
	for _, scrape := range scrapes {
		milliseconds, err := strconv.ParseInt(strings.TrimSuffix(filepath.Base(scrape), ".prom"), 10, 64)
		if err != nil {
			return nil, err
		}
		at[milliseconds] = append(at[milliseconds], scrape)
	}
	times := slices.Sorted(maps.Keys(at))
	if len(times) < 2 {
		return nil, errors.New("there are not two scrapes")
	}

	r := &record{start: time.UnixMilli(times[0]), end: time.UnixMilli(times[len(times)-1])}
	r.step = (r.end.Sub(r.start) / time.Duration(len(times)-1)).Round(time.Second)
	r.engine = promql.NewEngine(promql.EngineOpts{MaxSamples: 1e6, Timeout: time.Minute, EnableAtModifier: true, EnableNegativeOffset: true})
	if r.dir, err = os.MkdirTemp("", "pictures-"); err != nil {
		return nil, err
	}
	if r.db, err = tsdb.Open(r.dir, slog.New(slog.DiscardHandler), nil, tsdb.DefaultOptions(), nil); err != nil {
		return nil, errors.Join(err, os.RemoveAll(r.dir))
	}
	groups, err := r.groups(ctx, filepath.Join(dir, "rules.yaml"))
	if err != nil {
		return nil, errors.Join(err, r.close())
	}
	last := map[string]map[string]labels.Labels{}
	for _, milliseconds := range times {
		for _, scrape := range at[milliseconds] {
			job := filepath.Base(filepath.Dir(scrape))
			if last[job], err = r.ingest(ctx, scrape, job, milliseconds, last[job]); err != nil {
				return nil, errors.Join(fmt.Errorf("%s: %w", scrape, err), r.close())
			}
		}
		for _, group := range groups {
			group.Eval(ctx, time.UnixMilli(milliseconds))
			for _, rule := range group.Rules() {
				if err := rule.LastError(); err != nil {
					return nil, errors.Join(fmt.Errorf("rule %s: %w", rule.Name(), err), r.close())
				}
			}
		}
	}
	return r, nil
}

func (r *record) groups(ctx context.Context, file string) ([]*rules.Group, error) {
	manager := rules.NewManager(&rules.ManagerOptions{
		Context:    ctx,
		QueryFunc:  rules.EngineQueryFunc(r.engine, r.db),
		Appendable: r.db,
		Queryable:  r.db,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {},
		Logger:     slog.New(slog.DiscardHandler),
	})
	groups, errs := manager.LoadGroups(r.step, labels.EmptyLabels(), "", nil, false, file)
	return slices.Collect(maps.Values(groups)), errors.Join(errs...)
}

// ingest appends one scrape, and marks as stale what the last one had and this one has not. It returns what this one has.
func (r *record) ingest(ctx context.Context, file, job string, milliseconds int64, last map[string]labels.Labels) (map[string]labels.Labels, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	appender := r.db.Appender(ctx)
	found := map[string]labels.Labels{}
	if err := func() error {
		up := labels.FromStrings("__name__", "up", "job", job)
		if _, err := appender.Append(0, up, milliseconds, 1); err != nil {
			return err
		}
		parser := textparse.NewPromParser(content, labels.NewSymbolTable(), false)
		for {
			entry, err := parser.Next()
			if errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return err
			}
			if entry != textparse.EntrySeries {
				continue
			}
			var series labels.Labels
			parser.Labels(&series)
			series = labels.NewBuilder(series).Set("job", job).Labels()
			_, _, v := parser.Series()
			if _, err := appender.Append(0, series, milliseconds, v); err != nil {
				return err
			}
			found[series.String()] = series
		}
		for key, series := range last {
			if _, ok := found[key]; ok {
				continue
			}
			if _, err := appender.Append(0, series, milliseconds, math.Float64frombits(value.StaleNaN)); err != nil {
				return err
			}
		}
		return nil
	}(); err != nil {
		return nil, errors.Join(err, appender.Rollback())
	}
	return found, appender.Commit()
}

// over evaluates a query at each scrape.
func (r *record) over(ctx context.Context, expr string) (promql.Matrix, error) {
	query, err := r.engine.NewRangeQuery(ctx, r.db, nil, expr, r.start, r.end, r.step)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	result := query.Exec(ctx)
	found, err := result.Matrix()
	if err != nil {
		return nil, err
	}
	// The samples are taken back by the engine.
	kept := make(promql.Matrix, 0, len(found))
	for _, series := range found {
		series.Floats = slices.DeleteFunc(slices.Clone(series.Floats), func(p promql.FPoint) bool { return math.IsNaN(p.F) })
		if len(series.Floats) > 0 {
			kept = append(kept, series)
		}
	}
	return kept, nil
}

// atEnd evaluates a query at the last scrape.
func (r *record) atEnd(ctx context.Context, expr string) (promql.Vector, error) {
	query, err := r.engine.NewInstantQuery(ctx, r.db, nil, expr, r.end)
	if err != nil {
		return nil, err
	}
	defer query.Close()
	found, err := query.Exec(ctx).Vector()
	return slices.DeleteFunc(slices.Clone(found), func(s promql.Sample) bool { return math.IsNaN(s.F) }), err
}

func (r *record) close() error {
	return errors.Join(r.db.Close(), os.RemoveAll(r.dir))
}
