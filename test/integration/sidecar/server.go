// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package sidecar runs the controllers of the sidecar against a kube-apiserver that is the seed and the shoot.
package sidecar

import (
	"context"
	"os"
	"path/filepath"
	"time"

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

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/binaries"
)

// Generation is one of machine-controller-manager.
type Generation struct {
	// Module is the tools module that has its resource definitions.
	Module string
	Holder preservation.Holder
	// Flag is the holder as the command takes it.
	Flag string
}

// Generations are those that the sidecar works with.
var Generations = map[string]Generation{
	"machine-controller-manager 0.61": {binaries.MCM061, preservation.HealthTimer{}, "health-timer"},
	"machine-controller-manager 0.62": {binaries.MCM062, preservation.PreserveExpiry{}, "preserve-expiry"},
}

// LeavesAlone says that the machine is not terminated now, as this generation of machine-controller-manager decides it.
func (g Generation) LeavesAlone(machine *machinev1alpha1.Machine, healthTimeout time.Duration, now time.Time) bool {
	status := machine.Status.CurrentStatus
	failed := now.Sub(status.LastUpdateTime.Time) > healthTimeout
	if _, old := g.Holder.(preservation.HealthTimer); old {
		return !failed
	}
	return !failed || machine.Annotations["node.machine.sapcloud.io/preserve"] == "now" && status.PreserveExpiryTime != nil && status.PreserveExpiryTime.After(now)
}

// Server is a kube-apiserver that is the seed and the shoot.
type Server struct {
	Config     *rest.Config
	Kubeconfig string
	// WithWatch is the client of an administrator, without a cache.
	client.WithWatch
}

// Start sets logging up, and starts a kube-apiserver with the resource definitions of a generation. It stops after the container.
func Start(ctx context.Context, g Generation) *Server {
	GinkgoHelper()
	environment.SetLogger()
	module, err := binaries.Source(ctx, g.Module, "github.com/gardener/machine-controller-manager")
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

	s := &Server{Config: config, Kubeconfig: filepath.Join(GinkgoT().TempDir(), "kubeconfig")}
	Expect(os.WriteFile(s.Kubeconfig, testEnv.KubeConfig, 0o600)).To(Succeed())
	s.WithWatch, err = client.NewWithWatch(config, client.Options{Scheme: newScheme()})
	Expect(err).NotTo(HaveOccurred())
	Expect(s.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: builder.Namespace}})).To(Succeed())
	return s
}

func newScheme() *runtime.Scheme {
	s := runtime.NewScheme()
	Expect(scheme.AddToScheme(s)).To(Succeed())
	Expect(machinev1alpha1.AddToScheme(s)).To(Succeed())
	Expect(maintenancev1alpha1.AddToScheme(s)).To(Succeed())
	return s
}
