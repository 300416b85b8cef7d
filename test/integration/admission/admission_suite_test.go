// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"os"
	"testing"

	gardenerenvtest "github.com/gardener/gardener/test/envtest"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/gardener/gardener-extension-machine-preservation/cmd/gardener-extension-machine-preservation-admission/app"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

func TestAdmission(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Admission Integration Suite")
}

// namespace is where the admission component is in the runtime cluster.
const namespace = "extension-machine-preservation"

// A garden that is split, as gardener-operator sets it up: the admission component and what it needs is in one cluster,
// Gardener's API is in the other.
var runtimeCluster, garden *cluster

var _ = BeforeSuite(func(ctx SpecContext) {
	environment.SetLogger()
	runtimeEnv := &envtest.Environment{ControlPlaneStartTimeout: environment.StartTimeout}
	_, err := runtimeEnv.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(runtimeEnv.Stop)
	runtimeCluster = newCluster(runtimeEnv)
	Expect(runtimeCluster.client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())

	// All of gardener-apiserver's default admission plugins are enabled.
	gardenEnv := &gardenerenvtest.GardenerTestEnvironment{Environment: &envtest.Environment{
		ControlPlaneStartTimeout: environment.StartTimeout,
		ControlPlaneStopTimeout:  environment.StopTimeout,
	}}
	_, err = gardenEnv.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(gardenEnv.Stop)
	garden = newCluster(gardenEnv.Environment)

	manifest, err := os.ReadFile("testdata/garden.yaml")
	Expect(err).NotTo(HaveOccurred())
	// What refers to another object is refused until gardener-apiserver has seen that one.
	Eventually(func(g Gomega) {
		result := garden.kubectl(string(manifest), "apply", "-f", "-")
		g.Expect(result.err).NotTo(HaveOccurred(), result.stderr)
	}).WithTimeout(environment.StartTimeout).Should(Succeed())
})

// startAdmission runs the admission component, and waits until the API server can call it.
func startAdmission(ctx context.Context) *environment.Running {
	GinkgoHelper()
	return environment.RunCommand(context.WithoutCancel(ctx), app.NewCommand(), func(healthAddress string) []string {
		return append(environment.WebhookFlags(),
			"--kubeconfig="+garden.kubeconfig,
			"--runtime-kubeconfig="+runtimeCluster.kubeconfig,
			"--leader-election-namespace="+namespace,
			"--webhook-config-namespace="+namespace,
			"--webhook-config-owner-namespace=garden",
			"--metrics-bind-address=0",
			"--health-bind-address="+healthAddress,
			"--log-format=text",
		)
	}, func(g Gomega) {
		config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		g.Expect(garden.client.Get(ctx, client.ObjectKey{Name: "gardener-extension-machine-preservation-admission"}, config)).To(Succeed())
		g.Expect(config.Webhooks).To(HaveLen(1))
		g.Expect(config.Webhooks[0].ClientConfig.CABundle).NotTo(BeEmpty())
	})
}
