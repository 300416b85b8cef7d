// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package intent says what is to be written, for those who decide on that and know no client.
package intent

import (
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// Object is an object of the API.
type Object interface {
	metav1.Object
	runtime.Object
}

// Write is a change of one object. Writes are carried out in their order, and none of an object of which one has failed.
type Write struct {
	// Before is the object that was decided on, After what it is to be. What they differ in is written.
	Before, After Object
	// Edit takes the place of After where the change is to be made on what the object has become by then: it was read live, or others
	// may have changed it before an earlier write. It changes nothing when it is made twice.
	Edit func(Object)
	// Delete says that it is deleted, unless it is another one by now. There is neither After nor Edit then, and no later write of it.
	Delete bool
	// Status says that the status is written, else it is all but that.
	Status bool
	// Lock says that it is to be refused if the object has changed since it was read, but for the writes before it.
	Lock bool
	// LockEdits says that it is to be refused if the annotations or the expiry of the Machine have changed since it was decided on, whoever
	// changed them. All else may have: machine-controller-manager may terminate the Machine. Where >= 0.62 clears the expiry with that, the
	// write is refused, and decided on anew. No earlier write of the decision may change either. Lock refuses more, and stands above it; a
	// write that deletes has Lock only.
	LockEdits bool
	// AfterAll says that it waits for all earlier writes, of other objects as well. An object that is gone counts as written.
	AfterAll bool
	// Hold says that the write is part of the hold: it comes before what is due for other machines.
	Hold bool
	// Record says that the transition has happened once it is written: then people are told.
	Record bool
}

// Edit returns an edit of objects of one kind as one of a Write.
func Edit[T Object](edit func(T)) func(Object) { return func(object Object) { edit(object.(T)) } }

// On makes the write on what has become of its object, and returns copies from before and after that.
func (w Write) On(object Object) (before, after Object) {
	before = object.DeepCopyObject().(Object)
	if w.Edit != nil {
		after = object.DeepCopyObject().(Object)
		w.Edit(after)
		return before, after
	}
	before, after = w.Before.DeepCopyObject().(Object), w.After.DeepCopyObject().(Object)
	before.SetResourceVersion(object.GetResourceVersion())
	after.SetResourceVersion(object.GetResourceVersion())
	return before, after
}

// Changes says that there is something to be written.
func (w Write) Changes() bool {
	switch {
	case w.Delete:
		return true
	case w.Edit == nil:
		return !apiequality.Semantic.DeepEqual(w.Before, w.After)
	}
	return !apiequality.Semantic.DeepEqual(w.On(w.Before))
}
