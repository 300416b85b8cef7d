// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package metal3_test

import (
	"context"
	"errors"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/yaml"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/metal3"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	reboot = "reboot.metal3.io/machine-remediation"
	whose  = "machine-preservation.extensions.gardener.cloud/power-cycle-owner"
	ours   = `{"seed":"seed","namespace":"shoot--test--one","machine":"m","uid":"machine-m","time":"2026-03-01T12:00:00Z","on":"host/1"}`
)

var ctx = context.Background()

// edit changes a host that is on, and the machine's.
type edit func(*unstructured.Unstructured)

func bmh(edits ...edit) *unstructured.Unstructured {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(`
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata: {namespace: hosts, name: h, uid: host, resourceVersion: "7", labels: {a: b}, annotations: {c: d}}
spec:
  online: true
  consumerRef: {apiVersion: machine.sapcloud.io/v1alpha1, kind: Machine, namespace: shoot--test--one, name: m}
  bmc: {address: "redfish://192.0.2.1", credentialsName: bmc}
status:
  poweredOn: true
  operationalStatus: OK
  provisioning: {state: provisioned, ID: x}
  hardware: {cpu: {arch: x86_64}}
`), &u.Object)).To(Succeed())
	for _, e := range edits {
		e(u)
	}
	return u
}

func with(value any, path ...string) edit {
	return func(u *unstructured.Unstructured) {
		Expect(unstructured.SetNestedField(u.Object, value, path...)).To(Succeed())
	}
}

func without(path ...string) edit {
	return func(u *unstructured.Unstructured) { unstructured.RemoveNestedField(u.Object, path...) }
}

func annotated(key, value string) edit { return with(value, "metadata", "annotations", key) }

func requested(u *unstructured.Unstructured) {
	annotated(reboot, `{"mode":"hard"}`)(u)
	annotated(whose, ours)(u)
}

func off(u *unstructured.Unstructured) { with(false, "status", "poweredOn")(u) }

func machine(opts ...builder.MachineOption) *machinev1alpha1.Machine {
	return builder.Machine("m", append([]builder.MachineOption{builder.Annotation("metal3.io/BareMetalHost", "hosts/h")}, opts...)...)
}

func providerID(id string) builder.MachineOption {
	return func(m *machinev1alpha1.Machine) { m.Spec.ProviderID = id }
}

func owner() remediation.Owner {
	return remediation.Owner{Seed: "seed", Namespace: builder.Namespace, Machine: "m", UID: "machine-m", BootID: "b", Time: builder.Start}
}

// driverOf returns a driver whose cache keeps what it says, and the client of the API server.
func driverOf(funcs interceptor.Funcs, objects ...*unstructured.Unstructured) (*host.Driver, client.WithWatch) {
	GinkgoHelper()
	live, cached := fakeclient.NewClientBuilder().WithInterceptorFuncs(funcs), fakeclient.NewClientBuilder()
	for _, object := range objects {
		live.WithObjects(object.DeepCopy())
		for _, by := range metal3.ByObject() {
			stripped, err := by.Transform(object)
			Expect(err).NotTo(HaveOccurred())
			kept := stripped.(client.Object)
			kept.SetFinalizers(object.GetFinalizers()) // as the fake wants it
			cached.WithObjects(kept)
		}
	}
	c := live.Build()
	return &host.Driver{Kind: metal3.Kind{}, Access: host.Access{Namespace: builder.Namespace, HostNamespace: "hosts", Cached: cached.Build(), APIReader: c, Writer: c}}, c
}

func read(c client.Client) *unstructured.Unstructured {
	GinkgoHelper()
	u := host.New(bmh().GroupVersionKind())
	Expect(c.Get(ctx, client.ObjectKey{Namespace: "hosts", Name: "h"}, u)).To(Succeed())
	return u
}

var _ = Describe("BareMetalHosts", func() {
	DescribeTable("names of hosts on machines", func(m *machinev1alpha1.Machine, namespace, name string) {
		key, ok := metal3.Kind{}.Key(m)
		Expect(ok).To(Equal(name != ""))
		Expect(key).To(Equal(client.ObjectKey{Namespace: namespace, Name: name}))
	},
		Entry("annotation", machine(), "hosts", "h"),
		Entry("annotation and provider id", machine(providerID("baremetalhost:///a/b/c")), "hosts", "h"),
		Entry("annotation that is no name", builder.Machine("m", builder.Annotation("metal3.io/BareMetalHost", "h"), providerID("baremetalhost:///a/b")), "", ""),
		Entry("annotation with too many parts", builder.Machine("m", builder.Annotation("metal3.io/BareMetalHost", "a/b/c")), "", ""),
		Entry("provider id", builder.Machine("m", providerID("baremetalhost:///a/b")), "a", "b"),
		Entry("provider id with the UID", builder.Machine("m", providerID("baremetalhost:///a/b/c")), "a", "b"),
		Entry("provider id with two slashes", builder.Machine("m", providerID("baremetalhost://a/b")), "a", "b"),
		Entry("provider id with two slashes and the UID", builder.Machine("m", providerID("baremetalhost://a/b/c")), "a", "b"),
		Entry("provider id with too many parts", builder.Machine("m", providerID("baremetalhost:///a/b/c/d")), "", ""),
		Entry("provider id without a name", builder.Machine("m", providerID("baremetalhost:///a")), "", ""),
		Entry("provider id with an empty part", builder.Machine("m", providerID("baremetalhost:////b")), "", ""),
		Entry("provider id of another provider", builder.Machine("m"), "", ""),
		Entry("no provider id", builder.Machine("m", providerID("")), "", ""),
	)

	expectHost := func(u *unstructured.Unstructured, m *machinev1alpha1.Machine, expected any) {
		GinkgoHelper()
		d, _ := driverOf(interceptor.Funcs{}, u)
		cached, cachedErr := d.Of(ctx, m)
		live, err := d.Live(ctx, m)
		if foreign, ok := expected.(error); ok {
			Expect(err).To(MatchError(foreign))
			Expect(cachedErr).To(MatchError(foreign))
			return
		}
		Expect(err).NotTo(HaveOccurred())
		Expect(cachedErr).NotTo(HaveOccurred())
		Expect([]bool{cached.Live, live.Live}).To(Equal([]bool{false, true}), "which of them may be behind")
		live.Live = false
		Expect(cached).To(Equal(live), "what the cache keeps")
		Expect(live).To(HaveValue(Equal(expected)))
	}

	someone := &remediation.Owner{Seed: "seed", Namespace: builder.Namespace, Machine: "m", UID: "machine-m", Time: builder.Start, On: "host/1"}

	DescribeTable("X1 what a host reports", func(e edit, on *bool, asked, offSince bool) {
		expected := remediation.Host{Namespace: "hosts", Name: "h", UID: "host", On: on, OffSinceRequest: offSince, Requested: asked}
		u := bmh(e)
		if _, ok := u.GetAnnotations()[whose]; ok {
			expected.Owner = someone
		}
		d, _ := driverOf(interceptor.Funcs{}, u)
		h, err := d.Of(ctx, machine())
		Expect(err).NotTo(HaveOccurred())
		h.Taken = ""
		if h.Owner != nil {
			h.Owner.On = "host/1"
		}
		Expect(*h).To(Equal(expected))
	},
		Entry("on", edit(func(*unstructured.Unstructured) {}), new(true), false, false),
		Entry("off", edit(off), new(false), false, false),
		Entry("nothing yet", without("status"), nil, false, false),
		Entry("on and requested", edit(requested), new(true), true, false),
		Entry("off since the request", edit(func(u *unstructured.Unstructured) { requested(u); off(u) }), new(false), true, true),
		Entry("off in the version that was on", edit(func(u *unstructured.Unstructured) { requested(u); off(u); u.SetResourceVersion("1") }), new(false), true, false),
		Entry("off in an earlier version", edit(func(u *unstructured.Unstructured) {
			requested(u)
			off(u)
			annotated(whose, `{"seed":"seed","namespace":"shoot--test--one","machine":"m","uid":"machine-m","time":"2026-03-01T12:00:00Z","on":"host/10"}`)(u)
		}), new(false), true, false),
		Entry("off, but another object", edit(func(u *unstructured.Unstructured) {
			requested(u)
			off(u)
			annotated(whose, `{"seed":"seed","namespace":"shoot--test--one","machine":"m","uid":"machine-m","time":"2026-03-01T12:00:00Z","on":"other/1"}`)(u)
		}), new(false), true, false),
		Entry("off, but a version that nobody can read", edit(func(u *unstructured.Unstructured) {
			requested(u)
			off(u)
			annotated(whose, `{"seed":"seed","namespace":"shoot--test--one","machine":"m","uid":"machine-m","time":"2026-03-01T12:00:00Z","on":""}`)(u)
		}), new(false), true, false),
		Entry("off, but the request was taken back", edit(func(u *unstructured.Unstructured) { annotated(whose, ours)(u); off(u) }), new(false), false, false),
		Entry("off, but somebody else's request", edit(func(u *unstructured.Unstructured) { annotated(reboot, "")(u); off(u) }), new(false), true, false),
		Entry("off, but paused", edit(func(u *unstructured.Unstructured) {
			requested(u)
			off(u)
			annotated("baremetalhost.metal3.io/paused", "")(u)
		}), nil, true, false),
		Entry("off, but detached", edit(func(u *unstructured.Unstructured) {
			requested(u)
			off(u)
			with("detached", "status", "operationalStatus")(u)
		}), nil, true, false),
	)

	It("X1 says nothing of a host that is off for the machine before", func() {
		u := bmh(requested, off)
		m := machine()
		m.UID = "other"
		expectHost(u, m, remediation.Host{
			Namespace: "hosts", Name: "h", UID: "host", On: new(false), Requested: true, Owner: someone,
			Taken: "it is off for machine shoot--test--one/m, which had it before",
		})
	})

	DescribeTable("X14 hosts of others", func(e edit, taken string) {
		d, c := driverOf(interceptor.Funcs{}, bmh(e))
		h, err := d.Of(ctx, machine())
		Expect(err).NotTo(HaveOccurred())
		Expect(h.Taken).To(Equal(taken))
		before := read(c)
		err = d.PowerOff(ctx, h, owner())
		if taken == "" {
			Expect(err).NotTo(HaveOccurred())
			return
		}
		Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		Expect(read(c)).To(Equal(before))
	},
		Entry("nobody", edit(func(*unstructured.Unstructured) {}), ""),
		Entry("nobody, of an externally provisioned one", with("externally provisioned", "status", "provisioning", "state"), ""),
		Entry("nobody, with the rest of a request of ours", annotated(whose, ours), ""),
		Entry("our key without an owner", annotated(reboot, `{"mode":"hard"}`), "somebody else asks for it to be off (annotation reboot.metal3.io/machine-remediation)"),
		Entry("our key with an owner that cannot be read", edit(func(u *unstructured.Unstructured) { annotated(reboot, "")(u); annotated(whose, "{")(u) }), "somebody else asks for it to be off (annotation reboot.metal3.io/machine-remediation)"),
		Entry("our key with an owner without UID", edit(func(u *unstructured.Unstructured) { annotated(reboot, "")(u); annotated(whose, "{}")(u) }), "somebody else asks for it to be off (annotation reboot.metal3.io/machine-remediation)"),
		Entry("another client", annotated("reboot.metal3.io/other", ""), "somebody else asks for it to be off (annotation reboot.metal3.io/other)"),
		Entry("a reboot", annotated("reboot.metal3.io", ""), "somebody else asks for it to be off (annotation reboot.metal3.io)"),
		Entry("offline", with(false, "spec", "online"), "it is to be offline"),
		Entry("no word about online", without("spec", "online"), "it is to be offline"),
		Entry("never off", with(true, "spec", "disablePowerOff"), "it must not be powered off"),
		Entry("paused", annotated("baremetalhost.metal3.io/paused", ""), "it is paused"),
		Entry("to be detached", annotated("baremetalhost.metal3.io/detached", ""), "it is detached"),
		Entry("detached", with("detached", "status", "operationalStatus"), "it is detached"),
		Entry("serviced", with("servicing", "status", "operationalStatus"), "it is being serviced"),
		Entry("not provisioned yet", with("provisioning", "status", "provisioning", "state"), "it is provisioning"),
		Entry("being deleted", edit(func(u *unstructured.Unstructured) {
			with("2026-03-01T12:00:00Z", "metadata", "deletionTimestamp")(u)
			u.SetFinalizers([]string{"a/b"})
		}), "it is being deleted"),
	)

	DescribeTable("X2 hosts of other machines", func(e edit) { expectHost(bmh(e), machine(), host.ErrNoHost) },
		Entry("none", without("spec", "consumerRef")),
		Entry("another kind", with("Metal3Machine", "spec", "consumerRef", "kind")),
		Entry("another group", with("machine.openshift.io/v1beta1", "spec", "consumerRef", "apiVersion")),
		Entry("another shoot", with("shoot--test--two", "spec", "consumerRef", "namespace")),
		Entry("another name", with("n", "spec", "consumerRef", "name")),
	)

	It("X14 has no host for a machine that names none, or one that is not there", func() {
		expectHost(bmh(), builder.Machine("m"), host.ErrNoHost)
		expectHost(bmh(), machine(builder.Annotation("metal3.io/BareMetalHost", "hosts/i")), host.ErrNoHost)
	})

	It("X14 names the kind if it is not served", func() {
		d, _ := driverOf(interceptor.Funcs{Get: func(context.Context, client.WithWatch, client.ObjectKey, client.Object, ...client.GetOption) error {
			return &meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "metal3.io", Kind: "BareMetalHost"}}
		}})
		_, err := d.Live(ctx, machine())
		Expect(err).To(MatchError(host.ErrNoKind))
		Expect(err).To(MatchError(ContainSubstring(`failed to get BareMetalHost "hosts/h" of metal3.io/v1alpha1`)))
	})

	Describe("requests", func() {
		It("X2 asks with the owner in one write, and changes nothing else", func() {
			writes := 0
			d, c := driverOf(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				writes++
				return c.Patch(ctx, obj, patch, opts...)
			}}, bmh())
			h, err := d.Of(ctx, machine())
			Expect(err).NotTo(HaveOccurred())
			Expect(d.PowerOff(ctx, h, owner())).To(Succeed())
			Expect(writes).To(Equal(1))

			u := read(c)
			Expect(u.GetAnnotations()).To(Equal(map[string]string{
				"c":    "d",
				reboot: `{"mode":"hard"}`,
				whose:  `{"seed":"seed","namespace":"shoot--test--one","machine":"m","uid":"machine-m","bootID":"b","time":"2026-03-01T12:00:00Z","on":"host/7"}`,
			}))
			u.SetAnnotations(map[string]string{"c": "d"})
			u.SetResourceVersion("7")
			Expect(u).To(Equal(bmh()))
		})

		It("X3 refuses the request that is there already, and leaves its owner as it is", func() {
			d, c := driverOf(interceptor.Funcs{}, bmh())
			h, err := d.Of(ctx, machine())
			Expect(err).NotTo(HaveOccurred())
			Expect(d.PowerOff(ctx, h, owner())).To(Succeed())
			before := read(c)
			later := owner()
			later.Time = later.Time.Add(time.Minute)
			err = d.PowerOff(ctx, h, later)
			Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
			Expect(read(c)).To(Equal(before))
		})

		DescribeTable("X1 refuses a host that is not as it was read any more", func(e edit) {
			d, _ := driverOf(interceptor.Funcs{}, bmh())
			h, err := d.Of(ctx, machine())
			Expect(err).NotTo(HaveOccurred())
			changed, c := driverOf(interceptor.Funcs{}, bmh(e))
			before := read(c)
			err = changed.PowerOff(ctx, h, owner())
			Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
			Expect(read(c)).To(Equal(before))
		},
			Entry("off", edit(off)),
			Entry("nothing reported", without("status")),
			Entry("another consumer", with("n", "spec", "consumerRef", "name")),
			Entry("no consumer", without("spec", "consumerRef")),
			Entry("another object", with("other", "metadata", "uid")),
		)

		It("X1 refuses a host that changes between read and write", func() {
			d, c := driverOf(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				u := read(c)
				off(u)
				Expect(c.Update(ctx, u)).To(Succeed())
				return c.Patch(ctx, obj, patch, opts...)
			}}, bmh())
			h, err := d.Of(ctx, machine())
			Expect(err).NotTo(HaveOccurred())
			err = d.PowerOff(ctx, h, owner())
			Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
			Expect(read(c).GetAnnotations()).To(Equal(map[string]string{"c": "d"}))
		})

		It("X3 is not in doubt about a write whose answer was lost", func() {
			d, c := driverOf(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				return errors.Join(c.Patch(ctx, obj, patch, opts...), errors.New("crash"))
			}}, bmh())
			h, err := d.Of(ctx, machine())
			Expect(err).NotTo(HaveOccurred())
			Expect(d.PowerOff(ctx, h, owner())).To(MatchError(ContainSubstring("crash")))
			live, err := d.Live(ctx, machine())
			Expect(err).NotTo(HaveOccurred())
			Expect(live.Owner).To(HaveValue(HaveField("UID", BeEquivalentTo("machine-m"))))
			Expect(d.Release(ctx, live)).To(MatchError(ContainSubstring("crash")))
			Expect(read(c).GetAnnotations()).To(Equal(map[string]string{"c": "d"}))
			Expect(d.Release(ctx, live)).To(Succeed())
		})

		DescribeTable("X2 takes back what is the machine's", func(e edit, annotations map[string]string) {
			d, _ := driverOf(interceptor.Funcs{}, bmh(requested))
			h, err := d.Of(ctx, machine())
			Expect(err).NotTo(HaveOccurred())
			now, c := driverOf(interceptor.Funcs{}, bmh(e))
			Expect(now.Release(ctx, h)).To(Succeed())
			Expect(read(c).GetAnnotations()).To(Equal(annotations))
		},
			Entry("the request", edit(requested), map[string]string{"c": "d"}),
			Entry("and leaves others'", edit(func(u *unstructured.Unstructured) { requested(u); annotated("reboot.metal3.io/other", "")(u) }), map[string]string{"c": "d", "reboot.metal3.io/other": ""}),
			Entry("its rest", annotated(whose, ours), map[string]string{"c": "d"}),
			Entry("of a host with another consumer", edit(func(u *unstructured.Unstructured) { requested(u); without("spec", "consumerRef")(u) }), map[string]string{"c": "d"}),
			Entry("of a host that is another object", edit(func(u *unstructured.Unstructured) { requested(u); u.SetUID("other") }), map[string]string{"c": "d"}),
			Entry("of none", edit(func(*unstructured.Unstructured) {}), map[string]string{"c": "d"}),
			Entry("but not another machine's", edit(func(u *unstructured.Unstructured) { annotated(reboot, "")(u); annotated(whose, `{"uid":"other"}`)(u) }), map[string]string{"c": "d", reboot: "", whose: `{"uid":"other"}`}),
			Entry("but not one without an owner", annotated(reboot, ""), map[string]string{"c": "d", reboot: ""}),
		)

		It("X2 takes nothing back of a host that is gone, or was never asked", func() {
			d, _ := driverOf(interceptor.Funcs{})
			Expect(d.Release(ctx, &remediation.Host{Namespace: "hosts", Name: "h", Owner: someone})).To(Succeed())
			d, c := driverOf(interceptor.Funcs{}, bmh(requested))
			before := read(c)
			Expect(d.Release(ctx, &remediation.Host{Namespace: "hosts", Name: "h"})).To(Succeed())
			Expect(read(c)).To(Equal(before))
		})
	})

	It("X2 lists the hosts of a control plane by their owner", func() {
		named := func(name, owner string) *unstructured.Unstructured {
			return bmh(func(u *unstructured.Unstructured) { u.SetName(name) }, annotated(whose, owner))
		}
		d, _ := driverOf(interceptor.Funcs{}, bmh(),
			named("requested", ours), named("other-consumer", ours),
			named("other-seed", `{"seed":"other","namespace":"shoot--test--one","uid":"u"}`),
			named("other-shoot", `{"seed":"seed","namespace":"shoot--test--two","uid":"u"}`),
			named("unreadable", "x"),
		)
		owned, err := d.Owned(ctx, "seed", builder.Namespace)
		Expect(err).NotTo(HaveOccurred())
		Expect(owned).To(ConsistOf(HaveField("Name", "requested"), HaveField("Name", "other-consumer")))
		for namespace, n := range map[string]int{"hosts": 2, "others": 0} {
			d.HostNamespace = namespace
			Expect(d.Owned(ctx, "seed", builder.Namespace)).To(HaveLen(n))
		}
	})

	DescribeTable("X12 wakes the machine", func(e edit, name string) {
		d, _ := driverOf(interceptor.Funcs{})
		key, ok := d.Machine(ctx, bmh(e))
		Expect(ok).To(Equal(name != ""))
		if ok {
			Expect(key).To(Equal(client.ObjectKey{Namespace: builder.Namespace, Name: name}))
		}
	},
		Entry("its consumer", edit(func(*unstructured.Unstructured) {}), "m"),
		Entry("its owner", edit(func(u *unstructured.Unstructured) { requested(u); without("spec", "consumerRef")(u) }), "m"),
		Entry("its owner, not its consumer", edit(func(u *unstructured.Unstructured) { requested(u); with("n", "spec", "consumerRef", "name")(u) }), "m"),
		Entry("none of another shoot", with("shoot--test--two", "spec", "consumerRef", "namespace"), ""),
		Entry("none of another shoot's request", annotated(whose, `{"namespace":"shoot--test--two","machine":"m","uid":"u"}`), ""),
		Entry("none of another kind", with("Metal3Machine", "spec", "consumerRef", "kind"), ""),
		Entry("none", without("spec", "consumerRef"), ""),
	)

	It("watches and maps its kind alone, and is allowed no more than it needs", func() {
		d, _ := driverOf(interceptor.Funcs{})
		Expect(d.Objects()).To(HaveExactElements(HaveField("GroupVersionKind()", bmh().GroupVersionKind())))
		mapping, err := metal3.Mapper().RESTMapping(schema.GroupKind{Group: "metal3.io", Kind: "BareMetalHost"}, "v1alpha1")
		Expect(err).NotTo(HaveOccurred())
		Expect(mapping.Resource.Resource).To(Equal("baremetalhosts"))
		Expect(mapping.Scope).To(Equal(meta.RESTScopeNamespace))
		Expect(metal3.PolicyRules()).To(HaveExactElements(And(HaveField("Resources", []string{"baremetalhosts"}), HaveField("Verbs", []string{"get", "list", "watch", "patch"}))))
	})

	It("P14 keeps nothing in a cache but what is read", func() {
		for _, by := range metal3.ByObject() {
			stripped, err := by.Transform(bmh(requested))
			Expect(err).NotTo(HaveOccurred())
			Expect(stripped.(runtime.Unstructured).UnstructuredContent()).To(HaveKeyWithValue("status", Equal(map[string]any{
				"poweredOn": true, "operationalStatus": "OK", "provisioning": map[string]any{"state": "provisioned"},
			})))
			again, err := by.Transform(stripped)
			Expect(err).NotTo(HaveOccurred())
			Expect(again).To(Equal(stripped))
			tombstone := struct{}{}
			Expect(by.Transform(tombstone)).To(Equal(tombstone))
		}
	})
})
