// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package healthcheck

import (
	"context"
	"fmt"

	extensionshealthcheck "github.com/gardener/gardener/extensions/pkg/controller/healthcheck"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
)

// Evidence checks that a control plane may have as much evidence stored as its own budget allows.
type Evidence struct {
	// APIReader lists the metadata of ConfigMaps.
	APIReader client.Reader
}

// Check returns how much less it may have, if it has a cap.
func (e *Evidence) Check(ctx context.Context, namespace string) (*extensionshealthcheck.SingleCheckResult, error) {
	caps := &metav1.PartialObjectMetadataList{}
	caps.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := e.APIReader.List(ctx, caps, client.InNamespace(namespace), client.MatchingLabels{retention.LabelStored: retention.StoredCap}); err != nil {
		return nil, fmt.Errorf("failed to list ConfigMaps: %w", err)
	}
	for i := range caps.Items {
		if caps.Items[i].Name != retention.StoredCapName {
			continue
		}
		if limit := retention.StoredCapOf(&caps.Items[i]); limit != nil {
			return unhealthy(fmt.Sprintf("The seed's budget for evidence is used up. This control plane stores at most %d KiB, because it stores more than others.", *limit>>10)), nil
		}
	}
	return healthy(), nil
}
