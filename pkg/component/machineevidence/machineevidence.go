// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package machineevidence deploys into the shoot what the copies of stored evidence need: a namespace, the right of the
// preservation controller to write there, and a Role to read there, which is bound to nobody.
package machineevidence

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/shootresources"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
)

// ManagedResourceName is the name of the ManagedResource with all of it.
const ManagedResourceName = "extension-machine-preservation-evidence"

// Resources are what has it in the shoot. All copies go with it.
func Resources(c client.Client, namespace string) shootresources.Resources {
	return shootresources.Resources{Client: c, Namespace: namespace, Name: ManagedResourceName}
}

// Deploy deploys it for the control plane of a shoot.
func Deploy(ctx context.Context, c client.Client, namespace string) error {
	return Resources(c, namespace).Deploy(ctx, objects()...)
}

func objects() []client.Object {
	meta := func(name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: retention.ShootNamespace, Name: name}
	}
	secrets := func(verbs ...string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{APIGroups: []string{corev1.GroupName}, Resources: []string{"secrets"}, Verbs: verbs}
	}
	namespace := &corev1.Namespace{ObjectMeta: meta(retention.ShootNamespace)}
	namespace.Namespace = ""
	remove := secrets("delete")
	remove.ResourceNames = retention.StoredNames()
	return []client.Object{
		namespace,
		&rbacv1.Role{ObjectMeta: meta(retention.ShootViewer), Rules: []rbacv1.PolicyRule{secrets("get", "list")}},
		&rbacv1.Role{ObjectMeta: meta(preservationcontroller.Name), Rules: []rbacv1.PolicyRule{secrets("create", "list"), remove}},
		&rbacv1.RoleBinding{
			ObjectMeta: meta(preservationcontroller.Name),
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: preservationcontroller.Name},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: preservationcontroller.Name, Namespace: metav1.NamespaceSystem}},
		},
	}
}
