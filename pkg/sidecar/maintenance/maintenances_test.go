// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"context"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
)

func newQueue() workqueue.TypedRateLimitingInterface[reconcile.Request] {
	return workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
}

var _ = Describe("Maintenances", func() {
	It("M1, M9: should ask for everything once it is known, whoever dropped requests before", func(ctx SpecContext) {
		nm := maintenance("a", "Ready")
		informer := controllertest.NewFakeInformer()
		m, err := NewFor(fakeclient.NewClientBuilder().WithScheme(newScheme()).WithObjects(nm).Build(), informer, controllertest.NewFakeInformer())
		Expect(err).NotTo(HaveOccurred())
		queue := newQueue()
		defer queue.ShutDown()
		Expect(m.Source(func(_ context.Context, nm *v1alpha1.NodeMaintenance) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(nm)}}
		}).Start(ctx, queue)).To(Succeed())

		informer.Add(nm)
		request, _ := queue.Get()
		Expect(m.Known()).To(BeFalse())
		queue.Done(request) // it is dropped
		Expect(queue.Len()).To(BeZero())
		informer.Synced()
		Eventually(queue.Len).Should(Equal(1))
		again, _ := queue.Get()
		Expect(again).To(Equal(request))
	})

	It("M1: should ask for all others once it is known where one panics", func(ctx SpecContext) {
		informer := controllertest.NewFakeInformer()
		m, err := NewFor(fakeclient.NewClientBuilder().WithScheme(newScheme()).WithObjects(maintenance("a", "Ready"), maintenance("b", "Ready")).Build(), informer, controllertest.NewFakeInformer())
		Expect(err).NotTo(HaveOccurred())
		queue := newQueue()
		defer queue.ShutDown()
		Expect(m.Source(func(_ context.Context, nm *v1alpha1.NodeMaintenance) []reconcile.Request {
			if nm.Name == "a" {
				panic("what is this")
			}
			return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(nm)}}
		}).Start(ctx, queue)).To(Succeed())
		m.WhenKnown(ctx, func() { panic("what is this") })
		informer.Synced()
		Eventually(queue.Len).Should(Equal(1))
	})

	It("M9, M17: should ask once more when all configurations are known, because nobody knows the one that counts before", func(ctx SpecContext) {
		counts := &v1alpha1.MaintenanceOperatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "default"}}
		informer, queue := controllertest.NewFakeInformer(), newQueue()
		defer queue.ShutDown()
		m, err := NewFor(fakeclient.NewClientBuilder().WithScheme(newScheme()).WithObjects(counts).Build(), controllertest.NewFakeInformer(), informer)
		Expect(err).NotTo(HaveOccurred())
		Expect(m.ConfigSource(func(context.Context) []reconcile.Request { return []reconcile.Request{{}} }).Start(ctx, queue)).To(Succeed())
		informer.Add(counts)
		request, _ := queue.Get()
		Expect(m.Config(ctx)).To(BeNil())
		queue.Done(request)
		informer.Synced()
		Eventually(queue.Len).Should(Equal(1))
		Expect(m.Config(ctx)).NotTo(BeNil())
	})

	It("M17: should keep next to nothing of a configuration that does not count, and ask for nothing because of it", func(ctx SpecContext) {
		var transform func(any) (any, error)
		for object, by := range ByObject() {
			if _, ok := object.(*v1alpha1.MaintenanceOperatorConfig); ok {
				transform = by.Transform
				Expect(by.Namespaces).To(BeEmpty(), "they are told that they do not count")
			}
		}
		configOf := func(namespace string) *v1alpha1.MaintenanceOperatorConfig {
			return &v1alpha1.MaintenanceOperatorConfig{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "default", UID: "uid", ResourceVersion: "1", Generation: 2, Annotations: map[string]string{"a": strings.Repeat("b", 1000)}},
				Spec:       v1alpha1.MaintenanceOperatorConfigSpec{LogLevel: v1alpha1.LogLevelDebug},
			}
		}
		elsewhere, counts := configOf("default"), configOf("kube-system")
		Expect(transform(elsewhere)).To(Equal(&v1alpha1.MaintenanceOperatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default", UID: "uid", ResourceVersion: "1", Generation: 2}}))
		Expect(transform(counts)).To(Equal(configOf("kube-system")))

		config := controllertest.NewFakeInformer()
		m, err := NewFor(nil, controllertest.NewFakeInformer(), config)
		Expect(err).NotTo(HaveOccurred())
		queue, all := newQueue(), newQueue()
		defer queue.ShutDown()
		defer all.ShutDown()
		Expect(m.ConfigSource(func(context.Context) []reconcile.Request { return []reconcile.Request{{}} }).Start(ctx, queue)).To(Succeed())
		Expect(m.ConfigsSource(func(context.Context, *v1alpha1.MaintenanceOperatorConfig) []reconcile.Request {
			return []reconcile.Request{{}}
		}).Start(ctx, all)).To(Succeed())
		config.Add(elsewhere)
		Expect(all.Len()).To(Equal(1))
		Expect(queue.Len()).To(BeZero())
		config.Add(counts)
		Expect(queue.Len()).To(Equal(1))
	})

	It("M10: should ask for nothing because of what is written on the configuration beside its limits, as each round of scheduling does", func(ctx SpecContext) {
		config := controllertest.NewFakeInformer()
		m, err := NewFor(nil, controllertest.NewFakeInformer(), config)
		Expect(err).NotTo(HaveOccurred())
		queue, all := newQueue(), newQueue()
		defer queue.ShutDown()
		defer all.ShutDown()
		Expect(m.ConfigSource(func(context.Context) []reconcile.Request { return []reconcile.Request{{}} }).Start(ctx, queue)).To(Succeed())
		Expect(m.ConfigsSource(func(context.Context, *v1alpha1.MaintenanceOperatorConfig) []reconcile.Request {
			return []reconcile.Request{{}}
		}).Start(ctx, all)).To(Succeed())
		before := &v1alpha1.MaintenanceOperatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "default", UID: "a", Generation: 1}}
		asks := func(edit func(*v1alpha1.MaintenanceOperatorConfig)) bool {
			after := before.DeepCopy()
			edit(after)
			config.Update(before, after)
			Expect(all.Len()).To(Equal(1), "what is said of each configuration is written on it again")
			if queue.Len() == 0 {
				return false
			}
			request, _ := queue.Get()
			queue.Done(request)
			return true
		}
		Expect(asks(func(c *v1alpha1.MaintenanceOperatorConfig) {
			c.Annotations = map[string]string{"machine-preservation.extensions.gardener.cloud/scheduling-round": "uid:1"}
		})).To(BeFalse(), "a round")
		Expect(asks(func(c *v1alpha1.MaintenanceOperatorConfig) {
			c.Status.Conditions = []metav1.Condition{{Type: "Used", Status: metav1.ConditionTrue}}
		})).To(BeFalse(), "what is said of it")
		Expect(asks(func(c *v1alpha1.MaintenanceOperatorConfig) {
			c.Generation, c.Spec.MaxNodeMaintenanceTimeSeconds = 2, new(int32(1))
		})).To(BeTrue(), "a limit")
		Expect(asks(func(c *v1alpha1.MaintenanceOperatorConfig) {
			c.UID, c.Spec.MaxParallelOperations = "b", new(intstr.FromInt32(2))
		})).To(BeTrue(), "another one, of whose beginning a watch that was away does not know")
		config.Delete(before)
		Expect(queue.Len()).To(Equal(1), "none any more")
	})

	DescribeTable("M17: the messages that the configuration asks for", func(level v1alpha1.LogLevel, debug, info bool) {
		config := controllertest.NewFakeInformer()
		m, err := NewFor(nil, controllertest.NewFakeInformer(), config)
		Expect(err).NotTo(HaveOccurred())
		log := m.Log("controller")(nil)
		Expect(log.Enabled()).To(BeTrue())
		Expect(log.V(1).Enabled()).To(BeFalse())

		configOf := func(name string, level v1alpha1.LogLevel) *v1alpha1.MaintenanceOperatorConfig {
			return &v1alpha1.MaintenanceOperatorConfig{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: name}, Spec: v1alpha1.MaintenanceOperatorConfigSpec{LogLevel: level}}
		}
		config.Add(configOf("default", level))
		config.Add(configOf("other", v1alpha1.LogLevelInfo)) // it does not count
		Expect(log.V(1).Enabled()).To(Equal(debug))
		Expect(log.Enabled()).To(Equal(info))
		config.Update(configOf("default", level), configOf("default", v1alpha1.LogLevelInfo))
		Expect(log.V(1).Enabled()).To(BeFalse())
		Expect(log.Enabled()).To(BeTrue())
	},
		Entry("debug", v1alpha1.LogLevelDebug, true, true),
		Entry("info", v1alpha1.LogLevelInfo, false, true),
		Entry("error", v1alpha1.LogLevelError, false, false),
		Entry("one that does not exist", v1alpha1.LogLevel("trace"), false, true),
	)
})
