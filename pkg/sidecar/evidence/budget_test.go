// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"context"
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// incompressible returns a pod with so many bytes of labels that nothing compresses.
func incompressible(random *rand.ChaCha8, name string, size int) corev1.Pod {
	pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{}}}
	data := make([]byte, 90)
	for written := 0; written < size; written += 120 {
		_, _ = random.Read(data)
		text := base64.RawURLEncoding.EncodeToString(data)
		pod.Labels["x"+text[:58]+"x"] = "x" + text[60:] + "x"
	}
	return pod
}

// hostile has the Reconciler gather bundles with so many bytes of labels and of names that nothing compresses.
func (e *environment) hostile(labels, names int) {
	random := rand.NewChaCha8([32]byte{1})
	e.controller.Collect = func(_ context.Context, machine string) (*evidence.Bundle, error) {
		e.gathered++
		pods := []corev1.Pod{incompressible(random, "hostile", labels)}
		for written := 0; written < names; written += 120 {
			data := make([]byte, 90)
			_, _ = random.Read(data)
			pods = append(pods, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: base64.RawURLEncoding.EncodeToString(data)}})
		}
		return &evidence.Bundle{Tool: "test", Machine: machine, Node: machine, Snapshot: observed.Snapshot{
			Time:  e.clock.Now(),
			Shoot: observed.Shoot{Pods: pods},
			Seed:  &observed.Seed{Namespace: Namespace, Machines: []machinev1alpha1.Machine{*Machine(machine)}},
		}}, nil
	}
}

// bytesStored returns how many bytes etcd has of the ConfigMaps of the control plane.
func (e *environment) bytesStored(ctx context.Context) (bytes int) {
	GinkgoHelper()
	for _, configMap := range e.configMaps(ctx) {
		bytes += configMap.Size()
	}
	return bytes
}

var _ = Describe("Budget", func() {
	const budget = 1 << 20
	ctx := context.Background()

	DescribeTable("bounds what a shoot that does not compress has in etcd, also while more is stored, and gathers nothing in a loop", func(labels, names int) {
		var objects []client.Object
		for i := range 24 {
			objects = append(objects, Machine(fmt.Sprintf("m-%d", i), Phase(machinev1alpha1.MachineFailed, Start.Add(time.Duration(i)*time.Second)), kept))
		}
		e := newEnvironment(objects...)
		e.controller.Budget = budget
		e.hostile(labels, names)
		most := 0
		for i := range 24 {
			_, err := e.reconcile(ctx, fmt.Sprintf("m-%d", i))
			Expect(err).NotTo(HaveOccurred())
			most = max(most, e.bytesStored(ctx))
		}
		_, _ = fmt.Fprintf(GinkgoWriter, "%d bundles of %d KiB, %d KiB at most\n", len(e.configMaps(ctx)), e.bytesStored(ctx)>>10, most>>10)
		Expect(most).To(BeNumerically("<=", budget))
		Expect(len(e.configMaps(ctx))).To(BeNumerically(">=", 12), "they are made smaller before others have to go")

		gathered := e.gathered
		for range 3 {
			for i := range 24 {
				_, err := e.reconcile(ctx, fmt.Sprintf("m-%d", i))
				Expect(err).NotTo(HaveOccurred())
			}
		}
		Expect(e.gathered).To(Equal(gathered), "what was evicted is not gathered again")
	},
		Entry("labels, which are cut", 150<<10, 0),
		Entry("names of pods as long as they fit, so that others have to go", 0, 55<<10),
	)

	It("should obey the cap of the extension at once, whatever its budget is", func() {
		e := newEnvironment(Machine("m", failed, kept), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: "machine-preservation-evidence-cap",
			Labels: map[string]string{evidenceKey: "cap"}, Annotations: map[string]string{prefix + "evidence-cap": "70000"},
		}}, &corev1.ConfigMap{ObjectMeta: StoredEvidence("gone", Start, now.Add(time.Hour)).ObjectMeta})
		e.hostile(100<<10, 0)
		Expect(e.reconcile(ctx, "m")).To(BeZero())
		Expect(e.configMaps(ctx)).NotTo(HaveKey(StoredEvidenceName("gone")), "it does not say its size, and counts as the largest")
		configMap := e.configMaps(ctx)["machine-preservation-evidence-01"]
		Expect(configMap.Size()).To(And(BeNumerically(">", 0), BeNumerically("<=", 70000)))
		Expect(e.configMaps(ctx)).To(HaveKey("machine-preservation-evidence-cap"), "it is not evidence")
	})

	DescribeTable("should not take a cap that nobody can read for its budget", func(value string) {
		e := newEnvironment(Machine("m", failed, kept), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: "machine-preservation-evidence-cap",
			Labels: map[string]string{evidenceKey: "cap"}, Annotations: map[string]string{prefix + "evidence-cap": value},
		}}, &corev1.ConfigMap{ObjectMeta: StoredEvidence("gone", Start, now.Add(time.Hour)).ObjectMeta})
		_, err := e.reconcile(ctx, "m")
		Expect(err).NotTo(HaveOccurred())
		Expect(e.configMaps(ctx)).To(And(HaveKey(StoredEvidenceName("gone")), HaveKey("machine-preservation-evidence-01")))
	},
		Entry("no number", "x"), Entry("less than one bundle may have", "1000"),
	)

	It("should store nothing for now, and not fail, where no bundle fits", func() {
		e := newEnvironment(Machine("m", failed, kept))
		e.controller.Budget = 4 << 10
		Expect(e.reconcile(ctx, "m")).To(Equal(5 * time.Minute))
		Expect(e.configMaps(ctx)).To(BeEmpty())
		Expect(e.told()).To(ConsistOf(HavePrefix("Warning EvidenceFailed The evidence of the failure cannot be stored now, and this is tried again: ")))
		Expect(counted("failed")).To(BeZero())
		Expect(e.evidence(ctx)).NotTo(Equal(failure), "none is stored")
	})

	It("should say that the budget of the seed is why evidence goes early", func() {
		e := newEnvironment(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: Namespace, Name: "machine-preservation-evidence-cap",
			Labels: map[string]string{evidenceKey: "cap"}, Annotations: map[string]string{prefix + "evidence-cap": "102400"},
		}},
			&corev1.ConfigMap{ObjectMeta: StoredEvidence("gone", Start, now.Add(time.Hour)).ObjectMeta},
			&corev1.ConfigMap{ObjectMeta: StoredEvidence("later", Start, now.Add(2*time.Hour)).ObjectMeta},
		)
		Expect(e.reconcile(ctx, "")).To(Equal(2 * time.Hour))
		Expect(e.told()).To(Equal([]string{"Warning EvidenceEvicted Evidence of machine gone was deleted early, because this control plane may keep 48 bundles and 100 KiB. It may not keep more, because the seed's budget for evidence is used up."}))
	})
})
