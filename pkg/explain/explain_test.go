// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/explain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/hours"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/golden"
)

var (
	now = Start.Add(24 * time.Hour)

	running = machinev1alpha1.MachineRunning
	unknown = machinev1alpha1.MachineUnknown
)

// shown are the conditions of a node whose machine is kept.
func shown(cause, reason, drain string, until time.Time) NodeOption {
	return func(n *corev1.Node) {
		Condition(v1alpha1.ConditionPreserved, corev1.ConditionTrue, reason, fmt.Sprintf("%sMachine preserved until %s (cause %s, reason %s).", drain, until.Format(time.RFC3339), cause, preservation.WhyBegun(cause).ID))(n)
		preservation.PreservedCondition(n).LastTransitionTime = metav1.NewTime(now.Add(-time.Hour))
	}
}

func notReadySince(since time.Time) NodeOption {
	return func(n *corev1.Node) {
		NotReady(n)
		n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(since)
	}
}

func event(kind, name string, told told, at time.Time) eventsv1.Event {
	return eventsv1.Event{
		EventTime: metav1.NewMicroTime(at),
		Reason:    told.reason,
		Action:    told.action,
		Regarding: corev1.ObjectReference{Kind: kind, Name: name},
		Note:      told.note,
	}
}

// told is what an Event tells.
type told struct{ reason, action, note string }

// situation is what is known of machine m, and of machine other of the same MachineDeployment.
type situation struct {
	deployment []DeploymentOption
	machine    []MachineOption
	node       []NodeOption
	noNode     bool
	other      []MachineOption
	updated    bool // there is a MachineSet of a newer revision
	args       []string
	noSidecar  bool
	told       told
	change     func(*observed.Snapshot)
}

func (s situation) snapshot(holder string) *observed.Snapshot {
	deployment := Deployment("pool-z1", append([]DeploymentOption{Share("1")}, s.deployment...)...)
	sets := []machinev1alpha1.MachineSet{*Set("old", deployment, Revision("1"))}
	if s.updated {
		sets = append(sets, *Set("new", deployment, Revision("2")))
	}
	owned := func(m *machinev1alpha1.Machine) machinev1alpha1.Machine {
		m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&sets[0], machinev1alpha1.SchemeGroupVersion.WithKind("MachineSet"))}
		return *m
	}
	snapshot := &observed.Snapshot{
		Time: now,
		Seed: &observed.Seed{
			Namespace:          Namespace,
			MachineDeployments: []machinev1alpha1.MachineDeployment{*deployment},
			MachineSets:        sets,
			Machines:           []machinev1alpha1.Machine{owned(Machine("m", s.machine...)), owned(Machine("other", s.other...))},
			Controller:         &observed.Controller{Injected: !s.noSidecar, Args: append([]string{"--namespace=" + Namespace, "--holder=" + holder, "--log-level=info"}, s.args...)},
		},
	}
	snapshot.Shoot.Nodes = []corev1.Node{*Node("other")}
	if !s.noNode {
		snapshot.Shoot.Nodes = append(snapshot.Shoot.Nodes, *Node("m", append([]NodeOption{func(n *corev1.Node) { n.Spec.ProviderID = "local:///m" }}, s.node...)...))
	}
	if s.told.note != "" {
		snapshot.Shoot.Events = []eventsv1.Event{
			event("Node", "m", told{"MachinePreserved", "AskedFor", "Machine is Running:Preserved until 2026-03-01T00:00:00Z because it was requested (cause now)"}, now.Add(-10*time.Hour)),
			event("Node", "m", s.told, now.Add(-time.Hour)),
			event("Node", "m", told{"PreservedNodeDrained", "Drain", "not of the preservation"}, now),
			event("Node", "other", told{"MachinePreserved", "AskedFor", "not of this node"}, now),
		}
	}
	if s.change != nil {
		s.change(snapshot)
	}
	return snapshot
}

// hoursOf are those of an account, nil if there is none.
func hoursOf(encoded string) *preservation.Hours {
	account, err := hours.Decode(encoded)
	if err != nil {
		return nil
	}
	return &preservation.Hours{SpentAt: account.Spent(now), Until: account.End()}
}

// decide is what the domain decides on machine m.
func (s situation) decide(holder preservation.Holder) preservation.Decision {
	snapshot := s.snapshot("")
	machines, rollout := facts.MachinesOf(&snapshot.Seed.MachineDeployments[0], snapshot.Seed.MachineSets, snapshot.Seed.Machines)
	group := preservation.Group{
		Holder:         holder,
		MaxTimeout:     v1alpha1.DefaultMaxMachinePreserveTimeout,
		Timeouts:       facts.DefaultTimeouts,
		NodeConditions: facts.DefaultNodeConditions,
		Maintenance:    preservation.MaintenanceOptions{Enabled: slices.Contains(s.args, "--node-maintenance"), MaxHoldTime: v1alpha1.DefaultMaxHoldTime},
		Remediation:    preservation.RemediationOptions{Enabled: slices.Contains(s.args, "--power-cycle")},
		Hours:          hoursOf(snapshot.Seed.MachineHours),
	}.Of(&snapshot.Seed.MachineDeployments[0])
	group.Rollout = rollout
	for _, m := range machines {
		member := facts.Member{Machine: m}
		for i := range snapshot.Shoot.Nodes {
			if snapshot.Shoot.Nodes[i].Name == m.Labels["node"] {
				member.Node = &snapshot.Shoot.Nodes[i]
			}
		}
		group.Members = append(group.Members, member)
	}
	if slices.Contains(s.args, "--storm-max-failing=1") {
		group.Storm = facts.StormOf(group.Members, preservation.FailedSince, facts.StormLimits{MaxFailing: 1, SettlingTime: 10 * time.Minute}, group.Timeouts, group.NodeConditions, now)
	}
	return preservation.Decide(group, now)[0]
}

var (
	failedAt = now.Add(-time.Hour)
	expiry   = now.Add(71 * time.Hour)
	// held is a machine in Failed:Preserved for a cause.
	held = func(cause string) []MachineOption {
		return []MachineOption{Phase(unknown, failedAt.Add(-10*time.Minute)), Preserved("Failed:Preserved", cause, expiry), Annotation("machine-preservation.extensions.gardener.cloud/share", "1")}
	}
	heldNode = func(reason, drain string) []NodeOption {
		return []NodeOption{notReadySince(failedAt.Add(-10 * time.Minute)), Taint(v1alpha1.TaintPreserved, failedAt), shown("auto", reason, drain, expiry)}
	}
	// failed is a machine whose deadline has passed.
	failed = []MachineOption{Phase(unknown, now.Add(-10*time.Minute))}
	deadly = []NodeOption{notReadySince(now.Add(-11 * time.Minute))}
)

// situations are those that the explanation is looked at in.
var situations = map[string]situation{
	"held-by-share": {machine: append(held("auto"), Annotation(v1alpha1.AnnotationEvidence, failedAt.Format(time.RFC3339))), node: heldNode("DrainBlocked", "Pods: 1 terminating; blocked: namespace shop: Cannot evict pod as it would violate the pod's disruption budget. "),
		told: told{"MachinePreserved", "MachineFailed", "Machine is Failed:Preserved until " + expiry.Format(time.RFC3339) + " because the machine failed (cause auto)"}},
	"machine-hours": {machine: []MachineOption{Preserved("Running:Preserved", "now", expiry)}, node: []NodeOption{NodeAnnotation(v1alpha1.AnnotationPreserve, "now"), shown("now", "Preserved", "", expiry)},
		args: []string{"--max-machine-hours=1000"}, change: func(s *observed.Snapshot) {
			account := hours.New(now.Add(-72*time.Hour)).Advance("pool-z1", "pool", []hours.Seen{{UID: "machine-m", Since: now.Add(-60 * time.Hour), Until: expiry}}, now.Add(-time.Hour))
			account.Max = 1000
			s.Seed.MachineHours = account.Encode()
		}},
	"machine-hours-used-up": {node: []NodeOption{NodeAnnotation(v1alpha1.AnnotationPreserve, "now")},
		args: []string{"--max-machine-hours=10"}, change: func(s *observed.Snapshot) {
			account := hours.New(now.Add(-11*time.Hour)).Advance("other", "pool", []hours.Seen{{UID: "gone", Since: now.Add(-11 * time.Hour), Until: now}}, now.Add(-time.Hour))
			account.Max, account.SpentAt = 10, now.Add(-time.Hour)
			s.Seed.MachineHours = account.Encode()
		},
		told: told{"MachineHoursUsed", "Preserve", "Machines of the shoot have been preserved for all 10 machine-hours that operators allow in 2026-03 (UTC)"}},
	"at-maximum": {machine: held("auto"), node: heldNode("Drained", "Preserved node drained successfully. "), other: held("when-failed"),
		deployment: []DeploymentOption{DeploymentAnnotation(v1alpha1.AnnotationMaximum, "3")},
		told: told{"PoolAtMaximum", "Preserve", "The pool is at its maximum of 3 machines in its zone because 2 failed machines are preserved. " +
			"The cluster-autoscaler adds no machine there until a preserved machine is released or the maximum is raised"}},
	"refused": {machine: failed, node: deadly, other: held("auto"),
		told: told{"MachinePreservationRefused", "NoPlace", "Machine failed and is replaced because its pool has no free place in its zone"}},
	"forbidden":       {machine: []MachineOption{Annotation(v1alpha1.AnnotationForbidden, "true")}, node: []NodeOption{NodeAnnotation(v1alpha1.AnnotationPreserve, "now")}},
	"invalid-request": {node: []NodeOption{NodeAnnotation(v1alpha1.AnnotationPreserve, "yes\x1b[31m"), NodeAnnotation(v1alpha1.AnnotationTimeout, "2 days")}},
	"rollout":         {machine: failed, node: append([]NodeOption{NodeAnnotation(v1alpha1.AnnotationPreserve, "when-failed")}, deadly...), updated: true},
	"never-joined": {machine: []MachineOption{Phase(machinev1alpha1.MachinePending, now.Add(-10*time.Minute)), Created(now.Add(-10 * time.Minute)), NeverJoined,
		func(m *machinev1alpha1.Machine) { delete(m.Labels, "node") }}, noNode: true},
	"recovered": {machine: append(held("auto"), Phase(running, now)), node: append(heldNode("Drained", "Preserved node drained successfully. "), Condition(corev1.NodeReady, corev1.ConditionTrue, "", ""))},
	"expired": {machine: append(held("when-failed"), Preserved("Failed:Preserved", "when-failed", now)), node: append(heldNode("PodsKept", "Preserved node drained successfully. Pods: 1 kept, because they use volumes and the VM may still run them. "),
		shown("when-failed", "PodsKept", "Preserved node drained successfully. Pods: 1 kept, because they use volumes and the VM may still run them. ", now), NodeAnnotation(v1alpha1.AnnotationPreserve, "when-failed"))},
	"validation": {deployment: []DeploymentOption{DeploymentAnnotation(v1alpha1.AnnotationValidation, `{"condition":"GPUHealthy"}`)},
		machine: []MachineOption{Preserved("Running:Preserved", "auto", now.Add(71*time.Hour)), Annotation(NoteClaims,
			"auto="+now.Add(71*time.Hour).Format(time.RFC3339)+",validation="+now.Add(10*time.Minute).Format(time.RFC3339))},
		node: []NodeOption{Taint(v1alpha1.TaintPreserved, now.Add(-time.Hour)), shown("auto", "AwaitingValidation", "Node takes no new pods until it is validated, or until "+now.Add(10*time.Minute).Format(time.RFC3339)+". ", now.Add(71*time.Hour))}},
	"maintenance": {machine: []MachineOption{Preserved("Running:Preserved", "maintenance", now.Add(23*time.Hour)), Annotation(NoteMaintainedSince, now.Add(-time.Hour).Format(time.RFC3339))},
		node: []NodeOption{NodeAnnotation(v1alpha1.AnnotationMaintenance, now.Add(-time.Hour).Format(time.RFC3339)), shown("maintenance", "Preserved", "", now.Add(23*time.Hour))}, args: []string{"--node-maintenance"},
		change: func(s *observed.Snapshot) {
			s.Shoot.HasMaintenances = true
			s.Shoot.Maintenances = []maintenancev1alpha1.NodeMaintenance{{
				ObjectMeta: metav1.ObjectMeta{Namespace: "ops", Name: "firmware"},
				Spec:       maintenancev1alpha1.NodeMaintenanceSpec{NodeName: "m", RequestorID: "firmware.example.com"},
				Status:     maintenancev1alpha1.NodeMaintenanceStatus{Conditions: []metav1.Condition{{Type: "Ready", Status: "True", Reason: "Ready"}}},
			}}
		}},
	"remediation": {machine: append(held("remediation"), Annotation(v1alpha1.AnnotationRemediation, expiry.Format(time.RFC3339)), Annotation(NoteRemediatedUntil, expiry.Format(time.RFC3339))),
		node: append([]NodeOption{notReadySince(failedAt), shown("remediation", "Preserved", "", expiry)}, Condition(corev1.NodeConditionType(v1alpha1.ConditionPowerCycle), corev1.ConditionTrue, "PoweringOff", "The host is being powered off, attempt 1 of 1.")), args: []string{"--power-cycle"}},
	"dry-run": {machine: append(held("auto"), Annotation(v1alpha1.AnnotationPowerCycleRecord, `{"asked":"`+failedAt.Format(time.RFC3339)+`","dryRun":"`+failedAt.Add(time.Minute).Format(time.RFC3339)+`"}`)),
		node: heldNode("Drained", "Preserved node drained successfully. "), args: []string{"--power-cycle"},
		change: func(s *observed.Snapshot) {
			dryRun := told{"PowerCycleDryRun", "PowerCycle", "The host would have been power-cycled."}
			s.Shoot.Events = append(s.Shoot.Events, event("Node", "m", dryRun, failedAt.Add(time.Minute)), event("Node", "other", dryRun, now))
		}},
	"storm": {machine: failed, node: deadly, other: []MachineOption{Phase(unknown, now.Add(-15*time.Minute))}, args: []string{"--storm-max-failing=1"},
		change: func(s *observed.Snapshot) {
			NotReady(&s.Shoot.Nodes[0])
			s.Shoot.Nodes[0].Status.Conditions[0].LastTransitionTime = metav1.NewTime(now.Add(-15 * time.Minute))
		}},
	"no-extension": {machine: failed, node: deadly, noSidecar: true},
	"old-sidecar": {machine: append(held("quarantine"), Annotation(v1alpha1.GroupName+"/quarantined-by", "me")), node: append(heldNode("Quarantined", "Somebody looks at it. "), NodeAnnotation(v1alpha1.GroupName+"/mood", "bad")),
		told: told{"MachinePreserved", "InQuarantine", "Machine is Failed:Preserved until " + expiry.Format(time.RFC3339) + " because it is in quarantine (cause quarantine)"}},

	"ordinary": {},
	"asked":    {machine: []MachineOption{Preserved("Running:Preserved", "now", expiry)}, node: []NodeOption{NodeAnnotation(v1alpha1.AnnotationPreserve, "now"), shown("now", "Preserved", "", expiry)}, deployment: []DeploymentOption{Share("0")}},
	"asked-about-to-fail": {machine: []MachineOption{Phase(unknown, now.Add(-10*time.Minute+10*time.Second)), HeldUntil(now.Add(10*time.Second), "now", expiry),
		Annotation(NoteClaims, "now="+now.Add(time.Hour).Format(time.RFC3339)+",auto?="+expiry.Format(time.RFC3339)), Annotation(v1alpha1.AnnotationPhase, "Unknown:Preserved"), Annotation(NoteShare, "1"), Annotation(NotePreservedSince, now.Format(time.RFC3339))},
		node: []NodeOption{notReadySince(now.Add(-10*time.Minute + 10*time.Second)), NodeAnnotation(v1alpha1.AnnotationPreserve, "now"), shown("now", "Preserved", "", expiry)}},
	"unhealthy": {machine: []MachineOption{Phase(unknown, now.Add(-2*time.Minute))}, node: []NodeOption{notReadySince(now.Add(-3 * time.Minute))}},
	"deleted":   {machine: []MachineOption{Deleted(now.Add(-time.Minute))}},
	"no-share":  {machine: failed, node: deadly, deployment: []DeploymentOption{Share("0")}},
}

// onlySeed matches sentences of what only the seed knows, and those that the shoot alone leads to instead.
var onlySeed = regexp.MustCompile("^(" + strings.Join([]string{
	"Machine m (failed and )?is .*", "The machine of node m is .*", "What only the seed knows: .*", "MachineDeployment pool-z1 has .*", "There is a storm now: .*", "It failed at .*",
	"(Condition|Label) .* of the Node proves that it works.*", "Each cause has its own expiry: .*", "Requests preserve it until .* because operators limit how long .*", "Why it is not preserved although .* there is a reason that only the seed knows.*",
	"If it fails at .*, it has a place, and .*", "It is preserved until .* for now. From then on, it is .*",
	".* is ignored because it is not valid. A valid value is a duration( from 10s to 336h)?, for example 36h.",
	"(The drain began at .* )?Pods that are left (at|after) .* are deleted by force.*", "Its preservation changes now because the machine is about to fail.",
	"(Event at .*: )?The pool is at its maximum of .*", "(Event at .*: )?Machines of the shoot have been preserved for .*", "The machine-hours of the month were used up at .*",
}, "|") + ")$")

var _ = Describe("Explain", func() {
	for name, s := range situations {
		for holder, h := range map[string]preservation.Holder{"health-timer": preservation.HealthTimer{}, "preserve-expiry": preservation.PreserveExpiry{}} {
			It("should say by the domain what is decided, with the seed: "+name+" by "+holder, func() {
				sentences, err := Explain(s.snapshot(holder), "m", now)
				Expect(err).NotTo(HaveOccurred())
				if holder == "health-timer" {
					golden.Expect(name+".txt", Text(sentences))
				}
				if s.noSidecar {
					return
				}

				said := func(topic Topic, rule preservation.Rule, texts ...string) {
					GinkgoHelper()
					Expect(slices.ContainsFunc(sentences, func(s Sentence) bool {
						return s.Topic == topic && s.Rule == string(rule) && !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(s.Text, text) })
					})).To(BeTrue(), "no sentence says %q by %s: %s", texts, rule, Text(sentences))
				}
				d := s.decide(h)
				switch {
				case d.Rule != "":
					said(Why, d.Rule, d.Why.Text)
				case d.Verdict != preservation.Untold:
					Expect(d.Why.Rule).NotTo(BeEmpty())
					said(Why, d.Why.Rule, "not preserved because "+d.Why.Text)
				case !d.Why.IsZero():
					Expect(d.Why.Rule).NotTo(BeEmpty())
					said(Why, d.Why.Rule, d.Why.Text)
				}
				if d.Target != nil {
					for _, claim := range d.Target.Claims {
						if why := preservation.WhyBegun(claim.Cause); claim.Tentative {
							said(Why, preservation.RuleFail, "it has a place, and is preserved until")
						} else if !why.IsZero() {
							said(Why, why.Rule, why.Text, claim.Cause)
						}
					}
					Expect(Text(sentences)).To(ContainSubstring("preserved until " + d.Target.Expiry().Format(time.RFC3339)))
				}
				if d.Request.Invalid != "" {
					said(Why, "R3", "is ignored because it is not valid")
				}
			})
		}

		if name == "machine-hours" {
			It("P18: should say that a machine is released when the machine-hours are used up", func() {
				s.args = []string{"--max-machine-hours=60"}
				sentences, err := Explain(s.snapshot("health-timer"), "m", now)
				Expect(err).NotTo(HaveOccurred())
				spentAt := now.Add(24 * time.Hour).Format(time.RFC3339)
				Expect(Text(sentences)).To(And(
					ContainSubstring("It is preserved until "+spentAt+" (in 24h). Then it is released, and an ordinary machine again, because "+preservation.WhyHoursUsedUp.Text+". [P18]"),
					ContainSubstring("If nothing changes, the machine-hours of the month are used up at "+spentAt),
				))
			})
		}
		if s.noNode {
			continue
		}
		It("should say with nothing but the node what it shows: "+name, func() {
			snapshot := s.snapshot("")
			snapshot.Seed = nil
			sentences, err := Explain(snapshot, "m", now)
			Expect(err).NotTo(HaveOccurred())
			golden.Expect(name+"-shoot.txt", Text(sentences))
		})
	}

	for name, s := range situations {
		if s.noNode || name == "old-sidecar" { // there the node and the machine tell of different causes
			continue
		}
		It("should say the same to operators and to the shoot's own people of what both know: "+name, func() {
			seed, shoot := s.snapshot("health-timer"), s.snapshot("health-timer")
			shoot.Seed = nil
			var views [2][]Sentence
			for i, snapshot := range []*observed.Snapshot{seed, shoot} {
				var err error
				views[i], err = Explain(snapshot, "m", now)
				Expect(err).NotTo(HaveOccurred())
			}
			for i, view := range views {
				for _, sentence := range view {
					if sentence.Topic != Change && !onlySeed.MatchString(sentence.Text) {
						Expect(views[1-i]).To(ContainElement(sentence))
					}
				}
			}
		})
	}

	It("should say the same of a machine whose node has another name, whichever is named", func() {
		for name, s := range situations {
			if s.noNode {
				continue
			}
			var views [2][]Sentence
			for i, called := range []string{"m", "ip-1"} {
				snapshot := s.snapshot("health-timer")
				snapshot.Seed.Machine("m").Labels["node"] = "ip-1"
				snapshot.Shoot.Node("m").Name = "ip-1"
				var err error
				views[i], err = Explain(snapshot, called, now)
				Expect(err).NotTo(HaveOccurred())
			}
			Expect(views[0]).To(Equal(views[1]), name)
			Expect(Text(views[0])).NotTo(MatchRegexp(`preserve (now|when-failed|forbid) m |node m `), "the commands name the node")
		}
	})

	It("M12: should know a machine as kept that somebody works on, though its node has no condition as nothing has failed", func() {
		s := &observed.Snapshot{Time: now}
		s.Shoot.Nodes = []corev1.Node{*Node("m", NodeAnnotation(v1alpha1.AnnotationMaintenance, now.Add(-time.Hour).Format(time.RFC3339)), NodeAnnotation(v1alpha1.AnnotationScaleDownDisabled, "true"))}
		sentences, err := Explain(s, "m", now)
		Expect(err).NotTo(HaveOccurred())
		Expect(sentences).To(ContainElement(And(HaveField("Rule", "M12"), HaveField("Text", HavePrefix("The machine of node m is preserved because its node is under maintenance.")))))
		Expect(sentences).NotTo(ContainElement(HaveField("Topic", Change)))
	})

	It("P20: should know which machines of the pool have the places that its zones share", func() {
		shared := DeploymentAnnotation(v1alpha1.AnnotationSharedInPool, "worker")
		s := situation{machine: failed, node: deadly, deployment: []DeploymentOption{shared}, change: func(s *observed.Snapshot) {
			other := Deployment("pool-z2", Share("1"), shared)
			set := Set("z2", other)
			s.Seed.MachineDeployments = append(s.Seed.MachineDeployments, *other)
			s.Seed.MachineSets = append(s.Seed.MachineSets, *set)
			s.Seed.Machines = append(s.Seed.Machines, *Machine("elsewhere", append(held("auto"), Of(set))...))
		}}
		sentences, err := Explain(s.snapshot("health-timer"), "m", now)
		Expect(err).NotTo(HaveOccurred())
		Expect(Text(sentences)).To(And(
			ContainSubstring("Machine m failed and is not preserved because its pool has no free place. [P1]"),
			ContainSubstring("Pool worker has 1 place. Machines that take one: elsewhere. [P1]"),
			ContainSubstring("With 2 places for its pool (raise autoPreserveFailedMax of its pool in the Shoot's providerConfig), the machine would be preserved until "),
		))
		Expect(Text(sentences)).NotTo(ContainSubstring("zone"))
	})

	DescribeTable("should know a power cycle that is not over", func(status corev1.ConditionStatus, reason string, is bool) {
		Expect(preservation.IsPowerCycled(Node("m", Condition(v1alpha1.ConditionPowerCycle, status, reason, "")))).To(Equal(is))
	},
		Entry("under way", corev1.ConditionTrue, v1alpha1.PowerCyclePoweringOff, true),
		Entry("waiting", corev1.ConditionFalse, v1alpha1.PowerCycleWaiting, true),
		Entry("over", corev1.ConditionFalse, v1alpha1.PowerCycleSucceeded, false),
	)

	DescribeTable("should show what another version told by its note, and take no cause from it", func(by told) {
		s := situations["held-by-share"]
		s.told = by
		snapshot := s.snapshot("")
		snapshot.Seed = nil
		sentences, err := Explain(snapshot, "m", now)
		Expect(err).NotTo(HaveOccurred())
		Expect(sentences).To(ContainElement(And(HaveField("Topic", Why), HaveField("Rule", ""), HaveField("Text", And(HavePrefix("Event at "), HaveSuffix(": "+by.note+"."))))))
		Expect(sentences).NotTo(ContainElement(HaveField("Text", ContainSubstring("quarantine (cause"))))
	},
		Entry("an older one", told{"MachinePreserved", "Preserve", "Machine is Failed:Preserved because the machine failed (cause quarantine)"}),
		Entry("a newer one", told{"MachinePreserved", "InQuarantine", "Machine is Failed:Preserved because it is so (cause quarantine)"}),
	)

	DescribeTable("P11: should know by the condition why a machine is kept", func(told, text string, opts ...NodeOption) {
		snapshot := situations["held-by-share"].snapshot("")
		snapshot.Seed = nil
		node := snapshot.Shoot.Node("m")
		condition := preservation.PreservedCondition(node)
		condition.Message, _, _ = strings.Cut(condition.Message, " (cause ")
		condition.Message += told
		for _, opt := range opts {
			opt(node)
		}
		sentences, err := Explain(snapshot, "m", now)
		Expect(err).NotTo(HaveOccurred())
		Expect(sentences).To(ContainElement(And(HaveField("Topic", Why), HaveField("Text", text))))
		Expect(sentences).NotTo(ContainElement(HaveField("Text", ContainSubstring(" now because "))))
	},
		Entry("an operator asked for it, which the node does not show", " (cause now, reason AskedFor).", "It is preserved because it was requested (cause now)."),
		Entry("it was asked for in case it fails, and the node carries the hold", " (cause when-failed, reason AskedInCase).",
			"It is preserved because it was requested in case the machine fails (cause when-failed).", NodeAnnotation(v1alpha1.AnnotationPreserve, "now")),
		Entry("nobody asked for it", " (cause auto, reason MachineFailed).", "It is preserved because the machine failed (cause auto)."),
	)

	It("should say nothing that a terminal obeys", func() {
		known := situations["ordinary"].snapshot("health-timer")
		known.Seed.Machine("m").Status.CurrentStatus.Phase = "Running\x1b[31m"
		known.Seed.MachineDeployments[0].Name += "\x1b[31m"
		sentences, err := Explain(known, "m", now)
		Expect(err).NotTo(HaveOccurred())
		Expect(sentences).NotTo(ContainElement(HaveField("Text", ContainSubstring("\x1b"))))
	})

	It("should not find what does not exist", func() {
		snapshot := situations["ordinary"].snapshot("health-timer")
		_, err := Explain(snapshot, "x", now)
		Expect(err).To(MatchError(`neither node nor machine "x" exists`))
		snapshot.Seed = nil
		_, err = Explain(snapshot, "x", now)
		Expect(err).To(MatchError(`node "x" does not exist`))
	})

	It("should not change what it explains", func() {
		for name, s := range situations {
			snapshot := s.snapshot("preserve-expiry")
			_, err := Explain(snapshot, "m", now)
			Expect(err).NotTo(HaveOccurred())
			Expect(snapshot).To(Equal(s.snapshot("preserve-expiry")), name)
		}
	})
})
