// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// link is what the control planes of Shoots reach the shoot's API server through.
type link struct {
	listener net.Listener
	target   string

	mutex       sync.Mutex
	connections sets.Set[net.Conn]
	cut         bool
}

// newLink puts a link between the shoot's API server and the control planes of Shoots that are applied from now on. It ends with
// the test.
func newLink(ctx context.Context, t *testing.T, seed client.Client, server string) (*link, error) {
	target, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	l := &link{listener: listener, target: target.Host, connections: sets.New[net.Conn]()}
	var done sync.WaitGroup
	t.Cleanup(func() {
		_ = listener.Close()
		l.Cut()
		done.Wait()
	})
	done.Go(func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			done.Go(func() { l.forward(from) })
		}
	})
	target.Host = listener.Addr().String()
	return l, seed.Patch(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "garden", Name: "landscape"}},
		client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"data":{"shoot-server":%q}}`, target)))
}

func (l *link) forward(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", l.target)
	if err != nil {
		return
	}
	defer to.Close()
	if !l.add(from, to) {
		return
	}
	defer l.remove(from, to)
	ended := make(chan struct{}, 2)
	for _, direction := range [][2]net.Conn{{from, to}, {to, from}} {
		go func() {
			_, _ = io.Copy(direction[0], direction[1])
			ended <- struct{}{}
		}()
	}
	<-ended // whoever was cut off tries again
	_, _ = from.Close(), to.Close()
	<-ended
}

func (l *link) add(connections ...net.Conn) bool {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if l.cut {
		return false
	}
	l.connections.Insert(connections...)
	return true
}

func (l *link) remove(connections ...net.Conn) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.connections.Delete(connections...)
}

// Cut ends all connections, and lets nobody connect until Mend is called.
func (l *link) Cut() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.cut = true
	for connection := range l.connections {
		_ = connection.Close()
	}
}

// Mend lets everybody connect again.
func (l *link) Mend() {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	l.cut = false
}
