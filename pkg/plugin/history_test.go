// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"time"
	"unicode"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	failuresv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/failures/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/golden"
)

// ledgerObjects are a shoot with failures: of node-2, which is kept, and of machines that are gone.
func ledgerObjects() []client.Object {
	var (
		ago      = func(d time.Duration) time.Time { return now.Add(-d) }
		day      = 24 * time.Hour
		replaced = func(at time.Time) FailureOption {
			return Ended(failuresv1alpha1.OutcomeReplaced, at, preservation.WhyNoPlace.Text)
		}
		deadlock = Bad("KernelDeadlock", "DockerHung", "task docker:20744 blocked for more than 120 seconds.")
	)
	return []client.Object{
		Node("node-2", in("a", "z1"), notReadySince(ago(50*time.Minute)), Taint(drained, Start), preservedNode("auto", "Drained", "")),
		Node("node-5", in("a", "z1")),
		EntryOf("node-2", ago(40*time.Minute), OnHost("bmh-2"), WasKept("auto")),
		EntryOf("node-1", ago(2*time.Hour), OnHost("bmh-7"), deadlock, replaced(ago(2*time.Hour-3*time.Minute))),
		EntryOf("worker-b-x7k2p", ago(3*day), NoNode, replaced(ago(3*day-time.Minute)), func(f *failuresv1alpha1.MachineFailure) { f.Spec.Pool = "b" }),
		EntryOf("node-0", ago(5*day), OnHost("bmh-7"), deadlock, replaced(ago(5*day-4*time.Minute))),
		EntryOf("node-9", ago(9*day), OnHost("bmh-7"), WasKept("now"), Ended(failuresv1alpha1.OutcomeRecovered, ago(9*day-time.Hour), preservation.WhyHealthyAgain.Text)),
	}
}

// refusesToList has a kind refused.
func refusesToList[L client.ObjectList](p *person, answer error) {
	p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if _, ok := list.(L); ok {
				return answer
			}
			return c.List(ctx, list, opts...)
		},
	})
}

var (
	hasNoAPI  = apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "", "", 0, true)
	forbidden = apierrors.NewForbidden(schema.GroupResource{Resource: "machinefailures"}, "", nil)
)

var _ = Describe("history and why", func() {
	DescribeTable("should show what there is", func(file, args string, seed ...client.Object) {
		if len(seed) == 0 {
			seed = nil
		}
		p := newPerson(ledgerObjects(), seed)
		Expect(p.runs(args)).To(Succeed())
		golden.Expect(file, p.out.String())
	},
		Entry("all failures", "history.txt", "history"),
		Entry("all failures, widely", "history-wide.txt", "history -o wide"),
		Entry("those on a host", "history-host.txt", "history --host bmh-7"),
		Entry("those of a node, as JSON", "history.json", "history node-2 -o json"),
		Entry("those of a pool with a reason, as YAML", "history-yaml.txt", "history --pool b --reason NeverJoined -o yaml"),
		Entry("the failure of a machine that is gone", "why.txt", "why node-1"),
		Entry("the failure of one that is kept", "why-kept.txt", "why node-2"),
		Entry("the failure of one that is gone, as YAML", "why-yaml.txt", "why worker-b-x7k2p -o yaml"),
		Entry("the failure of one that is kept, to an operator", "why-seed.txt", "why node-2",
			deploymentIn("a-z1", "a", "z1", Share("1")), Set("a-z1", deploymentIn("a-z1", "a", "z1")), Machine("node-2", of("a-z1"), Preserved("Failed:Preserved", "auto", until))),
	)

	It("should tell the same of a machine that is gone an hour later, but for how long ago it was", func() {
		ages := regexp.MustCompile(` \(\w+ ago\)`)
		told := func(later time.Duration) string {
			p := newPerson(ledgerObjects(), nil)
			p.options.Clock = testclock.NewFakeClock(now.Add(later))
			Expect(p.runs("why node-1")).To(Succeed())
			return p.out.String()
		}
		Expect(told(time.Hour)).NotTo(Equal(told(0)))
		Expect(ages.ReplaceAllString(told(time.Hour), "")).To(Equal(ages.ReplaceAllString(told(0), "")))
		Expect(told(time.Hour)).To(And(ContainSubstring("The first bad condition: KernelDeadlock was True"), ContainSubstring("It was not preserved because its pool has no free place in its zone.")))
	})

	It("should ask the shoot once for the ledger, and for what is there as explain does", func() {
		p := newPerson(ledgerObjects(), nil)
		Expect(p.runs("history")).To(Succeed())
		Expect(p.calls).To(Equal([]string{"list *v1alpha1.MachineFailureList"}))
		p.calls = nil
		Expect(p.runs("why node-2")).To(Succeed())
		Expect(p.calls).To(Equal([]string{"list *v1alpha1.MachineFailureList", "get *v1.Node", "list *v1.EventList", "list *v1alpha1.NodeMaintenanceList"}))
		mapping, err := mapper().RESTMapping(failuresv1alpha1.SchemeGroupVersion.WithKind("MachineFailure").GroupKind(), "v1alpha1")
		Expect(err).NotTo(HaveOccurred())
		Expect(mapping.Scope).To(Equal(meta.RESTScopeRoot))
	})

	It("should know the node of a machine that failed", func() {
		entry := EntryOf("worker-a-x", now.Add(-time.Hour), func(f *failuresv1alpha1.MachineFailure) { f.Spec.Node = "ip-1" })
		p := newPerson([]client.Object{Node("ip-1"), entry}, nil)
		Expect(p.runs("why worker-a-x")).To(Succeed())
		Expect(p.out.String()).To(And(ContainSubstring("Machine worker-a-x (node ip-1, "), ContainSubstring("Node ip-1 exists.")))
	})

	It("should say that nothing has failed, or nothing that is looked for", func() {
		p := newPerson(nil, nil)
		Expect(p.runs("history")).To(Succeed())
		Expect(p.out.String()).To(Equal("The failure history is empty: no machine has failed since it began.\n"))
		p = newPerson(ledgerObjects(), nil)
		Expect(p.runs("history --pool c")).To(Succeed())
		Expect(p.out.String()).To(Equal("None of the 5 failures in the failure history match. 'kubectl preserve history' shows all.\n"))
	})

	DescribeTable("should say what to do without a ledger", func(answer error, says string) {
		p := newPerson(ledgerObjects(), nil)
		refusesToList[*failuresv1alpha1.MachineFailureList](p, answer)
		Expect(p.runs("history")).To(MatchError(HavePrefix(says)))
		Expect(p.runs("why node-1")).To(MatchError(HavePrefix(`node "node-1" does not exist, and ` + says)))
		Expect(p.runs("why node-2")).To(Succeed())
		Expect(p.out.String()).To(And(ContainSubstring("The machine of node node-2 is preserved"), ContainSubstring("What is not known\n  Whether it failed before: "+says)))
	},
		Entry("that the shoot does not have", hasNoAPI, "the shoot has no failure history. It needs the extension machine-preservation in the Shoot without failures: {enabled: false}, and operators can disable it"),
		Entry("that one may not read", forbidden, "you are not allowed to read the failure history. You need ClusterRole view, or the right to list machinefailures.machine-preservation.extensions.gardener.cloud"),
		Entry("that is away", errors.New("connection refused"), "failed to read the failure history: connection refused"),
	)

	It("should tell why with the rights of a viewer, who may not read nodes", func() {
		p := newPerson(ledgerObjects(), nil)
		p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "node-2", nil)
			},
		})
		Expect(p.runs("why node-2")).To(Succeed())
		Expect(p.out.String()).To(And(ContainSubstring("Machine node-2 (node node-2, pool a, zone z1, host bmh-2) failed"), ContainSubstring(`Whether the machine still exists: node "node-2" is not known: failed to read the node: nodes "node-2" is forbidden`)))
	})

	DescribeTable("should say what is valid", func(args, message string) {
		Expect(newPerson(ledgerObjects(), nil).runs(args)).To(MatchError(message))
	},
		Entry("a name", "why nobody", `node "nobody" does not exist, and the failure history has no failure of it: 'kubectl preserve history' shows all failures`),
		Entry("one name", "why node-1 node-2", "2 names are given: must be 'kubectl preserve why NODE|MACHINE'"),
		Entry("one name or none", "history node-1 node-2", "2 names are given: must be 'kubectl preserve history [NODE|MACHINE]'"),
		Entry("a format of history", "history -o csv", "--output=csv: must be one of wide, json, yaml"),
		Entry("a format of why", "why node-1 -o wide", "--output=wide: must be one of json, yaml"),
	)

	It("should show nothing of a forged entry that a terminal obeys", func() {
		const evil = "evil\x1b[2J\u009b31m\u202e\r\n\x7f"
		entry := EntryOf("m", now, OnHost(evil), WasKept(evil), Bad(corev1.NodeConditionType(evil), evil, evil), Ended(evil, now, evil), WithEvidence(evil))
		s := &entry.Spec
		s.Pool, s.Zone, s.ProviderID, s.BootID, s.KubeletVersion, s.OSImage, s.KernelVersion = evil, evil, evil, evil, evil, evil, evil
		s.Decision.Text, s.Decision.Reason = evil, evil
		s.Pods = []failuresv1alpha1.Pod{{Namespace: evil, Name: evil, Owner: evil}}
		again := entry.DeepCopy()
		again.Name, again.Spec.FailedAt = "again", metav1.Time{}
		for _, args := range []string{"history", "history -o wide", "history -o json", "history -o yaml", "why m", "why m -o json", "why m -o yaml"} {
			p := newPerson([]client.Object{entry.DeepCopy(), again.DeepCopy()}, nil)
			Expect(p.runs(args)).To(Succeed())
			shown := p.out.String()
			Expect(shown).To(ContainSubstring("evil"), args)
			Expect(strings.ContainsFunc(shown, func(r rune) bool {
				return !unicode.IsPrint(r) && r != '\n' && !(r == '\u202e' && strings.HasSuffix(args, "yaml"))
			})).To(BeFalse(), "%s: %q", args, shown)
			if strings.HasSuffix(args, "json") {
				Expect(json.Unmarshal([]byte(shown), &map[string]any{})).To(Succeed())
			}
		}
	})

	It("should complete names of nodes, and of machines that are gone", func() {
		for _, command := range []string{"why", "history"} {
			p := newPerson(ledgerObjects(), nil)
			Expect(p.runs("__complete " + command + " node-")).To(Succeed())
			Expect(p.out.String()).To(HavePrefix("node-0\nnode-1\nnode-2\nnode-5\nnode-9\n:4\n"), command)
			p = newPerson(ledgerObjects(), nil)
			Expect(p.runs("__complete " + command + " w")).To(Succeed())
			Expect(p.out.String()).To(HavePrefix("worker-b-x7k2p\n:4\n"), command)
			p = newPerson(ledgerObjects(), nil)
			refusesToList[*failuresv1alpha1.MachineFailureList](p, forbidden)
			Expect(p.runs("__complete " + command + " node-")).To(Succeed())
			Expect(p.out.String()).To(HavePrefix("node-2\nnode-5\n:4\n"), command)
		}
	})

	It("should show entries that say nothing", func() {
		empty := &failuresv1alpha1.MachineFailure{ObjectMeta: metav1.ObjectMeta{Name: "empty"}}
		for _, args := range []string{"history", "history -o wide", "history -o json", "history -o yaml"} {
			p := newPerson([]client.Object{empty.DeepCopy()}, nil)
			Expect(p.runs(args)).To(Succeed())
			Expect(p.out.String()).NotTo(ContainSubstring("0001"))
		}
	})
})
