// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package baremetalhost

import (
	"context"
	"fmt"
	"maps"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
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
	// What it is in comes first: the rest of the status is of no use otherwise.
	before := host.GetResourceVersion()
	if err := r.report(ctx, host, map[string]any{"provisioning": map[string]any{"state": stateOf(host)}}); err != nil || before != host.GetResourceVersion() {
		return reconcile.Result{}, err // the change is an event
	}
	if busy, wait, err := r.service(ctx, host); busy || err != nil {
		return reconcile.Result{RequeueAfter: wait}, err
	}

	pod, err := hosts.Machine(ctx, r.client, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	power, err := r.power(ctx, host, pod)
	if err != nil {
		return reconcile.Result{}, err
	}
	if on, _ := wanted(host); power.On != on && hosts.MisbehaviourOf(host) == hosts.PowerError {
		return reconcile.Result{}, r.report(ctx, host, map[string]any{
			"operationalStatus": statusError, "errorType": errorTypePower, "errorMessage": "The BMC of the landscape does not switch.", "errorCount": int64(1),
		})
	}
	if reported(host, power.On) {
		return reconcile.Result{}, nil
	}
	lag := ReportLag
	if hosts.MisbehaviourOf(host) == hosts.LateReport {
		lag = hosts.LateReportLag
	}
	if wait := power.Since.Add(lag).Sub(r.clock.Now()); wait > 0 {
		return reconcile.Result{RequeueAfter: wait}, nil
	}
	fields := map[string]any{"poweredOn": power.On}
	if statusOf(host, "errorType") == errorTypePower {
		maps.Copy(fields, map[string]any{"operationalStatus": statusOK, "errorType": nil, "errorMessage": "", "errorCount": int64(0)})
	}
	return reconcile.Result{}, r.report(ctx, host, fields)
}

// service begins and ends the servicing of a host, and returns whether that is all that is to be done about it for some time. It
// began when the status was written last.
func (r *reconciler) service(ctx context.Context, host *unstructured.Unstructured) (busy bool, wait time.Duration, err error) {
	isPending := hosts.MisbehaviourOf(host) == hosts.Servicing && stateOf(host) == stateProvisioned
	switch {
	case statusOf(host, "operationalStatus") != statusServicing && isPending && reported(host, false):
		return true, hosts.ServicingTime, r.report(ctx, host, map[string]any{"operationalStatus": statusServicing})
	case statusOf(host, "operationalStatus") != statusServicing:
		return false, 0, nil
	case isPending:
		began, err := time.Parse(time.RFC3339, statusOf(host, "lastUpdated"))
		if err != nil {
			return true, 0, fmt.Errorf("could not read when the servicing began: %w", err)
		}
		if wait := began.Add(hosts.ServicingTime).Sub(r.clock.Now()); wait > 0 {
			return true, wait, nil
		}
		if err := r.unset(ctx, host, hosts.MisbehaviourAnnotation); err != nil {
			return true, 0, err
		}
	}
	return true, 0, r.report(ctx, host, map[string]any{"operationalStatus": statusOK})
}

// report writes the status of a host, if that changes it. What is nil goes.
func (r *reconciler) report(ctx context.Context, host *unstructured.Unstructured, fields map[string]any) error {
	before := host.DeepCopy()
	status := map[string]any{"operationalStatus": statusOK, "errorMessage": "", "errorCount": int64(0)}
	present, _, _ := unstructured.NestedMap(host.Object, "status")
	maps.Copy(status, present)
	maps.Copy(status, fields)
	maps.DeleteFunc(status, func(_ string, value any) bool { return value == nil })
	if apiequality.Semantic.DeepEqual(status, present) {
		return nil
	}
	status["lastUpdated"] = r.clock.Now().UTC().Format(time.RFC3339)
	host.Object["status"] = status
	if err := r.client.Status().Patch(ctx, host, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("could not write the status of the host: %w", err)
	}
	return nil
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

func (r *reconciler) unset(ctx context.Context, host *unstructured.Unstructured, annotation string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, annotation)
	if err := r.client.Patch(ctx, host, client.RawPatch("application/merge-patch+json", patch)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("could not remove an annotation of the host: %w", err)
	}
	return nil
}
