// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var faults = map[string]error{
	"409":                apierrors.NewConflict(schema.GroupResource{Resource: "things"}, "m", nil),
	"429":                apierrors.NewTooManyRequests("later", 1),
	"500":                apierrors.NewInternalError(fmt.Errorf("etcd is not well")),
	"timeout":            &url.Error{Op: "Patch", URL: "https://api", Err: context.DeadlineExceeded},
	"connection refused": &url.Error{Op: "Patch", URL: "https://api", Err: &net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}},
}

// failing makes all writes fail to objects whose kind and name begin with prefix.
func (a *api) failing(prefix string, err error) {
	a.write = func(_ int, what string, do func() error) error {
		if strings.HasPrefix(what, prefix) {
			return err
		}
		return do()
	}
}

// failingRound reconciles while something cannot be written, and returns when that is to be tried again.
func (e *environment) failingRound(ctx context.Context) time.Duration {
	GinkgoHelper()
	result, err := e.reconcile(ctx)
	Expect(err).NotTo(HaveOccurred())
	Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", 30*time.Second)))
	return result.RequeueAfter
}

// panicky panics when something is told of a machine.
type panicky struct {
	events.EventRecorder
	machine string
	panics  *bool
}

func (p panicky) Eventf(regarding, related runtime.Object, eventType, reason, action, note string, args ...any) {
	if *p.panics && regarding.(client.Object).GetName() == p.machine {
		panic("what is this")
	}
	p.EventRecorder.Eventf(regarding, related, eventType, reason, action, note, args...)
}

// holdWrites is how many writes make a hold that comes at the last moment: the deadline is put off first (H3).
const holdWrites = 3

var _ = Describe("Faulty API", func() {
	var now = Start.Add(time.Hour)

	for holderName, holder := range holders {
		// settleWrites is how many writes to a Machine can wait until its node is protected.
		settleWrites := map[string]int{"HealthTimer": 0, "PreserveExpiry": 1}[holderName]

		for faultName, fault := range faults {
			Context(holderName+" "+faultName, func() {
				It("should return the error and write nothing when the seed cannot be read", func(ctx SpecContext) {
					e := withMachine(holder, Machine("m", failing(now)), Node("m"))
					for number := 1; number <= 4; number++ { // MachineDeployment, MachineSets, machines, and the live ones
						e.restart()
						reads := 0
						e.api.read = func(cluster string) error {
							if cluster == "seed" {
								reads++
								if reads == number {
									return fault
								}
							}
							return nil
						}
						_, err := e.reconcile(ctx)
						Expect(err).To(MatchError(fault))
						Expect(reads).To(Equal(number), "no read is repeated before the workqueue says so")
					}
					Expect(e.api.written()).To(BeEmpty())
				})

				It("should return the error and write nothing when the nodes cannot be read", func(ctx SpecContext) {
					e := withMachine(holder, Machine("m", failing(now)), Node("m"))
					e.api.read = func(cluster string) error {
						if cluster == "shoot" {
							return fault
						}
						return nil
					}
					_, err := e.reconcile(ctx)
					Expect(err).To(MatchError(fault))
					Expect(e.api.written()).To(BeEmpty())
				})

				It("P12: should try each machine again after a while, and later each time, when the seed cannot be written", func(ctx SpecContext) {
					deployment := Deployment("pool", Share("5"))
					set := Set("set", deployment)
					objects := []client.Object{deployment, set}
					for i := range 5 {
						objects = append(objects, Machine(fmt.Sprintf("m%d", i), Of(set), failing(now)), Node(fmt.Sprintf("m%d", i)))
					}
					e := newEnvironment(holder, objects...)
					e.api.failing("Machine/", fault)
					for round, wait := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
						Expect(e.failingRound(ctx)).To(Equal(wait))
						Expect(e.api.written()).To(HaveLen(5 * (round + 1)))
						Expect(e.failingRound(ctx)).To(Equal(wait))
						Expect(e.api.written()).To(HaveLen(5*(round+1)), "it is too early")
						e.pass(wait)
					}
					Expect(e.api.writtenTo("Node/")).To(BeZero(), "a node must not say that its machine is held before it is")
					Expect(e.recorder.take()).To(BeEmpty())

					e.api.write, e.api.writes = nil, nil
					e.settle(ctx)
					Expect(e.held(ctx)).To(HaveLen(5))
					Expect(e.api.written()).To(HaveLen(5 * (holdWrites + settleWrites + 2)))
				})

				It("P9: should hold all machines, and write nothing twice, while the shoot fails, and mark the nodes when it is back", func(ctx SpecContext) {
					deployment := Deployment("pool", Share("12"))
					set := Set("set", deployment)
					objects := []client.Object{deployment, set}
					for i := range 12 {
						objects = append(objects, Machine(fmt.Sprintf("m%d", i), Of(set), failing(now)), Node(fmt.Sprintf("m%d", i)))
					}
					e := newEnvironment(holder, objects...)
					e.api.failing("Node/", fault)
					wait := e.failingRound(ctx)
					Expect(e.held(ctx)).To(HaveLen(12))
					writes := e.api.written()
					Expect(slices.IndexFunc(writes, func(what string) bool { return strings.HasPrefix(what, "Node/") })).
						To(Equal(12*holdWrites), "all holds are made before the first node: %v", writes)
					Expect(writes).To(HaveLen(12 * (holdWrites + 1 + settleWrites)))

					e.pass(wait)
					e.pass(e.failingRound(ctx))
					Expect(e.api.written()).To(HaveLen(12*(holdWrites+2+settleWrites)), "only the nodes are tried again, once each")
					Expect(e.api.writtenTo("Machine/")).To(Equal(12 * (holdWrites + settleWrites)))

					e.api.write = nil
					e.settle(ctx)
					Expect(e.api.writtenTo("Machine/")).To(Equal(12 * (holdWrites + settleWrites)))
					for i := range 12 {
						Expect(e.node(ctx, fmt.Sprintf("m%d", i)).Annotations).To(HaveKeyWithValue(disabled, "true"))
					}
				})

				It("P9: should hold a machine that was asked for through its node while the shoot fails", func(ctx SpecContext) {
					e := withMachine(holder, Machine("m", failing(now)), Node("m", with("when-failed")))
					e.api.failing("Node/", fault)
					e.failingRound(ctx)
					Expect(e.held(ctx)).To(ConsistOf("m"))
					Expect(e.api.written()).To(ContainElements("Machine/m", "Machine/m/status"))
				})

				It("P8: should not forget a release while the shoot fails", func(ctx SpecContext) {
					e := withMachine(holder, Machine("m", failing(now)), Node("m"))
					e.settle(ctx)
					e.pass(72 * time.Hour)
					e.api.failing("Node/", fault)
					for range 3 {
						e.pass(e.failingRound(ctx))
					}
					Expect(e.machine(ctx, "m").Annotations).To(HaveKey(prefix + "cause"))
					e.api.write = nil
					e.settle(ctx)
					Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(prefix + "cause"))
					Expect(e.node(ctx, "m").Spec.Taints).To(BeEmpty())
				})

				It("P12: should not let one machine that fails keep the others waiting", func(ctx SpecContext) {
					deployment := Deployment("pool", Share("2"))
					set := Set("set", deployment)
					e := newEnvironment(holder, deployment, set, Machine("bad", Of(set), failing(now)), Machine("good", Of(set), failing(now)))
					e.api.failing("Machine/bad", fault)
					e.failingRound(ctx)
					Expect(e.held(ctx)).To(ConsistOf("good"))
				})
			})
		}

		Context(holderName, func() {
			It("should take an object that is gone for an object that needs nothing", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m"))
				e.api.failing("", apierrors.NewNotFound(schema.GroupResource{}, "m"))
				_, err := e.reconcile(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(e.recorder.take()).To(BeEmpty())
			})

			for _, bad := range []string{"a write", "what is told of it"} {
				It("P12: should not let one machine on which it panics keep the others waiting, and try it again: "+bad, func(ctx SpecContext) {
					deployment := Deployment("pool", Share("2"))
					set := Set("set", deployment)
					e := newEnvironment(holder, deployment, set, Machine("bad", Of(set), failing(now)), Machine("good", Of(set), failing(now)))
					panics := true
					if bad == "a write" {
						e.api.write = func(_ int, what string, do func() error) error {
							if panics && strings.HasPrefix(what, "Machine/bad") {
								panic("what is this")
							}
							return do()
						}
					} else {
						e.Events.Source = panicky{e.recorder, "bad", &panics}
					}
					e.failingRound(ctx)
					Expect(e.held(ctx)).To(ContainElement("good"))
					panics = false
					e.pass(time.Minute)
					_, err := e.reconcile(ctx)
					Expect(err).NotTo(HaveOccurred())
					Expect(e.held(ctx)).To(ConsistOf("bad", "good"))
				})
			}

			It("should return an error when reading a node panics", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m"))
				e.api.read = func(cluster string) error {
					if cluster == "shoot" {
						panic("what is this")
					}
					return nil
				}
				_, err := e.reconcile(ctx)
				Expect(err).To(MatchError("panic: what is this"))
				Expect(e.api.written()).To(BeEmpty())
			})

			It("should not wait for the answer to a write for ever", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m"))
				_, err := e.reconcile(context.WithoutCancel(ctx))
				Expect(err).NotTo(HaveOccurred())
				Expect(e.api.written()).NotTo(BeEmpty())
				Expect(e.api.unbounded).To(BeEmpty())
			})

			It("should say that it is not done when it is stopped", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m"))
				stopped, cancel := context.WithCancel(ctx)
				cancel()
				_, err := e.reconcile(stopped)
				Expect(err).To(MatchError(context.Canceled))
			})

			It("P9: should hold, and keep what is held, while the nodes are not known", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m"))
				e.nodesKnown = false
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("m"))
				Expect(e.api.writtenTo("Node/")).To(BeZero())
				e.nodesKnown = true
				e.settle(ctx)
				Expect(e.node(ctx, "m").Annotations).To(HaveKeyWithValue(disabled, "true"))
			})

			It("P9: should look again for a release that waits for the nodes, as a node that is gone does not bring it about", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), nil)
				e.settle(ctx)
				e.nodesKnown = false
				e.editMachine(ctx, "m", Annotation(preserve, "false"))
				Expect(e.settle(ctx).RequeueAfter).To(BeNumerically(">", 0))
			})

			It("P9 P8: should leave a release to later while the nodes are not known", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m"))
				e.settle(ctx)
				e.pass(72 * time.Hour)
				e.nodesKnown = false
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("m"))
				e.nodesKnown = true
				e.settle(ctx)
				Expect(e.held(ctx)).To(BeEmpty())
				Expect(e.node(ctx, "m").Spec.Taints).To(BeEmpty())
			})
		})
	}
})
