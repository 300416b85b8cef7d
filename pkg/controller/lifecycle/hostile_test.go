// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package lifecycle_test

import (
	"compress/gzip"
	"context"
	"encoding/pem"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/lifecycle"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("Hostile shoot", func() {
	const namespace = "shoot--foo--bar"

	// end disables node maintenance in a shoot whose owner has pointed the APIService v1alpha1.maintenance.nvidia.com to a server of their own. It
	// also returns how much was allocated.
	end := func(answer http.HandlerFunc) (mebibytes uint64, err error) {
		server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			if strings.HasPrefix(r.URL.Path, "/apis/maintenance.nvidia.com/") {
				answer(w, r)
				return
			}
			_, _ = io.WriteString(w, `{"kind":"NodeList","apiVersion":"v1","metadata":{},"items":[]}`)
		}))
		DeferCleanup(server.Close)
		GinkgoT().Setenv("GARDENER_SHOOT_CLIENT", "external")
		ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		shoot := &gardencorev1beta1.Shoot{TypeMeta: metav1.TypeMeta{APIVersion: "core.gardener.cloud/v1beta1", Kind: "Shoot"}}
		shoot.Status.AdvertisedAddresses = []gardencorev1beta1.ShootAdvertisedAddress{{Name: "external", URL: server.URL}}
		cluster := &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: namespace}}
		cluster.Spec.Shoot = k8sruntime.RawExtension{Object: shoot}
		seed := fakeclient.NewClientBuilder().WithScheme(builder.Scheme(extensionsv1alpha1.AddToScheme)).WithObjects(&corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "shoot-access-machine-preservation-controller"},
			Data:       map[string][]byte{"token": []byte("token-of-the-sidecar"), "bundle.crt": ca},
		}, cluster).Build()

		c, err := ShootClient(seed)(context.Background(), namespace)
		Expect(err).NotTo(HaveOccurred())
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err = maintenance.End(context.Background(), c, time.Now())
		runtime.ReadMemStats(&after)
		return (after.TotalAlloc - before.TotalAlloc) >> 20, err
	}

	It("P14: should not have the extension read an answer of any size into memory", func() {
		mebibytes, err := end(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip") // the client asks for it
			zip, _ := gzip.NewWriterLevel(w, gzip.BestCompression)
			_, _ = io.WriteString(zip, `{"kind":"NodeMaintenanceList","apiVersion":"maintenance.nvidia.com/v1alpha1","metadata":{"resourceVersion":"`)
			for range 256 {
				_, _ = io.WriteString(zip, strings.Repeat("1", 1<<20))
			}
			_, _ = io.WriteString(zip, `"},"items":[]}`)
			_ = zip.Close()
		})
		Expect(err).To(MatchError(ContainSubstring("the answer has more than")))
		Expect(mebibytes).To(BeNumerically("<", 300))
	})

	It("P14: should not follow a redirect", func() {
		got := ""
		other := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Get("Authorization") + r.URL.Path }))
		DeferCleanup(other.Close)
		_, _ = end(func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, other.URL+"/latest/meta-data", http.StatusFound)
		})
		Expect(got).To(BeEmpty())
	})
})
