// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package shoot_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	"github.com/gardener/gardener-extension-machine-preservation/test/memory"
)

const expired = `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410,"message":"too old"}`

// paged is an API server of nodes of 250 KiB, which does not know how to stream a list. It pages unless it answers from its watch cache.
type paged struct {
	count int
	node  string
	// expire is how many of the continuations are expired (410).
	expire int
	// watch, if set, answers watches.
	watch func(number int) (code int, body io.Reader)

	mutex          sync.Mutex
	lists, watches int
	streams        int
	biggest        int
	// empty has each page be one without a node.
	empty bool
}

func newPaged(count int) *paged {
	return &paged{count: count, node: `","resourceVersion":"1","annotations":{"large":"` + strings.Repeat("x", 250<<10) + `"}}}`}
}

// RoundTrip implements http.RoundTripper.
func (p *paged) RoundTrip(request *http.Request) (*http.Response, error) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	answer := func(code int, body ...io.Reader) (*http.Response, error) {
		return &http.Response{StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(io.MultiReader(body...)), Request: request}, nil
	}
	query := request.URL.Query()
	switch {
	case query.Get("sendInitialEvents") == "true":
		p.streams++
		return answer(http.StatusUnprocessableEntity, strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`))
	case query.Get("watch") != "":
		p.watches++
		if p.watch != nil {
			code, body := p.watch(p.watches)
			return answer(code, body)
		}
		return answer(http.StatusOK, never{request.Context()})
	}
	p.lists++
	if p.empty {
		return answer(http.StatusOK, strings.NewReader(`{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":"1"},"items":[]}`))
	}
	from, _ := strconv.Atoi(query.Get("continue"))
	if from > 0 && p.expire > 0 {
		p.expire--
		return answer(http.StatusGone, strings.NewReader(expired))
	}
	to, next := p.count, ""
	if limit, _ := strconv.Atoi(query.Get("limit")); limit > 0 && from+limit < to && query.Get("resourceVersion") != "0" {
		to = from + limit
		next = strconv.Itoa(to)
	}
	p.biggest = max(p.biggest, to-from)
	body := []io.Reader{strings.NewReader(fmt.Sprintf(`{"kind":"NodeList","apiVersion":"v1","metadata":{"resourceVersion":"1","continue":%q},"items":[`, next))}
	for i := from; i < to; i++ {
		if i > from {
			body = append(body, strings.NewReader(","))
		}
		body = append(body, strings.NewReader(fmt.Sprintf(`{"metadata":{"name":"n-%d`, i)), strings.NewReader(p.node))
	}
	return answer(http.StatusOK, append(body, strings.NewReader("]}"))...)
}

// start returns the running cache of the nodes, of which it keeps the names.
func (p *paged) start(ctx context.Context) (cache.Cache, *Connection, error) {
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot)
	config := &rest.Config{Host: "http://shoot", Transport: p, QPS: -1, ContentConfig: rest.ContentConfig{ContentType: "application/json"}}
	config.Wrap(Limit)
	connection := &Connection{}
	c, err := connection.NewCache(config, cache.Options{Scheme: scheme.Scheme, Mapper: mapper, ByObject: map[client.Object]cache.ByObject{
		&corev1.Node{}: {Transform: func(obj any) (any, error) {
			obj.(*corev1.Node).Annotations = nil
			return obj, nil
		}},
	}})
	if err != nil {
		return nil, nil, err
	}
	go func() { _ = c.Start(ctx) }()
	return c, connection, nil
}

func synced(ctx context.Context, c cache.Cache) bool {
	informer, err := c.GetInformer(ctx, &corev1.Node{}, cache.BlockUntilSynced(false))
	return err == nil && toolscache.WaitForCacheSync(ctx.Done(), informer.HasSynced)
}

var _ = Describe("NewCache", func() {
	It("P14: should list by the page, also where the API server streams no list and answers from its watch cache", func(ctx SpecContext) {
		p := newPaged(250)
		c, _, err := p.start(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(synced(ctx, c)).To(BeTrue())
		nodes := &corev1.NodeList{}
		Expect(c.List(ctx, nodes)).To(Succeed())
		Expect(nodes.Items).To(HaveLen(250))
		Expect(nodes.Items).To(HaveEach(HaveField("Annotations", BeEmpty())))
		p.mutex.Lock()
		defer p.mutex.Unlock()
		Expect(p.biggest).To(Equal(100))
		Expect(p.lists).To(Equal(3))
		Expect(p.streams).To(BeZero(), "a stream has no end that anybody else decides on")
	}, SpecTimeout(3*time.Minute))

	It("P14: should list nodes that are large in smaller pages", func(ctx SpecContext) {
		p := newPaged(100)
		p.node = `","annotations":{"large":"` + strings.Repeat("x", 400<<10) + `"}}}`
		c, _, err := p.start(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(synced(ctx, c)).To(BeTrue())
		nodes := &corev1.NodeList{}
		Expect(c.List(ctx, nodes)).To(Succeed())
		Expect(nodes.Items).To(HaveLen(100))
	}, SpecTimeout(3*time.Minute))

	It("P14: should not list for ever where there are no nodes, but always more to come", func(ctx SpecContext) {
		p := newPaged(250)
		p.empty = true
		c, _, err := p.start(ctx)
		Expect(err).NotTo(HaveOccurred())
		timed, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		Expect(synced(timed, c)).To(BeFalse())
		p.mutex.Lock()
		defer p.mutex.Unlock()
		Expect(p.lists).To(BeNumerically("<", 10), "the reflector waits between them")
	}, SpecTimeout(3*time.Minute))

	It("P14: should list anew when a watch has added more than any shoot has", func() {
		from := watch.NewFakeWithChanSize(10, false)
		w := Bounded(from, 2)
		DeferCleanup(w.Stop)
		from.Add(&corev1.Node{})
		from.Modify(&corev1.Node{})
		from.Add(&corev1.Node{})
		from.Add(&corev1.Node{})
		for _, want := range []watch.EventType{watch.Added, watch.Modified, watch.Added} {
			Expect((<-w.ResultChan()).Type).To(Equal(want))
		}
		Expect(apierrors.IsResourceExpired(apierrors.FromObject((<-w.ResultChan()).Object))).To(BeTrue())
	})

	It("P14: should count nodes that are too large to be read as an API server that is away", func(ctx SpecContext) {
		p := newPaged(1)
		p.node = `","annotations":{"large":"` + strings.Repeat("x", 33<<20) + `"}}}`
		c, connection, err := p.start(ctx)
		Expect(err).NotTo(HaveOccurred())
		_, err = c.GetInformer(ctx, &corev1.Node{}, cache.BlockUntilSynced(false))
		Expect(err).NotTo(HaveOccurred())
		Eventually(func() int {
			p.mutex.Lock()
			defer p.mutex.Unlock()
			return p.lists
		}, time.Minute).Should(BeNumerically(">", 0))
		Eventually(connection.Answers, time.Minute).Should(BeFalse())
	}, SpecTimeout(3*time.Minute))

	It("P9: should begin a list once more whose continuation is expired (410)", func(ctx SpecContext) {
		p := newPaged(250)
		p.expire = 1
		c, _, err := p.start(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(synced(ctx, c)).To(BeTrue())
		nodes := &corev1.NodeList{}
		Expect(c.List(ctx, nodes)).To(Succeed())
		Expect(nodes.Items).To(HaveLen(250))
		p.mutex.Lock()
		defer p.mutex.Unlock()
		Expect(p.lists).To(Equal(5))
	}, SpecTimeout(3*time.Minute))

	It("P9: should list anew when a watch is expired (410), and go on after a token that was (401)", func(ctx SpecContext) {
		p := newPaged(1)
		p.watch = func(number int) (int, io.Reader) {
			switch number {
			case 1:
				return http.StatusOK, strings.NewReader(`{"type":"ERROR","object":` + expired + `}`)
			case 2:
				return http.StatusUnauthorized, strings.NewReader(`{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}`)
			}
			return http.StatusOK, never{ctx}
		}
		c, _, err := p.start(ctx)
		Expect(err).NotTo(HaveOccurred())
		Expect(synced(ctx, c)).To(BeTrue())
		Eventually(func() []int {
			p.mutex.Lock()
			defer p.mutex.Unlock()
			return []int{p.lists, p.watches}
		}, 2*time.Minute).Should(Equal([]int{3, 3}))
		Expect(c.Get(ctx, client.ObjectKey{Name: "n-0"}, &corev1.Node{})).To(Succeed())
	}, SpecTimeout(3*time.Minute))
})

// BenchmarkNodes lists 1,000 nodes of 250 KiB:
//
//	go test -run '^$' -bench Nodes -benchtime 1x ./pkg/sidecar/shoot
func BenchmarkNodes(b *testing.B) {
	defer debug.SetGCPercent(debug.SetGCPercent(25)) // that of the sidecar
	p := newPaged(1000)
	most := uint64(0)
	for b.Loop() {
		ctx, cancel := context.WithCancel(b.Context())
		most = max(most, memory.Peak(func() {
			c, _, err := p.start(ctx)
			if err != nil || !synced(ctx, c) {
				b.Fatal(err)
			}
		}))
		cancel()
	}
	b.ReportMetric(float64(most)/(1<<20), "peak-MiB")
}
