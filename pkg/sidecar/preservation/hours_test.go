// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/hours"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Hours", func() {
	key := client.ObjectKey{Namespace: Namespace, Name: "machine-preservation-hours"}

	for name, holder := range holders {
		Context(name, func() {
			var (
				e        *environment
				writes   int
				writeErr error
			)
			// limit has the Reconciler count, and allow so many machine-hours.
			limit := func(maximum int32) {
				writing := interceptor.NewClient(e.seed, interceptor.Funcs{
					Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
						writes++
						if writeErr != nil {
							return writeErr
						}
						return c.Create(ctx, obj, opts...)
					},
					Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
						writes++
						if writeErr != nil {
							return writeErr
						}
						return c.Update(ctx, obj, opts...)
					},
				})
				e.Hours = &Hours{Max: maximum, Client: writing, Reader: e.seed, Namespace: Namespace}
			}
			begin := func(maximum int32, machines ...MachineOption) {
				e = withMachine(holder, Machine("m", machines...), Node("m", with("now")))
				e.editDeployment(context.Background(), func(d *machinev1alpha1.MachineDeployment) {
					d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{facts.LabelPool: "p"}
				})
				writes, writeErr = 0, nil
				limit(maximum)
			}
			account := func(ctx context.Context) hours.Account {
				GinkgoHelper()
				stored := &corev1.ConfigMap{}
				Expect(e.seed.Get(ctx, key, stored)).To(Succeed())
				a, err := hours.Decode(stored.Data["account"])
				Expect(err).NotTo(HaveOccurred())
				return a
			}
			// pass lets time pass, and reconciles whenever that is due.
			pass := func(ctx context.Context, d time.Duration) {
				GinkgoHelper()
				for until := e.now().Add(d); e.now().Before(until); {
					next := e.settle(ctx).RequeueAfter
					if left := until.Sub(e.now()); next == 0 || next > left {
						next = left
					}
					e.pass(next)
				}
				e.settle(ctx)
			}

			preserved := func(ctx context.Context) []string {
				GinkgoHelper()
				if _, ok := e.machine(ctx, "m").Annotations[prefix+"cause"]; ok {
					return []string{"m"}
				}
				return nil
			}

			It("P17: should write nothing where nothing is preserved", func(ctx SpecContext) {
				begin(100)
				e.editNode(ctx, "m", without(preserve))
				pass(ctx, 24*time.Hour)
				Expect(writes).To(BeZero())
			})

			It("P17: should write once an hour while machines are preserved, and at the end", func(ctx SpecContext) {
				begin(1000)
				pass(ctx, 10*time.Hour+30*time.Minute)
				Expect(writes).To(BeNumerically("~", 10, 1))
				Expect(account(ctx).Used(e.now())).To(BeNumerically("~", 10.5*3600, 2))
				before := writes
				e.editNode(ctx, "m", without(preserve))
				e.settle(ctx)
				e.settle(ctx)
				Expect(writes).To(Equal(before + 1))
				Expect(account(ctx).Pools).To(HaveKeyWithValue("p", BeNumerically("~", 10.5*3600, 2)))
				pass(ctx, 24*time.Hour)
				Expect(writes).To(Equal(before + 1))
			})

			It("P17: should count what a controller has missed that was away, once", func(ctx SpecContext) {
				begin(1000)
				pass(ctx, 90*time.Minute)
				e.pass(5 * time.Hour)
				kept := e.Hours
				e.restart()
				limit(1000)
				Expect(e.Hours).NotTo(BeIdenticalTo(kept))
				e.settle(ctx)
				Expect(account(ctx).Used(e.now())).To(BeNumerically("~", 6.5*3600, 2))
			})

			It("P17: should count everything if it is restarted more often than it writes", func(ctx SpecContext) {
				begin(1000)
				restartOften := func() {
					for range 6 {
						pass(ctx, 40*time.Minute)
						e.restart()
						limit(1000)
					}
					e.settle(ctx)
				}
				restartOften()
				Expect(account(ctx).Used(e.now())).To(BeNumerically("~", 4*3600, 60), "from the beginning")

				By("Preserving it anew")
				e.editNode(ctx, "m", without(preserve))
				e.settle(ctx)
				e.settle(ctx)
				e.editNode(ctx, "m", with("now"))
				restartOften()
				Expect(account(ctx).Used(e.now())).To(BeNumerically("~", 8*3600, 60))
			})

			It("P17: should count from the first preservation, although it is killed before it has written that", func(ctx SpecContext) {
				begin(1000)
				killed, updates := e.Hours.Client, 0
				e.Hours.Client = interceptor.NewClient(e.seed, interceptor.Funcs{
					Create: func(ctx context.Context, _ client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
						Expect(preserved(ctx)).To(BeEmpty())
						return killed.Create(ctx, obj, opts...)
					},
					Update: func(context.Context, client.WithWatch, client.Object, ...client.UpdateOption) error {
						updates++
						return errors.New("no")
					},
				})
				e.settle(ctx)
				Expect(preserved(ctx)).To(ConsistOf("m"))
				pass(ctx, 10*time.Minute)
				Expect(updates).To(BeZero(), "that it is preserved is written with the first write")
				e.restart()
				limit(1000)
				e.settle(ctx)
				Expect(account(ctx).Used(e.now())).To(BeNumerically("~", 10*60, 2))
			})

			It("P17: should count what has ended without being stored until its end, and nothing for what is gone", func(ctx SpecContext) {
				begin(1000)
				pass(ctx, 90*time.Minute)
				stored := &corev1.ConfigMap{}
				Expect(e.seed.Get(ctx, key, stored)).To(Succeed())
				before := account(ctx)
				Expect(before.Pools).To(HaveKeyWithValue("p", BeNumerically("~", 60*60, 5)))
				e.editNode(ctx, "m", without(preserve))
				pass(ctx, time.Minute)

				latest := stored.DeepCopy()
				Expect(e.seed.Get(ctx, key, latest)).To(Succeed())
				latest.Data["account"] = before.Advance("gone", "q", []hours.Seen{{UID: "gone", Since: before.Began, Until: e.now().Add(100 * time.Hour)}}, before.Began.Add(time.Minute)).Encode()
				Expect(e.seed.Update(ctx, latest)).To(Succeed())
				e.pass(5 * time.Hour)
				e.restart()
				limit(3)
				e.editNode(ctx, "m", with("now"))
				e.settle(ctx)
				Expect(preserved(ctx)).To(ConsistOf("m"), "it does not seem as if the limit was reached")
				pass(ctx, time.Hour)
				Expect(account(ctx).UsedByPool(e.now())).To(And(HaveKeyWithValue("p", BeNumerically("~", 150*60, 5)), HaveKeyWithValue("q", BeEquivalentTo(60))))
			})

			It("P12: should read the account again only after a while if it cannot be read", func(ctx SpecContext) {
				begin(1)
				reads, readErr := 0, errors.New("no")
				e.Hours.Reader = interceptor.NewClient(e.seed, interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
						if reads++; readErr != nil {
							return readErr
						}
						return c.Get(ctx, key, obj, opts...)
					},
				})
				e.settle(ctx)
				Expect(e.settle(ctx).RequeueAfter).To(BeNumerically("<=", 30*time.Second))
				Expect(reads).To(Equal(1))
				pass(ctx, time.Minute)
				Expect(reads).To(BeNumerically("~", 3, 1))
				Expect(preserved(ctx)).To(ConsistOf("m"))
				readErr = nil
				pass(ctx, 2*time.Hour)
				Expect(preserved(ctx)).To(BeEmpty())
			})

			It("P18: should warn, release the machine when the hours are used up, and preserve it again in the next month", func(ctx SpecContext) {
				begin(10)
				pass(ctx, 7*time.Hour+59*time.Minute)
				e.recorder.take()
				pass(ctx, 2*time.Minute)
				Expect(e.recorder.take()).To(ConsistOf(
					ContainSubstring("Warning MachineHoursUsed: Machines of the shoot have been preserved for 8 of the 10 machine-hours that operators allow in 2026-03 (UTC). "),
					HavePrefix("Node/m Warning MachineHoursUsed: "),
				))
				Expect(preserved(ctx)).To(ConsistOf("m"))

				pass(ctx, 2*time.Hour)
				Expect(preserved(ctx)).To(BeEmpty())
				Expect(e.recorder.take()).To(ContainElements(
					ContainSubstring("Warning MachineHoursUsed: Machines of the shoot have been preserved for all 10 machine-hours that operators allow in 2026-03 (UTC). "),
					"Node/m Normal MachinePreservationEnded: Machine is no longer preserved because HoursUsedUp (cause was now)",
				))
				Expect(account(ctx).Used(e.now())).To(BeNumerically("~", 10*3600, 5))
				Expect(account(ctx).SpentAt).NotTo(BeZero())

				By("Asking again")
				e.editNode(ctx, "m", with("now"))
				e.settle(ctx)
				Expect(preserved(ctx)).To(BeEmpty())
				Expect(e.recorder.take()).To(ContainElement("Node/m Normal MachinePreservationRefused: Machine is not preserved because HoursUsedUp"))

				By("Waiting for the next month")
				e.clock.SetTime(time.Date(2026, 4, 1, 0, 0, 1, 0, time.UTC))
				e.editNode(ctx, "m", with("now"))
				e.settle(ctx)
				Expect(preserved(ctx)).To(ConsistOf("m"))
			})

			It("P18: should look when the month is over at when the machine-hours of the next one are used up", func(ctx SpecContext) {
				var objects []client.Object
				deployment := Deployment("pool", Share("1"))
				set := Set("set", deployment)
				for _, name := range []string{"m", "n", "o"} {
					objects = append(objects, Machine(name, Of(set)), Node(name, with("now")))
				}
				e = newEnvironment(holder, append(objects, deployment, set)...)
				writes, writeErr = 0, nil
				limit(1)
				month := time.Date(2026, 4, 1, 0, 0, 0, 0, time.UTC)
				e.clock.SetTime(month.Add(-10 * time.Minute))
				e.settle(ctx)
				Expect(preserved(ctx)).To(ConsistOf("m"))
				pass(ctx, 40*time.Minute)
				Expect(preserved(ctx)).To(BeEmpty())
				Expect(account(ctx).Used(e.now())).To(BeNumerically("~", 3600, 10))
			})

			It("P18: should warn on all MachineDeployments with preserved machines, and release those of all", func(ctx SpecContext) {
				var objects []client.Object
				for _, name := range []string{"a", "b", "c"} {
					deployment := Deployment("pool-"+name, Share("1"))
					set := Set("set-"+name, deployment)
					objects = append(objects, deployment, set, Machine(name, Of(set)))
					if name == "c" {
						objects = append(objects, Node(name))
					} else {
						objects = append(objects, Node(name, with("now")))
					}
				}
				e = newEnvironment(holder, objects...)
				writes, writeErr = 0, nil
				limit(10)
				all := func() {
					for range 5 {
						for _, name := range []string{"pool-a", "pool-b", "pool-c"} {
							_, err := e.reconcileNamed(ctx, name)
							Expect(err).NotTo(HaveOccurred())
						}
					}
				}
				all()
				e.recorder.take()
				warnings := ConsistOf(HavePrefix("Machine/pool-a Warning MachineHoursUsed: "), HavePrefix("Machine/pool-b Warning MachineHoursUsed: "),
					HavePrefix("Node/a Warning MachineHoursUsed: "), HavePrefix("Node/b Warning MachineHoursUsed: "))
				e.pass(4*time.Hour + time.Minute)
				all()
				Expect(e.recorder.take()).To(warnings)
				e.pass(time.Hour)
				all()
				told := slices.DeleteFunc(e.recorder.take(), func(event string) bool { return !strings.Contains(event, "MachineHoursUsed") })
				Expect(told).To(warnings)
				for _, name := range []string{"a", "b"} {
					Expect(e.machine(ctx, name).Annotations).NotTo(HaveKey(prefix + "cause"))
				}
			})

			It("P18: should go on after operators have raised the limit", func(ctx SpecContext) {
				begin(2)
				pass(ctx, 3*time.Hour)
				Expect(preserved(ctx)).To(BeEmpty())
				e.restart()
				limit(100)
				e.editNode(ctx, "m", with("now"))
				e.settle(ctx)
				Expect(preserved(ctx)).To(ConsistOf("m"))
			})

			It("P17: should go on from what is stored when somebody else has written, and limit nothing while it cannot be read", func(ctx SpecContext) {
				begin(1000)
				pass(ctx, 2*time.Hour)
				stored := &corev1.ConfigMap{}
				Expect(e.seed.Get(ctx, key, stored)).To(Succeed())
				edited := account(ctx)
				edited.Pools = map[string]int64{"p": 100 * 3600}
				stored.Data["account"] = edited.Encode()
				Expect(e.seed.Update(ctx, stored)).To(Succeed())
				pass(ctx, 3*time.Hour)
				Expect(account(ctx).Used(e.now())).To(BeNumerically("~", 103*3600, 5))

				writeErr = errors.New("no")
				pass(ctx, 2*time.Hour)
				Expect(preserved(ctx)).To(ConsistOf("m"))
				writeErr = nil
				pass(ctx, time.Hour)
				Expect(account(ctx).Used(e.now())).To(BeNumerically("~", 106*3600, 5))
			})
		})
	}
})
