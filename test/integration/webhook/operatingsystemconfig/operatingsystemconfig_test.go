// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package operatingsystemconfig_test

import (
	"os"
	"path/filepath"
	"testing"

	extensionswebhook "github.com/gardener/gardener/extensions/pkg/webhook"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

func TestOperatingSystemConfig(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Operating System Config Webhook Integration Suite")
}

var env *environment.Environment

var _ = BeforeSuite(func() {
	config := filepath.Join(GinkgoT().TempDir(), "config.yaml")
	Expect(os.WriteFile(config, []byte(`apiVersion: config.machine-preservation.extensions.gardener.cloud/v1alpha1
kind: ControllerConfiguration
evidence:
  enabled: true
`), 0o600)).To(Succeed())
	env = environment.StartAll("--config=" + config)
})

var _ = Describe("OperatingSystemConfig", func() {
	const (
		kubelet = "/var/lib/kubelet/config/kubelet"
		before  = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\ncgroupDriver: systemd\n"
	)

	// write has the API server store what gardenlet writes, and returns what was stored.
	write := func(ctx SpecContext, config *extensionsv1alpha1.OperatingSystemConfig) *extensionsv1alpha1.OperatingSystemConfig {
		GinkgoHelper()
		written := config.DeepCopy()
		if err := env.Client.Get(ctx, client.ObjectKeyFromObject(config), written); client.IgnoreNotFound(err) != nil {
			Expect(err).NotTo(HaveOccurred())
		} else if err == nil {
			config.Spec.DeepCopyInto(&written.Spec)
			Expect(env.Client.Update(ctx, written)).To(Succeed())
			return written
		}
		Expect(env.Client.Create(ctx, written)).To(Succeed())
		return written
	}
	newConfig := func(namespace string, purpose extensionsv1alpha1.OperatingSystemConfigPurpose) *extensionsv1alpha1.OperatingSystemConfig {
		return &extensionsv1alpha1.OperatingSystemConfig{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: string(purpose), Labels: map[string]string{"worker.gardener.cloud/pool": "pool"}},
			Spec: extensionsv1alpha1.OperatingSystemConfigSpec{
				DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: "gardenlinux"}, Purpose: purpose,
				Files: []extensionsv1alpha1.File{{Path: kubelet, Content: extensionsv1alpha1.FileContent{Inline: &extensionsv1alpha1.FileContentInline{Data: before}}}},
				Units: []extensionsv1alpha1.Unit{{Name: "kubelet.service", Content: new("[Service]\nExecStart=/opt/bin/kubelet\n"), FilePaths: []string{kubelet}}},
			},
		}
	}
	contentOf := func(config *extensionsv1alpha1.OperatingSystemConfig) string {
		return extensionswebhook.FileWithPath(config.Spec.Files, kubelet).Content.Inline.Data
	}
	enable := func(ctx SpecContext, namespace, evidence string) {
		GinkgoHelper()
		extension := environment.NewExtension(namespace)
		extension.Spec.ProviderConfig = environment.ProviderConfig(`,"evidence":` + evidence)
		if err := env.Client.Create(ctx, extension); err != nil {
			Expect(env.Client.Patch(ctx, extension, client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"providerConfig":`+string(extension.Spec.ProviderConfig.Raw)+`}}`)))).To(Succeed())
		}
	}

	It("should have nodes give out their logs where the Shoot asks for that, as long as it does", func(ctx SpecContext) {
		namespace := env.CreateShootNamespace(ctx, true)
		env.CreateCluster(ctx, namespace, gardencorev1beta1.Worker{Name: "pool", Maximum: 3})
		reconcile := newConfig(namespace, extensionsv1alpha1.OperatingSystemConfigPurposeReconcile)
		enable(ctx, namespace, `{"enabled":true}`)
		Expect(contentOf(write(ctx, reconcile))).To(Equal(before))

		enable(ctx, namespace, `{"enabled":true,"nodeLogs":true}`)
		Eventually(func() string { return contentOf(write(ctx, reconcile)) }).Should(And(
			ContainSubstring("enableSystemLogQuery: true"), ContainSubstring("NodeLogQuery: true"), ContainSubstring("cgroupDriver: systemd")))
		stored := write(ctx, reconcile)
		Expect(stored.Spec.Units).To(HaveLen(3))
		Expect(stored.Spec.Files).To(HaveLen(2))
		Expect(write(ctx, reconcile).Generation).To(Equal(stored.Generation), "another reconciliation changes nothing")
		provision := newConfig(namespace, extensionsv1alpha1.OperatingSystemConfigPurposeProvision)
		Expect(write(ctx, provision).Spec).To(Equal(provision.Spec))

		enable(ctx, namespace, `{"enabled":true,"nodeLogs":false}`)
		Eventually(func() extensionsv1alpha1.OperatingSystemConfigSpec { return write(ctx, reconcile).Spec }).Should(Equal(reconcile.Spec))
	})

	It("should leave alone shoots without the extension", func(ctx SpecContext) {
		namespace := env.CreateShootNamespace(ctx, false)
		env.CreateCluster(ctx, namespace, gardencorev1beta1.Worker{Name: "pool", Maximum: 3})
		enable(ctx, namespace, `{"enabled":true,"nodeLogs":true}`)
		reconcile := newConfig(namespace, extensionsv1alpha1.OperatingSystemConfigPurposeReconcile)
		Expect(write(ctx, reconcile).Spec).To(Equal(reconcile.Spec))
	})
})
