// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"context"
	"errors"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// denied is what a webhook of the shoot answers to each change of a node.
var denied = apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "m", errors.New("\x1bdenied by evil: "+strings.Repeat("x", 1<<20)))

// live reconciles every five seconds, as the requeues would or more often, and calls each time what somebody else does.
func (e *environment) live(ctx context.Context, d time.Duration, do ...func()) {
	GinkgoHelper()
	for until := e.now().Add(d); e.now().Before(until); e.pass(5 * time.Second) {
		for _, do := range do {
			do()
		}
		_, err := e.reconcile(ctx)
		Expect(err).NotTo(HaveOccurred())
	}
}

var _ = Describe("P14: a shoot that denies to change nodes", func() {
	const (
		cause     = prefix + "cause"
		spent     = prefix + "spent-request"
		uncleaned = prefix + "node-uncleaned"
		marker    = "is released, but taint, annotations and condition of its preservation may still be on its node: failed to write Node m: nodes \"m\" is forbidden: denied by evil: xxx"
	)
	var now = Start.Add(time.Hour)

	for name, holder := range holders {
		Context(name, func() {
			preserved := func(ctx SpecContext, e *environment) {
				GinkgoHelper()
				e.settle(ctx)
				Expect(e.machine(ctx, "m").Annotations).To(HaveKey(cause))
				e.api.failing("Node/", denied)
				e.recorder.take()
			}
			// unheld says that machine-controller-manager has no reason left to keep the machine.
			unheld := func(ctx SpecContext, e *environment) {
				GinkgoHelper()
				machine := e.machine(ctx, "m")
				Expect(machine.Annotations).NotTo(HaveKey(cause))
				if expiry := machine.Status.CurrentStatus.PreserveExpiryTime; expiry != nil {
					Expect(expiry.Time).NotTo(BeTemporally(">", e.now()))
				}
				Expect(machine.Status.CurrentStatus.LastUpdateTime.Time).NotTo(BeTemporally(">", e.now()))
			}

			It("should keep no machine for longer than five minutes beyond its expiry, and not keep it anew", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", with("now")))
				preserved(ctx, e)
				e.pass(72 * time.Hour)
				e.live(ctx, 5*time.Minute)
				Expect(e.machine(ctx, "m").Annotations).To(HaveKey(cause))
				Expect(e.recorder.take()).To(BeEmpty())

				e.live(ctx, 30*time.Second)
				unheld(ctx, e)
				told := e.recorder.take()
				Expect(told).To(ConsistOf(
					HavePrefix("Machine/m Normal MachinePreservationEnded:"), HavePrefix("Node/m Normal MachinePreservationEnded:"),
					ContainSubstring(marker), ContainSubstring(marker),
				))
				for _, event := range told {
					Expect(len(event)).To(BeNumerically("<", 300))
				}

				writes := e.api.writtenTo("Machine/")
				e.live(ctx, 20*time.Minute)
				e.restart()
				e.live(ctx, 10*time.Minute)
				unheld(ctx, e)
				Expect(e.api.writtenTo("Machine/")).To(Equal(writes+1), "P13: the time that it has used up comes back")
				Expect(e.recorder.take()).To(BeEmpty())
				Expect(e.node(ctx, "m").Annotations).To(HaveKeyWithValue(preserve, "now"))
			})

			It("should take all from the node that it may if only its status is denied", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", with("now")))
				preserved(ctx, e)
				e.api.failing("Node/m/status", denied)
				e.pass(72 * time.Hour)
				e.live(ctx, 6*time.Minute)
				unheld(ctx, e)
				Expect(e.node(ctx, "m").Annotations).NotTo(Or(HaveKey(preserve), HaveKey(HavePrefix("cluster-autoscaler.kubernetes.io/"))))
			})

			It("should clean the node when it may, and listen to it again", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", with("now")))
				preserved(ctx, e)
				e.pass(72 * time.Hour)
				e.live(ctx, 6*time.Minute)
				e.api.write = nil
				e.live(ctx, time.Minute)
				Expect(e.node(ctx, "m").Annotations).To(BeEmpty())
				Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(spent))
				e.editNode(ctx, "m", with("now"))
				e.live(ctx, time.Minute)
				Expect(e.machine(ctx, "m").Annotations).To(HaveKey(cause))
			})

			It("should listen to another request although the one that had its time is still there", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", with("now")))
				preserved(ctx, e)
				e.pass(72 * time.Hour)
				e.live(ctx, 6*time.Minute)
				e.editNode(ctx, "m", without(preserve))
				e.live(ctx, time.Minute)
				e.editNode(ctx, "m", with("now"))
				e.live(ctx, time.Minute)
				Expect(e.machine(ctx, "m").Annotations).To(HaveKey(cause))
			})

			It("should end a preservation that a restarted controller finds five minutes overdue", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", with("now")))
				preserved(ctx, e)
				e.pass(72*time.Hour + 5*time.Minute)
				e.restart()
				e.live(ctx, 15*time.Second)
				unheld(ctx, e)
			})

			It("H4: should remove the mark that a node was not cleaned once it could be read, and look for that by itself", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", near(now), Annotation(preserve, "when-failed")), Node("m", NotReady))
				e.settle(ctx)
				Expect(e.machine(ctx, "m").Annotations).To(HaveKey(cause))
				e.heal(ctx, "m")
				e.nodeCache = e.snapshotNodes(ctx)
				e.restart()
				// What the cache does not know of: machine-controller-manager >= 0.62 protects the node as long as it is annotated.
				e.editNode(ctx, "m", NodeAnnotation(disabled, "true"), NodeAnnotation(disabled+"-by-mcm", "true"))
				// looks reconciles as often as the requeues say, and returns for how long they say so.
				looks := func(d time.Duration) time.Duration {
					GinkgoHelper()
					begin := e.now()
					for e.now().Sub(begin) < d {
						result, err := e.reconcile(ctx)
						Expect(err).NotTo(HaveOccurred())
						if result.RequeueAfter == 0 {
							break
						}
						e.pass(result.RequeueAfter)
					}
					return e.now().Sub(begin)
				}
				e.api.readNode = func(string) error { return errors.New("no answer") }
				Expect(looks(20 * time.Minute)).To(BeNumerically(">=", 20*time.Minute))
				Expect(e.machine(ctx, "m").Annotations).To(And(HaveKeyWithValue(preserve, "when-failed"), HaveKey(uncleaned), Not(HaveKey(cause))))
				Expect(e.recorder.take()).To(ConsistOf(ContainSubstring("may still be on its node"), ContainSubstring("may still be on its node")))

				e.api.readNode = nil
				looks(time.Minute)
				Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(uncleaned))
				Expect(e.node(ctx, "m").Annotations).To(BeEmpty())
			})

			It("should end a preservation that is stopped, within five minutes", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m", with("when-failed")))
				preserved(ctx, e)
				e.editNode(ctx, "m", with("false"))
				e.live(ctx, 5*time.Minute)
				Expect(e.machine(ctx, "m").Annotations).To(HaveKey(cause))
				e.live(ctx, 30*time.Second)
				unheld(ctx, e)
				Expect(e.machine(ctx, "m").Annotations).To(HaveKey(released))
				Expect(e.node(ctx, "m").Spec.Taints).NotTo(BeEmpty())
			})

			It("should let a failed machine go for good that somebody asks for on and on", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m", with("when-failed")))
				preserved(ctx, e)
				e.pass(72*time.Hour + 4*time.Minute)
				e.live(ctx, 20*time.Minute)
				unheld(ctx, e)
				Expect(e.machine(ctx, "m").Annotations).To(HaveKey(released))
			})
		})
	}
})

var _ = Describe("P14 P12: what is changed on and on", func() {
	// A task takes no more writes than this, and no more tasks begin in a minute than that, the burst aside.
	const runWrites, runsPerMinute, burst, minutes = 6, 6, 10, 3

	var now = Start.Add(time.Hour)

	for name, holder := range holders {
		Context(name, func() {
			// others are a machine that fails in the middle of what goes on, and one that expires.
			others := func(ctx SpecContext, e *environment) {
				GinkgoHelper()
				set := Set("set", Deployment("pool"))
				Expect(e.seed.Create(ctx, Machine("fails", Of(set), failing(e.now().Add(2*time.Minute)), Annotation(preserve, "when-failed")))).To(Succeed())
				Expect(e.seed.Create(ctx, Machine("expires", Of(set), Annotation(preserve, "now"), Annotation(prefix+"timeout", "2m")))).To(Succeed())
			}
			inTime := func(ctx SpecContext, e *environment) {
				GinkgoHelper()
				Expect(e.held(ctx)).To(ContainElement("fails"))
				Expect(e.machine(ctx, "expires").Annotations).NotTo(HaveKey(prefix + "cause"))
			}
			// war reconciles while somebody changes something five times a second, and returns the writes to "m".
			war := func(ctx SpecContext, e *environment, do func(i int)) int {
				GinkgoHelper()
				before := e.api.writtenTo("Node/m") + e.api.writtenTo("Machine/m")
				for i := range minutes * 60 * 5 {
					do(i)
					_, err := e.reconcile(ctx)
					Expect(err).NotTo(HaveOccurred())
					e.pass(200 * time.Millisecond)
				}
				return e.api.writtenTo("Node/m") + e.api.writtenTo("Machine/m") - before
			}

			It("P5: should put the protection back of a node from which it is taken away each time, but not as often", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", with("now")))
				e.settle(ctx)
				others(ctx, e)
				writes := war(ctx, e, func(int) { e.editNode(ctx, "m", without(disabled)) })
				Expect(writes).To(BeNumerically(">=", burst+minutes*(runsPerMinute-1)))
				Expect(writes).To(BeNumerically("<=", burst+minutes*runsPerMinute))
				inTime(ctx, e)

				var result reconcile.Result
				for range 3 {
					e.editNode(ctx, "m", without(disabled))
					result = e.settle(ctx)
				}
				Expect(e.node(ctx, "m").Annotations).NotTo(HaveKey(disabled))
				Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", 10*time.Second)))
				e.pass(result.RequeueAfter)
				e.settle(ctx)
				Expect(e.node(ctx, "m").Annotations).To(HaveKeyWithValue(disabled, "true"))
			})

			It("R4: should follow a request that comes back each time, but not as often", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m"))
				others(ctx, e)
				writes := war(ctx, e, func(i int) { e.editNode(ctx, "m", with([]string{"now", "false"}[i%2])) })
				Expect(writes).To(BeNumerically("<=", runWrites*(burst+minutes*runsPerMinute)))
				inTime(ctx, e)
			})

			It("R4: should follow a request for a failed machine that comes back each time, but not as often", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m", NotReady))
				others(ctx, e)
				writes := war(ctx, e, func(i int) { e.editNode(ctx, "m", with([]string{"now", "false"}[i%2])) })
				// A hold does not wait, the end before it does.
				Expect(writes).To(BeNumerically("<=", 2*runWrites*(burst+minutes*runsPerMinute)))
				inTime(ctx, e)
			})

			It("should try again what is denied, but not with each change of the node", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", with("now")))
				others(ctx, e)
				e.api.failing("Node/m", denied)
				writes := war(ctx, e, func(i int) { e.editNode(ctx, "m", NodeAnnotation("evil", time.Duration(i).String())) })
				Expect(writes).To(BeNumerically("<=", runWrites*(burst+minutes*(runsPerMinute+2))))
				inTime(ctx, e)
			})

			It("should end a preservation in time whose protection is taken away on and on", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", with("now"), NodeAnnotation(prefix+"timeout", "305s")))
				e.settle(ctx)
				others(ctx, e)
				for range 305 - 1 {
					e.editNode(ctx, "m", without(disabled))
					_, err := e.reconcile(ctx)
					Expect(err).NotTo(HaveOccurred())
					e.pass(time.Second)
				}
				Expect(e.machine(ctx, "m").Annotations).To(HaveKey(prefix + "cause"))
				e.pass(time.Second)
				_, err := e.reconcile(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(prefix+"cause"), "to the second")
			})
		})
	}
})
