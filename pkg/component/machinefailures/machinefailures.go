// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package machinefailures deploys the API of MachineFailures into the shoot, and allows viewers of the shoot to read them.
package machinefailures

import (
	"context"
	_ "embed"

	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	failuresv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/failures/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/shootresources"
)

const (
	// ManagedResourceName is the name of the ManagedResource with the API.
	ManagedResourceName = "extension-machine-preservation-failures"
	// Resource is the resource of the API.
	Resource = "machinefailures"

	clusterRoleName = "extensions.gardener.cloud:extension-machine-preservation:" + Resource
	// labelView has a role aggregated into the one of those who may view a cluster.
	labelView = "rbac.authorization.k8s.io/aggregate-to-view"
)

//go:embed crds/machine-preservation.extensions.gardener.cloud_machinefailures.yaml
var file []byte

var definition = read()

func read() *apiextensionsv1.CustomResourceDefinition {
	definition := &apiextensionsv1.CustomResourceDefinition{}
	utilruntime.Must(yaml.UnmarshalStrict(file, definition))
	return definition
}

// Resources are what has the API in the shoot. All MachineFailures go with it.
func Resources(c client.Client, namespace string) shootresources.Resources {
	return shootresources.Resources{Client: c, Namespace: namespace, Name: ManagedResourceName}
}

// Deploy deploys the API for the control plane of a shoot.
func Deploy(ctx context.Context, c client.Client, namespace string) error {
	return Resources(c, namespace).Deploy(ctx, definition.DeepCopy(), viewer())
}

func viewer() *rbacv1.ClusterRole {
	return &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: clusterRoleName, Labels: map[string]string{labelView: "true"}},
		Rules: []rbacv1.PolicyRule{{
			APIGroups: []string{failuresv1alpha1.GroupName}, Resources: []string{Resource}, Verbs: []string{"get", "list", "watch"},
		}},
	}
}
