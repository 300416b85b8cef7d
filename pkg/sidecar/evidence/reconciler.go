// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package evidence stores what is known of failed, preserved machines, so that it outlives them. All state is in objects: the
// Machine says of which failure evidence is stored, and the ConfigMap when it is to be deleted.
package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

// Reasons of the Events on Machines and ConfigMaps.
const (
	// EventStored says that the evidence is stored completely.
	EventStored = "EvidenceStored"
	// EventIncomplete says what could not be read or did not fit into the evidence. The rest is stored.
	EventIncomplete = "EvidenceIncomplete"
	// EventFailed says why no evidence could be stored. The preservation controller tries again.
	EventFailed = "EvidenceFailed"

	eventAction = "StoreEvidence"
)

const (
	// gatherTime is how long evidence is gathered. With storing it, that is a minute at most (X9).
	gatherTime = 50 * time.Second
	// callTimeout bounds each call to the API server of the seed.
	callTimeout = 10 * time.Second
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
	// Host returns all objects that the host of a machine consists of. It is nil where there are no hosts.
	Host func(context.Context, *machinev1alpha1.Machine) ([]unstructured.Unstructured, error)
	// Args are those that this process runs with: they are a part of the evidence.
	Args []string
	// Retention is for how long evidence is kept after its machine is gone.
	Retention time.Duration
	// Budget is how many bytes of evidence are stored, if the extension does not say less.
	Budget   int64
	Clock    clock.PassiveClock
	Recorder events.EventRecorder
	// Changed is called when what is stored may have changed. It may be nil.
	Changed func()
	// Leading tells what this process gathers from what one before has gathered.
	Leading *pace.Leading
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
	failure := retention.FailureOf(machine)
	if failure == "" {
		return reconcile.Result{}, nil
	}
	shelf, err := r.shelf(ctx, machine.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	now, result, gathered := r.Clock.Now(), reconcile.Result{}, false
	if at := shelf.Due(machine, now); now.Before(at) {
		result.RequeueAfter = at.Sub(now)
	} else if !at.IsZero() {
		if err := r.begin(ctx, machine); err != nil {
			return reconcile.Result{}, err
		}
		complete, err := r.store(ctx, machine, failure, shelf.Last(machine.Name, failure) != nil)
		if errors.Is(err, evidence.ErrTooLarge) {
			r.tell(machine, corev1.EventTypeWarning, EventFailed, "The evidence of the failure cannot be stored now, and this is tried again: "+err.Error())
			return reconcile.Result{RequeueAfter: retention.RetryIncomplete}, nil
		}
		if err != nil {
			bundles.WithLabelValues(outcomeFailed).Inc()
			r.tell(machine, corev1.EventTypeWarning, EventFailed, "The evidence of the failure could not be stored, and this is tried again: "+err.Error())
			return reconcile.Result{}, fmt.Errorf("failed to store evidence: %w", err)
		}
		if gathered = true; !complete {
			result.RequeueAfter = retention.RetryIncomplete
		}
	}
	if err := r.mark(ctx, machine, failure); err != nil {
		return reconcile.Result{}, err
	}
	if gathered { // what it replaces goes when it is there
		if _, err := r.lookAfter(ctx, machine.Namespace); err != nil {
			return reconcile.Result{}, err
		}
	}
	return result, nil
}

// store gathers and stores the evidence of a failure. What it replaces stays. It returns whether the shoot and the seed could both
// be asked. If they could not, and that is what is stored of the failure already, that has more to tell of it, and is left alone.
func (r *Reconciler) store(ctx context.Context, machine *machinev1alpha1.Machine, failure string, again bool) (bool, error) {
	gather, cancel := context.WithTimeout(ctx, gatherTime)
	bundle, err := r.Collect(gather, machine.Name)
	cancel()
	if again && (err != nil || isIncomplete(&bundle.Snapshot)) {
		logf.FromContext(ctx).Info("Evidence is still incomplete", "error", err)
		return false, nil
	}
	if err != nil {
		return false, err
	}
	// Much may have been stored while it was gathered.
	shelf, err := r.shelf(ctx, machine.Namespace)
	if err != nil {
		return false, err
	}
	archive := &bytes.Buffer{}
	size, err := bundle.WriteTo(archive, shelf.Share(machine.Name))
	if err != nil {
		return false, err
	}

	configMap := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: machine.Namespace,
			Labels:    map[string]string{retention.LabelStored: "true"},
			Annotations: map[string]string{
				retention.AnnotationStoredMachine:     machine.Name,
				retention.AnnotationStoredNode:        machine.Labels[machinev1alpha1.NodeLabelKey],
				retention.AnnotationStoredFailedSince: failure,
				retention.AnnotationStoredBytes:       strconv.Itoa(size.Bytes),
			},
		},
		Immutable:  new(true),
		BinaryData: map[string][]byte{retention.StoredKey: archive.Bytes()},
	}
	if len(machine.Name) <= validation.LabelValueMaxLength {
		configMap.Labels[retention.LabelStoredMachine] = machine.Name
	}
	complete := !isIncomplete(&bundle.Snapshot)
	if !complete {
		configMap.Annotations[retention.AnnotationStoredIncomplete] = bundle.Snapshot.Time.UTC().Format(time.RFC3339)
	}
	if err := r.create(ctx, configMap, shelf.Stored); err != nil {
		return false, err
	}
	r.tellStored(machine, configMap.Name, bundle, size)
	return complete, nil
}

// isIncomplete says that the shoot or the seed could not be asked.
func isIncomplete(s *observed.Snapshot) bool {
	return s.Seed == nil || slices.ContainsFunc(s.Unknown(observed.WhatNode, observed.WhatPods, observed.WhatNodeEvents, observed.WhatMachineEvents), func(m observed.Missing) bool { return !m.Partial })
}

// create creates a ConfigMap with the first name that is free. One may be taken without being listed: it has lost its label, or
// another machine's was created just now.
func (r *Reconciler) create(ctx context.Context, configMap *corev1.ConfigMap, stored []metav1.PartialObjectMetadata) error {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for _, name := range retention.StoredNames() {
		if slices.ContainsFunc(stored, func(s metav1.PartialObjectMetadata) bool { return s.Name == name }) {
			continue
		}
		configMap.Name = name
		if err := r.Store.Create(call, configMap); err == nil || !apierrors.IsAlreadyExists(err) {
			if err != nil {
				return fmt.Errorf("failed to create ConfigMap: %w", err)
			}
			return nil
		}
	}
	return fmt.Errorf("all %d ConfigMaps for evidence exist, from %s on", retention.MaxStoredNames, retention.StoredNames()[0])
}

func (r *Reconciler) tellStored(machine *machinev1alpha1.Machine, name string, bundle *evidence.Bundle, size evidence.Size) {
	note := fmt.Sprintf("The evidence of the failure is stored in ConfigMap %s: %s, %d KiB.", name, brief.Count(size.Files, "file"), size.Bytes>>10)
	var missing []string
	for _, m := range bundle.Snapshot.Missing {
		missing = append(missing, fmt.Sprintf("%s (%s)", m.What(), m.Reason))
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
	r.tell(machine, corev1.EventTypeWarning, EventIncomplete, note+" It does not have: "+strings.Join(brief.First(missing, maxNamed), ", ")+".")
}

// begin writes on the machine since when this process gathers evidence of its failure, unless that is there, or some is stored. An
// automatic power cycle waits for as long as that takes (X9), and must not begin because a process before was killed while it gathered.
// Evidence does not wait for the write, but for a conflict: the failure may be over.
func (r *Reconciler) begin(ctx context.Context, machine *machinev1alpha1.Machine) error {
	if record := preservation.ReadRecord(machine); record.HasEvidence(machine) || !record.EvidenceBegan(machine, r.Leading.Since(r.Clock.Now())).IsZero() {
		return nil
	}
	err := r.annotate(ctx, machine, v1alpha1.EvidenceGathering+r.Clock.Now().UTC().Format(time.RFC3339))
	if err != nil && !apierrors.IsConflict(err) {
		logf.FromContext(ctx).Error(err, "Failed to write on the machine that evidence is being gathered")
		return nil
	}
	return err
}

// mark writes on the machine of which failure evidence is stored. An automatic power cycle waits for it (X9). Nothing is written on
// a machine that has recovered or was released meanwhile: nobody would remove it (T10).
func (r *Reconciler) mark(ctx context.Context, before *machinev1alpha1.Machine, failure string) error {
	machine := &machinev1alpha1.Machine{}
	if err := r.Source.Get(ctx, client.ObjectKeyFromObject(before), machine); err != nil {
		return client.IgnoreNotFound(err)
	}
	if machine.UID != before.UID || retention.FailureOf(machine) != failure || retention.IsMarked(machine) {
		return nil
	}
	if err := r.annotate(ctx, machine, failure); err != nil {
		return fmt.Errorf("failed to write on the machine that evidence is stored: %w", err)
	}
	return nil
}

// annotate writes AnnotationEvidence on a machine as it was read: the cache may not know yet that the failure is over.
func (r *Reconciler) annotate(ctx context.Context, machine *machinev1alpha1.Machine, value string) error {
	after := machine.DeepCopy()
	metav1.SetMetaDataAnnotation(&after.ObjectMeta, v1alpha1.AnnotationEvidence, value)
	run := executor.Run{Seed: r.Source, Timeout: callTimeout}
	run.Do(ctx, intent.Write{Before: machine, After: after, Lock: true})
	return run.Err()
}

// lookAfter deletes what is past its retention time, is replaced, or has no place, and writes down when what has lost its machine is to be deleted.
func (r *Reconciler) lookAfter(ctx context.Context, namespace string) (reconcile.Result, error) {
	if r.Changed != nil {
		defer r.Changed()
	}
	shelf, err := r.shelf(ctx, namespace)
	if err != nil || len(shelf.Stored) == 0 {
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
	todo := shelf.Upkeep(names, r.Retention, now)
	run := executor.Run{Shoot: r.Store, Timeout: callTimeout}
	for i := range shelf.Stored {
		object := &corev1.ConfigMap{ObjectMeta: shelf.Stored[i].ObjectMeta}
		switch expires, changes := todo.Expire[object.Name]; {
		case slices.Contains(todo.Delete, object.Name):
			logf.FromContext(ctx).Info("Deleting evidence that is replaced or past its retention time", "configMap", object.Name)
			run.Do(ctx, intent.Write{Before: object, Delete: true})
		case slices.Contains(todo.Evict, object.Name):
			if run.Do(ctx, intent.Write{Before: object, Delete: true}); run.Written(object) {
				r.Recorder.Eventf(object, nil, corev1.EventTypeWarning, retention.EventEvicted, eventAction, "%s", brief.Note(retention.EvictedNote(object, shelf.Budget, shelf.IsCapped)))
			}
		case changes:
			run.Do(ctx, intent.Write{Before: object, After: expiring(object, expires)})
		}
	}
	result := reconcile.Result{}
	if !todo.Next.IsZero() {
		result.RequeueAfter = todo.Next.Sub(now)
	}
	return result, run.Err()
}

// shelf returns what is stored, without what is in it.
func (r *Reconciler) shelf(ctx context.Context, namespace string) (retention.Shelf, error) {
	stored, err := listStored(ctx, r.Store, namespace)
	if err != nil {
		return retention.Shelf{}, err
	}
	return retention.NewShelf(stored, r.Budget), nil
}

// listStored returns the metadata of all ConfigMaps with LabelStored.
func listStored(ctx context.Context, seed client.Reader, namespace string) ([]metav1.PartialObjectMetadata, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := seed.List(ctx, list, client.InNamespace(namespace), client.HasLabels{retention.LabelStored}); err != nil {
		return nil, fmt.Errorf("failed to list ConfigMaps: %w", err)
	}
	return list.Items, nil
}

// expiring returns a ConfigMap that says when it is to be deleted, not at all for the zero time.
func expiring(before *corev1.ConfigMap, at time.Time) *corev1.ConfigMap {
	after := before.DeepCopy()
	if at.IsZero() {
		delete(after.Annotations, retention.AnnotationStoredExpires)
	} else {
		metav1.SetMetaDataAnnotation(&after.ObjectMeta, retention.AnnotationStoredExpires, at.UTC().Format(time.RFC3339))
	}
	return after
}

func (r *Reconciler) tell(machine *machinev1alpha1.Machine, eventType, reason, note string) {
	r.Recorder.Eventf(machine, nil, eventType, reason, eventAction, "%s", brief.Note(note))
}
