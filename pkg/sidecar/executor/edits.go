// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"net/http"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"gomodules.xyz/jsonpatch/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patchUnlessEdited patches a Machine unless its annotations or its expiry are not what they were before, or it is another Machine. The API
// server compares what is stored letter by letter, and an operator may have written the same expiry in another form. So what fails there is
// patched with a lock of the whole object, whose answer counts.
func patchUnlessEdited(ctx context.Context, writer client.Client, before, after *machinev1alpha1.Machine) error {
	patch, err := unlessEdited(before, after)
	if err != nil {
		return err
	}
	to := after.DeepCopy()
	status := apierrors.APIStatus(nil)
	if err = writer.Patch(ctx, after, patch); !errors.As(err, &status) || status.Status().Code != http.StatusUnprocessableEntity {
		return err
	}
	to.DeepCopyInto(after)
	return writer.Patch(ctx, after, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
}

func isEdited(before, after *machinev1alpha1.Machine) bool {
	return !maps.Equal(before.Annotations, after.Annotations) ||
		!before.Status.CurrentStatus.PreserveExpiryTime.Equal(after.Status.CurrentStatus.PreserveExpiryTime)
}

func unlessEdited(before, after *machinev1alpha1.Machine) (client.Patch, error) {
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
	tests := []jsonpatch.Operation{
		jsonpatch.NewOperation("test", "/metadata/uid", before.UID),
		jsonpatch.NewOperation("test", "/metadata/annotations", before.Annotations),
	}
	if status := before.Status.CurrentStatus; status.Phase != "" { // else there is no status yet, and no path to be tested
		tests = append(tests, jsonpatch.NewOperation("test", "/status/currentStatus/preserveExpiryTime", status.PreserveExpiryTime))
	}
	data, err := json.Marshal(append(tests, changes...))
	return client.RawPatch(types.JSONPatchType, data), err
}
