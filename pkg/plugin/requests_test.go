// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/golden"
)

// answers has a node of a person become something, as soon as it has an annotation of some value.
func (p *person) answers(key, value string, options ...NodeOption) {
	p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
		Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := c.Patch(ctx, object, patch, opts...); err != nil || object.GetAnnotations()[key] != value {
				return err
			}
			node, status := object.DeepCopyObject().(*corev1.Node), object.DeepCopyObject().(*corev1.Node)
			for _, option := range options {
				option(node)
				option(status)
			}
			if err := c.Update(ctx, node); err != nil {
				return err
			}
			status.ResourceVersion = node.ResourceVersion
			return c.Status().Update(ctx, status)
		},
	})
}

// shows has a node of a person show until when its machine is kept.
func (p *person) shows(name, until string) error {
	node := p.node(name)
	Condition("Preserved", corev1.ConditionTrue, "Draining", "Machine preserved until "+until+".")(node)
	return p.options.shoot.Status().Update(context.Background(), node)
}

var _ = Describe("Requests", func() {
	DescribeTable("should be written and explained", func(file, args, preserved, timed string, seed bool) {
		var objects []client.Object
		if seed {
			objects = append(seedObjects(), Machine("letgo", of("a-z1"), Preserved("Failed:Preserved", "auto", until)))
		}
		p := newPerson(append(shootObjects(), Node("unasked", in("a", "z1"), preservedNode("auto", "Preserved", "")), Node("letgo", in("a", "z1"), failedNode("auto"), NodeAnnotation(preserve, "false")),
			Node("leftover", in("a", "z1"), NodeAnnotation(preserve, "false"), Condition("Preserved", corev1.ConditionTrue, "Preserved", "Machine preserved until 2026-03-01T12:59:59Z (cause auto, reason Failed)."))), objects)
		Expect(p.runs(args)).To(Succeed())
		golden.Expect(file, p.out.String())
		var name string
		_, err := fmt.Sscanf(p.out.String(), "node/%s", &name)
		Expect(err).NotTo(HaveOccurred())
		annotations := p.node(name).Annotations
		Expect(annotations[preserve]).To(Equal(preserved))
		Expect(annotations[timeout]).To(Equal(timed))
	},
		Entry("now", "now.txt", "now over", "now", "", false),
		Entry("R5: now, for a time", "now-for.txt", "now over --for 6h", "now", "6h0m0s", false),
		Entry("now, of an operator", "now-seed.txt", "now over", "now", "", true),
		Entry("now, of a machine that failed", "now-failed.txt", "now auto --for 6h", "now", "6h0m0s", true),
		Entry("now, of one that was asked for", "now-again.txt", "now asked", "now", "", false),
		Entry("when-failed", "when-failed.txt", "when-failed over --for 90m", "when-failed", "1h30m0s", false),
		Entry("when-failed, of one that is kept now", "when-failed-asked.txt", "when-failed asked", "when-failed", "", false),
		Entry("release of what was asked for", "release.txt", "release asked", "", "", false),
		Entry("release of a machine that failed", "release-failed.txt", "release auto --yes", "false", "", false),
		Entry("release of one that nobody asked for", "release-unasked.txt", "release unasked", "false", "", false),
		Entry("release of one that is being released", "release-again.txt", "release letgo", "false", "", false),
		Entry("release of one that is being released, of an operator", "release-again.txt", "release letgo", "false", "", true),
		Entry("release of one whose node still shows what has long ended", "release-leftover.txt", "release leftover", "", "", false),
		Entry("release of one that is not kept", "release-nothing.txt", "release over", "", "", false),
		Entry("X10: forbid of one whose host is power-cycled", "forbid-cycled.txt", "forbid cycled --yes", "false", "", false),
		Entry("forbid", "forbid.txt", "forbid over", "false", "", false),
		Entry("client dry run", "dry-run-client.txt", "release auto --dry-run=client", "", "", false),
		Entry("server dry run", "dry-run-server.txt", "now over --dry-run=server", "", "", false),
	)

	DescribeTable("should guess nothing for an operator whose seed does not know the machine", func(args, without, message string) {
		objects := slices.DeleteFunc(seedObjects(), func(object client.Object) bool { return object.GetName() == without })
		p := newPerson(shootObjects(), objects)
		name := strings.Fields(args)[1]
		before := p.node(name)
		Expect(p.runs(args)).To(MatchError("node " + name + ": " + message))
		Expect(p.node(name)).To(Equal(before))
		Expect(p.out.String()).To(BeEmpty())
	},
		Entry("release", "release auto --yes", "auto", "no machine in namespace shoot--test--one of the seed has this node: check --seed-namespace"),
		Entry("forbid", "forbid auto --yes", "auto", "no machine in namespace shoot--test--one of the seed has this node: check --seed-namespace"),
		Entry("now", "now over", "over", "no machine in namespace shoot--test--one of the seed has this node: check --seed-namespace"),
		Entry("extend", "extend auto --for 6h", "auto", "no machine in namespace shoot--test--one of the seed has this node: check --seed-namespace"),
		Entry("a machine without its MachineDeployment", "release auto --yes", "a-z1", "machine auto in namespace shoot--test--one of the seed has no MachineDeployment, so nothing is decided on it"),
	)

	DescribeTable("R5: should take days, and write what Go reads", func(args, timed string) {
		p := newPerson(shootObjects(), nil)
		Expect(p.runs(args)).To(Succeed())
		Expect(p.node("over").Annotations[timeout]).To(Equal(timed))
	},
		Entry("days", "now over --for 3d", "72h0m0s"),
		Entry("days and hours", "when-failed over --for 1d12h", "36h0m0s"),
		Entry("as many as can be asked for", "now over --for 2w", "336h0m0s"),
		Entry("parts of an hour", "now over --for 1.5h", "1h30m0s"),
	)

	DescribeTable("should be refused", func(args, message string, seed bool) {
		var objects []client.Object
		if seed {
			updated := deploymentIn("c-z1", "c", "z1")
			objects = append(seedObjects(), updated, Set("c-z1", updated, Revision("1")), Set("new", updated, Revision("2")),
				Machine("other", of("a-z1"), Annotation(ours+"forbidden", "true")),
				Machine("spent", of("a-z1"), Annotation(ours+"preserved-since", now.Add(-15*24*time.Hour).Format(time.RFC3339))),
				Machine("rolled", of("c-z1"), Phase(machinev1alpha1.MachineUnknown, now.Add(-10*time.Minute))),
				Machine("templated", of("a-z1"), Templated("now")))
		}
		p := newPerson(append(shootObjects(), Node("spent"), Node("rolled", NotReady), Node("templated")), objects)
		Expect(p.runs(args)).To(MatchError(ContainSubstring(message)))
		Expect(p.out.String()).To(BeEmpty())
	},
		Entry("R5: a time that is too short", "now over --for 9s", "--for=9s: must be a duration from 10s to 336h, for example 6h, 90m, 3d or 1d12h", false),
		Entry("R5: a time that is too long", "now over --for 337h", "--for=337h: must be", false),
		Entry("R5: days that are too many", "now over --for 15d", "--for=15d: must be", false),
		Entry("R5: days after hours", "now over --for 12h1d", "--for=12h1d: must be", false),
		Entry("R5: more days than can be counted", "now over --for 99999999999999999999d", "--for=99999999999999999999d: must be", false),
		Entry("R5: no time at all", "when-failed over --for soon", "--for=soon: must be", false),
		Entry("a dry run of another kind", "now over --dry-run=maybe", "--dry-run=maybe: must be one of none, server, client", false),
		Entry("a dry run of no kind", "now over --dry-run", "--dry-run: must be followed by", false),
		Entry("P6: a time for what was asked for", "now asked --for 6h", "another request does not change that. Use 'kubectl preserve extend asked'", false),
		Entry("R6: what operators forbid", "now other", "not preserved because "+preservation.WhyForbidden.Text, true),
		Entry("P13: what has been kept for as long as operators allow", "now spent", "because "+preservation.WhyKeptForTooLong.Text+". [P13]", true),
		Entry("P3: a failed machine whose pool is being updated", "now rolled", "replaced because "+preservation.WhyUpdating.Text+". [P3]", true),
		Entry("R2: what the pool asks for", "forbid templated", "is set by the pool: it comes back when somebody changes it on the Node. [R2]", true),
		Entry("a time to wait without waiting", "now over --timeout 5m", "--timeout=5m0s: must be set with --wait only", false),
		Entry("a time to wait for a power cycle without waiting", "power-cycle over --timeout 5m", "--timeout=5m0s: must be set with --wait only", false),
		Entry("to confirm what loses nothing", "now over --yes", "unknown flag: --yes", false),
		Entry("to confirm a maintenance", "maintenance start over --yes", "unknown flag: --yes", false),
		Entry("a namespace where there is none", "release over -n shoot--test--one", "unknown shorthand flag: 'n'", true),
		Entry("an increment that is too short", "extend auto --for 1s", "--for=1s: must be a duration of at least 10s", false),
		Entry("release of a failed machine, as nobody can be asked", "release auto", "Pass --yes", false),
		Entry("forbid of a failed machine, as nobody can be asked", "forbid auto", "Pass --yes", false),
		Entry("release of a maintenance", "release works", "because firmware works on it. End that with 'kubectl preserve maintenance done works'", false),
		Entry("X10: release of a power cycle", "release cycled", "because its host is power-cycled. Wait until that is over, or use 'kubectl preserve forbid cycled', which ends the power cycle", false),
		Entry("a node that does not exist", "now nobody", `node "nobody" does not exist: see 'kubectl get nodes', and 'kubectl preserve list'`, false),
		Entry("extend without a time", "extend auto", "one of --for and --until must be set", false),
		Entry("extend to the past", "extend auto --until 2026-03-02T13:00:00Z", "must be later than 2026-03-02T13:00:00Z", false),
		Entry("extend to no time", "extend auto --until tomorrow", "--until=tomorrow: must be a time in RFC 3339", false),
		Entry("extend for too long", "extend auto --for 320h", "--for=320h: must be at most 2026-03-15T13:00:00Z, because a request cannot preserve its machine until 2026-03-15T21:00:00Z. Operators can", false),
		Entry("extend of what is not kept", "extend over --for 1h", "is not preserved. Request that with 'kubectl preserve now over", false),
		Entry("P6: extend of a failed machine that was asked for", "extend failed-asked --for 1h", "Operators can move it", false),
	)

	DescribeTable("should ask before a machine is let go of that may have failed without a taint", func(verb string, options ...NodeOption) {
		p := newPerson([]client.Object{Node("n", append([]NodeOption{notReadySince(now.Add(-time.Minute)), Condition("Preserved", corev1.ConditionTrue, "Preserved", untilText)}, options...)...)}, nil)
		Expect(p.runs(verb + " n")).To(MatchError(ContainSubstring("Node n is not healthy or is tainted, so that its machine may have failed")))
		request := p.node("n").Annotations[preserve]
		Expect(p.runs(verb + " n --yes")).To(Succeed())
		Expect(p.node("n").Annotations[preserve]).NotTo(Equal(request))
	},
		Entry("release", "release", NodeAnnotation(preserve, "now")),
		Entry("release of what is kept when it fails", "release", NodeAnnotation(preserve, "when-failed")),
		Entry("release of what nobody asked for", "release"),
		Entry("forbid", "forbid", NodeAnnotation(preserve, "now")),
		Entry("forbid in a maintenance", "forbid", NodeAnnotation(ours+"maintenance", "2026-03-01T12:00:00Z")),
		Entry("forbid in a power cycle", "forbid", Condition("PowerCycle", corev1.ConditionTrue, "PoweringOff", "")),
		Entry("forbid of a node with a bad condition", "forbid", Condition(corev1.NodeReady, corev1.ConditionTrue, "", ""), Condition("KernelDeadlock", corev1.ConditionTrue, "Deadlock", "")),
	)

	DescribeTable("should ask before a machine is not kept that may have failed, and is not kept yet", func(verb string, asks bool, options ...NodeOption) {
		p := newPerson([]client.Object{Node("n", options...)}, nil)
		if asks {
			Expect(p.runs(verb + " n")).To(MatchError(ContainSubstring("its machine may have failed. If you release it and it has failed or fails, it is terminated with everything on it. Release it?")))
			verb += " --yes"
		}
		request := p.node("n").Annotations[preserve]
		Expect(p.runs(verb + " n")).To(Succeed())
		Expect(p.node("n").Annotations[preserve]).NotTo(Equal(request))
	},
		Entry("forbid of one that has not been ready for long", "forbid", true, notReadySince(now.Add(-time.Hour))),
		Entry("forbid of one that is not ready", "forbid", true, notReadySince(now.Add(-time.Minute))),
		Entry("release of what is kept when it fails", "release", true, notReadySince(now.Add(-time.Minute)), NodeAnnotation(preserve, "when-failed")),
		Entry("release of what is forbidden", "release", false, notReadySince(now.Add(-time.Hour)), NodeAnnotation(preserve, "false")),
		Entry("forbid of a healthy one", "forbid", false),
	)

	DescribeTable("should ask before a machine is let go of that is about to fail, and would be lost then", func(verb, share string, asks bool, request string, options ...MachineOption) {
		deployment := deploymentIn("a-z1", "a", "z1", Share(share))
		p := newPerson([]client.Object{Node("n", notReadySince(now.Add(-9*time.Minute)), NodeAnnotation(preserve, request))},
			[]client.Object{deployment, Set("a-z1", deployment), Machine("n", append([]MachineOption{of("a-z1"), Phase(machinev1alpha1.MachineUnknown, now.Add(-10*time.Minute+20*time.Second))}, options...)...)})
		if asks {
			Expect(p.runs(verb + " n")).To(MatchError(ContainSubstring("The machine of node n fails at 2026-03-01T13:00:20Z unless it becomes healthy, and would be preserved. If you release it and it fails, it is terminated with everything on it. Release it?")))
			Expect(p.node("n").Annotations).To(HaveKeyWithValue(preserve, request))
			verb += " --yes"
		}
		Expect(p.runs(verb + " n")).To(Succeed())
		Expect(p.node("n").Annotations[preserve]).NotTo(Equal(request))
	},
		Entry("release of what was asked for", "release", "0", true, "now", Preserved("Unknown:Preserved", "now", until)),
		Entry("release of what was asked for, and is kept all the same", "release", "1", false, "now", Preserved("Unknown:Preserved", "now", until)),
		Entry("forbid of what was asked for", "forbid", "1", true, "now", Preserved("Unknown:Preserved", "now", until)),
		Entry("H4: release of what nobody asked for", "release", "1", true, "", HeldUntil(now.Add(20*time.Second), "auto", until)),
		Entry("H4: forbid of what nobody asked for", "forbid", "1", true, "", HeldUntil(now.Add(20*time.Second), "auto", until)),
		Entry("forbid of what would not be kept", "forbid", "0", false, ""),
	)

	It("should ask before a failed machine is let go of, and heed the answer", func() {
		p := newPerson(shootObjects(), nil)
		p.options.isTerminal = func(stream any) bool { return stream == p.options.In }
		p.in.WriteString("n\n")
		Expect(p.runs("release auto")).To(MatchError(ContainSubstring("nothing was changed")))
		Expect(p.errOut.String()).To(ContainSubstring("If you release it, it is terminated with everything on it. Release it? [y/N]"))
		Expect(p.node("auto").Annotations).NotTo(HaveKey(preserve))
		p.in.Reset()
		p.in.WriteString("y\n")
		Expect(p.runs("release auto")).To(Succeed())
		Expect(p.node("auto").Annotations).To(HaveKeyWithValue(preserve, "false"))
		_, question, _ := strings.Cut(p.errOut.String(), "[y/N] ")
		golden.Expect("release-asked.txt", question+"y\n"+p.out.String())
	})

	It("should end at a question when it is interrupted", func() {
		p := newPerson(shootObjects(), nil)
		in, silent := io.Pipe()
		DeferCleanup(silent.Close)
		p.options.In = in
		p.options.isTerminal = func(stream any) bool { return stream == p.options.In }
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- p.runsIn(ctx, "release auto") }()
		Eventually(p.errOut.String).Should(HaveSuffix("[y/N] "))
		stop()
		Eventually(ended, time.Minute).Should(Receive(And(MatchError(context.Canceled), MatchError(ContainSubstring("nothing was changed")))))
		Expect(p.node("auto").Annotations).NotTo(HaveKey(preserve))
	})

	It("should decide again if the node has changed meanwhile", func() {
		p := newPerson(shootObjects(), nil)
		conflicts := 0
		p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
				data, err := patch.Data(object)
				Expect(err).NotTo(HaveOccurred())
				Expect(string(data)).To(ContainSubstring("resourceVersion"))
				if conflicts++; conflicts == 1 {
					status := p.node("over")
					failedNode("auto")(status)
					Expect(c.Status().Update(ctx, status)).To(Succeed())
					taints := p.node("over")
					Taint(drained, Start)(taints)
					Expect(c.Update(ctx, taints)).To(Succeed())
					return apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "over", nil)
				}
				return c.Patch(ctx, object, patch, opts...)
			},
		})
		Expect(p.runs("forbid over")).To(MatchError(ContainSubstring("Pass --yes")))
		Expect(p.node("over").Annotations).NotTo(HaveKey(preserve))
	})

	It("should give up if the node changes all the time", func() {
		p := newPerson(shootObjects(), nil)
		conflict := apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "over", nil)
		p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return conflict
			},
		})
		for _, args := range []string{"forbid over", "power-cycle over --yes"} {
			failed := make(chan error, 1)
			go func() { failed <- p.runs(args) }()
			Eventually(failed, time.Minute).Should(Receive(MatchError(ContainSubstring(conflict.Error()))))
		}
	})

	DescribeTable("should not say that something was done which was interrupted, or took too long", func(args string) {
		p := newPerson(shootObjects(), nil)
		p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
			Patch: func(context.Context, client.WithWatch, client.Object, client.Patch, ...client.PatchOption) error {
				return context.DeadlineExceeded
			},
		})
		Expect(p.runs(args)).To(MatchError(context.DeadlineExceeded))
		Expect(p.out.String()).To(BeEmpty())
	},
		Entry("a request", "forbid over"),
		Entry("a power cycle", "power-cycle over --yes"),
	)

	It("should go on with the other nodes if one fails", func() {
		p := newPerson(shootObjects(), nil)
		Expect(p.runs("now nobody over")).To(MatchError(ContainSubstring("node nobody: ")))
		Expect(p.node("over").Annotations).To(HaveKeyWithValue(preserve, "now"))
	})

	Context("--wait", func() {
		It("should end when the machine is kept", func() {
			p := newPerson(shootObjects(), nil)
			p.answers(preserve, "now", preservedNode("now", "Preserved", ""))
			Expect(p.runs("now over --wait")).To(Succeed())
			Expect(p.out.String()).To(HaveSuffix("node/over is preserved until 2026-03-02T13:00:00Z\n"))
		})

		DescribeTable("should not end with what was so before", func(args string, then ...NodeOption) {
			p := newPerson(shootObjects(), nil)
			Expect(p.runs(args + " --wait --timeout 100ms")).To(MatchError(ContainSubstring("after 100ms, still waiting")))
			p = newPerson(shootObjects(), nil)
			p.answers(preserve, strings.Fields(args)[0], then...)
			Expect(p.runs(args + " --wait --timeout 5s")).To(Succeed())
		},
			Entry("of a machine that is asked for in case it fails", "when-failed asked", Taint(drained, now)),
			Entry("of one that nobody asked for, for longer", "now auto --for 200h", Condition("Preserved", corev1.ConditionTrue, "Draining", "Machine preserved until 2026-03-09T21:00:00Z.")),
		)

		It("should end when the node is gone", func() {
			p := newPerson(shootObjects(), nil)
			watched := make(chan struct{}, 100)
			p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
				Watch: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) (watch.Interface, error) {
					defer func() { watched <- struct{}{} }()
					return c.Watch(ctx, list, opts...)
				},
			})
			done := make(chan error)
			go func() { done <- p.runs("release auto --yes --wait") }()
			Eventually(p.out.String).Should(ContainSubstring(" released\n"))
			Eventually(watched).Should(Receive(), "the fake client forgets what happens between a list and a watch")
			Expect(p.options.shoot.Delete(context.Background(), p.node("auto"))).To(Succeed())
			Eventually(done, time.Minute).Should(Receive(BeNil()))
			Expect(p.out.String()).To(HaveSuffix("node/auto is gone\n"))
		})

		It("should tell of each node whether it was waited for in vain", func() {
			p := newPerson(append(shootObjects(), Node("also")), nil)
			p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
					err := c.Patch(ctx, object, patch, opts...)
					if node, ok := object.(*corev1.Node); ok && err == nil && node.Name == "also" {
						preservedNode("auto", "Preserved", "")(node)
						err = c.Status().Update(ctx, node)
					}
					return err
				},
			})
			err := p.runs("now over also --wait --timeout 300ms")
			Expect(err).To(MatchError(ContainSubstring("node over: after 300ms, still waiting")))
			Expect(err).NotTo(MatchError(ContainSubstring("node also")))
			Expect(p.out.String()).To(HaveSuffix("node/also is preserved until 2026-03-02T13:00:00Z\n"))
		})

		It("should end with an error when the time has passed", func() {
			p := newPerson(shootObjects(), nil)
			Expect(p.runs("now over --wait --timeout 50ms")).To(MatchError(ContainSubstring("node over: after 50ms, still waiting until they are preserved. Is machine preservation enabled")))
		})
	})

	Context("extend", func() {
		later := Condition("Preserved", corev1.ConditionTrue, "Draining", "Machine preserved until 2026-03-02T14:00:05Z.")

		It("P6: should ask for a machine that nobody asked for, so that it ends later", func() {
			p := newPerson(shootObjects(), nil)
			p.answers(preserve, "now", later)
			Expect(p.runs("extend auto --for 1h")).To(Succeed())
			Expect(p.node("auto").Annotations).To(And(HaveKeyWithValue(preserve, "now"), HaveKeyWithValue(timeout, "25h0m0s")))
			golden.Expect("extend.txt", p.out.String())
		})

		It("P6: should let go of a machine that was asked for and has not failed, and ask anew", func() {
			p := newPerson(shootObjects(), nil)
			p.answers(preserve, "", Condition("Preserved", corev1.ConditionFalse, "PreservationEnded", ""))
			p.answers(preserve, "now", later)
			// The condition is gone at once, and the controller has yet to look: it tells when it has.
			var looks int
			p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					err := c.List(ctx, list, opts...)
					if events, ok := list.(*eventsv1.EventList); ok && p.node("asked").Annotations[preserve] == "" {
						switch looks++; looks {
						case 1:
							return errors.New("it is away")
						case 2:
						default:
							events.Items = []eventsv1.Event{{ObjectMeta: metav1.ObjectMeta{UID: "ended"}, Reason: "MachinePreservationEnded"}}
						}
					}
					return err
				},
				Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
					data, err := patch.Data(object)
					Expect(err).NotTo(HaveOccurred())
					Expect(strings.Contains(string(data), `"now"`)).To(Equal(looks > 2))
					return c.Patch(ctx, object, patch, opts...)
				},
			})
			Expect(p.runs("extend asked --until 2026-03-02T14:00:00Z")).To(Succeed())
			Expect(looks).To(Equal(3))
			Expect(p.node("asked").Annotations).To(And(HaveKeyWithValue(preserve, "now"), HaveKeyWithValue(timeout, "25h0m0s")))
			golden.Expect("extend-anew.txt", p.out.String())
		})

		It("should not let go of a machine where nobody could tell that it has been", func() {
			p := newPerson(shootObjects(), nil)
			p.options.patience = 50 * time.Millisecond
			p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
					if _, ok := list.(*eventsv1.EventList); ok {
						return errors.New("it is away")
					}
					return c.List(ctx, list, opts...)
				},
			})
			Expect(p.runs("extend asked --for 1h")).To(MatchError(ContainSubstring("it is away")))
			Expect(p.node("asked").Annotations).To(HaveKeyWithValue(preserve, "true"))
		})

		It("P6: should say nothing but that the end has not changed, where it has not", func() {
			p := newPerson(shootObjects(), nil)
			p.options.patience = 50 * time.Millisecond
			Expect(p.runs("extend auto --for 1h")).To(MatchError(ContainSubstring("50ms later its expiry is still 2026-03-02T13:00:00Z: an operator")))
			Expect(p.out.String()).To(BeEmpty())
		})

		DescribeTable("P6: should not let go of a machine that may be gone then", func(why string, options ...NodeOption) {
			p := newPerson([]client.Object{Node("n", append(options, preservedNode("now", "Preserved", ""), NodeAnnotation(preserve, "now"))...)}, nil)
			Expect(p.runs("extend n --for 1h")).To(MatchError(ContainSubstring("its machine " + why + " and is preserved until 2026-03-02T13:00:00Z")))
			Expect(p.node("n").Annotations).To(HaveKeyWithValue(preserve, "now"))
		},
			Entry("as it has failed", "may have failed, because its node is not healthy or is tainted,", Taint(drained, Start)),
			Entry("as it has not been ready for long", "has failed", notReadySince(now.Add(-time.Hour))),
			Entry("as it may have failed", "may have failed, because its node is not healthy or is tainted,", notReadySince(now.Add(-time.Minute))),
			Entry("as it has a bad condition", "may have failed, because its node is not healthy or is tainted,", Condition("KernelDeadlock", corev1.ConditionTrue, "Deadlock", "")),
			Entry("in a maintenance", "is under maintenance", NodeAnnotation(ours+"maintenance", "2026-03-01T12:00:00Z")),
			Entry("in a power cycle", "is under maintenance", Condition("PowerCycle", corev1.ConditionTrue, "PoweringOn", "")),
		)

		It("R5: should tell the end that operators allow, also if that is an earlier one", func() {
			p := newPerson(shootObjects(), nil)
			p.options.patience = 100 * time.Millisecond
			p.answers(preserve, "now", Condition("Preserved", corev1.ConditionTrue, "Preserved", "Machine preserved until 2026-03-02T09:00:00Z."))
			Expect(p.runs("extend asked --for 1h")).To(MatchError(ContainSubstring("operators allow less: its machine is preserved until 2026-03-02T09:00:00Z instead of 2026-03-02T13:00:00Z")))
			Expect(p.out.String()).To(BeEmpty())
		})

		It("R5: should ask for what was left, if operators allow less than that", func() {
			p := newPerson(shootObjects(), nil)
			p.options.patience = 200 * time.Millisecond
			p.answers(preserve, "", Condition("Preserved", corev1.ConditionFalse, "PreservationEnded", ""))
			p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
					err := c.Patch(ctx, object, patch, opts...)
					if object.GetAnnotations()[preserve] != "now" || err != nil {
						return err
					}
					asked, err := time.ParseDuration(object.GetAnnotations()[timeout])
					Expect(err).NotTo(HaveOccurred())
					if asked > 48*time.Hour {
						asked = time.Hour
					}
					return p.shows("asked", stamp(now.Add(asked)))
				},
			})
			Expect(p.runs("extend asked --for 40h")).To(MatchError(ContainSubstring(
				"the operators allow less: its machine would have been preserved until 2026-03-01T14:00:00Z instead of 2026-03-02T13:00:00Z, so its preservation was requested again with the previous expiry")))
			Expect(p.out.String()).To(BeEmpty())
			Expect(shownUntil(p.node("asked"))).To(Equal(until))
			Expect(p.node("asked").Annotations).To(And(HaveKeyWithValue(preserve, "now"), HaveKeyWithValue(timeout, "24h0m0s")))
		})

		It("P6: should not move an end that is not written yet", func() {
			p := newPerson([]client.Object{Node("over", NodeAnnotation(preserve, "now"))}, seedObjects())
			Expect(p.runs("extend over --for 1h")).To(MatchError(ContainSubstring("its machine is about to be preserved and has no expiry yet. Try again in a few seconds")))
		})

		It("P6: should say so if the end that was written on the Machine does not get to the node", func() {
			p := newPerson(shootObjects(), seedObjects())
			p.options.patience = 50 * time.Millisecond
			Expect(p.runs("extend auto --for 1h")).To(MatchError(ContainSubstring("2026-03-02T14:00:00Z is written on its Machine, but 50ms later its node still shows 2026-03-02T13:00:00Z")))
			Expect(p.out.String()).To(BeEmpty())
		})

		DescribeTable("P6: should write the end on the Machine for who has access to the seed", func(node, args string, expect func(*machinev1alpha1.Machine)) {
			p := newPerson(shootObjects(), seedObjects())
			p.options.seed = interceptor.NewClient(p.options.seed, interceptor.Funcs{
				Patch: func(ctx context.Context, c client.WithWatch, object client.Object, patch client.Patch, opts ...client.PatchOption) error {
					Expect(c.Patch(ctx, object, patch, opts...)).To(Succeed())
					return p.shows(node, object.GetAnnotations()[ours+"expiry-time"])
				},
				SubResourcePatch: func(ctx context.Context, c client.Client, sub string, object client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					Expect(c.SubResource(sub).Patch(ctx, object, patch, opts...)).To(Succeed())
					return p.shows(node, stamp(object.(*machinev1alpha1.Machine).Status.CurrentStatus.PreserveExpiryTime.Time))
				},
			})
			Expect(p.runs("extend " + node + " " + args)).To(Succeed())
			machine := &machinev1alpha1.Machine{}
			Expect(p.options.seed.Get(context.Background(), client.ObjectKey{Namespace: Namespace, Name: node}, machine)).To(Succeed())
			expect(machine)
			Expect(p.node(node).Annotations).NotTo(HaveKey(timeout))
		},
			Entry("in its annotation", "auto", "--for 1h", func(m *machinev1alpha1.Machine) {
				Expect(m.Annotations).To(HaveKeyWithValue(ours+"expiry-time", "2026-03-02T14:00:00Z"))
			}),
			Entry("for longer than anybody can ask for", "auto", "--for 400h", func(m *machinev1alpha1.Machine) {
				Expect(m.Annotations).To(HaveKeyWithValue(ours+"expiry-time", "2026-03-19T05:00:00Z"))
			}),
			Entry("in its status", "failed-asked", "--until 2026-03-05T00:00:00Z", func(m *machinev1alpha1.Machine) {
				Expect(m.Status.CurrentStatus.PreserveExpiryTime.UTC().Format(time.RFC3339)).To(Equal("2026-03-05T00:00:00Z"))
				Expect(m.Annotations).To(HaveKeyWithValue(ours+"expiry-time", "2026-03-02T13:00:00Z"))
			}),
		)
	})

	It("should not take machine-controller-manager's words for the preservation controller's, which come later and tell another time", func() {
		p := newPerson([]client.Object{Node("one", Condition("Preserved", corev1.ConditionTrue, "Preserved by user.", "Machine preserved until 2026-03-01 19:00:00 +0000 UTC."))}, nil)
		Expect(p.runs("now one --wait --timeout 100ms")).To(MatchError(ContainSubstring("after 100ms, still waiting until they are preserved")))
		Expect(p.runs("list one -w --until held --timeout 100ms")).To(MatchError(ContainSubstring("--timeout=100ms has passed")))
	})

	It("should name the nodes that are to be given", func() {
		for args, message := range map[string]string{
			"now":         "0 names are given: must be 'kubectl preserve now NODE...'",
			"explain a b": "2 names are given: must be 'kubectl preserve explain NODE'",
		} {
			Expect(newPerson(nil, nil).runs(args)).To(MatchError(message))
		}
	})

	It("should complete names of nodes", func() {
		p := newPerson(shootObjects(), nil)
		Expect(p.runs("__complete release over a")).To(Succeed())
		Expect(p.out.String()).To(HavePrefix("asked\nauto\n:4\n"))
	})
})
