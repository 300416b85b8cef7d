// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package executor carries out what was decided: those who decide do not write.
package executor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/panics"
)

// Timeout is how long a call may take, unless a Run has another one.
const Timeout = 5 * time.Second

// Run carries out the writes of one decision in their order, and knows what has become of their objects. One goroutine writes; once it has
// ended, others may ask.
type Run struct {
	// Seed writes Machines, Shoot all else.
	Seed, Shoot client.Client
	// Timeout is how long a call may take.
	Timeout time.Duration
	// Subject is the object that all is about: once it is gone, or a call for it has failed, nothing is written. It may be nil.
	Subject intent.Object
	// Wrote is called after each write. It may be nil.
	Wrote func(context.Context, intent.Write)

	objects map[key]*object
	// order is that in which they were seen.
	order []*object
}

type key struct {
	kind reflect.Type
	name types.NamespacedName
}

// object is what has become of an object.
type object struct {
	key
	latest        intent.Object
	written, gone bool
	// waits says that a write was left out: those after it are left out as well.
	waits bool
	err   error
}

// Apply carries out writes with a client.
func Apply(ctx context.Context, c client.Client, writes ...intent.Write) *Run {
	run := &Run{Seed: c, Shoot: c}
	run.Do(ctx, writes...)
	return run
}

// Do carries out writes.
func (r *Run) Do(ctx context.Context, writes ...intent.Write) {
	for _, write := range writes {
		if r.Subject != nil && r.of(r.Subject).isLost() {
			return
		}
		o := r.of(write.Before)
		if o.waits = o.waits || write.AfterAll && r.Err() != nil; o.waits || o.isLost() {
			continue
		}
		verb := "write"
		if write.Delete {
			verb = "delete"
		}
		var after intent.Object
		o.note(verb, Call(ctx, r.Timeout, func(ctx context.Context) (err error) { after, err = r.write(ctx, write, o.latest); return err }))
		if after == nil || o.isLost() {
			continue
		}
		o.latest, o.written, o.gone = after, true, write.Delete
		logf.FromContext(ctx).V(1).Info("Wrote", "kind", o.kind.Elem().Name(), "object", o.name, "status", write.Status, "resourceVersion", after.GetResourceVersion())
		if r.Wrote != nil {
			r.Wrote(ctx, write)
		}
	}
}

// write makes a write on what has become of its object, and returns what comes back, nil if there is nothing to be written.
func (r *Run) write(ctx context.Context, write intent.Write, latest intent.Object) (intent.Object, error) {
	writer := r.Shoot
	if _, isMachine := latest.(*machinev1alpha1.Machine); isMachine {
		writer = r.Seed
	}
	if write.Delete {
		only := client.Preconditions{UID: new(latest.GetUID())}
		if write.Lock {
			only.ResourceVersion = new(latest.GetResourceVersion())
		}
		return latest, writer.Delete(ctx, latest, only)
	}
	if write.Edit == nil && !write.Changes() {
		return nil, nil
	}
	before, after := write.On(latest)
	if apiequality.Semantic.DeepEqual(before, after) {
		return nil, nil
	}
	do := func(patch client.Patch) error {
		if write.Status {
			return writer.Status().Patch(ctx, after, patch)
		}
		return writer.Patch(ctx, after, patch)
	}
	if write.LockEdits && !write.Lock {
		return after, unlessEdited(write.Before, before, after, do)
	}
	var opts []client.MergeFromOption
	if write.Lock {
		opts = append(opts, client.MergeFromWithOptimisticLock{})
	}
	patch := client.MergeFromWithOptions(before, opts...)
	if _, isNode := before.(*corev1.Node); isNode { // conditions are merged by their type: the others are the kubelet's
		patch = client.StrategicMergeFrom(before, opts...)
	}
	return after, do(patch)
}

// Read reads an object as it is now, on which its next writes are made, and returns whether it could.
func (r *Run) Read(ctx context.Context, reader client.Reader, obj intent.Object) bool {
	o := r.of(obj)
	latest := reflect.New(o.kind.Elem()).Interface().(client.Object)
	o.note("read", Call(ctx, r.Timeout, func(ctx context.Context) error { return reader.Get(ctx, o.name, latest) }))
	if o.isLost() {
		return false
	}
	o.latest = latest
	return true
}

// Call makes a call that may take as long as a timeout, 0 for Timeout. A panic in it is an error.
func Call(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, cmp.Or(timeout, Timeout))
	defer cancel()
	return panics.Catch(ctx, func() error { return do(ctx) })
}

// Fail notes that something else has failed for an object.
func (r *Run) Fail(obj intent.Object, err error) { r.of(obj).note("go on with", err) }

func (r *Run) of(obj intent.Object) *object {
	k := key{reflect.TypeOf(obj), client.ObjectKeyFromObject(obj)}
	if r.objects[k] == nil {
		if r.objects == nil {
			r.objects = map[key]*object{}
		}
		r.objects[k] = &object{key: k, latest: obj}
		r.order = append(r.order, r.objects[k])
	}
	return r.objects[k]
}

// find returns what has become of an object. It notes nothing: after its last write, a Run may be asked by several goroutines.
func (r *Run) find(obj intent.Object) *object {
	if o := r.objects[key{reflect.TypeOf(obj), client.ObjectKeyFromObject(obj)}]; o != nil {
		return o
	}
	return &object{latest: obj}
}

func (o *object) isLost() bool { return o.gone || o.err != nil }

// note notes how a call went. What is gone needs nothing.
func (o *object) note(verb string, err error) {
	switch {
	case apierrors.IsNotFound(err):
		o.gone = true
	case err != nil:
		o.err = fmt.Errorf("failed to %s %s %s: %w", verb, o.kind.Elem().Name(), strings.TrimPrefix(o.name.String(), "/"), brief.CutError(err))
	}
}

// Latest returns what an object was when it was read or written last.
func Latest[T intent.Object](r *Run, obj T) T { return r.find(obj).latest.(T) }

// Gone says that an object does not exist any more.
func (r *Run) Gone(obj intent.Object) bool { return r.find(obj).gone }

// ErrOf returns why a call for an object has failed, nil if none has.
func (r *Run) ErrOf(obj intent.Object) error { return r.find(obj).err }

// Written says that an object was written.
func (r *Run) Written(obj intent.Object) bool { return r.find(obj).written }

// Changed says that an object was written, or is gone.
func (r *Run) Changed() bool {
	for _, o := range r.order {
		if o.written || o.gone {
			return true
		}
	}
	return false
}

// Err returns why calls have failed, nil if none has.
func (r *Run) Err() error {
	errs := make([]error, 0, len(r.order))
	for _, o := range r.order {
		errs = append(errs, o.err)
	}
	return errors.Join(errs...)
}
