// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"
)

// cluster is how to talk to an API server.
type cluster struct {
	client     client.Client
	kubeconfig string
	binary     string
	cache      string
}

// result is what kubectl has said.
type result struct {
	stdout, stderr string
	err            error
}

func newCluster(env *envtest.Environment) *cluster {
	GinkgoHelper()
	dir := GinkgoT().TempDir()
	kubeconfig := filepath.Join(dir, "kubeconfig")
	Expect(os.WriteFile(kubeconfig, env.KubeConfig, 0o600)).To(Succeed())
	c, err := client.New(env.Config, client.Options{})
	Expect(err).NotTo(HaveOccurred())
	return &cluster{client: c, kubeconfig: kubeconfig, binary: env.ControlPlane.KubectlPath, cache: filepath.Join(dir, "cache")}
}

func (c *cluster) kubectl(stdin string, arguments ...string) result {
	GinkgoHelper()
	command := exec.Command(c.binary, append([]string{"--kubeconfig", c.kubeconfig, "--cache-dir", c.cache}, arguments...)...)
	command.Stdin = strings.NewReader(stdin)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err := command.Run()
	GinkgoWriter.Printf("kubectl %s\n%s%s\n", strings.Join(arguments, " "), &stdout, &stderr)
	return result{stdout.String(), stderr.String(), err}
}

// apply applies an object.
func (c *cluster) apply(object any, arguments ...string) result {
	GinkgoHelper()
	manifest, err := yaml.Marshal(object)
	Expect(err).NotTo(HaveOccurred())
	return c.kubectl(string(manifest), append([]string{"apply", "--filename=-"}, arguments...)...)
}
