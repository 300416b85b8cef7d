// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/golden"
)

var _ = Describe("A bundle of evidence", func() {
	const name = "node-1"

	// The machine failed twenty minutes after it became unhealthy, and is preserved for a day from then on.
	failed := Start.Add(20 * time.Minute)
	expiry := failed.Add(24 * time.Hour)

	shoot := func() []client.Object {
		pod := func(name string) *corev1.Pod {
			return &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": name},
					OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: name, UID: "r", Controller: new(true)}}},
				Spec: corev1.PodSpec{NodeName: "node-1"},
			}
		}
		event := &eventsv1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "e"}, Reason: "MachinePreserved", Action: "MachineFailed", EventTime: metav1.NewMicroTime(failed), Regarding: corev1.ObjectReference{Kind: "Node", Name: name},
			Note: "Machine is Failed:Preserved until 2026-03-02T12:20:00Z because the machine failed (cause auto)",
		}
		return []client.Object{
			Node(name, in("a", "z1"), notReadySince(Start), Taint(drained, failed), Condition("Preserved", corev1.ConditionTrue, "DrainBlocked",
				"Pods: 1 terminating; blocked: namespace shop: budget db. Machine preserved until 2026-03-02T12:20:00Z (cause auto, reason MachineFailed)."), func(n *corev1.Node) { n.Status.Images = []corev1.ContainerImage{{Names: []string{"x"}}} }),
			Node("node-2", in("a", "z1")), pod("web"), pod("db"), event,
			&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "db"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "db"}}}},
		}
	}
	seed := func() []client.Object {
		deployment := deploymentIn("a-z1", "a", "z1", Share("2"), DeploymentAnnotation(ours+"machine-preserve-timeout", "24h"))
		set := Set("a-z1-1", deployment)
		owned := func(m *machinev1alpha1.Machine) {
			m.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(set, machinev1alpha1.SchemeGroupVersion.WithKind("MachineSet"))}
		}
		mcm := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "machine-controller-manager"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{}}}
		mcm.Spec.Template.Spec.Containers = []corev1.Container{{Name: "machine-preservation-controller", Args: []string{"--holder=health-timer", "--max-machine-preserve-timeout=96h"}}}
		return []client.Object{
			deployment, set, mcm,
			Machine(name, of("a-z1"), owned, Phase(machinev1alpha1.MachineUnknown, Start), Preserved("Failed:Preserved", "auto", expiry), Annotation(ours+"preserved-since", failed.Format(time.RFC3339))),
			Machine("node-2", of("a-z1"), owned),
		}
	}

	// gathered returns the file that somebody has of the node.
	gathered := func(p *person, name string) string {
		GinkgoHelper()
		sources, err := p.options.sources(name)
		Expect(err).NotTo(HaveOccurred())
		bundle, err := evidence.Collect(context.Background(), sources)
		Expect(err).NotTo(HaveOccurred())
		var archive bytes.Buffer
		_, err = bundle.WriteTo(&archive, evidence.DefaultMaxSize)
		Expect(err).NotTo(HaveOccurred())
		file := filepath.Join(GinkgoT().TempDir(), "evidence.tar.gz")
		Expect(os.WriteFile(file, archive.Bytes(), 0o600)).To(Succeed())
		return file
	}
	// stranger has the file and no cluster, and looks at it later.
	stranger := func() *person {
		p := newPerson(nil, nil)
		p.options.shoot, p.options.Shoot.KubeConfig = nil, new("/does/not/exist")
		p.options.Clock = testclock.NewFakeClock(now.Add(72 * time.Hour))
		return p
	}
	newOwner := func(operator bool) *person {
		if operator {
			return newPerson(shoot(), seed())
		}
		return newPerson(shoot(), nil)
	}

	DescribeTable("should be told of as the clusters are", func(file, args string, operator bool) {
		live := newOwner(operator)
		Expect(live.runs(args)).To(Succeed())
		p := stranger()
		Expect(p.runs(args + " --from " + gathered(live, name))).To(Succeed())
		Expect(p.out.String()).To(Equal(live.out.String()))
		golden.Expect(file, p.out.String())
	},
		Entry("list, to a shoot's user", "from-list.txt", "list", false),
		Entry("list, to an operator", "from-list-seed.txt", "list -o wide", true),
		Entry("list, as JSON", "from-list-seed.json", "list node-1 -o json", true),
		Entry("explain, to a shoot's user", "explain.txt", "explain node-1", false),
		Entry("explain, to an operator", "explain-seed.txt", "explain node-1", true),
		Entry("explain, as YAML", "explain-yaml.txt", "explain node-1 -o yaml", false),
		Entry("drain-forecast, to a shoot's user", "drain-forecast.txt", "drain-forecast node-1 --not-answering=false", false),
		Entry("drain-forecast, to an operator", "drain-forecast-seed.txt", "drain-forecast node-1 --timeout 30m", true),
		Entry("drain-forecast, as JSON", "drain-forecast.json", "drain-forecast node-1 -o json", false),
	)

	It("should say what the shoot could not be asked for", func() {
		p := newOwner(true)
		p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
			Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
				return errors.New("connection refused")
			},
		})
		file := gathered(p, name)
		for _, command := range []string{"list", "explain node-1"} {
			p := stranger()
			Expect(p.runs(command + " --from " + file)).To(Succeed())
			Expect(p.out.String()).To(MatchRegexp(`(Not known: w|W)hat the shoot knows.*: connection refused`))
		}
	})

	DescribeTable("should be refused with a clear word", func(content func() []byte, message string) {
		file := filepath.Join(GinkgoT().TempDir(), "file")
		Expect(os.WriteFile(file, content(), 0o600)).To(Succeed())
		for _, command := range []string{"list", "explain node-1", "drain-forecast node-1"} {
			Expect(stranger().runs(command + " --from " + file)).To(MatchError(And(HavePrefix("--from="+file+": "), ContainSubstring(message))))
		}
	},
		Entry("something else", func() []byte { return []byte("apiVersion: v1") }, "this is not a bundle of evidence: it is not a gzip file"),
		Entry("another archive", func() []byte { return archiveOf(map[string]string{"x": "y"}) }, "the bundle of evidence is damaged: it has no manifest.json"),
		Entry("one that was changed", func() []byte {
			return archiveOf(map[string]string{"manifest.json": `{"format":1,"files":[{"path":"shoot/nodes.json","size":2,"sha256":"00"}]}`, "shoot/nodes.json": "{}"})
		}, "shoot/nodes.json is not what manifest.json says: its sha256 is"),
		Entry("one over the limit", func() []byte { return archiveOf(map[string]string{"shoot/nodes.json": strings.Repeat(" ", 129<<20)}) }, "it has more than 134217728 bytes unpacked"),
	)

	It("should be named, and be about the node", func() {
		file := gathered(newOwner(false), name)
		Expect(stranger().runs("explain node-1 --from " + file + "x")).To(MatchError(os.ErrNotExist))
		for _, command := range []string{"explain", "drain-forecast"} {
			Expect(stranger().runs(command + " node-9 --from " + file)).To(MatchError(HavePrefix("--from=" + file + `: node "node-9" does not exist. A bundle has one node`)))
			Expect(stranger().runs(command + " node-1 -o xml --from " + file)).To(MatchError("--output=xml: must be one of json, yaml"))
		}
		Expect(stranger().runs("list node-9 --from " + file)).To(MatchError(HavePrefix("--from=" + file + `: node "node-9" does not exist. A bundle has one node`)))
		Expect(stranger().runs("drain-forecast node-1 --timeout -1s --from " + file)).To(MatchError("--timeout=-1s: must be greater than 0, or not set"))
		Expect(stranger().runs("list --seed-namespace x --from " + file)).To(MatchError(HavePrefix("--from=" + file + ": must not be set with --seed-namespace")))
	})

	It("should have heads in bold on a terminal only", func() {
		for _, command := range []string{"explain node-1", "drain-forecast node-1"} {
			p := newOwner(false)
			p.options.isTerminal = func(any) bool { return true }
			Expect(p.runs(command)).To(Succeed())
			Expect(p.out.String()).To(HavePrefix(bold + "Wh"))
			p = newOwner(false)
			Expect(p.runs(command)).To(Succeed())
			Expect(p.out.String()).NotTo(ContainSubstring(bold))
		}
	})

	It("should complete the name of one node", func() {
		for _, command := range []string{"explain", "drain-forecast", "evidence", "power-cycle"} {
			p := newOwner(false)
			Expect(p.runs("__complete " + command + " n")).To(Succeed())
			Expect(p.out.String()).To(HavePrefix("node-1\nnode-2\n:4\n"), command)
			p = newOwner(false)
			Expect(p.runs("__complete " + command + " node-1 n")).To(Succeed())
			Expect(p.out.String()).To(HavePrefix(":4\n"), command)
		}
	})
})

// archiveOf returns a tar.gz of files.
func archiveOf(files map[string]string) []byte {
	GinkgoHelper()
	var archive bytes.Buffer
	zipped := gzip.NewWriter(&archive)
	tarred := tar.NewWriter(zipped)
	for name, content := range files {
		Expect(tarred.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(content)), Mode: 0o644})).To(Succeed())
		Expect(io.WriteString(tarred, content)).To(Equal(len(content)))
	}
	Expect(tarred.Close()).To(Succeed())
	Expect(zipped.Close()).To(Succeed())
	return archive.Bytes()
}
