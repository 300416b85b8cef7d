// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/paging"
)

const (
	// pageSize is of how many ConfigMaps the metadata is asked for at a time.
	pageSize = 500
	// interval is how often the seed is looked at.
	interval = time.Minute

	eventAction = "BoundEvidence"
)

// Reconciler counts the evidence of all control planes of the seed, and caps those that have most when it becomes too much.
type Reconciler struct {
	// Client writes ConfigMaps.
	Client client.Client
	// APIReader lists their metadata, and has no cache: nobody needs them in memory.
	APIReader client.Reader
	// Budget is how many bytes there may be.
	Budget int64
	// Recorder tells on a ConfigMap that it was deleted early.
	Recorder events.EventRecorder
}

// Reconcile looks at the whole seed, whatever the request is.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	stored, usage, err := r.list(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	caps, total := retention.Caps(usage, r.Budget)
	used.Set(float64(total))
	budget.Set(float64(r.Budget))
	capped.Set(float64(len(caps)))

	var errs []error
	for _, namespace := range slices.Sorted(maps.Keys(usage)) {
		var limit *int64
		if bytes, isCapped := caps[namespace]; isCapped {
			limit = &bytes
		}
		// What is deleted before nobody may store so much any more would come back.
		if err := r.limit(ctx, namespace, usage[namespace], limit); err != nil {
			errs = append(errs, err)
			continue
		}
		if limit != nil {
			errs = append(errs, r.deleteAbove(ctx, stored[namespace], *limit))
		}
	}
	return reconcile.Result{RequeueAfter: interval}, errors.Join(errs...)
}

// list returns what is stored by namespace, without what is in it, and how much that is.
func (r *Reconciler) list(ctx context.Context) (map[string][]metav1.PartialObjectMetadata, map[string]retention.Usage, error) {
	var (
		names  = sets.New(retention.StoredNames()...)
		stored = map[string][]metav1.PartialObjectMetadata{}
		usage  = map[string]retention.Usage{}
	)
	// Only operators and sidecars can store what is listed.
	err := paging.Each(ctx, metav1.ListOptions{Limit: pageSize}, math.MaxInt, func(ctx context.Context, opts metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
		return page, r.APIReader.List(ctx, page, client.HasLabels{retention.LabelStored}, client.Limit(opts.Limit), client.Continue(opts.Continue))
	}, func() {
		clear(stored)
		clear(usage)
	}, func(page *metav1.PartialObjectMetadataList) error {
		for i := range page.Items {
			s := &page.Items[i]
			u := usage[s.Namespace]
			switch {
			case s.Name == retention.StoredCapName:
				u.Cap = retention.StoredCapOf(s)
				u.Broken = u.Cap == nil
			case names.Has(s.Name): // others are not ours to delete
				u.Bytes += retention.StoredSize(s)
				stored[s.Namespace] = append(stored[s.Namespace], *s)
			default:
				continue
			}
			usage[s.Namespace] = u
		}
		return nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("failed to list stored evidence: %w", err)
	}
	return stored, usage, nil
}

// limit has the cap of a control plane be as it is to be, nil for none.
func (r *Reconciler) limit(ctx context.Context, namespace string, before retention.Usage, limit *int64) error {
	log := logf.FromContext(ctx).WithValues("namespace", namespace)
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: retention.StoredCapName}}
	isThere := before.Cap != nil || before.Broken
	switch {
	case limit == nil && !isThere, limit != nil && before.Cap != nil && *before.Cap == *limit:
		return nil
	case limit == nil:
		if err := r.Client.Delete(ctx, configMap); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("failed to delete the cap of evidence in namespace %q: %w", namespace, err)
		}
		log.Info("Deleted the cap of stored evidence, because less of the budget of the seed is used")
		return nil
	}
	after := configMap.DeepCopy()
	after.Labels = map[string]string{retention.LabelStored: retention.StoredCap}
	after.Annotations = map[string]string{retention.AnnotationStoredCap: strconv.FormatInt(*limit, 10)}
	var err error
	if !isThere {
		err = r.Client.Create(ctx, after.DeepCopy())
	}
	// One that has lost its label is not listed, and nobody obeys it.
	if isThere || apierrors.IsAlreadyExists(err) {
		err = r.Client.Patch(ctx, after, client.MergeFrom(configMap))
	}
	// Nobody stores anything in a namespace that is being deleted.
	if apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("failed to write the cap of evidence in namespace %q: %w", namespace, err)
	}
	log.Info("Wrote the cap of stored evidence, because the budget of the seed is used up", "bytes", *limit)
	return nil
}

// deleteAbove deletes what is above the cap of a control plane, also where no sidecar runs. Those that are being stored have a place.
func (r *Reconciler) deleteAbove(ctx context.Context, stored []metav1.PartialObjectMetadata, limit int64) error {
	followed, evicted := retention.Evict(stored, retention.MaxStoredNames, limit)
	var errs []error
	for _, s := range followed {
		_, err := r.delete(ctx, &s)
		errs = append(errs, err)
	}
	for _, s := range evicted {
		isDeleted, err := r.delete(ctx, &s)
		errs = append(errs, err)
		if isDeleted {
			r.Recorder.Eventf(&corev1.ConfigMap{ObjectMeta: s.ObjectMeta}, nil, corev1.EventTypeWarning, retention.EventEvicted, eventAction, "%s", brief.Note(retention.EvictedNote(&s, limit, true)))
		}
	}
	return errors.Join(errs...)
}

// delete deletes a ConfigMap, and returns whether it did: the sidecar may have deleted it, or stored something else by that name since.
func (r *Reconciler) delete(ctx context.Context, s *metav1.PartialObjectMetadata) (bool, error) {
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: s.Name}}
	err := r.Client.Delete(ctx, configMap, client.Preconditions{UID: &s.UID})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("failed to delete stored evidence: %w", err)
	}
	logf.FromContext(ctx).Info("Deleted evidence early, because the budget of the seed is used up", "namespace", s.Namespace, "configMap", s.Name, "machine", retention.StoredMachine(s))
	return true, nil
}
