// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/charts"
	"github.com/gardener/gardener-extension-machine-preservation/cmd/gardener-extension-machine-preservation-admission/app"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/charts/rollout"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

// One API server is that of the runtime cluster and that of the virtual garden cluster. The admission component has an
// account of its own for each.
const (
	garden         = "garden"
	owner          = "extension-machine-preservation"
	gardenAccount  = "extension-admission-machine-preservation"
	gardenAccounts = "kube-system"
)

var _ = Describe("The charts of the admission component", Ordered, func() {
	var (
		ctx                    context.Context
		env                    *environment.Environment
		application, component *rollout.Release
		forGarden, forRuntime  *rollout.Account
	)

	BeforeAll(func() {
		ctx = context.Background()
		env = environment.Start(ctx)
		createShootDefinition(ctx, env)

		// What gardener-operator does.
		rollout.CreateNamespace(ctx, env.Client, garden)
		Expect(env.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: owner}})).To(Succeed())
		Expect(env.Client.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: gardenAccount, Namespace: gardenAccounts}})).To(Succeed())
		application = rollout.Install(ctx, env.Client, charts.AdmissionApplication, owner, map[string]any{
			"gardener": map[string]any{"virtualCluster": map[string]any{
				"enabled":        true,
				"serviceAccount": map[string]any{"name": gardenAccount, "namespace": gardenAccounts},
			}},
		})
		component = rollout.Install(ctx, env.Client, charts.AdmissionRuntime, garden, map[string]any{
			"gardener": map[string]any{
				"runtimeCluster": map[string]any{"priorityClassName": "gardener-garden-system-400"},
				"virtualCluster": map[string]any{"enabled": true, "namespace": owner},
			},
		})
		component.CreatePriorityClass(ctx, env.Client)
		forGarden = rollout.NewAccount(ctx, env, gardenAccounts, gardenAccount)
		forRuntime = rollout.NewAccount(ctx, env, garden, component.Deployment.Spec.Template.Spec.ServiceAccountName)

		// It is to be deleted by the certificate management.
		Expect(env.Client.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "stale", Namespace: garden, Labels: map[string]string{
			"name":             "stale",
			"managed-by":       "secrets-manager",
			"manager-identity": "gardener-extension-machine-preservation-admission-webhook",
		}}})).To(Succeed())
		start(ctx, component, forGarden, forRuntime)
	})

	It("should have pods that are admitted where nothing privileged is", func() {
		Expect(env.Client.Create(ctx, component.Pod(), client.DryRunAll)).To(Succeed())
	})

	It("should register the webhook, to be deleted with its namespace", func() {
		config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
		Eventually(func(g Gomega) {
			g.Expect(env.Client.Get(ctx, client.ObjectKey{Name: "gardener-extension-machine-preservation-admission"}, config)).To(Succeed())
			g.Expect(config.Webhooks).To(HaveLen(1))
			g.Expect(config.Webhooks[0].ClientConfig.CABundle).NotTo(BeEmpty())
		}).WithTimeout(environment.StartTimeout).Should(Succeed())
		Expect(config.OwnerReferences).To(ConsistOf(HaveField("Name", owner)))
		Eventually(func() error {
			return env.Client.Get(ctx, client.ObjectKey{Namespace: garden, Name: "stale"}, &corev1.Secret{})
		}).WithTimeout(environment.StartTimeout).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})

	It("should refuse a Shoot", func() {
		Eventually(func() error { return env.Client.Create(ctx, newShoot(), client.DryRunAll) }).WithTimeout(time.Minute).Should(
			MatchError(ContainSubstring("spec.extensions[0].providerConfig")))
	})

	It("should have allowed all that, and no more", func() {
		Expect(forGarden.Refused()).To(BeEmpty())
		Expect(forRuntime.Refused()).To(BeEmpty())
		Expect(rollout.Unused(application.Permissions, forGarden.Requests())).To(BeEmpty())
		Expect(rollout.Unused(component.Permissions, forRuntime.Requests())).To(BeEmpty())
	})
})

// start runs the admission component in this process, as its pod would, until the end of the suite.
func start(ctx context.Context, release *rollout.Release, forGarden, forRuntime *rollout.Account) {
	GinkgoHelper()
	release.SetEnvironment()
	Expect(release.Arguments()).To(ContainElements(
		"--webhook-config-mode=url",
		"--webhook-config-cert-dir="+release.MountPath("certificates"),
		"--webhook-config-url="+release.Deployment.Name+"."+garden,
		"--webhook-config-owner-namespace="+owner,
	))
	environment.RunCommand(ctx, app.NewCommand(), func(healthAddress string) []string {
		return release.Arguments(append(environment.WebhookFlags(),
			"--kubeconfig="+forGarden.Kubeconfig,
			"--runtime-kubeconfig="+forRuntime.Kubeconfig,
			"--metrics-bind-address=0",
			"--health-bind-address="+healthAddress,
		)...)
	})
}

// createShootDefinition has the API server know Shoots, as far as the webhook is concerned.
func createShootDefinition(ctx context.Context, env *environment.Environment) {
	GinkgoHelper()
	Expect(env.Client.Create(ctx, &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{
			Name:        "shoots.core.gardener.cloud",
			Annotations: map[string]string{"api-approved.kubernetes.io": "unapproved, for tests"},
		},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "core.gardener.cloud",
			Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "shoots", Singular: "shoot", Kind: "Shoot"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name:    "v1beta1",
				Served:  true,
				Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type:                   "object",
					XPreserveUnknownFields: new(true),
				}},
			}},
		},
	})).To(Succeed())
}

// newShoot returns a Shoot with a configuration that is not valid.
func newShoot() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "core.gardener.cloud/v1beta1",
		"kind":       "Shoot",
		"metadata": map[string]any{
			"name":      "shoot",
			"namespace": "default",
			"labels":    map[string]any{"extensions.extensions.gardener.cloud/machine-preservation": "true"},
		},
		"spec": map[string]any{
			"extensions": []any{map[string]any{
				"type":           "machine-preservation",
				"providerConfig": map[string]any{"foo": "bar"},
			}},
		},
	}}
}
