// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/explain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("What explain and drain-forecast read", func() {
	var (
		ctx   = context.Background()
		at    = Start.Add(time.Hour)
		calls int
		deny  func(list client.ObjectList) error
	)
	BeforeEach(func() { calls, deny = 0, func(client.ObjectList) error { return nil } })

	reader := func(objects ...client.Object) client.Reader {
		return apiServer(objects...).WithInterceptorFuncs(interceptor.Funcs{
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				calls++
				return c.Get(ctx, key, object, opts...)
			},
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				calls++
				if err := deny(list); err != nil {
					return err
				}
				return c.List(ctx, list, opts...)
			},
		}).Build()
	}
	note := func(namespace, kind, name string) *eventsv1.Event {
		return &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: kind + name}, Reason: "MachinePreservationRefused", Action: "NoVM", EventTime: metav1.NewMicroTime(at),
			Regarding: corev1.ObjectReference{Kind: kind, Name: name}, Note: "Machine is not preserved because it has no VM"}
	}
	node := Node("m", NodeAnnotation(v1alpha1.AnnotationPreserve, "yes"))
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", Labels: map[string]string{"app": "web"}}, Spec: corev1.PodSpec{NodeName: "m"}}
	budget := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}}}
	shoot := func() client.Reader {
		return reader(node.DeepCopy(), Node("other"), note("default", "Node", "m"), note("default", "Node", "other"), pod.DeepCopy(), budget.DeepCopy(),
			&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "bank", Name: "web"}, Spec: corev1.PodSpec{NodeName: "other"}})
	}
	seed := func(controller string) client.Reader {
		deployment := Deployment("pool", Share("1"))
		set := Set("set", deployment)
		machine := Machine("m", func(m *machinev1alpha1.Machine) {
			m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, machinev1alpha1.SchemeGroupVersion.WithKind("MachineSet"))}
		})
		mcm := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "machine-controller-manager"}}
		mcm.Spec.Template.Spec.Containers = []corev1.Container{{Name: "machine-controller-manager"}, {Name: controller, Args: []string{"--holder=health-timer", "--machine-drain-timeout=1h"}}}
		return reader(deployment, set, machine, mcm, note(Namespace, "Machine", "m"))
	}

	from := func(shoot, seed client.Reader) evidence.Sources {
		return evidence.Sources{Clock: testclock.NewFakePassiveClock(at), Name: "m", Shoot: shoot, Seed: seed, SeedNamespace: Namespace}
	}

	It("should be three calls with the rights of a viewer of nodes", func() {
		s, err := readExplained(ctx, from(shoot(), nil))
		Expect(err).NotTo(HaveOccurred())
		Expect(calls).To(Equal(3))
		Expect(s.Shoot.Nodes).To(HaveLen(1))
		Expect(s.Shoot.Events).To(ConsistOf(HaveField("Regarding.Name", "m")))
		Expect(s.Shoot.HasMaintenances).To(BeTrue())
		Expect(s.Missing).To(BeEmpty())
		_, err = explain.Explain(s, "m", at)
		Expect(err).NotTo(HaveOccurred())
	})

	It("should note what is denied, and do without an API that the shoot has not", func() {
		deny = func(list client.ObjectList) error {
			if _, ok := list.(*eventsv1.EventList); ok {
				return errors.New("events are forbidden")
			}
			return apierrors.NewNotFound(schema.GroupResource{Resource: "nodemaintenances"}, "")
		}
		s, err := readExplained(ctx, from(shoot(), nil))
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Missing).To(ConsistOf(observed.Missing{Thing: observed.WhatNodeEvents, Reason: "events are forbidden"}))
		Expect(s.Shoot.HasMaintenances).To(BeFalse())
		sentences, err := explain.Explain(s, "m", at)
		Expect(err).NotTo(HaveOccurred())
		Expect(sentences).To(ContainElement(HaveField("Text", "The Events of the node: events are forbidden.")))
		Expect(sentences).NotTo(ContainElement(HaveField("Text", ContainSubstring("maintenance:"))))
	})

	It("should fail without the node, or without the machines where these are asked for", func() {
		_, err := readExplained(ctx, evidence.Sources{Clock: testclock.NewFakePassiveClock(at), Name: "x", Shoot: shoot()})
		Expect(err).To(MatchError(ContainSubstring(`node "x" does not exist: see`)))
		deny = func(client.ObjectList) error { return errors.New("machines are forbidden") }
		_, err = readExplained(ctx, from(shoot(), seed("")))
		Expect(err).To(MatchError("failed to read the machines of namespace shoot--test--one of the seed: machines are forbidden"))
	})

	It("should be what the seed knows as well", func() {
		s, err := readExplained(ctx, from(shoot(), seed(preservationcontroller.Name)))
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Seed.Controller).To(Equal(&observed.Controller{Injected: true, Args: []string{"--holder=health-timer", "--machine-drain-timeout=1h"}}))
		Expect(s.Seed.Events).To(HaveLen(1))
		Expect(s.Shoot.Nodes).To(HaveLen(2))
		sentences, err := explain.Explain(s, "m", at)
		Expect(err).NotTo(HaveOccurred())
		Expect(sentences).To(ContainElement(And(HaveField("Rule", "R3"), HaveField("Text", ContainSubstring("is ignored because it is not valid")))))

		s, err = readExplained(ctx, from(shoot(), seed("other")))
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Seed.Controller).To(Equal(&observed.Controller{}))
	})

	It("should be the Events of the machine's node, whether the machine or the node is named", func() {
		machine := Machine("m", func(m *machinev1alpha1.Machine) { m.Labels["node"] = "ip-1" })
		for _, name := range []string{"m", "ip-1"} {
			sources := from(reader(Node("ip-1"), note("default", "Node", "ip-1")), reader(machine.DeepCopy(), note(Namespace, "Machine", "m")))
			sources.Name = name
			s, err := readExplained(ctx, sources)
			Expect(err).NotTo(HaveOccurred())
			Expect(s.Shoot.Events).To(ConsistOf(HaveField("Regarding.Name", "ip-1")))
			Expect(s.Seed.Events).To(ConsistOf(HaveField("Regarding.Name", "m")))
		}
	})

	It("should explain with the seed while the shoot is away", func() {
		s, err := readExplained(ctx, from(away{}, seed(preservationcontroller.Name)))
		Expect(err).NotTo(HaveOccurred())
		sentences, err := explain.Explain(s, "m", at)
		Expect(err).NotTo(HaveOccurred())
		Expect(sentences).To(ContainElement(HaveField("Text", "The other nodes of the MachineDeployment: connection refused.")))
	})

	It("should be the node, its pods, and the budgets of their namespaces", func() {
		s, err := readForecast(ctx, from(shoot(), nil))
		Expect(err).NotTo(HaveOccurred())
		Expect(calls).To(Equal(3))
		Expect(s.Shoot.Pods).To(HaveLen(1))
		Expect(s.Shoot.PodDisruptionBudgets).To(HaveLen(1))
		s, err = readForecast(ctx, from(shoot(), seed(preservationcontroller.Name)))
		Expect(err).NotTo(HaveOccurred())
		forecast, err := explain.DrainForecastOf(s, "m", explain.ForecastOptions{}, at)
		Expect(err).NotTo(HaveOccurred())
		Expect(forecast.Drains[0].Steps).To(ConsistOf(
			And(HaveField("Action", "evict"), HaveField("Outcome", "refused"), HaveField("Obstacles", ConsistOf("budget web allows 0 disruptions (0 pods are healthy, it needs 0)"))),
			And(HaveField("Action", "delete by force"), HaveField("After.Duration", time.Hour)),
		))
	})
})

// away is an API server that does not answer.
type away struct{}

func (away) Get(context.Context, client.ObjectKey, client.Object, ...client.GetOption) error {
	return errors.New("connection refused")
}

func (away) List(context.Context, client.ObjectList, ...client.ListOption) error {
	return errors.New("connection refused")
}
