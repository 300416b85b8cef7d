// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// server is an API server with no nodes.
type server struct {
	*httptest.Server
	// away says that it answers nothing but errors, watched that somebody watches.
	away, watched atomic.Bool
}

// ServeHTTP implements http.Handler.
func (s *server) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if s.away.Load() {
		http.Error(w, "away", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	if req.URL.Query().Get("watch") == "" {
		_, _ = w.Write([]byte(`{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1"},"items":[]}`))
		return
	}
	w.(http.Flusher).Flush()
	s.watched.Store(true)
	<-req.Context().Done()
}

// reported returns what the metric says.
func reported() float64 {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		if family.GetName() == "machine_preservation_shoot_synced" {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return -1
}

var _ = Describe("Nodes", func() {
	It("P9: should tell whether they are known as they are now", func(ctx SpecContext) {
		Expect(reported()).To(Equal(-1.0), "nobody has asked for it")
		api := &server{}
		api.away.Store(true)
		api.Server = httptest.NewServer(api)
		DeferCleanup(api.Close)

		clock := testclock.NewFakePassiveClock(Start)
		connection := &Connection{Clock: clock}
		config := &rest.Config{Host: api.URL, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
		shoot, err := cluster.New(config, func(o *cluster.Options) {
			o.NewCache = connection.NewCache
			o.MapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
				mapper := meta.NewDefaultRESTMapper(nil)
				mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
				return mapper, nil
			}
		})
		Expect(err).NotTo(HaveOccurred())
		nodes, err := NewNodes(ctx, shoot)
		Expect(err).NotTo(HaveOccurred())
		Expect(nodes.Report(connection)).To(Succeed())
		running, cancel := context.WithCancel(context.WithoutCancel(ctx))
		DeferCleanup(cancel)
		go func() {
			defer GinkgoRecover()
			Expect(shoot.Start(running)).To(Succeed())
		}()
		Consistently(reported, 200*time.Millisecond).Should(BeZero())
		Expect(nodes.Back()).To(BeZero())

		clock.SetTime(Start.Add(time.Minute))
		api.away.Store(false)
		Eventually(reported).WithTimeout(time.Minute).Should(Equal(1.0))
		Expect(nodes.Back()).To(BeTemporally("==", Start.Add(time.Minute)), "X8: nobody knows for how long it was away before the start")

		Eventually(api.watched.Load).WithTimeout(time.Minute).Should(BeTrue())
		api.away.Store(true)
		Expect(nodes.GetAPIReader().List(ctx, &corev1.NodeList{})).NotTo(Succeed())
		Expect(nodes.Synced()).To(BeTrue(), "X8: what somebody else asks for says nothing of the watch")
		api.CloseClientConnections()
		Eventually(reported).WithTimeout(time.Minute).Should(BeZero())
		Expect(nodes.Known()).To(BeTrue())
		Expect(nodes.Synced()).To(BeFalse())
		Expect(nodes.Back()).To(BeTemporally("==", Start.Add(time.Minute)))
		clock.SetTime(Start.Add(time.Hour))

		api.away.Store(false)
		Eventually(reported).WithTimeout(time.Minute).Should(Equal(1.0))
		Expect(nodes.Back()).To(BeTemporally("==", Start.Add(time.Hour)), "X8")
	}, SpecTimeout(5*time.Minute))
})
