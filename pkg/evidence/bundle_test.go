// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"regexp"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/golden"
)

var start = time.Date(2026, 7, 1, 10, 0, 0, 0, time.UTC)

func at(minutes int) metav1.Time {
	return metav1.NewTime(start.Add(time.Duration(minutes) * time.Minute))
}

func event(namespace, name, kind, regarding, reason, note string, minute int) eventsv1.Event {
	return eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		EventTime:  metav1.NewMicroTime(at(minute).Time),
		Regarding:  corev1.ObjectReference{Kind: kind, Name: regarding, Namespace: namespace},
		Reason:     reason, Note: note, Type: "Normal", Action: "x", ReportingController: "c", ReportingInstance: "c-0",
	}
}

func exampleBundle() *Bundle {
	return &Bundle{
		Tool: "kubectl-preserve v1", Node: "node-1", Machine: "m-1",
		Snapshot: observed.Snapshot{
			Time: at(60).UTC(),
			Shoot: observed.Shoot{
				Nodes: []corev1.Node{{
					ObjectMeta: metav1.ObjectMeta{Name: "node-1", CreationTimestamp: at(0)},
					Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: v1alpha1.TaintPreserved, Effect: "NoSchedule", TimeAdded: new(at(20))}}},
					Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{
						{Type: "Ready", Status: "Unknown", Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status.", LastHeartbeatTime: at(9), LastTransitionTime: at(10)},
						{Type: "Preserved", Status: "True", Reason: "Drained", Message: "![x](https://evil) | <b>", LastTransitionTime: at(20)},
					}},
				}, {ObjectMeta: metav1.ObjectMeta{Name: "node-2"}}},
				Pods: []corev1.Pod{{
					ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p", DeletionTimestamp: new(at(22)), DeletionGracePeriodSeconds: new(int64(30))},
					Spec:       corev1.PodSpec{NodeName: "node-1"},
					Status: corev1.PodStatus{StartTime: new(at(1)), Conditions: []corev1.PodCondition{
						{Type: corev1.DisruptionTarget, Status: "True", Reason: "EvictionByEvictionAPI", Message: "Eviction API: evicting", LastTransitionTime: at(21)},
					}},
				}},
				VolumeAttachments: []storagev1.VolumeAttachment{{
					ObjectMeta: metav1.ObjectMeta{Name: "csi-1", CreationTimestamp: at(2)},
					Spec:       storagev1.VolumeAttachmentSpec{NodeName: "node-1", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: new("pv-1")}},
				}},
				Events: []eventsv1.Event{
					event("default", "e1", "Node", "node-1", "NodeNotReady", "Node node-1 status is now: NodeNotReady", 10),
					event("default", "e2", "Node", "node-1", "PreservedNodeDrained", "Nothing is left to be evicted", 25),
				},
				HasMaintenances: true,
				Maintenances: []maintenancev1alpha1.NodeMaintenance{{
					ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "nm", CreationTimestamp: at(30)},
					Spec:       maintenancev1alpha1.NodeMaintenanceSpec{NodeName: "node-1", RequestorID: "person.example"},
				}},
			},
			Seed: &observed.Seed{
				Namespace: "shoot--a--b",
				Machines: []machinev1alpha1.Machine{{
					ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--a--b", Name: "m-1", CreationTimestamp: at(-5), Annotations: map[string]string{
						v1alpha1.AnnotationPhase: "Failed:Preserved", v1alpha1.AnnotationCause: "auto",
						v1alpha1.AnnotationExpiryTime: at(200).UTC().Format(time.RFC3339), builder.NotePreservedSince: at(19).UTC().Format(time.RFC3339),
					}},
					Status: machinev1alpha1.MachineStatus{LastOperation: machinev1alpha1.LastOperation{Type: "HealthCheck", State: "Processing", Description: "Machine m-1 is unhealthy", LastUpdateTime: at(11)}},
				}, {ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--a--b", Name: "m-2"}}},
				MachineSets:        []machinev1alpha1.MachineSet{{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--a--b", Name: "s"}}},
				MachineDeployments: []machinev1alpha1.MachineDeployment{{ObjectMeta: metav1.ObjectMeta{Namespace: "shoot--a--b", Name: "d"}}},
				Events:             []eventsv1.Event{event("shoot--a--b", "e3", "Machine", "m-1", "MachinePreserved", "It is preserved until 13:20", 20)},
			},
			Missing: []observed.Missing{{Thing: "logs of the node", Reason: "no answer within 5s"}},
		},
	}
}

func written(b *Bundle, maxSize int64) []byte {
	GinkgoHelper()
	var out bytes.Buffer
	size, err := b.WriteTo(&out, maxSize)
	Expect(err).NotTo(HaveOccurred())
	Expect(size.Bytes).To(Equal(out.Len()))
	return out.Bytes()
}

// unpacked returns the files of a bundle, and their names in order.
func unpacked(archive []byte) (map[string]string, []string) {
	GinkgoHelper()
	zipped, err := gzip.NewReader(bytes.NewReader(archive))
	Expect(err).NotTo(HaveOccurred())
	files, names := map[string]string{}, []string{}
	for tarred := tar.NewReader(zipped); ; {
		header, err := tarred.Next()
		if errors.Is(err, io.EOF) {
			return files, names
		}
		Expect(err).NotTo(HaveOccurred())
		data, err := io.ReadAll(tarred)
		Expect(err).NotTo(HaveOccurred())
		files[header.Name] = string(data)
		names = append(names, header.Name)
	}
}

func manifestOf(archive []byte) *Manifest {
	GinkgoHelper()
	files, _ := unpacked(archive)
	manifest := &Manifest{}
	Expect(json.Unmarshal([]byte(files["manifest.json"]), manifest)).To(Succeed())
	return manifest
}

var _ = Describe("Bundle", func() {
	It("should be read as it was written", func() {
		b := exampleBundle()
		s, err := Read(bytes.NewReader(written(b, DefaultMaxSize)))
		Expect(err).NotTo(HaveOccurred())
		// A time that was read has the same zone in another way.
		want, err := json.Marshal(b.Snapshot)
		Expect(err).NotTo(HaveOccurred())
		Expect(json.Marshal(s)).To(MatchJSON(want))
	})

	It("should be read without a seed and without maintenances", func() {
		b := exampleBundle()
		b.Snapshot.Seed, b.Machine = nil, ""
		b.Snapshot.Shoot.HasMaintenances, b.Snapshot.Shoot.Maintenances = false, nil
		s, err := Read(bytes.NewReader(written(b, DefaultMaxSize)))
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Seed).To(BeNil())
		Expect(s.Shoot.HasMaintenances).To(BeFalse())
		Expect(s.Shoot.Nodes).To(HaveLen(2))
	})

	It("should be the same bytes each time", func() {
		Expect(written(exampleBundle(), DefaultMaxSize)).To(Equal(written(exampleBundle(), DefaultMaxSize)))
	})

	It("should tell in its index what happened", func() {
		files, names := unpacked(written(exampleBundle(), DefaultMaxSize))
		golden.Expect("index.md", files["index.md"])
		Expect(names[:2]).To(Equal([]string{"manifest.json", "index.md"}))
	})

	It("should have the digest of each file in its manifest, and redact credentials in texts", func() {
		b := exampleBundle()
		b.Snapshot.Shoot.Events[0].Note = "Bearer 0123456789abcdef0123 is wrong"
		b.Snapshot.Shoot.Events[1].Note = `the body is {"password":"0123456789abcdef0123"}`
		b.Snapshot.Shoot.Pods[0].Spec.AutomountServiceAccountToken = new(true)
		b.Snapshot.Shoot.Pods[0].Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "stays"}}
		archive := written(b, DefaultMaxSize)
		files, names := unpacked(archive)
		manifest := manifestOf(archive)
		Expect(manifest.Files).To(HaveLen(len(names) - 1))
		for _, f := range manifest.Files {
			Expect(f.SHA256).To(Equal(fmt.Sprintf("%x", sha256.Sum256([]byte(files[f.Path])))))
		}
		Expect(manifest.Redacted).To(ConsistOf(Redacted{What: "what looks like a credential, in texts and logs", Count: 2}))
		Expect(files["shoot/pods.json"]).To(And(ContainSubstring(`"automountServiceAccountToken": true`), ContainSubstring(`"name": "stays"`)))
		_, err := Read(bytes.NewReader(archive))
		Expect(err).NotTo(HaveOccurred())
		for name, data := range files {
			Expect(data).NotTo(ContainSubstring("0123456789abcdef0123"), name)
		}
	})

	It("should cut logs from their beginning first, then leave out what says the least", func() {
		b := exampleBundle()
		random := rand.New(rand.NewSource(1))
		var log strings.Builder
		for i := range 4000 {
			fmt.Fprintf(&log, "line %d %x\n", i, random.Uint64())
		}
		b.AddLog("node/logs/kubelet.log", []byte(log.String()))
		b.AddLog("node/logs/short.log", []byte("short\n"))
		whole := len(written(b, DefaultMaxSize))

		archive := written(b, int64(whole)/2)
		Expect(len(archive)).To(BeNumerically("<=", whole/2))
		files, _ := unpacked(archive)
		Expect(files["node/logs/kubelet.log"]).To(HaveSuffix(log.String()[log.Len()-100:]))
		Expect(files["node/logs/kubelet.log"]).To(HavePrefix("line "))
		Expect(files["node/logs/short.log"]).To(Equal("short\n"))
		Expect(manifestOf(archive).Files).To(ContainElement(And(
			HaveField("Path", "node/logs/kubelet.log"), HaveField("Cut", BeEquivalentTo(log.Len()-len(files["node/logs/kubelet.log"]))))))
		Expect(files["index.md"]).To(MatchRegexp(`kubelet.log: \d+ bytes, its first \d+ bytes are missing`))

		var out bytes.Buffer
		b = exampleBundle()
		whole = len(written(b, DefaultMaxSize)) - 1
		size, err := b.WriteTo(&out, int64(whole))
		Expect(err).NotTo(HaveOccurred())
		Expect(out.Len()).To(BeNumerically("<=", whole))
		Expect(size.LeftOut).To(ContainElement("shoot/other-nodes.json"))
		Expect(manifestOf(out.Bytes()).Missing).To(ContainElement(observed.Missing{Thing: "file shoot/other-nodes.json", Reason: fmt.Sprintf("it does not fit into %d bytes", whole)}))
		_, err = Read(bytes.NewReader(out.Bytes()))
		Expect(err).NotTo(HaveOccurred())

		_, err = b.WriteTo(io.Discard, 100)
		Expect(err).To(And(MatchError(ErrTooLarge), MatchError(MatchRegexp("it has at least .* bytes, more than the allowed 100"))))
	})
})

// noiseOf returns what makes texts of a length that do not compress.
func noiseOf(random *rand.Rand) func(length int) string {
	return func(length int) string {
		text := make([]rune, length)
		for i := range text {
			text[i] = rune(0x4e00 + random.Intn(0x5000))
		}
		return string(text)
	}
}

var _ = Describe("Bundle of a shoot that is flooded", func() {
	const stored = 900 << 10
	random := rand.New(rand.NewSource(1))
	noise := noiseOf(random)
	DescribeTable("what is stored of it", func(flood func(s *observed.Snapshot), gone ...string) {
		b := exampleBundle()
		flood(&b.Snapshot)
		archive := written(b, stored)
		files, names := unpacked(archive)
		s, err := Read(bytes.NewReader(archive))
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Seed.Machines[0].Name).To(Equal("m-1"))
		for _, name := range gone {
			if path, isPart := strings.CutPrefix(name, "messages in "); isPart {
				Expect(names).To(ContainElement(path))
				Expect(s.Missing).To(ContainElement(observed.Missing{Thing: observed.Thing("labels, annotations or " + name), Reason: "they do not fit into 921600 bytes, because they do not compress"}))
				continue
			}
			Expect(names).NotTo(ContainElement(name))
			Expect(s.Missing).To(ContainElement(observed.Missing{Thing: observed.Thing("file " + name), Reason: "it does not fit into 921600 bytes"}))
		}
		Expect(files["index.md"]).To(ContainSubstring("- The machine is Failed:Preserved."))
		Expect(names).To(ContainElement("seed/events.json"))
	},
		Entry("Events of the node", func(s *observed.Snapshot) {
			for i := range 5000 {
				s.Shoot.Events = append(s.Shoot.Events, event("default", fmt.Sprint("flood-", i), "Node", "node-1", "Flood", noise(500), i%60))
			}
		}, "shoot/events.json"),
		Entry("maintenances", func(s *observed.Snapshot) {
			for i := range 2000 {
				m := maintenancev1alpha1.NodeMaintenance{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("flood-", i)}}
				m.Spec.RequestorID, m.Status.Conditions = "x", []metav1.Condition{{Type: "x", Message: noise(500), LastTransitionTime: at(1)}}
				s.Shoot.Maintenances = append(s.Shoot.Maintenances, m)
			}
		}, "messages in shoot/nodemaintenances.json"),
		Entry("volumes", func(s *observed.Snapshot) {
			for i := range 2000 {
				a := storagev1.VolumeAttachment{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("flood-", i)}}
				a.Status.AttachError = &storagev1.VolumeError{Time: at(1), Message: noise(500)}
				s.Shoot.VolumeAttachments = append(s.Shoot.VolumeAttachments, a)
			}
		}, "messages in shoot/volumeattachments.json"),
		Entry("the node", func(s *observed.Snapshot) {
			for range 2000 {
				s.Shoot.Nodes[0].Status.Conditions = append(s.Shoot.Nodes[0].Status.Conditions, corev1.NodeCondition{Type: "x", Status: "Unknown", Message: noise(500), LastTransitionTime: at(1)})
			}
		}, "shoot/nodes.json"),
	)

	DescribeTable("what Read would refuse is not written", func(flood func(b *Bundle), gone, reason string) {
		for _, maxSize := range []int64{DefaultMaxSize, stored} {
			b := exampleBundle()
			flood(b)
			archive := written(b, maxSize)
			s, err := Read(bytes.NewReader(archive))
			Expect(err).NotTo(HaveOccurred())
			Expect(s.Seed.Machines).To(HaveLen(2))
			_, names := unpacked(archive)
			Expect(names).To(ContainElements("seed/events.json", "shoot/other-nodes.json", "shoot/poddisruptionbudgets.json"), "only the flood goes")
			if gone == "" {
				Expect(s.Missing).To(Equal(b.Snapshot.Missing))
				continue
			}
			Expect(names).NotTo(ContainElement(gone))
			Expect(reasonOf(s, "file "+gone)).To(MatchRegexp(reason))
		}
	},
		Entry("more fields", func(b *Bundle) {
			b.Snapshot.Shoot.Pods[0].Spec.Containers = []corev1.Container{{Name: "c", Env: make([]corev1.EnvVar, 530000)}}
		}, "shoot/pods.json", `^it has 106\d{4} fields and items, and all files may have 917504 together$`),
		Entry("more objects", func(b *Bundle) { b.Snapshot.Shoot.VolumeAttachments = make([]storagev1.VolumeAttachment, 10001) },
			"shoot/volumeattachments.json", "^it has more than 10000 objects$"),
		Entry("more bytes", func(b *Bundle) { b.AddLog("node/logs/kubelet.log", bytes.Repeat([]byte("x\n"), 65<<20)) }, "", ""),
	)

	It("should cut the labels that do not compress before it leaves anything out, and keep those that do", func() {
		b := exampleBundle()
		for i := range 200 {
			pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("flood-", i), Labels: map[string]string{"app": "frontend"}}}
			for range 40 {
				pod.Labels[fmt.Sprintf("x%x%x", random.Uint64(), random.Uint64())] = fmt.Sprintf("%x%x%x", random.Uint64(), random.Uint64(), random.Uint64())
			}
			b.Snapshot.Shoot.Pods = append(b.Snapshot.Shoot.Pods, pod)
		}
		var out bytes.Buffer
		size, err := b.WriteTo(&out, 170<<10)
		Expect(err).NotTo(HaveOccurred())
		Expect(out.Len()).To(BeNumerically("<=", 170<<10))
		Expect(size.LeftOut).To(ConsistOf("labels, annotations or messages in shoot/pods.json"))
		s, err := Read(bytes.NewReader(out.Bytes()))
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Shoot.Pods).To(HaveLen(len(b.Snapshot.Shoot.Pods)))
		for _, pod := range s.Shoot.Pods {
			if strings.HasPrefix(pod.Name, "flood-") {
				Expect(pod.Labels).To(HaveKeyWithValue("app", "frontend"))
				Expect(len(pod.Labels)).To(BeNumerically("<", 41))
			}
		}
		Expect(s.Missing).To(ContainElement(HaveField("What()", "labels, annotations or messages in shoot/pods.json")))
	})

	It("should cut no message within a log, which are lines of JSON", func() {
		b := exampleBundle()
		log := `{"level":"info","message":"` + noise(200) + `"}` + "\n" + `{"level":"error","message":"the disk is full"}` + "\n"
		b.AddLog("seed/logs/a.log", []byte(log))
		for i := range 500 {
			b.Snapshot.Shoot.Pods = append(b.Snapshot.Shoot.Pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint("flood-", i), Labels: map[string]string{"x": noise(200)}}})
		}
		var out bytes.Buffer
		size, err := b.WriteTo(&out, 170<<10)
		Expect(err).NotTo(HaveOccurred())
		Expect(size.LeftOut).To(ConsistOf("labels, annotations or messages in shoot/pods.json"))
		files, _ := unpacked(out.Bytes())
		Expect(files).To(HaveKeyWithValue("seed/logs/a.log", log))
	})

	It("should tell who reads it the same of what could not be had", func() {
		b := exampleBundle()
		b.Snapshot.Missing = []observed.Missing{
			{Thing: observed.WhatNodeEvents, Reason: "forbidden"},
			{Thing: "log of containerd", Reason: "forbidden"},
			{Thing: observed.WhatPods, Partial: true, Reason: "there are more than the 20"},
		}
		archive := written(b, DefaultMaxSize)
		s, err := Read(bytes.NewReader(archive))
		Expect(err).NotTo(HaveOccurred())
		Expect(s.Missing).To(Equal(b.Snapshot.Missing))
		Expect(s.Unknown(observed.WhatPods)).To(ConsistOf(b.Snapshot.Missing[2]))
		Expect(s.Unknown(observed.WhatNode)).To(BeEmpty())
		s.Missing[0].Thing = observed.WhatShoot
		Expect(s.Unknown(observed.WhatNode)).To(ConsistOf(s.Missing[0]), "nor is anything else of the shoot")
		files, _ := unpacked(archive)
		Expect(files["index.md"]).To(And(ContainSubstring("- Events of the node: forbidden"), ContainSubstring("- log of containerd: forbidden"), ContainSubstring("- the rest of pods of the node: there are")))
	})

	It("should have an index if there is place for nothing else, and say how much there was", func() {
		b := exampleBundle()
		whole := written(b, DefaultMaxSize)
		archive := whole
		for size := len(whole) - 1; ; size -= 50 {
			var out bytes.Buffer
			if _, err := b.WriteTo(&out, int64(size)); err != nil {
				break
			}
			archive = out.Bytes()
		}
		_, names := unpacked(archive)
		Expect(names).To(Equal([]string{"manifest.json", "index.md"}))
		s, err := Read(bytes.NewReader(archive))
		Expect(err).NotTo(HaveOccurred())
		for _, what := range []observed.Thing{
			observed.WhatNode, observed.WhatPods, observed.WhatBudgets, observed.WhatNodes, observed.WhatOtherMachines,
			observed.WhatMachines, observed.WhatMaintenances, observed.WhatNodeEvents, observed.WhatMachineEvents,
		} {
			Expect(s.Unknown(what)).NotTo(BeEmpty(), what.Text()+": who looks for it would take it for not being there")
		}
		files, _ := unpacked(written(b, int64(len(whole)-1)))
		Expect(files["index.md"]).To(ContainSubstring("Pods on the node: 1. Volumes attached to it: 1."))
		Expect(len(Timeline(&b.Snapshot, "node-1", "m-1"))).To(BeNumerically("<", 300))
	})

	It("should tell the last moments of a flood, and those of all else", func() {
		b := exampleBundle()
		all := len(Timeline(&b.Snapshot, "node-1", "m-1"))
		for i := range 1000 {
			b.Snapshot.Shoot.Events = append(b.Snapshot.Shoot.Events, event("default", fmt.Sprint("flood-", i), "Node", "node-1", "Flood", fmt.Sprint(i), 100+i))
		}
		moments := Timeline(&b.Snapshot, "node-1", "m-1")
		Expect(moments).To(HaveLen(all - 2 + 300)) // two Events came before it
		Expect(moments).To(ContainElement(HaveField("Text", "Flood: 700 (702 earlier moments of the Events of the node and its maintenances are left out.)")))
		Expect(moments).To(ContainElement(HaveField("Step", "joined")))
	})
})

// packed returns an archive of files in order.
func packed(headers []*tar.Header, data ...string) []byte {
	GinkgoHelper()
	var out bytes.Buffer
	zipped := gzip.NewWriter(&out)
	tarred := tar.NewWriter(zipped)
	for i, header := range headers {
		if header.Typeflag == 0 {
			header.Typeflag = tar.TypeReg
		}
		if header.Typeflag == tar.TypeReg && header.Size == 0 {
			header.Size = int64(len(data[i]))
		}
		Expect(tarred.WriteHeader(header)).To(Succeed())
		if header.Typeflag == tar.TypeReg {
			_, err := io.WriteString(tarred, data[i])
			Expect(err).NotTo(HaveOccurred())
		}
	}
	_ = tarred.Close() // some of them are not whole
	Expect(zipped.Close()).To(Succeed())
	return out.Bytes()
}

var _ = Describe("#Read of what is hostile", func() {
	refused := func(archive []byte, why string) {
		GinkgoHelper()
		_, err := Read(bytes.NewReader(archive))
		Expect(err).To(MatchError(ContainSubstring(why)))
	}
	// changed returns a bundle of which one file was changed after the manifest was written.
	changed := func(change func(files map[string]string)) []byte {
		GinkgoHelper()
		files, names := unpacked(written(exampleBundle(), DefaultMaxSize))
		change(files)
		var (
			headers []*tar.Header
			data    []string
		)
		for _, name := range names {
			if text, ok := files[name]; ok {
				headers, data = append(headers, &tar.Header{Name: name}), append(data, text)
				delete(files, name)
			}
		}
		for name, text := range files {
			headers, data = append(headers, &tar.Header{Name: name}), append(data, text)
		}
		return packed(headers, data...)
	}

	It("should take what was only packed anew", func() {
		_, err := Read(bytes.NewReader(changed(func(map[string]string) {})))
		Expect(err).NotTo(HaveOccurred())
	})

	DescribeTable("paths", func(name string) {
		refused(packed([]*tar.Header{{Name: name}}, "x"), "points outside of the bundle")
	},
		Entry("up", "../evil"), Entry("up and in", "shoot/../../evil"), Entry("absolute", "/etc/passwd"), Entry("not clean", "shoot//nodes.json"),
		Entry("backslashes", `..\evil`), Entry("the cursor", "\x1b[2J"), Entry("here", "."), Entry("long", strings.Repeat("x", 600)),
	)

	It("should refuse links, folders, doubles, and too many", func() {
		refused(packed([]*tar.Header{{Name: "a", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}}, ""), "a is not a regular file")
		refused(packed([]*tar.Header{{Name: "a", Typeflag: tar.TypeLink, Linkname: "b"}}, ""), "a is not a regular file")
		refused(packed([]*tar.Header{{Name: "a"}, {Name: "a"}}, "1", "2"), "a exists twice")
		var headers []*tar.Header
		for i := range 1001 {
			headers = append(headers, &tar.Header{Name: fmt.Sprint(i)})
		}
		refused(packed(headers, make([]string, 1001)...), "more than 1000 files")
	})

	It("should refuse what is huge", func() {
		refused(packed([]*tar.Header{{Name: "a", Size: 1 << 40}}, "x"), "more than 134217728 bytes")
		refused(packed([]*tar.Header{{Name: "manifest.json"}}, strings.Repeat(" ", 1<<20+1)), "manifest.json has 1048577 bytes, more than 1048576")
		zeros := strings.Repeat("\x00", 100<<20)
		refused(packed([]*tar.Header{{Name: "a"}, {Name: "b"}}, zeros, zeros), "more than 134217728 bytes")
		var out bytes.Buffer
		zipped := gzip.NewWriter(&out)
		for range 2 {
			_, err := io.WriteString(zipped, zeros)
			Expect(err).NotTo(HaveOccurred())
		}
		Expect(zipped.Close()).To(Succeed())
		refused(out.Bytes(), "more than 134217728 bytes")
	})

	It("should refuse what is larger than it looks", func() {
		// No writer of archives writes such records, unless it does not know them.
		records := map[string]string{"GNX.sparse.major": "1", "GNX.sparse.minor": "0", "GNX.sparse.name": "a", "GNX.sparse.realsize": "100000000"}
		sparse := packed([]*tar.Header{{Name: "a", PAXRecords: records, Format: tar.FormatPAX}}, "0\n"+strings.Repeat("\x00", 510))
		zipped, err := gzip.NewReader(bytes.NewReader(sparse))
		Expect(err).NotTo(HaveOccurred())
		data, err := io.ReadAll(zipped)
		Expect(err).NotTo(HaveOccurred())
		var out bytes.Buffer
		writer := gzip.NewWriter(&out)
		_, err = writer.Write(bytes.ReplaceAll(data, []byte("GNX"), []byte("GNU")))
		Expect(err).NotTo(HaveOccurred())
		Expect(writer.Close()).To(Succeed())
		refused(out.Bytes(), "a is not a regular file")

		one := func(name, text string) []byte {
			manifest := fmt.Sprintf(`{"format":1,"files":[{"path":%q,"size":%d,"sha256":"%x"}]}`, name, len(text), sha256.Sum256([]byte(text)))
			return packed([]*tar.Header{{Name: "manifest.json"}, {Name: name}}, manifest, text)
		}
		refused(one("shoot/pods.json", `{"items":[`+strings.Repeat("{},", 200000)+`{}]}`), "shoot/pods.json cannot be read: it has 200001 objects, more than 10000")
		refused(one("shoot/pods.json", `{"items":[{"spec":{"containers":[`+strings.Repeat("null,", 2000000)+`null]}}]}`), "fields and items, more than 1048576")
		_, err = Read(bytes.NewReader(one("shoot/pods.json", `{"items":[{"metadata":{"name":"`+strings.Repeat(`\\\",{[`, 1000000)+`"}}]}`)))
		Expect(err).NotTo(HaveOccurred())
	})

	It("should refuse what is not what the manifest says", func() {
		refused([]byte("x"), "it is not a gzip file")
		whole := written(exampleBundle(), DefaultMaxSize)
		refused(whole[:len(whole)/2], "unexpected EOF")
		refused(packed(nil), "it has no manifest.json")
		refused(changed(func(f map[string]string) { f["manifest.json"] = "{" }), "manifest.json cannot be read")
		refused(changed(func(f map[string]string) { f["manifest.json"] = `{"format":3,"tool":"kubectl-preserve v9"}` }), "format 3 of manifest.json is not known, only 1 to 2. Use the version that wrote it: kubectl-preserve v9")
		refused(changed(func(f map[string]string) { f["shoot/nodes.json"] += " " }), "shoot/nodes.json is not what manifest.json says: its sha256 is")
		refused(changed(func(f map[string]string) { delete(f, "shoot/nodes.json") }), "shoot/nodes.json is missing")
		refused(changed(func(f map[string]string) { f["shoot/more.json"] = "{}" }), "shoot/more.json is not listed in manifest.json")
		refused(changed(func(f map[string]string) {
			f["manifest.json"] = regexp.MustCompile(`(?s)("files": \[)(.*?\})`).ReplaceAllString(f["manifest.json"], "$1$2,$2")
		}), "index.md is listed twice in manifest.json")
		text := `{"items":"x"}`
		manifest := fmt.Sprintf(`{"format":1,"files":[{"path":"shoot/nodes.json","size":%d,"sha256":"%x"}]}`, len(text), sha256.Sum256([]byte(text)))
		refused(packed([]*tar.Header{{Name: "manifest.json"}, {Name: "shoot/nodes.json"}}, manifest, text), "shoot/nodes.json cannot be read")
	})
})
