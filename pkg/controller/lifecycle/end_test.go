// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"context"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/lifecycle"
)

var _ = Describe("ShootClient", func() {
	var (
		ctx    context.Context
		seed   client.Client
		secret *corev1.Secret
		// server is the API server of the shoot, as far as it is asked for who somebody is.
		server        *httptest.Server
		authorization string
	)

	BeforeEach(func() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithCancel(context.Background())
		DeferCleanup(cancel)
		scheme := runtime.NewScheme()
		Expect(corev1.AddToScheme(scheme)).To(Succeed())
		Expect(extensionsv1alpha1.AddToScheme(scheme)).To(Succeed())
		seed = fakeclient.NewClientBuilder().WithScheme(scheme).Build()
		// Whoever asks for these gets more than is needed.
		for _, name := range []string{"gardener-internal", "gardener"} {
			Expect(seed.Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}})).To(Succeed())
		}

		server = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			authorization = req.Header.Get("Authorization")
			http.Error(w, "", http.StatusForbidden)
		}))
		DeferCleanup(server.Close)
		secret = &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: "shoot-access-machine-preservation-controller", Namespace: namespace},
			Data: map[string][]byte{
				"token":      []byte("token-of-the-sidecar"),
				"bundle.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
			},
		}
	})

	createCluster := func(addresses ...gardencorev1beta1.ShootAdvertisedAddress) {
		GinkgoHelper()
		Expect(seed.Create(ctx, &extensionsv1alpha1.Cluster{
			ObjectMeta: metav1.ObjectMeta{Name: namespace},
			Spec: extensionsv1alpha1.ClusterSpec{Shoot: runtime.RawExtension{Object: &gardencorev1beta1.Shoot{
				TypeMeta: metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot"},
				Status:   gardencorev1beta1.ShootStatus{AdvertisedAddresses: addresses},
			}}},
		})).To(Succeed())
	}

	It("should be somebody whom the shoot lets do what the sidecar may", func() {
		Expect(seed.Create(ctx, secret)).To(Succeed())
		GinkgoT().Setenv("GARDENER_SHOOT_CLIENT", "external")
		createCluster(
			gardencorev1beta1.ShootAdvertisedAddress{Name: "internal", URL: "https://internal.invalid"},
			gardencorev1beta1.ShootAdvertisedAddress{Name: "external", URL: server.URL},
		)

		shoot, err := ShootClient(seed)(ctx, namespace)
		Expect(err).NotTo(HaveOccurred())
		Expect(shoot.Get(ctx, client.ObjectKey{Name: "node"}, &corev1.Node{})).To(MatchError(apierrors.IsForbidden, "IsForbidden"))
		Expect(authorization).To(Equal("Bearer token-of-the-sidecar"))
	})

	It("should stay in the seed", func() {
		Expect(seed.Create(ctx, secret)).To(Succeed())
		shoot, err := ShootClient(seed)(ctx, namespace)
		Expect(err).NotTo(HaveOccurred())

		impatient, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
		defer cancel()
		Expect(shoot.Get(impatient, client.ObjectKey{Name: "node"}, &corev1.Node{})).To(MatchError(ContainSubstring("https://kube-apiserver.shoot--foo--bar.svc/api/v1/nodes/node")))
	})

	It("should tell that there is no access secret", func() {
		_, err := ShootClient(seed)(ctx, namespace)
		Expect(err).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})

	DescribeTable("should wait for gardener-resource-manager", func(missing string) {
		delete(secret.Data, missing)
		Expect(seed.Create(ctx, secret)).To(Succeed())
		_, err := ShootClient(seed)(ctx, namespace)
		Expect(err).To(MatchError(`gardener-resource-manager has not yet written both token and bundle.crt into Secret "shoot-access-machine-preservation-controller"`))
	},
		Entry("to write the token", "token"),
		Entry("to write the certificates", "bundle.crt"),
	)

	It("should tell that there is no address", func() {
		Expect(seed.Create(ctx, secret)).To(Succeed())
		GinkgoT().Setenv("GARDENER_SHOOT_CLIENT", "external")
		createCluster(gardencorev1beta1.ShootAdvertisedAddress{Name: "internal", URL: "https://internal.invalid"})
		_, err := ShootClient(seed)(ctx, namespace)
		Expect(err).To(MatchError(`the Shoot in Cluster "shoot--foo--bar" has no advertised address "external"`))
	})
})
