// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package node is the one node of the seed: a Node object, and the part of a kubelet's API that is needed. A command
// that shall be executed in a container succeeds without anything being executed: provider-local's worker controller
// wants to execute one in each machine pod. The log of a container is the log file that podrunner writes for it.
package node

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"regexp"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/manager"
)

const (
	// Name is the name of the node.
	Name = "landscape"
	// Address is the IP address of the node.
	Address = "127.0.0.1"

	streamTimeout = time.Minute
)

// AddToManager adds the node to the manager of the seed. The files with the logs are in the directory.
func AddToManager(mgr manager.Manager, logDir string) error {
	return mgr.Add(manager.RunnableFunc(func(ctx context.Context) error { return run(ctx, mgr.GetClient(), logDir) }))
}

func run(ctx context.Context, c client.Client, logDir string) error {
	certificate, err := servingCertificate()
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort(Address, "0"))
	if err != nil {
		return fmt.Errorf("could not listen: %w", err)
	}
	server := &http.Server{
		Handler:           handler(logDir),
		ReadHeaderTimeout: streamTimeout,
		// A connection for a command is upgraded, which HTTP/2 does not know.
		TLSNextProto: map[string]func(*http.Server, *tls.Conn, http.Handler){},
		TLSConfig:    &tls.Config{Certificates: []tls.Certificate{certificate}, MinVersion: tls.VersionTLS12},
	}
	stopped := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stopped()

	if err := register(ctx, c, int32(listener.Addr().(*net.TCPAddr).Port)); err != nil { // #nosec G115 -- a port fits
		_ = listener.Close()
		return err
	}
	if err := server.ServeTLS(listener, "", ""); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("could not serve the API of the node: %w", err)
	}
	return nil
}

func servingCertificate() (tls.Certificate, error) {
	certPEM, keyPEM, err := certutil.GenerateSelfSignedCertKey(Name, []net.IP{net.ParseIP(Address)}, nil)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("could not make a certificate: %w", err)
	}
	certificate, err := tls.X509KeyPair(certPEM, keyPEM)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("could not use the certificate: %w", err)
	}
	return certificate, nil
}

// register writes the Node object, which tells the API server where the API of the node is.
func register(ctx context.Context, c client.Client, port int32) error {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: Name}}
	if _, err := controllerutil.CreateOrUpdate(ctx, c, node, func() error {
		metav1.SetMetaDataLabel(&node.ObjectMeta, corev1.LabelHostname, Name)
		return nil
	}); err != nil {
		return fmt.Errorf("could not register the node: %w", err)
	}

	before := node.DeepCopy()
	now := metav1.Now()
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: Address}}
	node.Status.DaemonEndpoints.KubeletEndpoint.Port = port
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "LandscapeRuns", Message: "the local landscape runs",
		LastHeartbeatTime: now, LastTransitionTime: now,
	}}
	node.Status.Capacity = corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("100"),
		corev1.ResourceMemory: resource.MustParse("100Gi"),
		corev1.ResourcePods:   resource.MustParse("10k"),
	}
	node.Status.Allocatable = node.Status.Capacity
	if err := c.Status().Patch(ctx, node, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("could not write the status of the node: %w", err)
	}
	return nil
}

func handler(logDir string) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/exec/{namespace}/{pod}/{container}", serveExec)
	mux.HandleFunc("GET /containerLogs/{namespace}/{pod}/{container}", func(w http.ResponseWriter, request *http.Request) {
		http.ServeFile(w, request, logFile(logDir, request.PathValue("pod"), request.PathValue("container")))
	})
	return mux
}

var podSuffix = regexp.MustCompile(`-[^-]+-\d+$`)

// logFile returns the file to which podrunner writes the log of a container: it has the name of the pod's Deployment.
func logFile(dir, pod, container string) string {
	return filepath.Join(dir, filepath.Base(podSuffix.ReplaceAllString(pod, "")+"-"+container+".log"))
}

func serveExec(w http.ResponseWriter, request *http.Request) {
	options, err := remotecommand.NewOptions(request)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	remotecommand.ServeExec(w, request, success{}, request.PathValue("pod"), "", request.PathValue("container"),
		request.URL.Query()["command"], options, streamTimeout, streamTimeout, remotecommand.SupportedStreamingProtocols)
}

// success is an executor that executes nothing.
type success struct{}

// ExecInContainer implements remotecommand.Executor.
func (success) ExecInContainer(context.Context, string, string, string, []string, io.Reader, io.WriteCloser, io.WriteCloser, bool, <-chan remotecommand.TerminalSize, time.Duration) error {
	return nil
}
