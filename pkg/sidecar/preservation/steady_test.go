// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"context"
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// steady is an environment with a workqueue.
type steady struct {
	*environment
	deployments []string
	// due are the requeues, by MachineDeployment.
	due map[string][]time.Time
	// served are the reconciliations, enqueued those of them that an update brought about.
	served, enqueued int
}

func (s *steady) serve(ctx context.Context, deployment string) {
	GinkgoHelper()
	s.served++
	result, err := s.reconcileNamed(ctx, deployment)
	Expect(err).NotTo(HaveOccurred())
	if result.RequeueAfter > 0 {
		s.due[deployment] = append(s.due[deployment], s.now().Add(result.RequeueAfter))
	}
}

// settleAll reconciles all MachineDeployments until nothing is written any more.
func (s *steady) settleAll(ctx context.Context) {
	GinkgoHelper()
	for before := -1; before != len(s.api.written()); {
		before = len(s.api.written())
		for _, deployment := range s.deployments {
			s.serve(ctx, deployment)
		}
	}
}

// advance lets time pass and serves the requeues that fall due, at the very time at which they do.
func (s *steady) advance(ctx context.Context, until time.Time) {
	GinkgoHelper()
	for {
		next, deployment, index := until, "", 0
		for name, times := range s.due {
			for i, at := range times {
				if !at.After(next) {
					next, deployment, index = at, name, i
				}
			}
		}
		s.clock.SetTime(next)
		if deployment == "" {
			return
		}
		s.due[deployment] = append(s.due[deployment][:index], s.due[deployment][index+1:]...)
		s.serve(ctx, deployment)
	}
}

// heartbeat updates all objects in the ways that have nothing to do with preservation, as kubelets and
// machine-controller-manager do, and serves the MachineDeployments for which the predicates let an update through.
func (s *steady) heartbeat(ctx context.Context) {
	GinkgoHelper()
	now := metav1.NewTime(s.now())
	nodes, machines, deployments := &corev1.NodeList{}, &machinev1alpha1.MachineList{}, &machinev1alpha1.MachineDeploymentList{}
	Expect(s.shoot.List(ctx, nodes)).To(Succeed())
	Expect(s.seed.List(ctx, machines)).To(Succeed())
	Expect(s.seed.List(ctx, deployments)).To(Succeed())

	for i := range nodes.Items {
		before, node := &nodes.Items[i], nodes.Items[i].DeepCopy()
		for c := range node.Status.Conditions {
			if node.Status.Conditions[c].Type != "Preserved" {
				node.Status.Conditions[c].LastHeartbeatTime = now
			}
		}
		node.Status.Images = []corev1.ContainerImage{{Names: []string{now.String()}}}
		Expect(s.shoot.Status().Update(ctx, node)).To(Succeed())
		if NodeChanged().Update(event.TypedUpdateEvent[*corev1.Node]{ObjectOld: before, ObjectNew: node}) {
			for _, request := range NodeToDeployment(s.Reconciler, ctx, node) {
				s.enqueued++
				s.serve(ctx, request.Name)
			}
		}
	}
	for i := range machines.Items {
		before, machine := &machines.Items[i], machines.Items[i].DeepCopy()
		machine.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: now}}
		machine.Status.LastOperation.LastUpdateTime = now
		Expect(s.seed.Status().Update(ctx, machine)).To(Succeed())
		if MachineChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: machine}) {
			for _, request := range MachineToDeployment(s.Reconciler, ctx, machine) {
				s.enqueued++
				s.serve(ctx, request.Name)
			}
		}
	}
	for i := range deployments.Items {
		before, deployment := &deployments.Items[i], deployments.Items[i].DeepCopy()
		deployment.Status.Conditions = []machinev1alpha1.MachineDeploymentCondition{{Type: machinev1alpha1.MachineDeploymentAvailable, LastUpdateTime: now}}
		Expect(s.seed.Update(ctx, deployment)).To(Succeed())
		if shoot.DeploymentChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: deployment}) {
			s.enqueued++
			s.serve(ctx, deployment.Name)
		}
	}
}

var _ = Describe("Steady state", func() {
	for name, holder := range holders {
		It(name+": should write nothing in an hour with 500 healthy and 5 preserved machines", func(ctx SpecContext) {
			var (
				objects []client.Object
				names   []string
				now     = Start.Add(time.Hour)
				unknown = Phase(machinev1alpha1.MachineUnknown, now)
			)
			for d := range 5 {
				deployment := Deployment(fmt.Sprintf("pool-%d", d), Share("2"))
				set := Set(deployment.Name, deployment)
				objects, names = append(objects, deployment, set), append(names, deployment.Name)
				for m := range 101 {
					machine := Machine(fmt.Sprintf("m-%d-%d", d, m), Of(set))
					node := Node(machine.Name)
					switch {
					case m > 0:
					case d == 0: // fails, and is drained
						failing(now)(machine)
					case d == 1: // fails, and its drain is blocked
						failing(now)(machine)
						with("when-failed")(node)
					case d == 2: // stays healthy
						with("true")(node)
					case d == 3: // is unhealthy for a while
						Annotation(preserve, "now")(machine)
						unknown(machine)
					case d == 4: // recovers
						failing(now)(machine)
						Annotation(prefix+"timeout", "30m")(machine)
					}
					objects = append(objects, machine, node)
				}
			}
			s := &steady{environment: newEnvironment(holder, objects...), deployments: names, due: map[string][]time.Time{}}
			s.settleAll(ctx)

			// What had begun comes to rest. The requeues of before stay in the queue.
			for node, reason := range map[string]string{"m-0-0": "Drained", "m-1-0": "DrainBlocked"} {
				drained := s.node(ctx, node)
				preservation.SetDrainProgress(drained, reason, "Pods: 1 terminating.", false, now)
				Expect(s.shoot.Status().Update(ctx, drained)).To(Succeed())
			}
			s.editMachine(ctx, "m-3-0", Phase(machinev1alpha1.MachineRunning, now))
			s.editMachine(ctx, "m-4-0", Phase(machinev1alpha1.MachineRunning, now), func(m *machinev1alpha1.Machine) {
				if m.Status.CurrentStatus.PreserveExpiryTime != nil {
					ExpiryInStatus(now.Add(48 * time.Hour))(m)
				} else {
					Annotation(prefix+"expiry-time", "2026-03-03T13:00:00Z")(m)
				}
			})
			s.settleAll(ctx)
			preserved := 0
			for d := range 5 {
				for key := range s.machine(ctx, fmt.Sprintf("m-%d-0", d)).Annotations {
					if key == prefix+"cause" {
						preserved++
					}
				}
			}
			Expect(preserved).To(Equal(5))

			s.api.writes, s.served = nil, 0
			s.recorder.take()
			for range 12 {
				s.advance(ctx, s.now().Add(5*time.Minute))
				s.heartbeat(ctx)
			}
			Expect(s.now()).To(Equal(now.Add(time.Hour)))
			Expect(s.served).To(BeNumerically(">=", 2), "the deadline of one and the old expiry of another have passed")
			Expect(s.enqueued).To(BeZero())
			// Whatever else may bring them about.
			for _, deployment := range names {
				s.serve(ctx, deployment)
			}
			s.restart()
			for _, deployment := range names {
				s.serve(ctx, deployment)
			}
			Expect(s.api.written()).To(BeEmpty())
			Expect(s.recorder.take()).To(BeEmpty())
		})
	}
})
