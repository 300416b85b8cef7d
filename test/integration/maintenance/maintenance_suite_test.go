// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"context"
	"testing"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/cmd/machine-preservation-controller/app"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/sidecar"
)

func TestMaintenance(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Test Integration Maintenance Suite")
}

var (
	// s is the seed and the shoot.
	s *sidecar.Server
	// running is the sidecar.
	running *environment.Running
)

var _ = BeforeSuite(func(ctx SpecContext) {
	s = sidecar.Start(ctx, sidecar.Generations["machine-controller-manager 0.62"])
	pool := builder.Deployment("pool", func(d *machinev1alpha1.MachineDeployment) { d.Spec.Replicas = 10 })
	create(ctx, pool)
	set := builder.Set("pool-1", pool, builder.Revision("1"))
	create(ctx, set)
	for _, name := range nodeNames {
		create(ctx, builder.Machine(name, builder.Of(set)), builder.Node(name))
	}

	// No resource definitions are there yet (M17).
	cmd := app.NewCommand()
	cmd.SetArgs([]string{
		"--namespace=" + builder.Namespace, "--control-kubeconfig=" + s.Kubeconfig, "--target-kubeconfig=" + s.Kubeconfig,
		"--holder=preserve-expiry", "--metrics-bind-address=0", "--health-probe-bind-address=" + environment.FreeAddress(), "--node-maintenance", "--node-maintenance-max-overtime=3s",
	})
	running = environment.Run(context.WithoutCancel(ctx), cmd.ExecuteContext)
})

// nodeNames are those of the nodes that have a machine.
var nodeNames = []string{"worker-01", "worker-02", "worker-03", "worker-04", "worker-05"}

func create(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		status := object.DeepCopyObject().(client.Object)
		object.SetUID("")
		Expect(s.Create(ctx, object)).To(Succeed())
		switch object := object.(type) {
		case *machinev1alpha1.Machine:
			object.Status = status.(*machinev1alpha1.Machine).Status
			Expect(client.IgnoreNotFound(s.Status().Update(ctx, object))).To(Succeed())
		case *corev1.Node:
			object.Status = status.(*corev1.Node).Status
			Expect(s.Status().Update(ctx, object)).To(Succeed())
		}
	}
}
