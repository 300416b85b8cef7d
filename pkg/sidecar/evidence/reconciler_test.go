// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/pace"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	prefix      = "machine-preservation.extensions.gardener.cloud/"
	evidenceKey = prefix + "evidence"
)

var (
	now     = Start.Add(time.Hour)
	failed  = Phase(machinev1alpha1.MachineFailed, Start.Add(time.Minute))
	kept    = Preserved("Failed:Preserved", "auto", now.Add(time.Hour))
	failure = stamp(Start.Add(time.Minute))
)

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// environment is a Reconciler of a control plane.
type environment struct {
	seed     client.WithWatch
	clock    *testclock.FakePassiveClock
	recorder *events.FakeRecorder
	// gathered counts how often evidence was gathered, and missing is what could not be had.
	gathered int
	missing  []observed.Missing
	// noSeed says that the seed could not be asked, noMachine that nothing could, and during happens while evidence is gathered.
	noSeed, noMachine bool
	during            func()
	// denied are the verbs that the API server refuses on ConfigMaps, and crashed says that no Machine can be written.
	denied     []string
	crashed    bool
	controller *Reconciler
}

func newEnvironment(objects ...client.Object) *environment {
	GinkgoHelper()
	e := &environment{clock: testclock.NewFakePassiveClock(now), recorder: events.NewFakeRecorder(100)}
	refuse := func(verb string, obj client.Object) error {
		if _, ok := obj.(*machinev1alpha1.Machine); ok && e.crashed {
			return errors.New("crashed")
		}
		if _, ok := obj.(*corev1.ConfigMap); ok && slices.Contains(e.denied, verb) {
			return apierrors.NewForbidden(corev1.Resource("configmaps"), obj.GetName(), errors.New("denied"))
		}
		return nil
	}
	e.seed = interceptor.NewClient(fakeclient.NewClientBuilder().WithScheme(Scheme()).WithObjects(objects...).Build(), interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return cmpError(refuse("create", obj), func() error { return c.Create(ctx, obj, opts...) })
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return cmpError(refuse("patch", obj), func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		Delete: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return cmpError(refuse("delete", obj), func() error { return c.Delete(ctx, obj, opts...) })
		},
	})
	e.restart()
	Bundles.Reset()
	return e
}

func cmpError(err error, otherwise func() error) error {
	if err != nil {
		return err
	}
	return otherwise()
}

// restart throws the Reconciler away and makes a new one.
func (e *environment) restart() {
	e.controller = &Reconciler{
		Source: e.seed, Store: e.seed, Retention: 168 * time.Hour, Budget: 48 << 20, Clock: e.clock, Leading: &pace.Leading{}, Recorder: e.recorder,
		Collect: func(ctx context.Context, machine string) (*evidence.Bundle, error) {
			e.gathered++
			deadline, ok := ctx.Deadline()
			Expect(ok).To(BeTrue())
			Expect(time.Until(deadline)).To(BeNumerically("<=", 50*time.Second))
			if e.during != nil {
				e.during()
			}
			if e.noMachine {
				return nil, errors.New("nothing can be learned")
			}
			found := Machine(machine)
			bundle := &evidence.Bundle{Tool: "test", Machine: machine, Node: machine, Snapshot: observed.Snapshot{
				Time:    e.clock.Now(),
				Seed:    &observed.Seed{Namespace: Namespace, Machines: []machinev1alpha1.Machine{*found}},
				Missing: e.missing,
			}}
			if e.noSeed {
				bundle.Snapshot.Seed = nil
			}
			return bundle, nil
		},
	}
}

func (e *environment) reconcile(ctx context.Context, name string) (time.Duration, error) {
	result, err := e.controller.Reconcile(ctx, reconcile.Request{NamespacedName: client.ObjectKey{Namespace: Namespace, Name: name}})
	return result.RequeueAfter, err
}

// configMaps returns those of the control plane by name.
func (e *environment) configMaps(ctx context.Context) map[string]corev1.ConfigMap {
	GinkgoHelper()
	list := &corev1.ConfigMapList{}
	Expect(e.seed.List(ctx, list)).To(Succeed())
	result := map[string]corev1.ConfigMap{}
	for _, item := range list.Items {
		result[item.Name] = item
	}
	return result
}

func (e *environment) machine(ctx context.Context) *machinev1alpha1.Machine {
	GinkgoHelper()
	machine := &machinev1alpha1.Machine{}
	Expect(e.seed.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: "m"}, machine)).To(Succeed())
	return machine
}

// evidence returns what the machine says of its evidence.
func (e *environment) evidence(ctx context.Context) string {
	GinkgoHelper()
	return e.machine(ctx).Annotations[evidenceKey]
}

// release removes what a preservation has written.
func (e *environment) release(ctx context.Context) {
	GinkgoHelper()
	machine := e.machine(ctx)
	machine.Annotations = nil
	Expect(e.seed.Update(ctx, machine)).To(Succeed())
}

func (e *environment) told() []string {
	var told []string
	for len(e.recorder.Events) > 0 {
		told = append(told, <-e.recorder.Events)
	}
	return told
}

func counted(outcome string) float64 { return testutil.ToFloat64(Bundles.WithLabelValues(outcome)) }

var _ = Describe("Reconciler", func() {
	const name = "machine-preservation-evidence-01"
	var ctx = context.Background()

	It("should store what is known of a failed machine once, and say so on it", func() {
		e := newEnvironment(Machine("m", failed, kept))
		Expect(e.reconcile(ctx, "m")).To(BeZero())

		configMap := e.configMaps(ctx)[name]
		Expect(configMap.Namespace).To(Equal(Namespace))
		Expect(configMap.Labels).To(Equal(map[string]string{evidenceKey: "true", prefix + "evidence-machine": "m"}))
		Expect(configMap.Annotations).To(Equal(map[string]string{
			prefix + "evidence-machine": "m", prefix + "evidence-node": "m", prefix + "evidence-failed-since": failure,
			prefix + "evidence-bytes": strconv.Itoa(len(configMap.BinaryData["bundle.tar.gz"])),
		}))
		Expect(configMap.Immutable).To(HaveValue(BeTrue()))
		Expect(configMap.BinaryData).To(HaveLen(1))
		Expect(len(configMap.BinaryData["bundle.tar.gz"])).To(BeNumerically("<=", 900<<10))
		read, err := evidence.Read(bytes.NewReader(configMap.BinaryData["bundle.tar.gz"]))
		Expect(err).NotTo(HaveOccurred())
		Expect(read.Seed.Machines).To(HaveLen(1))

		machine := &machinev1alpha1.Machine{}
		Expect(e.seed.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: "m"}, machine)).To(Succeed())
		Expect(machine.Annotations).To(HaveKeyWithValue(evidenceKey, failure))
		Expect(e.told()).To(ConsistOf(HavePrefix("Normal EvidenceStored The evidence of the failure is stored in ConfigMap " + name)))
		Expect(counted("stored")).To(Equal(1.0))

		Expect(e.reconcile(ctx, "m")).To(BeZero())
		Expect(e.gathered).To(Equal(1))
		Expect(e.told()).To(BeEmpty())
	})

	It("should not gather once more what was stored before a crash", func() {
		e := newEnvironment(Machine("m", failed, kept))
		e.crashed = true
		_, err := e.reconcile(ctx, "m")
		Expect(err).To(MatchError(ContainSubstring("crashed")))
		e.crashed = false
		e.restart()
		Expect(e.reconcile(ctx, "m")).To(BeZero())
		Expect(e.gathered).To(Equal(1))
		machine := &machinev1alpha1.Machine{}
		Expect(e.seed.Get(ctx, client.ObjectKey{Namespace: Namespace, Name: "m"}, machine)).To(Succeed())
		Expect(machine.Annotations).To(HaveKey(evidenceKey))
	})

	It("should replace the evidence of a failure before", func() {
		former := &corev1.ConfigMap{ObjectMeta: StoredEvidence("m", Start).ObjectMeta}
		e := newEnvironment(Machine("m", failed, kept, Annotation(evidenceKey, stamp(Start))), former)
		Expect(e.reconcile(ctx, "m")).To(BeZero())
		Expect(e.configMaps(ctx)).To(HaveLen(1))
		Expect(e.configMaps(ctx)[name].Annotations).To(HaveKeyWithValue(retention.AnnotationStoredFailedSince, failure))
		Expect(e.configMaps(ctx)[name].BinaryData).To(HaveLen(1))
	})

	It("should keep the evidence of a failure before until that of the next one is there", func() {
		former := &corev1.ConfigMap{ObjectMeta: StoredEvidence("m", Start).ObjectMeta}
		e := newEnvironment(Machine("m", failed, kept, Annotation(evidenceKey, stamp(Start))), former)
		e.denied = []string{"create"}
		_, err := e.reconcile(ctx, "m")
		Expect(err).To(HaveOccurred())
		Expect(e.configMaps(ctx)).To(HaveKey(former.Name))

		e.denied = []string{"delete"}
		_, err = e.reconcile(ctx, "m")
		Expect(err).To(HaveOccurred())
		Expect(e.configMaps(ctx)).To(And(HaveLen(2), HaveKey(name)))
		e.denied = nil
		Expect(e.reconcile(ctx, "")).To(BeZero())
		Expect(e.configMaps(ctx)).To(And(HaveLen(1), HaveKey(name)))
		Expect(e.gathered).To(Equal(2))
	})

	DescribeTable("should gather again, while the machine is kept, what was stored without the shoot or the seed", func(edit func(*environment)) {
		e := newEnvironment(Machine("m", failed, kept))
		edit(e)
		Expect(e.reconcile(ctx, "m")).To(Equal(5 * time.Minute))
		Expect(e.told()).To(ConsistOf(HavePrefix("Warning EvidenceIncomplete")))
		Expect(e.evidence(ctx)).To(Equal(failure), "a power cycle does not wait any longer")
		first := e.configMaps(ctx)[name]

		e.clock.SetTime(now.Add(time.Minute))
		e.restart()
		Expect(e.reconcile(ctx, "m")).To(Equal(4 * time.Minute))
		Expect(e.gathered).To(Equal(1))

		e.clock.SetTime(now.Add(5 * time.Minute))
		Expect(e.reconcile(ctx, "m")).To(Equal(5*time.Minute), "they are still away")
		Expect(e.gathered).To(Equal(2))
		Expect(e.configMaps(ctx)).To(Equal(map[string]corev1.ConfigMap{name: first}), "what is known from earlier is worth more")
		Expect(e.told()).To(BeEmpty())
		e.noMachine = true
		Expect(e.reconcile(ctx, "m")).To(Equal(5 * time.Minute))
		Expect(e.told()).To(BeEmpty())

		e.missing, e.noSeed, e.noMachine = nil, false, false
		Expect(e.reconcile(ctx, "m")).To(BeZero())
		Expect(e.told()).To(ConsistOf(HavePrefix("Normal EvidenceStored")))
		Expect(e.configMaps(ctx)).To(And(HaveLen(2), HaveKeyWithValue(name, first), HaveKey(retention.StoredNames()[1])), "the Events of the failure may be gone by now")
		Expect(e.evidence(ctx)).To(Equal(failure))
		Expect(e.reconcile(ctx, "m")).To(BeZero())
		Expect(e.gathered).To(Equal(4))
	},
		Entry("no answer of the shoot", func(e *environment) {
			e.missing = []observed.Missing{{Thing: observed.WhatShoot, Reason: "no answer within 10s"}}
		}),
		Entry("errors of the shoot", func(e *environment) {
			e.missing = []observed.Missing{{Thing: observed.WhatPods, Reason: "etcdserver: request timed out"}}
		}),
		Entry("errors of the shoot for the node", func(e *environment) {
			e.missing = []observed.Missing{{Thing: observed.WhatNode, Reason: "etcdserver: request timed out"}}
		}),
		Entry("errors of the shoot for its Events", func(e *environment) {
			e.missing = []observed.Missing{{Thing: observed.WhatNodeEvents, Reason: "etcdserver: request timed out"}}
		}),
		Entry("errors of the seed", func(e *environment) {
			e.missing = []observed.Missing{{Thing: observed.WhatMachineEvents, Reason: "no answer within 10s"}}
		}),
		Entry("no answer of the seed", func(e *environment) {
			e.noSeed, e.missing = true, []observed.Missing{{Thing: observed.WhatSeed, Reason: "no answer within 10s"}}
		}),
	)

	It("should gather what was deleted when evidence was disabled, and not what was evicted", func() {
		e := newEnvironment(Machine("m", failed, kept, Annotation(evidenceKey, failure)))
		Expect(e.reconcile(ctx, "m")).To(BeZero())
		Expect(e.configMaps(ctx)).To(HaveKey(name))

		objects := []client.Object{Machine("m", failed, kept, Annotation(evidenceKey, failure))}
		for _, s := range StoredEvidenceOfOthers(retention.MaxStored) {
			objects = append(objects, &corev1.ConfigMap{ObjectMeta: s.ObjectMeta})
		}
		e = newEnvironment(objects...)
		Expect(e.reconcile(ctx, "m")).To(BeZero())
		Expect(e.gathered).To(BeZero())
	})

	It("X9: should say on the machine since when evidence is gathered, once", func() {
		e := newEnvironment(Machine("m", failed, kept, Annotation(evidenceKey, stamp(Start))))
		e.during = func() {
			Expect(e.evidence(ctx)).To(Equal("gathering since " + stamp(now)))
			e.during = nil
		}
		e.denied = []string{"create"}
		_, err := e.reconcile(ctx, "m")
		Expect(err).To(HaveOccurred())
		e.clock.SetTime(now.Add(time.Minute))
		_, err = e.reconcile(ctx, "m")
		Expect(err).To(HaveOccurred())
		Expect(e.gathered).To(Equal(2))
		Expect(e.evidence(ctx)).To(Equal("gathering since " + stamp(now)))

		By("and anew where the process that gathered it was restarted")
		e.restart()
		e.clock.SetTime(now.Add(2 * time.Minute))
		_, err = e.reconcile(ctx, "m")
		Expect(err).To(HaveOccurred())
		Expect(e.evidence(ctx)).To(Equal("gathering since " + stamp(now.Add(2*time.Minute))))
	})

	It("T10: should leave no trace on a machine that is released while evidence is gathered", func() {
		e := newEnvironment(Machine("m", failed, kept))
		e.during = func() { e.release(ctx) }
		Expect(e.reconcile(ctx, "m")).To(BeZero())
		Expect(e.configMaps(ctx)).To(HaveKey(name), "it outlives the machine")
		Expect(e.evidence(ctx)).To(BeEmpty())
	})

	It("T10: should leave no trace on a machine whose release is not known yet", func() {
		e := newEnvironment(Machine("m", failed, kept))
		stale := e.machine(ctx)
		e.release(ctx)
		e.controller.Source = interceptor.NewClient(e.seed, interceptor.Funcs{Get: func(_ context.Context, _ client.WithWatch, _ client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
			stale.DeepCopyInto(obj.(*machinev1alpha1.Machine))
			return nil
		}})
		_, err := e.reconcile(ctx, "m")
		Expect(pace.OnlyConflicts(err)).To(BeTrue(), "it is no error to anybody: %v", err)
		Expect(e.evidence(ctx)).To(BeEmpty())
		Expect(e.gathered).To(BeZero())
	})

	It("should not touch a ConfigMap that has lost its label, and store evidence beside it", func() {
		lost := &corev1.ConfigMap{ObjectMeta: StoredEvidence("m", Start).ObjectMeta}
		lost.Name, lost.Labels = name, nil
		e := newEnvironment(Machine("m", failed, kept), lost)
		Expect(e.reconcile(ctx, "m")).To(BeZero())
		Expect(e.configMaps(ctx)[name].BinaryData).To(BeEmpty())
		Expect(e.configMaps(ctx)[retention.StoredNames()[1]].BinaryData).NotTo(BeEmpty())
	})

	It("should say why nothing is stored if all names are taken", func() {
		objects := []client.Object{Machine("m", failed, kept)}
		for _, name := range retention.StoredNames() {
			lost := &corev1.ConfigMap{}
			lost.Name, lost.Namespace = name, Namespace
			objects = append(objects, lost)
		}
		e := newEnvironment(objects...)
		_, err := e.reconcile(ctx, "m")
		Expect(err).To(MatchError(ContainSubstring("all 50 ConfigMaps for evidence exist, from machine-preservation-evidence-01 on")))
		Expect(e.told()).To(ConsistOf(HavePrefix("Warning EvidenceFailed The evidence of the failure could not be stored, and this is tried again: all ")))
		Expect(counted("failed")).To(Equal(1.0))
	})

	It("should do without the label for a machine whose name is too long for one", func() {
		long := strings.Repeat("m", 64)
		e := newEnvironment(Machine(long, failed, kept))
		Expect(e.reconcile(ctx, long)).To(BeZero())
		Expect(e.configMaps(ctx)[name].Labels).To(Equal(map[string]string{evidenceKey: "true"}))
		Expect(e.configMaps(ctx)[name].Annotations).To(HaveKeyWithValue(prefix+"evidence-machine", long))
	})

	It("should try again what could not be stored", func() {
		e := newEnvironment(Machine("m", failed, kept))
		e.denied = []string{"create"}
		_, err := e.reconcile(ctx, "m")
		Expect(err).To(HaveOccurred())
		e.denied = nil
		Expect(e.reconcile(ctx, "m")).To(BeZero())
		Expect(e.configMaps(ctx)).To(HaveKey(name))
	})

	It("should tell what could not be had", func() {
		e := newEnvironment(Machine("m", failed, kept))
		e.missing = []observed.Missing{{Thing: "node m", Reason: "it is gone"}, {Thing: observed.WhatPods, Partial: true, Reason: "there are more"}}
		Expect(e.reconcile(ctx, "m")).To(BeZero(), "more than that is not to be had later")
		Expect(e.told()).To(ConsistOf(And(HavePrefix("Warning EvidenceIncomplete"), ContainSubstring("It does not have: node m (it is gone)"), ContainSubstring("the rest of pods of the node (there are more)"))))
		Expect(counted("incomplete")).To(Equal(1.0))
	})

	It("should have nothing to do for machines that are gone or have not failed", func() {
		e := newEnvironment(Machine("m"))
		Expect(e.reconcile(ctx, "m")).To(BeZero())
		Expect(e.reconcile(ctx, "gone")).To(BeZero())
		Expect(e.gathered).To(BeZero())
	})

	Describe("what is stored", func() {
		It("should be deleted when its time after the machine is over, whatever happens in between", func() {
			machine := Machine("m", failed, kept)
			e := newEnvironment(machine)
			Expect(e.reconcile(ctx, "m")).To(BeZero())
			Expect(e.reconcile(ctx, "")).To(BeZero(), "the machine is there")
			Expect(e.seed.Delete(ctx, machine)).To(Succeed())

			Expect(e.reconcile(ctx, "")).To(Equal(168 * time.Hour))
			Expect(e.configMaps(ctx)[name].Annotations).To(HaveKeyWithValue(retention.AnnotationStoredExpires, stamp(now.Add(168*time.Hour))))
			Expect(e.configMaps(ctx)[name].BinaryData).NotTo(BeEmpty())
			e.clock.SetTime(now.Add(167 * time.Hour))
			e.restart()
			Expect(e.reconcile(ctx, "")).To(Equal(time.Hour))
			Expect(e.configMaps(ctx)).To(HaveKey(name))
			e.clock.SetTime(now.Add(168 * time.Hour))
			Expect(e.reconcile(ctx, "")).To(BeZero())
			Expect(e.configMaps(ctx)).To(BeEmpty())
		})

		It("should leave what is not ours", func() {
			other := &corev1.ConfigMap{}
			other.Name, other.Namespace = "other", Namespace
			elsewhere := &corev1.ConfigMap{ObjectMeta: StoredEvidence("gone", Start, Start).ObjectMeta}
			elsewhere.Namespace = "shoot--test--two"
			e := newEnvironment(other, elsewhere)
			Expect(e.reconcile(ctx, "")).To(BeZero())
			Expect(e.configMaps(ctx)).To(HaveLen(2))
		})

		It("should not become too much, and tell of what had to go", func() {
			objects := []client.Object{Machine("m", failed, kept)}
			for i := range retention.MaxStored {
				objects = append(objects, &corev1.ConfigMap{ObjectMeta: StoredEvidence(fmt.Sprintf("gone-%02d", i), Start, now.Add(time.Duration(i+1)*time.Hour)).ObjectMeta})
			}
			e := newEnvironment(objects...)
			Expect(e.reconcile(ctx, "m")).To(BeZero())
			Expect(e.reconcile(ctx, "")).To(Equal(2 * time.Hour))
			names := slices.Collect(maps.Keys(e.configMaps(ctx)))
			Expect(names).To(HaveLen(retention.MaxStored))
			Expect(names).To(ContainElement(name))
			Expect(names).NotTo(ContainElement(StoredEvidenceName("gone-00")))
			Expect(e.told()[1:]).To(Equal([]string{"Warning EvidenceEvicted Evidence of machine gone-00 was deleted early, because this control plane may keep 48 bundles and 49152 KiB."}))
		})

		It("should go on with the others if one cannot be deleted", func() {
			e := newEnvironment(
				&corev1.ConfigMap{ObjectMeta: StoredEvidence("a", Start, Start).ObjectMeta},
				&corev1.ConfigMap{ObjectMeta: StoredEvidence("b", Start).ObjectMeta})
			e.denied = []string{"delete"}
			_, err := e.reconcile(ctx, "")
			Expect(err).To(MatchError(ContainSubstring("failed to delete ConfigMap")))
			Expect(e.configMaps(ctx)[StoredEvidenceName("b")].Annotations).To(HaveKey(retention.AnnotationStoredExpires))
		})
	})

	It("should look when a machine fails, when evidence of it was stored, and when it comes or goes", func() {
		var (
			running  = Machine("m")
			broken   = Machine("m", failed, kept)
			recorded = Machine("m", failed, kept, Annotation(evidenceKey, failure))
			changed  = func(before, after *machinev1alpha1.Machine) bool {
				return MachineChanged().Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after})
			}
			requests = func(machine *machinev1alpha1.Machine) string {
				var names []string
				for _, request := range RequestsFor(ctx, machine) {
					names = append(names, request.Name)
				}
				return strings.Join(names, ",")
			}
		)
		Expect(changed(running, broken)).To(BeTrue())
		Expect(changed(broken, recorded)).To(BeTrue())
		Expect(changed(running, Machine("m", Annotation("other", "x")))).To(BeFalse())
		Expect(MachineChanged().Delete(event.DeleteEvent{Object: running})).To(BeTrue())
		Expect(MachineChanged().Create(event.CreateEvent{Object: running})).To(BeTrue())
		Expect(requests(broken)).To(Equal(",m"))
		Expect(requests(recorded)).To(Equal(",m"), "what is stored of it may be incomplete, or gone")
		Expect(requests(running)).To(BeEmpty())
	})
})
