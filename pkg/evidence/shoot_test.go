// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"bytes"
	"errors"
	"maps"
	"slices"
	"strings"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/controller/hosts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/quarantine"
)

var _ = Describe("#WriteForShoot", func() {
	const namespace = "shoot--secret--name"
	forOperators := []string{evidence.EventIncomplete, evidence.EventFailed, quarantine.EventQuarantined, quarantine.EventNotQuarantined, hosts.EventReasonReleased}
	stored := func() *Bundle {
		b := exampleBundle()
		machine := machinev1alpha1.Machine{
			ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: namespace + "-pool-z1-abcde", Annotations: map[string]string{"metal3.io/BareMetalHost": namespace + "/host-7"}},
			Status:     machinev1alpha1.MachineStatus{LastOperation: machinev1alpha1.LastOperation{Description: "no quota in namespace " + namespace + ", see host-7"}},
		}
		e := event(namespace, "m.1", "Machine", machine.Name, "Failed", "it is in "+namespace, 30)
		e.ReportingInstance, e.DeprecatedSource = "machine-controller-manager-77-xyz", corev1.EventSource{Host: "node-of-the-seed"}
		told := append(b.Snapshot.Seed.Events, e)
		for _, reason := range forOperators {
			told = append(told, event(namespace, "m."+reason, "Machine", machine.Name, reason, `host rack-9: Get "https://kube-apiserver/": dial tcp 100.64.3.7:443: failed 7 times`, 30))
		}
		b.Machine = machine.Name
		b.Snapshot.Seed = &observed.Seed{
			Namespace: namespace, Machines: []machinev1alpha1.Machine{machine}, Events: told,
			Controller: &observed.Controller{Injected: true, Args: []string{"--seed-name=the-seed"}},
			Hosts:      []unstructured.Unstructured{{Object: map[string]any{"apiVersion": "metal3.io/v1alpha1", "kind": "BareMetalHost", "metadata": map[string]any{"name": "rack-9"}}}},
		}
		b.Snapshot.Missing = []observed.Missing{
			{Thing: observed.WhatPods, Reason: `Get "https://kube-apiserver/api/v1/pods": dial tcp 100.64.3.7:443: connect: connection refused`},
			{Thing: observed.WhatBudgets, Reason: "no answer within 10s"},
			{Thing: observed.WhatHost, Reason: "there is no Server rack-9"},
		}
		b.AddLog("node/logs/kubelet.log", []byte("of the node\n"))
		b.AddLog("seed/logs/machine-controller-manager.log", []byte("of the control plane\n"))
		return b
	}
	written := func(b *Bundle, maxSize int64) *bytes.Buffer {
		GinkgoHelper()
		var archive bytes.Buffer
		_, err := b.WriteTo(&archive, maxSize)
		Expect(err).NotTo(HaveOccurred())
		return &archive
	}

	filesOf := func(archive []byte) map[string]string {
		GinkgoHelper()
		files, _ := unpacked(archive)
		return files
	}

	It("should leave in the seed what is only the seed's, and keep all else", func() {
		before := written(stored(), 1<<20)
		inSeed := filesOf(before.Bytes())
		var after bytes.Buffer
		size, err := WriteForShoot(&after, before, 1<<20)
		Expect(err).NotTo(HaveOccurred())
		Expect(size.Bytes).To(Equal(after.Len()))

		files := filesOf(after.Bytes())
		want := slices.DeleteFunc(slices.Sorted(maps.Keys(inSeed)), func(path string) bool {
			return path == "seed/controller.json" || path == "seed/hosts.json" || path == "seed/logs/machine-controller-manager.log"
		})
		Expect(slices.Sorted(maps.Keys(files))).To(Equal(want))
		Expect(want).To(ContainElements("node/logs/kubelet.log", "seed/machines.json", "seed/events.json", "shoot/nodes.json", "shoot/pods.json"))
		for path, data := range files {
			if strings.HasPrefix(path, "shoot/") || strings.HasPrefix(path, "node/") {
				Expect(data).To(Equal(inSeed[path]), path)
			}
			text := strings.ReplaceAll(data, namespace+"-pool", "")
			for _, word := range []string{namespace, "the-seed", "node-of-the-seed", "machine-controller-manager-77", "100.64", "kube-apiserver", "of the control plane", "rack-9", "failed 7 times"} {
				Expect(text).NotTo(ContainSubstring(word), path)
			}
		}
		Expect(files["seed/machines.json"]).To(And(ContainSubstring(`"namespace": "control-plane"`), ContainSubstring("control-plane/host-7"), ContainSubstring("no quota in namespace control-plane, see")))

		read, err := Read(&after)
		Expect(err).NotTo(HaveOccurred())
		Expect(read.Seed.Machines).To(HaveLen(1))
		Expect(read.Seed.Events).To(HaveLen(len(stored().Snapshot.Seed.Events) - len(forOperators)))
		for _, e := range read.Seed.Events {
			Expect(forOperators).NotTo(ContainElement(e.Reason))
		}
		Expect(read.Missing).To(ConsistOf(
			observed.Missing{Thing: observed.WhatPods, Reason: "it could not be asked"},
			observed.Missing{Thing: observed.WhatBudgets, Reason: "no answer within 10s"},
			observed.Missing{Thing: observed.WhatMachineEvents, Partial: true, Reason: "those for operators stay in the seed"},
			observed.Missing{Thing: observed.WhatController, Reason: "they stay in the seed"},
			observed.Missing{Thing: observed.WhatHost, Reason: "it could not be asked"},
			observed.Missing{Thing: observed.WhatHost, Reason: "it stays in the seed"},
		))
	})

	It("should not have as empty what there was no place for, and be the same bytes each time", func() {
		small := written(stored(), 3000)
		Expect(filesOf(small.Bytes())).NotTo(HaveKey("shoot/pods.json"))
		var one, two bytes.Buffer
		_, err := WriteForShoot(&one, bytes.NewReader(small.Bytes()), 1<<20)
		Expect(err).NotTo(HaveOccurred())
		Expect(filesOf(one.Bytes())).NotTo(HaveKey("shoot/pods.json"), "although there would be a place for it here")
		Expect(one.Len()).To(BeNumerically("<=", small.Len()))
		_, err = WriteForShoot(&two, bytes.NewReader(small.Bytes()), 1<<20)
		Expect(err).NotTo(HaveOccurred())
		Expect(one.Bytes()).To(Equal(two.Bytes()))
	})

	It("should do without the seed where that could not be asked", func() {
		b := stored()
		b.Snapshot.Seed = nil
		var after bytes.Buffer
		_, err := WriteForShoot(&after, written(b, 1<<20), 1<<20)
		Expect(err).NotTo(HaveOccurred())
		read, err := Read(&after)
		Expect(err).NotTo(HaveOccurred())
		Expect(read.Seed).To(BeNil())
	})

	It("should say what does not fit, and what is no bundle", func() {
		_, err := WriteForShoot(&bytes.Buffer{}, written(stored(), 1<<20), 100)
		Expect(errors.Is(err, ErrTooLarge)).To(BeTrue(), "%v", err)
		_, err = WriteForShoot(&bytes.Buffer{}, strings.NewReader("x"), 1<<20)
		Expect(err).To(MatchError(HavePrefix("this is not a bundle of evidence")))
	})
})
