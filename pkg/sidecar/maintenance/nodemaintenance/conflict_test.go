// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package nodemaintenance_test

import (
	"errors"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Conflicts", func() {
	It("P12: should be no errors, whatever was to be written", func(ctx SpecContext) {
		e := newEnvironment(Node("n"), maintenance("a"))
		e.run(ctx)
		e.schedule(ctx)
		for _, concerns := range []func(client.Object) bool{
			func(object client.Object) bool { _, isNode := object.(*corev1.Node); return isNode },
			func(client.Object) bool { return true },
		} {
			e.fail = func(object client.Object) error {
				if concerns(object) {
					return apierrors.NewConflict(schema.GroupResource{}, object.GetName(), errors.New("the object has been modified"))
				}
				return nil
			}
			result, err := pace.RetryConflicts(e).Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Name: "n"}})
			Expect(err).NotTo(HaveOccurred())
			Expect(result).NotTo(BeZero())
		}
	})
})
