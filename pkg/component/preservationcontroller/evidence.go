// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservationcontroller

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
)

// evidenceLeft is the value of AnnotationEvidence where nothing more is stored, and what was stored could not be deleted.
const evidenceLeft = "left"

// leaveEvidence deletes what was stored, once nothing more is to be, and returns what the access secret is to say of evidence.
// Nobody can store anything by then: the Role does not allow it any more. That there may be something, the access secret says,
// which is written after this.
func (p *preservationController) leaveEvidence(ctx context.Context) (string, error) {
	if p.values.Evidence {
		// The container does, too, but machine-controller-manager does not run in a hibernated shoot.
		return "true", p.deleteEvidence(ctx, func(stored *metav1.PartialObjectMetadata) bool {
			expires := retention.StoredExpiry(stored)
			return !expires.IsZero() && !p.values.Now.Before(expires)
		})
	}
	secret := p.accessSecret().Secret
	if err := p.client.Get(ctx, client.ObjectKeyFromObject(secret), secret); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("failed to get access secret: %w", err)
	}
	if secret.Annotations[AnnotationEvidence] == "" {
		return "", nil
	}
	err := p.deleteEvidence(ctx, allEvidence)
	if apierrors.IsForbidden(err) {
		logf.FromContext(ctx).Info("Leaving stored evidence, which operators have taken the permission for away", "namespace", p.namespace, "reason", err.Error())
		return evidenceLeft, nil
	}
	return "", err
}

func allEvidence(*metav1.PartialObjectMetadata) bool { return true }

// deleteEvidence deletes what is stored and to be deleted. What others have put our label on has another name, and stays.
func (p *preservationController) deleteEvidence(ctx context.Context, isOver func(*metav1.PartialObjectMetadata) bool) error {
	// Only the metadata: a bundle has nearly a MiB.
	stored := &metav1.PartialObjectMetadataList{}
	stored.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMapList"))
	if err := p.client.List(ctx, stored, client.InNamespace(p.namespace), client.HasLabels{retention.LabelStored}); err != nil {
		return fmt.Errorf("failed to list stored evidence: %w", err)
	}
	names := sets.New(retention.StoredNames()...).Insert(retention.StoredCapName)
	for i := range stored.Items {
		if !names.Has(stored.Items[i].Name) || !isOver(&stored.Items[i]) {
			continue
		}
		configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: stored.Items[i].Name, Namespace: p.namespace}}
		// The sidecar may have stored something else by that name since.
		if err := p.client.Delete(ctx, configMap, client.Preconditions{UID: &stored.Items[i].UID}); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("failed to delete stored evidence: %w", err)
		}
	}
	return nil
}

// evidenceRules returns what storing evidence takes in the control-plane namespace. A Role can restrict by name neither what is
// created nor what is listed by a label.
func evidenceRules(enabled bool) []rbacv1.PolicyRule {
	if !enabled {
		return nil
	}
	return []rbacv1.PolicyRule{
		allow(corev1.GroupName, "configmaps", "create", "list"),
		allowNamed(corev1.GroupName, "configmaps", retention.StoredNames(), "patch", "delete"),
	}
}

// shootEvidenceRules returns what gathering evidence takes in the shoot beyond what everybody has.
func shootEvidenceRules(enabled, nodeLogs bool) []rbacv1.PolicyRule {
	if !enabled {
		return nil
	}
	rules := []rbacv1.PolicyRule{
		allow(eventsv1.GroupName, "events", "list"),
		allow(storagev1.GroupName, "volumeattachments", "list"),
		allow(policyv1.GroupName, "poddisruptionbudgets", "list"),
	}
	if nodeLogs {
		// There is no less: the API server asks for this whatever the kubelet is asked for, and nodes/log is for users who can reach kubelets.
		rules = append(rules, allow(corev1.GroupName, "nodes/proxy", "get"))
	}
	return rules
}
