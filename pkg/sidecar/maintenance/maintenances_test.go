// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
)

var _ = Describe("Maintenances", func() {
	It("M1, M9: should ask for everything once it is known, whoever dropped requests before", func(ctx SpecContext) {
		nm := maintenance("a", "Ready")
		informer := controllertest.NewFakeInformer()
		m, err := NewFor(fakeclient.NewClientBuilder().WithScheme(newScheme()).WithObjects(nm).Build(), informer, controllertest.NewFakeInformer())
		Expect(err).NotTo(HaveOccurred())
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
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
