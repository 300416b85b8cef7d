// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package machinecontrollermanager_test

import (
	"context"
	"net"
	"strconv"
	"testing"

	extensionscontroller "github.com/gardener/gardener/extensions/pkg/controller"
	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	"github.com/gardener/gardener/extensions/pkg/webhook/certificates"
	localcontrolplane "github.com/gardener/gardener/pkg/provider-local/webhook/controlplane"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/runtime"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/controller-runtime/pkg/webhook"

	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

func TestMachineControllerManager(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Machine Controller Manager Webhook Integration Suite")
}

var env *environment.Environment

var _ = BeforeSuite(func() {
	ctx := context.Background()
	env = environment.Start(ctx)
	env.StartTokenRequestor(ctx)
	startProvider(ctx)
	env.StartExtension(ctx)
})

// startProvider runs provider-local's webhook. By its name, the API server calls it after ours.
func startProvider(ctx context.Context) {
	GinkgoHelper()
	const name = "provider-local"

	address := environment.FreeAddress()
	host, port, err := net.SplitHostPort(address)
	Expect(err).NotTo(HaveOccurred())
	portNumber, err := strconv.Atoi(port)
	Expect(err).NotTo(HaveOccurred())
	certDir := GinkgoT().TempDir()
	caBundle, err := certificates.GenerateUnmanagedCertificates(name, false, certDir, extensionswebhook.ModeURL, address)
	Expect(err).NotTo(HaveOccurred())

	scheme := runtime.NewScheme()
	Expect(extensionscontroller.AddToScheme(scheme)).To(Succeed())
	Expect(vpaautoscalingv1.AddToScheme(scheme)).To(Succeed())
	mgr, err := manager.New(env.Config, manager.Options{
		Scheme:        scheme,
		Metrics:       metricsserver.Options{BindAddress: "0"},
		WebhookServer: webhook.NewServer(webhook.Options{Host: host, Port: portNumber, CertDir: certDir}),
	})
	Expect(err).NotTo(HaveOccurred())
	provider, err := localcontrolplane.AddToManager(mgr)
	Expect(err).NotTo(HaveOccurred())
	mgr.GetWebhookServer().Register("/"+provider.Path, provider.Webhook)

	configs, _, err := extensionswebhook.BuildWebhookConfigs([]*extensionswebhook.Webhook{provider}, env.Client, "", name, false, portNumber, extensionswebhook.ModeURL, address, caBundle, false)
	Expect(err).NotTo(HaveOccurred())
	Expect(env.Client.Create(ctx, configs.MutatingWebhookConfig)).To(Succeed())

	environment.Run(ctx, mgr.Start)
	Eventually(func() error { return mgr.GetWebhookServer().StartedChecker()(nil) }).WithTimeout(environment.StartTimeout).Should(Succeed())
}
