// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Transitions", func() {
	const finalizer = "machine.sapcloud.io/machine-controller"
	var (
		now     = Start.Add(time.Hour)
		running = Phase(machinev1alpha1.MachineRunning, now)
	)

	for name, holder := range holders {
		Context(name, func() {
			// expectPreserved looks at all objects of a preserved machine.
			expectPreserved := func(ctx SpecContext, e *environment, phase, cause, expiry string) {
				GinkgoHelper()
				machine, node := e.machine(ctx, "m"), e.node(ctx, "m")
				Expect(machine.Annotations).To(And(
					HaveKeyWithValue(prefix+"phase", phase),
					HaveKeyWithValue(prefix+"cause", cause),
					HaveKeyWithValue(prefix+"expiry-time", expiry),
				))
				until, err := time.Parse(time.RFC3339, expiry)
				Expect(err).NotTo(HaveOccurred())
				if name == "PreserveExpiry" {
					Expect(machine.Status.CurrentStatus.PreserveExpiryTime.Time).To(BeTemporally("==", until))
				} else if phase == "Failed:Preserved" {
					Expect(machine.Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachineUnknown))
					Expect(machine.Status.CurrentStatus.LastUpdateTime.Time).To(BeTemporally("==", until.Add(-10*time.Minute)))
				}

				Expect(node.Annotations).To(And(HaveKeyWithValue(disabled, "true"), HaveKeyWithValue(byMCM, "true")))
				taints, reason := BeEmpty(), "Preserved"
				if phase == "Failed:Preserved" {
					taints, reason = ConsistOf(And(HaveField("Key", "node.machine.sapcloud.io/preserved"), HaveField("Effect", corev1.TaintEffectNoSchedule))), "Draining"
				}
				Expect(node.Spec.Taints).To(taints)
				Expect(preservation.PreservedCondition(node)).To(And(
					HaveField("Status", corev1.ConditionTrue),
					HaveField("Reason", reason),
					HaveField("Message", fmt.Sprintf("Machine preserved until %s (cause %s, reason %s).", expiry, cause, preservation.WhyBegun(cause).ID)),
				))
			}
			expectReleased := func(ctx SpecContext, e *environment) {
				GinkgoHelper()
				machine, node := e.machine(ctx, "m"), e.node(ctx, "m")
				delete(machine.Annotations, released)
				Expect(machine.Annotations).To(HaveKey(preservedSince))
				delete(machine.Annotations, preservedSince)
				Expect(machine.Annotations).NotTo(Or(HaveKey(HavePrefix(prefix)), HaveKey("machinepriority.machine.sapcloud.io")))
				Expect(machine.Finalizers).To(ConsistOf(finalizer))
				if machine.DeletionTimestamp == nil {
					Expect(machine.Status.CurrentStatus.PreserveExpiryTime).To(BeNil())
				}
				Expect(node.Annotations).NotTo(HaveKey(disabled))
				Expect(node.Annotations).NotTo(HaveKey(byMCM))
				Expect(node.Spec.Taints).To(BeEmpty())
				Expect(preservation.PreservedCondition(node)).To(And(HaveField("Status", corev1.ConditionFalse), HaveField("Reason", "PreservationEnded")))
			}
			// preserved is an environment with a preserved machine whose Events were looked at.
			preserved := func(ctx SpecContext, machine *machinev1alpha1.Machine, node *corev1.Node) *environment {
				GinkgoHelper()
				machine.Finalizers = []string{finalizer}
				e := withMachine(holder, machine, node)
				e.settle(ctx)
				e.recorder.take()
				return e
			}
			askedFor := func(ctx SpecContext) *environment { return preserved(ctx, Machine("m"), Node("m", with("now"))) }
			failedAuto := func(ctx SpecContext) *environment { return preserved(ctx, Machine("m", failing(now)), Node("m")) }
			failedAsked := func(ctx SpecContext) *environment {
				return preserved(ctx, Machine("m", failing(now)), Node("m", with("when-failed")))
			}

			It("T1: should preserve a running machine that it is asked to", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m"), Node("m", with("now")))
				e.settle(ctx)
				expectPreserved(ctx, e, "Running:Preserved", "now", "2026-03-04T13:00:00Z")
				e.expectEvent("MachinePreserved: Machine is Running:Preserved until 2026-03-04T13:00:00Z because AskedFor (cause now)")
			})

			DescribeTable("T2: should hold and drain a preserved machine that fails", func(ctx SpecContext, share, expiry string, left time.Duration) {
				e := askedFor(ctx)
				e.editDeployment(ctx, Share(share))
				e.pass(71 * time.Hour)
				e.editMachine(ctx, "m", failing(e.now()))
				e.settle(ctx)
				expectPreserved(ctx, e, "Failed:Preserved", "now", expiry)
				e.expectEvent("PreservedMachineFailed: Machine is Failed:Preserved until " + expiry + " because MachineFailed (cause now)")
				e.pass(left - time.Second)
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("m"))
			},
				Entry("with the expiry it had if there is no place for it", "0", "2026-03-04T13:00:00Z", time.Hour),
				Entry("for as long as if nobody had asked, if there is one", "1", "2026-03-07T12:00:00Z", 72*time.Hour),
			)

			expires := func(_ SpecContext, e *environment) { e.pass(72 * time.Hour) }
			says := func(opt NodeOption) func(SpecContext, *environment) {
				return func(ctx SpecContext, e *environment) { e.editNode(ctx, "m", opt) }
			}
			deletes := func(ctx SpecContext, e *environment) { Expect(e.seed.Delete(ctx, e.machine(ctx, "m"))).To(Succeed()) }
			DescribeTable("should release a machine, and say why",
				func(ctx SpecContext, begin func(SpecContext) *environment, end func(SpecContext, *environment), ended string, left types.GomegaMatcher) {
					e := begin(ctx)
					end(ctx, e)
					e.settle(ctx)
					expectReleased(ctx, e)
					Expect(e.node(ctx, "m").Annotations[preserve]).To(left)
					e.expectEvent("MachinePreservationEnded: Machine is no longer preserved because " + ended)
				},
				Entry("T3: running, at the expiry", askedFor, expires, "Expired (cause was now)", BeEmpty()),
				Entry("T3 R4: running, when it is told false", askedFor, says(with("false")), "Stopped (cause was now)", Equal("false")),
				Entry("T3 R2: running, when the request is withdrawn", askedFor, says(without(preserve)), "RequestWithdrawn (cause was now)", BeEmpty()),
				Entry("T8: failed, at the expiry", failedAsked, expires, "Expired (cause was when-failed)", BeEmpty()),
				Entry("T8 R4: failed, when it is told false", failedAuto, says(with("false")), "Stopped (cause was auto)", Equal("false")),
				Entry("T8 R2: failed, when the request is withdrawn", failedAsked, says(without(preserve)), "RequestWithdrawn (cause was when-failed)", BeEmpty()),
				Entry("T9: auto-preserved, when the share is lowered", failedAuto, func(ctx SpecContext, e *environment) { e.editDeployment(ctx, Share("0")) }, "ShareLowered (cause was auto)", BeEmpty()),
				Entry("T10: running, when it is deleted, which is not blocked", askedFor, deletes, "Deleted (cause was now)", Equal("now")),
				Entry("T10: failed, when it is deleted, which is not blocked", failedAsked, deletes, "Deleted (cause was when-failed)", Equal("when-failed")),
			)

			It("R6: should release a machine when operators forbid it for its MachineDeployment, and keep none there", func(ctx SpecContext) {
				e := askedFor(ctx)
				e.editDeployment(ctx, DeploymentAnnotation(prefix+"forbidden", "true"))
				e.settle(ctx)
				expectReleased(ctx, e)
				e.expectEvent("MachinePreservationEnded: Machine is no longer preserved because Forbidden (cause was now)")

				e.editNode(ctx, "m", with("now"))
				e.settle(ctx)
				expectReleased(ctx, e)
				e.expectEvent("MachinePreservationRefused: Machine is not preserved because Forbidden")
			})

			It("P13: should release a machine that was kept for the longest time, and keep it no more", func(ctx SpecContext) {
				e := preserved(ctx, Machine("m"), Node("m", with("now"), NodeAnnotation(prefix+"timeout", "336h")))
				e.pass(336 * time.Hour)
				e.settle(ctx)
				expectReleased(ctx, e)
				Expect(e.node(ctx, "m").Annotations).To(BeEmpty())
				e.expectEvent("MachinePreservationEnded: Machine is no longer preserved because KeptForTooLong (cause was now)")

				e.restart()
				e.editNode(ctx, "m", with("now"))
				e.settle(ctx)
				expectReleased(ctx, e)
				e.expectEvent("MachinePreservationRefused: Machine is not preserved because KeptForTooLong")
			})

			It("T5: should hold a machine that fails within the share", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", failing(now)), Node("m"))
				e.settle(ctx)
				expectPreserved(ctx, e, "Failed:Preserved", "auto", "2026-03-04T13:00:00Z")
				Expect(e.machine(ctx, "m").Annotations).To(HaveKeyWithValue(prefix+"share", "1"))
				e.expectEvent("MachinePreserved: Machine is Failed:Preserved until 2026-03-04T13:00:00Z because MachineFailed (cause auto)")
			})

			It("T5 P9: should hold a machine that never joined and has no node", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", Phase(machinev1alpha1.MachinePending, Start)), nil)
				e.settle(ctx)
				machine := e.machine(ctx, "m")
				Expect(machine.Annotations).To(HaveKeyWithValue(prefix+"phase", "Failed:Preserved"))
				Expect(machine.Annotations).To(HaveKeyWithValue(prefix+"failed-since", "2026-03-01T12:00:00Z"))
				Expect(e.recorder.take()).To(ConsistOf(HavePrefix("Machine/m Normal MachinePreserved: Machine is Failed:Preserved")))
			})

			It("T7: should let pods back when the machine is healthy again, and keep the protection", func(ctx SpecContext) {
				e := failedAuto(ctx)
				e.pass(time.Hour)
				e.editMachine(ctx, "m", running)
				e.settle(ctx)
				expectPreserved(ctx, e, "Running:Preserved", "auto", "2026-03-04T13:00:00Z")
				e.expectEvent("PreservedMachineRecovered: Machine is Running:Preserved until 2026-03-04T13:00:00Z because HealthyAgain (cause auto)")
			})

			It("V1 V3 V4 P11: should let pods back when there is a proof, or warn when there is none in time", func(ctx SpecContext) {
				for _, proven := range []bool{true, false} {
					e := failedAuto(ctx)
					e.editDeployment(ctx, DeploymentAnnotation(prefix+"validation-settings", `{"condition":"GPUHealthy","timeout":"20m"}`))
					e.editMachine(ctx, "m", running)
					e.settle(ctx)
					taint := ContainElement(HaveField("Key", "node.machine.sapcloud.io/preserved"))
					Expect(e.node(ctx, "m").Spec.Taints).To(taint)
					Expect(preservation.PreservedCondition(e.node(ctx, "m"))).To(And(HaveField("Reason", "AwaitingValidation"), HaveField("Message", HavePrefix("Node takes no new pods until it is validated, or until 2026-03-01T13:20:00Z. Machine preserved until 2026-03-04T13:00:00Z"))))
					Expect(e.recorder.take()).To(ConsistOf(HavePrefix("Machine/m Normal MachineAwaitsValidation: "), HavePrefix("Node/m Normal MachineAwaitsValidation: ")))
					event := "Warning MachineNotValidated: "
					if e.pass(20 * time.Minute); proven {
						event = "Normal MachineValidated: "
						e.editNodeStatus(ctx, "m", Condition("GPUHealthy", corev1.ConditionTrue, "", ""), func(n *corev1.Node) {
							n.Status.Conditions[len(n.Status.Conditions)-1].LastHeartbeatTime = metav1.NewTime(e.now())
						})
					}
					e.settle(ctx)
					Expect(e.node(ctx, "m").Spec.Taints).NotTo(taint)
					Expect(e.recorder.take()).To(ConsistOf(HavePrefix("Machine/m "+event), HavePrefix("Node/m "+event)))
					expectPreserved(ctx, e, "Running:Preserved", "auto", "2026-03-04T13:00:00Z")
				}
			})

			It("V3: should not forget a label that is the proof while the record cannot be removed: the cache has none of a node without the taint", func(ctx SpecContext) {
				e := failedAuto(ctx)
				e.nodeCache = strippedNodes{e.shoot}
				e.restart()
				e.editDeployment(ctx, DeploymentAnnotation(prefix+"validation-settings", `{"label":"example.com/gpu=healthy","timeout":"20m"}`))
				e.pass(72*time.Hour - 10*time.Minute)
				e.editMachine(ctx, "m", running)
				e.settle(ctx)
				e.pass(15 * time.Minute)
				e.settle(ctx)
				taint := ContainElement(HaveField("Key", "node.machine.sapcloud.io/preserved"))
				Expect(e.node(ctx, "m").Spec.Taints).To(taint)
				e.editNode(ctx, "m", func(n *corev1.Node) { n.Labels = map[string]string{"example.com/gpu": "healthy"} })
				e.api.failing("Machine/", faults["409"])
				for range 3 {
					e.failingRound(ctx)
					Expect(e.node(ctx, "m").Spec.Taints).NotTo(taint)
					e.pass(time.Minute)
				}
				e.api.write = nil
				e.settle(ctx)
				Expect(e.held(ctx)).To(BeEmpty())
			})

			It("P12: should take no time from other reads for the labels of nodes, if the API server does not answer", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", running, Preserved("Running:Preserved", "validation", now.Add(10*time.Minute))), Node("m"))
				e.editDeployment(ctx, DeploymentAnnotation(prefix+"validation-settings", `{"label":"example.com/gpu=healthy","timeout":"20m"}`))
				e.Storm = facts.StormLimits{MaxFailing: 1, SettlingTime: time.Minute}
				var hangs atomic.Int32
				e.NodeReader = interceptor.NewClient(e.shoot, interceptor.Funcs{
					Get: func(ctx context.Context, _ client.WithWatch, _ client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
						hangs.Add(1)
						<-ctx.Done()
						return ctx.Err()
					},
				})
				account := errors.New("never read")
				e.Hours = &Hours{Max: 10, Namespace: Namespace, Client: e.seed, Reader: interceptor.NewClient(e.seed, interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
						account = ctx.Err()
						return c.Get(ctx, key, obj, opts...)
					},
				})}
				_, err := e.reconcile(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(hangs.Load()).To(BeNumerically("==", 1))
				Expect(account).NotTo(HaveOccurred(), "machine-hours are limited")
			})

			DescribeTable("T7 H1: should not take a machine for healthy because of its phase", func(ctx SpecContext, unhealthy NodeOption) {
				e := preserved(ctx, Machine("m", failing(now)), Node("m", unhealthy))
				e.editMachine(ctx, "m", running)
				e.settle(ctx)
				Expect(e.held(ctx)).To(ConsistOf("m"))
				Expect(e.node(ctx, "m").Spec.Taints).To(HaveLen(1))
				Expect(e.recorder.take()).To(BeEmpty())
			},
				Entry("when its node is not ready", NotReady),
				Entry("when its node has one of the node conditions", Condition("KernelDeadlock", corev1.ConditionTrue, "", "")),
			)

			It("H3 T5: should not claim to preserve a machine that is being terminated", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", Phase(machinev1alpha1.MachineFailed, now)), Node("m"))
				e.settle(ctx)
				Expect(e.api.written()).To(BeEmpty())
				e.expectEvent("MachinePreservationRefused: Machine failed and is replaced because FailedTooEarly")
			})

			It("H3 T4: should preserve a machine in phase Failed only where machine-controller-manager obeys the request by itself", func(ctx SpecContext) {
				e := withMachine(holder, Machine("m", Phase(machinev1alpha1.MachineFailed, now)), Node("m", with("when-failed")))
				e.settle(ctx)
				if name == "PreserveExpiry" {
					expectPreserved(ctx, e, "Failed:Preserved", "when-failed", "2026-03-04T13:00:00Z")
					return
				}
				Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(prefix + "cause"))
				Expect(e.node(ctx, "m").Annotations).To(BeEmpty())
				e.expectEvent("MachinePreservationRefused: Machine failed and is replaced because FailedTooEarly")
			})

			It("should keep an auto-preserved machine for as long as somebody asks for, and no longer when the request is withdrawn", func(ctx SpecContext) {
				e := failedAuto(ctx)
				e.pass(time.Hour)
				e.editNode(ctx, "m", with("now"))
				e.settle(ctx)
				expectPreserved(ctx, e, "Failed:Preserved", "now", "2026-03-04T14:00:00Z")
				Expect(e.machine(ctx, "m").Annotations).To(HaveKeyWithValue(prefix+"claims", "auto=2026-03-04T13:00:00Z,now=2026-03-04T14:00:00Z"))
				e.expectEvent("MachinePreserved: Machine is Failed:Preserved until 2026-03-04T14:00:00Z because AskedFor (cause now)")

				e.editNode(ctx, "m", without(preserve))
				e.settle(ctx)
				expectPreserved(ctx, e, "Failed:Preserved", "auto", "2026-03-04T13:00:00Z")
				Expect(e.machine(ctx, "m").Annotations).NotTo(HaveKey(prefix + "claims"))
				e.expectEvent("MachinePreserved: Machine is Failed:Preserved until 2026-03-04T13:00:00Z although RequestWithdrawn (cause auto)")
			})

		})
	}

	Context("T1: what machine-controller-manager >= 0.62 does by itself", func() {
		native := func(m *machinev1alpha1.Machine) {
			m.Spec.MachineConfiguration = &machinev1alpha1.MachineConfiguration{MachinePreserveTimeout: &metav1.Duration{Duration: 72 * time.Hour}}
		}
		begun := func(ctx SpecContext) *environment {
			GinkgoHelper()
			e := withMachine(preservation.PreserveExpiry{}, Machine("m", native), Node("m", with("now")))
			Expect(e.settle(ctx).RequeueAfter).To(Equal(10 * time.Second))
			Expect(e.api.written()).To(ConsistOf("Machine/m"))
			Expect(e.recorder.take()).To(ConsistOf(HavePrefix("Machine/m Normal MachinePreserved: "), HavePrefix("Node/m Normal MachinePreserved: ")))
			return e
		}

		// expires is what machine-controller-manager does at the given time.
		expires := func(ctx SpecContext, e *environment, at time.Time) {
			GinkgoHelper()
			e.editMachine(ctx, "m", func(m *machinev1alpha1.Machine) {
				m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: at.Add(72 * time.Hour)}
			})
			e.editNode(ctx, "m", NodeAnnotation(disabled, "true"), NodeAnnotation(byMCM, "true"))
		}

		It("should be left to it", func(ctx SpecContext) {
			e := begun(ctx)
			expires(ctx, e, e.now())
			e.settle(ctx)
			Expect(e.api.written()).To(ConsistOf("Machine/m", "Machine/m"))
			Expect(e.recorder.take()).To(BeEmpty())
		})

		It("should have its expiry taken over if it was first", func(ctx SpecContext) {
			e := withMachine(preservation.PreserveExpiry{}, Machine("m", native), Node("m", with("now")))
			expires(ctx, e, e.now().Add(-time.Second))
			e.settle(ctx)
			Expect(e.api.written()).To(ConsistOf("Machine/m"))
			Expect(e.machine(ctx, "m").Annotations).To(HaveKeyWithValue(prefix+"expiry-time", "2026-03-04T12:59:59Z"))
		})

		It("should not change the expiry that people were told", func(ctx SpecContext) {
			e := begun(ctx)
			e.pass(time.Second)
			expires(ctx, e, e.now())
			e.settle(ctx)
			Expect(e.api.written()).To(ConsistOf("Machine/m", "Machine/m/status", "Machine/m"))
			Expect(e.machine(ctx, "m").Status.CurrentStatus.PreserveExpiryTime.Time).To(BeTemporally("==", now.Add(72*time.Hour)))
		})

		It("should be done in its place when it has not for a while", func(ctx SpecContext) {
			e := begun(ctx)
			e.pass(10 * time.Second)
			e.settle(ctx)
			Expect(e.machine(ctx, "m").Status.CurrentStatus.PreserveExpiryTime.Time).To(BeTemporally("==", now.Add(72*time.Hour)))
			Expect(e.node(ctx, "m").Annotations).To(And(HaveKeyWithValue(disabled, "true"), HaveKeyWithValue(byMCM, "true")))
			Expect(e.recorder.take()).To(BeEmpty())
		})
	})
})
