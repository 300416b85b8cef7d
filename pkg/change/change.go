// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package change says what is to be written, for those who decide on that and know no client.
package change

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

// Write is a change of an object of the shoot: of its status, or of all but that. The one of a Node's conditions touches no
// others; any else is to be refused if the object has changed since it was read.
type Write struct {
	Before, After Object
	Status        bool
}

// Changes says that there is something to be written.
func (w Write) Changes() bool { return !apiequality.Semantic.DeepEqual(w.Before, w.After) }
