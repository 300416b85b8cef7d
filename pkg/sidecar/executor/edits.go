// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package executor

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"gomodules.xyz/jsonpatch/v2"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// patchUnlessEdited patches a Machine with a conflict if its annotations or its expiry are not what they were before, or it is another Machine.
func patchUnlessEdited(ctx context.Context, writer client.Client, before, after *machinev1alpha1.Machine) error {
	patch, err := unlessEdited(before, after)
	if err != nil {
		return err
	}
	err = writer.Patch(ctx, after, patch)
	if isTestFailure(err) {
		return apierrors.NewConflict(machinev1alpha1.Resource("machines"), before.Name, err)
	}
	return err
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

// isTestFailure says that a JSON patch has failed a test. The API server answers with the same code where an object is invalid, but then it
// names causes.
func isTestFailure(err error) bool {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) || status.Status().Code != http.StatusUnprocessableEntity {
		return false
	}
	details := status.Status().Details
	return details == nil || len(details.Causes) == 0
}
