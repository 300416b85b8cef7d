// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

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

	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/binaries"
)

func TestPreservation(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Test Integration Preservation Suite")
}

var _ = BeforeSuite(func() {
	logf.SetLogger(logzap.New(logzap.UseDevMode(true), logzap.WriteTo(GinkgoWriter)))
})

// generation is one of machine-controller-manager.
type generation struct {
	// module is the tools module that has its resource definitions.
	module string
	holder preservation.Holder
	// flag is the holder as the command takes it.
	flag string
}

var generations = map[string]generation{
	"machine-controller-manager 0.61": {binaries.MCM061, preservation.HealthTimer{}, "health-timer"},
	"machine-controller-manager 0.62": {binaries.MCM062, preservation.PreserveExpiry{}, "preserve-expiry"},
}

// server is a kube-apiserver that is the seed and the shoot.
type server struct {
	config     *rest.Config
	kubeconfig string
	// Client is that of an administrator, without a cache.
	client.Client
}

// start starts a kube-apiserver with the resource definitions of a generation. It stops after the container.
func start(ctx context.Context, g generation) *server {
	GinkgoHelper()
	module, err := binaries.Source(ctx, g.module, "github.com/gardener/machine-controller-manager")
	Expect(err).NotTo(HaveOccurred())

	testEnv := &envtest.Environment{
		CRDDirectoryPaths:        []string{filepath.Join(module.Dir, "kubernetes", "crds")},
		ErrorIfCRDPathMissing:    true,
		ControlPlaneStartTimeout: environment.StartTimeout,
	}
	config, err := testEnv.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(testEnv.Stop)
	// The tests must not wait for themselves.
	config.QPS, config.Burst = 1000, 2000

	s := &server{config: config, kubeconfig: filepath.Join(GinkgoT().TempDir(), "kubeconfig")}
	Expect(os.WriteFile(s.kubeconfig, testEnv.KubeConfig, 0o600)).To(Succeed())
	s.Client, err = client.New(config, client.Options{Scheme: newScheme()})
	Expect(err).NotTo(HaveOccurred())
	Expect(s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: builder.Namespace}})).To(Succeed())
	return s
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	Expect(scheme.AddToScheme(s)).To(Succeed())
	Expect(machinev1alpha1.AddToScheme(s)).To(Succeed())
	return s
}
