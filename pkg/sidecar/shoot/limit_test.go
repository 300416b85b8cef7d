// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// transport answers requests in its own way.
type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(req *http.Request) (*http.Response, error) { return t(req) }

// never answers no request, and sends nothing.
type never struct{ ctx context.Context }

func (n never) RoundTrip(*http.Request) (*http.Response, error) { return nil, n.wait() }

func (n never) Read([]byte) (int, error) { return 0, n.wait() }

func (n never) Close() error { return nil }

func (n never) wait() error {
	<-n.ctx.Done()
	return context.Cause(n.ctx)
}

// TestLimit turns the time: what would take decades must take seconds.
func TestLimit(t *testing.T) {
	request := func(ctx context.Context, url string) *http.Request {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			t.Fatal(err)
		}
		return req
	}
	const nodes, watch = "http://shoot/api/v1/nodes", "http://shoot/api/v1/nodes?watch=true"
	opens := transport(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Body: never{req.Context()}}, nil
	})
	silent := transport(func(req *http.Request) (*http.Response, error) { return never{req.Context()}.RoundTrip(req) })

	for name, test := range map[string]struct {
		next http.RoundTripper
		url  string
		// endless says that nobody but the caller ends the request.
		endless bool
	}{
		"P14: a request without an answer":      {next: silent, url: nodes},
		"P14: an answer without an end":         {next: opens, url: nodes},
		"P14: a watch without an answer":        {next: silent, url: watch},
		"P14: a watch on which nothing happens": {next: opens, url: watch, endless: true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				g := NewWithT(t)
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				begin := time.Now()
				response, err := Limit(test.next).RoundTrip(request(ctx, test.url))
				if err == nil {
					_, err = io.ReadAll(response.Body)
					g.Expect(response.Body.Close()).To(Succeed())
				}
				g.Expect(errors.Is(err, context.DeadlineExceeded)).To(BeTrue())
				if test.endless {
					g.Expect(time.Since(begin)).To(Equal(time.Hour))
				} else {
					g.Expect(time.Since(begin)).To(BeNumerically("<=", 30*time.Second))
				}
			})
		})
	}

	t.Run("P14: neither Retry-After nor the length of an answer is obeyed", func(t *testing.T) {
		for _, code := range []int{http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusForbidden} {
			g := NewWithT(t)
			calls := atomic.Int32{}
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				calls.Add(1)
				w.Header().Set("Retry-After", "2147483647")
				w.Header().Set("Content-Type", "application/json")
				w.WriteHeader(code)
				_, _ = fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":%d,"message":"denied: %s"}`, code, strings.Repeat("x", 1<<20))
			}))
			defer server.Close()
			config := &rest.Config{Host: server.URL}
			config.Wrap(Limit)
			c, err := kubernetes.NewForConfig(config)
			g.Expect(err).NotTo(HaveOccurred())
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			_, err = c.CoreV1().Nodes().Patch(ctx, "m", types.MergePatchType, []byte("{}"), metav1.PatchOptions{})
			g.Expect(err).To(HaveOccurred())
			g.Expect(ctx.Err()).NotTo(HaveOccurred())
			g.Expect(len(err.Error())).To(BeNumerically("<", 200))
			g.Expect(apierrors.ReasonForError(err)).NotTo(BeEmpty(), "what it is about is still known")
			g.Expect(calls.Load()).To(Equal(int32(1)))
		}
	})
}

// TestEnqueuePanics has the function that makes requests panic, where nobody else recovers.
func TestEnqueuePanics(t *testing.T) {
	g := NewWithT(t)
	queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	defer queue.ShutDown()
	handler := EnqueuePaced(func(_ context.Context, node *corev1.Node) []reconcile.Request {
		if node.Name == "evil" {
			panic("what is this")
		}
		return []reconcile.Request{RequestFor(node.Name)}
	})
	for _, name := range []string{"evil", "good"} {
		handler.Create(t.Context(), event.CreateEvent{Object: builder.Node(name)}, queue)
	}
	g.Expect(queue.Len()).To(Equal(1))
	request, _ := queue.Get()
	g.Expect(request).To(Equal(RequestFor("good")))
}

// TestPace looks at what comes out of a workqueue.
func TestPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		queue := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		served := map[string]int{}
		go func() {
			for {
				request, shutdown := queue.Get()
				if shutdown {
					return
				}
				served[request.Name]++
				queue.Done(request)
			}
		}()
		handler := EnqueuePaced(func(_ context.Context, node *corev1.Node) []reconcile.Request {
			return []reconcile.Request{{NamespacedName: client.ObjectKeyFromObject(node)}}
		})
		update := func(name string) {
			handler.Update(t.Context(), event.UpdateEvent{ObjectOld: builder.Node(name), ObjectNew: builder.Node(name)}, queue)
		}

		for i := range 60 * 100 {
			update("evil")
			if i == 3000 {
				handler.Delete(t.Context(), event.DeleteEvent{Object: builder.Node("evil")}, queue)
				handler.Create(t.Context(), event.CreateEvent{Object: builder.Node("evil")}, queue)
				update("other")
				synctest.Wait()
				g.Expect(served["other"]).To(Equal(1), "at once")
			}
			time.Sleep(10 * time.Millisecond)
		}
		g.Expect(served["evil"]).To(BeNumerically(">=", 60))
		g.Expect(served["evil"]).To(BeNumerically("<=", 140))

		last := served["evil"]
		update("evil")
		time.Sleep(time.Second)
		synctest.Wait()
		g.Expect(served["evil"]).To(BeNumerically(">", last), "nothing is lost")
		queue.ShutDown()
	})
}
