// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package garden

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"time"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/charts"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/cluster"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/process"
)

const (
	// Admission is the name of the admission component of the extension.
	Admission = "gardener-extension-machine-preservation-admission"

	tokenExpiration = 30 * 24 * time.Hour
)

// AdmissionOptions are the options of the admission component.
type AdmissionOptions struct {
	// Path is the path of the executable.
	Path string
	// Garden is where the webhook is registered.
	Garden *cluster.APIServer
	// Runtime is what the admission component would run in. It keeps its certificates there.
	Runtime *cluster.APIServer
	// Dir is the directory for kubeconfigs and certificates.
	Dir string
	// LogFile is the log file.
	LogFile string
}

// StartAdmission starts the admission component with the permissions that its Helm charts give, and waits until it is
// registered.
func StartAdmission(ctx context.Context, o AdmissionOptions) (*process.Process, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	gardenKubeconfig, runtimeKubeconfig := filepath.Join(o.Dir, "garden.kubeconfig"), filepath.Join(o.Dir, "runtime.kubeconfig")
	if err := grant(ctx, o.Garden, charts.AdmissionApplication, gardenKubeconfig); err != nil {
		return nil, fmt.Errorf("could not grant access to the garden: %w", err)
	}
	if err := grant(ctx, o.Runtime, charts.AdmissionRuntime, runtimeKubeconfig); err != nil {
		return nil, fmt.Errorf("could not grant access to the runtime cluster: %w", err)
	}
	ports := map[string]int{"webhook": 0, "metrics": 0, "health": 0}
	for name := range ports {
		port, err := process.FreePort()
		if err != nil {
			return nil, err
		}
		ports[name] = port
	}
	c, err := newClient(o.Garden.Config)
	if err != nil {
		return nil, err
	}

	healthy := process.HTTPOK(http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d/readyz", ports["health"]))
	return process.StartReady(ctx, process.Spec{
		Name: Admission,
		Path: o.Path,
		Args: []string{
			"--kubeconfig=" + gardenKubeconfig,
			"--runtime-kubeconfig=" + runtimeKubeconfig,
			"--leader-election-namespace=" + v1beta1constants.GardenNamespace,
			"--log-format=text",
			"--webhook-config-namespace=" + v1beta1constants.GardenNamespace,
			"--webhook-config-owner-namespace=" + v1beta1constants.GardenNamespace,
			"--webhook-config-mode=url",
			fmt.Sprintf("--webhook-config-url=127.0.0.1:%d", ports["webhook"]),
			"--webhook-config-server-host=127.0.0.1",
			fmt.Sprintf("--webhook-config-server-port=%d", ports["webhook"]),
			"--webhook-config-cert-dir=" + filepath.Join(o.Dir, "certificates"),
			fmt.Sprintf("--metrics-bind-address=127.0.0.1:%d", ports["metrics"]),
			fmt.Sprintf("--health-bind-address=127.0.0.1:%d", ports["health"]),
		},
		LogFile: o.LogFile,
	}, func(ctx context.Context) error {
		if err := healthy(ctx); err != nil {
			return err
		}
		return registered(ctx, c)
	})
}

func registered(ctx context.Context, c client.Client) error {
	config := &admissionregistrationv1.ValidatingWebhookConfiguration{}
	if err := c.Get(ctx, client.ObjectKey{Name: Admission}, config); err != nil {
		return fmt.Errorf("the webhook is not registered: %w", err)
	}
	for _, webhook := range config.Webhooks {
		if len(webhook.ClientConfig.CABundle) == 0 {
			return fmt.Errorf("webhook %s has no certificate yet", webhook.Name)
		}
	}
	return nil
}

// grant creates the roles of a chart, and writes a kubeconfig for the service account that they are bound to. What would
// run in the cluster is left out.
func grant(ctx context.Context, api *cluster.APIServer, chart charts.Chart, kubeconfig string) error {
	c, err := newClient(api.Config)
	if err != nil {
		return err
	}
	objects, err := chart.Render("admission", v1beta1constants.GardenNamespace, nil)
	if err != nil {
		return err
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
		if err := c.Create(ctx, object); err != nil {
			return fmt.Errorf("could not create %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	if account == nil {
		return errors.New("no role is bound to a service account")
	}
	if err := c.Create(ctx, account); err != nil {
		return fmt.Errorf("could not create service account %s: %w", account.Name, err)
	}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenExpiration.Seconds()))}}
	if err := c.SubResource("token").Create(ctx, account, token); err != nil {
		return fmt.Errorf("could not request a token for service account %s: %w", account.Name, err)
	}

	config := clientcmdapi.NewConfig()
	config.Clusters[Admission] = &clientcmdapi.Cluster{Server: api.Config.Host, CertificateAuthorityData: api.Config.CAData}
	config.AuthInfos[Admission] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	config.Contexts[Admission] = &clientcmdapi.Context{Cluster: Admission, AuthInfo: Admission}
	config.CurrentContext = Admission
	return clientcmd.WriteToFile(*config, kubeconfig)
}
