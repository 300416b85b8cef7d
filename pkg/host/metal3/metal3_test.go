// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package metal3_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
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

// past is what stays on a host of cycles that are over.
const past = `{"seed":"seed","namespace":"shoot--test--one","cycles":[{"machine":"gone","began":"2026-03-01T11:00:00Z"}]}`

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

func failed(errorType, message string) edit {
	return func(u *unstructured.Unstructured) {
		with("error", "status", "operationalStatus")(u)
		with(errorType, "status", "errorType")(u)
		with(message, "status", "errorMessage")(u)
	}
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

// history is an owner with a cycle that the host had before.
func history(owner, machine, at string) string {
	return strings.TrimSuffix(owner, "}") + fmt.Sprintf(`,"cycles":[{"machine":%q,"began":"2026-03-01T%s:00Z"}]}`, machine, at)
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

func expectConflict(err error) {
	GinkgoHelper()
	Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
}

func read(c client.Client) *unstructured.Unstructured {
	GinkgoHelper()
	u := host.New(bmh().GroupVersionKind())
	Expect(c.Get(ctx, client.ObjectKey{Namespace: "hosts", Name: "h"}, u)).To(Succeed())
	return u
}

// of returns the host of the machine, as it is cached or live.
func of(read func(context.Context, *machinev1alpha1.Machine) (*remediation.Host, error)) *remediation.Host {
	GinkgoHelper()
	h, err := read(ctx, machine())
	Expect(err).NotTo(HaveOccurred())
	return h
}

var _ = Describe("BareMetalHosts", func() {
	It("is all of a host, as the API server has it", func() {
		d, _ := driverOf(interceptor.Funcs{}, bmh())
		objects, err := d.Whole(ctx, machine())
		Expect(err).NotTo(HaveOccurred())
		Expect(objects).To(HaveLen(1))
		Expect(objects[0].Object["status"]).To(HaveKey("hardware"))
	})

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
		Entry("provider id of cluster-api-provider-metal3", builder.Machine("m", providerID("metal3://a/b/c")), "a", "b"),
		Entry("provider id of cluster-api-provider-metal3, which names a UID only", builder.Machine("m", providerID("metal3://d3b2b0a4-6c4c-4c62-9a4f-0d4a3c7d9e11")), "", ""),
		Entry("provider id of cluster-api-provider-metal3, which names a UID only, and annotation", machine(providerID("metal3://d3b2b0a4-6c4c-4c62-9a4f-0d4a3c7d9e11")), "hosts", "h"),
		Entry("provider id of cluster-api-provider-metal3 without its machine", builder.Machine("m", providerID("metal3://a/b")), "", ""),
		Entry("provider id of cluster-api-provider-metal3 with too many parts", builder.Machine("m", providerID("metal3://a/b/c/d")), "", ""),
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
		expected.Unowned = asked && host.OwnerOf(bmh(e)) == nil
		u := bmh(e)
		if _, ok := u.GetAnnotations()[whose]; ok {
			expected.Owner = someone
		}
		d, _ := driverOf(interceptor.Funcs{}, u)
		h := of(d.Of)
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

	DescribeTable("X18 X20 what its operator says of a host", func(e edit, expected remediation.Host) {
		expected.Namespace, expected.Name, expected.UID, expected.On = "hosts", "h", "host", new(true)
		expectHost(bmh(e), machine(), expected)
	},
		Entry("nothing", edit(func(*unstructured.Unstructured) {}), remediation.Host{}),
		Entry("when it wrote the status", with("2026-03-01T12:00:00Z", "status", "lastUpdated"), remediation.Host{Changed: builder.Start.Local()}),
		Entry("that it services it", with("servicing", "status", "operationalStatus"),
			remediation.Host{Servicing: "it is being serviced", Taken: "it is being serviced"}),
		Entry("that it services it for us", edit(func(u *unstructured.Unstructured) { requested(u); with("servicing", "status", "operationalStatus")(u) }),
			remediation.Host{Requested: true, Owner: someone, Servicing: "it is being serviced", Taken: "it is being serviced"}),
		Entry("that it failed to service it, and tries again", failed("servicing error", "no image"),
			remediation.Host{Servicing: "it is being serviced", Error: "servicing error: no image", Taken: "its operator reports: servicing error: no image"}),
		Entry("that it cannot switch it", failed("power management error", "BMC\n\x1b[2Jaway"),
			remediation.Host{Error: "power management error: BMC [2Jaway", Taken: "its operator reports: power management error: BMC [2Jaway"}),
		Entry("that it cannot switch it for us", edit(func(u *unstructured.Unstructured) { requested(u); failed("power management error", "away")(u) }),
			remediation.Host{Requested: true, Owner: someone, Error: "power management error: away", Taken: "its operator reports: power management error: away"}),
		Entry("that it cannot reach it", failed("registration error", "wrong password"),
			remediation.Host{Error: "registration error: wrong password", Taken: "its operator reports: registration error: wrong password"}),
		Entry("an error of no type", with("error", "status", "operationalStatus"), remediation.Host{Error: "error", Taken: "its operator reports: error"}),
		Entry("an error without a message", failed("detach error", ""), remediation.Host{Error: "detach error", Taken: "its operator reports: detach error"}),
		Entry("more than is passed on", failed("detach error", strings.Repeat("x", 1000)),
			remediation.Host{Error: "detach error: " + strings.Repeat("x", 114), Taken: "its operator reports: detach error: " + strings.Repeat("x", 114)}),
		Entry("an error of a host that others keep off", edit(func(u *unstructured.Unstructured) {
			annotated("reboot.metal3.io/other", "")(u)
			failed("power management error", "away")(u)
		}), remediation.Host{Error: "power management error: away", Taken: "somebody else asks for it to be off (annotation reboot.metal3.io/other)"}),
	)

	DescribeTable("X20 what is left of a request", func(e edit, unowned bool) {
		d, _ := driverOf(interceptor.Funcs{}, bmh(e))
		for _, read := range []func(context.Context, *machinev1alpha1.Machine) (*remediation.Host, error){d.Of, d.Live} {
			h, err := read(ctx, machine())
			Expect(err).NotTo(HaveOccurred())
			Expect(h.Unowned).To(Equal(unowned))
		}
	},
		Entry("nothing", edit(func(*unstructured.Unstructured) {}), false),
		Entry("all", edit(requested), false),
		Entry("no owner", annotated(reboot, `{"mode":"hard"}`), true),
		Entry("no mode either", annotated(reboot, ""), true),
		Entry("no owner, but a history", edit(func(u *unstructured.Unstructured) { annotated(reboot, "")(u); annotated(whose, past)(u) }), true),
		Entry("the owner", annotated(whose, ours), false),
		Entry("nothing, but another client's", annotated("reboot.metal3.io/other", ""), false),
	)

	DescribeTable("X14 hosts of others", func(e edit, taken string) {
		d, c := driverOf(interceptor.Funcs{}, bmh(e))
		h := of(d.Of)
		Expect(h.Taken).To(Equal(taken))
		before := read(c)
		err := d.PowerOff(ctx, h, owner())
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

	It("X2 X14 does not power off a host of another namespace, where nobody would release it", func() {
		d, c := driverOf(interceptor.Funcs{}, bmh())
		d.HostNamespace = "elsewhere"
		h := of(d.Live)
		Expect(h.Taken).To(Equal("it is in namespace hosts, hosts are looked for in elsewhere"))
		before := read(c)
		expectConflict(d.PowerOff(ctx, h, owner()))
		Expect(read(c)).To(Equal(before))
	})

	It("X14 knows the machine of a HostClaim by its name", func() {
		claimed := func(name, namespace string) edit {
			return with(map[string]any{"apiVersion": "metal3.io/v1alpha1", "kind": "HostClaim", "namespace": namespace, "name": name}, "spec", "consumerRef")
		}
		d, _ := driverOf(interceptor.Funcs{}, bmh(claimed("m", builder.Namespace)))
		h := of(d.Live)
		Expect(d.PowerOff(ctx, h, owner())).To(Succeed())
		key, ok := d.Machine(ctx, bmh(claimed("m", builder.Namespace)))
		Expect(key).To(Equal(client.ObjectKey{Namespace: builder.Namespace, Name: "m"}))
		Expect(ok).To(BeTrue())
		expectHost(bmh(claimed("n", builder.Namespace)), machine(), host.ErrNoHost)
		expectHost(bmh(claimed("m", "shoot--test--two")), machine(), host.ErrNoHost)
	})

	DescribeTable("X2 hosts of other machines", func(e edit) { expectHost(bmh(e), machine(), host.ErrNoHost) },
		Entry("another group's claim", with(map[string]any{"apiVersion": "a/v1", "kind": "HostClaim", "namespace": builder.Namespace, "name": "m"}, "spec", "consumerRef")),
		Entry("a claim of no group", with(map[string]any{"kind": "HostClaim", "namespace": builder.Namespace, "name": "m"}, "spec", "consumerRef")),
		Entry("a Machine of the claims' group", with("metal3.io/v1alpha1", "spec", "consumerRef", "apiVersion")),
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
			h := of(d.Of)
			Expect(d.PowerOff(ctx, h, owner())).To(Succeed())
			Expect(writes).To(Equal(1))

			u := read(c)
			Expect(u.GetAnnotations()).To(Equal(map[string]string{
				"c":    "d",
				reboot: `{"mode":"hard"}`,
				whose:  `{"seed":"seed","namespace":"shoot--test--one","machine":"m","uid":"machine-m","bootID":"b","time":"2026-03-01T12:00:00Z","on":"host/7","cycles":[{"machine":"machine-m","began":"2026-03-01T12:00:00Z"}]}`,
			}))
			u.SetAnnotations(map[string]string{"c": "d"})
			u.SetResourceVersion("7")
			Expect(u).To(Equal(bmh()))
		})

		It("X3 refuses the request that is there already, and leaves its owner as it is", func() {
			d, c := driverOf(interceptor.Funcs{}, bmh())
			h := of(d.Of)
			Expect(d.PowerOff(ctx, h, owner())).To(Succeed())
			before := read(c)
			later := owner()
			later.Time = later.Time.Add(time.Minute)
			expectConflict(d.PowerOff(ctx, h, later))
			Expect(read(c)).To(Equal(before))
		})

		DescribeTable("X1 refuses a host that is not as it was read any more", func(e edit) {
			d, _ := driverOf(interceptor.Funcs{}, bmh())
			h := of(d.Of)
			changed, c := driverOf(interceptor.Funcs{}, bmh(e))
			before := read(c)
			expectConflict(changed.PowerOff(ctx, h, owner()))
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
			h := of(d.Of)
			expectConflict(d.PowerOff(ctx, h, owner()))
			Expect(read(c).GetAnnotations()).To(Equal(map[string]string{"c": "d"}))
		})

		It("X3 is not in doubt about a write whose answer was lost", func() {
			d, c := driverOf(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				return errors.Join(c.Patch(ctx, obj, patch, opts...), errors.New("crash"))
			}}, bmh())
			h := of(d.Of)
			Expect(d.PowerOff(ctx, h, owner())).To(MatchError(ContainSubstring("crash")))
			live := of(d.Live)
			Expect(live.Owner).To(HaveValue(HaveField("UID", BeEquivalentTo("machine-m"))))
			Expect(d.Release(ctx, live)).To(MatchError(ContainSubstring("crash")))
			Expect(read(c).GetAnnotations()).To(Equal(map[string]string{
				"c": "d", whose: `{"seed":"seed","namespace":"shoot--test--one","cycles":[{"machine":"machine-m","began":"2026-03-01T12:00:00Z"}]}`,
			}))
			Expect(d.Release(ctx, live)).To(Succeed())
		})

		DescribeTable("X2 takes back what is the machine's", func(e edit, annotations map[string]string) {
			d, _ := driverOf(interceptor.Funcs{}, bmh(requested))
			h := of(d.Of)
			now, c := driverOf(interceptor.Funcs{}, bmh(e))
			Expect(now.Release(ctx, h)).To(Succeed())
			Expect(read(c).GetAnnotations()).To(Equal(annotations))
		},
			Entry("the request, and leaves the history", edit(func(u *unstructured.Unstructured) { requested(u); annotated(whose, history(ours, "gone", "11:00"))(u) }), map[string]string{"c": "d", whose: past}),
			Entry("but not what is the history only", annotated(whose, past), map[string]string{"c": "d", whose: past}),
			Entry("the request, that of a version that knew no history", edit(requested), map[string]string{"c": "d"}),
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

	Describe("the history of a host", func() {
		began := func(machine string, hours time.Duration) remediation.Cycle {
			return remediation.Cycle{Machine: types.UID(machine), Began: builder.Start.Add(hours * time.Hour)}
		}

		It("X20 is read with an owner, and without one", func() {
			u := bmh(annotated(whose, past))
			expectHost(u, machine(), remediation.Host{Namespace: "hosts", Name: "h", UID: "host", On: new(true), Cycles: []remediation.Cycle{began("gone", -1)}})
			annotated(whose, history(ours, "gone", "11:00"))(u)
			annotated(reboot, "")(u)
			expectHost(u, machine(), remediation.Host{Namespace: "hosts", Name: "h", UID: "host", On: new(true), Requested: true, Owner: someone, Cycles: []remediation.Cycle{began("gone", -1)}})
		})

		It("X20 has the cycles of all machines of a day", func() {
			d, c := driverOf(interceptor.Funcs{}, bmh())
			for i, at := range []time.Duration{0, 1, 23, 24, 25} {
				h := of(d.Live)
				o := owner()
				o.UID, o.Time = types.UID(fmt.Sprint("machine-", i)), builder.Start.Add(at*time.Hour)
				Expect(d.PowerOff(ctx, h, o)).To(Succeed())
				h.Owner = &o
				Expect(d.Release(ctx, h)).To(Succeed())
				Expect(read(c).GetAnnotations()).NotTo(HaveKey(reboot))
			}
			h := of(d.Live)
			Expect(h.Owner).To(BeNil())
			Expect(h.Taken).To(BeEmpty())
			Expect(h.Cycles).To(Equal([]remediation.Cycle{began("machine-2", 23), began("machine-3", 24), began("machine-4", 25)}))
		})

		It("X20 has the ten newest cycles", func() {
			d, _ := driverOf(interceptor.Funcs{}, bmh())
			for i := range 12 {
				h := of(d.Live)
				o := owner()
				o.Time = o.Time.Add(time.Duration(i) * time.Hour)
				Expect(d.PowerOff(ctx, h, o)).To(Succeed())
				h.Owner = &o
				Expect(d.Release(ctx, h)).To(Succeed())
			}
			h := of(d.Live)
			Expect(h.Cycles).To(HaveLen(10))
			Expect(h.Cycles[0]).To(Equal(began("machine-m", 2)))
			Expect(h.Cycles[9]).To(Equal(began("machine-m", 11)))
		})
	})

	DescribeTable("X20 puts the owner of a request back", func(e edit, reason string) {
		d, _ := driverOf(interceptor.Funcs{}, bmh(annotated(reboot, ""), off))
		h := of(d.Of)
		Expect(h.Unowned).To(BeTrue())
		writes := 0
		now, c := driverOf(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			writes++
			return c.Patch(ctx, obj, patch, opts...)
		}}, bmh(annotated(reboot, ""), off, e))
		before := read(c)
		err := now.Restore(ctx, h, *someone)
		if reason != "" {
			Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
			Expect(err).To(MatchError(HaveSuffix(reason)))
			Expect(read(c)).To(Equal(before))
			return
		}
		Expect(err).NotTo(HaveOccurred())
		Expect(writes).To(Equal(1))
		Expect(read(c).GetAnnotations()).To(And(HaveKeyWithValue("c", "d"), HaveKeyWithValue(reboot, `{"mode":"hard"}`)))
		live := of(now.Live)
		Expect(live.Owner).To(Equal(someone))
		Expect(live.OffSinceRequest).To(BeTrue())
		Expect(live.Unowned).To(BeFalse())
		Expect(live.Cycles).To(ContainElement(remediation.Cycle{Machine: "machine-m", Began: builder.Start}))
		expectConflict(now.Restore(ctx, h, *someone)) // a second time
	},
		Entry("that was removed", edit(func(*unstructured.Unstructured) {}), ""),
		Entry("that cannot be read", annotated(whose, "{"), ""),
		Entry("that has a history", annotated(whose, past), ""),
		Entry("but not while the host is serviced", with("servicing", "status", "operationalStatus"), "it is being serviced"),
		Entry("but not if there is one", annotated(whose, ours), "its request has an owner"),
		Entry("but not if there is another one", annotated(whose, `{"uid":"other"}`), "its request has an owner"),
		Entry("but not if the request was taken back", without("metadata", "annotations", reboot), "it is not asked to be off any more"),
		Entry("but not of another client's", edit(func(u *unstructured.Unstructured) {
			without("metadata", "annotations", reboot)(u)
			annotated("reboot.metal3.io/other", "")(u)
		}), "it is not asked to be off any more"),
		Entry("but not of another object", with("other", "metadata", "uid"), "it is another object now"),
		Entry("but not of another machine's", with("n", "spec", "consumerRef", "name"), "it is that of somebody else"),
		Entry("but not of nobody's", without("spec", "consumerRef"), "it is that of somebody else"),
	)

	It("X18 takes nothing back while the host is serviced", func() {
		before, _ := driverOf(interceptor.Funcs{}, bmh(requested))
		h := of(before.Live)
		d, c := driverOf(interceptor.Funcs{}, bmh(requested, with("servicing", "status", "operationalStatus")))
		expectConflict(d.Release(ctx, h))
		Expect(read(c).GetAnnotations()).To(HaveKey(reboot))
	})

	It("X20 puts no owner on a host that changes meanwhile", func() {
		d, c := driverOf(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			u := read(c)
			without("metadata", "annotations", reboot)(u)
			Expect(c.Update(ctx, u)).To(Succeed())
			return c.Patch(ctx, obj, patch, opts...)
		}}, bmh(annotated(reboot, "")))
		h := of(d.Of)
		expectConflict(d.Restore(ctx, h, *someone))
		Expect(read(c).GetAnnotations()).To(Equal(map[string]string{"c": "d"}))
	})

	It("X15 forgets the cycles of a control plane, and goes on after an error", func() {
		named := func(name, record string) *unstructured.Unstructured {
			return bmh(func(u *unstructured.Unstructured) { u.SetName(name) }, annotated(whose, record))
		}
		broken := errors.New("broken")
		d, c := driverOf(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if obj.GetName() == "broken" {
				return broken
			}
			return c.Patch(ctx, obj, patch, opts...)
		}},
			named("broken", past), named("past", past), named("off", history(ours, "gone", "11:00")),
			named("other-seed", strings.Replace(past, `"seed"`, `"seed":"other","x"`, 1)),
			named("other-shoot", strings.Replace(past, "one", "two", 1)),
			named("unreadable", "x"), bmh(),
		)
		Expect(d.Forget(ctx, "seed", builder.Namespace)).To(MatchError(broken))
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(bmh().GroupVersionKind())
		Expect(c.List(ctx, list)).To(Succeed())
		var with []string
		for i := range list.Items {
			Expect(list.Items[i].GetAnnotations()).To(HaveKeyWithValue("c", "d"))
			if _, ok := list.Items[i].GetAnnotations()[whose]; ok {
				with = append(with, list.Items[i].GetName())
			}
		}
		Expect(with).To(ConsistOf("broken", "off", "other-seed", "other-shoot", "unreadable"))
	})

	It("X2 lists the hosts of a control plane by their owner", func() {
		named := func(name, owner string) *unstructured.Unstructured {
			return bmh(func(u *unstructured.Unstructured) { u.SetName(name) }, annotated(whose, owner))
		}
		d, _ := driverOf(interceptor.Funcs{}, bmh(),
			named("requested", ours), named("other-consumer", ours),
			named("other-seed", `{"seed":"other","namespace":"shoot--test--one","uid":"u"}`),
			named("other-shoot", `{"seed":"seed","namespace":"shoot--test--two","uid":"u"}`),
			named("unreadable", "x"), named("history", past),
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
		Expect(d.Kind.Objects()).To(HaveExactElements(HaveField("GroupVersionKind()", bmh().GroupVersionKind())))
		mapping, err := metal3.Mapper().RESTMapping(schema.GroupKind{Group: "metal3.io", Kind: "BareMetalHost"}, "v1alpha1")
		Expect(err).NotTo(HaveOccurred())
		Expect(mapping.Resource.Resource).To(Equal("baremetalhosts"))
		Expect(mapping.Scope).To(Equal(meta.RESTScopeNamespace))
		Expect(metal3.PolicyRules()).To(HaveExactElements(And(HaveField("Resources", []string{"baremetalhosts"}), HaveField("Verbs", []string{"get", "list", "watch", "patch"}))))
	})

	It("P14 keeps nothing in a cache but what is read", func() {
		for _, by := range metal3.ByObject() {
			stripped, err := by.Transform(bmh(requested, failed("", ""), with("OK", "status", "operationalStatus"), with("2026-03-01T12:00:00Z", "status", "lastUpdated")))
			Expect(err).NotTo(HaveOccurred())
			Expect(stripped.(runtime.Unstructured).UnstructuredContent()).To(HaveKeyWithValue("status", Equal(map[string]any{
				"poweredOn": true, "operationalStatus": "OK", "lastUpdated": "2026-03-01T12:00:00Z", "errorType": "", "errorMessage": "", "provisioning": map[string]any{"state": "provisioned"},
			})))
			again, err := by.Transform(stripped)
			Expect(err).NotTo(HaveOccurred())
			Expect(again).To(Equal(stripped))
			tombstone := struct{}{}
			Expect(by.Transform(tombstone)).To(Equal(tombstone))
		}
	})
})
