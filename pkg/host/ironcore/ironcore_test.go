// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package ironcore_test

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
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/ironcore"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	reboot = "reboot.metal3.io/machine-remediation"
	whose  = "machine-preservation.extensions.gardener.cloud/power-cycle-owner"
	ours   = `{"seed":"seed","namespace":"shoot--test--one","machine":"m","uid":"machine-m","time":"2026-03-01T12:00:00Z","on":"server/1"}`
)

var ctx = context.Background()

type object = *unstructured.Unstructured

// pair is a claim that is on, and its Server.
type pair struct{ claim, server object }

// edit changes a pair.
type edit func(pair)

func all(edits ...edit) edit {
	return func(p pair) {
		for _, e := range edits {
			e(p)
		}
	}
}

func parse(manifest string) object {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(manifest), &u.Object)).To(Succeed())
	return u
}

func hosts(edits ...edit) pair {
	GinkgoHelper()
	p := pair{
		claim: parse(`
apiVersion: metal.ironcore.dev/v1alpha1
kind: ServerClaim
metadata: {namespace: metal, name: m, uid: claim, resourceVersion: "3", annotations: {c: d}, labels: {a: b}}
spec: {power: "On", serverRef: {name: s}, image: i, ignitionSecretRef: {name: i}}
status: {phase: Bound}
`),
		server: parse(`
apiVersion: metal.ironcore.dev/v1alpha1
kind: Server
metadata: {name: s, uid: server, resourceVersion: "7"}
spec:
  systemUUID: x
  power: "On"
  serverClaimRef: {apiVersion: metal.ironcore.dev/v1alpha1, kind: ServerClaim, namespace: metal, name: m, uid: claim}
status: {powerState: "On", state: Reserved, manufacturer: x, networkInterfaces: [{name: eth0}]}
`),
	}
	all(edits...)(p)
	return p
}

func set(u object, value any, path ...string) {
	Expect(unstructured.SetNestedField(u.Object, value, path...)).To(Succeed())
}

func claim(value any, path ...string) edit  { return func(p pair) { set(p.claim, value, path...) } }
func server(value any, path ...string) edit { return func(p pair) { set(p.server, value, path...) } }

func annotated(key, value string) edit { return claim(value, "metadata", "annotations", key) }

func serverAnnotated(key, value string) edit { return server(value, "metadata", "annotations", key) }

const operation = "metal.ironcore.dev/operation"

// requested is right after the request.
var requested = all(annotated(reboot, ""), annotated(whose, ours), claim("Off", "spec", "power"))

// off is what the metal-operator makes of it.
var off = all(server("Off", "spec", "power"), server("Off", "status", "powerState"))

// v07 is how v0.7.0 has a Server: it names its claim without the UID.
var v07 edit = func(p pair) {
	set(p.server, map[string]any{"namespace": "metal", "name": "m"}, "spec", "serverClaimRef")
}

// newest is how the metal-operator has a Server after v0.7.0: its power is asked for by the claim alone.
var newest = all(v07, func(p pair) { unstructured.RemoveNestedField(p.server.Object, "spec", "power") })

func nothing(pair) {}

func machine(opts ...builder.MachineOption) *machinev1alpha1.Machine {
	return builder.Machine("m", append([]builder.MachineOption{providerID("ironcore-metal://metal/m")}, opts...)...)
}

func providerID(id string) builder.MachineOption {
	return func(m *machinev1alpha1.Machine) { m.Spec.ProviderID = id }
}

func owner() remediation.Owner {
	return remediation.Owner{Seed: "seed", Namespace: builder.Namespace, Machine: "m", UID: "machine-m", BootID: "b", Time: builder.Start}
}

func strip(u object) object {
	GinkgoHelper()
	for kind, by := range ironcore.ByObject() {
		if kind.GetObjectKind().GroupVersionKind() == u.GroupVersionKind() {
			before := u.DeepCopy()
			stripped, err := by.Transform(u)
			Expect(err).NotTo(HaveOccurred())
			Expect(u).To(Equal(before))
			return stripped.(object)
		}
	}
	Fail("no kind")
	return nil
}

// driverOf returns a driver whose cache keeps what it says, and the client of the API server.
func driverOf(funcs interceptor.Funcs, pairs ...pair) (*host.Driver, client.WithWatch) {
	GinkgoHelper()
	live, cached := fakeclient.NewClientBuilder().WithInterceptorFuncs(funcs), fakeclient.NewClientBuilder()
	for _, p := range pairs {
		for _, u := range []object{p.claim, p.server} {
			if u.GetName() == "" {
				continue
			}
			live.WithObjects(u.DeepCopy())
			kept := strip(u)
			kept.SetFinalizers(u.GetFinalizers()) // as the fake wants it
			cached.WithObjects(kept)
		}
	}
	c := live.Build()
	return &host.Driver{Kind: ironcore.Kind{}, Access: host.Access{Namespace: builder.Namespace, HostNamespace: "metal", Cached: cached.Build(), APIReader: c, Writer: c}}, c
}

// only has one object.
type only struct {
	client.Reader
	object object
}

func (o only) Get(_ context.Context, _ client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	o.object.DeepCopyInto(into.(object))
	return nil
}

// written is what an API server notes of who has written an object or what belongs to it, on the day of the tests.
func written(subresource, at string) any {
	return map[string]any{
		"manager": "m", "operation": "Update", "apiVersion": "metal.ironcore.dev/v1alpha1", "fieldsType": "FieldsV1", "fieldsV1": map[string]any{"f:spec": map[string]any{}},
		"subresource": subresource, "time": "2026-03-01T" + at + "Z",
	}
}

func read(c client.Client) object {
	GinkgoHelper()
	u := host.New(hosts().claim.GroupVersionKind())
	Expect(c.Get(ctx, client.ObjectKey{Namespace: "metal", Name: "m"}, u)).To(Succeed())
	return u
}

func power(u object) string {
	value, _, err := unstructured.NestedString(u.Object, "spec", "power")
	Expect(err).NotTo(HaveOccurred())
	return value
}

// of returns the host as the cache and the API server have it.
func of(d *host.Driver) *remediation.Host {
	GinkgoHelper()
	cached, err := d.Of(ctx, machine())
	Expect(err).NotTo(HaveOccurred())
	live, err := d.Live(ctx, machine())
	Expect(err).NotTo(HaveOccurred())
	Expect([]bool{cached.Live, live.Live}).To(Equal([]bool{false, true}), "which of them may be behind")
	live.Live = false
	Expect(cached).To(Equal(live), "what the cache keeps")
	return live
}

var _ = Describe("ServerClaims", func() {
	DescribeTable("the whole of a host, and its name", func(e edit, name string, kinds ...string) {
		d, _ := driverOf(interceptor.Funcs{}, hosts(e))
		objects, err := d.Whole(ctx, machine())
		Expect(errors.Is(err, host.ErrNoHost)).To(Equal(len(kinds) == 0), "%v", err)
		var actual []string
		for i := range objects {
			actual = append(actual, objects[i].GetKind())
		}
		Expect(actual).To(HaveExactElements(kinds))
		Expect(d.NameOf(ctx, machine())).To(Equal(name))
	},
		Entry("bound", nothing, "s", "ServerClaim", "Server"),
		Entry("bound to none", edit(func(p pair) { unstructured.RemoveNestedField(p.claim.Object, "spec", "serverRef") }), "m", "ServerClaim"),
		Entry("bound to one that is gone", claim("gone", "spec", "serverRef", "name"), "gone", "ServerClaim"),
		Entry("that of another machine", claim("n", "metadata", "name"), "m"),
	)

	DescribeTable("names of hosts on machines", func(id, namespace, name string) {
		key, ok := ironcore.Kind{}.Key(machine(providerID(id)))
		Expect(ok).To(Equal(name != ""))
		Expect(key).To(Equal(client.ObjectKey{Namespace: namespace, Name: name}))
	},
		Entry("provider id", "ironcore-metal://metal/m", "metal", "m"),
		Entry("of another name", "ironcore-metal://metal/n", "metal", "n"),
		Entry("three slashes", "ironcore-metal:///metal/m", "", ""),
		Entry("too many parts", "ironcore-metal://metal/m/x", "", ""),
		Entry("no name", "ironcore-metal://metal", "", ""),
		Entry("empty name", "ironcore-metal://metal/", "", ""),
		Entry("another provider", "local:///m", "", ""),
		Entry("no provider id", "", "", ""),
	)

	DescribeTable("X1 what a host reports", func(e edit, on *bool, offSince bool) {
		d, _ := driverOf(interceptor.Funcs{}, hosts(e))
		h := of(d)
		Expect(h.On).To(Equal(on))
		Expect(h.OffSinceRequest).To(Equal(offSince))
		Expect(h.UID).To(BeEquivalentTo("claim"))
	},
		Entry("on", edit(nothing), new(true), false),
		Entry("on and requested", requested, new(true), false),
		Entry("off since the request", all(requested, off), new(false), true),
		Entry("off in the version that was on", all(requested, off, server("1", "metadata", "resourceVersion")), new(false), false),
		Entry("off in an earlier version", all(requested, off, annotated(whose, `{"seed":"seed","namespace":"shoot--test--one","machine":"m","uid":"machine-m","on":"server/10"}`)), new(false), false),
		Entry("off, but another Server of that name", all(requested, off, server("other", "metadata", "uid")), new(false), false),
		Entry("off, but a version that nobody can read", all(requested, off, annotated(whose, `{"uid":"machine-m","on":"server/x"}`)), new(false), false),
		Entry("off, but the claim is that of another machine's request", all(requested, off, annotated(whose, `{"uid":"other","on":"server/1"}`)), new(false), false),
		Entry("off, but the request was taken back", all(off, annotated(whose, ours), claim("Off", "spec", "power")), new(false), false),
		Entry("off, but the claim is on again", all(requested, off, claim("On", "spec", "power")), nil, false),
		Entry("off, but somebody else's request", all(off, annotated(reboot, ""), claim("Off", "spec", "power")), new(false), false),
		Entry("off, but to be on", all(requested, off, server("On", "spec", "power")), nil, false),
		Entry("off, but in maintenance", all(requested, off, server("Maintenance", "status", "state")), nil, false),
		Entry("off, but a maintenance is to come", all(requested, off, server("x", "spec", "serverMaintenanceRef", "name")), nil, false),
		Entry("off, but available", all(requested, off, server("Available", "status", "state")), nil, false),
		Entry("off, but claimed by another", all(requested, off, server("other", "spec", "serverClaimRef", "uid")), nil, false),
		Entry("off, but nobody looks", all(requested, off, serverAnnotated(operation, "ignore-reconciliation")), nil, false),
		Entry("off, but to be power-cycled", all(requested, off, serverAnnotated(operation, "power-cycle-server")), nil, false),
		Entry("on, but nobody looks", serverAnnotated(operation, "ignore-reconciliation"), nil, false),
		Entry("on, and to be power-cycled", serverAnnotated(operation, "power-cycle-server"), new(true), false),

		Entry("v0.7.0, on", v07, new(true), false),
		Entry("v0.7.0, off since the request", all(requested, off, v07), new(false), true),
		Entry("v0.7.0, off, but to be on", all(requested, off, v07, server("On", "spec", "power")), nil, false),
		Entry("v0.7.0, off, but the claim is on again", all(off, v07), nil, false),
		Entry("v0.7.0, off, but claimed by another", all(requested, off, v07, server("n", "spec", "serverClaimRef", "name")), nil, false),
		Entry("v0.7.0, off, but nobody looks", all(requested, off, v07, serverAnnotated(operation, "ignore")), nil, false),
		Entry("v0.7.0, off, but nobody looks at what belongs to another", all(requested, off, v07, serverAnnotated(operation, "ignore-propagated")), nil, false),
		Entry("v0.7.0, off, but nobody looks at it and at what belongs to it", all(requested, off, v07, serverAnnotated(operation, "ignore-child-and-self")), nil, false),
		Entry("v0.7.0, off, but in maintenance", all(requested, off, v07, server("Maintenance", "status", "state")), nil, false),
		Entry("v0.7.0, off, but to be parked", all(requested, off, v07, serverAnnotated(operation, "park")), nil, false),
		Entry("v0.7.0, on, and to be parked", all(requested, v07, serverAnnotated(operation, "park")), new(true), false),

		Entry("after v0.7.0, on", newest, new(true), false),
		Entry("after v0.7.0, on and requested", all(requested, newest), new(true), false),
		Entry("after v0.7.0, off since the request", all(requested, off, newest), new(false), true),
		Entry("after v0.7.0, off in the version that was on", all(requested, off, newest, server("1", "metadata", "resourceVersion")), new(false), false),
		Entry("after v0.7.0, off, but the claim is on", all(off, newest), nil, false),
		Entry("after v0.7.0, off as v0.7.0 left it, but the claim is on", all(off, v07), nil, false),
		Entry("after v0.7.0, off, but claimed by another", all(requested, off, newest, server("n", "spec", "serverClaimRef", "name")), nil, false),
		Entry("after v0.7.0, off, but to be parked", all(requested, off, newest, serverAnnotated(operation, "park")), nil, false),
		Entry("after v0.7.0, off, but parked", all(requested, off, newest, serverAnnotated("metal.ironcore.dev/parked", "true"), server("Parked", "status", "state")), nil, false),
		Entry("after v0.7.0, off, but parked right now", all(requested, off, newest, serverAnnotated("metal.ironcore.dev/parked", "true")), nil, false),
		Entry("after v0.7.0, off, and not parked any more", all(requested, off, newest, server("Parked", "status", "state")), nil, false),
		Entry("after v0.7.0, on when it was parked", all(newest, serverAnnotated("metal.ironcore.dev/parked", "true"), server("Parked", "status", "state")), nil, false),
		Entry("after v0.7.0, off, but released", all(requested, off, newest, server("Released", "status", "state")), nil, false),
		Entry("powering off", all(requested, server("Off", "spec", "power"), server("PoweringOff", "status", "powerState")), nil, false),
		Entry("powering on", server("PoweringOn", "status", "powerState"), nil, false),
		Entry("paused", server("Paused", "status", "powerState"), nil, false),
		Entry("nothing", edit(func(p pair) { unstructured.RemoveNestedField(p.server.Object, "status") }), nil, false),
		Entry("no Server", edit(func(p pair) { p.server.SetName("") }), nil, false),
	)

	It("X1 knows the owner of a request", func() {
		d, _ := driverOf(interceptor.Funcs{}, hosts(requested))
		Expect(of(d)).To(HaveValue(Equal(remediation.Host{
			Namespace: "metal", Name: "m", UID: "claim", On: new(true), Requested: true,
			Owner: &remediation.Owner{Seed: "seed", Namespace: builder.Namespace, Machine: "m", UID: "machine-m", Time: builder.Start, On: "server/1"},
		})))
	})

	DescribeTable("X14 hosts of others", func(e edit, taken string) {
		d, c := driverOf(interceptor.Funcs{}, hosts(e))
		h := of(d)
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
		Entry("nobody", edit(nothing), ""),
		Entry("nobody, with the rest of a request of ours", annotated(whose, ours), ""),
		Entry("our key without an owner", annotated(reboot, ""), "somebody else asks for it to be off (annotation reboot.metal3.io/machine-remediation)"),
		Entry("our key with an owner that cannot be read", all(annotated(reboot, ""), annotated(whose, "{}")), "somebody else asks for it to be off (annotation reboot.metal3.io/machine-remediation)"),
		Entry("off by somebody", claim("Off", "spec", "power"), "somebody else keeps it off"),
		Entry("the machine before", all(requested, annotated(whose, `{"namespace":"shoot--test--one","machine":"m","uid":"other"}`)), "it is off for machine shoot--test--one/m, which had it before"),
		Entry("bound to nothing", edit(func(p pair) { unstructured.RemoveNestedField(p.claim.Object, "spec", "serverRef") }), "it is bound to no Server"),
		Entry("bound to what is gone", edit(func(p pair) { p.server.SetName("") }), "it is bound to no Server"),
		Entry("a Server without claim", edit(func(p pair) { unstructured.RemoveNestedField(p.server.Object, "spec", "serverClaimRef") }), "its Server is that of another ServerClaim"),
		Entry("a Server of another claim", server("n", "spec", "serverClaimRef", "name"), "its Server is that of another ServerClaim"),
		Entry("a Server of a claim before", server("other", "spec", "serverClaimRef", "uid"), "its Server is that of another ServerClaim"),
		Entry("a Server of another namespace", server("n", "spec", "serverClaimRef", "namespace"), "its Server is that of another ServerClaim"),
		Entry("a claim that nobody acts on", annotated(operation, "ignore-reconciliation"), "nobody acts on it (annotation metal.ironcore.dev/operation)"),
		Entry("a Server that nobody acts on", serverAnnotated(operation, "ignore-child-and-self-reconciliation"), "nobody acts on it (annotation metal.ironcore.dev/operation)"),
		Entry("a Server that is to be reset", serverAnnotated(operation, "force-on-server"), `its Server is about to do "force-on-server"`),
		Entry("maintenance to come", server("x", "spec", "serverMaintenanceRef", "name"), "its Server is in maintenance"),
		Entry("maintenance", server("Maintenance", "status", "state"), "its Server is in maintenance"),
		Entry("an error", server("Error", "status", "state"), "its operator reports: its Server is in state Error"),
		Entry("another state", server("Discovery", "status", "state"), `its Server is not Reserved but "Discovery"`),
		Entry("v0.7.0, nobody", v07, ""),
		Entry("v0.7.0, a Server of another claim", all(v07, server("n", "spec", "serverClaimRef", "name")), "its Server is that of another ServerClaim"),
		Entry("v0.7.0, a claim that nobody acts on", all(v07, annotated(operation, "ignore")), "nobody acts on it (annotation metal.ironcore.dev/operation)"),
		Entry("v0.7.0, a Server that nobody acts on", all(v07, serverAnnotated(operation, "ignore")), "nobody acts on it (annotation metal.ironcore.dev/operation)"),
		Entry("v0.7.0, maintenance to come", all(v07, server("x", "spec", "serverMaintenanceRef", "name")), "its Server is in maintenance"),
		Entry("after v0.7.0, nobody", newest, ""),
		Entry("after v0.7.0, a Server that is to be parked", all(newest, serverAnnotated(operation, "park")), "its Server is about to be parked"),
		Entry("after v0.7.0, a Server that is parked right now", all(newest, serverAnnotated("metal.ironcore.dev/parked", "true")), "its Server is parked"),
		Entry("after v0.7.0, a parked Server", all(newest, serverAnnotated("metal.ironcore.dev/parked", "true"), server("Parked", "status", "state")), "its Server is parked"),
		Entry("after v0.7.0, a Server that is to go on", all(newest, serverAnnotated("metal.ironcore.dev/parked", "true"), serverAnnotated(operation, "unpark"), server("Parked", "status", "state")), "its Server is parked"),
		Entry("after v0.7.0, a Server that goes on", all(newest, server("Parked", "status", "state")), "its Server is parked"),
		Entry("being deleted", all(claim("2026-03-01T12:00:00Z", "metadata", "deletionTimestamp"), func(p pair) { p.claim.SetFinalizers([]string{"a/b"}) }), "it is being deleted"),
	)

	DescribeTable("X18 who works on it, while it is off for a request as well", func(e edit, servicing string) {
		for _, asked := range []edit{nothing, all(requested, off)} {
			d, _ := driverOf(interceptor.Funcs{}, hosts(asked, e))
			h := of(d)
			Expect(h.Servicing).To(Equal(servicing))
			Expect(h.OffSinceRequest).To(Equal(servicing == "" && h.Requested))
		}
	},
		Entry("nobody", edit(nothing), ""),
		Entry("a maintenance to come", server("x", "spec", "serverMaintenanceRef", "name"), "its Server is in maintenance"),
		Entry("a maintenance", server("Maintenance", "status", "state"), "its Server is in maintenance"),
		Entry("v0.7.0, nobody", v07, ""),
		Entry("v0.7.0, a maintenance", all(v07, server("x", "spec", "serverMaintenanceRef", "name"), server("Maintenance", "status", "state")), "its Server is in maintenance"),
		Entry("v0.7.0, to be parked", all(v07, serverAnnotated(operation, "park")), "its Server is about to be parked"),
		Entry("after v0.7.0, to be parked", all(newest, serverAnnotated(operation, "park")), "its Server is about to be parked"),
		Entry("after v0.7.0, parked right now", all(newest, serverAnnotated("metal.ironcore.dev/parked", "true")), "its Server is parked"),
		Entry("after v0.7.0, parked", all(newest, serverAnnotated("metal.ironcore.dev/parked", "true"), server("Parked", "status", "state")), "its Server is parked"),
		Entry("after v0.7.0, to go on", all(newest, serverAnnotated("metal.ironcore.dev/parked", "true"), serverAnnotated(operation, "unpark")), "its Server is parked"),
	)

	It("X18 X20 tells nothing of the Server of another claim", func() {
		d, _ := driverOf(interceptor.Funcs{}, hosts(server("n", "spec", "serverClaimRef", "name"), server("Maintenance", "status", "state")))
		Expect(of(d).Servicing).To(BeEmpty())
		d, _ = driverOf(interceptor.Funcs{}, hosts(server("n", "spec", "serverClaimRef", "name"), server("Error", "status", "state")))
		Expect(of(d).Error).To(BeEmpty())
	})

	DescribeTable("X20 what may be a request of ours without its owner", func(e edit, unowned bool) {
		d, _ := driverOf(interceptor.Funcs{}, hosts(e))
		Expect(of(d).Unowned).To(Equal(unowned))
	},
		Entry("nothing", edit(nothing), false),
		Entry("the key", annotated(reboot, ""), true),
		Entry("the power", claim("Off", "spec", "power"), true),
		Entry("both", all(annotated(reboot, ""), claim("Off", "spec", "power")), true),
		Entry("an owner that cannot be read", all(requested, annotated(whose, "{}")), true),
		Entry("a request", requested, false),
		Entry("an owner without a request", annotated(whose, ours), false),
	)

	DescribeTable("X17 when its power was reported last", func(fields []any, expected time.Time) {
		p := hosts()
		if fields != nil {
			set(p.server, fields, "metadata", "managedFields")
		}
		for _, s := range []object{p.server, strip(p.server)} {
			report, err := ironcore.Kind{}.Report(ctx, only{object: s}, p.claim)
			Expect(err).NotTo(HaveOccurred())
			Expect(report.Changed).To(BeTemporally("==", expected))
		}
	},
		Entry("nobody says", nil, time.Time{}),
		Entry("by nobody", []any{written("", "12:00:00")}, time.Time{}),
		Entry("at a time that is not said", []any{map[string]any{"manager": "m", "operation": "Update", "subresource": "status"}}, time.Time{}),
		Entry("by who changes its status", []any{written("", "14:00:00"), written("status", "12:00:00")}, builder.Start),
		Entry("by the last who does", []any{written("status", "11:00:00"), written("status", "12:00:00"), written("status", "10:00:00"), written("scale", "13:00:00")}, builder.Start),
	)

	It("X2 X14 has no host for a machine of another name, or without a claim", func() {
		d, _ := driverOf(interceptor.Funcs{}, hosts())
		_, err := d.Of(ctx, builder.Machine("n", providerID("ironcore-metal://metal/m")))
		Expect(err).To(MatchError(host.ErrNoHost))
		_, err = d.Of(ctx, builder.Machine("n", providerID("ironcore-metal://metal/n")))
		Expect(err).To(MatchError(host.ErrNoHost))
		_, err = d.Of(ctx, builder.Machine("m"))
		Expect(err).To(MatchError(host.ErrNoHost))
	})

	It("X14 names the kind if it is not served", func() {
		for _, missing := range []string{"ServerClaim", "Server"} {
			d, _ := driverOf(interceptor.Funcs{Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
				if obj.GetObjectKind().GroupVersionKind().Kind == missing {
					return apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, key.Name, "404 page not found", 0, true)
				}
				return c.Get(ctx, key, obj, opts...)
			}}, hosts())
			_, err := d.Live(ctx, machine())
			Expect(err).To(MatchError(host.ErrNoKind))
			Expect(err).To(MatchError(ContainSubstring("failed to get " + missing + ` "`)))
			Expect(err).NotTo(MatchError(host.ErrNoHost))
		}
	})

	Describe("requests", func() {
		It("X2 asks with the owner and the power in one write, and changes nothing else", func() {
			writes := 0
			d, c := driverOf(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				writes++
				return c.Patch(ctx, obj, patch, opts...)
			}}, hosts())
			Expect(d.PowerOff(ctx, of(d), owner())).To(Succeed())
			Expect(writes).To(Equal(1))

			expected := hosts(claim("Off", "spec", "power")).claim
			u := read(c)
			Expect(u.GetAnnotations()).To(Equal(map[string]string{
				"c":    "d",
				reboot: "",
				whose:  `{"seed":"seed","namespace":"shoot--test--one","machine":"m","uid":"machine-m","bootID":"b","time":"2026-03-01T12:00:00Z","on":"server/7","cycles":[{"machine":"machine-m","began":"2026-03-01T12:00:00Z"}]}`,
			}))
			u.SetAnnotations(map[string]string{"c": "d"})
			u.SetResourceVersion("3")
			Expect(u).To(Equal(expected))
		})

		It("X3 refuses the request that is there already, and leaves its owner as it is", func() {
			d, c := driverOf(interceptor.Funcs{}, hosts())
			h := of(d)
			Expect(d.PowerOff(ctx, h, owner())).To(Succeed())
			before := read(c)
			later := owner()
			later.Time = later.Time.Add(time.Minute)
			err := d.PowerOff(ctx, h, later)
			Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
			Expect(read(c)).To(Equal(before))
		})

		DescribeTable("X1 refuses a host that is not as it was read any more", func(e edit) {
			d, _ := driverOf(interceptor.Funcs{}, hosts())
			h := of(d)
			changed, c := driverOf(interceptor.Funcs{}, hosts(e))
			before := read(c)
			err := changed.PowerOff(ctx, h, owner())
			Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
			Expect(read(c)).To(Equal(before))
		},
			Entry("off", off),
			Entry("powering off", server("PoweringOff", "status", "powerState")),
			Entry("maintenance", server("Maintenance", "status", "state")),
			Entry("another object", all(claim("other", "metadata", "uid"), server("other", "spec", "serverClaimRef", "uid"))),
		)

		It("X1 refuses a claim that changes between read and write", func() {
			d, c := driverOf(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				u := read(c)
				set(u, "other", "spec", "image")
				Expect(c.Update(ctx, u)).To(Succeed())
				return c.Patch(ctx, obj, patch, opts...)
			}}, hosts())
			err := d.PowerOff(ctx, of(d), owner())
			Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
			Expect(power(read(c))).To(Equal("On"))
		})

		It("X2 refuses the claim of a machine of another name", func() {
			d, _ := driverOf(interceptor.Funcs{}, hosts())
			other := owner()
			other.Machine = "n"
			err := d.PowerOff(ctx, of(d), other)
			Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
		})

		It("X3 is not in doubt about a write whose answer was lost", func() {
			d, c := driverOf(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				return errors.Join(c.Patch(ctx, obj, patch, opts...), errors.New("crash"))
			}}, hosts())
			Expect(d.PowerOff(ctx, of(d), owner())).To(MatchError(ContainSubstring("crash")))
			live, err := d.Live(ctx, machine())
			Expect(err).NotTo(HaveOccurred())
			Expect(live.Owner).To(HaveValue(HaveField("UID", BeEquivalentTo("machine-m"))))
			Expect(d.Release(ctx, live)).To(MatchError(ContainSubstring("crash")))
			Expect(read(c).GetAnnotations()).To(Equal(map[string]string{
				"c": "d", whose: `{"seed":"seed","namespace":"shoot--test--one","cycles":[{"machine":"machine-m","began":"2026-03-01T12:00:00Z"}]}`,
			}))
			Expect(power(read(c))).To(Equal("On"))
			Expect(d.Release(ctx, live)).To(Succeed())
		})

		DescribeTable("X2 takes back what is the machine's, in one write", func(e edit, annotations map[string]string, expected string) {
			d, _ := driverOf(interceptor.Funcs{}, hosts(requested))
			h := of(d)
			writes := 0
			now, c := driverOf(interceptor.Funcs{Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
				writes++
				return c.Patch(ctx, obj, patch, opts...)
			}}, hosts(e))
			Expect(now.Release(ctx, h)).To(Succeed())
			Expect(writes).To(BeNumerically("<=", 1))
			Expect(read(c).GetAnnotations()).To(Equal(annotations))
			Expect(power(read(c))).To(Equal(expected))
		},
			Entry("the request", requested, map[string]string{"c": "d"}, "On"),
			Entry("its rest", all(annotated(whose, ours), claim("Off", "spec", "power")), map[string]string{"c": "d"}, "On"),
			Entry("of a claim that is on again", all(requested, claim("On", "spec", "power")), map[string]string{"c": "d"}, "On"),
			Entry("of a claim without Server", all(requested, func(p pair) { p.server.SetName("") }), map[string]string{"c": "d"}, "On"),
			Entry("of none", edit(nothing), map[string]string{"c": "d"}, "On"),
			Entry("but not what somebody else keeps off", claim("Off", "spec", "power"), map[string]string{"c": "d"}, "Off"),
			Entry("but not another machine's", all(requested, annotated(whose, `{"uid":"other"}`)), map[string]string{"c": "d", reboot: "", whose: `{"uid":"other"}`}, "Off"),
			Entry("but not one without an owner", all(annotated(reboot, ""), claim("Off", "spec", "power")), map[string]string{"c": "d", reboot: ""}, "Off"),
		)

		It("X18 takes nothing back while the Server is in maintenance", func() {
			h := of(func() *host.Driver { d, _ := driverOf(interceptor.Funcs{}, hosts(requested)); return d }())
			d, c := driverOf(interceptor.Funcs{}, hosts(all(requested, server("Maintenance", "status", "state"))))
			Expect(apierrors.IsConflict(d.Release(ctx, h))).To(BeTrue())
			Expect(power(read(c))).To(Equal("Off"))
		})

		It("X2 takes nothing back of a claim that is gone", func() {
			d, _ := driverOf(interceptor.Funcs{})
			Expect(d.Release(ctx, &remediation.Host{Namespace: "metal", Name: "m", Owner: new(owner())})).To(Succeed())
		})
	})

	It("X2 lists the hosts of a control plane by their owner", func() {
		named := func(name, owner string) pair {
			return hosts(annotated(whose, owner), func(p pair) { p.claim.SetName(name); p.server.SetName("") })
		}
		d, _ := driverOf(interceptor.Funcs{}, hosts(requested), named("n", ours), named("other", ""),
			named("other-seed", `{"seed":"other","namespace":"shoot--test--one","uid":"u"}`),
			named("other-shoot", `{"seed":"seed","namespace":"shoot--test--two","uid":"u"}`),
		)
		owned, err := d.Owned(ctx, "seed", builder.Namespace)
		Expect(err).NotTo(HaveOccurred())
		Expect(owned).To(ConsistOf(And(HaveField("Name", "m"), HaveField("On", HaveValue(BeTrue()))), HaveField("Name", "n")))
		for namespace, n := range map[string]int{"metal": 2, "others": 0} {
			d.HostNamespace = namespace
			Expect(d.Owned(ctx, "seed", builder.Namespace)).To(HaveLen(n))
		}
	})

	It("X12 wakes the machine of a claim and of a Server", func() {
		p := hosts()
		d, _ := driverOf(interceptor.Funcs{}, p)
		for _, u := range []object{p.claim, p.server, strip(p.claim), strip(p.server)} {
			key, ok := d.Machine(ctx, u)
			Expect(ok).To(BeTrue())
			Expect(key).To(Equal(client.ObjectKey{Namespace: builder.Namespace, Name: "m"}))
		}
		_, ok := d.Machine(ctx, hosts(annotated(whose, `{"namespace":"shoot--test--two","machine":"m","uid":"u"}`)).claim)
		Expect(ok).To(BeFalse(), "of another shoot")
		_, ok = d.Machine(ctx, hosts(server("n", "spec", "serverClaimRef", "name")).server)
		Expect(ok).To(BeFalse(), "a claim that is out of reach")
		_, ok = d.Machine(ctx, hosts(func(p pair) { unstructured.RemoveNestedField(p.server.Object, "spec", "serverClaimRef") }).server)
		Expect(ok).To(BeFalse(), "no claim")
	})

	It("watches and maps its kinds alone, and is allowed no more than it needs", func() {
		d, _ := driverOf(interceptor.Funcs{})
		p := hosts()
		Expect(d.Kind.Objects()).To(HaveExactElements(
			HaveField("GroupVersionKind()", p.claim.GroupVersionKind()), HaveField("GroupVersionKind()", p.server.GroupVersionKind())))
		for kind, scope := range map[string]meta.RESTScope{"ServerClaim": meta.RESTScopeNamespace, "Server": meta.RESTScopeRoot} {
			mapping, err := ironcore.Mapper().RESTMapping(schema.GroupKind{Group: "metal.ironcore.dev", Kind: kind}, "v1alpha1")
			Expect(err).NotTo(HaveOccurred())
			Expect(mapping.Scope).To(Equal(scope))
		}
		Expect(ironcore.PolicyRules()).To(HaveExactElements(And(HaveField("Resources", []string{"serverclaims"}), HaveField("Verbs", []string{"get", "list", "watch", "patch"}))))
		Expect(ironcore.ClusterPolicyRules()).To(HaveExactElements(And(HaveField("Resources", []string{"servers"}), HaveField("Verbs", []string{"get", "list", "watch"}))))
	})

	It("P14 keeps nothing in a cache but what is read", func() {
		Expect(runtime.Unstructured(strip(hosts().server)).UnstructuredContent()).To(Equal(map[string]any{
			"apiVersion": "metal.ironcore.dev/v1alpha1", "kind": "Server",
			"metadata": map[string]any{"name": "s", "uid": "server", "resourceVersion": "7"},
			"spec":     map[string]any{"power": "On", "serverClaimRef": map[string]any{"namespace": "metal", "name": "m", "uid": "claim"}},
			"status":   map[string]any{"powerState": "On", "state": "Reserved"},
		}))
		p := hosts()
		set(p.server, []any{written("", "11:00:00"), written("status", "12:00:00")}, "metadata", "managedFields")
		Expect(strip(p.server).Object["metadata"]).To(HaveKeyWithValue("managedFields", []any{map[string]any{"subresource": "status", "time": "2026-03-01T12:00:00Z"}}))
		Expect(strip(hosts(requested).claim).GetAnnotations()).To(HaveLen(2))
	})
})
