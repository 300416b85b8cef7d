// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	placesLease = "machine-preservation-controller-places"
	grantTime   = time.Minute
)

// another is another process on the same objects, which also thinks that it is the leader.
func (e *environment) another() *environment {
	other := &environment{seed: e.seed, shoot: e.shoot, api: &api{}, nodesKnown: true, clock: e.clock, holder: e.holder, recorder: e.recorder}
	other.restart()
	return other
}

// using returns how many machines use a place, as it is written on them.
func (e *environment) using(ctx context.Context) (names []string) {
	GinkgoHelper()
	machines := &machinev1alpha1.MachineList{}
	Expect(e.seed.List(ctx, machines)).To(Succeed())
	for i := range machines.Items {
		if preservation.ReadRecord(&machines.Items[i]).HasPlace(e.now()) {
			names = append(names, machines.Items[i].Name)
		}
	}
	return names
}

// grants returns what the Lease says.
func (e *environment) grants(ctx context.Context) string {
	GinkgoHelper()
	lease := &coordinationv1.Lease{}
	err := e.seed.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: placesLease}, lease)
	Expect(client.IgnoreNotFound(err)).NotTo(HaveOccurred())
	return lease.Annotations[prefix+"grants"]
}

// onCall has something done before, or after, the call with a number from now on, and returns how many there were.
func (a *api) onCall(number int, after bool, somebody func() error) (calls func() int) {
	var (
		mutex sync.Mutex
		count int
	)
	next := func(do func() error) error {
		mutex.Lock()
		count++
		mine := count == number
		mutex.Unlock()
		if mine && !after {
			if err := somebody(); err != nil {
				return err
			}
		}
		if err := do(); err != nil || !mine || !after {
			return err
		}
		return somebody()
	}
	a.read = func(string) error { return next(func() error { return nil }) }
	a.write = func(_ int, _ string, do func() error) error { return next(do) }
	return func() int { mutex.Lock(); defer mutex.Unlock(); return count }
}

var _ = Describe("P20: places that the zones of a pool share", func() {
	var (
		now = Start.Add(time.Hour)

		zone = func(name string, places string) (*machinev1alpha1.MachineDeployment, *machinev1alpha1.MachineSet) {
			deployment := Deployment(name, Share(places), DeploymentAnnotation(prefix+"shared-in-pool", "worker"))
			return deployment, Set("set-"+name, deployment)
		}
		// pool returns two zones with two machines each in a state, and their nodes.
		pool = func(places string, state MachineOption) (objects []client.Object) {
			for _, name := range []string{"a", "b"} {
				deployment, set := zone(name, places)
				objects = append(objects, deployment, set)
				for i := range 2 {
					m := fmt.Sprintf("%s%d", name, i)
					objects = append(objects, Machine(m, Of(set), state), Node(m, NotReady))
				}
			}
			return objects
		}
		both = func(ctx context.Context, e *environment) {
			for _, name := range []string{"a", "b"} {
				_, _ = e.reconcileNamed(ctx, name) // conflicts are retried
			}
		}
		settle = func(ctx context.Context, e *environment) {
			GinkgoHelper()
			for range 10 {
				before := len(e.api.written())
				both(ctx, e)
				if len(e.api.written()) == before {
					return
				}
			}
			Fail("still writing")
		}
		denied = apierrors.NewForbidden(schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}, placesLease, errors.New("no Role"))
		gone   = errors.New("connection reset by peer")
	)

	for name, holder := range holders {
		Context(name, func() {
			It("should all be used in one zone if that needs them", func(ctx SpecContext) {
				a, setA := zone("a", "2")
				b, setB := zone("b", "2")
				e := newEnvironment(holder, a, setA, b, setB, Machine("a0", Of(setA), failing(now)), Machine("a1", Of(setA), failing(now)), Machine("b0", Of(setB)))
				settle(ctx, e)
				Expect(e.held(ctx)).To(ConsistOf("a0", "a1"))
				Expect(e.seed.Create(ctx, Machine("b1", Of(setB), failing(now)))).To(Succeed())
				settle(ctx, e)
				Expect(e.held(ctx)).To(ConsistOf("a0", "a1"))
				Expect(e.recorder.take()).To(ContainElement("Machine/b1 Normal MachinePreservationRefused: Machine failed and is replaced because its pool has no free place"))
			})

			It("should be given back by the oldest of the pool, and to whoever waits in another zone", func(ctx SpecContext) {
				e := newEnvironment(holder, pool("2", near(now))...)
				settle(ctx, e)
				first := e.using(ctx)
				Expect(first).To(HaveLen(2))
				e.heal(ctx, first[0])
				settle(ctx, e)
				Expect(e.using(ctx)).To(And(HaveLen(2), ContainElement(first[1]), Not(ContainElement(first[0]))))
			})

			It("T9: should be fewer for all when there are fewer", func(ctx SpecContext) {
				objects := pool("4", failing(now))
				objects[2].(*machinev1alpha1.Machine).CreationTimestamp.Time = now // a0
				e := newEnvironment(holder, objects...)
				settle(ctx, e)
				Expect(e.held(ctx)).To(HaveLen(4))
				for _, name := range []string{"a", "b"} {
					deployment := &machinev1alpha1.MachineDeployment{}
					Expect(e.seed.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: name}, deployment)).To(Succeed())
					Share("1")(deployment)
					Expect(e.seed.Update(ctx, deployment)).To(Succeed())
				}
				settle(ctx, e)
				Expect(e.held(ctx)).To(ConsistOf("a0"))
			})

			for _, second := range []struct {
				name string
				// does is what the other process does.
				does func(ctx context.Context, e *environment)
			}{
				{"decides on the other zone", func(ctx context.Context, e *environment) { _, _ = e.reconcileNamed(ctx, "b") }},
				{"decides on the same zone", func(ctx context.Context, e *environment) { _, _ = e.reconcileNamed(ctx, "a") }},
				{"decides on both zones", both},
			} {
				for _, frozen := range []time.Duration{0, 2 * grantTime} {
					for stateName, state := range map[string]func(time.Time) MachineOption{"near": near, "failed": failing} {
						It(fmt.Sprintf("should never be exceeded while another process %s at any call, for %s, machines %s", second.name, frozen, stateName), func(ctx SpecContext) {
							for number := 1; ; number++ {
								for _, after := range []bool{false, true} {
									e := newEnvironment(holder, pool("1", state(now))...)
									other := e.another()
									calls := e.api.onCall(number, after, func() error {
										e.pass(frozen)
										for range 3 {
											second.does(ctx, other)
											Expect(len(e.using(ctx))).To(BeNumerically("<=", 1), "call %d: %v", number, e.api.written())
										}
										return nil
									})
									_, _ = e.reconcileNamed(ctx, "a")
									last := calls()
									Expect(len(e.using(ctx))).To(BeNumerically("<=", 1), "call %d: %v and %v, %s", number, e.api.written(), other.api.written(), e.grants(ctx))
									e.api.read, e.api.write = nil, nil
									for range 3 {
										both(ctx, e)
										both(ctx, other)
										Expect(len(e.using(ctx))).To(BeNumerically("<=", 1), "call %d: %v and %v, %s", number, e.api.written(), other.api.written(), e.grants(ctx))
									}
									e.pass(grantTime)
									settle(ctx, other)
									Expect(e.using(ctx)).To(HaveLen(1), "call %d: %v and %v, %s", number, e.api.written(), other.api.written(), e.grants(ctx))
									Expect(e.named(ctx, func(m *machinev1alpha1.Machine) bool { return m.Annotations[prefix+"grant-ended"] != "" })).To(BeEmpty())
									if last < number {
										Expect(number).To(BeNumerically(">", 5))
										return
									}
								}
							}
						})
					}
				}
			}

			It("P8: should be free again when a process is killed at any call", func(ctx SpecContext) {
				for number := 1; ; number++ {
					for _, applied := range []bool{false, true} {
						e := newEnvironment(holder, pool("1", failing(now))...)
						dead := false
						calls := e.api.onCall(number, applied, func() error { dead = true; return gone })
						read, write := e.api.read, e.api.write
						e.api.read = func(cluster string) error {
							if dead {
								return gone
							}
							return read(cluster)
						}
						e.api.write = func(n int, what string, do func() error) error {
							if dead {
								return gone
							}
							return write(n, what, do)
						}
						_, _ = e.reconcileNamed(ctx, "a")
						other := e.another()
						for range 2 {
							both(ctx, other)
							Expect(len(e.using(ctx))).To(BeNumerically("<=", 1), "call %d", number)
						}
						e.pass(grantTime)
						settle(ctx, other)
						Expect(e.using(ctx)).To(HaveLen(1), "call %d: %v and %v, %s", number, e.api.written(), other.api.written(), e.grants(ctx))
						if calls() < number {
							return
						}
					}
				}
			})

			It("should not be written with a grant that has ended, although a person asks for the machine as well", func(ctx SpecContext) {
				objects := pool("1", near(now))
				Annotation(preserve, "now")(objects[2].(*machinev1alpha1.Machine))
				e := newEnvironment(holder, objects...)
				e.meanwhile("Machine/a0", func() {
					e.editMachine(ctx, "a0", Annotation("somebody", "was here"))
				})
				_, _ = e.reconcileNamed(ctx, "a")
				Expect(e.using(ctx)).To(BeEmpty())
				settle(ctx, e)
				Expect(e.using(ctx)).To(ConsistOf("a0"))
			})

			It("should not be written on a machine that has changed since the grant, although it is read again before the hold of a person's request", func(ctx SpecContext) {
				objects := pool("1", near(now))
				Annotation(preserve, "now")(objects[2].(*machinev1alpha1.Machine))
				e := newEnvironment(holder, objects...)
				e.SourceReader = beforeMachine{e.SourceReader, "a0", func() { e.editMachine(ctx, "a0", Annotation("somebody", "was here")) }}
				_, _ = e.reconcileNamed(ctx, "a")
				Expect(e.api.writtenTo("Machine/a0")).To(BeZero())
				e.restart()
				settle(ctx, e)
				Expect(e.using(ctx)).To(ConsistOf("a0"))
			})

			DescribeTable("P12: should not be given away where the Lease is denied, and nothing else should suffer", func(ctx SpecContext, read bool) {
				objects := pool("2", failing(now))
				Annotation(preserve, "when-failed")(objects[2].(*machinev1alpha1.Machine))
				e := newEnvironment(holder, objects...)
				e.api.write = func(_ int, what string, do func() error) error {
					if what == "Lease/"+placesLease {
						return denied
					}
					return do()
				}
				if read {
					e.SourceReader = deniedLease{e.SourceReader, denied}
				}
				result, err := e.reconcileNamed(ctx, "a")
				Expect(err).NotTo(HaveOccurred())
				Expect(result.RequeueAfter).To(BeNumerically("<=", 5*time.Second))
				Expect(e.using(ctx)).To(ConsistOf("a0"))
				Expect(e.recorder.take()).To(ContainElement("Machine/a1 Normal MachinePreservationRefused: Machine failed and is replaced because PlacesUnknown"))
				e.api.write = nil
				e.restart()
				settle(ctx, e)
				Expect(e.using(ctx)).To(HaveLen(2))
			},
				Entry("to be written", false),
				Entry("to be read", true),
			)

			It("should not be given away where somebody has garbled the grants", func(ctx SpecContext) {
				lease := &coordinationv1.Lease{}
				lease.Name, lease.Namespace, lease.Annotations = placesLease, Namespace, map[string]string{prefix + "grants": "?"}
				e := newEnvironment(holder, append(pool("1", failing(now)), lease)...)
				both(ctx, e)
				Expect(e.using(ctx)).To(BeEmpty())
			})

			It("should cost neither a Lease nor a call more where they are not shared", func(ctx SpecContext) {
				deployment := Deployment("pool", Share("1"))
				set := Set("set", deployment)
				other := Deployment("other", Share("1"))
				e := newEnvironment(holder, deployment, set, other, Set("other-set", other), Machine("m", Of(set), failing(now)), Node("m", NotReady))
				_, err := e.reconcile(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(e.held(ctx)).To(ConsistOf("m"))
				Expect(e.grants(ctx)).To(BeEmpty())
				Expect(e.api.writtenTo("Lease/")).To(BeZero())
				reads := e.api.reads
				_, err = e.reconcile(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(e.api.reads - reads).To(Equal(4)) // the MachineDeployment, its MachineSets, its machines, their node
				Expect(e.RequestsFor(ctx, deployment)).To(HaveLen(1))
				Expect(e.api.reads - reads).To(Equal(4))
			})
		})
	}

	It("should have an event of one zone looked at for all of them", func(ctx SpecContext) {
		e := newEnvironment(holders["HealthTimer"], pool("1", near(now))...)
		a, _ := zone("a", "1")
		Expect(e.RequestsFor(ctx, a)).To(ConsistOf(
			HaveField("Name", "a"), HaveField("Name", "b"),
		))
	})

	It("should be waited for no longer than a grant lasts", func(ctx SpecContext) {
		e := newEnvironment(holders["HealthTimer"], pool("1", near(now))...)
		e.api.write = func(_ int, what string, do func() error) error {
			if what == "Lease/"+placesLease {
				return do()
			}
			return gone
		}
		_, _ = e.reconcileNamed(ctx, "a")
		Expect(e.grants(ctx)).To(ContainSubstring("machine-a0"))
		other := e.another()
		e.pass(time.Second)
		result, err := other.reconcileNamed(ctx, "b")
		Expect(err).NotTo(HaveOccurred())
		Expect(other.api.written()).To(BeEmpty())
		Expect(result.RequeueAfter).To(And(BeNumerically(">", 0), BeNumerically("<=", grantTime-time.Second)))
	})

	It("should keep the grants of other pools", func(ctx SpecContext) {
		lease := &coordinationv1.Lease{}
		lease.Name, lease.Namespace = placesLease, Namespace
		lease.Annotations = map[string]string{prefix + "grants": `[{"pool":"other","machine":"x","uid":"machine-x","at":"` + now.Add(-time.Hour).UTC().Format(time.RFC3339) + `"},` +
			`{"pool":"gone","machine":"y","uid":"machine-y","at":"` + now.Add(-25*time.Hour).UTC().Format(time.RFC3339) + `"}]`}
		e := newEnvironment(holders["HealthTimer"], append(pool("1", failing(now)), lease)...)
		settle(ctx, e)
		Expect(e.using(ctx)).To(HaveLen(1))
		Expect(e.grants(ctx)).To(And(ContainSubstring("machine-x"), Not(ContainSubstring("machine-y"))))
	})
})

// beforeMachine is a reader before whose reads of a single machine somebody does something.
type beforeMachine struct {
	client.Reader
	name     string
	somebody func()
}

func (b beforeMachine) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if key.Name == b.name {
		b.somebody()
	}
	return b.Reader.Get(ctx, key, obj, opts...)
}

// deniedLease is a reader that may not read Leases.
type deniedLease struct {
	client.Reader
	err error
}

func (d deniedLease) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if _, isLease := obj.(*coordinationv1.Lease); isLease {
		return d.err
	}
	return d.Reader.Get(ctx, key, obj, opts...)
}
