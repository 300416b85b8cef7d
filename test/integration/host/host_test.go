// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package host_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/envtest"
	"sigs.k8s.io/yaml"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/drivers"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	reboot  = "reboot.metal3.io/machine-remediation"
	whose   = "machine-preservation.extensions.gardener.cloud/power-cycle-owner"
	patient = time.Minute
)

// world is what keeps the hosts of a kind.
type world struct {
	kind string
	// create creates the host of a machine, which is on, and names it on the machine.
	create func(ctx context.Context, machine *machinev1alpha1.Machine)
	// report makes a host do what it is asked for.
	report func(ctx context.Context, name string)
	// power makes it be on or off by itself.
	power func(ctx context.Context, name string, on bool)
}

var worlds = []world{{
	kind: "BareMetalHost",
	create: func(ctx context.Context, machine *machinev1alpha1.Machine) {
		create(ctx, fmt.Sprintf(`
apiVersion: metal3.io/v1alpha1
kind: BareMetalHost
metadata: {namespace: metal, name: %[1]s, annotations: {a: b}}
spec:
  online: true
  consumerRef: {apiVersion: machine.sapcloud.io/v1alpha1, kind: Machine, namespace: %[2]s, name: %[1]s}
status: {poweredOn: true, operationalStatus: OK, provisioning: {state: provisioned}}
`, machine.Name, builder.Namespace))
		machine.Annotations["metal3.io/BareMetalHost"] = "metal/" + machine.Name
	},
	report: func(ctx context.Context, name string) {
		bmh := get(ctx, "BareMetalHost", name)
		_, asked := bmh.GetAnnotations()[reboot]
		set(ctx, bmh, !asked, "status", "poweredOn")
	},
	power: func(ctx context.Context, name string, on bool) {
		set(ctx, get(ctx, "BareMetalHost", name), on, "status", "poweredOn")
	},
}, {
	kind: "ServerClaim",
	create: func(ctx context.Context, machine *machinev1alpha1.Machine) {
		claim := create(ctx, fmt.Sprintf(`
apiVersion: metal.ironcore.dev/v1alpha1
kind: ServerClaim
metadata: {namespace: metal, name: %[1]s, annotations: {a: b}}
spec: {power: "On", image: i, serverRef: {name: %[1]s}}
status: {phase: Bound}
`, machine.Name))
		create(ctx, fmt.Sprintf(`
apiVersion: metal.ironcore.dev/v1alpha1
kind: Server
metadata: {name: %[1]s}
spec:
  systemUUID: %[1]s
  power: "On"
  serverClaimRef: {apiVersion: metal.ironcore.dev/v1alpha1, kind: ServerClaim, namespace: metal, name: %[1]s, uid: %[2]s}
status: {powerState: "On", state: Reserved}
`, machine.Name, claim.GetUID()))
		machine.Spec.ProviderID = "ironcore-metal://metal/" + machine.Name
	},
	report: func(ctx context.Context, name string) {
		power, _, err := unstructured.NestedString(get(ctx, "ServerClaim", name).Object, "spec", "power")
		Expect(err).NotTo(HaveOccurred())
		switchServer(ctx, name, power)
	},
	power: func(ctx context.Context, name string, on bool) {
		if on {
			switchServer(ctx, name, "On")
		} else {
			switchServer(ctx, name, "Off")
		}
	},
}}

func switchServer(ctx context.Context, name, power string) {
	GinkgoHelper()
	set(ctx, get(ctx, "Server", name), power, "spec", "power")
	set(ctx, get(ctx, "Server", name), power, "status", "powerState")
}

func create(ctx context.Context, manifest string) *unstructured.Unstructured {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	Expect(yaml.Unmarshal([]byte(manifest), &u.Object)).To(Succeed())
	status := u.Object["status"]
	Expect(c.Create(ctx, u)).To(Succeed())
	u.Object["status"] = status
	Expect(c.Status().Update(ctx, u)).To(Succeed())
	return u
}

func get(ctx context.Context, kind, name string) *unstructured.Unstructured {
	GinkgoHelper()
	u := &unstructured.Unstructured{}
	key := client.ObjectKey{Namespace: namespace, Name: name}
	switch kind {
	case "BareMetalHost":
		u.SetAPIVersion("metal3.io/v1alpha1")
	case "Server":
		key.Namespace = ""
		fallthrough
	default:
		u.SetAPIVersion("metal.ironcore.dev/v1alpha1")
	}
	u.SetKind(kind)
	Expect(c.Get(ctx, key, u)).To(Succeed())
	return u
}

func set(ctx context.Context, u *unstructured.Unstructured, value any, path ...string) {
	GinkgoHelper()
	before := u.DeepCopy()
	Expect(unstructured.SetNestedField(u.Object, value, path...)).To(Succeed())
	if path[0] == "status" {
		Expect(c.Status().Patch(ctx, u, client.MergeFrom(before))).To(Succeed())
		return
	}
	Expect(c.Patch(ctx, u, client.MergeFrom(before))).To(Succeed())
}

func ownerOf(machine *machinev1alpha1.Machine) remediation.Owner {
	return remediation.Owner{Seed: "seed", Namespace: machine.Namespace, Machine: machine.Name, UID: machine.UID, Time: builder.Start}
}

// frozen is a cache that does not follow any more.
type frozen struct {
	client.Reader
	objects map[string]*unstructured.Unstructured
}

// Get implements client.Reader.
func (f frozen) Get(ctx context.Context, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
	if old, ok := f.objects[obj.GetObjectKind().GroupVersionKind().Kind]; ok {
		old.DeepCopyInto(obj.(*unstructured.Unstructured))
		return nil
	}
	return f.Reader.Get(ctx, key, obj, opts...)
}

// crash is a writer that ends before it writes, or before it knows that it has.
type crash struct {
	client.Writer
	after bool
}

var errCrash = errors.New("crash")

// Patch implements client.Writer.
func (w crash) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
	if w.after {
		Expect(w.Writer.Patch(ctx, obj, patch, opts...)).To(Succeed())
	}
	return errCrash
}

var _ = Describe("Hosts", Ordered, func() {
	It("X14 names the kinds that the API server does not serve", func(ctx SpecContext) {
		for _, w := range worlds {
			kind, err := drivers.For(configv1alpha1.HostKind(w.kind))
			Expect(err).NotTo(HaveOccurred())
			access := start(ctx, testEnv.Config, kind)
			driver := kind.New(access)
			machine := builder.Machine("m", builder.Annotation("metal3.io/BareMetalHost", "metal/m"))
			if w.kind == "ServerClaim" {
				machine.Spec.ProviderID = "ironcore-metal://metal/m"
			}

			_, err = driver.Live(ctx, machine)
			Expect(err).To(MatchError(host.ErrNoKind))
			Expect(err).To(MatchError(ContainSubstring(w.kind)))
			Expect(err).NotTo(MatchError(host.ErrNoHost))
			access.Cached = access.APIReader
			_, err = kind.New(access).Owned(ctx, "seed", builder.Namespace)
			Expect(err).To(MatchError(host.ErrNoKind))

			By("not waiting for ever for a cache")
			_, err = driver.Of(ctx, machine)
			Expect(err).To(MatchError(ContainSubstring(w.kind)))
			Expect(err).NotTo(MatchError(host.ErrNoHost))
		}
		_, err := envtest.InstallCRDs(testEnv.Config, envtest.CRDInstallOptions{Paths: definitions, ErrorIfPathMissing: true})
		Expect(err).NotTo(HaveOccurred())
	})

	for _, w := range worlds {
		Context(w.kind, Ordered, func() {
			var (
				kind    drivers.Kind
				access  host.Access
				driver  *host.Driver
				machine *machinev1alpha1.Machine
				number  int
			)
			of := func(ctx context.Context) *remediation.Host {
				GinkgoHelper()
				h, err := driver.Of(ctx, machine)
				Expect(err).NotTo(HaveOccurred())
				return h
			}
			live := func(ctx context.Context) *remediation.Host {
				GinkgoHelper()
				h, err := driver.Live(ctx, machine)
				Expect(err).NotTo(HaveOccurred())
				return h
			}
			annotations := func(ctx context.Context) map[string]string {
				GinkgoHelper()
				return get(ctx, w.kind, machine.Name).GetAnnotations()
			}

			expectReleased := func(ctx context.Context) {
				GinkgoHelper()
				left := annotations(ctx)
				Expect(host.OwnerOf(get(ctx, w.kind, machine.Name))).To(BeNil())
				delete(left, whose)
				Expect(left).To(Equal(map[string]string{"a": "b"}))
			}

			BeforeAll(func(ctx SpecContext) {
				kind, access = accessOf(ctx, configv1alpha1.HostKind(w.kind))
				driver = kind.New(access)
			})
			BeforeEach(func(ctx SpecContext) {
				number++
				machine = builder.Machine(fmt.Sprintf("m%d", number))
				w.create(ctx, machine)
				Eventually(func() error { _, err := driver.Of(ctx, machine); return err }, patient).Should(Succeed())
				Eventually(func() *bool { return of(ctx).On }, patient).Should(HaveValue(BeTrue()))
			})

			It("X1 X2 is off after it was asked for, and on after it was released", func(ctx SpecContext) {
				Expect(of(ctx).Taken).To(BeEmpty())
				Expect(driver.PowerOff(ctx, of(ctx), ownerOf(machine))).To(Succeed())
				Eventually(func() bool { return of(ctx).Requested }, patient).Should(BeTrue())
				Expect(of(ctx)).To(HaveValue(And(HaveField("On", HaveValue(BeTrue())), HaveField("OffSinceRequest", BeFalse()), HaveField("Taken", BeEmpty()))))
				Expect(driver.Owned(ctx, "seed", builder.Namespace)).To(ConsistOf(*of(ctx)))
				Expect(driver.Owned(ctx, "other", builder.Namespace)).To(BeEmpty())

				w.report(ctx, machine.Name)
				Expect(live(ctx).OffSinceRequest).To(BeTrue())
				Eventually(func() bool { return of(ctx).OffSinceRequest }, patient).Should(BeTrue())

				Expect(driver.Release(ctx, of(ctx))).To(Succeed())
				expectReleased(ctx)
				Expect(live(ctx).Cycles).To(HaveExactElements(HaveField("Machine", machine.UID)))
				Expect(driver.Forget(ctx, "other", builder.Namespace)).To(Succeed())
				Expect(annotations(ctx)).To(HaveKey(whose))
				Eventually(func() []remediation.Cycle { return of(ctx).Cycles }, patient).Should(HaveLen(1))
				Expect(driver.Forget(ctx, "seed", builder.Namespace)).To(Succeed())
				Expect(annotations(ctx)).To(Equal(map[string]string{"a": "b"}))
				Expect(live(ctx).OffSinceRequest).To(BeFalse())
				w.report(ctx, machine.Name)
				Eventually(func() remediation.Host { return *of(ctx) }, patient).Should(And(
					HaveField("On", HaveValue(BeTrue())), HaveField("Requested", BeFalse()), HaveField("Owner", BeNil())))
				Eventually(func() ([]remediation.Host, error) { return driver.Owned(ctx, "seed", builder.Namespace) }, patient).Should(BeEmpty())
			})

			if w.kind == "ServerClaim" {
				It("X17 knows when the power was reported last, as the API server notes it", func(ctx SpecContext) {
					began := time.Now().Truncate(time.Second)
					w.power(ctx, machine.Name, false)
					reported := live(ctx).Changed
					Expect(reported).To(BeTemporally(">=", began))
					Eventually(func() *remediation.Host { return of(ctx) }, patient).Should(HaveField("Changed", BeTemporally("==", reported)))
				})
			}

			It("X3 is asked once, however many ask at once", func(ctx SpecContext) {
				before := of(ctx)
				var (
					group  sync.WaitGroup
					mutex  sync.Mutex
					failed []error
				)
				for i := range 5 {
					group.Go(func() {
						owner := ownerOf(machine)
						owner.UID = types.UID(fmt.Sprint(i))
						if err := driver.PowerOff(ctx, before, owner); err != nil {
							mutex.Lock()
							defer mutex.Unlock()
							failed = append(failed, err)
						}
					})
				}
				group.Wait()
				Expect(failed).To(HaveLen(4))
				Expect(failed).To(HaveEach(WithTransform(apierrors.IsConflict, BeTrue())))
				asked := annotations(ctx)

				By("not for another machine")
				err := driver.PowerOff(ctx, before, ownerOf(machine))
				Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
				Expect(live(ctx).Taken).To(ContainSubstring("it is off for machine"))

				By("not released by another machine either")
				Expect(driver.Release(ctx, &remediation.Host{Namespace: namespace, Name: machine.Name, Owner: new(ownerOf(machine))})).To(Succeed())
				Expect(annotations(ctx)).To(Equal(asked))
				Expect(driver.Release(ctx, live(ctx))).To(Succeed())
				expectReleased(ctx)
			})

			It("X1 asks nothing of a host that is off already, although the cache says that it is on", func(ctx SpecContext) {
				before := of(ctx)
				w.power(ctx, machine.Name, false)
				err := driver.PowerOff(ctx, before, ownerOf(machine))
				Expect(apierrors.IsConflict(err)).To(BeTrue(), "%v", err)
				Expect(annotations(ctx)).To(Equal(map[string]string{"a": "b"}))
			})

			It("X1 believes no report from before the request", func(ctx SpecContext) {
				w.power(ctx, machine.Name, false)
				old := map[string]*unstructured.Unstructured{}
				if w.kind == "ServerClaim" { // the request is on another object, which may be known earlier
					old["Server"] = get(ctx, "Server", machine.Name)
				} else {
					old[w.kind] = get(ctx, w.kind, machine.Name)
				}
				w.power(ctx, machine.Name, true)
				Expect(driver.PowerOff(ctx, live(ctx), ownerOf(machine))).To(Succeed())

				behind := access
				behind.Cached = frozen{Reader: access.APIReader, objects: old}
				h, err := kind.New(behind).Of(ctx, machine)
				Expect(err).NotTo(HaveOccurred())
				Expect(h.On).To(HaveValue(BeFalse()))
				Expect(h.OffSinceRequest).To(BeFalse())
				w.report(ctx, machine.Name)
				Expect(live(ctx).OffSinceRequest).To(BeTrue())
			})

			It("X1 sees live that a host is on again which the cache has as off", func(ctx SpecContext) {
				Expect(driver.PowerOff(ctx, of(ctx), ownerOf(machine))).To(Succeed())
				w.report(ctx, machine.Name)
				old := map[string]*unstructured.Unstructured{w.kind: get(ctx, w.kind, machine.Name)}
				if w.kind == "ServerClaim" {
					old["Server"] = get(ctx, "Server", machine.Name)
				}
				// Somebody takes the request back.
				Expect(driver.Release(ctx, live(ctx))).To(Succeed())
				w.report(ctx, machine.Name)

				behind := access
				behind.Cached = frozen{Reader: access.APIReader, objects: old}
				h, err := kind.New(behind).Of(ctx, machine)
				Expect(err).NotTo(HaveOccurred())
				Expect(h.OffSinceRequest).To(BeTrue())
				h, err = kind.New(behind).Live(ctx, machine)
				Expect(err).NotTo(HaveOccurred())
				Expect(*h).To(And(HaveField("On", HaveValue(BeTrue())), HaveField("OffSinceRequest", BeFalse())))
			})

			It("X2 lists the hosts without a cache where it may, and nowhere else", func(ctx SpecContext) {
				Expect(driver.PowerOff(ctx, of(ctx), ownerOf(machine))).To(Succeed())
				direct := access
				direct.Cached = access.APIReader
				owned, err := kind.New(direct).Owned(ctx, "seed", builder.Namespace)
				Expect(err).NotTo(HaveOccurred())
				Expect(only(owned, machine.Name)).To(HaveLen(1))
				Expect(kind.New(direct).Release(ctx, live(ctx))).To(Succeed())

				direct.HostNamespace = "default"
				_, err = kind.New(direct).Owned(ctx, "seed", builder.Namespace)
				Expect(apierrors.IsForbidden(err)).To(BeTrue(), "%v", err)
			})

			DescribeTable("X3 X2 releases after a crash", func(ctx SpecContext, after bool) {
				crashing := access
				crashing.Writer = crash{Writer: access.Writer, after: after}
				Expect(kind.New(crashing).PowerOff(ctx, of(ctx), ownerOf(machine))).To(MatchError(errCrash))
				if after {
					Expect(annotations(ctx)).To(HaveKey(whose))
				} else {
					Expect(annotations(ctx)).NotTo(HaveKey(whose))
					Expect(driver.PowerOff(ctx, of(ctx), ownerOf(machine))).To(Succeed())
				}
				w.report(ctx, machine.Name)

				var owned []remediation.Host
				Eventually(func() []remediation.Host {
					all, err := driver.Owned(ctx, "seed", builder.Namespace)
					Expect(err).NotTo(HaveOccurred())
					owned = only(all, machine.Name)
					return owned
				}, patient).Should(HaveLen(1))
				Expect(kind.New(crashing).Release(ctx, &owned[0])).To(MatchError(errCrash))
				Expect(driver.Release(ctx, &owned[0])).To(Succeed())
				expectReleased(ctx)
				w.report(ctx, machine.Name)
				Expect(live(ctx).On).To(HaveValue(BeTrue()))
			},
				Entry("before the write", false),
				Entry("after the write", true),
			)

			It("X2 lists what is left of a request that somebody has taken back by half", func(ctx SpecContext) {
				Expect(driver.PowerOff(ctx, of(ctx), ownerOf(machine))).To(Succeed())
				u := get(ctx, w.kind, machine.Name)
				before := u.DeepCopy()
				kept := u.GetAnnotations()
				delete(kept, reboot)
				u.SetAnnotations(kept)
				Expect(c.Patch(ctx, u, client.MergeFrom(before))).To(Succeed())
				Eventually(func() []remediation.Host {
					owned, err := driver.Owned(ctx, "seed", builder.Namespace)
					Expect(err).NotTo(HaveOccurred())
					return only(owned, machine.Name)
				}, patient).Should(HaveExactElements(HaveField("Requested", BeFalse())))
				Expect(driver.Release(ctx, live(ctx))).To(Succeed())
				expectReleased(ctx)
				w.report(ctx, machine.Name)
				Expect(live(ctx).On).To(HaveValue(BeTrue()))
			})

			fence(w)
			if w.kind == "ServerClaim" {
				quarantined(w, &driver)
			}
		})
	}
})

// only returns the host of a name.
func only(hosts []remediation.Host, name string) []remediation.Host {
	var named []remediation.Host
	for _, h := range hosts {
		if h.Name == name {
			named = append(named, h)
		}
	}
	return named
}
