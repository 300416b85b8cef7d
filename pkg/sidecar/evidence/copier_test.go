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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/evidence"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const inShoot = "machine-preservation-evidence"

// copies is a Copier with what it reads and writes.
type copies struct {
	*Copier
	// owner is the shoot as its owner sees it.
	seed, shoot, owner client.WithWatch
	// refuse is what the shoot says to a call for a Secret, nil for yes, and lost is what is said of what was done.
	refuse, lost func(verb, name string) error
	// calls are those that were made to the shoot.
	calls []string
}

func newCopies(objects ...client.Object) *copies {
	c := &copies{refuse: func(string, string) error { return nil }, lost: func(string, string) error { return nil }}
	c.seed = fakeclient.NewClientBuilder().WithObjects(objects...).
		WithIndex(&corev1.ConfigMap{}, metav1.ObjectNameField, func(obj client.Object) []string { return []string{obj.GetName()} }).Build()
	do := func(verb, name string, do func() error) error {
		c.calls = append(c.calls, verb+" "+name)
		return cmpError(c.refuse(verb, name), func() error { return cmpError(do(), func() error { return c.lost(verb, name) }) })
	}
	c.owner = fakeclient.NewClientBuilder().Build()
	c.shoot = interceptor.NewClient(c.owner, interceptor.Funcs{
		Create: func(ctx context.Context, next client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			return do("create", obj.GetName(), func() error { return next.Create(ctx, obj, opts...) })
		},
		Delete: func(ctx context.Context, next client.WithWatch, obj client.Object, opts ...client.DeleteOption) error {
			return do("delete", obj.GetName(), func() error { return next.Delete(ctx, obj, opts...) })
		},
		List: func(ctx context.Context, next client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			Expect(list).To(BeAssignableToTypeOf(&metav1.PartialObjectMetadataList{}), "what others have put there may be large")
			return do("list", "", func() error { return next.List(ctx, list, opts...) })
		},
	})
	c.restart()
	return c
}

func (c *copies) restart() { c.Copier = &Copier{Namespace: Namespace, Seed: c.seed, Shoot: c.shoot} }

// look looks once, and returns the calls that were made to the shoot.
func (c *copies) look() ([]string, error) {
	c.calls = nil
	_, err := c.Reconcile(context.Background(), reconcile.Request{})
	return c.calls, err
}

// there are the Secrets in the shoot, by name.
func (c *copies) there() map[string]corev1.Secret {
	GinkgoHelper()
	list := &corev1.SecretList{}
	Expect(c.owner.List(context.Background(), list, client.InNamespace(inShoot))).To(Succeed())
	all := map[string]corev1.Secret{}
	for _, item := range list.Items {
		all[item.Name] = item
	}
	return all
}

func (c *copies) names() []string { return slices.Sorted(maps.Keys(c.there())) }

// stored is what the Reconciler has stored of a machine, as the i-th.
func stored(i int, machine string, edits ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	GinkgoHelper()
	var archive bytes.Buffer
	_, err := (&evidence.Bundle{Tool: "test", Machine: machine, Node: machine, Snapshot: observed.Snapshot{
		Time: now, Seed: &observed.Seed{Namespace: Namespace, Machines: []machinev1alpha1.Machine{*Machine(machine)}, Controller: &observed.Controller{Args: []string{"--x"}}},
	}}).WriteTo(&archive, 1<<20)
	Expect(err).NotTo(HaveOccurred())
	configMap := &corev1.ConfigMap{ObjectMeta: StoredEvidence(machine, Start, now.Add(time.Hour)).ObjectMeta, BinaryData: map[string][]byte{retention.StoredKey: archive.Bytes()}}
	configMap.Name, configMap.UID = retention.StoredNames()[i-1], types.UID(fmt.Sprintf("of-%d-%s", i, machine))
	configMap.Annotations[retention.AnnotationStoredNode] = "node-" + machine
	configMap.Annotations["other"] = "x"
	for _, edit := range edits {
		edit(configMap)
	}
	return configMap
}

var _ = Describe("Copier", func() {
	const one, two = "machine-preservation-evidence-01", "machine-preservation-evidence-02"
	ctx := context.Background()
	forged := func(name string, annotations map[string]string) *corev1.Secret {
		return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: inShoot, Name: name, Annotations: annotations}, Data: map[string][]byte{retention.StoredKey: []byte("forged")}}
	}
	of := func(secret corev1.Secret) string { return secret.Annotations[prefix+"evidence-of"] }

	It("should copy what is stored with one write, without what is the seed's, and never ask again", func() {
		c := newCopies(stored(1, "m"), stored(2, "n"))
		Expect(c.look()).To(Equal([]string{"list ", "create " + one, "create " + two}))
		secret := c.there()[one]
		Expect(secret.Type).To(BeEquivalentTo("machine-preservation.extensions.gardener.cloud/evidence"))
		Expect(secret.Immutable).To(HaveValue(BeTrue()))
		Expect(secret.Labels).To(Equal(map[string]string{evidenceKey: "true"}))
		Expect(secret.Annotations).To(Equal(map[string]string{
			evidenceKey + "-machine": "m", evidenceKey + "-node": "node-m", evidenceKey + "-failed-since": stamp(Start),
			evidenceKey + "-bytes": strconv.Itoa(len(secret.Data["bundle.tar.gz"])), evidenceKey + "-of": "of-1-m",
		}))
		read, err := evidence.Read(bytes.NewReader(secret.Data["bundle.tar.gz"]))
		Expect(err).NotTo(HaveOccurred())
		Expect(read.Seed.Machines).To(HaveLen(1))
		Expect(read.Seed.Controller).To(BeNil())
		Expect(c.look()).To(BeEmpty())
	})

	It("should delete the copies of what is not stored any more, and make place for what is stored by the same name since", func() {
		before := stored(1, "m")
		c := newCopies(before, stored(2, "n"))
		Expect(c.look()).To(HaveLen(3))
		Expect(c.seed.Delete(ctx, stored(2, "n"))).To(Succeed())
		Expect(c.seed.Delete(ctx, before)).To(Succeed())
		Expect(c.seed.Create(ctx, stored(1, "later"))).To(Succeed())
		Expect(c.look()).To(Equal([]string{"delete " + one, "delete " + two, "create " + one}))
		Expect(c.names()).To(Equal([]string{one}))
		Expect(of(c.there()[one])).To(Equal("of-1-later"))
	})

	It("should know after a restart what was copied, and copy nothing twice", func() {
		c := newCopies(stored(1, "m"), stored(2, "n"))
		c.refuse = func(verb, name string) error {
			if verb+name == "create"+two {
				return errors.New("killed")
			}
			return nil
		}
		_, err := c.look()
		Expect(err).To(MatchError(ContainSubstring("killed")))
		c.refuse = func(string, string) error { return nil }
		c.restart()
		Expect(c.look()).To(Equal([]string{"list ", "create " + two}))
		c.restart()
		Expect(c.look()).To(Equal([]string{"list "}))
		Expect(c.names()).To(Equal([]string{one, two}))
	})

	It("should look again at what is there where the shoot took it and did not answer", func() {
		c := newCopies(stored(1, "m"), stored(2, "n"))
		c.lost = func(verb, _ string) error {
			if verb == "create" {
				return errors.New("http2: client connection lost")
			}
			return nil
		}
		calls, err := c.look()
		Expect(err).To(HaveOccurred())
		Expect(calls).To(Equal([]string{"list ", "create " + one}), "it is not asked for all the rest")
		c.lost = func(string, string) error { return nil }
		Expect(c.look()).To(Equal([]string{"list ", "create " + two}))
	})

	It("P14: should follow when the shoot is back, and ask it once until then", func() {
		c := newCopies(stored(1, "m"), stored(2, "n"))
		c.refuse = func(string, string) error { return errors.New("no answer") }
		for range 3 {
			calls, err := c.look()
			Expect(err).To(HaveOccurred())
			Expect(calls).To(HaveLen(1))
		}
		c.refuse = func(string, string) error { return nil }
		Expect(c.look()).To(Equal([]string{"list ", "create " + one, "create " + two}))
	})

	It("P14: should go on with the others where one is refused", func() {
		c := newCopies(stored(1, "m"), stored(2, "n"))
		c.refuse = func(verb, name string) error {
			if verb+name == "create"+one {
				return apierrors.NewForbidden(corev1.Resource("secrets"), name, errors.New("a webhook"))
			}
			return nil
		}
		_, err := c.look()
		Expect(err).To(MatchError(ContainSubstring("forbidden")))
		Expect(c.names()).To(Equal([]string{two}))
		calls, err := c.look()
		Expect(err).To(HaveOccurred())
		Expect(calls).To(Equal([]string{"create " + one}))
	})

	It("P14: should not copy to where something is that it cannot delete, and go on with the others", func() {
		c := newCopies(stored(1, "m"))
		Expect(c.owner.Create(ctx, forged(one, nil))).To(Succeed())
		Expect(c.seed.Create(ctx, stored(2, "n"))).To(Succeed())
		c.refuse = func(verb, name string) error {
			if verb == "delete" {
				return apierrors.NewForbidden(corev1.Resource("secrets"), name, errors.New("a webhook"))
			}
			return nil
		}
		calls, err := c.look()
		Expect(err).To(MatchError(ContainSubstring("failed to delete a copy")))
		Expect(calls).To(Equal([]string{"list ", "delete " + one, "create " + two}))
	})

	DescribeTable("P14: should not be harmed by what an owner does to the copies", func(hostile func(*copies), again []string, want map[string]string) {
		c := newCopies(stored(1, "m"), stored(2, "n"))
		Expect(c.look()).To(HaveLen(3))
		before := &corev1.ConfigMapList{}
		Expect(c.seed.List(ctx, before)).To(Succeed())
		hostile(c)
		Expect(c.look()).To(BeEmpty(), "it costs nothing")
		c.restart()
		Expect(c.look()).To(Equal(again))
		got := map[string]string{}
		for name, secret := range c.there() {
			got[name] = of(secret)
		}
		Expect(got).To(Equal(want))
		after := &corev1.ConfigMapList{}
		Expect(c.seed.List(ctx, after)).To(Succeed())
		Expect(after.Items).To(Equal(before.Items), "nothing of it gets to the seed")
	},
		Entry("deletes one", func(c *copies) {
			Expect(c.owner.Delete(ctx, forged(one, nil))).To(Succeed())
		}, []string{"list ", "create " + one}, map[string]string{one: "of-1-m", two: "of-2-n"}),
		Entry("puts another in its place", func(c *copies) {
			Expect(c.owner.Delete(ctx, forged(one, nil))).To(Succeed())
			Expect(c.owner.Create(ctx, forged(one, map[string]string{evidenceKey + "-of": "x"}))).To(Succeed())
		}, []string{"list ", "delete " + one, "create " + one}, map[string]string{one: "of-1-m", two: "of-2-n"}),
		Entry("forges one of a name of ours", func(c *copies) {
			Expect(c.owner.Create(ctx, forged("machine-preservation-evidence-50", nil))).To(Succeed())
		}, []string{"list ", "delete machine-preservation-evidence-50"}, map[string]string{one: "of-1-m", two: "of-2-n"}),
		Entry("forges what says it is a copy, which is all that they get", func(c *copies) {
			Expect(c.owner.Delete(ctx, forged(one, nil))).To(Succeed())
			Expect(c.owner.Create(ctx, forged(one, map[string]string{evidenceKey + "-of": "of-1-m"}))).To(Succeed())
		}, []string{"list "}, map[string]string{one: "of-1-m", two: "of-2-n"}),
		Entry("has something of another name there", func(c *copies) {
			Expect(c.owner.Create(ctx, forged("other", nil))).To(Succeed())
		}, []string{"list "}, map[string]string{one: "of-1-m", two: "of-2-n", "other": ""}),
	)

	It("P14: should take what is forged while it copies for what it is", func() {
		c := newCopies(stored(1, "m"))
		Expect(c.look()).To(HaveLen(2))
		Expect(c.owner.Create(ctx, forged(two, nil))).To(Succeed())
		Expect(c.seed.Create(ctx, stored(2, "n"))).To(Succeed())
		_, err := c.look()
		Expect(apierrors.IsAlreadyExists(err)).To(BeTrue())
		Expect(c.look()).To(Equal([]string{"list ", "delete " + two, "create " + two}))
		Expect(of(c.there()[two])).To(Equal("of-2-n"))
	})

	It("P14: should go on with the others where one cannot be deleted because of a finalizer, and copy it once it can", func() {
		c := newCopies(stored(1, "m"), stored(2, "n"))
		kept := forged(one, nil)
		kept.Finalizers = []string{"example.com/kept"}
		Expect(c.owner.Create(ctx, kept)).To(Succeed())
		for _, want := range [][]string{{"list ", "delete " + one, "create " + one, "create " + two}, {"list ", "delete " + one, "create " + one}} {
			calls, err := c.look()
			Expect(apierrors.IsAlreadyExists(err)).To(BeTrue(), "it is tried again")
			Expect(calls).To(Equal(want))
		}
		Expect(of(c.there()[two])).To(Equal("of-2-n"))
		Expect(c.owner.Get(ctx, client.ObjectKeyFromObject(kept), kept)).To(Succeed())
		kept.Finalizers = nil
		Expect(c.owner.Update(ctx, kept)).To(Succeed())
		Expect(c.look()).To(Equal([]string{"list ", "create " + one}))
		Expect(of(c.there()[one])).To(Equal("of-1-m"))
	})

	It("should keep a copy that was made without its knowing, and go on with the others", func() {
		c, other := newCopies(stored(1, "m")), newCopies(stored(1, "m"), stored(2, "n"))
		Expect(c.look()).To(HaveLen(2))
		other.Shoot = c.shoot
		Expect(other.look()).To(BeEmpty(), "its calls are counted at the other")
		Expect(c.seed.Create(ctx, stored(2, "n"))).To(Succeed())
		Expect(c.seed.Create(ctx, stored(3, "o"))).To(Succeed())
		calls, err := c.look()
		Expect(apierrors.IsAlreadyExists(err)).To(BeTrue())
		Expect(calls).To(Equal([]string{"create " + two, "create machine-preservation-evidence-03"}))
		Expect(c.look()).To(Equal([]string{"list "}))
		Expect(of(c.there()[two])).To(Equal("of-2-n"))
	})

	DescribeTable("P14: should copy the others within some looks, whichever are refused again and again", func(refused ...string) {
		var objects []client.Object
		for i := range 12 {
			objects = append(objects, stored(i+1, fmt.Sprintf("m-%d", i)))
		}
		c := newCopies(objects...)
		c.refuse = func(verb, name string) error {
			if verb == "create" && slices.Contains(refused, strings.TrimPrefix(name, "machine-preservation-evidence-")) {
				return apierrors.NewForbidden(corev1.Resource("secrets"), name, errors.New("a webhook"))
			}
			return nil
		}
		for range 3 {
			calls, _ := c.look()
			Expect(len(calls)).To(BeNumerically("<=", 1+5))
		}
		Expect(c.names()).To(HaveLen(12 - len(refused)))
		_, err := c.look()
		Expect(err).To(MatchError(ContainSubstring("a webhook")), "they are tried again")
	},
		Entry("the first ones", "01", "02", "03", "04", "05"),
		Entry("those in the middle", "04", "05", "06", "07", "08", "09"),
		Entry("the last ones", "08", "09", "10", "11", "12"),
	)

	It("P14: should copy no more than some at a time, whatever somebody does with the others", func() {
		var objects []client.Object
		for i := range 12 {
			objects = append(objects, stored(i+1, fmt.Sprintf("m-%d", i)))
		}
		c := newCopies(objects...)
		for _, want := range []struct {
			copies int
			again  time.Duration
		}{{5, 5 * time.Second}, {10, 5 * time.Second}, {12, 0}} {
			result, err := c.Reconcile(ctx, reconcile.Request{})
			Expect(err).NotTo(HaveOccurred())
			Expect(result.RequeueAfter).To(Equal(want.again))
			Expect(c.names()).To(HaveLen(want.copies))
		}
		c = newCopies(objects...)
		c.refuse = func(verb, name string) error {
			if verb == "create" {
				return apierrors.NewForbidden(corev1.Resource("secrets"), name, errors.New("a quota"))
			}
			return nil
		}
		calls, err := c.look()
		Expect(err).To(HaveOccurred())
		Expect(calls).To(HaveLen(1 + 5))
	})

	It("P14: should read no more than it expects, however many there are", func() {
		c := newCopies(stored(1, "m"))
		pages := 0
		endless := interceptor.NewClient(c.shoot, interceptor.Funcs{List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			Expect((&client.ListOptions{}).ApplyOptions(opts).Limit).To(BeEquivalentTo(20))
			pages++
			page := list.(*metav1.PartialObjectMetadataList)
			page.Items, page.Continue = make([]metav1.PartialObjectMetadata, 20), "more"
			return nil
		}})
		_, err := (&Copier{Namespace: Namespace, Seed: c.seed, Shoot: endless}).Reconcile(ctx, reconcile.Request{})
		Expect(err).To(MatchError(ContainSubstring("there are more than 1000 objects")))
		Expect(pages).To(Equal(51))
	})

	DescribeTable("should leave it at that, and copy the others, where one cannot be copied", func(edit func(*corev1.ConfigMap), refusal error) {
		c := newCopies(stored(1, "m", edit), stored(2, "n"))
		c.refuse = func(verb, name string) error {
			if verb+name == "create"+one {
				return refusal
			}
			return nil
		}
		_, err := c.look()
		Expect(err).NotTo(HaveOccurred())
		Expect(c.names()).To(Equal([]string{two}))
		Expect(c.look()).To(BeEmpty(), "nor could it be later")
	},
		Entry("nothing is in it", func(configMap *corev1.ConfigMap) { configMap.BinaryData[retention.StoredKey] = nil }, nil),
		Entry("it is no bundle", func(configMap *corev1.ConfigMap) { configMap.BinaryData[retention.StoredKey] = []byte("x") }, nil),
		Entry("the shoot takes nothing that large", func(*corev1.ConfigMap) {}, apierrors.NewRequestEntityTooLargeError("limit is 3145728")),
		Entry("the shoot takes nothing like it", func(*corev1.ConfigMap) {}, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Secret").GroupKind(), one, nil)),
	)

	It("should be told by the Reconciler when what is stored changes, and hold it up by nothing", func() {
		e := newEnvironment(Machine("m", failed, kept))
		told := 0
		e.controller.Changed = func() { told++ }
		Expect(e.reconcile(ctx, "m")).To(BeZero())
		Expect(told).To(Equal(1))
		Expect(e.reconcile(ctx, "")).To(BeZero())
		Expect(told).To(Equal(2))
		(&Copier{}).Look()
	})
})
