// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/util/cert"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/kubelet"
)

const (
	// maxBoots is how many boots of a node a journal knows.
	maxBoots = 2
	// silentTime is the time after which a node is reported no more that is not to be, however late kwok sees that.
	silentTime = 20 * time.Second
)

// kubelets serve what is asked of the kubelets that live. An API server finds one by the port that its Node reports.
type kubelets struct {
	certificate tls.Certificate

	mutex   sync.Mutex
	servers map[string]*http.Server
	nodes   map[string]*journaled
	// silent is since when those that do not run are to have their nodes reported no more.
	silent map[string]time.Time
}

// journaled is what of a node outlives its kubelet.
type journaled struct {
	bootID  string
	port    int32
	journal kubelet.Journal
}

func newKubelets() (*kubelets, error) {
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	if err != nil {
		return nil, fmt.Errorf("could not make the certificate of the kubelets: %w", err)
	}
	pair, err := tls.X509KeyPair(certificate, key)
	return &kubelets{certificate: pair, servers: map[string]*http.Server{}, nodes: map[string]*journaled{}, silent: map[string]time.Time{}}, err
}

// start starts the kubelet of a node, unless it runs since that boot, and returns its port.
func (k *kubelets) start(name, bootID string, now time.Time) (int32, error) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	delete(k.silent, name)
	node := k.nodes[name]
	if node == nil {
		node = &journaled{journal: kubelet.Journal{}}
		k.nodes[name] = node
	}
	if k.servers[name] != nil && node.bootID == bootID {
		return node.port, nil
	}
	k.close(name)
	listener, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("could not listen for the kubelet of %s: %w", name, err)
	}
	node.port = int32(listener.Addr().(*net.TCPAddr).Port) // #nosec G115 -- it is a port
	node.boot(name, bootID, now)
	server := &http.Server{
		Handler: kubelet.Handler(name, func() kubelet.Journal {
			k.mutex.Lock()
			defer k.mutex.Unlock()
			return node.copy()
		}),
		ReadHeaderTimeout: time.Minute,
		TLSConfig:         &tls.Config{Certificates: []tls.Certificate{k.certificate}, MinVersion: tls.VersionTLS12},
	}
	k.servers[name] = server
	go func() { _ = server.ServeTLS(listener, "", "") }()
	return node.port, nil
}

// boot has the services log that the kubelet starts, and the kernel before that if it is another boot.
func (n *journaled) boot(name, bootID string, now time.Time) {
	log := func(service, process, text string) {
		if n.journal[service] == nil {
			n.journal[service] = make([][]string, 1)
		}
		n.journal[service][0] = append(n.journal[service][0], fmt.Sprintf("%s %s %s: %s", now.UTC().Format("Jan 02 15:04:05.000000"), name, process, text))
	}
	if n.bootID != bootID {
		for service, boots := range n.journal {
			n.journal[service] = slices.Insert(boots, 0, nil)[:min(len(boots)+1, maxBoots)]
		}
		n.bootID = bootID
		log(v1alpha1.KernelLogService, "dmesg[1]", "Linux version 6.12.0 (simulated)")
	}
	log("kubelet", "kubelet[2]", `"Starting kubelet" bootID="`+bootID+`"`)
	log("kubelet", "kubelet[2]", `"Registered with the API server" token=swordfish`) // it is not to be in evidence
}

func (n *journaled) copy() kubelet.Journal {
	journal := kubelet.Journal{}
	for service, boots := range n.journal {
		for _, lines := range boots {
			journal[service] = append(journal[service], slices.Clone(lines))
		}
	}
	return journal
}

// stop ends the kubelet of a node, if it runs. What it has logged stays until the node is forgotten.
func (k *kubelets) stop(name string) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.close(name)
}

// reported returns whether a node whose kubelet does not run was reported long after the first time that this was asked, or was so before.
func (k *kubelets) reported(name string, at, now time.Time) bool {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	since, known := k.silent[name]
	late := known && at.After(since.Add(silentTime))
	if late || !known {
		k.silent[name] = now
	}
	return late
}

func (k *kubelets) forget(name string) {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	k.close(name)
	delete(k.nodes, name)
	delete(k.silent, name)
}

func (k *kubelets) close(name string) {
	if server := k.servers[name]; server != nil {
		_ = server.Close()
		delete(k.servers, name)
	}
}

// stopAllAtEnd ends all kubelets with the context.
func (k *kubelets) stopAllAtEnd(ctx context.Context) error {
	<-ctx.Done()
	k.mutex.Lock()
	defer k.mutex.Unlock()
	var errs []error
	for _, server := range k.servers {
		errs = append(errs, server.Close())
	}
	return errors.Join(errs...)
}
