// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/simulator"
)

// reconciler switches machines, and reports their power.
type reconciler struct {
	client client.Client
	clock  clock.PassiveClock
}

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	host := New(request.NamespacedName)
	if err := r.client.Get(ctx, request.NamespacedName, host); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if _, reboots := host.GetAnnotations()[AnnotationReboot]; reboots && reported(host, false) {
		return reconcile.Result{}, r.endReboot(ctx, host)
	}
	pod, err := hosts.Machine(ctx, r.client, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	power, err := r.power(ctx, host, pod)
	if err != nil || reported(host, power.On) {
		return reconcile.Result{}, err
	}
	lag := ReportLag
	if hosts.MisbehaviourOf(host) == hosts.LateReport {
		lag = hosts.LateReportLag
	}
	if wait := power.Since.Add(lag).Sub(r.clock.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	return reconcile.Result{}, report(ctx, r.client, host, r.clock.Now(), map[string]any{"poweredOn": power.On})
}

// power switches the machine, and returns the power that it has then. A host without a machine is switched by its report.
func (r *reconciler) power(ctx context.Context, host *unstructured.Unstructured, pod *corev1.Pod) (simulator.Power, error) {
	misbehaviour := hosts.MisbehaviourOf(host)
	on, hard := wanted(host)
	switch {
	case pod == nil && !misbehaviour.Obeys(on):
		return simulator.Power{On: PoweredOn(host)}, nil
	case pod == nil:
		return simulator.Power{On: on}, nil
	case !misbehaviour.Obeys(on), !on && !hard && simulator.Hangs(pod):
		return simulator.PowerOf(pod)
	}
	return misbehaviour.Switch(ctx, r.client, pod, on, r.clock.Now())
}

// reported returns whether the host has reported this power.
func reported(host *unstructured.Unstructured, on bool) bool {
	power, found, _ := unstructured.NestedBool(host.Object, "status", "poweredOn")
	return found && power == on
}

func (r *reconciler) endReboot(ctx context.Context, host *unstructured.Unstructured) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, AnnotationReboot)
	if err := r.client.Patch(ctx, host, client.RawPatch("application/merge-patch+json", patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("could not end the reboot of the host: %w", err)
	}
	return nil
}
