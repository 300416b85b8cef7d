// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"embed"
	"maps"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

//go:embed testdata/former/*.yaml
var formerFiles embed.FS

// former is a machine as the version before has left it, and what that read there.
type former struct {
	Annotations map[string]string             `json:"annotations"`
	Status      machinev1alpha1.CurrentStatus `json:"status"`
	NeverJoined bool                          `json:"neverJoined"`
	Node        map[string]string             `json:"node"`
	Ready       bool                          `json:"ready"`
	At          time.Time                     `json:"at"`
	Record      *formerRecord                 `json:"record"`
}

// formerRecord has the names that fields had in the version before.
type formerRecord struct {
	Claims []struct {
		Cause     string
		Expiry    time.Time
		Tentative bool
	}
	Failed, Provisional                                           bool
	FailsAt, FailedSince, Since, MaintenanceOver, RemediatedUntil time.Time
	Share                                                         int32
}

func (r *formerRecord) record() *Record {
	if r == nil {
		return nil
	}
	record := &Record{
		Failed: r.Failed, Provisional: r.Provisional, FailsAt: r.FailsAt, FailedSince: r.FailedSince, Since: r.Since,
		MaintenanceOver: r.MaintenanceOver, RemediatedUntil: r.RemediatedUntil, Share: r.Share,
	}
	for _, c := range r.Claims {
		record.Claims = append(record.Claims, Claim{Cause: c.Cause, Expiry: c.Expiry, Tentative: c.Tentative})
	}
	return record
}

var _ = Describe("A machine of the version before", func() {
	hasFormer := func(machine *machinev1alpha1.Machine) bool {
		return slices.ContainsFunc(FormerAnnotations, func(key string) bool { _, ok := machine.Annotations[key]; return ok })
	}
	for generation, holder := range map[string]Holder{"0.61": HealthTimer{}, "0.62": PreserveExpiry{}} {
		data, err := formerFiles.ReadFile("testdata/former/" + generation + ".yaml")
		utilruntime.Must(err)
		var machines map[string]former
		utilruntime.Must(yaml.UnmarshalStrict(data, &machines))

		for _, name := range slices.Sorted(maps.Keys(machines)) {
			f := machines[name]
			group := func() Group {
				machine := Machine("m", func(m *machinev1alpha1.Machine) {
					m.Annotations, m.Status.CurrentStatus = maps.Clone(f.Annotations), f.Status
					if f.NeverJoined {
						NeverJoined(m)
					}
				})
				member := facts.Member{Machine: machine}
				if f.Node != nil || !f.NeverJoined {
					member.Node = Node("m", func(n *corev1.Node) {
						n.Annotations = maps.Clone(f.Node)
						if !f.Ready {
							NotReady(n)
						}
					})
				}
				return Group{
					Pool: facts.Pool{Replicas: 2}, Holder: holder, Share: new(int32(1)), Timeout: 72 * time.Hour, MaxTimeout: 336 * time.Hour,
					Timeouts: facts.DefaultTimeouts, Maintenance: MaintenanceOptions{Enabled: true, MaxHoldTime: 24 * time.Hour},
					Remediation: RemediationOptions{Enabled: true}, Members: []facts.Member{member},
				}
			}

			It("P8: should be read as that has read it, and carried on without a write of its own: "+name+", "+generation, func() {
				g := group()
				Expect(ReadRecord(g.Members[0].Machine)).To(BeComparableTo(f.Record.record()))
				d := Decide(g, f.At)[0]
				Expect(d.Rule).To(BeEmpty())
				for _, write := range Steps(holder, d, g.Timeouts, f.At) {
					if _, isMachine := write.Before.(*machinev1alpha1.Machine); isMachine {
						Expect(Changes(write)).To(BeFalse())
					}
				}
			})

			It("P8: should be what it was with a record in the place of former annotations: "+name+", "+generation, func() {
				g := group()
				before := g.Members[0].Machine
				notes := ReadNotes(before)
				g.Maintenance.Enabled, g.Remediation.Enabled = false, false
				for range 3 { // all is over
					g.Disabled = true
					d := Decide(g, f.At)[0]
					for _, write := range Steps(holder, d, g.Timeouts, f.At) {
						Make(write, &g.Members[0])
					}
				}
				after := g.Members[0].Machine
				if f.Record != nil {
					Expect(hasFormer(after)).To(BeFalse())
				}
				Expect(ReadRecord(after)).To(BeNil())
				Expect(after.Annotations).NotTo(HaveKey(HavePrefix(v1alpha1.AnnotationCause)))
				if notes.SetAside != "" && strings.HasPrefix(notes.SetAside, "Machine:") {
					Expect(after.Annotations[v1alpha1.AnnotationPreserve]).NotTo(Equal(v1alpha1.RequestNow), "the hold ends with it")
				}
			})
		}
	}

	It("P8: should have all of its annotations read", func() {
		at := func(hours int) time.Time { return Start.Add(time.Duration(hours) * time.Hour) }
		span := func(hours int) Span { return Span{Since: at(hours), Until: at(hours + 1)} }
		machine := Machine("m")
		for key, value := range map[string]string{
			NoteClaims: "now=" + stamp(at(1)) + ",auto?=" + stamp(at(2)), NoteFailsAt: stamp(at(3)), NoteShare: "2", NoteMaintenanceOver: stamp(at(4)), NoteRemediatedUntil: stamp(at(5)),
			NoteExpiryInStatus: "machine-m", NoteSetAside: "Node:true", NoteReplacedPriority: "2", NoteNodeUncleaned: "true", NoteReleased: stamp(at(6)), NoteSpentRequest: "now",
			NotePreservedSince: stamp(at(7)) + "/" + stamp(at(8)), NoteMaintainedSince: stamp(at(9)) + "/" + stamp(at(10)),
		} {
			machine.Annotations[key] = value
		}
		Expect(ReadNotes(machine)).To(Equal(Notes{
			Claims: []Claim{{Cause: "now", Expiry: at(1)}, {Cause: "auto", Expiry: at(2), Tentative: true}}, FailsAt: at(3), Share: 2, MaintenanceOver: at(4), RemediatedUntil: at(5),
			ExpiryInStatus: "machine-m", SetAside: "Node:true", ReplacedPriority: new("2"), NodeUncleaned: true, Spent: Spent{Released: at(6), Request: "now", Kept: span(7), Maintained: span(9)},
		}))
	})

	It("P8: should count for more than a record, because it was rolled back to meanwhile", func() {
		machine := Machine("m", Preserved("Running:Preserved", "now", Start), Annotation(v1alpha1.AnnotationPreservationRecord, `{"version":1,"spent":{"kept":{"since":"2026-01-01T00:00:00Z"}}}`))
		Expect(ReadRecord(machine).Since).To(BeTemporally("==", Start))
	})

	DescribeTable("P8: should be alone in what is read after a rollback, whatever the record says since before that", func(record string, asked ...NodeOption) {
		now := Start.Add(time.Hour)
		g := Group{
			Pool: facts.Pool{Replicas: 1}, Holder: PreserveExpiry{}, Share: new(int32(0)), Timeout: 72 * time.Hour, MaxTimeout: 336 * time.Hour, Timeouts: facts.DefaultTimeouts,
			Members: []facts.Member{{
				Machine: Machine("m", Phase(machinev1alpha1.MachineUnknown, now.Add(-20*time.Minute)), Preserved("Failed:Preserved", "now", now.Add(time.Hour)), ExpiryInStatus(now.Add(time.Hour)),
					Annotation(v1alpha1.AnnotationPreserve, "now"), Annotation(v1alpha1.AnnotationPreservationRecord, record)),
				Node: Node("m", append(asked, NotReady)...),
			}},
		}
		d := Decide(g, now)[0]
		Expect(d.Rule).To(BeEmpty())
		Expect(d.Target).To(HaveField("Failed", true))
	},
		Entry("a request was set aside on the Machine", `{"version":1,"setAside":"Machine:"}`),
		Entry("a request on the Node was spent", `{"version":1,"spent":{"request":"now"}}`, func(n *corev1.Node) { n.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.RequestNow }),
		Entry("it was about to fail", `{"version":1,"failsAt":"2026-03-01T12:30:00Z"}`),
	)

	It("M12 P13: should not forget what is noted because of a zone that JSON refuses", func() {
		now := Start.Add(time.Hour)
		g := Group{
			Pool: facts.Pool{Replicas: 1}, Holder: HealthTimer{}, Share: new(int32(0)), Timeout: 72 * time.Hour, MaxTimeout: 336 * time.Hour, Timeouts: facts.DefaultTimeouts,
			Maintenance: MaintenanceOptions{Enabled: true, MaxHoldTime: 24 * time.Hour},
			Members: []facts.Member{{Machine: Machine("m"), Node: Node("m", func(n *corev1.Node) {
				n.Annotations[v1alpha1.AnnotationPreserve] = v1alpha1.RequestNow
				n.Annotations[v1alpha1.AnnotationMaintenance] = now.Add(24*time.Hour-time.Minute).Format("2006-01-02T15:04:05") + "+24:00"
			})}},
		}
		for range 2 {
			for _, write := range Steps(g.Holder, Decide(g, now)[0], g.Timeouts, now) {
				Make(write, &g.Members[0])
			}
		}
		notes := ReadNotes(g.Members[0].Machine)
		Expect(notes.Version).To(Equal(1), "a later version must know what it reads")
		Expect(notes.Spent.Kept.Since).To(BeTemporally("==", now))
		Expect(notes.Spent.Maintained.Since).To(BeTemporally("==", now.Add(-time.Minute)))
		Expect(notes.Claims).To(HaveLen(2))
	})

	It("P8: should leave what is noted where nobody could read it with what is added", func() {
		machine := Machine("m")
		Note(machine, func(n *Notes) { n.SetAside = "Node:now" })
		before := machine.DeepCopy()
		Note(machine, func(n *Notes) { n.ReplacedPriority = new(strings.Repeat("9", 5000)) })
		Expect(machine).To(Equal(before))
	})

	It("X10: should keep all claims of a machine whose cause somebody edits", func() {
		machine := Machine("m", Preserved("Failed:Preserved", "now", Start), Annotation(v1alpha1.AnnotationPreservationRecord,
			`{"version":1,"claims":[{"cause":"auto","expiry":"2026-03-01T12:00:00Z"},{"cause":"remediation","expiry":"2026-03-01T11:00:00Z"}]}`))
		delete(machine.Annotations, NotePreservedSince)
		Expect(ReadRecord(machine).Claims).To(ConsistOf(HaveField("Cause", "auto"), HaveField("Cause", "remediation")))
	})

	DescribeTable("P8 P10: should be kept until the expiry that people read, whatever somebody has made of its record", func(record string) {
		machine := Machine("m", Preserved("Failed:Preserved", "auto", Start), Annotation(v1alpha1.AnnotationPreservationRecord, record))
		delete(machine.Annotations, NotePreservedSince) // it would count for more than the record
		Expect(ReadRecord(machine)).To(And(HaveField("Failed", true), HaveField("Claims", ConsistOf(HaveField("Cause", "auto")))))
		Expect(ReadRecord(machine).Expiry()).To(BeTemporally("==", Start))
	},
		Entry("nobody can read it", "{"), Entry("it is empty", ""), Entry("it has other types", `{"claims":1}`),
		Entry("it names other claims", `{"claims":[{"cause":"now","expiry":"2030-01-01T00:00:00Z"}]}`),
		Entry("it is of a later version", `{"version":2,"claims":[{"cause":"now","expiry":"2030-01-01T00:00:00Z"},{"cause":"auto"}]}`),
	)
})
