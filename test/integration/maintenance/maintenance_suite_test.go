// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	logzap "sigs.k8s.io/controller-runtime/pkg/log/zap"

	"github.com/gardener/gardener-extension-machine-preservation/cmd/machine-preservation-controller/app"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/binaries"
)

func TestMaintenance(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Test Integration Maintenance Suite")
}

// The kube-apiserver is the seed and the shoot.
var (
	restConfig *rest.Config
	// c is the client of an administrator, without a cache.
	c client.WithWatch
	// ended is how the sidecar ends, if it does.
	ended chan error
)

var _ = BeforeSuite(func(ctx SpecContext) {
	logf.SetLogger(logzap.New(logzap.UseDevMode(true), logzap.WriteTo(GinkgoWriter)))
	module, err := binaries.Source(ctx, binaries.MCM062, "github.com/gardener/machine-controller-manager")
	Expect(err).NotTo(HaveOccurred())
	testEnv := &envtest.Environment{
		CRDDirectoryPaths:        []string{filepath.Join(module.Dir, "kubernetes", "crds")},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: environment.StartTimeout,
	}
	restConfig, err = testEnv.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(testEnv.Stop)
	restConfig.QPS, restConfig.Burst = 1000, 2000

	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, machinev1alpha1.AddToScheme, v1alpha1.AddToScheme} {
		Expect(add(s)).To(Succeed())
	}
	c, err = client.NewWithWatch(restConfig, client.Options{Scheme: s})
	Expect(err).NotTo(HaveOccurred())
	create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: builder.Namespace}})
	pool := builder.Deployment("pool", func(d *machinev1alpha1.MachineDeployment) { d.Spec.Replicas = 10 })
	create(ctx, pool)
	set := builder.Set("pool-1", pool, builder.Revision("1"))
	create(ctx, set)
	for _, name := range nodeNames {
		create(ctx, builder.Machine(name, builder.Of(set)), builder.Node(name))
	}

	// No resource definitions are there yet (M17).
	kubeconfig := filepath.Join(GinkgoT().TempDir(), "kubeconfig")
	Expect(os.WriteFile(kubeconfig, testEnv.KubeConfig, 0o600)).To(Succeed())
	cmd := app.NewCommand()
	cmd.SetArgs([]string{
		"--namespace=" + builder.Namespace, "--control-kubeconfig=" + kubeconfig, "--target-kubeconfig=" + kubeconfig,
		"--holder=preserve-expiry", "--metrics-bind-address=0", "--health-probe-bind-address=" + environment.FreeAddress(), "--node-maintenance", "--node-maintenance-max-overtime=3s",
	})
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended = make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(running) }()
	DeferCleanup(func() {
		cancel()
		Eventually(ended).WithTimeout(environment.StopTimeout).Should(Receive(BeNil()))
	})
})

// nodeNames are those of the nodes that have a machine.
var nodeNames = []string{"worker-01", "worker-02", "worker-03", "worker-04", "worker-05"}

func create(ctx context.Context, objects ...client.Object) {
	GinkgoHelper()
	for _, object := range objects {
		status := object.DeepCopyObject().(client.Object)
		object.SetUID("")
		Expect(c.Create(ctx, object)).To(Succeed())
		switch object := object.(type) {
		case *machinev1alpha1.Machine:
			object.Status = status.(*machinev1alpha1.Machine).Status
			Expect(client.IgnoreNotFound(c.Status().Update(ctx, object))).To(Succeed())
		case *corev1.Node:
			object.Status = status.(*corev1.Node).Status
			Expect(c.Status().Update(ctx, object)).To(Succeed())
		}
	}
}
