// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
)

// dashboard is what Plutono reads, as far as it is drawn.
type dashboard struct {
	Title, UID string
	Panels     []*panel
	Templating struct {
		List []struct{ Name, AllValue string }
	}
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Targets                  []struct {
		Expr, LegendFormat string
	}
	Stack, SteppedLine bool
	Fill               int
	Yaxes              []struct{ Format string }
	FieldConfig        struct {
		Defaults struct {
			Unit       string
			Thresholds struct {
				Steps []struct {
					Color string
					Value *float64
				}
			}
		}
		Overrides []struct {
			Matcher    struct{ Options string }
			Properties []struct {
				ID    string
				Value any
			}
		}
	}
	Transformations []struct {
		Options struct {
			ExcludeByName map[string]bool
			IndexByName   map[string]int
			RenameByName  map[string]string
		}
	}

	// lines are what a graph shows, values what a stat or a table does.
	lines  []line
	values promql.Vector
}

type line struct {
	name   string
	points []promql.FPoint
}

func readDashboard(file string) (*dashboard, error) {
	content, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	d := &dashboard{}
	if err := json.Unmarshal(content, d); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return d, nil
}

// evaluate gives each panel its data.
func (d *dashboard) evaluate(ctx context.Context, r *record, mayBeEmpty []string) error {
	replacements := []string{
		"$__range", fmt.Sprintf("%ds", int(math.Ceil(r.end.Sub(r.start).Seconds()))),
		"$__rate_interval", fmt.Sprintf("%ds", int(max(4*r.step, time.Minute).Seconds())),
	}
	for _, variable := range d.Templating.List {
		replacements = append(replacements, "$"+variable.Name, variable.AllValue)
	}
	variables := strings.NewReplacer(replacements...)

	var errs []error
	for _, p := range d.Panels {
		for _, target := range p.Targets {
			if err := p.ask(ctx, r, variables.Replace(target.Expr), target.LegendFormat); err != nil {
				errs = append(errs, fmt.Errorf("panel %d %q: %w", p.ID, p.Title, err))
			}
		}
		empty := len(p.lines) == 0 && len(p.values) == 0
		if id := fmt.Sprintf("%s/%d", d.UID, p.ID); empty && !slices.Contains(mayBeEmpty, id) {
			errs = append(errs, fmt.Errorf("panel %d %q has no data", p.ID, p.Title))
		}
	}
	return errors.Join(errs...)
}

func (p *panel) ask(ctx context.Context, r *record, expr, legend string) error {
	switch p.Type {
	case "stat", "table":
		values, err := r.atEnd(ctx, expr)
		p.values = append(p.values, values...)
		return err
	case "graph":
		matrix, err := r.over(ctx, expr)
		for _, series := range matrix {
			p.lines = append(p.lines, line{name: name(legend, series.Metric), points: series.Floats})
		}
		return err
	}
	return fmt.Errorf("panels of type %q are not drawn", p.Type)
}

var placeholder = regexp.MustCompile(`{{\s*(\w+)\s*}}`)

func name(legend string, metric labels.Labels) string {
	return placeholder.ReplaceAllStringFunc(legend, func(match string) string {
		return metric.Get(placeholder.FindStringSubmatch(match)[1])
	})
}

// table returns the names of the columns and the rows, as the transformations and the field overrides have it.
func (p *panel) table() (header []string, rows [][]string) {
	columns := map[string]bool{"Time": true, "Value": true}
	for _, value := range p.values {
		value.Metric.Range(func(l labels.Label) { columns[l.Name] = true })
	}
	order := slices.Sorted(maps.Keys(columns))
	titles := map[string]string{}
	for _, transformation := range p.Transformations {
		o := transformation.Options
		order = slices.DeleteFunc(order, func(column string) bool { return o.ExcludeByName[column] })
		slices.SortStableFunc(order, func(a, b string) int { return cmp.Compare(o.IndexByName[a], o.IndexByName[b]) })
		maps.Copy(titles, o.RenameByName)
	}

	unit := p.FieldConfig.Defaults.Unit
	for _, column := range order {
		title := cmp.Or(titles[column], column)
		for _, override := range p.FieldConfig.Overrides {
			if override.Matcher.Options != title {
				continue
			}
			for _, property := range override.Properties {
				switch text, _ := property.Value.(string); property.ID {
				case "unit":
					unit = text
				case "displayName":
					title = text
				}
			}
		}
		header = append(header, title)
	}
	for _, value := range p.values {
		var row []string
		for _, column := range order {
			if column == "Value" {
				row = append(row, format(value.F, unit))
			} else {
				row = append(row, value.Metric.Get(column))
			}
		}
		rows = append(rows, row)
	}
	return header, rows
}

// format writes a value as Plutono does in that unit.
func format(v float64, unit string) string {
	switch unit {
	case "dateTimeAsIso":
		return time.UnixMilli(int64(v)).UTC().Format(time.DateTime)
	case "dtdurations":
		d := time.Duration(v) * time.Second
		text := fmt.Sprintf("%02d:%02d:%02d", int(d.Hours())%24, int(d.Minutes())%60, int(d.Seconds())%60)
		if days := int(d.Hours()) / 24; days > 0 {
			text = fmt.Sprintf("%d d %s", days, text)
		}
		return text
	case "s":
		for _, smaller := range []struct {
			unit string
			of   float64
		}{{"s", 1}, {"ms", 1e-3}, {"µs", 1e-6}, {"ns", 1e-9}} {
			if math.Abs(v) >= smaller.of {
				return number(v/smaller.of) + " " + smaller.unit
			}
		}
		return "0 s"
	case "none":
		return fmt.Sprintf("%.0f", v)
	}
	return number(v)
}

// number writes three digits, or all of those before the point.
func number(v float64) string {
	if math.Abs(v) >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}
