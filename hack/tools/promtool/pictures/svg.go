// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"fmt"
	"html"
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/promql"
)

const (
	// A dashboard has 24 columns.
	columnWidth = 50
	rowHeight   = 29
	gap         = 6
	padding     = 10
	titleHeight = 40
	lineHeight  = 15

	legendColumns = 2
	maxLegend     = 10
	maxRows       = 9
)

// Colours that can be read on white and on black.
const (
	ink  = "#7d8590"
	grid = "#7d859060"
)

var (
	palette = []string{"#3b82c4", "#d9822b", "#3f9c5a", "#b65fb8", "#c94f4f", "#2a9d9d", "#a88a1f", "#8273d6", "#d06a94", "#6f8f3a"}
	named   = map[string]string{"blue": "#3b82c4", "green": "#3f9c5a", "orange": "#d9822b", "red": "#c94f4f"}
)

// fit shortens a text that is wider than it may be, as far as that is known of a font that is not.
func fit(text string, size int, width float64) string {
	if most := int(width / (0.58 * float64(size))); len(text) > most {
		return text[:most-1] + "…"
	}
	return text
}

// canvas takes elements of a picture.
type canvas struct{ bytes.Buffer }

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(c, format+"\n", args...) }

// text writes on the base line y. Without a colour it is that of the picture, without an anchor it begins at x.
func (c *canvas) text(x, y float64, size int, text, attributes string) {
	c.add(`<text x="%.4g" y="%.4g" font-size="%d"%s>%s</text>`, x, y, size, attributes, html.EscapeString(text))
}

const (
	bold  = ` font-weight="600"`
	right = ` text-anchor="end"`
	mid   = ` text-anchor="middle"`
)

// box is where something is drawn.
type box struct{ x, y, w, h float64 }

// draw returns the picture of a dashboard whose panels have their data.
func draw(d *dashboard, r *record) []byte {
	rows := 0
	for _, p := range d.Panels {
		rows = max(rows, p.GridPos.Y+p.GridPos.H)
	}
	width, height := 24*columnWidth, titleHeight+rows*rowHeight
	c := &canvas{}
	c.add(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" font-family="system-ui, sans-serif" fill="%s" role="img">`, width, height, width, ink)
	c.add(`<title>%s</title>`, html.EscapeString(d.Title))
	c.text(gap, 26, 18, d.Title, bold)
	c.text(float64(width-gap), 26, 12, fmt.Sprintf("%s – %s UTC", r.start.UTC().Format(time.DateTime), r.end.UTC().Format(time.TimeOnly)), right)
	for _, p := range d.Panels {
		b := box{
			x: float64(p.GridPos.X*columnWidth + gap/2), y: float64(titleHeight + p.GridPos.Y*rowHeight),
			w: float64(p.GridPos.W*columnWidth - gap), h: float64(p.GridPos.H*rowHeight - gap),
		}
		c.add(`<g><title>%s</title>`, html.EscapeString(p.Description))
		c.add(`<rect x="%g" y="%g" width="%g" height="%g" rx="4" fill="none" stroke="%s"/>`, b.x, b.y, b.w, b.h, grid)
		c.text(b.x+padding, b.y+18, 13, fit(p.Title, 13, b.w-padding), bold)
		inner := box{b.x + padding, b.y + 30, b.w - 2*padding, b.h - 30 - padding}
		switch {
		case len(p.lines) == 0 && len(p.values) == 0:
			c.text(inner.x+inner.w/2, inner.y+inner.h/2, 13, "no data", mid)
		case p.Type == "stat":
			c.stat(p, inner)
		case p.Type == "table":
			c.table(p, inner)
		default:
			c.graph(p, inner, r)
		}
		c.add(`</g>`)
	}
	c.add(`</svg>`)
	return c.Bytes()
}

func (c *canvas) stat(p *panel, b box) {
	value := p.values[0].F
	colour := ink
	for _, step := range p.FieldConfig.Defaults.Thresholds.Steps {
		if step.Value == nil || value >= *step.Value {
			colour = named[step.Color]
		}
	}
	c.text(b.x+b.w/2, b.y+b.h/2+14, 32, format(value, p.FieldConfig.Defaults.Unit), mid+bold+` fill="`+colour+`"`)
}

func (c *canvas) table(p *panel, b box) {
	header, rows := p.table()
	// Columns are as wide as their longest text.
	widths, sum := make([]float64, len(header)), 0.0
	for i := range header {
		for _, row := range append([][]string{header}, rows...) {
			widths[i] = max(widths[i], float64(len(row[i])+2))
		}
		sum += widths[i]
	}
	write := func(cells []string, y float64, attributes string) {
		x := b.x
		for i, cell := range cells {
			c.text(x, y, 12, cell, attributes)
			x += b.w * widths[i] / sum
		}
	}
	y := b.y + lineHeight
	write(header, y, bold)
	c.add(`<path d="M%g %gh%g" stroke="%s"/>`, b.x, y+5, b.w, grid)
	for i, row := range rows {
		y += lineHeight + 4
		if i == maxRows-1 && len(rows) > maxRows {
			c.text(b.x, y, 12, fmt.Sprintf("and %d more", len(rows)-i), "")
			return
		}
		write(row, y, "")
	}
}

func (c *canvas) graph(p *panel, b box, r *record) {
	legend := min(len(p.lines), maxLegend)
	legendHeight := float64((legend + legendColumns - 1) / legendColumns * lineHeight)
	c.legend(p, box{b.x, b.y + b.h - legendHeight, b.w, legendHeight}, r)

	plot := box{b.x + 44, b.y, b.w - 44 - 8, b.h - legendHeight - 22}
	tops, bottoms := p.stacked()
	low, high, whole := 0.0, 0.0, true
	for i := range tops {
		for _, point := range tops[i] {
			low, high = min(low, point.F), max(high, point.F)
			whole = whole && point.F == math.Trunc(point.F)
		}
	}
	tick := niceTick(high - low)
	if whole {
		tick = max(tick, 1)
	}
	low, high = math.Floor(low/tick)*tick, math.Ceil(high/tick)*tick
	if high == low {
		high = low + tick
	}
	at := func(point promql.FPoint) (x, y float64) {
		x = plot.x + plot.w*float64(point.T-r.start.UnixMilli())/float64(r.end.Sub(r.start).Milliseconds())
		return x, plot.y + plot.h*(high-point.F)/(high-low)
	}

	for v := low; v <= high+tick/2; v += tick {
		_, y := at(promql.FPoint{F: v})
		c.add(`<path d="M%.5g %.4gh%.5g" stroke="%s"/>`, plot.x, y, plot.w, grid)
		c.text(plot.x-6, y+4, 11, format(math.Round(v/tick)*tick, p.Yaxes[0].Format), right)
	}
	every := time.Minute
	for r.end.Sub(r.start)/every > 6 {
		every *= 2
	}
	for t := r.start.Truncate(every).Add(every); !t.After(r.end); t = t.Add(every) {
		x, _ := at(promql.FPoint{T: t.UnixMilli()})
		c.add(`<path d="M%.5g %.4gv%.4g" stroke="%s"/>`, x, plot.y, plot.h, grid)
		c.text(x, plot.y+plot.h+14, 11, t.UTC().Format("15:04"), mid)
	}

	for i := range p.lines {
		colour := palette[i%len(palette)]
		for _, run := range runs(tops[i], r.step) {
			if last := run[len(run)-1]; p.SteppedLine && last.T < r.end.UnixMilli() {
				// It was so until the next scrape.
				next := min(last.T+r.step.Milliseconds(), r.end.UnixMilli())
				bottoms[i][next] = bottoms[i][last.T]
				run = append(slices.Clip(run), promql.FPoint{T: next, F: last.F})
			}
			top := path(run, p.SteppedLine, at)
			if p.Fill > 0 {
				var back []promql.FPoint
				for _, point := range run {
					back = append(back, promql.FPoint{T: point.T, F: bottoms[i][point.T]})
				}
				c.add(`<path d="M%sL%sZ" fill="%s" fill-opacity="0.2"/>`, top, reversed(path(back, p.SteppedLine, at)), colour)
			}
			c.add(`<path d="M%s" fill="none" stroke="%s" stroke-width="1.5"/>`, top, colour)
		}
	}
}

func (c *canvas) legend(p *panel, b box, r *record) {
	for i, line := range p.lines {
		column, row := i%legendColumns, i/legendColumns
		x, y := b.x+float64(column)*b.w/legendColumns, b.y+float64(row+1)*lineHeight-2
		if i == maxLegend-1 && len(p.lines) > maxLegend {
			c.text(x+16, y, 11, fmt.Sprintf("and %d more", len(p.lines)-i), "")
			return
		}
		c.add(`<rect x="%.5g" y="%.5g" width="10" height="3" fill="%s"/>`, x, y-5, palette[i%len(palette)])
		c.text(x+16, y, 11, fit(line.name, 11, b.w/legendColumns-80), "")
		current := "–"
		if last := line.points[len(line.points)-1]; r.end.UnixMilli()-last.T < r.step.Milliseconds() {
			current = format(last.F, p.Yaxes[0].Format)
		}
		c.text(x+b.w/legendColumns-14, y, 11, current, right)
	}
}

// stacked returns where the lines are drawn, and what each of them stands on at each time.
func (p *panel) stacked() (tops [][]promql.FPoint, bottoms []map[int64]float64) {
	sum := map[int64]float64{}
	for _, line := range p.lines {
		top, bottom := make([]promql.FPoint, 0, len(line.points)), map[int64]float64{}
		for _, point := range line.points {
			if p.Stack {
				bottom[point.T] = sum[point.T]
				sum[point.T] += point.F
				point.F = sum[point.T]
			}
			top = append(top, point)
		}
		tops, bottoms = append(tops, top), append(bottoms, bottom)
	}
	return tops, bottoms
}

// runs divides points where some are missing.
func runs(points []promql.FPoint, step time.Duration) [][]promql.FPoint {
	var found [][]promql.FPoint
	for i, point := range points {
		if i == 0 || point.T-points[i-1].T > step.Milliseconds() {
			found = append(found, nil)
		}
		found[len(found)-1] = append(found[len(found)-1], point)
	}
	return found
}

type corner struct{ x, y float64 }

// path returns the corners of a line, without those that change nothing.
func path(points []promql.FPoint, stepped bool, at func(promql.FPoint) (x, y float64)) corners {
	var line corners
	for i, point := range points {
		x, y := at(point)
		if stepped && i > 0 && line[len(line)-1].y != y {
			line = append(line, corner{x, line[len(line)-1].y})
		}
		if n := len(line); n > 1 && line[n-1].y == y && line[n-2].y == y {
			line = line[:n-1]
		}
		line = append(line, corner{x, y})
	}
	return line
}

type corners []corner

func (c corners) String() string {
	var text bytes.Buffer
	for i, corner := range c {
		if i > 0 {
			text.WriteByte('L')
		}
		fmt.Fprintf(&text, "%.1f %.1f", corner.x, corner.y)
	}
	return text.String()
}

func reversed(c corners) corners {
	back := make(corners, 0, len(c))
	for i := range c {
		back = append(back, c[len(c)-1-i])
	}
	return back
}

// niceTick returns the distance of four to eight ticks over a span: 1, 2 or 5 and zeros.
func niceTick(span float64) float64 {
	if span == 0 {
		return 1
	}
	power := math.Pow(10, math.Floor(math.Log10(span/4)))
	for _, factor := range []float64{5, 2} {
		if span/(factor*power) >= 4 {
			return factor * power
		}
	}
	return power
}
