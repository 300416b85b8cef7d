// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/managedresources"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	monitoringv1 "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/machineevidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	bundle "github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/environment"
	"github.com/gardener/gardener-extension-machine-preservation/test/integration/sidecar"
)

const (
	prefix = "machine-preservation.extensions.gardener.cloud/"
	// mcm is the account in the seed, sidecarAccount the one in the shoot.
	mcm, sidecarAccount = "machine-controller-manager", "machine-preservation-controller"
)

// as returns a configuration with the permissions of an account.
func as(s *sidecar.Server, namespace, account string) *rest.Config {
	return environment.As(s.Config, "system:serviceaccount:"+namespace+":"+account)
}

// grant gives the accounts what the extension gives them where evidence is stored, and Gardener gives machine-controller-manager.
func grant(ctx context.Context, s *sidecar.Server, values preservationcontroller.Values) {
	GinkgoHelper()
	scheme := s.Scheme()
	Expect(resourcesv1alpha1.AddToScheme(scheme)).To(Succeed())
	Expect(monitoringv1.AddToScheme(scheme)).To(Succeed())
	fake := fakeclient.NewClientBuilder().WithScheme(scheme).Build()
	Expect(preservationcontroller.New(fake, builder.Namespace, values).Deploy(ctx)).To(Succeed())

	Expect(machineevidence.Deploy(ctx, fake, builder.Namespace)).To(Succeed())

	var objects []client.Object
	for _, name := range []string{preservationcontroller.ManagedResourceName, machineevidence.ManagedResourceName} {
		found, err := managedresources.GetObjects(ctx, fake, builder.Namespace, name)
		Expect(err).NotTo(HaveOccurred())
		objects = append(objects, found...)
	}
	slices.SortStableFunc(objects, func(a, b client.Object) int { return strings.Compare(a.GetNamespace(), b.GetNamespace()) }) // namespaces before what is in them
	role, binding := &rbacv1.Role{}, &rbacv1.RoleBinding{}
	key := client.ObjectKey{Namespace: builder.Namespace, Name: preservationcontroller.Name}
	Expect(fake.Get(ctx, key, role)).To(Succeed())
	Expect(fake.Get(ctx, key, binding)).To(Succeed())
	ofMCM := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: builder.Namespace, Name: mcm}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{machinev1alpha1.GroupName}, Resources: []string{"machines", "machinesets", "machinedeployments"}, Verbs: []string{"get", "list", "watch", "patch"}},
		{APIGroups: []string{"", eventsv1.GroupName}, Resources: []string{"events"}, Verbs: []string{"get", "list", "create", "patch", "update"}},
	}}
	bindingOfMCM := binding.DeepCopy()
	bindingOfMCM.Name, bindingOfMCM.RoleRef.Name = mcm, mcm
	for _, object := range append(objects, role, binding, ofMCM, bindingOfMCM) {
		object.SetResourceVersion("")
		if err := s.Create(ctx, object); apierrors.IsAlreadyExists(err) {
			Expect(s.Update(ctx, object)).To(Succeed())
		} else {
			Expect(err).NotTo(HaveOccurred())
		}
	}
}

// start starts a manager with the controllers of evidence alone, until the function that is returned is called. Requests to the shoot
// may be changed by the function.
func start(ctx context.Context, s *sidecar.Server, keep time.Duration, toShoot ...transport.WrapperFunc) func() {
	GinkgoHelper()
	seed := as(s, builder.Namespace, mcm)
	mgr, err := manager.New(seed, manager.Options{
		Scheme:     s.Scheme(),
		Cache:      cache.Options{DefaultNamespaces: map[string]cache.Config{builder.Namespace: {}}},
		Metrics:    metricsserver.Options{BindAddress: "0"},
		Controller: config.Controller{SkipNameValidation: new(true)},
	})
	Expect(err).NotTo(HaveOccurred())
	shoot := as(s, metav1.NamespaceSystem, sidecarAccount)
	for _, wrap := range toShoot {
		shoot.Wrap(wrap)
	}
	clients, err := evidence.NewClients(seed, shoot, false)
	Expect(err).NotTo(HaveOccurred())
	Expect((&evidence.Reconciler{Retention: keep, Budget: 8 << 20, Args: []string{"--evidence", "--token=confidential"}, Leading: &pace.Leading{}}).AddToManager(mgr, builder.Namespace, clients)).To(Succeed())
	return environment.Run(context.WithoutCancel(ctx), mgr.Start).Stop
}

var _ = Describe("Evidence", func() {
	It("should store all that the API servers know of a failed machine, and delete it when its time is over, with the permissions that there are", func(ctx SpecContext) {
		const keep = 6 * time.Second
		s := sidecar.Start(ctx, sidecar.Generations["machine-controller-manager 0.62"])
		grant(ctx, s, preservationcontroller.Values{Evidence: true})
		set := sidecar.Pool(ctx, s, "pool")
		machine := sidecar.NewMachine("m", "node-m", set, builder.Preserved("Failed:Preserved", "auto", time.Now().Add(time.Hour)))
		failure := machine.Annotations[prefix+"failed-since"]
		delete(machine.Annotations, prefix+"phase")
		Expect(s.Create(ctx, machine)).To(Succeed())
		Expect(s.Create(ctx, sidecar.NewMachine("other", "node-other", set))).To(Succeed())
		event := func(namespace, name, kind, regarding string) *eventsv1.Event {
			return &eventsv1.Event{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, EventTime: metav1.NowMicro(), Type: "Normal", Reason: "Seen", Action: "See",
				ReportingController: "test", ReportingInstance: "test", Regarding: corev1.ObjectReference{Kind: kind, Name: regarding, Namespace: namespace},
			}
		}
		pod := func(name string) *corev1.Pod {
			return &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": name}},
				Spec:       corev1.PodSpec{NodeName: "node-m", Containers: []corev1.Container{{Name: "c", Image: "i", Env: []corev1.EnvVar{{Name: "KEY", Value: "confidential"}}}}},
			}
		}
		for _, object := range []client.Object{
			&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}},
			&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "default"}},
			sidecar.NewNode("node-m"), sidecar.NewNode("node-other"), pod("web"),
			&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}}},
			&storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: "volume"}, Spec: storagev1.VolumeAttachmentSpec{Attacher: "csi", NodeName: "node-m", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv")}}},
			event("default", "of-node", "Node", "node-m"), event("shop", "of-pod", "Pod", "web"), event(builder.Namespace, "of-machine", "Machine", "m"),
			&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: builder.Namespace, Name: "other"}},
		} {
			if e, ok := object.(*eventsv1.Event); ok && e.Regarding.Kind == "Node" {
				e.Regarding.Namespace = ""
			}
			Expect(s.Create(ctx, object)).To(Succeed())
		}
		key := client.ObjectKey{Namespace: builder.Namespace, Name: retention.StoredNames()[0]}
		stored := func() error { return s.Get(ctx, key, &corev1.ConfigMap{}) }

		stop := start(ctx, s, keep)
		Consistently(stored, time.Second).ShouldNot(Succeed(), "it has not failed yet")
		patch := client.MergeFrom(machine.DeepCopy())
		machine.Annotations[prefix+"phase"] = "Failed:Preserved"
		Expect(s.Patch(ctx, machine, patch)).To(Succeed())
		Eventually(func() map[string]string {
			Expect(s.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
			return machine.Annotations
		}, time.Minute).Should(HaveKeyWithValue(prefix+"evidence", failure))

		configMap := &corev1.ConfigMap{}
		Expect(s.Get(ctx, key, configMap)).To(Succeed())
		archive := configMap.BinaryData["bundle.tar.gz"]
		AddReportEntry("size of the bundle", fmt.Sprintf("%d bytes", len(archive)))
		known, err := bundle.Read(bytes.NewReader(archive))
		Expect(err).NotTo(HaveOccurred())
		Expect(known.Missing).To(BeEmpty())
		Expect(known.Seed.Controller).To(Equal(&observed.Controller{Injected: true, Args: []string{"--evidence", "--token=[redacted]"}}))
		Expect(known.Seed.Machines).To(HaveLen(2))
		Expect(known.Seed.MachineSets).To(HaveLen(1))
		Expect(known.Seed.MachineDeployments).To(HaveLen(1))
		Expect(known.Seed.Events).To(HaveLen(1))
		Expect(known.Shoot.Nodes).To(HaveLen(2))
		Expect(known.Shoot.Pods).To(HaveLen(1))
		Expect(known.Shoot.Pods[0].Spec.Containers[0].Env[0].Value).To(BeEmpty())
		Expect(known.Shoot.PodDisruptionBudgets).To(HaveLen(1))
		Expect(known.Shoot.VolumeAttachments).To(HaveLen(1))
		Expect(known.Shoot.Events).To(HaveLen(2))
		Eventually(func() []string {
			list := &eventsv1.EventList{}
			Expect(s.List(ctx, list, client.InNamespace(builder.Namespace))).To(Succeed())
			var reasons []string
			for _, e := range list.Items {
				reasons = append(reasons, e.Reason)
			}
			return reasons
		}).Should(ContainElement("EvidenceStored"))

		By("Reading in the shoot what of it is for those who are bound")
		inShoot := client.ObjectKey{Namespace: "machine-preservation-evidence", Name: key.Name}
		copied := func() error { return s.Get(ctx, inShoot, &corev1.Secret{}) }
		Eventually(copied, time.Minute).Should(Succeed())
		reader, err := client.New(environment.As(s.Config, "reader"), client.Options{})
		Expect(err).NotTo(HaveOccurred())
		secret := &corev1.Secret{}
		Expect(reader.Get(ctx, inShoot, secret)).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
		Expect(s.Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Namespace: inShoot.Namespace, Name: "reader"},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "evidence-viewer"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: "User", Name: "reader"}},
		})).To(Succeed())
		Eventually(func() error { return reader.Get(ctx, inShoot, secret) }).Should(Succeed())
		AddReportEntry("size of the bundle in the shoot", fmt.Sprintf("%d bytes", len(secret.Data["bundle.tar.gz"])))
		known, err = bundle.Read(bytes.NewReader(secret.Data["bundle.tar.gz"]))
		Expect(err).NotTo(HaveOccurred())
		Expect(known.Seed.Controller).To(BeNil())
		Expect(known.Seed.Namespace).To(Equal("control-plane"))
		Expect(known.Seed.Machines).To(HaveLen(2))
		Expect(known.Seed.Events).To(HaveLen(1))
		Expect(known.Shoot.Pods).To(HaveLen(1))
		Expect(known.Shoot.Events).To(HaveLen(2))
		By("Asking kubelets only where logs of nodes are part of it")
		kubelets, err := bundle.NewNodeProxy(as(s, metav1.NamespaceSystem, sidecarAccount))
		Expect(err).NotTo(HaveOccurred())
		isForbidden := func() bool {
			_, err := kubelets(ctx, "node-m", "logs/", nil, 0)
			Expect(err).To(HaveOccurred(), "there is no kubelet")
			return apierrors.IsForbidden(err)
		}
		Expect(isForbidden()).To(BeTrue())
		grant(ctx, s, preservationcontroller.Values{Evidence: true, NodeLogs: true})
		Eventually(isForbidden).Should(BeFalse())
		grant(ctx, s, preservationcontroller.Values{Evidence: true})
		Eventually(isForbidden).Should(BeTrue(), "and it is taken away again")

		By("Losing the machine, and the controller in between")
		Expect(s.Delete(ctx, machine)).To(Succeed())
		var expires time.Time
		Eventually(func() error {
			Expect(s.Get(ctx, key, configMap)).To(Succeed())
			var err error
			expires, err = time.Parse(time.RFC3339, configMap.Annotations[prefix+"evidence-expires"])
			return err
		}).Should(Succeed())
		stop()
		start(ctx, s, keep)
		Consistently(func() bool { return stored() == nil || !time.Now().Before(expires) }, keep-2*time.Second).Should(BeTrue(), "not before its time")
		Eventually(stored, time.Minute).ShouldNot(Succeed())
		Expect(time.Now()).To(BeTemporally(">=", expires))
		Eventually(copied, time.Minute).ShouldNot(Succeed())

		list := &corev1.ConfigMapList{}
		Expect(s.List(ctx, list, client.InNamespace(builder.Namespace))).To(Succeed())
		Expect(slices.ContainsFunc(list.Items, func(c corev1.ConfigMap) bool { return c.Name == "other" })).To(BeTrue())
	})

	It("should store in the seed while the shoot takes nothing, and follow when it does, whatever its owner does meanwhile", func(ctx SpecContext) {
		s := sidecar.Start(ctx, sidecar.Generations["machine-controller-manager 0.62"])
		grant(ctx, s, preservationcontroller.Values{Evidence: true})
		set := sidecar.Pool(ctx, s, "pool")
		fail := func(name string) {
			GinkgoHelper()
			Expect(s.Create(ctx, sidecar.NewNode("node-"+name))).To(Succeed())
			Expect(s.Create(ctx, sidecar.NewMachine(name, "node-"+name, set, builder.Preserved("Failed:Preserved", "auto", time.Now().Add(time.Hour))))).To(Succeed())
		}
		seeds := func(g Gomega) map[string]types.UID {
			list, uids := &corev1.ConfigMapList{}, map[string]types.UID{}
			g.Expect(s.List(ctx, list, client.InNamespace(builder.Namespace), client.HasLabels{retention.LabelStored})).To(Succeed())
			for i := range list.Items {
				uids[list.Items[i].Name] = list.Items[i].UID
			}
			return uids
		}
		copies := func(g Gomega) map[string]types.UID {
			list, uids := &corev1.SecretList{}, map[string]types.UID{}
			g.Expect(s.List(ctx, list, client.InNamespace("machine-preservation-evidence"))).To(Succeed())
			for i := range list.Items {
				uids[list.Items[i].Name] = types.UID(list.Items[i].Annotations[retention.AnnotationStoredOf])
			}
			return uids
		}

		var (
			isAway            atomic.Bool
			asked, writes     atomic.Int32
			namespaceOfCopies = "/api/v1/namespaces/machine-preservation-evidence/"
		)
		isAway.Store(true)
		away := func(next http.RoundTripper) http.RoundTripper {
			return roundTripper(func(request *http.Request) (*http.Response, error) {
				if strings.HasPrefix(request.URL.Path, namespaceOfCopies) {
					asked.Add(1)
					if isAway.Load() {
						return nil, errors.New("no route to host")
					}
					if request.Method != http.MethodGet {
						writes.Add(1)
					}
				}
				return next.RoundTrip(request)
			})
		}
		stop := start(ctx, s, time.Hour, away)
		fail("a")
		fail("b")
		Eventually(seeds, time.Minute).Should(HaveLen(2))
		Eventually(asked.Load, time.Minute).Should(BeNumerically(">=", 2))
		Consistently(asked.Load, 3*time.Second).Should(BeNumerically("<", 10), "it has a back-off")
		Expect(copies(Default)).To(BeEmpty())
		isAway.Store(false)
		want := seeds(Default)
		Eventually(copies, time.Minute).Should(Equal(want))
		Consistently(writes.Load, 2*time.Second).Should(BeEquivalentTo(2), "one write for each")

		By("Forging, deleting and adding what its owner likes")
		one, two := retention.StoredNames()[0], retention.StoredNames()[1]
		forged := func(name string) *corev1.Secret {
			return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "machine-preservation-evidence", Name: name, Labels: map[string]string{retention.LabelStored: "true"}}, Data: map[string][]byte{retention.StoredKey: []byte("forged")}}
		}
		Expect(s.Delete(ctx, forged(one))).To(Succeed())
		Expect(s.Create(ctx, forged(one))).To(Succeed())
		Expect(s.Delete(ctx, forged(two))).To(Succeed())
		Expect(s.Create(ctx, forged(retention.StoredNames()[2]))).To(Succeed())
		Consistently(writes.Load, 2*time.Second).Should(BeEquivalentTo(2), "nobody watches")
		fail("c")
		Eventually(seeds, time.Minute).Should(HaveLen(3))
		Eventually(copies, time.Minute).Should(HaveKeyWithValue(retention.StoredNames()[2], seeds(Default)[retention.StoredNames()[2]]))
		stop()
		start(ctx, s, time.Hour, away)
		Eventually(copies, time.Minute).Should(Equal(seeds(Default)))
		for name, uid := range want {
			Expect(seeds(Default)).To(HaveKeyWithValue(name, uid), "the seed's is what it was")
		}
	})
})

type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }
