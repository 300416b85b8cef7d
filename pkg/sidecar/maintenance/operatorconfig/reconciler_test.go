// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package operatorconfig_test

import (
	"context"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance/operatorconfig"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = DescribeTable("M17: should say of each configuration whether it counts, once",
	func(ctx SpecContext, namespace, name string, limit intstr.IntOrString, status metav1.ConditionStatus, reason, message string) {
		config := &v1alpha1.MaintenanceOperatorConfig{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 3},
			Spec:       v1alpha1.MaintenanceOperatorConfigSpec{MaxParallelOperations: &limit},
		}
		scheme := runtime.NewScheme()
		Expect(v1alpha1.AddToScheme(scheme)).To(Succeed())
		writes := 0
		c := fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(config).WithStatusSubresource(config).WithInterceptorFuncs(interceptor.Funcs{
			SubResourcePatch: func(ctx context.Context, c client.Client, subResource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
				writes++
				return c.SubResource(subResource).Patch(ctx, obj, patch, opts...)
			},
		}).Build()
		recorder := events.NewFakeRecorder(10)
		r := &Reconciler{Shoot: c, Clock: testclock.NewFakePassiveClock(builder.Start), Recorder: recorder}
		for range 2 {
			Expect(r.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(config)})).To(BeZero())
		}
		Expect(writes).To(Equal(1))
		after := &v1alpha1.MaintenanceOperatorConfig{}
		Expect(c.Get(ctx, client.ObjectKeyFromObject(config), after)).To(Succeed())
		Expect(after.Spec).To(Equal(config.Spec))
		Expect(after.Status.Conditions).To(ConsistOf(SatisfyAll(
			HaveField("Type", "Used"), HaveField("Status", status), HaveField("Reason", reason), HaveField("Message", message), HaveField("ObservedGeneration", int64(3)),
		)))
		if status == metav1.ConditionTrue {
			Expect(recorder.Events).NotTo(Receive())
		} else {
			Expect(recorder.Events).To(Receive(Equal("Warning MaintenanceConfigNotUsed " + message)))
			Expect(recorder.Events).NotTo(Receive())
		}
	},
	Entry("the one that does", "kube-system", "default", intstr.FromInt32(1), metav1.ConditionTrue, "Used", "These limits apply."),
	Entry("another name", "kube-system", "other", intstr.FromInt32(1), metav1.ConditionFalse, "Elsewhere", elsewhere),
	Entry("another namespace", "nvidia-maintenance-operator", "default", intstr.FromInt32(1), metav1.ConditionFalse, "Elsewhere", elsewhere),
	Entry("limits that cannot be read", "kube-system", "default", intstr.FromString("many"), metav1.ConditionFalse, "Invalid",
		`No maintenance is scheduled, because the limits are not valid: maxParallelOperations: invalid value for IntOrString: invalid type: string is not a percentage.`),
)

const elsewhere = "This object has no effect. The limits are those of kube-system/default. Set them in the Shoot."
