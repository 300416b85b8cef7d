// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance_test

import (
	"context"
	"flag"
	"time"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/conformance"
)

func deleted(machine *machinev1alpha1.Machine) { machine.DeletionTimestamp = new(metav1.Now()) }

var _ = Describe("Shoot", func() {
	DescribeTable("#Sum gives the first zone the share, as Gardener distributes",
		func(share, zones, expected int) {
			Expect(conformance.Sum(int32(share), int32(zones))).To(BeEquivalentTo(expected))
		},
		Entry("nothing", 0, 3, 0),
		Entry("one zone", 2, 1, 2),
		Entry("1, 0, 0", 1, 3, 1),
		Entry("2, 1", 2, 2, 3),
		Entry("2, 1, 1", 2, 3, 4),
	)

	DescribeTable("#Suitable",
		func(minimum, maximum, zones int, message string) {
			pool := extensionsv1alpha1.WorkerPool{Name: "a", Minimum: int32(minimum), Maximum: int32(maximum)}
			if err := conformance.Suitable(pool, int32(zones)); message == "" {
				Expect(err).NotTo(HaveOccurred())
			} else {
				Expect(err).To(MatchError(ContainSubstring(message)))
			}
		},
		Entry("one zone", 2, 3, 1, ""),
		Entry("two zones", 2, 4, 2, ""),
		Entry("three zones", 6, 6, 3, ""),
		Entry("more machines than scenarios expect", 3, 5, 1, `worker pool "a" has minimum 3 in 1 zones: at most 2 machines in each are needed, so set it to 2 or less`),
		Entry("no place for autoPreserveFailedMax", 2, 2, 1, `worker pool "a" has maximum 2 in 1 zones: set it to 3 or more`),
		Entry("less than two machines in a zone", 2, 5, 3, `worker pool "a" has maximum 5 in 3 zones: set it to 6 or more`),
	)

	DescribeTable("settings",
		func(args []string, configuration *machinev1alpha1.MachineConfiguration, reported []corev1.NodeConditionType, timeouts facts.Timeouts, condition string) {
			mcm := &appsv1.Deployment{}
			mcm.Spec.Template.Spec.Containers = []corev1.Container{
				{Name: "machine-controller-manager", Command: []string{"./machine-controller-manager", "--machine-health-timeout=1s"}},
				{Name: "machine-preservation-controller", Args: []string{"--machine-health-timeout=2s"}},
				{Name: "machine-controller-manager-provider", Args: append([]string{"--namespace=n", "--flag-of-another-version=3s"}, args...)},
			}
			deployment := &machinev1alpha1.MachineDeployment{}
			deployment.Spec.Template.Spec.MachineConfiguration = configuration
			node := &corev1.Node{}
			for _, condition := range reported {
				node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: condition})
			}
			actual, actualCondition, err := conformance.Settings(mcm, deployment, node)
			Expect(err).NotTo(HaveOccurred())
			Expect(actual).To(Equal(timeouts))
			Expect(actualCondition).To(BeEquivalentTo(condition))
		},
		Entry("the defaults of machine-controller-manager", nil, nil, nil,
			facts.Timeouts{Health: 10 * time.Minute, Creation: 20 * time.Minute, Drain: 2 * time.Hour}, "KernelDeadlock"),
		Entry("flags", []string{"--machine-health-timeout=5m", "--machine-drain-timeout=1h", "--node-conditions=Broken,KernelDeadlock"}, nil, nil,
			facts.Timeouts{Health: 5 * time.Minute, Creation: 20 * time.Minute, Drain: time.Hour}, "Broken"),
		Entry("the machines' own configuration", []string{"--machine-health-timeout=5m"},
			&machinev1alpha1.MachineConfiguration{MachineHealthTimeout: &metav1.Duration{Duration: time.Minute}, NodeConditions: new("Own")}, nil,
			facts.Timeouts{Health: time.Minute, Creation: 20 * time.Minute, Drain: 2 * time.Hour}, "Own"),
		Entry("rather a condition that nobody reports", nil, nil, []corev1.NodeConditionType{"KernelDeadlock", "DiskPressure"},
			facts.Timeouts{Health: 10 * time.Minute, Creation: 20 * time.Minute, Drain: 2 * time.Hour}, "ReadonlyFilesystem"),
		Entry("else the first one that is not the kubelet's", nil, nil, []corev1.NodeConditionType{"DiskPressure", "ReadonlyFilesystem", "KernelDeadlock"},
			facts.Timeouts{Health: 10 * time.Minute, Creation: 20 * time.Minute, Drain: 2 * time.Hour}, "KernelDeadlock"),
		Entry("none at all", []string{"--node-conditions=DiskPressure"}, nil, nil,
			facts.Timeouts{Health: 10 * time.Minute, Creation: 20 * time.Minute, Drain: 2 * time.Hour}, ""),
	)

	It("should say that the sidecar is missing", func() {
		_, _, err := conformance.Settings(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "machine-controller-manager"}}, &machinev1alpha1.MachineDeployment{}, &corev1.Node{})
		Expect(err).To(MatchError(ContainSubstring("has no container machine-preservation-controller")))
	})

	DescribeTable("#Leftover",
		func(machine *machinev1alpha1.Machine, node *corev1.Node, expected string, expectedBroken bool) {
			what, broken := conformance.Leftover(machine, node)
			Expect(what).To(Equal(expected))
			Expect(broken).To(Equal(expectedBroken))
		},
		Entry("an ordinary machine", builder.Machine("m"), builder.Node("m"), "", false),
		Entry("a machine that starts", builder.Machine("m", builder.Phase(machinev1alpha1.MachinePending, builder.Start)), nil, "", false),
		Entry("a machine that goes", builder.Machine("m", builder.Phase(machinev1alpha1.MachineFailed, builder.Start), deleted), nil, "", false),
		Entry("an unhealthy machine", builder.Machine("m", builder.Phase(machinev1alpha1.MachineUnknown, builder.Start)), builder.Node("m"), "phase Unknown", true),
		Entry("an auto-preserved machine", builder.Machine("m", builder.Preserved("Running:Preserved", "auto", builder.Start)), builder.Node("m"), "auto-preserved", true),
		Entry("a machine that somebody asked for", builder.Machine("m", builder.Preserved("Running:Preserved", "now", builder.Start)), builder.Node("m"),
			"annotation machine-preservation.extensions.gardener.cloud/cause", false),
		Entry("a machine without node that somebody asked for", builder.Machine("m", builder.Preserved("Pending:Preserved", "now", builder.Start)), nil,
			"annotation machine-preservation.extensions.gardener.cloud/cause", true),
		Entry("a request", builder.Machine("m"), builder.Node("m", builder.NodeAnnotation("node.machine.sapcloud.io/preserve", "")), "annotation node.machine.sapcloud.io/preserve", false),
		Entry("protection", builder.Machine("m"), builder.Node("m", builder.NodeAnnotation("cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm", "true")),
			"annotation cluster-autoscaler.kubernetes.io/scale-down-disabled-by-mcm", false),
		Entry("a machine that was power-cycled", builder.Machine("m", builder.Annotation("machine-preservation.extensions.gardener.cloud/power-cycle-record", "{}")), builder.Node("m"), "power-cycled", true),
		Entry("a request for a power cycle", builder.Machine("m", builder.Annotation("host.metal3.io/external-remediation", "")), builder.Node("m"), "annotation host.metal3.io/external-remediation", true),
		Entry("a cordon", builder.Machine("m"), &corev1.Node{Spec: corev1.NodeSpec{Unschedulable: true}}, "cordon", true),
	)

	Describe("#KeepCondition", func() {
		condition := func(c client.Client) func(ctx context.Context) []corev1.NodeCondition {
			return func(ctx context.Context) []corev1.NodeCondition {
				node := &corev1.Node{}
				Expect(c.Get(ctx, client.ObjectKey{Name: "node"}, node)).To(Succeed())
				return node.Status.Conditions
			}
		}
		ready := corev1.NodeCondition{Type: corev1.NodeReady, Status: corev1.ConditionTrue}

		It("should keep the condition on the node until it is removed, and touch no other one", func(ctx SpecContext) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}, Status: corev1.NodeStatus{Conditions: []corev1.NodeCondition{ready}}}
			c := fakeclient.NewClientBuilder().WithObjects(node).WithStatusSubresource(node).Build()
			broken := ConsistOf(Equal(ready), And(HaveField("Type", BeEquivalentTo("Broken")), HaveField("Status", corev1.ConditionTrue)))

			remove, err := conformance.KeepCondition(ctx, c, "node", "Broken")
			Expect(err).NotTo(HaveOccurred())
			Expect(condition(c)(ctx)).To(broken)

			Expect(c.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
			node.Status.Conditions[1].Status = corev1.ConditionFalse
			Expect(c.Status().Update(ctx, node)).To(Succeed())
			Eventually(condition(c)).WithContext(ctx).WithTimeout(5 * time.Second).Should(broken)

			Expect(remove(ctx)).To(Succeed())
			Expect(condition(c)(ctx)).To(ConsistOf(ready))
			Consistently(condition(c)).WithContext(ctx).WithTimeout(1500 * time.Millisecond).Should(ConsistOf(ready))
		})

		It("should have nothing to do when the node is gone", func(ctx SpecContext) {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node"}}
			c := fakeclient.NewClientBuilder().WithObjects(node).WithStatusSubresource(node).Build()
			remove, err := conformance.KeepCondition(ctx, c, "node", "Broken")
			Expect(err).NotTo(HaveOccurred())
			Expect(c.Delete(ctx, node)).To(Succeed())
			Expect(remove(ctx)).To(Succeed())
		})
	})
})

var _ = Describe("Flags", func() {
	const namespace = "shoot--a--b"
	var (
		worker = &extensionsv1alpha1.Worker{
			ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: namespace},
			Spec:       extensionsv1alpha1.WorkerSpec{Pools: []extensionsv1alpha1.WorkerPool{{Name: "first"}, {Name: "second"}}},
		}
		machine = &machinev1alpha1.Machine{ObjectMeta: metav1.ObjectMeta{Name: "m", Namespace: namespace, Labels: map[string]string{"node": "n"}}}
		node    = &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}

		valid = conformance.Flags{SeedKubeconfig: "seed.yaml", ShootKubeconfig: "shoot.yaml", Namespace: namespace}
		with  = func(change func(f *conformance.Flags)) conformance.Flags {
			f := valid
			change(&f)
			return f
		}
		environment = func(ctx context.Context, f conformance.Flags, nodes ...client.Object) (*conformance.Environment, error) {
			return f.EnvironmentOf(ctx,
				fakeclient.NewClientBuilder().WithScheme(kubernetesclient.SeedScheme).WithObjects(worker, machine).Build(),
				fakeclient.NewClientBuilder().WithScheme(kubernetesclient.ShootScheme).WithObjects(nodes...).Build())
		}
	)

	DescribeTable("valid pools",
		func(ctx SpecContext, pools string, expected ...any) {
			e, err := environment(ctx, with(func(f *conformance.Flags) { f.Pools = pools }), node)
			Expect(err).NotTo(HaveOccurred())
			Expect(e.Pools).To(HaveExactElements(expected...))
			Expect(e.Namespace).To(Equal(namespace))
		},
		Entry("all", ""),
		Entry("one", "second", "second"),
		Entry("several", "second, first", "second", "first"),
	)

	DescribeTable("values that cannot be used",
		func(ctx SpecContext, f conformance.Flags, message string) {
			_, err := environment(ctx, f, node)
			Expect(err).To(MatchError(ContainSubstring(message)))
		},
		Entry("no namespace", with(func(f *conformance.Flags) { f.Namespace = "" }), `-namespace="" must be the control-plane namespace of a shoot`),
		Entry("another namespace", with(func(f *conformance.Flags) { f.Namespace = "garden" }), `-namespace="garden" must be the control-plane namespace of a shoot, shoot--<project>--<shoot>: namespace garden has 0 Workers`),
		Entry("another pool", with(func(f *conformance.Flags) { f.Pools = "first,third" }), `-pools="first,third" names a worker pool "third" that the shoot does not have, valid are first, second`),
	)

	It("should tell whether somebody wants to run the suite", func() {
		parse := func(args ...string) *flag.FlagSet {
			set := flag.NewFlagSet("", flag.ContinueOnError)
			set.Bool("other", false, "")
			(&conformance.Flags{}).AddTo(set)
			Expect(set.Parse(args)).To(Succeed())
			return set
		}
		Expect(conformance.Given(parse("-other"))).To(BeFalse())
		Expect(conformance.Given(parse("-namespace="))).To(BeTrue())
	})

	It("should refuse the kubeconfig of another shoot", func(ctx SpecContext) {
		_, err := environment(ctx, valid, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}})
		Expect(err).To(MatchError(ContainSubstring(`-shoot-kubeconfig="shoot.yaml" must lead to the shoot whose machines are in namespace shoot--a--b`)))
	})

	It("should name all files that cannot be used", func(ctx SpecContext) {
		_, err := (&conformance.Flags{SeedKubeconfig: "/does/not/exist", Namespace: namespace, Report: "/does/not/exist/either"}).Environment(ctx)
		Expect(err).To(MatchError(And(
			ContainSubstring(`-seed-kubeconfig="/does/not/exist" must be the path of a kubeconfig: stat`),
			ContainSubstring(`-shoot-kubeconfig="" must be the path of a kubeconfig`),
			ContainSubstring(`-report="/does/not/exist/either" must be the path of a file that can be written`),
		)))
	})
})
