// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"strings"
	"testing"
	"testing/fstest"

	. "github.com/onsi/gomega"
	"github.com/spf13/pflag"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

const testConstants = `package a

import "time"

// Keys.
const (
	group = "machine-preservation.extensions.gardener.cloud/"
	// AnnotationOne on a Node is for LabelTwo (R1).
	AnnotationOne = group + "one"
	// LabelTwo says that it is < 2.
	LabelTwo = "a/b"
	Other = "other"
	AnnotationTimeout = time.Second

	eventAction = "Act"
)

// Values of AnnotationOne.
const (
	// OneNow is now.
	OneNow = "now"
)

// The annotations of earlier versions.
const (
	formerOne = group + "former-one"
	formerTwo = group + "former-two"
)

// ConditionThree says that one thing holds, and that another does (T10).
const ConditionThree Kind = "Three"

// Reasons of ConditionThree.
const (
	// ReasonFour is that of four.
	ReasonFour = "Four" 
)

const ReasonFive = "Five" // ReasonFive says why a machine failed.
`

const testCode = `package b

import (
	alias "github.com/gardener/gardener-extension-machine-preservation/pkg/a"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/metrics"
)

var reasons reason.Table

var (
	WhyOne = reasons.Add("One", RuleOne, "it is "+alias.OneNow)
	WhyTwo = reasons.Add("Two", "", "it is two")
	other  = others.Add("Three", "", "it is three")
)

const RuleOne reason.Rule = "R1"

const (
	// EventPrefix is what they begin with.
	EventPrefix = "Began"
	// EventReasonEnded says that it has ended.
	EventReasonEnded = EventPrefix + "Ended"
	EventAction      = "Do"
)

const label = "pool"

var gauge = metrics.Gauge(alias.Other+"_gauge", "One.", "a", "b")

func init() {
	metrics.Counter("counter_total", "Two.", label)
	metrics.Histogram("histogram", "Three.", []float64{1}).WithLabelValues()
	metrics.GaugeFunc("func", "Four.", func() float64 { return 0 })
	other.Counter("no_metric", "Five.")
}
`

// importMetrics begins the sources that make metrics.
const importMetrics = "import `github.com/gardener/gardener-extension-machine-preservation/pkg/metrics`\n\n"

func page(files map[string]string) (string, error) {
	all := fstest.MapFS{"pkg/metrics/metrics.go": &fstest.MapFile{Data: []byte("package metrics\n\nconst Namespace = `n`\n")}}
	for name, content := range files {
		all[name] = &fstest.MapFile{Data: []byte(content)}
	}
	var written strings.Builder
	err := writeObjects(&written, all)
	return written.String(), err
}

func TestObjects(t *testing.T) {
	g := NewWithT(t)
	text, err := page(map[string]string{"pkg/a/a.go": testConstants, "pkg/sidecar/b/b.go": testCode, "pkg/a/a_test.go": "package a\n\nconst AnnotationTest = \"a\"\n"})
	g.Expect(err).NotTo(HaveOccurred())
	for _, line := range []string{
		"## Annotations\n\n| key | meaning |\n| --- | --- |\n| `machine-preservation.extensions.gardener.cloud/one` | On a Node: for `a/b` ([R1](rules.md#r1)). |\n\n",
		"### Former annotations\n\nThe annotations of earlier versions.\n\n- `machine-preservation.extensions.gardener.cloud/former-one`\n- `machine-preservation.extensions.gardener.cloud/former-two`\n",
		"### Values of `machine-preservation.extensions.gardener.cloud/one`\n\n| value | meaning |\n| --- | --- |\n| `now` | Is now. |\n",
		"## Labels\n\n| key | meaning |\n| --- | --- |\n| `a/b` | It is \\< 2. |\n",
		"| `Three` | Says that one thing holds, and that another does ([T10](rules.md#t10)). |\n\n### Reasons of `Three`\n\n| reason | meaning |\n| --- | --- |\n| `Four` | Is that of four. |\n",
		"## Reasons of Events\n\n| reason | meaning |\n| --- | --- |\n| `BeganEnded` | It has ended. |\n| `Began…` | What they begin with. |\n\n",
		"| reason | rule | text |\n| --- | --- | --- |\n| `One` | [R1](rules.md#r1) | it is now |\n| `Two` |  | it is two |\n\n",
		"## Why machines fail\n\nA `MachineFailure` has one of these as its reason, or the type of the first bad condition of the node.\n\n| reason | meaning |\n| --- | --- |\n| `Five` | Says why a machine failed. |\n",
		"### Of the preservation controller\n\n| metric | type | labels | meaning |\n| --- | --- | --- | --- |\n| `n_counter_total` | counter | `pool` | Two. |\n| `n_func` | gauge |  | Four. |\n| `n_histogram` | histogram |  | Three. |\n| `n_other_gauge` | gauge | `a`, `b` | One. |\n\n### Of the extension",
	} {
		g.Expect(text).To(ContainSubstring(line))
	}
	g.Expect(text).NotTo(ContainSubstring("AnnotationT"))
}

func TestMissing(t *testing.T) {
	for name, test := range map[string]struct{ source, message string }{
		"an annotation":          {"const AnnotationOne = `a`", "pkg/a.AnnotationOne"},
		"a condition":            {"const (\n\tConditionOne Kind = `a`\n)", "pkg/a.ConditionOne"},
		"a reason":               {"const ReasonOne = `a`", "pkg/a.ReasonOne"},
		"the reason of an Event": {"const EventOne = `a`", "pkg/a.EventOne"},
		"a value":                {"// AnnotationOne is one.\nconst AnnotationOne = `a`\n\n// Values of AnnotationOne.\nconst (\n\tOne = `b`\n)", "pkg/a.One"},
		"a key of no kind":       {"const key = `machine-preservation.extensions.gardener.cloud/a`", "pkg/a.key = "},
		"a metric":               {importMetrics + "var a = metrics.Counter(`a`, ``)", "metric n_a"},
		"the name of a metric":   {importMetrics + "var a = metrics.Counter(b(), `c`)", "cannot be read"},
		"the labels of a metric": {importMetrics + "var a = metrics.Counter(`a`, `b`, c)", "cannot be read"},
		"the text of a reason":   {"var table reason.Table\n\nvar why = table.Add(`A`, `R1`, b())", "pkg/a.why"},
	} {
		t.Run(name, func(t *testing.T) {
			g := NewWithT(t)
			_, err := page(map[string]string{"pkg/a/a.go": "package a\n\n" + test.source})
			g.Expect(err).To(MatchError(ContainSubstring(test.message)))
		})
	}
}

func TestOurs(t *testing.T) {
	g := NewWithT(t)
	var written strings.Builder
	g.Expect(writeObjects(&written, os.DirFS("../.."))).To(Succeed())
	for _, keys := range [][]string{v1alpha1.MachineAnnotations, v1alpha1.NodeAnnotations, preservation.FormerAnnotations} {
		for _, key := range keys {
			g.Expect(written.String()).To(ContainSubstring("`" + key + "`"))
		}
	}
	for _, name := range []string{preservation.EventPreserved, v1alpha1.ConditionPreserved, v1alpha1.TaintPreserved, v1alpha1.FinalizerHost, preservation.WhyExpired.ID,
		"machine_preservation_machines", "machine_preservation_shoot_synced", "machine_preservation_injection_halted"} {
		g.Expect(written.String()).To(ContainSubstring("\n| `" + name + "` | "))
	}
}

func TestCommands(t *testing.T) {
	g := NewWithT(t)
	var written strings.Builder
	g.Expect(writeCommands(&written)).To(Succeed())
	for _, line := range []string{
		"| [`kubectl preserve maintenance start`](#kubectl-preserve-maintenance-start) | ",
		"\n## kubectl preserve list\n",
		"\n```text\nkubectl preserve history [NODE|MACHINE] [flags]\n```\n\n```sh\nkubectl preserve history\n",
		"\n## Flags of all commands\n\n| flag | default | meaning |\n",
		"| `--cache-dir string` | `$HOME/.kube/cache` | ",
	} {
		g.Expect(written.String()).To(ContainSubstring(line))
	}
	g.Expect(written.String()).NotTo(ContainSubstring("--help"))
	flags := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.Bool("a", false, "")
	g.Expect(writeFlags(io.Discard, flags)).To(MatchError("flag --a has no description"))
}
