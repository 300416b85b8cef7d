// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"gomodules.xyz/jsonpatch/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/intent"
)

// unlessEdited patches a Machine, or its status, unless its annotations or its expiry are not what they were when it was decided on, or it is
// another one. The API server compares what is stored letter by letter, and an operator may have written the same expiry in another form. So
// if it refuses that, the patch is tried once more with a lock of the whole object: that succeeds if only the form differs.
func unlessEdited(decided, before, after intent.Object, patch func(client.Patch) error) error {
	was, isMachine := decided.(*machinev1alpha1.Machine)
	if !isMachine {
		return fmt.Errorf("a %T cannot be locked against edits", decided)
	}
	is := before.(*machinev1alpha1.Machine)
	// An earlier write has returned what others had edited before it.
	if isEdited(was, is) {
		return apierrors.NewConflict(machinev1alpha1.Resource("machines"), is.Name, errors.New("its annotations or its expiry were edited"))
	}
	tested, err := testEdits(is, after)
	if err != nil {
		return err
	}
	if err := patch(tested); !apierrors.IsInvalid(err) {
		return err
	}
	return patch(client.MergeFromWithOptions(is, client.MergeFromWithOptimisticLock{}))
}

func isEdited(before, after *machinev1alpha1.Machine) bool {
	return !maps.Equal(before.Annotations, after.Annotations) ||
		!before.Status.CurrentStatus.PreserveExpiryTime.Equal(after.Status.CurrentStatus.PreserveExpiryTime)
}

// testEdits returns a patch that fails unless what isEdited compares is as it was. What is left out there cannot be left out here: all annotations
// are compared at once.
func testEdits(before *machinev1alpha1.Machine, after intent.Object) (client.Patch, error) {
	is, err := json.Marshal(before)
	if err != nil {
		return nil, err
	}
	to, err := json.Marshal(after)
	if err != nil {
		return nil, err
	}
	changes, err := jsonpatch.CreatePatch(is, to)
	if err != nil {
		return nil, err
	}
	data, err := json.Marshal(append([]jsonpatch.Operation{
		jsonpatch.NewOperation("test", "/metadata/uid", before.UID),
		jsonpatch.NewOperation("test", "/metadata/annotations", before.Annotations),
		jsonpatch.NewOperation("test", "/status/currentStatus/preserveExpiryTime", before.Status.CurrentStatus.PreserveExpiryTime),
	}, changes...))
	return client.RawPatch(types.JSONPatchType, data), err
}
