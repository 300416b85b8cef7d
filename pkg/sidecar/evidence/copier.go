// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/paging"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/executor"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
)

const (
	copierName = "evidence-copies"
	// copyDelay is after which time it is looked at what is stored, and maxPerLook how many bundles are read then: whatever somebody does with
	// copies in the shoot, the seed is not asked for more.
	copyDelay  = 5 * time.Second
	maxPerLook = 5
	// copyPage is of how many copies the metadata is in memory at a time, and maxCopies how many there may be: others may create some.
	copyPage, maxCopies = 20, 1000
)

// Copier copies what is stored in the seed to the shoot, for those who may read it there. Whatever the shoot answers, the seed does not wait for
// it, and nothing comes back from it but the names of copies, each with what it was copied from: a copy that somebody changes or deletes
// is not looked at again by the same process.
type Copier struct {
	// Namespace is that of the control plane.
	Namespace string
	// Seed and Shoot ask the API servers.
	Seed  client.Reader
	Shoot client.Client

	// changed has an event when what is stored may have changed.
	changed chan event.GenericEvent
	// copies are the UIDs of what was copied, by name; nil if that is not known.
	copies map[string]types.UID
	// last is the name that was tried last.
	last string
}

func (c *Copier) addToManager(mgr manager.Manager) error {
	c.changed = make(chan event.GenericEvent, 1)
	request := upkeepOf(c.Namespace)
	return builder.ControllerManagedBy(mgr).
		Named(copierName).
		WatchesRawSource(pace.Once(request)).
		WatchesRawSource(source.Channel(c.changed, handler.Funcs{GenericFunc: func(_ context.Context, _ event.GenericEvent, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) {
			queue.AddAfter(request, copyDelay)
		}})).
		WithOptions(pace.Options(1, minRetry, maxRetry)).
		Complete(c)
}

// Look has it looked at what is stored. It waits for nothing.
func (c *Copier) Look() {
	select {
	case c.changed <- event.GenericEvent{}:
	default: // one waits to be seen
	}
}

// Reconcile deletes the copies of what is not stored any more, and copies what has yet to be. What is refused for one does not keep the
// others from it.
func (c *Copier) Reconcile(ctx context.Context, _ reconcile.Request) (reconcile.Result, error) {
	stored, err := listStored(ctx, c.Seed, c.Namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	if c.copies == nil {
		if err := c.list(ctx); err != nil {
			return reconcile.Result{}, err
		}
	}
	missing, superfluous := retention.NewShelf(stored, 0).Copies(c.copies)
	var errs []error
	for _, name := range superfluous {
		errs = append(errs, c.delete(ctx, name))
	}
	result, read, taken := reconcile.Result{}, 0, false
	for _, next := range after(c.last, missing) {
		if _, isTaken := c.copies[next.Name]; isTaken { // what is to go before it is still there
			continue
		}
		if read++; read > maxPerLook {
			result.RequeueAfter = copyDelay
			break
		}
		c.last = next.Name
		err := c.copy(ctx, &next)
		errs = append(errs, err)
		switch {
		case err == nil:
		case apierrors.IsAlreadyExists(err): // it is there without our knowing, still being deleted, or something else
			taken = true
		case !errors.As(err, new(apierrors.APIStatus)): // it may be there, and the others would not be answered either
			c.copies = nil
			return reconcile.Result{}, errors.Join(errs...)
		}
	}
	if taken {
		c.copies = nil
	}
	// An error takes the place of RequeueAfter. Without the back-off of errors, what is refused for ever would be read for ever.
	if err := errors.Join(errs...); err != nil {
		return reconcile.Result{}, err
	}
	return result, nil
}

// after returns what is stored in the order of its names, of which the first is the one after a name: what is refused at each look must
// not use up what is read in one.
func after(name string, stored []metav1.PartialObjectMetadata) []metav1.PartialObjectMetadata {
	next := slices.IndexFunc(stored, func(s metav1.PartialObjectMetadata) bool { return s.Name > name })
	if next < 0 {
		return stored
	}
	return slices.Concat(stored[next:], stored[:next])
}

// list reads what the shoot has.
func (c *Copier) list(ctx context.Context) error {
	var copies map[string]types.UID
	err := paging.Each(ctx, metav1.ListOptions{Limit: copyPage}, maxCopies, func(ctx context.Context, opts metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
		page := &metav1.PartialObjectMetadataList{}
		page.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("SecretList"))
		return page, call(ctx, func(ctx context.Context) error {
			return c.Shoot.List(ctx, page, client.InNamespace(retention.ShootNamespace), client.Limit(opts.Limit), client.Continue(opts.Continue))
		})
	}, func() { copies = map[string]types.UID{} }, func(page *metav1.PartialObjectMetadataList) error {
		for i := range page.Items {
			copies[page.Items[i].Name] = types.UID(page.Items[i].Annotations[retention.AnnotationStoredOf])
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("failed to list the copies in the shoot: %w", err)
	}
	c.copies = copies
	return nil
}

func (c *Copier) delete(ctx context.Context, name string) error {
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: retention.ShootNamespace, Name: name}}
	if err := call(ctx, func(ctx context.Context) error { return c.Shoot.Delete(ctx, secret) }); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("failed to delete a copy in the shoot: %w", err)
	}
	delete(c.copies, name)
	return nil
}

// copy copies what is stored in a ConfigMap. What the shoot does not take, it would not take later either.
func (c *Copier) copy(ctx context.Context, stored *metav1.PartialObjectMetadata) error {
	// The Role allows to list, and no more than that.
	list := &corev1.ConfigMapList{}
	if err := call(ctx, func(ctx context.Context) error {
		return c.Seed.List(ctx, list, client.InNamespace(c.Namespace), client.MatchingFields{metav1.ObjectNameField: stored.Name})
	}); err != nil {
		return fmt.Errorf("failed to read the stored evidence: %w", err)
	}
	if len(list.Items) == 0 || list.Items[0].UID != stored.UID { // it is told of again
		return nil
	}
	log := logf.FromContext(ctx).WithValues("secret", stored.Name, "machine", retention.StoredMachine(stored))
	bundle, archive := list.Items[0].BinaryData[retention.StoredKey], &bytes.Buffer{}
	size, err := evidence.WriteForShoot(archive, bytes.NewReader(bundle), int64(len(bundle)))
	if err != nil {
		log.Info("Evidence is not copied to the shoot", "reason", err.Error())
		c.copies[stored.Name] = stored.UID
		return nil
	}
	err = call(ctx, func(ctx context.Context) error { return c.Shoot.Create(ctx, secretOf(stored, archive.Bytes(), size)) })
	switch {
	case apierrors.IsInvalid(err), apierrors.IsRequestEntityTooLargeError(err):
		log.Info("The shoot refuses a copy of evidence", "reason", err.Error())
	case err != nil:
		return fmt.Errorf("failed to copy evidence to the shoot: %w", err)
	}
	c.copies[stored.Name] = stored.UID
	return nil
}

// secretOf returns the copy of what is stored, with a bundle.
func secretOf(stored *metav1.PartialObjectMetadata, archive []byte, size evidence.Size) *corev1.Secret {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: retention.ShootNamespace,
			Name:      stored.Name,
			Labels:    map[string]string{},
			Annotations: map[string]string{
				retention.AnnotationStoredOf:    string(stored.UID),
				retention.AnnotationStoredBytes: strconv.Itoa(size.Bytes),
			},
		},
		Type:      retention.ShootType,
		Immutable: new(true),
		Data:      map[string][]byte{retention.StoredKey: archive},
	}
	for _, key := range []string{retention.LabelStored, retention.LabelStoredMachine} {
		if value, isThere := stored.Labels[key]; isThere {
			secret.Labels[key] = value
		}
	}
	for _, key := range []string{retention.AnnotationStoredMachine, retention.AnnotationStoredNode, retention.AnnotationStoredFailedSince, retention.AnnotationStoredIncomplete} {
		if value, isThere := stored.Annotations[key]; isThere {
			secret.Annotations[key] = value
		}
	}
	return secret
}

// call makes a call. What the shoot says of it is cut (P14).
func call(ctx context.Context, do func(context.Context) error) error {
	return brief.CutError(executor.Call(ctx, callTimeout, do))
}
