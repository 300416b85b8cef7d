// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"fmt"
	"os"
	"path/filepath"

	secretsutils "github.com/gardener/gardener/pkg/utils/secrets"
)

// writeFrontProxyCredentials lets the API server pass on requests to those API servers that are registered with an
// APIService, and returns its arguments. By its client certificate they believe what it tells about the user.
func (a *APIServer) writeFrontProxyCredentials() ([]string, error) {
	ca, err := (&secretsutils.CertificateSecretConfig{
		Name:       "front-proxy-ca",
		CommonName: "front-proxy-ca",
		CertType:   secretsutils.CACert,
	}).GenerateCertificate()
	if err != nil {
		return nil, fmt.Errorf("could not make a certificate authority: %w", err)
	}
	client, err := (&secretsutils.CertificateSecretConfig{
		Name:       "front-proxy",
		CommonName: "front-proxy",
		CertType:   secretsutils.ClientCert,
		SigningCA:  ca,
	}).GenerateCertificate()
	if err != nil {
		return nil, fmt.Errorf("could not make a client certificate: %w", err)
	}

	path := func(name string) string { return filepath.Join(a.dir, "front-proxy-"+name) }
	for name, content := range map[string][]byte{
		"ca.crt":  ca.CertificatePEM,
		"tls.crt": client.CertificatePEM,
		"tls.key": client.PrivateKeyPEM,
	} {
		if err := os.WriteFile(path(name), content, 0o600); err != nil {
			return nil, err
		}
	}
	return []string{
		"--requestheader-client-ca-file=" + path("ca.crt"),
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-username-headers=X-Remote-User",
		"--proxy-client-cert-file=" + path("tls.crt"),
		"--proxy-client-key-file=" + path("tls.key"),
	}, nil
}
