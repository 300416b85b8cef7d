// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package landscape_test

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/binaries"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/cluster"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/kwok"
)

func TestLandscape(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Test Integration Landscape Suite")
}

var c client.Client

// The shoot of a landscape, without machine-controller-manager.
var _ = BeforeSuite(func(ctx SpecContext) {
	dir := GinkgoT().TempDir()
	log := func(component string) string { return filepath.Join(dir, component+".log") }
	paths, err := binaries.Ensure(ctx, GinkgoWriter, binaries.Etcd, binaries.Kubernetes, binaries.Kwok)
	Expect(err).NotTo(HaveOccurred())

	started, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	etcd, err := cluster.StartEtcd(started, paths["etcd"], filepath.Join(dir, "etcd"), log("etcd"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(etcd.Stop)
	shoot, err := cluster.StartAPIServer(started, cluster.APIServerOptions{
		Name:       "shoot",
		Path:       paths["kube-apiserver"],
		Etcd:       etcd,
		Dir:        dir,
		Kubeconfig: filepath.Join(dir, "kubeconfig"),
		LogFile:    log("kube-apiserver"),
	})
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(shoot.Stop)
	controllerManager, err := shoot.StartControllerManager(started, paths["kube-controller-manager"], log("kube-controller-manager"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(controllerManager.Stop)
	scheduler, err := shoot.StartScheduler(started, paths["kube-scheduler"], log("kube-scheduler"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(scheduler.Stop)
	kubelets, err := kwok.Start(paths["kwok"], shoot.Kubeconfig, dir, log("kwok"))
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(kubelets.Stop)

	c, err = client.New(shoot.Config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
}, NodeTimeout(30*time.Minute))
