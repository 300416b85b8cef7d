// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
)

func TestQueueLetsChangesSettle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var (
			queue   = NewQueue("queue", workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
			changed = reconcile.Request{NamespacedName: types.NamespacedName{Name: "changed"}}
			due     = reconcile.Request{NamespacedName: types.NamespacedName{Name: "due"}}
			start   = time.Now()
		)
		defer queue.ShutDown()

		queue.AddAfter(due, 20*time.Millisecond)
		for range 3 {
			queue.Add(changed)
			time.Sleep(5 * time.Millisecond)
		}
		for _, want := range []struct {
			request reconcile.Request
			after   time.Duration
		}{{due, 20 * time.Millisecond}, {changed, 200 * time.Millisecond}} {
			request, _ := queue.Get()
			queue.Done(request)
			if after := time.Since(start); request != want.request || after != want.after {
				t.Errorf("%s after %s, want %s after %s", request, after, want.request, want.after)
			}
		}
		time.Sleep(time.Second)
		if left := queue.Len(); left != 0 {
			t.Errorf("%d requests are left", left)
		}
	})
}
