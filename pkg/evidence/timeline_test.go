// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("The timeline", func() {
	index := func(change func(*machinev1alpha1.Machine)) string {
		GinkgoHelper()
		b := exampleBundle()
		change(&b.Snapshot.Seed.Machines[0])
		files, _ := unpacked(written(b, 1<<20))
		return files["index.md"]
	}

	It("should tell the end that the domain reads", func() {
		for _, change := range []func(*machinev1alpha1.Machine){
			// Restored after a migration: machine-controller-manager has written the status anew.
			func(m *machinev1alpha1.Machine) {
				m.Annotations[builder.NoteExpiryInStatus], m.UID = "before", "after"
				m.Status.CurrentStatus.PreserveExpiryTime = new(at(300))
			},
			// An operator has edited the status.
			func(m *machinev1alpha1.Machine) {
				m.Annotations[builder.NoteExpiryInStatus], m.UID = "u", "u"
				m.Status.CurrentStatus.PreserveExpiryTime = new(at(400))
			},
			func(m *machinev1alpha1.Machine) {
				m.Annotations[builder.NoteClaims] = "now=2026-07-01T12:00:00Z,maintenance=2026-07-01T13:20:00Z"
			},
		} {
			m := exampleBundle().Snapshot.Seed.Machines[0]
			change(&m)
			end := preservation.ReadRecord(&m).Expiry().Format(time.DateTime)
			Expect(index(change)).To(And(
				ContainSubstring("- It is preserved until "+end+" (cause "),
				ContainSubstring("| "+end+" | Machine m-1 | **expires** "),
			))
		}
	})

	It("should tell the cause and the phase that the domain reads", func() {
		Expect(index(func(m *machinev1alpha1.Machine) {
			m.Annotations[v1alpha1.AnnotationCause] = "maintenance"
			m.Annotations[builder.NoteClaims] = "maintenance=2026-07-01T12:00:00Z,now=2026-07-01T13:20:00Z"
			m.Annotations[v1alpha1.AnnotationPhase], m.Status.CurrentStatus.Phase = "Running:Preserved", "Unknown"
		})).To(And(ContainSubstring("- The machine is Unknown:Preserved.\n"), ContainSubstring("(cause \"now\").\n")))
	})

	It("should not tell the end of what machine-controller-manager preserves by itself", func() {
		Expect(index(func(m *machinev1alpha1.Machine) {
			m.Annotations, m.Status.CurrentStatus.Phase = nil, "Running"
			m.Status.CurrentStatus.PreserveExpiryTime = new(at(300))
		})).To(And(ContainSubstring("- The machine is Running.\n"), Not(ContainSubstring("expires **"))))
	})

	It("should say that an end cannot be read", func() {
		Expect(index(func(m *machinev1alpha1.Machine) { m.Annotations[v1alpha1.AnnotationExpiryTime] = "tomorrow" })).
			To(ContainSubstring(`- It is preserved until an unreadable time (cause "auto").`))
	})

	It("P13, M12: should tell since when a machine was kept, and until when", func() {
		span := func(minute int) string {
			return at(minute).UTC().Format(time.RFC3339) + "/" + at(minute+10).UTC().Format(time.RFC3339)
		}
		Expect(index(func(m *machinev1alpha1.Machine) {
			m.Annotations[builder.NotePreservedSince], m.Annotations[builder.NoteMaintainedSince] = span(19), span(30)
		})).To(And(
			ContainSubstring("| 2026-07-01 10:19:00 | Machine m-1 | **preserved** Its preservation began, not counting maintenances and power cycles. |\n"),
			ContainSubstring("| 2026-07-01 10:29:00 | Machine m-1 | It was no longer preserved. |\n"),
			ContainSubstring("| 2026-07-01 10:30:00 | Machine m-1 | Its time under maintenance began to count. |\n"),
			ContainSubstring("| 2026-07-01 10:40:00 | Machine m-1 | It was no longer under maintenance. |\n"),
		))
		Expect(index(func(m *machinev1alpha1.Machine) {
			m.Annotations[builder.NoteMaintainedSince] = at(30).UTC().Format(time.RFC3339)
		})).To(And(ContainSubstring("Its time under maintenance began to count."), Not(ContainSubstring("no longer under maintenance"))))
	})

	It("should know the reasons of our own Events", func() {
		for _, dir := range []string{"../preservation", "../maintenance", "../remediation", "../sidecar/preservation", "../preservation/failuredrain", "../drain/update",
			"../sidecar/maintenance/garbagecollector", "../sidecar/evidence"} {
			for _, reason := range eventReasons(dir) {
				// These only say what goes on with a pod, a maintenance or a ConfigMap.
				if !slices.Contains([]string{"ConditionChanged", "DrainStrategyActed", "DeletedByForce", "FinalizersRemoved", "EvidenceEvicted"}, reason) {
					Expect(Steps).To(HaveKey(reason), "%s has an Event with it", dir)
				}
			}
		}
	})
})

// eventReasons returns the values of the constants of a package that are called Event..., as far as they are written there.
func eventReasons(dir string) []string {
	GinkgoHelper()
	paths, err := filepath.Glob(filepath.Join(dir, "*.go"))
	Expect(err).NotTo(HaveOccurred())
	Expect(paths).NotTo(BeEmpty())
	var reasons []string
	for _, path := range paths {
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		Expect(err).NotTo(HaveOccurred())
		ast.Inspect(file, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || len(spec.Values) != 1 || !strings.HasPrefix(spec.Names[0].Name, "Event") {
				return true
			}
			value, ok := spec.Values[0].(*ast.BasicLit)
			if ok && spec.Names[0].Name != "EventPrefix" && spec.Names[0].Name != "EventAction" {
				reason, err := strconv.Unquote(value.Value)
				Expect(err).NotTo(HaveOccurred())
				reasons = append(reasons, reason)
			}
			return true
		})
	}
	return reasons
}
