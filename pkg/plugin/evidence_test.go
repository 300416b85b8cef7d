// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
)

var _ = Describe("evidence", func() {
	var (
		o           *evidenceOptions
		out, errOut *bytes.Buffer
		now         = time.Date(2026, 7, 1, 10, 0, 0, 0, time.UTC)
	)

	fake := func(objects ...client.Object) client.Client {
		return fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
			WithIndex(&corev1.Pod{}, "spec.nodeName", func(obj client.Object) []string { return []string{obj.(*corev1.Pod).Spec.NodeName} }).
			WithIndex(&eventsv1.Event{}, "regarding.name", func(obj client.Object) []string { return []string{obj.(*eventsv1.Event).Regarding.Name} }).
			WithIndex(&eventsv1.Event{}, "regarding.kind", func(obj client.Object) []string { return []string{obj.(*eventsv1.Event).Regarding.Kind} }).
			Build()
	}
	sources := func() evidence.Sources {
		return evidence.Sources{Tool: "test", Clock: o.Clock, Name: o.name, Shoot: fake(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}})}
	}

	BeforeEach(func() {
		var streams genericiooptions.IOStreams
		streams, _, out, errOut = genericiooptions.NewTestIOStreams()
		o = &evidenceOptions{Options: newOptions(streams), name: "node-1", maxSize: resource.QuantityValue{Quantity: resource.MustParse("8Mi")}}
		o.Clock = testclock.NewFakeClock(now)
	})

	It("should write a file for its owner alone, and say that it is without the seed", func(ctx SpecContext) {
		o.output = filepath.Join(GinkgoT().TempDir(), "node.tar.gz")
		Expect(o.gather(ctx, sources(), 8<<20)).To(Succeed())
		Expect(out.String()).To(Equal(o.output + "\n"))
		Expect(errOut.String()).To(MatchRegexp(`^8 files, \d\.\d KiB\. Read index\.md first: tar -xzOf FILE index\.md
Without what the seed knows \(the Machine, its Events, logs of the control plane\): operators pass --seed-namespace and --seed-kubeconfig\.
$`))
		info, err := os.Stat(o.output)
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600))
		file, err := os.Open(o.output)
		Expect(err).NotTo(HaveOccurred())
		defer file.Close()
		snapshot, err := evidence.Read(file)
		Expect(err).NotTo(HaveOccurred())
		Expect(snapshot.Time).To(Equal(now))
		entries, err := os.ReadDir(filepath.Dir(o.output))
		Expect(err).NotTo(HaveOccurred())
		Expect(entries).To(HaveLen(1), "nothing partial is left")
	})

	It("should name the file after node and time, or write to the standard output", func(ctx SpecContext) {
		GinkgoT().Chdir(GinkgoT().TempDir())
		Expect(o.gather(ctx, sources(), 8<<20)).To(Succeed())
		Expect("evidence-node-1-20260701T100000Z.tar.gz").To(BeARegularFile())
		out.Reset()
		o.output = "-"
		Expect(o.gather(ctx, sources(), 8<<20)).To(Succeed())
		_, err := evidence.Read(out)
		Expect(err).NotTo(HaveOccurred())
	})

	It("should tell what could not be had", func(ctx SpecContext) {
		s := sources()
		s.NodeProxy = func(context.Context, string, string, url.Values, int64) (io.ReadCloser, error) {
			return nil, apierrors.NewServiceUnavailable("dial tcp: no route")
		}
		o.output = "-"
		Expect(o.gather(ctx, s, 8<<20)).To(Succeed())
		Expect(errOut.String()).To(ContainSubstring("Not to be had: what the kubelet tells: its configuration, statistics and logs of the node: dial tcp: no route\n"))
	})

	It("should say what to do", func(ctx SpecContext) {
		p := newPerson(nil, nil)
		Expect(p.runs("evidence node-1 --max-size 0")).To(MatchError("--max-size=0: must be a number of bytes more than 0, for example 8Mi"))
		Expect(p.runs("evidence node-1 --max-size much")).To(MatchError(ContainSubstring(`invalid argument "much" for "--max-size" flag`)))
		Expect(p.runs("evidence node-1 --max-size 1Mi --stored")).To(MatchError(ContainSubstring("[max-size stored] were all set")))
		Expect(o.gather(ctx, sources(), 10)).To(MatchError(HaveSuffix("raise --max-size")))
		o.output = "/does/not/exist/x.tar.gz"
		Expect(o.gather(ctx, sources(), 8<<20)).To(MatchError(ContainSubstring(`cannot write to the folder of --output "/does/not/exist/x.tar.gz"`)))
		o.name = "node-9"
		Expect(o.gather(ctx, sources(), 8<<20)).To(MatchError(And(HavePrefix(`there is no such node and, as far as can be seen, no such machine: "node-9"`), ContainSubstring("pass --seed-namespace"))))
		o.stored = true
		Expect(o.run(ctx)).To(MatchError(errNoSeed))
	})

	Describe("stored", func() {
		stored := func(machine, node string, age time.Duration, archive []byte) *corev1.ConfigMap {
			return &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "shoot--a--b", Name: evidence.StoredName(machine), CreationTimestamp: metav1.NewTime(now.Add(-age)),
					Labels:      map[string]string{evidence.LabelStored: "true"},
					Annotations: map[string]string{evidence.AnnotationStoredMachine: machine, evidence.AnnotationStoredNode: node},
				},
				BinaryData: map[string][]byte{evidence.StoredKey: archive},
			}
		}

		It("should be listed, and be found by machine and node", func(ctx SpecContext) {
			var archive bytes.Buffer
			bundle, err := evidence.Collect(ctx, sources())
			Expect(err).NotTo(HaveOccurred())
			_, err = bundle.WriteTo(&archive, 1<<20)
			Expect(err).NotTo(HaveOccurred())
			seed := fake(stored("m-2", "", time.Hour, []byte("x")), stored("m-1", "node-1", 50*time.Hour, archive.Bytes()),
				&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--a--b", Name: "other"}})

			o.SeedNamespace = "shoot--a--b"
			list, err := storedIn(ctx, seed, o.SeedNamespace)
			Expect(err).NotTo(HaveOccurred())
			Expect(o.printStored(list)).To(Succeed())
			Expect(out.String()).To(Equal(`MACHINE   NODE     STORED                 AGE
m-1       node-1   2026-06-29T08:00:00Z   2d2h
m-2       -        2026-07-01T09:00:00Z   60m
`))
			for _, name := range []string{"m-1", "node-1"} {
				Expect(readStored(ctx, seed, list, name)).To(Equal(archive.Bytes()))
			}
			_, err = readStored(ctx, seed, list, "m-2")
			Expect(err).To(MatchError("ConfigMap shoot--a--b/machine-preservation-evidence-m-2: this is no bundle of evidence: it is no gzip: unexpected EOF"))
			_, err = readStored(ctx, seed, list, "m-3")
			Expect(err).To(MatchError(ContainSubstring(`no evidence of a machine or node "m-3" is stored: kubectl preserve evidence list`)))
		})

		It("should be told where there is none", func() {
			o.SeedNamespace = "shoot--a--b"
			Expect(o.printStored(nil)).To(Succeed())
			Expect(out.String()).To(BeEmpty())
			Expect(errOut.String()).To(HavePrefix("No evidence is stored in namespace shoot--a--b."))
		})
	})

	Describe("the node proxy", func() {
		get := func(ctx context.Context, handler http.HandlerFunc, path string, query url.Values, last int64) (string, error) {
			GinkgoHelper()
			server := httptest.NewServer(handler)
			defer server.Close()
			proxy, err := nodeProxy(&rest.Config{Host: server.URL})
			Expect(err).NotTo(HaveOccurred())
			body, err := proxy(ctx, "node-1", path, query, last)
			if err != nil {
				return "", err
			}
			defer body.Close()
			data, err := io.ReadAll(body)
			return string(data), err
		}

		It("should ask the kubelet through the API server", func(ctx SpecContext) {
			Expect(get(ctx, func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, r.URL.RequestURI()) }, "logs/", url.Values{"query": {"kubelet"}}, 0)).
				To(Equal("/api/v1/nodes/node-1/proxy/logs/?query=kubelet"))
		})

		It("should take the end of a file", func(ctx SpecContext) {
			file := strings.NewReader("0123456789")
			Expect(get(ctx, func(w http.ResponseWriter, r *http.Request) { http.ServeContent(w, r, "x", now, file) }, "logs/kern.log", nil, 3)).To(Equal("789"))
		})

		It("should say what a dead kubelet is, and ask once", func(ctx SpecContext) {
			asked := 0
			_, err := get(ctx, func(w http.ResponseWriter, _ *http.Request) {
				asked++
				w.Header().Set("Retry-After", "1")
				http.Error(w, "dial tcp 10.0.0.1:10250: i/o timeout", http.StatusServiceUnavailable)
			}, "configz", nil, 0)
			Expect(apierrors.IsServiceUnavailable(err)).To(BeTrue(), "%v", err)
			Expect(asked).To(Equal(1))
		})
	})
})
