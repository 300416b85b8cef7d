// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package pace_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

var _ = Describe("RetryConflicts", func() {
	var (
		conflict = apierrors.NewConflict(schema.GroupResource{Resource: "nodes"}, "n", errors.New("the object has been modified"))
		other    = errors.New("fake")
	)

	DescribeTable("P12: what is no error", func(err error, no bool) {
		result, returned := RetryConflicts(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
			return reconcile.Result{RequeueAfter: time.Hour}, err
		})).Reconcile(context.Background(), reconcile.Request{})
		want := reconcile.Result{RequeueAfter: time.Hour}
		if no {
			want = reconcile.Result{Requeue: true} //nolint:staticcheck // as the rate limiter has it
		}
		Expect(result).To(Equal(want))
		if no || err == nil {
			Expect(returned).NotTo(HaveOccurred())
		} else {
			Expect(returned).To(BeIdenticalTo(err))
		}
	},
		Entry("nothing", nil, false),
		Entry("a conflict", conflict, true),
		Entry("one with words", fmt.Errorf("failed: %w", brief.CutError(conflict)), true),
		Entry("several", errors.Join(fmt.Errorf("failed: %w", conflict), errors.Join(conflict)), true),
		Entry("anything else", fmt.Errorf("failed: %w", other), false),
		Entry("a conflict and anything else", errors.Join(conflict, other), false),
		Entry("a conflict that does not come to an end", reconcile.TerminalError(other), false),
	)

	It("P12: should neither log nor count a conflict, and try again as often as the rate limiter lets it", func(ctx SpecContext) {
		var (
			lines atomic.Pointer[string]
			calls atomic.Int32
			done  = make(chan struct{})
		)
		log := funcr.New(func(_, args string) { lines.Store(&args) }, funcr.Options{})
		running, err := controller.NewTypedUnmanaged[reconcile.Request]("conflicts", controller.TypedOptions[reconcile.Request]{
			RateLimiter:    workqueue.NewTypedItemExponentialFailureRateLimiter[reconcile.Request](time.Millisecond, time.Millisecond),
			LogConstructor: func(*reconcile.Request) logr.Logger { return log },
			Reconciler: RetryConflicts(reconcile.Func(func(context.Context, reconcile.Request) (reconcile.Result, error) {
				if calls.Add(1) == 3 {
					close(done)
					return reconcile.Result{}, nil
				}
				return reconcile.Result{}, conflict
			})),
		})
		Expect(err).NotTo(HaveOccurred())
		Expect(running.Watch(source.Func(func(_ context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
			queue.Add(reconcile.Request{})
			return nil
		}))).To(Succeed())
		ctx2, cancel := context.WithCancel(ctx)
		ended := make(chan error)
		go func() { ended <- running.Start(ctx2) }()
		Eventually(ctx, done).Should(BeClosed())
		cancel()
		Expect(<-ended).NotTo(HaveOccurred())
		Expect(calls.Load()).To(BeEquivalentTo(3))
		Expect(errorsOf("conflicts")).To(BeZero())
		if line := lines.Load(); line != nil {
			Expect(*line).NotTo(ContainSubstring("Reconciler error"))
		}
	}, SpecTimeout(time.Minute))

	It("P12: should tell of a conflict that comes again and again, because a denial of the shoot may look like one", func(ctx SpecContext) {
		var (
			errs     = map[string]error{}
			requests = func(name string) reconcile.Request {
				return reconcile.Request{NamespacedName: types.NamespacedName{Name: name}}
			}
			retry = RetryConflicts(reconcile.Func(func(_ context.Context, req reconcile.Request) (reconcile.Result, error) {
				return reconcile.Result{}, errs[req.Name]
			}))
			// told says of each of a number of calls whether there was an error.
			told = func(name string, calls int) (told []bool) {
				for range calls {
					_, err := retry.Reconcile(ctx, requests(name))
					told = append(told, err != nil)
				}
				return told
			}
		)
		errs["denied"], errs["late"] = fmt.Errorf("failed: %w", conflict), conflict
		Expect(told("denied", 7)).To(Equal([]bool{false, false, false, false, true, true, true}))
		_, err := retry.Reconcile(ctx, requests("denied"))
		Expect(err).To(BeIdenticalTo(errs["denied"]), "the words of the shoot")
		Expect(told("late", 4)).To(HaveEach(false), "it has conflicts of its own")

		errs["late"] = nil
		Expect(told("late", 1)).To(HaveEach(false))
		errs["late"] = conflict
		Expect(told("late", 4)).To(HaveEach(false), "they are not in a row")
		errs["late"] = other
		Expect(told("late", 1)).To(HaveEach(true))
		errs["late"] = conflict
		Expect(told("late", 5)).To(Equal([]bool{false, false, false, false, true}))
	})

	It("P12: should be around the Reconciler of each controller of the sidecar", func() {
		completed := 0
		Expect(filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Name() != "add.go" {
				return err
			}
			content, err := os.ReadFile(path)
			for line := range strings.Lines(string(content)) {
				if strings.Contains(line, "Complete(") {
					completed++
					Expect(line).To(ContainSubstring("Complete(pace.RetryConflicts("), path)
				}
			}
			return err
		})).To(Succeed())
		Expect(completed).To(BeNumerically(">=", 9))
	})
})

// errorsOf returns how many errors are counted of a controller.
func errorsOf(name string) float64 {
	GinkgoHelper()
	families, err := metrics.Registry.(prometheus.Gatherer).Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		if family.GetName() != "controller_runtime_reconcile_errors_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			if metric.GetLabel()[0].GetValue() == name {
				return metric.GetCounter().GetValue()
			}
		}
	}
	return 0
}
