// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/charts"
)

const tokenExpiration = 30 * 24 * time.Hour

// Grant creates the roles of a chart in namespace garden, and writes a kubeconfig for the service account that they are
// bound to. What would run in the cluster is left out.
func (a *APIServer) Grant(ctx context.Context, chart charts.Chart, kubeconfig string) error {
	objects, err := chart.Render("landscape", v1beta1constants.GardenNamespace, nil)
	if err != nil {
		return err
	}
	return a.GrantRoles(ctx, objects, kubeconfig)
}

// GrantRoles is Grant for what a chart has rendered.
func (a *APIServer) GrantRoles(ctx context.Context, objects []*unstructured.Unstructured, kubeconfig string) error {
	c, err := client.New(a.Config, client.Options{})
	if err != nil {
		return fmt.Errorf("could not make a client: %w", err)
	}
	var account *corev1.ServiceAccount
	for _, object := range objects {
		if object.GroupVersionKind().Group != rbacv1.GroupName {
			continue
		}
		binding := &rbacv1.RoleBinding{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, binding); err != nil {
			return fmt.Errorf("could not decode %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		for _, subject := range binding.Subjects {
			account = &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: subject.Name, Namespace: subject.Namespace}}
		}
		// It is there already when the release is upgraded from which the roles are.
		if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), client.FieldOwner("landscape"), client.ForceOwnership); err != nil {
			return fmt.Errorf("could not apply %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	if account == nil {
		return errors.New("no role is bound to a service account")
	}
	if err := c.Create(ctx, account); client.IgnoreAlreadyExists(err) != nil {
		return fmt.Errorf("could not create service account %s: %w", account.Name, err)
	}
	config, err := KubeconfigOf(ctx, c, a.Config, account)
	if err != nil {
		return err
	}
	return clientcmd.WriteToFile(*config, kubeconfig)
}

// KubeconfigOf returns a kubeconfig with a token of a service account in the cluster of the configuration.
func KubeconfigOf(ctx context.Context, c client.Client, cluster *rest.Config, account *corev1.ServiceAccount) (*clientcmdapi.Config, error) {
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenExpiration.Seconds()))}}
	if err := c.SubResource("token").Create(ctx, account, token); err != nil {
		return nil, fmt.Errorf("could not request a token for service account %s: %w", account.Name, err)
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["api"] = &clientcmdapi.Cluster{Server: cluster.Host, CertificateAuthorityData: cluster.CAData}
	config.AuthInfos["account"] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts["api"] = &clientcmdapi.Context{Cluster: "api", AuthInfo: "account"}
	config.CurrentContext = "api"
	return config, nil
}
