// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// patience is how long a round may take while an API server hangs: it waits for a fifteenth of that, whatever hangs, and not for each of
// twenty writes.
const patience = 10 * time.Second

// hanging makes all writes wait to objects whose kind and name begin with prefix. The function that is returned lets
// them go on with an error, or be made if it is nil, and later ones too.
func (a *api) hanging(prefix string) (release func(error)) {
	var (
		released = make(chan struct{})
		once     sync.Once
		result   error
	)
	a.write = func(_ int, what string, do func() error) error {
		if strings.HasPrefix(what, prefix) {
			<-released
			if result != nil {
				return result
			}
		}
		return do()
	}
	*Patience = patience / 15
	DeferCleanup(func() { *Patience = 2 * time.Second })
	release = func(err error) {
		once.Do(func() {
			result = err
			close(released)
		})
	}
	DeferCleanup(func() { release(errors.New("the test is over")) })
	return release
}

// timed reconciles and returns how long that took by a real clock.
func (e *environment) timed(ctx context.Context) (reconcile.Result, time.Duration) {
	GinkgoHelper()
	begin := time.Now()
	result, err := e.reconcile(ctx)
	Expect(err).NotTo(HaveOccurred())
	return result, time.Since(begin)
}

// enqueues returns a channel that gets what is to be looked at again.
func (e *environment) enqueues() <-chan string {
	names := make(chan string, 100)
	e.OnEnqueue(func(req reconcile.Request) { names <- req.Name })
	return names
}

var _ = Describe("Rounds", func() {
	var (
		now    = Start.Add(time.Hour)
		denied = errors.New("admission webhook denied the request")
		pool   = func(share string) (*machinev1alpha1.MachineDeployment, *machinev1alpha1.MachineSet) {
			deployment := Deployment("pool", Share(share))
			return deployment, Set("set", deployment)
		}
	)

	for name, holder := range holders {
		Context(name, func() {
			for _, kind := range []string{"Machine/bad", "Node/bad"} {
				It("P12 H4: should hold a machine in time, and mark it at its deadline, although each write is denied to "+kind, func(ctx SpecContext) {
					deployment, set := pool("2")
					holdAt := now.Add(100 * time.Second)
					e := newEnvironment(holder, deployment, set, Node("bad"), Node("good", NotReady),
						Machine("bad", Of(set), failing(now)), Machine("good", Of(set), near(holdAt)))
					e.api.failing(kind, denied)
					roundsUntil := func(at time.Time, state func(context.Context) []string) {
						GinkgoHelper()
						for e.now().Before(at) {
							Expect(state(ctx)).NotTo(ContainElement("good"))
							wait := e.failingRound(ctx)
							Expect(e.now().Add(wait)).To(BeTemporally("<=", at))
							e.pass(wait)
						}
						Expect(e.now()).To(Equal(at))
						e.failingRound(ctx)
						Expect(state(ctx)).To(ContainElement("good"))
					}
					roundsUntil(holdAt, e.placed)
					roundsUntil(holdAt.Add(margin), e.held)
				})
			}

			It("P12: should try a write again within 30s, however often it failed", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", Annotation(preserve, "now")), Node("m"))
				e.api.failing("Node/m", denied)
				var waits []time.Duration
				for range 10 {
					waits = append(waits, e.failingRound(ctx))
					e.pass(waits[len(waits)-1])
				}
				// The first failure is that of another decision: the preservation has begun since.
				Expect(waits[:6]).To(Equal([]time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 30 * time.Second}))
				Expect(waits[9]).To(Equal(30 * time.Second))

				e.api.write = nil
				e.settle(ctx)
				Expect(e.node(ctx, "m").Annotations).To(HaveKeyWithValue(disabled, "true"))
			})

			It("P12 P14: should log an error once, and cut it", func(ctx SpecContext) {
				var lines []string
				log := funcr.New(func(_, line string) { lines = append(lines, line) }, funcr.Options{})
				e := withMachine(holder, Machine("m", Annotation(preserve, "now")), Node("m"))
				e.api.failing("Node/m", errors.New(strings.Repeat("no", 1000)))
				for range 5 {
					e.pass(e.failingRound(logf.IntoContext(ctx, log)))
				}
				Expect(lines).To(ConsistOf(And(ContainSubstring(`"Failed to carry out a decision"`), ContainSubstring(`"machine"="m"`))))
				Expect(len(lines[0])).To(BeNumerically("<", 800))

				e.api.failing("Node/m", denied)
				e.failingRound(logf.IntoContext(ctx, log))
				Expect(lines).To(HaveLen(2), "this is news")
			})

			It("P12: should begin a back-off anew after a success", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", Annotation(preserve, "now")), Node("m"))
				for range 2 {
					e.api.failing("Node/m", denied)
					Expect(e.failingRound(ctx)).To(Equal(time.Second))
					e.pass(time.Second)
					Expect(e.failingRound(ctx)).To(Equal(2 * time.Second))
					e.pass(2 * time.Second)
					e.api.write = nil
					e.settle(ctx)
					e.editNode(ctx, "m", without(disabled), without(byMCM))
				}
			})

			It("P12: should not delay a release by the back-off of something else", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", Annotation(preserve, "now"), Annotation(prefix+"timeout", "50s")), Node("m"))
				expiry := now.Add(50 * time.Second)
				e.api.failing("Node/m", denied)
				for e.now().Before(expiry) {
					wait := e.failingRound(ctx)
					Expect(e.now().Add(wait)).To(BeTemporally("<=", expiry))
					e.pass(wait)
				}
				Expect(e.now()).To(Equal(expiry))
				e.api.write = nil
				e.settle(ctx)
				Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(prefix + "cause"))
			})

			It("P12: should hold a machine in time while a webhook hangs for the nodes of 60 others", func(ctx SpecContext) {
				deployment, set := pool("100")
				objects := []client.Object{deployment, set}
				for i := range 60 {
					name := fmt.Sprintf("m%d", i)
					objects = append(objects, Node(name), Machine(name, Of(set), Annotation(preserve, "now")))
				}
				e := newEnvironment(holder, objects...)
				e.settle(ctx)
				for i := range 60 {
					e.editNode(ctx, fmt.Sprintf("m%d", i), without(disabled), without(byMCM))
				}
				enqueued := e.enqueues()
				e.api.writes = nil
				release := e.api.hanging("Node/")
				_, took := e.timed(ctx)
				Expect(took).To(BeNumerically("<", patience))
				Eventually(func() int { return e.api.writtenTo("Node/") }).Should(Equal(60))

				Expect(e.seed.Create(ctx, Machine("failing", Of(set), near(now)))).To(Succeed())
				_, took = e.timed(ctx)
				Expect(took).To(BeNumerically("<", patience))
				Eventually(func() []string { return e.placed(ctx) }).Should(ConsistOf("failing"))
				Expect(e.api.writtenTo("Node/")).To(Equal(60), "a machine that is busy is left alone")

				release(denied)
				for range 60 {
					Eventually(enqueued).Should(Receive(Equal("pool")))
				}
				e.api.write = nil
				result, _ := e.timed(ctx)
				Expect(result.RequeueAfter).To(Equal(time.Second))
				Expect(e.api.writtenTo("Node/")).To(Equal(60), "it is too early")
				e.pass(time.Second)
				e.settle(ctx)
				for i := range 60 {
					Expect(e.node(ctx, fmt.Sprintf("m%d", i)).Annotations).To(HaveKeyWithValue(disabled, "true"))
				}
			})

			It("P12: should hold a machine in time while the writes of 20 other holds hang", func(ctx SpecContext) {
				deployment, set := pool("100")
				objects := []client.Object{deployment, set, Machine("z", Of(set), near(now))}
				for i := range 20 {
					objects = append(objects, Machine(fmt.Sprintf("m%02d", i), Of(set), near(now)))
				}
				e := newEnvironment(holder, objects...)
				release := e.api.hanging("Machine/m")
				_, took := e.timed(ctx)
				Expect(took).To(BeNumerically("<", patience))
				Eventually(func() []string { return e.placed(ctx) }).Should(ConsistOf("z"))
				release(nil)
				Eventually(func() []string { return e.placed(ctx) }).Should(HaveLen(21))
			})

			It("P1 P12: should not give a place to another machine that is on its way to be written", func(ctx SpecContext) {
				deployment, set := pool("1")
				e := newEnvironment(holder, deployment, set, Machine("first", Of(set), failing(now)))
				enqueued := e.enqueues()
				release := e.api.hanging("Machine/first")
				e.timed(ctx)
				// This one would come first, had it been there.
				Expect(e.seed.Create(ctx, Machine("second", Of(set), failing(now.Add(-time.Second))))).To(Succeed())
				e.timed(ctx)
				Expect(e.held(ctx)).To(BeEmpty())
				release(nil)
				Eventually(enqueued).Should(Receive(Equal("pool")))
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("first"))
			})

			It("P1 P12: should give the place to another machine when the write has failed", func(ctx SpecContext) {
				deployment, set := pool("1")
				e := newEnvironment(holder, deployment, set, Machine("first", Of(set), failing(now)))
				enqueued := e.enqueues()
				release := e.api.hanging("Machine/first")
				e.timed(ctx)
				Expect(e.seed.Create(ctx, Machine("second", Of(set), failing(now.Add(-time.Second))))).To(Succeed())
				release(denied)
				Eventually(enqueued).Should(Receive(Equal("pool")))
				e.api.write = nil
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("second"))
			})

			It("P10 P12: should end what can be ended although some machines hang, and say which failed", func(ctx SpecContext) {
				deployment, set := pool("100")
				objects := []client.Object{deployment, set}
				for i := range 20 {
					objects = append(objects, Machine(fmt.Sprintf("m%02d", i), Of(set), failing(now)), Node(fmt.Sprintf("m%02d", i)))
				}
				objects = append(objects, Machine("z", Of(set), failing(now)), Node("z"))
				e := newEnvironment(holder, objects...)
				e.settle(ctx)
				release := e.api.hanging("Node/m")
				var (
					ended = make(chan struct{})
					err   error
				)
				go func() {
					defer close(ended)
					err = e.End(ctx, Namespace)
				}()
				Eventually(func() []string { return e.held(ctx) }).WithTimeout(patience + time.Second).ShouldNot(ContainElement("z"))
				Consistently(ended, 100*time.Millisecond).ShouldNot(BeClosed())
				release(denied)
				Eventually(ended).Should(BeClosed())
				Expect(err).To(MatchError(denied))
				for i := range 20 {
					Expect(err).To(MatchError(ContainSubstring(fmt.Sprintf("Node m%02d: ", i))))
				}
			})

			It("P6: should not begin a preservation anew that has expired when the cache of nodes is late", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", with("now")))
				e.settle(ctx)
				e.pass(72 * time.Hour)
				e.nodeCache = e.snapshotNodes(ctx)
				e.restart()
				for range 3 {
					_, err := e.reconcile(ctx)
					Expect(err).NotTo(HaveOccurred())
				}
				Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(prefix + "cause"))
				Expect(e.node(ctx, "m").Annotations).To(BeEmpty())

				e.nodeCache = nil
				e.restart()
				e.settle(ctx)
				Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(prefix + "cause"))
			})

			It("P6: should begin nothing as long as it cannot be seen whether the request still stands", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", with("now")))
				e.nodeCache = e.snapshotNodes(ctx)
				e.restart()
				e.api.read = func(cluster string) error {
					if cluster == "shoot" {
						return denied
					}
					return nil
				}
				e.pass(e.failingRound(ctx))
				e.failingRound(ctx)
				Expect(e.api.written()).To(BeEmpty())

				e.pass(30 * time.Second)
				e.api.read = nil
				_, err := e.reconcile(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(e.machine(ctx, "m").Annotations).To(HaveKeyWithValue(prefix+"cause", "now"))
			})

			It("P9: should hold a machine that fails although it cannot be seen whether the request still stands", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", near(now)), Node("m", with("now"), NotReady))
				e.nodeCache = e.snapshotNodes(ctx)
				e.restart()
				e.api.read = func(cluster string) error {
					if cluster == "shoot" {
						return denied
					}
					return nil
				}
				_, err := e.reconcile(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(e.placed(ctx)).To(ConsistOf("m"))
				e.pass(margin)
				_, err = e.reconcile(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(e.held(ctx)).To(ConsistOf("m"))
			})
		})
	}

	It("should task steps that all belong to the hold", func(ctx SpecContext) {
		write := intent.Write{Before: Machine("m"), Edit: func(intent.Object) {}}
		hold := write
		hold.Hold = true
		Expect(Hold(ctx, []intent.Write{hold, hold})).To(BeZero())
		Expect(Hold(ctx, []intent.Write{hold, write})).To(Equal(1))
	})
})
