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
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	"k8s.io/client-go/rest"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// evidenceOf is what the shoot has stored of a machine.
func evidenceOf(machine string, archive []byte) *corev1.Secret {
	return &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: retention.ShootNamespace, Name: retention.StoredNames()[0], CreationTimestamp: metav1.NewTime(Start),
			Labels: map[string]string{retention.LabelStored: "true"}, Annotations: map[string]string{retention.AnnotationStoredMachine: machine},
		},
		Type: retention.ShootType,
		Data: map[string][]byte{retention.StoredKey: archive},
	}
}

var _ = Describe("evidence", func() {
	var (
		o           *evidenceOptions
		out, errOut *bytes.Buffer
		now         = time.Date(2026, 7, 1, 10, 0, 0, 0, time.UTC)
	)

	sources := func() evidence.Sources {
		return evidence.Sources{Tool: "test", Clock: o.Clock, Name: o.name, Shoot: apiServer(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-1"}}).Build()}
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
The file does not have what only the seed knows \(the Machine, its Events, logs of the control plane\)\. Operators get it with --seed-namespace and --seed-kubeconfig\.
$`))
		info, err := os.Stat(o.output)
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode().Perm()).To(BeEquivalentTo(0o600))
		file, err := os.Open(o.output)
		Expect(err).NotTo(HaveOccurred())
		defer file.Close()
		read, err := evidence.Read(file)
		Expect(err).NotTo(HaveOccurred())
		Expect(read.Time).To(Equal(now))
		entries, err := os.ReadDir(filepath.Dir(o.output))
		Expect(err).NotTo(HaveOccurred())
		Expect(entries).To(HaveLen(1), "nothing partial is left")
	})

	It("should write to what is there, if that is no file: it may be a device, or a link that is to stay", func(ctx SpecContext) {
		folder := GinkgoT().TempDir()
		target := filepath.Join(folder, "target")
		o.output = filepath.Join(folder, "link")
		Expect(os.Symlink(target, o.output)).To(Succeed())
		Expect(o.gather(ctx, sources(), 8<<20)).To(Succeed())
		Expect(os.Readlink(o.output)).To(Equal(target))
		info, err := os.Lstat(target)
		Expect(err).NotTo(HaveOccurred())
		Expect(info.Mode()).To(Equal(os.FileMode(0o600)))
		Expect(info.Size()).To(BeNumerically(">", 0))
		Expect(out.String()).To(Equal(o.output + "\n"))
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
		Expect(errOut.String()).To(ContainSubstring("Not gathered: what the kubelet knows: its configuration, statistics and logs of the node: dial tcp: no route\n"))
	})

	It("should say what to do", func(ctx SpecContext) {
		p := newPerson(nil, nil)
		Expect(p.runs("evidence node-1 --max-size 0")).To(MatchError("--max-size=0: must be greater than 0, for example 8Mi"))
		Expect(p.runs("evidence node-1 --max-size much")).To(MatchError(ContainSubstring(`invalid argument "much" for "--max-size" flag`)))
		Expect(p.runs("evidence node-1 --max-size 1Mi --stored")).To(MatchError(ContainSubstring("[max-size stored] were all set")))
		Expect(o.gather(ctx, sources(), 10)).To(MatchError(HaveSuffix("raise --max-size")))
		o.output = "/does/not/exist/x.tar.gz"
		Expect(o.gather(ctx, sources(), 8<<20)).To(MatchError(ContainSubstring(`failed to write to the folder of --output=/does/not/exist/x.tar.gz`)))
		o.name = "node-9"
		Expect(o.gather(ctx, sources(), 8<<20)).To(MatchError(And(HavePrefix(`neither a node nor a machine with this name was found: "node-9"`), ContainSubstring("pass --seed-namespace"))))
		o.stored, o.SeedKubeconfig = true, "seed.yaml"
		Expect(o.run(ctx)).To(MatchError(errNoSeed), "--seed-namespace is missing")
	})

	Describe("stored", func() {
		stored := func(machine, node string, age time.Duration, archive []byte) *corev1.ConfigMap {
			return &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{
					Namespace: "shoot--a--b", Name: "evidence-of-" + machine, CreationTimestamp: metav1.NewTime(now.Add(-age)),
					Labels:      map[string]string{retention.LabelStored: "true"},
					Annotations: map[string]string{retention.AnnotationStoredMachine: machine, retention.AnnotationStoredNode: node},
				},
				BinaryData: map[string][]byte{retention.StoredKey: archive},
			}
		}

		// inShoot is what a Secret in the shoot has of it.
		inShoot := func(configMap *corev1.ConfigMap) *corev1.Secret {
			secret := &corev1.Secret{ObjectMeta: *configMap.ObjectMeta.DeepCopy(), Type: retention.ShootType, Data: configMap.BinaryData}
			secret.Namespace = retention.ShootNamespace
			return secret
		}
		var (
			archive bytes.Buffer
			all     []*corev1.ConfigMap
			unnamed string
		)

		BeforeEach(func(ctx SpecContext) {
			archive.Reset()
			bundle, err := evidence.Collect(ctx, sources())
			Expect(err).NotTo(HaveOccurred())
			_, err = bundle.WriteTo(&archive, 1<<20)
			Expect(err).NotTo(HaveOccurred())
			m0 := stored("m-0", "node-1", 60*time.Hour, archive.Bytes())
			m0.Name = retention.StoredNames()[0]
			delete(m0.Annotations, retention.AnnotationStoredMachine)
			unnamed = m0.Name
			all = []*corev1.ConfigMap{stored("m-2", "", time.Hour, []byte("x")), stored("m-1", "node-1", 50*time.Hour, archive.Bytes()), m0}
		})

		for _, isShoot := range []bool{false, true} {
			It(fmt.Sprintf("should be listed, and be found by machine and node, in the shoot: %t", isShoot), func(ctx SpecContext) {
				objects, where, prefix := []client.Object{&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--a--b", Name: "other"}}}, "namespace shoot--a--b of the seed", "ConfigMap shoot--a--b"
				for _, configMap := range all {
					objects = append(objects, configMap)
				}
				if isShoot {
					objects, where, prefix = nil, "the shoot", "Secret machine-preservation-evidence"
					for _, configMap := range all {
						objects = append(objects, inShoot(configMap))
					}
					o.shoot = apiServer(objects...).Build()
				} else {
					o.seed, o.SeedNamespace, o.shoot = apiServer(objects...).Build(), "shoot--a--b", apiServer().Build()
				}

				list, err := o.readStored(ctx)
				Expect(err).NotTo(HaveOccurred())
				Expect(o.listStored(ctx)).To(Succeed())
				Expect(out.String()).To(Equal(`MACHINE                            NODE     STORED                 AGE
machine-preservation-evidence-01   node-1   2026-06-28T22:00:00Z   2d12h
m-1                                node-1   2026-06-29T08:00:00Z   2d2h
m-2                                -        2026-07-01T09:00:00Z   60m
`))
				for _, name := range []string{"m-1", "node-1", unnamed} {
					Expect(list.bundle(ctx, name)).To(Equal(archive.Bytes()))
				}
				_, err = list.bundle(ctx, "m-2")
				Expect(err).To(MatchError(prefix + "/evidence-of-m-2: this is not a bundle of evidence: it is not a gzip file: unexpected EOF"))
				_, err = list.bundle(ctx, "m-3")
				Expect(err).To(MatchError(ContainSubstring(`no evidence of a machine or node "m-3" is stored in ` + where + `: 'kubectl preserve evidence list'`)))
			})
		}

		It("should be the complete one of the last failure, in whichever order they were copied", func(ctx SpecContext) {
			for i, failure := range []string{"2026-07-01T09:00:00Z", "2026-07-01T08:00:00Z", "2026-07-01T09:00:00Z"} {
				configMap := stored("m", "node-1", time.Hour, []byte{byte(i)})
				configMap.Name, configMap.Annotations[retention.AnnotationStoredFailedSince] = retention.StoredNames()[i], failure
				if i == 2 {
					configMap.Annotations[retention.AnnotationStoredIncomplete] = failure
				} else {
					configMap.BinaryData[retention.StoredKey] = archive.Bytes()
				}
				all[i] = configMap
			}
			o.shoot = apiServer(inShoot(all[0]), inShoot(all[1]), inShoot(all[2])).Build()
			list, err := o.readStored(ctx)
			Expect(err).NotTo(HaveOccurred())
			Expect(list.items[2].Name).To(Equal(retention.StoredNames()[0]))
			Expect(list.bundle(ctx, "m")).To(Equal(archive.Bytes()))
		})

		It("should be shown without what moves the cursor: what is in the shoot may be anybody's", func(ctx SpecContext) {
			all[1].Annotations[retention.AnnotationStoredMachine] = "m\x1b[2J\nx" + strings.Repeat("y", 200)
			o.shoot = apiServer(inShoot(all[1])).Build()
			Expect(o.listStored(ctx)).To(Succeed())
			Expect(out.String()).NotTo(ContainSubstring("\x1b"))
			Expect(strings.Count(out.String(), "\n")).To(Equal(2))
		})

		It("should say where there is none, and who may read it", func(ctx SpecContext) {
			o.shoot = apiServer().Build()
			Expect(o.listStored(ctx)).To(Succeed())
			Expect(errOut.String()).To(HavePrefix("No evidence is stored in the shoot."))
			errOut.Reset()
			o.SeedNamespace, o.seed = "shoot--a--b", apiServer().Build()
			Expect(o.listStored(ctx)).To(Succeed())
			Expect(out.String()).To(BeEmpty())
			Expect(errOut.String()).To(HavePrefix("No evidence is stored in namespace shoot--a--b of the seed."))

			denied := interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
				return apierrors.NewForbidden(corev1.Resource("secrets"), "", nil)
			}}
			o.shoot, o.seed = apiServer().WithInterceptorFuncs(denied).Build(), apiServer().WithInterceptorFuncs(denied).Build()
			Expect(o.listStored(ctx)).To(MatchError(ContainSubstring("failed to list the evidence in namespace shoot--a--b of the seed: ")))
			o.SeedNamespace = ""
			Expect(o.listStored(ctx)).To(MatchError("you are not allowed to read the evidence in the shoot: ask its owner to bind you to Role evidence-viewer in namespace machine-preservation-evidence"))
			Expect(o.runStored(ctx)).To(MatchError(HavePrefix("you are not allowed to read the evidence")))
		})
	})

	Describe("the command", func() {
		var (
			mutex sync.Mutex
			asked []string
			ask   = func(what string) {
				mutex.Lock()
				defer mutex.Unlock()
				asked = append(asked, what)
			}
		)
		person := func(seed bool) *person {
			mcm := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "machine-controller-manager"}, Spec: appsv1.DeploymentSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "mcm"}}}}
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "mcm-0", Labels: mcm.Spec.Selector.MatchLabels},
				Status: corev1.PodStatus{ContainerStatuses: []corev1.ContainerStatus{{Name: "machine-controller-manager"}}}}
			var objects []client.Object
			if seed {
				objects = []client.Object{Machine("m", func(m *machinev1alpha1.Machine) { m.Labels["node"] = "node-1" }), mcm, pod}
			}
			p := newPerson([]client.Object{Node("node-1")}, objects)
			asked = nil
			p.options.nodeProxy = func(_ context.Context, node, path string, _ url.Values, _ int64) (io.ReadCloser, error) {
				ask(node + "/" + path)
				return io.NopCloser(strings.NewReader("{}")), nil
			}
			p.options.podLogs = func(_ context.Context, _, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error) {
				ask(pod + "/" + options.Container)
				return io.NopCloser(strings.NewReader("machine m is unhealthy\n")), nil
			}
			return p
		}
		file := func() string { return filepath.Join(GinkgoT().TempDir(), "node.tar.gz") }
		read := func(name string) *observed.Snapshot {
			GinkgoHelper()
			archive, err := os.ReadFile(name)
			Expect(err).NotTo(HaveOccurred())
			s, err := evidence.Read(bytes.NewReader(archive))
			Expect(err).NotTo(HaveOccurred())
			return s
		}

		It("should ask the shoot and the kubelet for a shoot's user", func() {
			p, name := person(false), file()
			Expect(p.runs("evidence node-1 -o " + name)).To(Succeed())
			Expect(asked).To(And(ContainElement("node-1/configz"), Not(ContainElement(HavePrefix("mcm-0")))))
			Expect(p.errOut.String()).To(And(ContainSubstring("The file does not have what only the seed knows"), Not(ContainSubstring("Not gathered: what the seed knows"))))
			Expect(read(name).Seed).To(BeNil())
		})

		It("should ask the seed and its pods as well for an operator", func() {
			p, name := person(true), file()
			Expect(p.runs("evidence m -o " + name)).To(Succeed())
			Expect(asked).To(ContainElements("node-1/configz", "mcm-0/machine-controller-manager"))
			Expect(read(name).Seed.Machines).To(ConsistOf(HaveField("Name", "m")))
		})

		It("should do without kubelets and logs where nobody can ask for them", func() {
			p, name := person(true), file()
			p.options.nodeProxy, p.options.podLogs = nil, nil
			Expect(p.runs("evidence m -o " + name)).To(Succeed())
			Expect(asked).To(BeEmpty())
		})

		It("should take what the seed knows where there is no access to the shoot", func() {
			p, name := person(true), file()
			p.options.shoot, p.options.Shoot.KubeConfig = nil, new("/does/not/exist")
			Expect(p.runs("evidence m -o " + name)).To(Succeed())
			Expect(p.errOut.String()).To(And(ContainSubstring("/does/not/exist"), ContainSubstring("Not gathered: what the shoot knows: there is no access to the shoot")))
			Expect(person(false).runs("evidence m -o " + name)).To(MatchError(HavePrefix("neither a node nor a machine")))
		})

		It("should list and take what is stored", func() {
			p, name := person(true), file()
			Expect(p.runs("evidence m -o " + name)).To(Succeed())
			archive, err := os.ReadFile(name)
			Expect(err).NotTo(HaveOccurred())
			Expect(p.options.seed.Create(context.Background(), &corev1.ConfigMap{
				ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: retention.StoredNames()[0], CreationTimestamp: metav1.NewTime(Start), Labels: map[string]string{retention.LabelStored: "true"}, Annotations: map[string]string{retention.AnnotationStoredMachine: "m"}},
				BinaryData: map[string][]byte{retention.StoredKey: archive},
			})).To(Succeed())
			p.out.Reset()
			Expect(p.runs("evidence list")).To(Succeed())
			Expect(p.out.String()).To(MatchRegexp(`^MACHINE +NODE +STORED +AGE\nm +- `))
			again := file()
			Expect(p.runs("evidence m --stored -o " + again)).To(Succeed())
			Expect(os.ReadFile(again)).To(Equal(archive))

			owner := person(false)
			Expect(owner.options.shoot.Create(context.Background(), evidenceOf("m", archive))).To(Succeed())
			Expect(owner.runs("evidence list")).To(Succeed())
			Expect(owner.out.String()).To(MatchRegexp(`\nm +- `))
			again = file()
			Expect(owner.runs("evidence m --stored -o "+again)).To(Succeed(), "the shoot's kubeconfig is enough")
			Expect(os.ReadFile(again)).To(Equal(archive))
		})
	})

	It("should read objects of kinds that the API server is not asked about", func(ctx SpecContext) {
		var asked []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			asked = append(asked, r.URL.Path)
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"metadata":{"name":"x"}}`)
		}))
		defer server.Close()
		c, _, err := newClient(&rest.Config{Host: server.URL})
		Expect(err).NotTo(HaveOccurred())
		for _, object := range []client.Object{&corev1.Node{}, &machinev1alpha1.Machine{}, &maintenancev1alpha1.NodeMaintenance{}, &corev1.ConfigMap{}, &corev1.Secret{}} {
			Expect(c.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "x"}, object)).To(Succeed())
		}
		Expect(c.List(ctx, &storagev1.VolumeAttachmentList{})).To(Succeed())
		Expect(asked).To(Equal([]string{
			"/api/v1/nodes/x",
			"/apis/machine.sapcloud.io/v1alpha1/namespaces/ns/machines/x",
			"/apis/" + maintenancev1alpha1.SchemeGroupVersion.String() + "/namespaces/ns/nodemaintenances/x",
			"/api/v1/namespaces/ns/configmaps/x",
			"/api/v1/namespaces/ns/secrets/x",
			"/apis/storage.k8s.io/v1/volumeattachments",
		}))
	})
})
