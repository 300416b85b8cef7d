// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controlplane"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/machinecrd"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/providerconfig"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

// Reasons of events.
const (
	// EventReasonInvalidConfiguration says that a provider configuration is not valid, and that all shares stay what they
	// are.
	EventReasonInvalidConfiguration = "InvalidConfiguration"
	// EventReasonShareNotPlaced says why a MachineDeployment has no share.
	EventReasonShareNotPlaced = "ShareNotPlaced"

	eventActionDistribute = "DistributeShares"

	// takeoverInterval is when to look again whether the preservation controller has taken over what machine-controller-manager has
	// preserved by itself. It is the time for which both preserve machines. startInterval is the same as long as it is not at work.
	takeoverInterval = 5 * time.Second
	startInterval    = 30 * time.Second

	// settleTime is how long it takes at most until the caches of all replicas have seen a change.
	settleTime = 5 * time.Second
)

// Reconciler writes the shares into the MachineDeployments of a Worker. It is not the one that the Worker is handled by:
// it sets no finalizer and no status.
type Reconciler struct {
	// Client should read from a cache.
	Client client.Client
	// APIReader reads Machines and Leases, which are not cached: they are read only while machine-controller-manager preserves machines
	// by itself.
	APIReader client.Reader
	// Planner determines the shares.
	Planner *controlplane.Planner
	// Schemas tells whether the native fields are to be written.
	Schemas *machinecrd.Schemas
	// Recorder records what a user can do something about.
	Recorder events.EventRecorder
	// Clock tells how long the preservation controller has been at work.
	Clock clock.PassiveClock
}

// Reconcile brings the MachineDeployments of a Worker in line with its pools and the Extension.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	log := logf.FromContext(ctx)

	worker := &extensionsv1alpha1.Worker{}
	if err := r.Client.Get(ctx, request.NamespacedName, worker); err != nil {
		if apierrors.IsNotFound(err) {
			log.V(1).Info("Object is gone, stop reconciling")
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, fmt.Errorf("failed to get Worker: %w", err)
	}

	deployments := &machinev1alpha1.MachineDeploymentList{}
	if err := r.Client.List(ctx, deployments, client.InNamespace(worker.Namespace)); err != nil {
		return reconcile.Result{}, fmt.Errorf("failed to list MachineDeployments: %w", err)
	}

	extension, err := controlplane.FindExtension(ctx, r.Client, worker.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	if extension == nil {
		return r.patchAll(ctx, deployments.Items, share.Remove)
	}

	config, err := providerconfig.ReadExtension(extension, share.PoolsOfWorker(worker))
	if err != nil {
		awaits, awaitsErr := controlplane.AwaitsWorker(ctx, r.Client, extension)
		if awaitsErr != nil {
			return reconcile.Result{}, awaitsErr
		}
		// Trying again is of no use. A change of the Extension or the Worker triggers the next attempt.
		if awaits {
			log.Info("Worker does not have the worker pools of the Shoot yet, all shares stay what they are", "reason", err.Error())
			return reconcile.Result{}, nil
		}
		log.Info("Provider configuration is not valid, all shares stay what they are", "reason", err.Error())
		r.event(extension, worker, EventReasonInvalidConfiguration, "The shares are not updated, because the configuration is not valid: "+err.Error())
		return reconcile.Result{}, nil
	}

	shares, unplaced, err := r.Planner.Shares(ctx, worker, config, deployments.Items)
	if err != nil {
		return reconcile.Result{}, err
	}
	for _, u := range unplaced {
		log.Info("MachineDeployment gets no share", "machineDeployment", u.Deployment, "reason", u.Reason)
		r.event(worker, extension, EventReasonShareNotPlaced, fmt.Sprintf("MachineDeployment %q gets no share: %s", u.Deployment, u.Reason))
	}

	nativeFields, err := r.Schemas.MachineDeploymentsCanPreserve(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	var (
		nativeMaxima map[string]int32
		lookAgain    time.Duration
		unknown      error
	)
	if nativeFields {
		nativeMaxima, lookAgain, unknown = r.nativeMaxima(ctx, worker.Namespace, deployments.Items, shares)
	}
	result, err := r.patchAll(ctx, deployments.Items, func(deployment *machinev1alpha1.MachineDeployment) bool {
		settings, ok := shares[deployment.Name]
		return ok && share.Apply(deployment, settings, nativeFields, nativeMaxima[deployment.Name])
	})
	if err := errors.Join(err, unknown); err != nil {
		return reconcile.Result{}, err
	}
	if len(nativeMaxima) > 0 && result.RequeueAfter == 0 {
		log.V(1).Info("The preservation controller has to take over from machine-controller-manager, looking again", "after", lookAgain)
		result.RequeueAfter = lookAgain
	}
	return result, nil
}

// nativeMaxima returns how many machines machine-controller-manager may preserve by itself, by the names of the MachineDeployments,
// without those where it may preserve none, and after what time to look again. What cannot be determined stays what it is.
func (r *Reconciler) nativeMaxima(ctx context.Context, namespace string, deployments []machinev1alpha1.MachineDeployment, shares map[string]share.Settings) (map[string]int32, time.Duration, error) {
	maxima := map[string]int32{}
	for _, deployment := range deployments {
		current, settings := deployment.Spec.AutoPreserveFailedMachineMax, shares[deployment.Name]
		if current > 0 && settings.AutoPreserveFailedMax > 0 && deployment.Spec.Replicas > 0 && deployment.DeletionTimestamp == nil {
			maxima[deployment.Name] = current
		}
	}
	if len(maxima) == 0 {
		return nil, 0, nil
	}

	atWork, err := preservationcontroller.AtWork(ctx, r.APIReader, namespace, r.Clock.Now())
	if err != nil {
		return maxima, 0, err
	}
	machines := &metav1.PartialObjectMetadataList{}
	machines.SetGroupVersionKind(machinev1alpha1.SchemeGroupVersion.WithKind("MachineList"))
	if err := r.APIReader.List(ctx, machines, client.InNamespace(namespace)); err != nil {
		return maxima, 0, fmt.Errorf("failed to list Machines: %w", err)
	}
	var errs []error
	for i := range deployments {
		deployment := &deployments[i]
		current, ok := maxima[deployment.Name]
		if !ok {
			continue
		}
		preserved, err := preservedNatively(deployment, machines.Items)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		_, known := share.Of(deployment)
		if share.NativeMax(current, shares[deployment.Name], known, preserved, atWork) == 0 {
			delete(maxima, deployment.Name)
		}
	}
	if atWork == 0 {
		return maxima, startInterval, errors.Join(errs...)
	}
	return maxima, takeoverInterval, errors.Join(errs...)
}

// preservedNatively returns how many machines of a MachineDeployment machine-controller-manager has preserved by itself, and nobody has
// taken over.
func preservedNatively(deployment *machinev1alpha1.MachineDeployment, machines []metav1.PartialObjectMetadata) (preserved int, err error) {
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return 0, fmt.Errorf("failed to read the selector of MachineDeployment %q: %w", deployment.Name, err)
	}
	for _, machine := range machines {
		if machine.DeletionTimestamp == nil && machine.Annotations[v1alpha1.AnnotationPreserve] == preservation.ValueAutoPreserved && selector.Matches(labels.Set(machine.Labels)) {
			preserved++
		}
	}
	return preserved, nil
}

// patchAll mutates the MachineDeployments and writes those for which mutate returns true. It returns the errors of all, which
// keep no other one without its share, or with one that it is to lose (P12). A webhook of a replica whose cache lags may
// mutate them back; the result then asks for another look, because no event would.
func (r *Reconciler) patchAll(ctx context.Context, deployments []machinev1alpha1.MachineDeployment, mutate func(*machinev1alpha1.MachineDeployment) bool) (reconcile.Result, error) {
	var (
		result reconcile.Result
		errs   []error
	)
	for i := range deployments {
		deployment := &deployments[i]
		if deployment.DeletionTimestamp != nil {
			continue
		}

		patch := client.MergeFrom(deployment.DeepCopy())
		if !mutate(deployment) {
			continue
		}
		logf.FromContext(ctx).Info("Patching MachineDeployment", "machineDeployment", client.ObjectKeyFromObject(deployment))
		if err := r.Client.Patch(ctx, deployment, patch); client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("failed to patch MachineDeployment %q: %w", deployment.Name, err))
			continue
		}
		if mutate(deployment) {
			result.RequeueAfter = settleTime
		}
	}
	if len(errs) > 0 {
		return reconcile.Result{}, errors.Join(errs...)
	}
	return result, nil
}

func (r *Reconciler) event(regarding, related client.Object, reason, note string) {
	r.Recorder.Eventf(regarding, related, corev1.EventTypeWarning, reason, eventActionDistribute, "%s", brief.Note(note))
}
