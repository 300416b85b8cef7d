// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package ironcore

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"

	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/simulator"
)

var _ = Describe("BMC", func() {
	var (
		machine = client.ObjectKey{Namespace: "shoot--a", Name: "m"}
		podKey  = simulator.PodKey(machine)
		bmcsOf  = func(misbehaviour hosts.Misbehaviour, failure simulator.Failure) *bmcs {
			server := NewServer(machine)
			server.SetAnnotations(map[string]string{hosts.MisbehaviourAnnotation: string(misbehaviour)})
			return &bmcs{client: fakeclient.NewClientBuilder().WithScheme(kubernetesclient.SeedScheme).WithObjects(server, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				Namespace: podKey.Namespace, Name: podKey.Name, Annotations: map[string]string{simulator.FailureAnnotation: string(failure)},
			}}).Build()}
		}
	)

	DescribeTable("#obeys", func(ctx SpecContext, misbehaviour hosts.Misbehaviour, failure simulator.Failure, resetType string, expected bool) {
		lag, obeys, err := bmcsOf(misbehaviour, failure).obeys(ctx, "shoot--a.m", []byte(`{"ResetType":"`+resetType+`"}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(obeys).To(Equal(expected))
		Expect(lag).To(BeZero())
	},
		Entry("on", hosts.Misbehaviour(""), simulator.Healthy, resetOn, true),
		Entry("off", hosts.Misbehaviour(""), simulator.Healthy, resetGracefulShutdown, true),
		Entry("never on", hosts.NeverOn, simulator.Healthy, resetOn, false),
		Entry("off, never on", hosts.NeverOn, simulator.Healthy, resetForceOff, true),
		Entry("never off", hosts.NeverOff, simulator.Healthy, resetForceOff, false),
		Entry("never off, asked kindly", hosts.NeverOff, simulator.Healthy, resetGracefulShutdown, false),
		Entry("a kernel that hangs", hosts.Misbehaviour(""), simulator.KernelHang, resetGracefulShutdown, false),
		Entry("a kernel that hangs, without asking it", hosts.Misbehaviour(""), simulator.KernelHang, resetForceOff, true),
		Entry("a kubelet that is dead", hosts.Misbehaviour(""), simulator.KubeletDead, resetGracefulShutdown, true),
		Entry("something else", hosts.NeverOff, simulator.Healthy, "Nmi", true),
	)

	It("should be late", func(ctx SpecContext) {
		lag, obeys, err := bmcsOf(hosts.LateReport, simulator.Healthy).obeys(ctx, "shoot--a.m", []byte(`{"ResetType":"On"}`))
		Expect(err).NotTo(HaveOccurred())
		Expect(obeys).To(BeTrue())
		Expect(lag).To(Equal(hosts.LateReportLag))
	})

	DescribeTable("passes on what the host does", func(misbehaviour hosts.Misbehaviour, method, path, body string, status int, passed string) {
		var got string
		handler := bmcsOf(misbehaviour, simulator.Healthy).misbehaving("shoot--a.m", http.HandlerFunc(func(_ http.ResponseWriter, request *http.Request) {
			read, err := io.ReadAll(request.Body)
			Expect(err).NotTo(HaveOccurred())
			got = request.Method + " " + string(read)
		}))
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(method, path, strings.NewReader(body)))
		Expect(recorder.Code).To(Equal(status))
		Expect(got).To(Equal(passed))
	},
		Entry("a reset", hosts.Misbehaviour(""), "POST", systemURI+"/Actions/ComputerSystem.Reset", `{"ResetType":"On"}`, 200, `POST {"ResetType":"On"}`),
		Entry("a reset that it ignores", hosts.NeverOn, "POST", systemURI+"/Actions/ComputerSystem.Reset", `{"ResetType":"On"}`, 202, ""),
		Entry("no reset", hosts.Misbehaviour(""), "POST", systemURI+"/Actions/ComputerSystem.Reset", "no", 500, ""),
		Entry("a question", hosts.NeverOn, "GET", systemURI, "", 200, "GET "),
	)

	It("should run once for each Server", func(ctx SpecContext) {
		bmcs := &bmcs{running: map[string]*bmc{"shoot--a.m": {port: 42}}}
		Expect(bmcs.start(ctx, "shoot--a.m")).To(Equal(42))
		Expect(bmcs.stop(ctx, "shoot--a.other")).To(Succeed())
		Expect(bmcs.running).To(HaveLen(1))
	})
})
