// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"fmt"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// ReadKubeconfig returns what leads to a cluster of hosts, and the namespace that they are in: both are those of the current
// context. Who wrote the kubeconfig must not have programs run or files read where it is used: it is refused if it says so.
func ReadKubeconfig(content []byte) (config *rest.Config, namespace string, err error) {
	kubeconfig, err := clientcmd.Load(content)
	if err != nil {
		return nil, "", err
	}
	current := kubeconfig.Contexts[kubeconfig.CurrentContext]
	if current == nil {
		return nil, "", fmt.Errorf("current-context %q: must be the name of one of the contexts", kubeconfig.CurrentContext)
	}
	if current.Namespace == "" {
		return nil, "", fmt.Errorf("namespace of context %q: must be that of the hosts, but is empty", kubeconfig.CurrentContext)
	}
	if user := kubeconfig.AuthInfos[current.AuthInfo]; user != nil {
		if name := foreign(user); name != "" {
			return nil, "", fmt.Errorf("%s of user %q: must not be set, valid are token, client-certificate-data and client-key-data, username and password", name, current.AuthInfo)
		}
	}
	cluster := kubeconfig.Clusters[current.Cluster]
	if cluster == nil || cluster.Server == "" {
		return nil, "", fmt.Errorf("cluster %q of context %q: must be one of the clusters, and have a server", current.Cluster, kubeconfig.CurrentContext)
	}
	if cluster.CertificateAuthority != "" {
		return nil, "", fmt.Errorf("certificate-authority of cluster %q: must not be set, valid is certificate-authority-data", current.Cluster)
	}
	config, err = clientcmd.NewDefaultClientConfig(*kubeconfig, nil).ClientConfig()
	return config, current.Namespace, err
}

// foreign returns a field of a user that leads out of the kubeconfig, or makes him somebody else, empty if there is none.
func foreign(user *clientcmdapi.AuthInfo) string {
	switch {
	case user.Exec != nil:
		return "exec"
	case user.AuthProvider != nil:
		return "auth-provider"
	case user.TokenFile != "":
		return "tokenFile"
	case user.ClientCertificate != "":
		return "client-certificate"
	case user.ClientKey != "":
		return "client-key"
	case user.Impersonate != "" || user.ImpersonateUID != "" || len(user.ImpersonateGroups) > 0 || len(user.ImpersonateUserExtra) > 0:
		return "as"
	}
	return ""
}
