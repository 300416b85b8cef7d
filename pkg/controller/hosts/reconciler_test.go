// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package hosts_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/metal3"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

const (
	prefix   = "machine-preservation.extensions.gardener.cloud/"
	reboot   = "reboot.metal3.io/machine-remediation"
	owner    = prefix + "power-cycle-owner"
	settings = prefix + "power-cycle-settings"
)

// cluster is a driver of BareMetalHosts, and what hinders it.
type cluster struct {
	*host.Driver
	servicing       map[string]string
	listErr         error
	onList, onWrite func() error
	// stale is what it lists, nil for what there is.
	stale []remediation.Host
}

func (c *cluster) Owned(ctx context.Context, seed, namespace string) ([]remediation.Host, error) {
	if c.listErr != nil {
		return nil, c.listErr
	}
	if c.onList != nil {
		Expect(c.onList()).To(Succeed())
	}
	if c.stale != nil {
		return c.stale, nil
	}
	owned, err := c.Driver.Owned(ctx, seed, namespace)
	for i := range owned {
		owned[i].Servicing = c.servicing[owned[i].Name]
	}
	return owned, err
}

func (c *cluster) Release(ctx context.Context, h *remediation.Host) error {
	if c.onWrite != nil {
		if err := c.onWrite(); err != nil {
			return err
		}
	}
	return c.Driver.Release(ctx, h)
}

// overdue returns the metric of the shoot, 0 if there is none.
func overdue() float64 {
	GinkgoHelper()
	families, err := metrics.Registry.Gather()
	Expect(err).NotTo(HaveOccurred())
	for _, family := range families {
		if family.GetName() != "machine_preservation_hosts_overdue" {
			continue
		}
		for _, metric := range family.Metric {
			Expect(metric.Label).To(HaveLen(1))
			Expect(metric.Label[0].GetName()).To(Equal("shoot_namespace"))
			if metric.Label[0].GetValue() == builder.Namespace {
				return metric.Gauge.GetValue()
			}
		}
	}
	return 0
}

var _ = Describe("Reconciler", func() {
	var (
		ctx        = context.Background()
		c          client.WithWatch
		hosts      client.WithWatch
		driver     *cluster
		driverErr  error
		clock      *testclock.FakeClock
		recorder   *events.FakeRecorder
		reconciler *Reconciler
		deployment *machinev1alpha1.MachineDeployment
	)

	create := func(objects ...client.Object) {
		GinkgoHelper()
		for _, object := range objects {
			Expect(c.Create(ctx, object)).To(Succeed())
		}
	}
	// cycled makes a machine one in a phase of its power cycle, since Start.
	cycled := func(name, phase string, opts ...builder.MachineOption) *machinev1alpha1.Machine {
		m := builder.Machine(name, append([]builder.MachineOption{
			builder.Of(builder.Set("set", deployment)),
			builder.Annotation(prefix+"power-cycle-phase", phase),
			builder.Annotation(prefix+"power-cycle-record", `{"began":"2026-03-01T12:00:00Z","since":"2026-03-01T12:00:00Z"}`),
		}, opts...)...)
		m.Labels[prefix+"power-cycle"] = "true"
		return m
	}
	ownerOf := func(machine string) string {
		return fmt.Sprintf(`{"seed":"seed","namespace":%q,"machine":%q,"uid":"machine-%s","time":"2026-03-01T12:00:00Z","on":"host/1"}`, builder.Namespace, machine, machine)
	}
	off := func(name, owned string) {
		GinkgoHelper()
		u := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"online": true}, "status": map[string]any{"poweredOn": false}}}
		u.SetGroupVersionKind(schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHost"})
		u.SetNamespace("hosts")
		u.SetName(name)
		u.SetUID("host")
		u.SetAnnotations(map[string]string{reboot: "", owner: owned})
		Expect(hosts.Create(ctx, u)).To(Succeed())
	}
	annotations := func(name string) map[string]string {
		GinkgoHelper()
		u := host.New(schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHost"})
		Expect(hosts.Get(ctx, client.ObjectKey{Namespace: "hosts", Name: name}, u)).To(Succeed())
		return u.GetAnnotations()
	}
	released := func(name string) bool {
		GinkgoHelper()
		a := annotations(name)
		_, isAsked := a[reboot]
		_, isOwned := a[owner]
		Expect(isAsked).To(Equal(isOwned))
		return !isAsked
	}
	hold := func(renewed time.Time) {
		GinkgoHelper()
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "machine-preservation-controller", Namespace: builder.Namespace}}
		Expect(client.IgnoreNotFound(c.Delete(ctx, lease.DeepCopy()))).To(Succeed())
		lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: new("mcm_a"), LeaseDurationSeconds: new(int32(15)), RenewTime: &metav1.MicroTime{Time: renewed}}
		create(lease)
	}
	request := reconcile.Request{NamespacedName: client.ObjectKey{Name: builder.Namespace}}
	look := func() time.Duration {
		GinkgoHelper()
		result, err := reconciler.Reconcile(ctx, request)
		Expect(err).NotTo(HaveOccurred())
		return result.RequeueAfter
	}
	told := func() []string {
		var told []string
		for len(recorder.Events) > 0 {
			told = append(told, <-recorder.Events)
		}
		return told
	}

	BeforeEach(func() {
		c = fakeclient.NewClientBuilder().WithScheme(builder.Scheme()).Build()
		hosts = fakeclient.NewClientBuilder().Build()
		driver, driverErr = &cluster{Driver: &host.Driver{Kind: metal3.Kind{}, Access: host.Access{
			Namespace: builder.Namespace, HostNamespace: "hosts", Cached: hosts, APIReader: hosts, Writer: hosts,
		}}}, nil
		clock = testclock.NewFakeClock(builder.Start)
		recorder = events.NewFakeRecorder(10)
		reconciler = &Reconciler{
			Finder:   Finder{Reader: c, APIReader: c, Clock: clock, MaxServicing: 2 * time.Hour, Driver: func(context.Context, string) (Driver, error) { return driver, driverErr }},
			Recorder: recorder,
		}
		deployment = builder.Deployment("pool", builder.DeploymentAnnotation(settings, `{"powerOffTimeout":"5m","powerOnTimeout":"7m"}`))
		create(deployment, builder.Set("set", deployment))
		create(&corev1.Secret{ObjectMeta: metav1.ObjectMeta{
			Name: "shoot-access-machine-preservation-controller", Namespace: builder.Namespace, Annotations: map[string]string{prefix + "power-cycle-seed": "seed"},
		}})
	})

	It("X19: releases a host that nobody else releases, one minute after its deadline, and tells", func() {
		create(cycled("m", "PoweringOff"))
		off("h", ownerOf("m"))
		Expect(look()).To(Equal(6 * time.Minute))
		clock.Step(6*time.Minute - time.Second)
		Expect(look()).To(Equal(time.Second))
		Expect(released("h")).To(BeFalse())
		Expect(overdue()).To(BeZero())
		Expect(told()).To(BeEmpty())

		clock.Step(time.Second)
		Expect(look()).To(Equal(time.Minute))
		Expect(released("h")).To(BeTrue())
		Expect(overdue()).To(BeEquivalentTo(1))
		Expect(told()).To(ConsistOf("Warning PowerCycleHostReleased Host hosts/h should have been powered on by 2026-03-01T12:05:00Z. The extension released it, because no preservation controller is running."))

		Expect(look()).To(Equal(time.Minute))
		Expect(overdue()).To(BeZero())
		Expect(told()).To(BeEmpty())
	})

	It("X19: looks again while a cycle is under way: its host is asked to be off without that the machine changes", func() {
		create(cycled("m", "PoweringOff"))
		Expect(look()).To(Equal(time.Minute))
		off("h", ownerOf("m"))
		Expect(look()).To(Equal(6 * time.Minute))
	})

	DescribeTable("X19: knows by when a host must be off no longer",
		func(machine func() client.Object, until time.Duration) {
			if object := machine(); object != nil {
				create(object)
				if len(object.GetFinalizers()) > 0 {
					Expect(c.Delete(ctx, object)).To(Succeed())
				}
			}
			off("h", ownerOf("m"))
			clock.Step(until + time.Minute - time.Second)
			Expect(look()).To(Equal(time.Second))
			Expect(released("h")).To(BeFalse())
			clock.Step(time.Second)
			look()
			Expect(released("h")).To(BeTrue())
			Expect(told()).To(HaveLen(1))
		},
		Entry("while it is powered off", func() client.Object { return cycled("m", "PoweringOff") }, 5*time.Minute),
		Entry("while the node is made safe", func() client.Object { return cycled("m", "MakingNodeSafe") }, 5*time.Minute),
		Entry("while it is powered on", func() client.Object { return cycled("m", "PoweringOn") }, 7*time.Minute),
		Entry("X2: without the machine", func() client.Object { return nil }, time.Duration(0)),
		Entry("X2: with another machine of its name", func() client.Object {
			m := cycled("m", "PoweringOff")
			m.UID = "another"
			return m
		}, time.Duration(0)),
		Entry("X2: while the machine is being deleted", func() client.Object { return cycled("m", "PoweringOff", builder.Deleted(builder.Start)) }, time.Duration(0)),
		Entry("X2: after the cycle", func() client.Object { return cycled("m", "Failed") }, time.Duration(0)),
		Entry("X2: without the label", func() client.Object {
			m := cycled("m", "PoweringOff")
			m.Labels = nil
			return m
		}, 5*time.Minute),
		Entry("X15: without settings", func() client.Object {
			delete(deployment.Annotations, settings)
			Expect(c.Update(ctx, deployment)).To(Succeed())
			return cycled("m", "PoweringOff")
		}, time.Duration(0)),
		Entry("X15: with settings that nobody can read", func() client.Object {
			deployment.Annotations[settings] = "{"
			Expect(c.Update(ctx, deployment)).To(Succeed())
			return cycled("m", "PoweringOff")
		}, time.Duration(0)),
		Entry("X15: without the MachineDeployment", func() client.Object {
			Expect(c.Delete(ctx, deployment)).To(Succeed())
			return cycled("m", "PoweringOff")
		}, time.Duration(0)),
	)

	It("X19: leaves hosts to a preservation controller that is at work, and tells of them", func() {
		create(cycled("m", "PoweringOff"))
		off("h", ownerOf("m"))
		clock.Step(6 * time.Minute)
		hold(clock.Now())
		Expect(look()).To(Equal(time.Minute))
		Expect(released("h")).To(BeFalse())
		Expect(overdue()).To(BeEquivalentTo(1))
		Expect(told()).To(BeEmpty())

		clock.Step(15 * time.Second) // it has not renewed its Lease
		look()
		Expect(released("h")).To(BeTrue())
	})

	It("X19: stops as soon as a preservation controller is back", func() {
		create(cycled("a", "PoweringOff"), cycled("b", "PoweringOff"))
		off("h", ownerOf("a"))
		off("i", ownerOf("b"))
		clock.Step(time.Hour)
		driver.onWrite = func() error {
			hold(clock.Now())
			return nil
		}
		look()
		Expect([]bool{released("h"), released("i")}).To(ConsistOf(true, false))
		Expect(told()).To(HaveLen(1))
		Expect(overdue()).To(BeEquivalentTo(2))
	})

	It("X2: takes a host whose request somebody else has taken back for none that is off, and takes the rest away", func() {
		off("h", ownerOf("m"))
		u := host.New(schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHost"})
		Expect(hosts.Get(ctx, client.ObjectKey{Namespace: "hosts", Name: "h"}, u)).To(Succeed())
		u.SetAnnotations(map[string]string{owner: ownerOf("m")})
		Expect(hosts.Update(ctx, u)).To(Succeed())
		clock.Step(time.Hour)
		look()
		Expect(released("h")).To(BeTrue())
		Expect(overdue()).To(BeZero())
	})

	It("X2: reads hosts before Machines, so that a cycle which begins meanwhile goes on", func() {
		m := cycled("m", "Waiting")
		create(m)
		clock.Step(time.Hour)
		driver.onList = func() error {
			m.Annotations[prefix+"power-cycle-phase"] = "PoweringOff"
			m.Annotations[prefix+"power-cycle-record"] = `{"began":"2026-03-01T13:00:00Z","since":"2026-03-01T13:00:00Z"}`
			off("h", ownerOf("m"))
			return c.Update(ctx, m)
		}
		Expect(look()).To(Equal(6 * time.Minute))
		Expect(released("h")).To(BeFalse())
	})

	It("X18: never releases a host that is being serviced, tells of it two hours after its deadline, and sees to it when that is over", func() {
		create(cycled("m", "PoweringOff"))
		off("h", ownerOf("m"))
		driver.servicing = map[string]string{"h": "Its firmware is being updated."}
		clock.Step(6 * time.Minute)
		Expect(look()).To(Equal(time.Minute))
		Expect(overdue()).To(BeZero())
		clock.Step(2 * time.Hour)
		Expect(look()).To(Equal(time.Minute))
		Expect(overdue()).To(BeEquivalentTo(1))
		Expect(released("h")).To(BeFalse())
		Expect(told()).To(BeEmpty())
		driver.servicing = nil
		look()
		Expect(released("h")).To(BeTrue())
	})

	It("X2: leaves hosts of others alone", func() {
		for i, o := range []string{
			fmt.Sprintf(`{"seed":"other","namespace":%q,"machine":"m","uid":"machine-m","time":"2026-03-01T12:00:00Z"}`, builder.Namespace),
			`{"seed":"seed","namespace":"shoot--test--two","machine":"m","uid":"machine-m","time":"2026-03-01T12:00:00Z"}`,
			"",
		} {
			off(fmt.Sprint("h", i), o)
		}
		clock.Step(time.Hour)
		Expect(look()).To(BeZero())
		for i := range 3 {
			Expect(released(fmt.Sprint("h", i))).To(BeFalse())
		}
	})

	It("X19: tries again if the host has changed meanwhile, and tells nothing before", func() {
		off("h", ownerOf("m"))
		clock.Step(time.Hour)
		driver.onWrite = func() error {
			return apierrors.NewConflict(schema.GroupResource{Resource: "baremetalhosts"}, "h", errors.New("fake"))
		}
		_, err := reconciler.Reconcile(ctx, request)
		Expect(err).To(MatchError(And(HavePrefix("failed to release host hosts/h of machine m: "), ContainSubstring("fake"))))
		Expect(told()).To(BeEmpty())
		Expect(overdue()).To(BeEquivalentTo(1))
		driver.onWrite = nil
		look()
		Expect(released("h")).To(BeTrue())
		Expect(told()).To(HaveLen(1))
	})

	It("X19: goes on with other hosts after an error", func() {
		off("h", ownerOf("a"))
		off("i", ownerOf("b"))
		clock.Step(time.Hour)
		failed := false
		driver.onWrite = func() error {
			if !failed {
				failed = true
				return errors.New("fake")
			}
			return nil
		}
		_, err := reconciler.Reconcile(ctx, request)
		Expect(err).To(MatchError(ContainSubstring("fake")))
		Expect([]bool{released("h"), released("i")}).To(ConsistOf(true, false))
	})

	It("X2, X19: takes nothing back that was asked for after another replica has released the host", func() {
		off("h", ownerOf("m"))
		clock.Step(time.Hour)
		stale, err := driver.Owned(ctx, "seed", builder.Namespace)
		Expect(err).NotTo(HaveOccurred())
		look()
		Expect(released("h")).To(BeTrue())
		driver.stale = stale
		look()
		Expect(released("h")).To(BeTrue())

		Expect(hosts.DeleteAllOf(ctx, host.New(schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHost"}), client.InNamespace("hosts"))).To(Succeed())
		look()
		off("h", ownerOf("n"))
		look()
		Expect(released("h")).To(BeFalse())
	})

	It("X15: asks for no hosts where power cycles were never switched on, or have come to their end", func() {
		driverErr = errors.New("nobody asks")
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "shoot-access-machine-preservation-controller", Namespace: builder.Namespace}}
		Expect(c.Update(ctx, secret)).To(Succeed())
		Expect(look()).To(BeZero())
		Expect(c.Delete(ctx, secret)).To(Succeed())
		Expect(look()).To(BeZero())
	})

	It("X15: takes all hosts for released when the Secret with the kubeconfig is gone, or their kind is", func() {
		create(cycled("m", "PoweringOff"))
		off("h", ownerOf("m"))
		clock.Step(time.Hour)
		driver.onWrite = func() error { return errors.New("fake") }
		_, err := reconciler.Reconcile(ctx, request)
		Expect(err).To(HaveOccurred())
		Expect(overdue()).To(BeEquivalentTo(1))
		driverErr = apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "metal")
		Expect(look()).To(BeZero())
		Expect(overdue()).To(BeZero())
		driverErr, driver.listErr = nil, fmt.Errorf("failed: %w", host.ErrNoKind)
		Expect(look()).To(BeZero())
	})

	It("X19: tells how many may be off while the hosts cannot be reached", func() {
		for _, phase := range []string{"PoweringOff", "MakingNodeSafe", "PoweringOn", "Starting", "Waiting", "Failed"} {
			create(cycled("m-"+string(phase[0])+phase[len(phase)-3:], phase))
		}
		driver.listErr = errors.New("fake")
		for _, step := range []struct {
			after time.Duration
			count int
		}{{6*time.Minute - time.Second, 0}, {time.Second, 2}, {2 * time.Minute, 3}} {
			clock.Step(step.after)
			_, err := reconciler.Reconcile(ctx, request)
			Expect(err).To(MatchError("failed to list hosts: fake"))
			Expect(overdue()).To(BeEquivalentTo(step.count))
		}
		driver.listErr = nil
		Expect(look()).To(Equal(time.Minute))
		Expect(overdue()).To(BeZero())
	})

	It("tells why the hosts cannot be reached also when it knows no machines", func() {
		create(cycled("m", "PoweringOff"))
		driver.listErr = errors.New("no route")
		reconciler.APIReader = interceptor.NewClient(c, interceptor.Funcs{List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
			return errors.New("fake")
		}})
		_, err := reconciler.Reconcile(ctx, request)
		Expect(err).To(MatchError(And(ContainSubstring("failed to list hosts: no route"), ContainSubstring("failed to list Machines: fake"))))
	})

	DescribeTable("X19: releases nothing when it does not know",
		func(list, get string) {
			off("h", ownerOf("m"))
			clock.Step(time.Hour)
			reconciler.APIReader = interceptor.NewClient(c, interceptor.Funcs{
				List: func(ctx context.Context, c client.WithWatch, l client.ObjectList, opts ...client.ListOption) error {
					Expect(l).To(BeAssignableToTypeOf(&metav1.PartialObjectMetadataList{}), "machines are big")
					if l.GetObjectKind().GroupVersionKind().Kind == list {
						return errors.New("fake")
					}
					return c.List(ctx, l, opts...)
				},
				Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
					if _, isLease := object.(*coordinationv1.Lease); isLease && get == "Lease" {
						return errors.New("fake")
					}
					return c.Get(ctx, key, object, opts...)
				},
			})
			_, err := reconciler.Reconcile(ctx, request)
			Expect(err).To(MatchError(ContainSubstring("fake")))
			Expect(released("h")).To(BeFalse())
		},
		Entry("which Machines there are", "MachineList", ""),
		Entry("whose they are", "MachineSetList", ""),
		Entry("who is at work", "", "Lease"),
	)

	It("X19: has labelled machines looked at, and no others", func() {
		Expect(reconciler.HasMachines(ctx, builder.Namespace)).To(BeFalse())
		create(builder.Machine("other"))
		Expect(reconciler.HasMachines(ctx, builder.Namespace)).To(BeFalse())
		create(cycled("m", "Waiting"))
		Expect(reconciler.HasMachines(ctx, builder.Namespace)).To(BeTrue())
		Expect(reconciler.HasMachines(ctx, "shoot--test--two")).To(BeFalse())
	})

	It("X19: names a host, and the machine that it is off for", func() {
		create(cycled("m", "PoweringOff"))
		off("h", ownerOf("m"))
		off("i", ownerOf("n"))
		clock.Step(2 * time.Minute)
		found, err := reconciler.Find(ctx, builder.Namespace)
		Expect(err).NotTo(HaveOccurred())
		Expect(found.Off).To(HaveLen(2))
		overdue := found.Overdue(clock.Now())
		Expect(slices.Collect(func(yield func(string) bool) {
			for i := range overdue {
				yield(overdue[i].String())
			}
		})).To(ConsistOf("hosts/i of machine n"))
	})
})
