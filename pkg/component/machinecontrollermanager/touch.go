// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package machinecontrollermanager

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Touch has the API server call the webhook for an object, without a change of our own that could conflict with anybody's. The object
// is what the webhook has made of it then. That there is no such object is no error.
func Touch(ctx context.Context, c client.Client, object client.Object) error {
	if err := c.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte("{}"))); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("failed to patch %T %q: %w", object, object.GetName(), err)
	}
	return nil
}
