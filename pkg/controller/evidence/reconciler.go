// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
)

// pageSize is of how many ConfigMaps the metadata is asked for at a time.
const pageSize = 500

// Reconciler counts the evidence of all control planes of the seed, and caps those that have most when it becomes too much.
type Reconciler struct {
	// Client writes ConfigMaps.
	Client client.Client
	// APIReader lists their metadata, and has no cache: nobody needs them in memory.
	APIReader client.Reader
	// Budget is how many bytes there may be.
	Budget int64
}

// Reconcile looks at the whole seed, whatever the request is.
func (r *Reconciler) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	stored, usage, err := r.list(ctx)
	if err != nil {
		return reconcile.Result{}, err
	}
	total := int64(0)
	for _, u := range usage {
		total += u.Bytes
	}
	caps := Decide(usage, r.Budget)
	used.Set(float64(total))
	allowed.Set(float64(r.Budget))
	capped.Set(float64(len(caps)))

	var errs []error
	for _, namespace := range slices.Sorted(maps.Keys(usage)) {
		limit, isCapped := caps[namespace]
		// What is deleted before nobody may store so much any more would come back.
		if err := r.limit(ctx, namespace, usage[namespace].Cap, limit, isCapped); err != nil {
			errs = append(errs, err)
			continue
		}
		if isCapped {
			errs = append(errs, r.deleteAbove(ctx, namespace, stored[namespace], limit))
		}
	}
	return reconcile.Result{RequeueAfter: period}, errors.Join(errs...)
}

// list returns what is stored by namespace, without what is in it, and how much that is.
func (r *Reconciler) list(ctx context.Context) (map[string][]metav1.PartialObjectMetadata, map[string]Usage, error) {
	var (
		names  = sets.New(evidence.StoredNames()...)
		stored = map[string][]metav1.PartialObjectMetadata{}
		usage  = map[string]Usage{}
		next   = ""
	)
	for {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
		if err := r.APIReader.List(ctx, page, client.HasLabels{evidence.LabelStored}, client.Limit(pageSize), client.Continue(next)); err != nil {
			return nil, nil, fmt.Errorf("failed to list stored evidence: %w", err)
		}
		for i := range page.Items {
			s := &page.Items[i]
			u := usage[s.Namespace]
			switch {
			case s.Name == evidence.StoredCapName:
				u.Cap = new(evidence.StoredCapOf(s))
			case names.Has(s.Name): // others are not ours to delete
				u.Bytes += evidence.StoredSize(s)
				stored[s.Namespace] = append(stored[s.Namespace], *s)
			default:
				continue
			}
			usage[s.Namespace] = u
		}
		if next = page.Continue; next == "" {
			return stored, usage, nil
		}
	}
}

// limit has the cap of a control plane be as it is to be.
func (r *Reconciler) limit(ctx context.Context, namespace string, before *int64, limit int64, isCapped bool) error {
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: evidence.StoredCapName}}
	var err error
	switch {
	case !isCapped && before == nil, isCapped && before != nil && *before == limit:
		return nil
	case !isCapped:
		err = client.IgnoreNotFound(r.Client.Delete(ctx, configMap))
	case before == nil:
		configMap.Labels = map[string]string{evidence.LabelStored: evidence.StoredCap}
		configMap.Annotations = map[string]string{evidence.AnnotationStoredCap: strconv.FormatInt(limit, 10)}
		err = r.Client.Create(ctx, configMap)
	default:
		after := configMap.DeepCopy()
		after.Annotations = map[string]string{evidence.AnnotationStoredCap: strconv.FormatInt(limit, 10)}
		err = r.Client.Patch(ctx, after, client.MergeFrom(configMap))
	}
	// Nobody stores anything in a namespace that is being deleted.
	if err != nil && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return fmt.Errorf("failed to write the cap of evidence in namespace %q: %w", namespace, err)
	}
	logf.FromContext(ctx).Info("Changed the cap of stored evidence, because of the budget of the seed", "namespace", namespace, "capped", isCapped, "bytes", limit)
	return nil
}

// deleteAbove deletes what is above the cap of a control plane, also where no sidecar runs.
func (r *Reconciler) deleteAbove(ctx context.Context, namespace string, stored []metav1.PartialObjectMetadata, limit int64) error {
	var errs []error
	for _, s := range above(stored, limit) {
		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: s.Name}}
		// The sidecar may have stored something else by that name since.
		if err := r.Client.Delete(ctx, configMap, client.Preconditions{UID: &s.UID}); client.IgnoreNotFound(err) != nil && !apierrors.IsConflict(err) {
			errs = append(errs, fmt.Errorf("failed to delete stored evidence: %w", err))
			continue
		}
		logf.FromContext(ctx).Info("Deleted evidence before its time, because the budget of the seed is used up", "namespace", namespace, "configMap", s.Name, "machine", evidence.StoredMachine(&s))
	}
	return errors.Join(errs...)
}
