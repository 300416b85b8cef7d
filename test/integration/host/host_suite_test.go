// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"context"
	"net/http"
	"path/filepath"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/drivers"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/ironcore"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/binaries"
)

func TestHost(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Test Integration Host Suite")
}

// namespace has the hosts.
const namespace = "metal"

var (
	testEnv *envtest.Environment
	// c is the client of an administrator, without a cache.
	c client.Client
	// definitions are those of the kinds. The API server does not have them at first.
	definitions []string
)

var _ = BeforeSuite(func(ctx SpecContext) {
	environment.SetLogger()
	module, err := binaries.Source(ctx, binaries.MetalOperator07, "github.com/ironcore-dev/metal-operator")
	Expect(err).NotTo(HaveOccurred())
	crds := filepath.Join(module.Dir, "config", "crd", "bases")
	definitions = []string{
		filepath.Join("..", "..", "landscape", "hosts", "baremetalhost", "crd.yaml"),
		filepath.Join(crds, "metal.ironcore.dev_serverclaims.yaml"),
		filepath.Join(crds, "metal.ironcore.dev_servers.yaml"),
	}

	testEnv = &envtest.Environment{ControlPlaneStartTimeout: environment.StartTimeout}
	config, err := testEnv.Start()
	Expect(err).NotTo(HaveOccurred())
	DeferCleanup(testEnv.Stop)
	config.QPS, config.Burst = 1000, 2000
	c, err = client.New(config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	Expect(c.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})).To(Succeed())
	createPolicy(ctx)
})

// accessOf returns the access of the account, which is allowed what a driver needs, and nothing else.
func accessOf(ctx context.Context, name configv1alpha1.HostKind) (drivers.Kind, host.Access) {
	GinkgoHelper()
	kind, err := drivers.For(name)
	Expect(err).NotTo(HaveOccurred())

	subjects := []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: account}, {APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: other}}
	objectMeta := metav1.ObjectMeta{GenerateName: "host-", Namespace: namespace}
	role := &rbacv1.Role{ObjectMeta: objectMeta, Rules: kind.PolicyRules}
	Expect(c.Create(ctx, role)).To(Succeed())
	Expect(c.Create(ctx, &rbacv1.RoleBinding{ObjectMeta: objectMeta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}})).To(Succeed())
	objectMeta.Namespace = ""
	all := &rbacv1.ClusterRole{ObjectMeta: objectMeta, Rules: kind.ClusterPolicyRules}
	if name == configv1alpha1.HostKindServerClaim {
		all.Rules = append(all.Rules, ironcore.QuarantinePolicyRules()...)
	}
	Expect(c.Create(ctx, all)).To(Succeed())
	Expect(c.Create(ctx, &rbacv1.ClusterRoleBinding{ObjectMeta: objectMeta, Subjects: subjects, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: all.Name}})).To(Succeed())
	return kind, start(ctx, environment.As(testEnv.Config, account), kind)
}

// start starts a cache until the end of the container.
func start(ctx context.Context, config *rest.Config, kind drivers.Kind) host.Access {
	GinkgoHelper()
	hosts, err := cluster.New(config, func(o *cluster.Options) {
		o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return kind.Mapper, nil }
		o.Cache = cache.Options{DefaultNamespaces: map[string]cache.Config{namespace: {}}, ByObject: kind.ByObject}
	})
	Expect(err).NotTo(HaveOccurred())
	environment.Run(context.WithoutCancel(ctx), hosts.Start)
	return host.Access{Namespace: builder.Namespace, HostNamespace: namespace, Cached: hosts.GetCache(), APIReader: hosts.GetAPIReader(), Writer: hosts.GetClient()}
}
