// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"context"
	"encoding/json"
	"errors"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PatchStatus patches a subresource of an object in a fake client as an API server does: with the status of a Node it takes the annotations.
func PatchStatus(ctx context.Context, c client.Client, subresource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	if _, isNode := obj.(*corev1.Node); !isNode {
		return c.SubResource(subresource).Patch(ctx, obj, patch, opts...)
	}
	written := struct {
		Metadata struct {
			Annotations json.RawMessage `json:"annotations,omitempty"`
		} `json:"metadata"`
	}{}
	data, err := patch.Data(obj)
	if err != nil {
		return err
	}
	if err := errors.Join(json.Unmarshal(data, &written), c.SubResource(subresource).Patch(ctx, obj, patch, opts...)); err != nil {
		return err
	}
	if written.Metadata.Annotations == nil {
		return nil
	}
	if data, err = json.Marshal(written); err != nil {
		return err
	}
	return c.Patch(ctx, obj, client.RawPatch(types.MergePatchType, data))
}
