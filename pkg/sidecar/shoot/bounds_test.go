// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/memory"
)

// megabyte is what answers are made of.
var megabyte = strings.Repeat("x", 1<<20)

// hostile is an API server that answers as it likes, up to 256 MiB, and counts the bytes that somebody reads.
type hostile struct {
	*httptest.Server
	read atomic.Int64
}

func newHostile(answer func(w http.ResponseWriter, req *http.Request, send func(string) bool)) *hostile {
	h := &hostile{}
	h.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		answer(w, req, func(text string) bool {
			n, err := w.Write([]byte(text))
			h.read.Add(int64(n))
			return err == nil && h.read.Load() < 256<<20
		})
	}))
	return h
}

func (h *hostile) client() kubernetes.Interface {
	config := &rest.Config{Host: h.URL, BearerToken: "secret", QPS: -1}
	config.Wrap(Limit)
	return kubernetes.NewForConfigOrDie(config)
}

// endless is an answer without an end after a beginning.
func endless(begin, more string) func(http.ResponseWriter, *http.Request, func(string) bool) {
	return func(_ http.ResponseWriter, _ *http.Request, send func(string) bool) {
		next := begin
		for send(next) {
			next = more
		}
	}
}

var _ = Describe("Limit", func() {
	list := func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().Nodes().List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=n"})
		return err
	}
	get := func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().Nodes().Get(ctx, "n", metav1.GetOptions{})
		return err
	}
	patch := func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().Nodes().Patch(ctx, "n", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
		return err
	}
	pods := func(ctx context.Context, c kubernetes.Interface) error {
		_, err := c.CoreV1().Pods("shop").List(ctx, metav1.ListOptions{})
		return err
	}
	begin := `{"kind":"Node","apiVersion":"v1","metadata":{"name":"n","annotations":{"a":"`

	DescribeTable("P14: should read so much of an answer without an end, and say so", func(ctx SpecContext, ask func(context.Context, kubernetes.Interface) error, most int64, want string) {
		h := newHostile(endless(begin, megabyte))
		defer h.Close()
		err := ask(ctx, h.client())
		Expect(err).To(MatchError(HaveSuffix("the answer has more than %d bytes: %s", most, want)))
		Expect(h.read.Load()).To(BeNumerically("<", 128<<20), "half of what there is: some is in buffers of the network")
	},
		Entry("a list", list, int64(32<<20), "GET /api/v1/nodes"),
		Entry("a list of a namespace", pods, int64(32<<20), "GET /api/v1/namespaces/shop/pods"),
		Entry("an object", get, int64(8<<20), "GET /api/v1/nodes/n"),
		Entry("a write", patch, int64(8<<20), "PATCH /api/v1/nodes/n"),
	)

	DescribeTable("P14: should read so much of an event of a watch, whatever it is made of", func(ctx SpecContext, begin, more string) {
		h := newHostile(endless(begin, more))
		defer h.Close()
		w, err := h.client().CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		defer w.Stop()
		var event watch.Event
		Eventually(w.ResultChan(), time.Minute).Should(Receive(&event))
		Expect(event.Type).To(Equal(watch.Error))
		Expect(event.Object.(*metav1.Status).Message).To(ContainSubstring("the answer has more than 8388608 bytes: an event of GET /api/v1/nodes"))
		Expect(h.read.Load()).To(BeNumerically("<", 24<<20))
	},
		Entry("a string", `{"type":"ADDED","object":`+begin, megabyte),
		Entry("a string with brackets that end nothing", `{"type":"ADDED","object":`+begin, strings.Repeat(`}\"}\\\"{`, 1<<16)),
		Entry("newlines within a value", `{"type":"ADDED",`, strings.Repeat("\"a\":1,\n", 1<<16)),
		Entry("nothing but newlines", "", strings.Repeat("\n", 1<<20)),
	)

	It("P14: should not bound what a watch says in sum", func(ctx SpecContext) {
		h := newHostile(func(_ http.ResponseWriter, _ *http.Request, send func(string) bool) {
			for range 40 {
				send(`{"type":"ADDED","object":` + begin + megabyte + `}\"{"}}}}` + "\n")
			}
			send(`{"type":"DELETED","object":{"kind":"Node","apiVersion":"v1"}}`)
		})
		defer h.Close()
		w, err := h.client().CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		defer w.Stop()
		var last watch.EventType
		for event := range w.ResultChan() {
			last = event.Type
		}
		Expect(last).To(Equal(watch.Deleted))
	})

	It("P14: should tell the frames of protobuf apart", func(ctx SpecContext) {
		serializer := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
		framer := protobuf.NewRawSerializer(scheme.Scheme, scheme.Scheme)
		h := newHostile(func(w http.ResponseWriter, _ *http.Request, send func(string) bool) {
			w.Header().Set("Content-Type", "application/vnd.kubernetes.protobuf;stream=watch")
			node := builder.Node("n", builder.NodeAnnotation("a", megabyte))
			frame := func(eventType string, node *corev1.Node) string {
				object, event := &strings.Builder{}, &strings.Builder{}
				node.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Node"))
				_ = serializer.Encode(node, object)
				raw := metav1.WatchEvent{Type: eventType}
				raw.Object.Raw = []byte(object.String())
				_ = framer.Encode(&raw, event)
				n := event.Len()
				return string([]byte{byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}) + event.String()
			}
			added := frame("ADDED", node)
			for range 20 {
				send(added)
			}
			send(frame("DELETED", builder.Node("n")))
			send("\x7f\xff\xff\xff")
			endless("", megabyte)(w, nil, send)
		})
		defer h.Close()
		config := &rest.Config{Host: h.URL, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/vnd.kubernetes.protobuf"}}
		config.Wrap(Limit)
		w, err := kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().Watch(ctx, metav1.ListOptions{})
		Expect(err).NotTo(HaveOccurred())
		defer w.Stop()
		var seen []watch.EventType
		for event := range w.ResultChan() {
			seen = append(seen, event.Type)
		}
		Expect(seen[:21]).To(ConsistOf(append(slices.Repeat([]watch.EventType{watch.Added}, 20), watch.Deleted)))
		Expect(seen[21:]).To(Equal([]watch.EventType{watch.Error}))
		Expect(h.read.Load()).To(BeNumerically("<", 48<<20))
	})

	It("P14: should send the token nowhere else", func(ctx SpecContext) {
		for _, code := range []int{301, 302, 303, 307, 308} {
			var elsewhere atomic.Int32
			thief := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
				if req.Header.Get("Authorization") != "" {
					elsewhere.Add(1)
				}
			}))
			h := newHostile(func(w http.ResponseWriter, _ *http.Request, _ func(string) bool) {
				w.Header().Set("Location", thief.URL+"/"+strings.Repeat("a", 1000))
				w.WriteHeader(code)
			})
			for _, ask := range []func(context.Context, kubernetes.Interface) error{list, get, patch} {
				err := ask(ctx, h.client())
				Expect(elsewhere.Load()).To(BeZero())
				Expect(err).To(MatchError(And(ContainSubstring("redirected with status %d, which is not followed: ", code), Not(ContainSubstring("aaa")))))
			}
			h.Close()
			thief.Close()
		}
	})
})

// BenchmarkEndless asks for what never ends, as nodes are asked for:
//
//	go test -run '^$' -bench Endless -benchtime 1x ./pkg/sidecar/shoot
func BenchmarkEndless(b *testing.B) {
	for _, what := range []string{"list", "watch"} {
		b.Run(what, func(b *testing.B) {
			h := newHostile(endless(`{"type":"ADDED","object":{"kind":"Node","apiVersion":"v1","metadata":{"annotations":{"a":"`, megabyte))
			defer h.Close()
			c := h.client()
			most := uint64(0)
			for b.Loop() {
				h.read.Store(0)
				most = max(most, memory.Peak(func() {
					if what == "list" {
						_, _ = c.CoreV1().Nodes().List(b.Context(), metav1.ListOptions{})
						return
					}
					if w, err := c.CoreV1().Nodes().Watch(b.Context(), metav1.ListOptions{}); err == nil {
						<-w.ResultChan()
						w.Stop()
					}
				}))
			}
			b.ReportMetric(float64(most)/(1<<20), "peak-MiB")
			b.ReportMetric(float64(h.read.Load())/(1<<20), "read-MiB")
		})
	}
}
