// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/binaries"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/cluster"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/process"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed/crds"
)

const (
	extensionName = "gardener-extension-machine-preservation"

	startTimeout = 5 * time.Minute
	tokenExpiry  = 24 * 60 * 60 // seconds
)

// seed is a running API server, with the resource definitions of a seed.
type seed struct {
	client client.Client
	audit  *audit
	others *others

	dir        string
	executable string
	kubeconfig string
	stops      []func(context.Context) error
}

// startSeed starts an API server and builds the extension. What is in the directory is deleted before.
func startSeed(ctx context.Context, dir string) (s *seed, err error) {
	dir, err = filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	s = &seed{dir: dir, kubeconfig: filepath.Join(dir, "extension.kubeconfig")}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop(context.WithoutCancel(ctx)))
		}
	}()

	tools, err := binaries.Ensure(ctx, os.Stdout, binaries.Etcd, binaries.Kubernetes)
	if err != nil {
		return nil, err
	}
	own, err := binaries.EnsureProject(ctx, os.Stdout, filepath.Join(dir, "bin"))
	if err != nil {
		return nil, err
	}
	s.executable = own[extensionName]

	landscape.Say("Starting the API server")
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	etcd, err := cluster.StartEtcd(ctx, tools["etcd"], filepath.Join(dir, "etcd"), s.log("etcd"))
	if err != nil {
		return nil, err
	}
	s.stops = append(s.stops, etcd.Stop)
	server, err := cluster.StartAPIServer(ctx, cluster.APIServerOptions{
		Name:                     "seed",
		Path:                     tools["kube-apiserver"],
		Etcd:                     etcd,
		Dir:                      filepath.Join(dir, "seed"),
		Kubeconfig:               filepath.Join(dir, "kubeconfig"),
		LogFile:                  s.log("kube-apiserver"),
		WithoutControllerManager: true,
	})
	if err != nil {
		return nil, err
	}
	s.stops = append(s.stops, server.Stop)

	config := rest.CopyConfig(server.Config)
	config.QPS = -1
	if s.client, err = client.New(config, client.Options{Scheme: kubernetesclient.SeedScheme}); err != nil {
		return nil, err
	}
	s.audit = &audit{path: server.AuditLog, user: serviceAccountUser}
	if err := errors.Join(crds.Deploy(ctx, s.client, ""), s.createIdentity(ctx, config)); err != nil {
		return nil, err
	}
	running, cancelRunning := context.WithCancel(context.WithoutCancel(ctx))
	s.stops = append(s.stops, func(context.Context) error { cancelRunning(); return nil })
	s.others, err = startOthers(running, config, s.client)
	return s, err
}

func (s *seed) logs() string           { return filepath.Join(s.dir, "log") }
func (s *seed) log(name string) string { return filepath.Join(s.logs(), name+".log") }

// stop ends everything. Only the logs are left.
func (s *seed) stop(ctx context.Context) error {
	var errs []error
	for _, stop := range slices.Backward(s.stops) {
		errs = append(errs, stop(ctx))
	}
	for _, name := range []string{"bin", "etcd", "seed", "cert"} {
		errs = append(errs, os.RemoveAll(filepath.Join(s.dir, name)))
	}
	return errors.Join(errs...)
}

const serviceAccountUser = "system:serviceaccount:" + v1beta1constants.GardenNamespace + ":" + extensionName

// createIdentity writes the kubeconfig of the extension's own service account: the API server logs its requests. What it
// is allowed to do does not matter here.
func (s *seed) createIdentity(ctx context.Context, config *rest.Config) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: extensionName, Namespace: v1beta1constants.GardenNamespace}}
	for _, object := range []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: account.Namespace}},
		account,
		&rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: account.Name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "cluster-admin"},
			Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: account.Name, Namespace: account.Namespace}},
		},
	} {
		if err := s.client.Create(ctx, object); err != nil {
			return fmt.Errorf("could not create %s: %w", object.GetName(), err)
		}
	}
	token := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: new(int64(tokenExpiry))}}
	if err := s.client.SubResource("token").Create(ctx, account, token); err != nil {
		return fmt.Errorf("could not request a token: %w", err)
	}

	kubeconfig := clientcmdapi.NewConfig()
	kubeconfig.Clusters["seed"] = &clientcmdapi.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData}
	kubeconfig.AuthInfos[account.Name] = &clientcmdapi.AuthInfo{Token: token.Status.Token}
	kubeconfig.Contexts["seed"] = &clientcmdapi.Context{Cluster: "seed", AuthInfo: account.Name}
	kubeconfig.CurrentContext = "seed"
	return clientcmd.WriteToFile(*kubeconfig, s.kubeconfig)
}

// extension is the running extension.
type extension struct {
	*process.Process
	metricsURL string
	// started is when it was started, ready when its caches had synced and the API server was able to call its webhooks.
	started, ready time.Time
}

// startExtension starts the extension with the flags that it has in a seed, as far as they matter here.
func (s *seed) startExtension(ctx context.Context) (*extension, error) {
	ports := make([]int, 3)
	for i := range ports {
		port, err := process.FreePort()
		if err != nil {
			return nil, err
		}
		ports[i] = port
	}
	webhooks, metrics, health := ports[0], ports[1], ports[2]

	e := &extension{metricsURL: fmt.Sprintf("http://127.0.0.1:%d/metrics", metrics), started: time.Now()}
	healthy := process.HTTPOK(http.DefaultClient, fmt.Sprintf("http://127.0.0.1:%d/readyz", health))
	var err error
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if e.Process, err = process.StartReady(ctx, process.Spec{
		Name: extensionName,
		Path: s.executable,
		Args: []string{
			"--leader-election=false",
			"--heartbeat-namespace=" + v1beta1constants.GardenNamespace,
			"--webhook-config-namespace=" + v1beta1constants.GardenNamespace,
			"--webhook-config-mode=url",
			fmt.Sprintf("--webhook-config-url=127.0.0.1:%d", webhooks),
			"--webhook-config-server-host=127.0.0.1",
			fmt.Sprintf("--webhook-config-server-port=%d", webhooks),
			"--webhook-config-cert-dir=" + filepath.Join(s.dir, "cert"),
			fmt.Sprintf("--metrics-bind-address=127.0.0.1:%d", metrics),
			fmt.Sprintf("--health-bind-address=127.0.0.1:%d", health),
			"--log-format=text",
		},
		Env:     []string{"KUBECONFIG=" + s.kubeconfig},
		LogFile: s.log(extensionName),
	}, func(ctx context.Context) error {
		if err := healthy(ctx); err != nil {
			return err
		}
		return s.webhooksRegistered(ctx, webhooks)
	}); err != nil {
		return nil, err
	}
	e.ready = time.Now()
	s.stops = append(s.stops, e.Stop)
	return e, nil
}

// webhooksRegistered returns an error unless the API server calls the webhooks on the given port. It would go on without
// them.
func (s *seed) webhooksRegistered(ctx context.Context, port int) error {
	config := &admissionregistrationv1.MutatingWebhookConfiguration{}
	if err := s.client.Get(ctx, client.ObjectKey{Name: extensionName}, config); err != nil {
		return fmt.Errorf("webhooks are not registered: %w", err)
	}
	for _, webhook := range config.Webhooks {
		if url := webhook.ClientConfig.URL; len(webhook.ClientConfig.CABundle) == 0 || url == nil || !strings.HasPrefix(*url, fmt.Sprintf("https://127.0.0.1:%d/", port)) {
			return fmt.Errorf("webhook %s is not registered yet", webhook.Name)
		}
	}
	return nil
}
