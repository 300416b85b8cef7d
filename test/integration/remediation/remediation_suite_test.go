// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/drivers"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	sidecarpreservation "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/sidecar"
)

func TestRemediation(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Test Integration Remediation Suite")
}

// patient is for what takes the controller some time.
const patient = time.Minute

// s is the seed, the shoot, and the cluster of the hosts. Its kind of hosts comes with the first test.
var s *sidecar.Server

var _ = BeforeSuite(func(ctx SpecContext) {
	s = sidecar.Start(ctx, sidecar.Generations["machine-controller-manager 0.62"])
	for _, name := range []string{"hosts", "elsewhere"} {
		Expect(s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})).To(Succeed())
	}
	Expect(s.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "default"}})).To(Succeed())
})

// start starts the sidecar, as far as machines are preserved and power-cycled, with the kubeconfig for the hosts.
func start(ctx context.Context, kubeconfig string) *environment.Running {
	GinkgoHelper()
	kind, err := drivers.For("BareMetalHost")
	Expect(err).NotTo(HaveOccurred())
	return sidecar.Run(ctx, s, sidecar.Options{}, func(_ context.Context, m *sidecar.Manager) {
		Expect((&sidecarpreservation.Reconciler{
			Holder: preservation.PreserveExpiry{}, MaxTimeout: v1alpha1.DefaultMaxMachinePreserveTimeout, Timeouts: facts.DefaultTimeouts,
			Remediation: preservation.RemediationOptions{Enabled: true},
		}).AddToManager(m, m.Nodes)).To(Succeed())
		Expect((&remediation.Reconciler{
			Seed: "seed", Leading: &pace.Leading{}, AllowNodes: true, QuietTime: -time.Hour, Timeouts: facts.DefaultTimeouts, NodeConditions: facts.DefaultNodeConditions,
		}).AddToManager(m, m.Nodes, m.Pods, &remediation.Hosts{Kind: kind, Namespace: builder.Namespace, Kubeconfig: kubeconfig, Config: s.Config})).To(Succeed())
	})
}

// kubeconfigOf writes a kubeconfig for the hosts in a namespace.
func kubeconfigOf(file, namespace string) {
	GinkgoHelper()
	kubeconfig, err := clientcmd.LoadFromFile(s.Kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	kubeconfig.Contexts[kubeconfig.CurrentContext].Namespace = namespace
	content, err := clientcmd.Write(*kubeconfig)
	Expect(err).NotTo(HaveOccurred())
	Expect(os.WriteFile(file+".new", content, 0o600)).To(Succeed())
	Expect(os.Rename(file+".new", file)).To(Succeed())
}

func newKubeconfig() string { return filepath.Join(GinkgoT().TempDir(), "kubeconfig") }
