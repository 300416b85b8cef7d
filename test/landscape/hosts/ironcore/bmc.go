// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package ironcore

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/process"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/simulator"
)

// Reset types of Redfish that metal-operator asks for.
const (
	resetOn               = "On"
	resetGracefulShutdown = "GracefulShutdown"
	resetForceOff         = "ForceOff"
)

// bmcs are the BMCs that run, by the name of their Server.
type bmcs struct {
	client        client.Reader
	path, logFile string

	lock    sync.Mutex
	running map[string]*bmc
}

// bmc is a mock of a BMC, and the proxy before it.
type bmc struct {
	mock  *process.Process
	proxy *http.Server
	port  int
}

func (b *bmcs) start(ctx context.Context, server string) (int, error) {
	b.lock.Lock()
	defer b.lock.Unlock()
	if running, ok := b.running[server]; ok {
		return running.port, nil
	}
	port, err := process.FreePort()
	if err != nil {
		return 0, err
	}
	address := net.JoinHostPort(loopback, fmt.Sprint(port))
	mock, err := process.StartReady(ctx, process.Spec{
		Name: "BMC of " + server, Path: b.path, Args: []string{address}, LogFile: b.logFile,
	}, process.HTTPOK(http.DefaultClient, "http://"+address+"/redfish/v1/"))
	if err != nil {
		return 0, err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(loopback, "0"))
	if err != nil {
		return 0, errors.Join(fmt.Errorf("could not listen for the BMC of %s: %w", server, err), mock.Stop(ctx))
	}
	proxy := &http.Server{
		Handler:           b.misbehaving(server, httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: address})),
		ReadHeaderTimeout: time.Minute,
	}
	go proxy.Serve(listener) //nolint:errcheck // it ends when it is closed
	b.running[server] = &bmc{mock: mock, proxy: proxy, port: listener.Addr().(*net.TCPAddr).Port}
	return b.running[server].port, nil
}

func (b *bmcs) stop(ctx context.Context, server string) error {
	b.lock.Lock()
	defer b.lock.Unlock()
	running, ok := b.running[server]
	if !ok {
		return nil
	}
	delete(b.running, server)
	return errors.Join(running.proxy.Close(), running.mock.Stop(ctx))
}

// stopAllAtEnd stops all BMCs when the context ends.
func (b *bmcs) stopAllAtEnd(ctx context.Context) error {
	<-ctx.Done()
	b.lock.Lock()
	defer b.lock.Unlock()
	var errs []error
	for _, running := range b.running {
		errs = append(errs, running.proxy.Close(), running.mock.Stop(ctx)) // there is nothing to wait for
	}
	return errors.Join(errs...)
}

// misbehaving returns a handler that passes on what the host does, as late as the host is. What it does not do is accepted.
func (b *bmcs) misbehaving(server string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		if request.Method != http.MethodPost || !strings.HasSuffix(request.URL.Path, "/Actions/ComputerSystem.Reset") {
			next.ServeHTTP(w, request)
			return
		}
		body, err := io.ReadAll(request.Body)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		lag, obeys, err := b.obeys(request.Context(), server, body)
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		case !obeys:
			w.WriteHeader(http.StatusAccepted)
			return
		}
		select {
		case <-time.After(lag):
		case <-request.Context().Done():
		}
		request.Body = io.NopCloser(bytes.NewReader(body))
		next.ServeHTTP(w, request)
	})
}

// obeys returns whether a host does what the body of a reset asks for, and after what time.
func (b *bmcs) obeys(ctx context.Context, name string, body []byte) (time.Duration, bool, error) {
	var reset struct{ ResetType string }
	if err := json.Unmarshal(body, &reset); err != nil {
		return 0, false, err
	}
	server := newObject(kindServer, client.ObjectKey{Name: name})
	if err := b.client.Get(ctx, client.ObjectKeyFromObject(server), server); err != nil {
		return 0, false, err
	}
	machine, _ := machineOf(server)
	pod, err := hosts.Machine(ctx, b.client, machine)
	if err != nil {
		return 0, false, err
	}
	misbehaviour, lag := hosts.MisbehaviourOf(server), time.Duration(0)
	if misbehaviour == hosts.LateReport {
		lag = hosts.LateReportLag
	}
	switch reset.ResetType {
	case resetOn:
		return lag, misbehaviour.Obeys(true), nil
	case resetGracefulShutdown:
		return lag, misbehaviour.Obeys(false) && (pod == nil || !simulator.Hangs(pod)), nil
	case resetForceOff:
		return lag, misbehaviour.Obeys(false), nil
	}
	return 0, true, nil
}
