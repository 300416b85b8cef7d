// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("--wait", func() {
	DescribeTable("should end with an error without the right to watch, as it would wait for ever", func(refusal error, list bool) {
		p := newPerson(append(shootObjects(), maintenanceOf("over", "me", "Draining")), nil)
		funcs := interceptor.Funcs{Watch: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
			return nil, refusal
		}}
		if list {
			funcs.List = func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if (&client.ListOptions{}).ApplyOptions(opts).Raw != nil {
					return refusal
				}
				return c.List(ctx, list, opts...)
			}
		}
		funcs.Create = func(context.Context, client.WithWatch, client.Object, ...client.CreateOption) error { return nil }
		p.options.shoot = interceptor.NewClient(p.options.shoot, funcs)
		for _, args := range []string{"now over --wait --timeout 0", "extend auto --for 1h", "maintenance start over -n operators --requestor me --wait --timeout 0"} {
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			ended := make(chan error, 1)
			go func() { ended <- p.runsIn(ctx, args) }()
			Eventually(ended, time.Minute).Should(Receive(And(MatchError(ContainSubstring("failed to watch: ")), MatchError(ContainSubstring(refusal.Error())))), args)
		}
		Expect(p.runs("power-cycle over --yes")).To(MatchError(ContainSubstring("failed to watch: ")))
		Expect(p.node("over").Annotations).NotTo(HaveKey(ours + "power-cycle"))
	},
		Entry("Forbidden", apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no right")), false),
		Entry("Forbidden, to list", apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no right")), true),
		Entry("Unauthorized", apierrors.NewUnauthorized("who is it"), false),
		Entry("not supported", apierrors.NewMethodNotSupported(schema.GroupResource{Resource: "nodes"}, "watch"), false),
	)
})

var _ = Describe("list -w, of an API server", func() {
	It("should end with an error without the right to watch nodes, as it would show the same for ever", func() {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/json")
			switch query := r.URL.Query(); {
			case r.URL.Path != "/api/v1/nodes":
				http.NotFound(w, r)
			case query.Get("watch") != "":
				status := apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", errors.New("no right to watch")).Status()
				w.WriteHeader(http.StatusForbidden)
				_ = json.NewEncoder(w).Encode(&status)
			default:
				_ = json.NewEncoder(w).Encode(&corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"}})
			}
		}))
		DeferCleanup(server.CloseClientConnections)
		p := newPerson(nil, nil)
		p.options.shoot = nil
		clock := testclock.NewFakeClock(now)
		p.options.Clock = clock
		ended := make(chan error, 1)
		go func() { ended <- p.runs("list -w --server " + server.URL) }()
		Eventually(func() chan error { clock.Step(time.Second); return ended }, time.Minute).Should(Receive(MatchError(ContainSubstring("failed to watch: "))))
	})

	It("should list nodes until they are watched, and go on without node maintenances", func() {
		var lists atomic.Int32
		changed := make(chan struct{})
		send := func(w http.ResponseWriter, object any) {
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(object)
			w.(http.Flusher).Flush()
		}
		node := func(version string, options ...NodeOption) *corev1.Node {
			n := Node("asked", options...)
			n.TypeMeta, n.ResourceVersion = metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, version
			return n
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			switch query := r.URL.Query(); {
			case r.URL.Path != "/api/v1/nodes":
				http.NotFound(w, r)
			case query.Get("sendInitialEvents") != "":
				http.Error(w, "not here", http.StatusUnprocessableEntity)
			case query.Get("watch") == "":
				lists.Add(1)
				send(w, &corev1.NodeList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NodeList"}, ListMeta: metav1.ListMeta{ResourceVersion: "1"},
					Items: []corev1.Node{*node("1", preservedNode("auto", "Preserved", ""))}})
			default:
				w.WriteHeader(http.StatusOK)
				w.(http.Flusher).Flush()
				select {
				case <-changed:
					send(w, map[string]any{"type": "MODIFIED", "object": node("2", Condition("Preserved", corev1.ConditionFalse, "PreservationEnded", ""))})
				case <-r.Context().Done():
				}
				<-r.Context().Done()
			}
		}))
		DeferCleanup(server.CloseClientConnections)

		p := newPerson(nil, nil)
		p.options.shoot = nil
		clock := testclock.NewFakeClock(now)
		p.options.Clock = clock
		ctx, stop := context.WithCancel(context.Background())
		defer stop()
		ended := make(chan error, 1)
		go func() { ended <- p.runsIn(ctx, "list asked -w --until released --server "+server.URL) }()
		tick := func() string { clock.Step(time.Second); return p.out.String() }
		Eventually(tick).Should(ContainSubstring("Running:Preserved"))
		Eventually(func() int32 { // lists in ten ticks: none when the watch has begun, however long that takes
			before := lists.Load()
			for range 10 {
				tick()
				time.Sleep(20 * time.Millisecond)
			}
			return lists.Load() - before
		}, time.Minute).Should(BeZero())
		Expect(p.errOut.String()).To(BeEmpty())
		close(changed)
		Eventually(func() chan error { clock.Step(time.Second); return ended }, time.Minute).Should(Receive(BeNil()))
		Expect(p.out.String()).To(ContainSubstring("Released"))
	})
})
