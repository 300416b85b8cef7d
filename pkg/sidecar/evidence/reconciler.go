// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package evidence stores what is known of failed machines that are kept, so that it outlives them. All state is in objects: the
// Machine says of which failure evidence is stored, and the ConfigMap when it is to be deleted.
package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/text"
)

// Reasons of the Events on Machines and ConfigMaps.
const (
	// EventStored says that all that was looked for is stored.
	EventStored = "EvidenceStored"
	// EventIncomplete says what could not be had, or for what there was no place. The rest is stored.
	EventIncomplete = "EvidenceIncomplete"
	// EventFailed says why nothing could be stored. It is tried again.
	EventFailed = "EvidenceFailed"
	// EventEvicted is on a ConfigMap that is deleted before its time, as there are too many.
	EventEvicted = "EvidenceEvicted"

	eventAction = "StoreEvidence"
)

const (
	// gatherTime is how long evidence is gathered. With storing it, that is a minute at most (X9).
	gatherTime = 50 * time.Second
	// callTimeout bounds each call to the API server of the seed.
	callTimeout = 10 * time.Second
	// maxSize is how many bytes a bundle has at most. A ConfigMap has a MiB at most, with its metadata.
	maxSize = 900 << 10
	// maxNamed is how many things are named that could not be had.
	maxNamed = 5
)

// Reconciler stores the evidence of one machine at a time, and looks after what is stored.
type Reconciler struct {
	// Source reads and writes the control-plane namespace, and reads it from a cache.
	Source client.Client
	// Store has the ConfigMaps. It asks the API server: nobody needs them in memory.
	Store client.Client
	// Collect gathers what is known of a machine.
	Collect func(ctx context.Context, machine string) (*evidence.Bundle, error)
	// Args are the arguments of this process. They say how machines are preserved.
	Args []string
	// Retention is for how long evidence is kept after its machine is gone.
	Retention time.Duration
	// HasMaintenances says that the shoot has the API of node maintenances.
	HasMaintenances bool
	Clock           clock.PassiveClock
	Recorder        events.EventRecorder
}

// Reconcile stores the evidence of a machine if it is due, or looks after what is stored in a namespace if the request has no
// name.
func (r *Reconciler) Reconcile(ctx context.Context, req reconcile.Request) (reconcile.Result, error) {
	if req.Name == "" {
		return r.lookAfter(ctx, req.Namespace)
	}
	machine := &machinev1alpha1.Machine{}
	if err := r.Source.Get(ctx, req.NamespacedName, machine); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	failure := due(machine)
	if failure == "" {
		return reconcile.Result{}, nil
	}
	if err := r.store(ctx, machine, failure); err != nil {
		bundles.WithLabelValues(outcomeFailed).Inc()
		r.tell(machine, corev1.EventTypeWarning, EventFailed, "The evidence of the failure could not be stored: "+err.Error())
		return reconcile.Result{}, fmt.Errorf("failed to store evidence: %w", err)
	}
	return reconcile.Result{}, r.mark(ctx, machine, failure)
}

// store gathers and stores the evidence of a failure, in the place of that of a failure before. What was stored is not gathered
// once more.
func (r *Reconciler) store(ctx context.Context, machine *machinev1alpha1.Machine, failure string) error {
	stored, err := r.stored(ctx, machine.Namespace)
	if err != nil {
		return err
	}
	former := storedOf(machine.Name, stored)
	if former != nil && former.Annotations[annotationFailedSince] == failure {
		return nil
	}

	gather, cancel := context.WithTimeout(ctx, gatherTime)
	bundle, err := r.Collect(gather, machine.Name)
	cancel()
	if err != nil {
		return err
	}
	if !r.HasMaintenances {
		bundle.Snapshot.Missing = slices.DeleteFunc(bundle.Snapshot.Missing, func(m evidence.Missing) bool { return m.Reason == evidence.NoMaintenances })
	}
	archive := &bytes.Buffer{}
	size, err := bundle.WriteTo(archive, maxSize)
	if err != nil {
		return err
	}

	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if former != nil {
		if err := r.delete(call, former); err != nil {
			return err
		}
	}
	if err := r.Store.Create(call, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name:      evidence.StoredName(machine.Name),
			Namespace: machine.Namespace,
			Labels:    map[string]string{evidence.LabelStored: "true"},
			Annotations: map[string]string{
				evidence.AnnotationStoredMachine: machine.Name,
				evidence.AnnotationStoredNode:    machine.Labels[machinev1alpha1.NodeLabelKey],
				annotationFailedSince:            failure,
			},
		},
		Immutable:  new(true),
		BinaryData: map[string][]byte{evidence.StoredKey: archive.Bytes()},
	}); err != nil {
		return fmt.Errorf("failed to create ConfigMap: %w", err)
	}
	r.tellStored(machine, bundle, size)
	return nil
}

func (r *Reconciler) tellStored(machine *machinev1alpha1.Machine, bundle *evidence.Bundle, size evidence.Size) {
	note := fmt.Sprintf("The evidence of the failure is stored in ConfigMap %s: %d files, %d KiB.", evidence.StoredName(machine.Name), size.Files, size.Bytes>>10)
	var missing []string
	for _, m := range bundle.Snapshot.Missing {
		missing = append(missing, fmt.Sprintf("%s (%s)", m.What, m.Reason))
	}
	for _, path := range size.LeftOut {
		missing = append(missing, path+" (too large)")
	}
	if len(missing) == 0 {
		bundles.WithLabelValues(outcomeStored).Inc()
		r.tell(machine, corev1.EventTypeNormal, EventStored, note)
		return
	}
	bundles.WithLabelValues(outcomeIncomplete).Inc()
	r.tell(machine, corev1.EventTypeWarning, EventIncomplete, note+" Not in it: "+strings.Join(text.First(missing, maxNamed), ", ")+".")
}

// mark writes on the machine of which failure evidence is stored. An automatic power cycle waits for it (X9).
func (r *Reconciler) mark(ctx context.Context, machine *machinev1alpha1.Machine, failure string) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	after := machine.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, v1alpha1.AnnotationEvidence, failure)
	if err := r.Source.Patch(call, after, client.MergeFrom(machine)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("failed to write on the machine that evidence is stored: %w", err)
	}
	return nil
}

// lookAfter deletes what has had its time, or has no place, and writes down when what has lost its machine is to be deleted.
func (r *Reconciler) lookAfter(ctx context.Context, namespace string) (reconcile.Result, error) {
	stored, err := r.stored(ctx, namespace)
	if err != nil || len(stored) == 0 {
		return reconcile.Result{}, err
	}
	machines := &machinev1alpha1.MachineList{}
	if err := r.Source.List(ctx, machines, client.InNamespace(namespace)); err != nil {
		return reconcile.Result{}, fmt.Errorf("failed to list the machines: %w", err)
	}
	names := sets.New[string]()
	for i := range machines.Items {
		names.Insert(machines.Items[i].Name)
	}

	now := r.Clock.Now()
	todo := decide(names, stored, r.Retention, now)
	var errs []error
	for i := range stored {
		object := &stored[i]
		call, cancel := context.WithTimeout(ctx, callTimeout)
		switch expires, changes := todo.Expire[object.Name]; {
		case slices.Contains(todo.Delete, object.Name):
			logf.FromContext(ctx).Info("Deleting evidence whose time is over", "configMap", object.Name)
			errs = append(errs, r.delete(call, object))
		case slices.Contains(todo.Evict, object.Name):
			if err := r.delete(call, object); err != nil {
				errs = append(errs, err)
				break
			}
			r.Recorder.Eventf(configMap(object), nil, corev1.EventTypeWarning, EventEvicted, eventAction, "%s",
				text.Note(fmt.Sprintf("The evidence of machine %s is deleted before its time: there may be that of %d machines.", object.Annotations[evidence.AnnotationStoredMachine], maxStored)))
		case changes:
			errs = append(errs, r.expire(call, object, expires))
		}
		cancel()
	}
	result := reconcile.Result{}
	if !todo.Next.IsZero() {
		result.RequeueAfter = todo.Next.Sub(now)
	}
	return result, errors.Join(errs...)
}

// stored returns the ConfigMaps with evidence, without what is in them.
func (r *Reconciler) stored(ctx context.Context, namespace string) ([]metav1.PartialObjectMetadata, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := r.Store.List(call, list, client.InNamespace(namespace), client.MatchingLabels{evidence.LabelStored: "true"}); err != nil {
		return nil, fmt.Errorf("failed to list ConfigMaps: %w", err)
	}
	return list.Items, nil
}

// delete deletes a ConfigMap, unless it is another one by now.
func (r *Reconciler) delete(ctx context.Context, object *metav1.PartialObjectMetadata) error {
	if err := r.Store.Delete(ctx, configMap(object), client.Preconditions{UID: &object.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("failed to delete ConfigMap: %w", err)
	}
	return nil
}

// expire writes down when a ConfigMap is to be deleted, not at all for the zero time.
func (r *Reconciler) expire(ctx context.Context, object *metav1.PartialObjectMetadata, at time.Time) error {
	before := configMap(object)
	after := before.DeepCopy()
	if at.IsZero() {
		delete(after.Annotations, annotationExpires)
	} else {
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, annotationExpires, at.UTC().Format(time.RFC3339))
	}
	if err := r.Store.Patch(ctx, after, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("failed to write down when evidence is to be deleted: %w", err)
	}
	return nil
}

func configMap(object *metav1.PartialObjectMetadata) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: *object.ObjectMeta.DeepCopy()}
}

func (r *Reconciler) tell(machine *machinev1alpha1.Machine, eventType, reason, note string) {
	r.Recorder.Eventf(machine, nil, eventType, reason, eventAction, "%s", text.Note(note))
}
