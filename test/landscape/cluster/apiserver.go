// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"crypto/rand"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/process"
)

// Names of the users of an API server.
const (
	admin             = "admin"
	controllerManager = "system:kube-controller-manager"
	scheduler         = "system:kube-scheduler"
)

// auditLogMegabytes is far more than any landscape writes: the log stays one file.
const auditLogMegabytes = 1000

//go:embed audit-policy.yaml
var auditPolicy []byte

// APIServerOptions are the options of an API server.
type APIServerOptions struct {
	// Name is the name of the cluster. It tells apart clusters that share an etcd.
	Name string
	// Path is the path of the executable.
	Path string
	// Etcd is where the API server keeps its objects.
	Etcd *Etcd
	// Dir is the directory for keys, tokens and certificates.
	Dir string
	// Kubeconfig is where the kubeconfig of an administrator is written to.
	Kubeconfig string
	// LogFile is the log file.
	LogFile string
	// WithoutControllerManager lets pods be created although nobody creates the default service accounts.
	WithoutControllerManager bool
	// Aggregation lets further API servers be registered.
	Aggregation bool
}

// APIServer is a running API server.
type APIServer struct {
	*process.Process
	// Config is the client configuration of an administrator.
	Config *rest.Config
	// Kubeconfig is the path of the kubeconfig of an administrator.
	Kubeconfig string
	// AuditLog is the path of the audit log, which begins with this start: an Event of audit.k8s.io/v1 in each line, without
	// bodies, for each request of a service account.
	AuditLog string
	// ControllerManager is the controller manager, once it was started.
	ControllerManager *process.Process

	name   string
	dir    string
	tokens map[string]string
}

// StartAPIServer starts an API server and waits until it is ready. It authorizes by RBAC only.
func StartAPIServer(ctx context.Context, o APIServerOptions) (*APIServer, error) {
	a := &APIServer{
		name:       o.Name,
		dir:        o.Dir,
		Kubeconfig: o.Kubeconfig,
		AuditLog:   strings.TrimSuffix(o.LogFile, ".log") + "-audit.log",
		tokens:     map[string]string{},
	}
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, err
	}
	port, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	if err := a.writeCredentials(port); err != nil {
		return nil, fmt.Errorf("could not write the credentials of cluster %s: %w", o.Name, err)
	}
	if err := a.prepareAudit(); err != nil {
		return nil, fmt.Errorf("could not prepare the audit log of cluster %s: %w", o.Name, err)
	}
	client, err := rest.HTTPClientFor(a.Config)
	if err != nil {
		return nil, err
	}

	args := []string{
		"--etcd-servers=" + o.Etcd.URL,
		"--etcd-prefix=/" + o.Name,
		"--bind-address=127.0.0.1",
		"--advertise-address=127.0.0.1",
		// The address is not one for the endpoints of the service of the API server, and nobody would use them.
		"--endpoint-reconciler-type=none",
		fmt.Sprintf("--secure-port=%d", port),
		"--tls-cert-file=" + a.certFile(),
		"--tls-private-key-file=" + a.keyFile(),
		"--token-auth-file=" + a.tokenFile(),
		"--authorization-mode=RBAC",
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + a.serviceAccountKeyFile(),
		"--service-account-signing-key-file=" + a.serviceAccountKeyFile(),
		"--service-cluster-ip-range=10.0.0.0/16",
		"--allow-privileged",
		"--kubelet-preferred-address-types=InternalIP", // nobody resolves the names of Nodes
		"--egress-selector-config-file=" + a.egressFile(),
		"--audit-policy-file=" + a.auditPolicyFile(),
		"--audit-log-path=" + a.AuditLog,
		fmt.Sprintf("--audit-log-maxsize=%d", auditLogMegabytes),
	}
	if o.WithoutControllerManager {
		args = append(args, "--disable-admission-plugins=ServiceAccount")
	}
	if o.Aggregation {
		frontProxy, err := a.writeFrontProxyCredentials()
		if err != nil {
			return nil, fmt.Errorf("could not write the credentials of the front proxy of cluster %s: %w", o.Name, err)
		}
		args = append(args, frontProxy...)
	}
	endEgress, err := serveEgress(a.egressFile())
	if err != nil {
		return nil, fmt.Errorf("could not serve the way to the kubelets of cluster %s: %w", o.Name, err)
	}
	a.Process, err = process.StartReady(ctx, process.Spec{
		Name:    o.Name + " kube-apiserver",
		Path:    o.Path,
		Args:    args,
		Env:     seldomCollected,
		LogFile: o.LogFile,
	}, process.HTTPOK(client, a.Config.Host+"/readyz"))
	if err != nil {
		endEgress()
		return nil, err
	}
	go func() {
		<-a.Done()
		endEgress()
	}()
	return a, nil
}

func (a *APIServer) certFile() string  { return filepath.Join(a.dir, "tls.crt") }
func (a *APIServer) keyFile() string   { return filepath.Join(a.dir, "tls.key") }
func (a *APIServer) tokenFile() string { return filepath.Join(a.dir, "tokens.csv") }
func (a *APIServer) serviceAccountKeyFile() string {
	return filepath.Join(a.dir, "service-account.key")
}

func (a *APIServer) egressFile() string      { return filepath.Join(a.dir, "egress.yaml") }
func (a *APIServer) auditPolicyFile() string { return filepath.Join(a.dir, "audit-policy.yaml") }

// prepareAudit writes the policy. The log of an earlier start is removed: who reads it wants to know what this one did.
func (a *APIServer) prepareAudit() error {
	if err := os.Remove(a.AuditLog); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return os.WriteFile(a.auditPolicyFile(), auditPolicy, 0o600)
}

func (a *APIServer) writeCredentials(port int) error {
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, []string{"localhost"})
	if err != nil {
		return err
	}
	serviceAccountKey, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	var tokens strings.Builder
	for user, group := range map[string]string{admin: "system:masters", controllerManager: "", scheduler: ""} {
		a.tokens[user] = rand.Text()
		fmt.Fprintf(&tokens, "%s,%s,%s,%s\n", a.tokens[user], user, user, group)
	}
	for path, content := range map[string][]byte{
		a.certFile():              certificate,
		a.keyFile():               key,
		a.tokenFile():             []byte(tokens.String()),
		a.serviceAccountKeyFile(): serviceAccountKey,
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}

	a.Config = &rest.Config{
		Host:            fmt.Sprintf("https://127.0.0.1:%d", port),
		BearerToken:     a.tokens[admin],
		TLSClientConfig: rest.TLSClientConfig{CAData: certificate},
	}
	return a.writeKubeconfig(a.Kubeconfig, admin)
}

func (a *APIServer) writeKubeconfig(path, user string) error {
	config := clientcmdapi.NewConfig()
	config.Clusters[a.name] = &clientcmdapi.Cluster{Server: a.Config.Host, CertificateAuthorityData: a.Config.CAData}
	config.AuthInfos[user] = &clientcmdapi.AuthInfo{Token: a.tokens[user]}
	config.Contexts[a.name] = &clientcmdapi.Context{Cluster: a.name, AuthInfo: user}
	config.CurrentContext = a.name
	return clientcmd.WriteToFile(*config, path)
}

// startComponent starts a controller of the cluster, which serves with the certificate of the API server.
func (a *APIServer) startComponent(ctx context.Context, name, user, path, logFile string, args ...string) (*process.Process, error) {
	kubeconfig := filepath.Join(a.dir, name+".kubeconfig")
	if err := a.writeKubeconfig(kubeconfig, user); err != nil {
		return nil, fmt.Errorf("could not write the kubeconfig of %s: %w", name, err)
	}
	port, err := process.FreePort()
	if err != nil {
		return nil, err
	}
	client, err := rest.HTTPClientFor(rest.AnonymousClientConfig(a.Config))
	if err != nil {
		return nil, err
	}
	return process.StartReady(ctx, process.Spec{
		Name: a.name + " " + name,
		Path: path,
		Args: append([]string{
			"--kubeconfig=" + kubeconfig,
			"--leader-elect=false",
			"--bind-address=127.0.0.1",
			fmt.Sprintf("--secure-port=%d", port),
			"--tls-cert-file=" + a.certFile(),
			"--tls-private-key-file=" + a.keyFile(),
		}, args...),
		LogFile: logFile,
	}, process.HTTPOK(client, fmt.Sprintf("https://127.0.0.1:%d/healthz", port)))
}

// StartControllerManager starts the controller manager. A node without a heartbeat is found within seconds.
func (a *APIServer) StartControllerManager(ctx context.Context, path, logFile string) (_ *process.Process, err error) {
	a.ControllerManager, err = a.startComponent(ctx, "kube-controller-manager", controllerManager, path, logFile,
		"--use-service-account-credentials",
		"--service-account-private-key-file="+a.serviceAccountKeyFile(),
		"--root-ca-file="+a.certFile(),
		"--node-monitor-period=1s",
		"--node-monitor-grace-period=8s",
	)
	return a.ControllerManager, err
}

// StartScheduler starts the scheduler.
func (a *APIServer) StartScheduler(ctx context.Context, path, logFile string) (*process.Process, error) {
	return a.startComponent(ctx, "kube-scheduler", scheduler, path, logFile)
}
