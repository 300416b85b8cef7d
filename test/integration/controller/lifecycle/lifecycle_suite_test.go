// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

func TestLifecycle(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Lifecycle Controller Integration Suite")
}

var env *environment.Environment

var _ = BeforeSuite(func(ctx SpecContext) {
	GinkgoT().Setenv("GARDENER_SHOOT_CLIENT", "external") // there is no network of a seed
	config := filepath.Join(GinkgoT().TempDir(), "config.yaml")
	Expect(os.WriteFile(config, []byte(`{"apiVersion":"config.machine-preservation.extensions.gardener.cloud/v1alpha1","kind":"ControllerConfiguration",`+
		`"hosts":{"kind":"BareMetalHost","kubeconfigSecretName":"`+hostSecretName+`"}}`), 0o600)).To(Succeed())
	env = environment.StartAll("--config=" + config)
	env.StartResourceManager(context.WithoutCancel(ctx), nil)
	_, err := envtest.InstallCRDs(env.Config, envtest.CRDInstallOptions{
		Paths: []string{filepath.Join("..", "..", "..", "landscape", "hosts", "baremetalhost", "crd.yaml")}, ErrorIfPathMissing: true,
	})
	Expect(err).NotTo(HaveOccurred())
})

// end ends an Extension, and waits until nothing of it is in the shoot any more: all shoots are the same API server.
func end(ctx context.Context, extension *extensionsv1alpha1.Extension) {
	GinkgoHelper()
	Expect(client.IgnoreNotFound(env.Client.Delete(ctx, extension))).To(Succeed())
	resources := &resourcesv1alpha1.ManagedResource{ObjectMeta: metav1.ObjectMeta{Name: "extension-machine-preservation-shoot", Namespace: extension.Namespace}}
	for _, object := range []client.Object{extension, resources} {
		Eventually(func() error { return env.Client.Get(ctx, client.ObjectKeyFromObject(object), object) }).
			WithTimeout(30 * time.Second).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	}
}
