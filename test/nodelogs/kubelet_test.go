// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package nodelogs_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"unsafe"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/kubelet"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	landscape "github.com/gardener/gardener-extension-machine-preservation/test/landscape/kubelet"
)

// journalctl is what the kubelet starts. It knows two boots, of which the kernel's messages are only in this one, and says what the
// real one says where it knows nothing. It writes down what it was asked.
const journalctl = `#!/bin/sh
echo "$*" >>"$(dirname "$0")/asked"
if [ "$1" = --field ]; then
	printf '%s\n' init.scope kubelet.service containerd.service machine-preservation-kernel.service
	exit
fi
boot=0
for arg; do
	case "$arg" in
	--unit=*) unit=${arg#--unit=} ;;
	--lines=*) lines=${arg#--lines=} ;;
	-1) boot=-1 ;;
	esac
done
if [ "$boot" = -1 ] && [ "$unit" = machine-preservation-kernel ]; then
	echo 'Data from the specified boot (-1) is not available: No such boot ID in journal' >&2
	exit 1
fi
case "$unit" in
kubelet | machine-preservation-kernel) ;;
*) echo '-- No entries --'; exit ;;
esac
seq 1 30000 | tail -n "$lines" | sed "s/.*/Nov 24 10:00:00.000000 node-1 $unit[1]: line & of boot $boot --token=hunter2/"
`

// startNode returns what asks a node, whose kubelet has queries of logs enabled or not, and what tells what journalctl was asked.
func startNode(t *testing.T, queries bool) (evidence.Sources, func() string) {
	t.Helper()
	bin := t.TempDir()
	NewWithT(t).Expect(os.WriteFile(filepath.Join(bin, "journalctl"), []byte(journalctl), 0o700)).To(Succeed())
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))

	logs := kubeletLogs(queries)
	server := httptest.NewServer(http.StripPrefix("/api/v1/nodes/node-1/proxy", http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/logs/") {
			logs.ServeLogs(w, r)
			return
		}
		_, _ = fmt.Fprint(w, "{}")
	})))
	t.Cleanup(server.Close)
	proxy, err := evidence.NewNodeProxy(&rest.Config{Host: server.URL})
	NewWithT(t).Expect(err).NotTo(HaveOccurred())
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}
	index := func(client.Object) []string { return nil }
	shoot := fakeclient.NewClientBuilder().WithScheme(kubernetesscheme.Scheme).WithObjects(node).
		WithIndex(&corev1.Pod{}, "spec.nodeName", index).Build()
	return evidence.Sources{Tool: "test", Clock: clock.RealClock{}, Name: "node-1", Shoot: shoot, NodeProxy: proxy, MaxLog: 512 << 10}, func() string {
		asked, _ := os.ReadFile(filepath.Join(bin, "asked"))
		return string(asked)
	}
}

// kubeletLogs returns a kubelet that serves logs, and nothing else: it is run without all else, of which it makes a panic as soon as
// it has what serves logs.
func kubeletLogs(queries bool) *kubelet.Kubelet {
	k := &kubelet.Kubelet{}
	field := reflect.ValueOf(k).Elem().FieldByName("kubeletConfiguration").FieldByName("EnableSystemLogQuery")
	*(*bool)(unsafe.Pointer(field.UnsafeAddr())) = queries
	func() {
		defer func() { _ = recover() }()
		k.Run(context.Background(), nil)
	}()
	return k
}

// gather returns the logs of the node in the bundle that is written, by their names, and why others could not be had.
func gather(t *testing.T, sources evidence.Sources) (logs, missing map[string]string) {
	t.Helper()
	g := NewWithT(t)
	bundle, err := evidence.Collect(t.Context(), sources)
	g.Expect(err).NotTo(HaveOccurred())
	missing = map[string]string{}
	for _, m := range bundle.Snapshot.Missing {
		missing[m.What()] = m.Reason
	}
	archive := &bytes.Buffer{}
	_, err = bundle.WriteTo(archive, evidence.DefaultMaxSize)
	g.Expect(err).NotTo(HaveOccurred())
	zipped, err := gzip.NewReader(archive)
	g.Expect(err).NotTo(HaveOccurred())
	logs = map[string]string{}
	for tarred := tar.NewReader(zipped); ; {
		header, err := tarred.Next()
		if errors.Is(err, io.EOF) {
			return logs, missing
		}
		g.Expect(err).NotTo(HaveOccurred())
		data, err := io.ReadAll(tarred)
		g.Expect(err).NotTo(HaveOccurred())
		if name, ok := strings.CutPrefix(header.Name, "node/logs/"); ok {
			logs[name] = string(data)
		}
	}
}

func TestKubeletGivesOutJournals(t *testing.T) {
	g := NewWithT(t)
	sources, asked := startNode(t, true)
	logs, missing := gather(t, sources)
	g.Expect(asked()).To(ContainSubstring("--utc --no-pager --output=short-precise --pager-end --lines=2500 --unit=kubelet --boot 0\n"))

	line := func(service, boot string) string {
		return "Nov 24 10:00:00.000000 node-1 " + service + "[1]: line 30000 of boot " + boot + " --token=[redacted]\n"
	}
	for name, last := range map[string]string{
		"kubelet.log":               line("kubelet", "0"),
		"kubelet-previous-boot.log": line("kubelet", "-1"),
		"kernel.log":                line("machine-preservation-kernel", "0"),
	} {
		g.Expect(logs).To(HaveKey(name))
		g.Expect(logs[name]).To(HaveSuffix(last))
		g.Expect(logs[name]).NotTo(ContainSubstring("hunter2"))
		g.Expect(len(logs[name])).To(And(BeNumerically(">", 100<<10), BeNumerically("<=", 512<<10)))
	}
	for _, name := range []string{"kernel-previous-boot.log", "containerd.log", "containerd-previous-boot.log", "gardener-node-agent.log"} {
		g.Expect(logs).NotTo(HaveKey(name))
	}
	g.Expect(missing).To(And(
		HaveKeyWithValue("log of containerd", "the journal has none: -- No entries --, and there is no such file in /var/log"),
		HaveKeyWithValue("log of gardener-node-agent", "the journal has none: options present and query resolved to log files for [gardener-node-agent], and there is no such file in /var/log"),
		Not(HaveKey("log of kernel before the last boot")),
	), "a node that was not rebooted lacks nothing")
}

func TestKubeletWithoutQueriesOfLogs(t *testing.T) {
	g := NewWithT(t)
	sources, asked := startNode(t, false)
	logs, missing := gather(t, sources)
	g.Expect(asked()).To(BeEmpty())
	for name := range logs {
		g.Expect(name).NotTo(ContainSubstring("boot"))
	}
	g.Expect(missing).To(HaveKeyWithValue("log of kubelet", ContainSubstring("enableSystemLogQuery")))
}

// What the handler does not do is why the kernel has a service on nodes.
func TestKubeletGivesOutNoMessagesOfTheKernelItself(t *testing.T) {
	g := NewWithT(t)
	startNode(t, true)
	for query, answer := range map[string]string{
		"query=kernel":                   "-- No entries --",
		"query=absent":                   "log not found for absent",
		"query=absent&boot=0":            "options present and query resolved to log files",
		"query=-k":                       "log not found for -k",
		"query=&pattern=x":               "may not be empty",
		"pattern=x&boot=0":               "query: Required value",
		"query=kubelet&boot=1":           "must be less than 1",
		"query=../lib/systemd/pstore":    "query: Invalid value",
		"query=kubelet&tailLines=200000": "must be between 0 and 100000",
	} {
		recorder := httptest.NewRecorder()
		kubeletLogs(true).ServeLogs(recorder, httptest.NewRequest(http.MethodGet, "/logs/?"+query, nil))
		g.Expect(recorder.Body.String()).To(ContainSubstring(answer), query)
	}
}

// The kubelets of the landscape answer the same, where they have the same journals.
func TestKubeletOfTheLandscapeAnswersTheSame(t *testing.T) {
	g := NewWithT(t)
	startNode(t, true)
	lines := func(unit, boot string) []string {
		var all []string
		for i := 1; i <= 30000; i++ {
			all = append(all, fmt.Sprintf("Nov 24 10:00:00.000000 node-1 %s[1]: line %d of boot %s --token=hunter2", unit, i, boot))
		}
		return all
	}
	simulated := landscape.Handler("node-1", func() landscape.Journal {
		return landscape.Journal{
			"kubelet":                     {lines("kubelet", "0"), lines("kubelet", "-1")},
			"machine-preservation-kernel": {lines("machine-preservation-kernel", "0")},
			"containerd":                  {nil, nil},
		}
	})
	tooMany := strings.Repeat("query=kubelet&", 5)
	for _, query := range []string{
		"query=kubelet&boot=0&tailLines=20000", "query=kubelet&boot=-1&tailLines=3", "query=kubelet&boot=0&tailLines=100000",
		"query=machine-preservation-kernel&boot=0&tailLines=1", "query=machine-preservation-kernel&boot=-1&tailLines=20",
		"query=containerd&boot=0&tailLines=20", "query=containerd&boot=-1&tailLines=20", "query=let&tailLines=20",
		"query=absent&boot=0", "query=absent&tailLines=1", "query=absent", "query=absent&query=other", "query=kubelet&query=absent&tailLines=2",
		"query=", "query=%20", "query=kubelet&boot=1", "query=kubelet&boot=x", "query=kubelet&tailLines=x&boot=y", "query=kubelet&tailLines=100001",
		"query=kubelet&tailLines=-1", "boot=0", "tailLines=5", "query=ku+belet", "query=$(reboot)", tooMany + "boot=0", "query=" + strings.Repeat("k", 257),
	} {
		for _, path := range []string{"/logs/?", "/logs/kubelet.log?"} {
			for _, encoding := range []string{"", "gzip"} {
				want, got := ask(t, http.HandlerFunc(kubeletLogs(true).ServeLogs), path+query, encoding), ask(t, simulated, path+query, encoding)
				g.Expect(got).To(Equal(want), path+query)
			}
		}
	}
	g.Expect(ask(t, simulated, "/logs/", "").status).To(Equal(http.StatusOK))
	g.Expect(ask(t, simulated, "/logs/", "").body).To(ContainSubstring("<pre>"))
	g.Expect(ask(t, simulated, "/logs/absent.log", "")).To(Equal(ask(t, http.HandlerFunc(kubeletLogs(true).ServeLogs), "/logs/absent.log", "")))
}

// answer is what a kubelet answers.
type answer struct {
	status                      int
	contentType, encoding, body string
}

func ask(t *testing.T, kubelet http.Handler, path, encoding string) answer {
	t.Helper()
	g, recorder, request := NewWithT(t), httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, path, nil)
	if encoding != "" {
		request.Header.Set("Accept-Encoding", encoding)
	}
	kubelet.ServeHTTP(recorder, request)
	a := answer{status: recorder.Code, contentType: recorder.Header().Get("Content-Type"), encoding: recorder.Header().Get("Content-Encoding"), body: recorder.Body.String()}
	if a.encoding == "gzip" {
		zipped, err := gzip.NewReader(recorder.Body)
		g.Expect(err).NotTo(HaveOccurred())
		body, err := io.ReadAll(zipped)
		g.Expect(err).NotTo(HaveOccurred())
		a.body = string(body)
	}
	return a
}
