// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"
	"testing"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

// TestEnable enables the extension for a pool in which machine-controller-manager has auto-preserved two machines. The test plays the
// worker controller, and starts the sidecar, if at all, some minutes later.
func TestEnable(t *testing.T) {
	if old {
		t.Skip("0.61 keeps no machines")
	}
	const never = 24 * time.Hour
	for name, test := range map[string]struct {
		share int32
		// sidecar is when it starts after that, or before.
		sidecar time.Duration
		max     func(current int32, settings share.Settings, known bool, preserved int, atWork time.Duration) int32
		// kept is how many of the two are kept in the end, until when they were to be kept, taken how many of them by the sidecar.
		kept, taken int
	}{
		"the machines are taken over":                                {2, 3 * time.Minute, share.NativeMax, 2, 2},
		"there is a place for one":                                   {1, 3 * time.Minute, share.NativeMax, 1, 1},
		"there is no place":                                          {0, 3 * time.Minute, share.NativeMax, 0, 0},
		"machine-controller-manager goes on until the sidecar comes": {2, never, share.NativeMax, 2, 0},
		"the share is known when the sidecar has long been at work":  {2, -time.Hour, share.NativeMax, 2, 2},
		// The number stays in MachineSets that are not the newest.
		"there is no place, and the number stays": {0, 3 * time.Minute, func(int32, share.Settings, bool, int, time.Duration) int32 { return 2 }, 0, 0},
		// This is what NativeMax is there to prevent. With one less, machine-controller-manager gives up both, and begins anew with one.
		"the number is 0 at once": {2, 3 * time.Minute, func(int32, share.Settings, bool, int, time.Duration) int32 { return 0 }, 0, 0},
		"the number is one less":  {2, never, func(int32, share.Settings, bool, int, time.Duration) int32 { return 1 }, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func() {
				w := newWorld(History{Alone: true, Replicas: 3, Share: 2, Timeout: 8 * time.Hour})
				defer w.stop()

				time.Sleep(20 * time.Minute)
				sidecar := w.processes[sidecarName]
				sidecar.Kill() // it has done nothing
				sidecar.run = func(ctx context.Context, life *Life) error { return runSidecar(ctx, life, History{Longest: never}) }
				broken := []string{w.machine(0), w.machine(1)}
				for _, name := range broken {
					w.cloud.Set(name, Dead)
				}
				if test.sidecar < 0 {
					sidecar.Start()
				}
				time.Sleep(time.Hour)
				var expiries []*metav1.Time
				for _, name := range broken {
					expiries = append(expiries, w.expiryOf(name))
				}
				if preserved := w.preservedNatively(); preserved != 2 {
					t.Fatalf("machine-controller-manager has preserved %d machines\n%s", preserved, w.timeline())
				}

				w.note("event", "the extension is enabled")
				enabled, settings := time.Now(), share.Settings{AutoPreserveFailedMax: test.share, MachinePreserveTimeout: 8 * time.Hour}
				time.AfterFunc(max(0, test.sidecar), sidecar.Start)
				var number int32
				for range 120 {
					preserved := w.preservedNatively()
					w.editPool(func(deployment *machinev1alpha1.MachineDeployment) {
						number = deployment.Spec.AutoPreserveFailedMachineMax
						_, known := share.Of(deployment)
						share.Apply(deployment, settings, true, test.max(number, settings, known, preserved, max(0, time.Since(enabled)-test.sidecar)))
						number = deployment.Spec.AutoPreserveFailedMachineMax
					})
					time.Sleep(5 * time.Second)
				}

				kept, taken := 0, 0
				for i, name := range broken {
					if !expiries[i].Equal(w.expiryOf(name)) {
						continue
					}
					kept++
					if w.seed.Last(key{"machines", namespace, name}).Object.GetAnnotations()[v1alpha1.AnnotationPhase] == rules.FailedPreserved {
						taken++
					}
				}
				if kept != test.kept || taken != test.taken {
					t.Errorf("%d machines are kept, and %d are taken over, expected %d and %d\n%s", kept, taken, test.kept, test.taken, w.timeline())
				}
				if want := test.max(0, settings, true, 0, time.Hour); test.sidecar != never && number != want {
					t.Errorf("machine-controller-manager may still preserve %d machines, expected %d", number, want)
				}
				for _, name := range broken {
					if expiry := w.expiryOf(name); test.share == 0 && expiry != nil {
						t.Errorf("%s has no place, and is kept until %s\n%s", name, expiry, w.timeline())
					}
				}
			})
		})
	}
}

// expiryOf returns until when a machine is kept, nil if it is not.
func (w *World) expiryOf(name string) *metav1.Time {
	change := w.seed.Last(key{"machines", namespace, name})
	if change == nil || change.Object.GetDeletionTimestamp() != nil {
		return nil
	}
	return fromUnstructured[machinev1alpha1.Machine](change.Object).Status.CurrentStatus.PreserveExpiryTime
}

// preservedNatively returns how many machines machine-controller-manager has auto-preserved, and the sidecar has not taken over.
func (w *World) preservedNatively() (count int) {
	machines, _ := w.seed.List("machines", namespace, labels.Everything())
	for _, change := range machines {
		if change.Object.GetDeletionTimestamp() == nil && change.Object.GetAnnotations()[v1alpha1.AnnotationPreserve] == preservation.ValueAutoPreserved {
			count++
		}
	}
	return count
}
