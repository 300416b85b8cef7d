// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"fmt"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
)

var _ = Describe("#ReadKubeconfig", func() {
	const (
		inNamespace = `"cluster":"c","user":"u","namespace":"hosts"`
		token       = `"token":"t"`
		server      = `"server":"https://127.0.0.1:1"`
	)
	kubeconfig := func(context, user, cluster string) []byte {
		return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Config","current-context":"a","contexts":[{"name":"b","context":{"namespace":"no"}},{"name":"a","context":{%s}}],`+
			`"users":[{"name":"u","user":{%s}}],"clusters":[{"name":"c","cluster":{%s}}]}`, context, user, cluster)
	}

	DescribeTable("should return what the current context leads to", func(user string) {
		config, namespace, err := host.ReadKubeconfig(kubeconfig(inNamespace, user, server))
		Expect(err).NotTo(HaveOccurred())
		Expect(namespace).To(Equal("hosts"))
		Expect(config.Host).To(Equal("https://127.0.0.1:1"))
	},
		Entry("with a token", token),
		Entry("with a certificate", `"client-certificate-data":"YQ==","client-key-data":"YQ=="`),
		Entry("with a password", `"username":"a","password":"b"`),
	)

	DescribeTable("should name what is not valid, and what is", func(content []byte, expected string) {
		config, _, err := host.ReadKubeconfig(content)
		Expect(config).To(BeNil())
		Expect(err).To(MatchError(ContainSubstring(expected)))
	},
		Entry("no kubeconfig", []byte("{"), "did not find expected node content"),
		Entry("nothing", []byte(""), `current-context "": must be the name of one of the contexts`),
		Entry("no namespace", kubeconfig(`"cluster":"c","user":"u"`, token, server), `namespace of context "a": must be that of the hosts, but is empty`),
		Entry("no cluster", kubeconfig(`"cluster":"x","user":"u","namespace":"hosts"`, token, server), `cluster "x" of context "a": must be one of the clusters, and have a server`),
		Entry("no server", kubeconfig(inNamespace, token, ""), `cluster "c" of context "a"`),
		Entry("a program", kubeconfig(inNamespace, `"exec":{"apiVersion":"client.authentication.k8s.io/v1","command":"true","interactiveMode":"Never"}`, server),
			`exec of user "u": must not be set, valid are token, client-certificate-data and client-key-data, username and password`),
		Entry("a provider", kubeconfig(inNamespace, `"auth-provider":{"name":"oidc"}`, server), `auth-provider of user "u": must not be set`),
		Entry("a token file", kubeconfig(inNamespace, token+`,"tokenFile":"/t"`, server), `tokenFile of user "u": must not be set`),
		Entry("a certificate file", kubeconfig(inNamespace, `"client-certificate":"/c"`, server), `client-certificate of user "u": must not be set`),
		Entry("a key file", kubeconfig(inNamespace, `"client-key":"/k"`, server), `client-key of user "u": must not be set`),
		Entry("somebody else", kubeconfig(inNamespace, token+`,"as":"admin"`, server), `as of user "u": must not be set`),
		Entry("others' group", kubeconfig(inNamespace, token+`,"as-groups":["system:masters"]`, server), `as of user "u": must not be set`),
		Entry("a certificate authority's file", kubeconfig(inNamespace, token, server+`,"certificate-authority":"/ca"`), `certificate-authority of cluster "c": must not be set, valid is certificate-authority-data`),
	)
})
