// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/hours"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/golden"
)

const (
	preserve = "node.machine.sapcloud.io/preserve"
	ours     = "machine-preservation.extensions.gardener.cloud/"
	timeout  = ours + "timeout"
	drained  = "node.machine.sapcloud.io/preserved"
)

// until is the end of all preservations here, untilText what a condition says of it.
var (
	until     = Start.Add(25 * time.Hour)
	untilText = "Machine preserved until 2026-03-02T13:00:00Z."
)

func in(pool, zone string) NodeOption {
	return func(n *corev1.Node) {
		n.Labels = map[string]string{facts.LabelPool: pool, corev1.LabelTopologyZone: zone}
	}
}

func preservedNode(cause, reason, drain string) NodeOption {
	return Condition("Preserved", corev1.ConditionTrue, reason, fmt.Sprintf("%sMachine preserved until 2026-03-02T13:00:00Z (cause %s, reason %s).", drain, cause, preservation.WhyBegun(cause).ID))
}

func failedNode(cause string) NodeOption {
	return func(n *corev1.Node) {
		NotReady(n)
		Taint(drained, Start)(n)
		preservedNode(cause, "DrainBlocked", "Pods: 1 blocked by budget web/api\x1b[31m. ")(n)
	}
}

func notReadySince(since time.Time) NodeOption {
	return func(n *corev1.Node) {
		NotReady(n)
		n.Status.Conditions[0].LastTransitionTime = metav1.NewTime(since)
	}
}

func of(deployment string) MachineOption {
	return func(m *machinev1alpha1.Machine) {
		m.Labels["name"] = deployment
		pool, zone, _ := strings.Cut(deployment, "-")
		Of(Set(deployment, deploymentIn(deployment, pool, zone)))(m)
		m.Spec.NodeTemplateSpec.Labels = map[string]string{facts.LabelPool: pool, corev1.LabelTopologyZone: zone}
	}
}

func deploymentIn(name, pool, zone string, opts ...DeploymentOption) *machinev1alpha1.MachineDeployment {
	return Deployment(name, append(opts, func(d *machinev1alpha1.MachineDeployment) {
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": name}}
		d.Spec.Template.Spec.NodeTemplateSpec.Labels = map[string]string{facts.LabelPool: pool, corev1.LabelTopologyZone: zone}
	})...)
}

func maintenanceOf(node, requestor, phase string) *maintenancev1alpha1.NodeMaintenance {
	return &maintenancev1alpha1.NodeMaintenance{
		ObjectMeta: metav1.ObjectMeta{Name: requestor + "-" + node, Namespace: "operators", UID: "nm", CreationTimestamp: metav1.NewTime(Start)},
		Spec:       maintenancev1alpha1.NodeMaintenanceSpec{NodeName: node, RequestorID: requestor},
		Status: maintenancev1alpha1.NodeMaintenanceStatus{Conditions: []metav1.Condition{{
			Type: "Ready", Status: metav1.ConditionFalse, Reason: phase, Message: "Waits for 2 pods."}}},
	}
}

func shootObjects() []client.Object {
	return []client.Object{
		Node("auto", in("a", "z1"), failedNode("auto")),
		Node("asked", in("a", "z2"), preservedNode("now", "Preserved", ""), NodeAnnotation(preserve, "true")),
		Node("failed-asked", in("a", "z2"), failedNode("when-failed"), NodeAnnotation(preserve, "now")),
		Node("works", in("b", "z1"), preservedNode("maintenance", "Preserved", ""), NodeAnnotation(ours+"maintenance", "2026-03-01T12:00:00Z")),
		Node("cycled", in("b", "z1"), notReadySince(now.Add(-time.Minute)), preservedNode("remediation", "Preserved", ""), Condition("PowerCycle", corev1.ConditionTrue, "PoweringOff", "")),
		Node("over", in("a", "z1"), Condition("Preserved", corev1.ConditionFalse, "PreservationEnded", "")),
		Node("other", in("a", "z1"), NodeAnnotation(preserve, "when-failed")),
		maintenanceOf("works", "firmware", "Draining"),
	}
}

func seedObjects() []client.Object {
	var (
		a1 = deploymentIn("a-z1", "a", "z1", Share("2"), DeploymentAnnotation(ours+"machine-preserve-timeout", "48h"))
		a2 = deploymentIn("a-z2", "a", "z2", Share("0"))
		b1 = deploymentIn("b-z1", "b", "z1")
	)
	return []client.Object{
		a1, a2, b1, Set("a-z1", a1), Set("a-z2", a2), Set("b-z1", b1),
		Machine("auto", of("a-z1"), Preserved("Failed:Preserved", "auto", until)),
		Machine("never-joined", of("a-z1"), func(m *machinev1alpha1.Machine) { delete(m.Labels, "node") }, NeverJoined, Preserved("Failed:Preserved", "now", until), Annotation(preserve, "now")),
		Machine("asked", of("a-z2"), Preserved("Running:Preserved", "now", until)),
		Machine("failed-asked", of("a-z2"), Preserved("Failed:Preserved", "when-failed", until), ExpiryInStatus(until.Add(time.Hour))),
		Machine("works", of("b-z1"), Preserved("Running:Preserved", "maintenance", until)),
		Machine("cycled", of("b-z1"), Preserved("Failed:Preserved", "remediation", until)),
		Machine("over", of("a-z1")),
	}
}

var _ = Describe("list", func() {
	DescribeTable("should show what there is", func(file, args string, seed bool) {
		var objects []client.Object
		if seed {
			objects = seedObjects()
		}
		p := newPerson(shootObjects(), objects)
		Expect(p.runs(args)).To(Succeed())
		golden.Expect(file, p.out.String())
	},
		Entry("to a shoot's user", "list.txt", "list", false),
		Entry("to a shoot's user, widely", "list-wide.txt", "list -o wide", false),
		Entry("to an operator", "list-seed.txt", "list", true),
		Entry("to an operator, as JSON", "list-seed.json", "list -o json", true),
		Entry("to an operator, as YAML", "list-seed-yaml.txt", "list -o yaml", true),
	)

	It("should tell operators that preserved machines keep a pool at its maximum", func() {
		objects := seedObjects()
		for _, object := range objects {
			if deployment, ok := object.(*machinev1alpha1.MachineDeployment); ok && deployment.Name != "a-z2" {
				DeploymentAnnotation(ours+"maximum", "3")(deployment)
			}
		}
		p := newPerson(shootObjects(), objects)
		Expect(p.runs("list")).To(Succeed())
		Expect(p.out.String()).To(And(
			ContainSubstring("\nPool a is at its maximum of 3 machines in zone z1 because 2 failed machines are preserved. The cluster-autoscaler adds no machine there until a preserved machine is released or the maximum is raised.\n"),
			ContainSubstring("\nPool b is at its maximum of 3 machines in zone z1 because 1 failed machine is preserved. "),
			ContainSubstring("\nb      z1     ?       0      ?\n"), // only a power cycle preserves it
			Not(ContainSubstring("zone z2")),
		))
		p.out.Reset()
		Expect(p.runs("list -o json")).To(Succeed())
		Expect(p.out.String()).To(ContainSubstring(`"atMaximum": "Pool a is at its maximum of 3 machines in zone z1 because 2 failed machines are preserved.`))
	})

	DescribeTable("P17: should tell operators how many machine-hours are used", func(used, maximum int, text, spent string) {
		account := hours.New(now.Add(-time.Hour))
		account.Max, account.Pools = int32(maximum), map[string]int64{"b": 3600, "a": int64(used-1) * 3600}
		account = account.Advance("d", "a", []hours.Seen{{UID: "m", Since: now.Add(-time.Hour), Until: now.Add(48 * time.Hour)}}, now)
		stored := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: Namespace, Name: "machine-preservation-hours"}, Data: map[string]string{"account": account.Encode()}}
		p := newPerson(shootObjects(), append(seedObjects(), stored))
		Expect(p.runs("list")).To(Succeed())
		Expect(p.out.String()).To(HaveSuffix("\n" + text + "\n"))
		p.out.Reset()
		Expect(p.runs("list -o json")).To(Succeed())
		Expect(p.out.String()).To(And(ContainSubstring(`"machineHours": {`), ContainSubstring(spent)))
	},
		Entry("while there are enough", 11, 1000, "Machine-hours in 2026-03 (UTC): 12.0 of 1000 (a 11.0, b 1.0).", `"max": 1000`),
		Entry("while there are some", 11, 20, "Machine-hours in 2026-03 (UTC): 12.0 of 20 (a 11.0, b 1.0). If nothing changes, all are used at "+stamp(now.Add(8*time.Hour))+".", `"spentAt": `),
		Entry("when there are none", 11, 12, "Machine-hours in 2026-03 (UTC): 12.0 of 12 (a 11.0, b 1.0). All are used: requests and auto-preservation preserve machines again from 2026-04-01T00:00:00Z on.", `"until": "2026-04-01T00:00:00Z"`),
	)

	It("should tell the reason and the phase that explain tells", func() {
		for name, options := range map[string][]NodeOption{
			"maintenance": {preservedNode("maintenance", "Preserved", ""), NodeAnnotation(preserve, "when-failed"), NodeAnnotation(ours+"maintenance", "2026-03-01T12:00:00Z")},
			"when-failed": {failedNode("when-failed"), NodeAnnotation(preserve, "now"), NodeAnnotation(ours+"maintenance", "2026-03-01T12:00:00Z")},
			"now":         {preservedNode("now", "Preserved", ""), NodeAnnotation(preserve, "now"), NodeAnnotation(ours+"maintenance", "2026-03-01T12:00:00Z")},
			"remediation": {NotReady, preservedNode("remediation", "Preserved", ""), Condition("PowerCycle", corev1.ConditionTrue, "PoweringOff", "")},
		} {
			p := newPerson([]client.Object{Node("n", options...)}, nil)
			Expect(p.runs("list")).To(Succeed())
			Expect(p.out.String()).To(MatchRegexp(`(?m)^- +- +n +\w+:Preserved +`+name+` `), name)
			p.out.Reset()
			Expect(p.runs("explain n")).To(Succeed())
			if name == "maintenance" {
				Expect(p.out.String()).To(And(ContainSubstring("If the maintenance ended now, the machine would be an ordinary machine again"), Not(ContainSubstring(preservation.WhyRequestWithdrawn.Text))))
			}
		}
		p := newPerson([]client.Object{Node("n", NotReady, preservedNode("remediation", "Preserved", ""), Condition("PowerCycle", corev1.ConditionTrue, "PoweringOff", ""))}, nil)
		Expect(p.runs("list")).To(Succeed())
		Expect(p.out.String()).To(And(ContainSubstring("Failed:Preserved"), Not(ContainSubstring("SHARE"))), "it failed long ago, and has no place while somebody works on it")
	})

	It("should know the zone of a share from the nodes where the MachineDeployment does not name it", func() {
		withZones := newPerson(shootObjects(), seedObjects())
		Expect(withZones.runs("list")).To(Succeed())
		objects := seedObjects()
		for _, object := range objects {
			if deployment, ok := object.(*machinev1alpha1.MachineDeployment); ok {
				delete(deployment.Spec.Template.Spec.NodeTemplateSpec.Labels, corev1.LabelTopologyZone)
			}
		}
		without := newPerson(shootObjects(), objects)
		Expect(without.runs("list")).To(Succeed())
		Expect(without.out.String()).To(Equal(withZones.out.String()))
	})

	It("P20: should show the places of a pool once where its zones share them", func() {
		shared := DeploymentAnnotation(ours+"shared-in-pool", "a")
		p := newPerson([]client.Object{Node("one", in("a", "z1")), Node("two", in("a", "z2"))}, []client.Object{
			deploymentIn("a-1", "a", "z1", Share("3"), shared), deploymentIn("a-2", "a", "z2", Share("3"), shared), deploymentIn("b-1", "b", "z1", Share("0"), DeploymentAnnotation(ours+"shared-in-pool", "b")),
			Machine("one", of("a-1"), Preserved("Failed:Preserved", "auto", until)), Machine("two", of("a-2"), Preserved("Failed:Preserved", "auto", until)),
		})
		Expect(p.runs("list")).To(Succeed())
		Expect(p.out.String()).To(And(ContainSubstring("\na      z2     two "), HaveSuffix("FREE\na      (all)   3       2      1\n")))
		p.out.Reset()
		Expect(p.runs("list -o yaml")).To(Succeed())
		Expect(p.out.String()).To(ContainSubstring("- allZones: true\n  free: 1\n  pool: a\n  share: 3\n  used: 2\n"))
	})

	It("should know zones by the nodes, where the templates do not have them", func() {
		bare := func(d *machinev1alpha1.MachineDeployment) {
			delete(d.Spec.Template.Spec.NodeTemplateSpec.Labels, corev1.LabelTopologyZone)
		}
		unplaced := func(m *machinev1alpha1.Machine) {
			delete(m.Spec.NodeTemplateSpec.Labels, corev1.LabelTopologyZone)
		}
		p := newPerson([]client.Object{Node("one", in("a", "z1")), Node("two", in("a", "z2"))}, []client.Object{
			deploymentIn("a-1", "a", "", Share("1"), bare), deploymentIn("a-2", "a", "", Share("2"), bare),
			Machine("one", of("a-1"), unplaced), Machine("two", of("a-2"), unplaced),
			Machine("three", of("a-2"), unplaced, func(m *machinev1alpha1.Machine) { delete(m.Labels, "node") }, NeverJoined, Preserved("Failed:Preserved", "auto", until)),
		})
		Expect(p.runs("list")).To(Succeed())
		Expect(p.out.String()).To(And(ContainSubstring("\na      z2     machine three   "), HaveSuffix("\na      z1     1       0      1\na      z2     2       1      1\n")))
	})

	It("should show machines that are worked on, and have no condition as nothing has failed", func() {
		works := Node("one", in("a", "z1"), NodeAnnotation(ours+"maintenance", "2026-03-01T12:00:00Z"), NodeAnnotation("cluster-autoscaler.kubernetes.io/scale-down-disabled", "true"))
		waits := Node("two", in("a", "z1"), preservedNode("remediation", "Preserved", ""), Condition("PowerCycle", corev1.ConditionFalse, "Waiting", "Too many nodes."))
		p := newPerson([]client.Object{works, waits, maintenanceOf("one", "firmware", "Ready")}, nil)
		Expect(p.runs("list")).To(Succeed())
		Expect(p.out.String()).To(And(ContainSubstring("one    Running:Preserved   maintenance   -       -      firmware\n"), ContainSubstring("two    Running:Preserved   remediation   -       24h    -\n")))
		Expect(p.runs("release one")).To(MatchError(ContainSubstring("its machine is preserved because firmware works on it")))
	})

	It("should take two calls to the shoot and three to the seed", func() {
		p := newPerson(shootObjects(), nil)
		Expect(p.runs("list")).To(Succeed())
		Expect(p.calls).To(ConsistOf("list *v1.NodeList", "list *v1alpha1.NodeMaintenanceList"))
		p = newPerson(shootObjects(), seedObjects())
		Expect(p.runs("list")).To(Succeed())
		Expect(p.calls).To(HaveLen(5))
	})

	It("should say that there is nothing", func() {
		p := newPerson([]client.Object{Node("one")}, []client.Object{deploymentIn("a-z1", "a", "z1")})
		Expect(p.runs("list")).To(Succeed())
		Expect(p.out.String()).To(Equal("No machine is preserved.\n"))
	})

	It("should colour lines on a terminal only, and not if NO_COLOR is set", func() {
		p := newPerson(shootObjects(), nil)
		p.options.isTerminal = func(any) bool { return true }
		Expect(p.runs("list")).To(Succeed())
		Expect(p.out.String()).To(ContainSubstring(yellow + "a "))
		GinkgoT().Setenv("NO_COLOR", "1")
		p.out = &lockedBuffer{}
		p.options.Out = p.out
		Expect(p.runs("list")).To(Succeed())
		Expect(p.out.String()).NotTo(ContainSubstring("\x1b"))
	})

	DescribeTable("should go on without maintenances", func(answer error, note string) {
		p := newPerson(shootObjects(), nil)
		p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, ok := list.(*maintenancev1alpha1.NodeMaintenanceList); ok {
					return answer
				}
				return c.List(ctx, list, opts...)
			},
		})
		Expect(p.runs("list")).To(Succeed())
		Expect(p.out.String()).To(ContainSubstring("maintenance"))
		if note == "" {
			Expect(p.out.String()).NotTo(ContainSubstring("Not known"))
		} else {
			Expect(p.out.String()).To(ContainSubstring(note))
		}
	},
		Entry("that the shoot does not have", apierrors.NewGenericServerResponse(404, "get", schema.GroupResource{}, "", "", 0, true), ""),
		Entry("that one may not see", apierrors.NewForbidden(schema.GroupResource{Resource: "nodemaintenances"}, "", nil), "Not known: node maintenances: "),
	)

	It("P9: should show what the seed knows while the shoot does not answer", func() {
		silent := func(seed []client.Object) *person {
			p := newPerson(shootObjects(), seed)
			p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
				List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
					return errors.New("it is \x1b[31maway")
				},
			})
			return p
		}
		p := silent(seedObjects())
		Expect(p.runs("list auto")).To(Succeed())
		Expect(p.out.String()).To(And(MatchRegexp(`(?m)Failed:Preserved +auto`), ContainSubstring("\nNot known: what the shoot knows: it is [31maway\n")))
		Expect(silent(nil).runs("list")).To(MatchError(ContainSubstring("failed to list the nodes: it is")))
	})

	It("P9: should know a machine by the name of its node, while that cannot be read or is gone", func() {
		machine := Machine("kept", of("a-z1"), func(m *machinev1alpha1.Machine) { m.Labels[machinev1alpha1.NodeLabelKey] = "ip-1" }, Preserved("Failed:Preserved", "auto", until))
		p := newPerson(nil, []client.Object{machine, deploymentIn("a-z1", "a", "z1")})
		Expect(p.runs("list ip-1")).To(Succeed())
		Expect(p.out.String()).To(MatchRegexp(`(?m)^a +z1 +ip-1 +Failed:Preserved`))
		Expect(p.runs("list ip-1 -w --until released --timeout 50ms")).To(MatchError(ContainSubstring("not all of ip-1 are released")))
		Expect(p.runs("list kept -w --until released --timeout 50ms")).To(MatchError(ContainSubstring("not all of kept are released")))

		unnamed := *machine.DeepCopy()
		delete(unnamed.Labels, machinev1alpha1.NodeLabelKey)
		shown, widest := map[string]kept{}, listHead(false)
		for _, known := range []observed.Snapshot{
			{Seed: &observed.Seed{Machines: []machinev1alpha1.Machine{unnamed}}},
			{Seed: &observed.Seed{Machines: []machinev1alpha1.Machine{*machine}}, Shoot: observed.Shoot{Nodes: []corev1.Node{*Node("ip-1", failedNode("auto"))}}},
			{Seed: &observed.Seed{Machines: []machinev1alpha1.Machine{*machine}}},
		} {
			v := overviewOf(&known)
			Expect(p.options.changes(&v, shown, &widest, false, false)).To(And(ContainSubstring("Failed:Preserved"), Not(ContainSubstring("Released"))))
		}
	})

	It("should go on, with a line for each change", func() {
		p := newPerson(shootObjects(), nil)
		clock := testclock.NewFakeClock(now)
		p.options.Clock = clock
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- p.runsIn(ctx, "list -w") }()
		tick := func() string { clock.Step(time.Second); return p.out.String() }

		Eventually(tick).Should(ContainSubstring("asked"))
		asked := p.node("asked")
		Condition("Preserved", corev1.ConditionFalse, "PreservationEnded", "")(asked)
		Expect(p.options.shoot.Status().Update(ctx, asked)).To(Succeed())
		Eventually(tick, time.Minute).Should(MatchRegexp(`(?m)^a +z2 +asked +Released +now`))
		stop()
		Eventually(ended).Should(Receive(BeNil()))
	})

	It("should go on with what can be had by then", func() {
		p := newPerson(shootObjects(), nil)
		clock := testclock.NewFakeClock(now)
		p.options.Clock = clock
		var allowed atomic.Bool
		p.options.shoot = interceptor.NewClient(p.options.shoot, interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				if _, ok := list.(*maintenancev1alpha1.NodeMaintenanceList); ok && !allowed.Load() {
					return apierrors.NewForbidden(schema.GroupResource{Resource: "nodemaintenances"}, "", nil)
				}
				return c.List(ctx, list, opts...)
			},
		})
		p.options.isTerminal = func(any) bool { return true }
		ctx, stop := context.WithCancel(context.Background())
		ended := make(chan error)
		go func() { ended <- p.runsIn(ctx, "list -w") }()
		tick := func() string { clock.Step(time.Second); return p.out.String() }
		Eventually(tick).Should(ContainSubstring("Not known: node maintenances"))
		Expect(p.out.String()).NotTo(ContainSubstring("firmware"))
		allowed.Store(true)
		Eventually(tick).Should(ContainSubstring("firmware"))
		stop()
		Eventually(ended).Should(Receive(BeNil()))
	})

	DescribeTable("should end when what is waited for has happened", func(args string, change func(*corev1.Node)) {
		p := newPerson(shootObjects(), nil)
		clock := testclock.NewFakeClock(now)
		p.options.Clock = clock
		ended := make(chan error, 1)
		go func() { ended <- p.runs(args) }()
		tick := func() string { clock.Step(time.Second); return p.out.String() }
		Eventually(tick).Should(ContainSubstring("POOL"))
		Consistently(ended).ShouldNot(Receive())
		node := p.node(strings.Fields(args)[1])
		change(node)
		Expect(p.options.shoot.Status().Update(context.Background(), node)).To(Succeed())
		Eventually(func() chan error { clock.Step(time.Second); return ended }, time.Minute).Should(Receive(BeNil()))
	},
		Entry("released", "list asked -w --until released", Condition("Preserved", corev1.ConditionFalse, "PreservationEnded", "")),
		Entry("held", "list other asked -w --until held", Condition("Preserved", corev1.ConditionTrue, "Preserved", untilText)),
	)

	It("should end at once if it is so already, and show no others", func() {
		p := newPerson(shootObjects(), nil)
		Expect(p.runs("list asked -w --until held")).To(Succeed())
		Expect(p.out.String()).To(And(ContainSubstring("asked"), Not(ContainSubstring("works"))))
		Expect(p.runs("list other -w --until released")).To(Succeed())
		p.out.Reset()
		Expect(p.runs("list other")).To(Succeed())
		Expect(p.out.String()).To(HavePrefix("None of these machines is preserved.\n"))
	})

	It("should fail when what is waited for has not happened in time, or cannot any more", func() {
		p := newPerson(shootObjects(), seedObjects())
		Expect(p.runs("list asked works -w --until released --timeout 50ms")).To(MatchError("--timeout=50ms has passed, and not all of asked, works are released. 'kubectl preserve explain NODE' says why"))
		Expect(p.runs("list -w --timeout 50ms")).To(MatchError("--timeout=50ms has passed"))
		ctx, stop := context.WithCancel(context.Background())
		time.AfterFunc(50*time.Millisecond, stop)
		Expect(p.runsIn(ctx, "list asked -w --until released")).To(MatchError(context.Canceled))

		p = newPerson(shootObjects(), nil)
		clock := testclock.NewFakeClock(now)
		p.options.Clock = clock
		ended := make(chan error, 1)
		go func() { ended <- p.runs("list other -w --until held") }()
		Eventually(clock.HasWaiters).Should(BeTrue())
		Expect(p.options.shoot.Delete(context.Background(), p.node("other"))).To(Succeed())
		Eventually(func() chan error { clock.Step(time.Second); return ended }, time.Minute).Should(Receive(MatchError("node other is gone")))
	})

	DescribeTable("should say what is valid", func(args, message string) {
		Expect(newPerson(shootObjects(), nil).runs(args)).To(MatchError(message))
	},
		Entry("a node that is not there", "list asked nobody", `node "nobody" does not exist`),
		Entry("the same, to watch", "list nobody -w", `node "nobody" does not exist`),
		Entry("something else to wait for", "list asked -w --until gone", "--until=gone: must be one of held, released"),
		Entry("nobody to wait for", "list -w --until held", "--until=held: must be set together with --watch and names of nodes, for example 'kubectl preserve list NODE -w --until held'"),
		Entry("nothing to watch", "list --timeout 1m", "--timeout=1m0s: must be set with --watch only"),
		Entry("a negative time", "list -w --timeout -1m", "--timeout=-1m0s: must not be negative, for example 10m"),
		Entry("a file to watch", "list -w --from x", "--from=x: must not be set with --watch, because a file does not change"),
	)
})
