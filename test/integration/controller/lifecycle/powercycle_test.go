// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	. "github.com/onsi/gomega/gstruct"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
)

const (
	hostSecretName = "machine-preservation-hosts"
	prefix         = "machine-preservation.extensions.gardener.cloud/"
)

// documentedRole is the first one of the page, for BareMetalHosts.
var documentedRole = regexp.MustCompile("(?s)```yaml\n(apiVersion: rbac.authorization.k8s.io/v1\nkind: Role\n.*?)```")

var _ = Describe("Power cycles", func() {
	var (
		ctx       = context.Background()
		ours      = corev1.Taint{Key: "node.kubernetes.io/out-of-service", Value: "nodeshutdown", Effect: corev1.TaintEffectNoExecute}
		namespace string
		// hosts is the namespace that the hosts of the shoot are in, server the API server for it, and token the one of an account
		// that is allowed what the documentation says.
		hosts, server, token string
		extension            *extensionsv1alpha1.Extension
	)

	eventually := func(f func(Gomega)) {
		GinkgoHelper()
		Eventually(f).WithTimeout(time.Minute).Should(Succeed())
	}
	providerConfig := func(powerCycle string) *runtime.RawExtension {
		return environment.ProviderConfig(fmt.Sprintf(`,"workers":[{"name":"worker-a"%s}]`, powerCycle))
	}
	kubeconfig := func() []byte {
		GinkgoHelper()
		content, err := clientcmd.Write(clientcmdapi.Config{
			CurrentContext: "hosts",
			Clusters:       map[string]*clientcmdapi.Cluster{"hosts": {Server: server, CertificateAuthorityData: env.Config.CAData}},
			AuthInfos:      map[string]*clientcmdapi.AuthInfo{"hosts": {Token: token}},
			Contexts:       map[string]*clientcmdapi.Context{"hosts": {Cluster: "hosts", AuthInfo: "hosts", Namespace: hosts}},
		})
		Expect(err).NotTo(HaveOccurred())
		return content
	}
	// allow has an account that is allowed what the documentation says.
	allow := func() {
		GinkgoHelper()
		page, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "operations", "power-cycles.md"))
		Expect(err).NotTo(HaveOccurred())
		example := documentedRole.FindSubmatch(page)
		Expect(example).NotTo(BeNil())
		role := &rbacv1.Role{}
		Expect(yaml.UnmarshalStrict(example[1], role)).To(Succeed())
		role.Namespace = hosts
		Expect(env.Client.Create(ctx, role)).To(Succeed())

		account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: role.Name, Namespace: hosts}}
		Expect(env.Client.Create(ctx, account)).To(Succeed())
		Expect(env.Client.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: role.Name, Namespace: hosts},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account.Name, Namespace: hosts}},
		})).To(Succeed())
		request := &authenticationv1.TokenRequest{}
		Expect(env.Client.SubResource("token").Create(ctx, account, request)).To(Succeed())
		token = request.Status.Token
	}
	newHost := func(name string) *unstructured.Unstructured {
		host := &unstructured.Unstructured{}
		host.SetGroupVersionKind(schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHost"})
		host.SetNamespace(hosts)
		host.SetName(name)
		return host
	}
	// off has a host that is off on behalf of a machine of a shoot.
	off := func(name, of string) {
		GinkgoHelper()
		host := newHost(name)
		host.SetAnnotations(map[string]string{
			"reboot.metal3.io/machine-remediation": `{"mode":"hard"}`,
			prefix + "power-cycle-owner":           fmt.Sprintf(`{"seed":"seed","namespace":%q,"machine":"cycled","uid":"uid","on":"uid/1"}`, of),
		})
		host.Object["spec"] = map[string]any{"online": true}
		Expect(env.Client.Create(ctx, host)).To(Succeed())
		host.Object["status"] = map[string]any{"poweredOn": false, "operationalStatus": "OK", "provisioning": map[string]any{"state": "provisioned"}}
		Expect(env.Client.Status().Update(ctx, host)).To(Succeed())
	}
	annotations := func(name string) map[string]string {
		GinkgoHelper()
		host := newHost(name)
		Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(host), host)).To(Succeed())
		return host.GetAnnotations()
	}
	// fence has a machine with a node that is out of service.
	fence := func(name, phase, record string) {
		GinkgoHelper()
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: namespace + "-" + name}}
		node.Spec.Taints = []corev1.Taint{ours}
		Expect(env.Client.Create(ctx, node)).To(Succeed())
		node.Status.Conditions = []corev1.NodeCondition{
			{Type: corev1.NodeReady, Status: corev1.ConditionTrue}, {Type: "PowerCycle", Status: corev1.ConditionFalse, Reason: phase},
		}
		Expect(env.Client.Status().Update(ctx, node)).To(Succeed())
		Expect(env.Client.Create(ctx, &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: namespace, Labels: map[string]string{"node": node.Name}, Finalizers: []string{prefix + "host"},
			Annotations: map[string]string{
				"host.metal3.io/external-remediation": "", "kept": "",
				prefix + "power-cycle-phase": phase, prefix + "power-cycle-record": record,
			},
		}})).To(Succeed())
	}
	forgotten := func(name string, taints ...any) {
		GinkgoHelper()
		machine := &machinev1alpha1.Machine{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: name}, machine)).To(Succeed())
		Expect(machine.Annotations).To(Equal(map[string]string{"kept": ""}))
		Expect(machine.Finalizers).To(BeEmpty())
		node := &corev1.Node{}
		Expect(env.Client.Get(ctx, client.ObjectKey{Name: namespace + "-" + name}, node)).To(Succeed())
		Expect(node.Spec.Taints).To(ContainElements(taints...))
		if len(taints) == 0 {
			Expect(node.Spec.Taints).NotTo(ContainElement(ours))
		}
		Expect(node.Status.Conditions).To(ConsistOf(HaveField("Type", corev1.NodeReady)))
	}
	// work has a container with these arguments at work.
	work := func(name string, args ...string) {
		GinkgoHelper()
		Expect(env.Client.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{"app": "kubernetes", "role": "machine-controller-manager"}},
			Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "machine-preservation-controller", Image: "image", Args: args}}},
		})).To(Succeed())
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "machine-preservation-controller", Namespace: namespace}}
		Expect(client.IgnoreNotFound(env.Client.Delete(ctx, lease))).To(Succeed())
		lease.ResourceVersion = ""
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: new(name + "_a"), LeaseDurationSeconds: new(int32(3600)), RenewTime: &metav1.MicroTime{Time: time.Now()}}
		Expect(env.Client.Create(ctx, lease)).To(Succeed())
		DeferCleanup(func() { Expect(client.IgnoreNotFound(env.Client.Delete(ctx, lease))).To(Succeed()) })
	}
	// secret returns the annotations that the container is switched with.
	secret := func(g Gomega) map[string]string {
		secret := &corev1.Secret{}
		g.Expect(env.Client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: "shoot-access-machine-preservation-controller"}, secret)).To(Succeed())
		return secret.Annotations
	}
	waiting := func(reason string) func(Gomega) {
		return func(g Gomega) {
			g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(Succeed())
			g.Expect(extension.Status.LastError).To(PointTo(HaveField("Description", ContainSubstring(reason))))
		}
	}
	gone := func(g Gomega) {
		g.Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(extension), extension)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	}

	BeforeEach(func() {
		namespace = env.CreateShootNamespace(ctx, true)
		env.CreateCluster(ctx, namespace, gardencorev1beta1.Worker{Name: "worker-a", Minimum: 1, Maximum: 3})
		hosts, server = "hosts-of-"+namespace, env.Config.Host
		Expect(env.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: hosts}})).To(Succeed())
		allow()
		Expect(env.Client.Create(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: hostSecretName, Namespace: namespace}, Data: map[string][]byte{"kubeconfig": kubeconfig()},
		})).To(Succeed())

		extension = environment.NewExtension(namespace)
		extension.Spec.ProviderConfig = providerConfig(`,"powerCycle":{}`)
		env.CreateExtension(ctx, extension)
		DeferCleanup(func() { end(ctx, extension) })
		env.WaitUntilReconciled(ctx, extension)
		Expect(secret(Default)).To(And(HaveKeyWithValue(prefix+"power-cycle", "true"), HaveKeyWithValue(prefix+"power-cycle-seed", "seed")))

		off("host", namespace)
		off("foreign", "shoot--foo--other")
	})
	AfterEach(func() {
		Expect(annotations("foreign")).To(HaveLen(2))
	})

	It("X2, X15: should be switched off when no host is off any more, and leave nothing behind", func() {
		fence("starting", "Starting", `{}`)
		starting := &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "starting", Namespace: namespace}}
		Expect(env.Client.Patch(ctx, starting, client.RawPatch(types.MergePatchType,
			fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, prefix+"remediation", time.Now().Add(time.Hour).Format(time.RFC3339))))).To(Succeed())
		work("with", "--power-cycle")
		Eventually(func() error {
			if err := env.Client.Get(ctx, client.ObjectKeyFromObject(extension), extension); err != nil {
				return err
			}
			extension.Spec.ProviderConfig = providerConfig("")
			return env.Client.Update(ctx, extension)
		}).Should(Succeed())
		eventually(waiting("waiting for the preservation controller to release 1 host"))
		Expect(secret(Default)).To(HaveKey(prefix + "power-cycle"))

		By("Having somebody else take the request back")
		Expect(env.Client.Patch(ctx, newHost("host"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"reboot.metal3.io/machine-remediation":null}}}`)))).To(Succeed())
		eventually(waiting("waiting for the nodes of machines whose power cycles were stopped: starting"))
		Expect(secret(Default)).To(HaveKey(prefix + "power-cycle"))

		By("Having the container end the last power cycle")
		Expect(env.Client.Patch(ctx, starting, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":null,"finalizers":null}}`)))).To(Succeed())
		eventually(waiting("waiting for the preservation controller to release hosts"))
		Expect(secret(Default)).To(And(Not(HaveKey(prefix+"power-cycle")), HaveKey(prefix+"power-cycle-seed")))

		By("Replacing the container, which has left something")
		fence("cycled", "Succeeded", `{"tainted":true}`)
		fence("waiting", "Waiting", `{}`)
		work("without")
		env.WaitUntilReconciled(ctx, extension)
		Expect(secret(Default)).NotTo(HaveKey(prefix + "power-cycle-seed"))
		Expect(annotations("host")).To(BeEmpty())
		forgotten("cycled")
		forgotten("waiting", ours)
	})

	It("X2, X15: should release a host where no container runs, and leave nothing behind", func() {
		fence("cycled", "MakingNodeSafe", `{"tainted":true}`)
		Expect(env.Client.Delete(ctx, extension)).To(Succeed())
		eventually(gone)
		Expect(annotations("host")).To(BeEmpty())
		forgotten("cycled")
	})

	It("X19: should release a host of a shoot that goes on when no container is at work any more, and tell so", func() {
		work("with", "--power-cycle")
		fence("cycled", "Failed", `{}`)
		patch := func(metadata string) {
			GinkgoHelper()
			machine := &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "cycled", Namespace: namespace}}
			Expect(env.Client.Patch(ctx, machine, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":%s}`, metadata)))).To(Succeed())
		}
		patch(fmt.Sprintf(`{"labels":{%q:"true"}}`, prefix+"power-cycle"))
		Consistently(func() map[string]string { return annotations("host") }).WithTimeout(2 * time.Second).Should(HaveLen(2))

		Expect(env.Client.Delete(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "machine-preservation-controller", Namespace: namespace}})).To(Succeed())
		patch(fmt.Sprintf(`{"annotations":{%q:"Cancelled"}}`, prefix+"power-cycle-phase"))
		eventually(func(g Gomega) {
			g.Expect(annotations("host")).To(BeEmpty())
			events := &eventsv1.EventList{}
			g.Expect(env.Client.List(ctx, events, client.InNamespace(namespace))).To(Succeed())
			g.Expect(events.Items).To(ContainElement(And(HaveField("Reason", "PowerCycleHostReleased"), HaveField("Regarding.Name", "cycled"))))
		})
		Expect(secret(Default)).To(HaveKeyWithValue(prefix+"power-cycle", "true"))
	})

	It("X15: should be left by force although the hosts cannot be reached", func() {
		fence("cycled", "MakingNodeSafe", `{"tainted":true}`)
		machine := &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "cycled", Namespace: namespace}}
		Expect(env.Client.Delete(ctx, machine)).To(Succeed())
		silent, err := net.Listen("tcp", "127.0.0.1:0")
		Expect(err).NotTo(HaveOccurred())
		DeferCleanup(silent.Close)
		server = "https://" + silent.Addr().String()
		Expect(env.Client.Update(ctx, &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: hostSecretName, Namespace: namespace}, Data: map[string][]byte{"kubeconfig": kubeconfig()},
		})).To(Succeed())
		cluster := &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		Expect(env.Client.Patch(ctx, cluster, client.RawPatch(types.MergePatchType,
			[]byte(`{"spec":{"shoot":{"metadata":{"annotations":{"confirmation.gardener.cloud/force-deletion":"true"}}}}}`)))).To(Succeed())

		Expect(env.Client.Delete(ctx, extension)).To(Succeed())
		eventually(gone)
		Expect(annotations("host")).To(HaveLen(2), "somebody has to see to it")
		Expect(env.Client.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})
})
