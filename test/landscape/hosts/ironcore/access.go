// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package ironcore

import (
	"context"
	"fmt"
	"slices"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/ironcore"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/cluster"
)

// SecretName is the name of the Secret in each control-plane namespace whose entry kubeconfig leads to its ServerClaims, and to
// all Servers.
const SecretName = "landscape-hosts"

const keyKubeconfig = "kubeconfig"

// access gives each control-plane namespace the Secret, as operators do.
type access struct {
	client client.Client
	config *rest.Config
}

func isControlPlane(namespace client.Object) bool {
	return namespace.GetLabels()[v1beta1constants.GardenRole] == v1beta1constants.GardenRoleShoot
}

// Reconcile implements reconcile.Reconciler.
func (a *access) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace := &corev1.Namespace{}
	if err := a.client.Get(ctx, request.NamespacedName, namespace); err != nil || namespace.DeletionTimestamp != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var (
		meta        = metav1.ObjectMeta{Name: SecretName, Namespace: namespace.Name}
		account     = &corev1.ServiceAccount{ObjectMeta: meta}
		role        = &rbacv1.Role{ObjectMeta: meta}
		clusterRole = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: SecretName + ":" + namespace.Name}}
		subjects    = []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account.Name, Namespace: account.Namespace}}
		binding     = &rbacv1.RoleBinding{ObjectMeta: meta}
		toServers   = &rbacv1.ClusterRoleBinding{ObjectMeta: clusterRole.ObjectMeta}
		secret      = &corev1.Secret{ObjectMeta: meta}
	)
	for object, mutate := range map[client.Object]func(){
		account: func() {},
		role:    func() { role.Rules = ironcore.PolicyRules() },
		clusterRole: func() {
			clusterRole.Rules = slices.Concat(ironcore.ClusterPolicyRules(), ironcore.QuarantinePolicyRules())
		},
		binding: func() {
			binding.RoleRef, binding.Subjects = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}, subjects
		},
		toServers: func() {
			toServers.RoleRef, toServers.Subjects = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole.Name}, subjects
		},
	} {
		if _, err := controllerutil.CreateOrPatch(ctx, a.client, object, func() error { mutate(); return nil }); err != nil {
			return reconcile.Result{}, fmt.Errorf("could not grant access to the hosts: %w", err)
		}
	}
	if _, err := controllerutil.CreateOrPatch(ctx, a.client, secret, func() error {
		if len(secret.Data[keyKubeconfig]) > 0 {
			return nil
		}
		config, err := cluster.KubeconfigOf(ctx, a.client, a.config, account)
		if err != nil {
			return err
		}
		config.Contexts[config.CurrentContext].Namespace = namespace.Name
		kubeconfig, err := clientcmd.Write(*config)
		secret.Data = map[string][]byte{keyKubeconfig: kubeconfig}
		return err
	}); err != nil {
		return reconcile.Result{}, fmt.Errorf("could not write the kubeconfig for the hosts: %w", err)
	}
	return reconcile.Result{}, nil
}
