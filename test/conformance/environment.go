// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"context"
	"slices"
	"testing"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	preserve       = "node.machine.sapcloud.io/preserve"
	prefix         = "machine-preservation.extensions.gardener.cloud/"
	scaleDown      = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	taintPreserved = "node.machine.sapcloud.io/preserved"

	failedPreserved  = "Failed:Preserved"
	runningPreserved = "Running:Preserved"

	// poolLabel is on Nodes.
	poolLabel = "worker.gardener.cloud/pool"

	pollInterval = time.Second
	// patience is for how long an outcome is waited for. machine-controller-manager looks at an unhealthy machine once a
	// minute, and replaces one at a time.
	patience = 5 * time.Minute
	// endurance is for how long something must hold that machine-controller-manager would else end.
	endurance = 75 * time.Second
)

// Fault is what befalls a machine.
type Fault string

// The faults that scenarios need.
const (
	// NoFault lets the machine recover.
	NoFault Fault = ""
	// KubeletDead makes the machine's kubelet fall silent.
	KubeletDead Fault = "kubelet-dead"
	// NeverJoins keeps a machine from getting a node.
	NeverJoins Fault = "never-joins"
)

// Environment is a shoot to try the rules on.
type Environment struct {
	// Seed and Shoot are clients that read from the API servers.
	Seed  client.WithWatch
	Shoot client.Client
	// Namespace is the shoot's control-plane namespace on the seed.
	Namespace string
	// Inject makes a machine fail, or recover.
	Inject func(ctx context.Context, machine *machinev1alpha1.Machine, fault Fault) error
	// InjectNext makes the next machine fail whose MachineDeployment is the given one.
	InjectNext func(ctx context.Context, machineDeployment string, fault Fault) error
}

// Pool is the worker pool of one scenario.
type Pool struct {
	*Environment
	*WithT

	t    *testing.T
	ctx  context.Context
	name string
}

// deployment returns the only MachineDeployment of the pool.
func (p *Pool) deployment() *machinev1alpha1.MachineDeployment {
	p.t.Helper()
	deployments := &machinev1alpha1.MachineDeploymentList{}
	p.Expect(p.Seed.List(p.ctx, deployments, client.InNamespace(p.Namespace))).To(Succeed())
	deployments.Items = slices.DeleteFunc(deployments.Items, func(d machinev1alpha1.MachineDeployment) bool {
		return d.Spec.Template.Spec.NodeTemplateSpec.Labels[poolLabel] != p.name
	})
	p.Expect(deployments.Items).To(HaveLen(1))
	return &deployments.Items[0]
}

// machines returns the machines of the pool, the oldest first.
func (p *Pool) machines(g Gomega) []machinev1alpha1.Machine {
	machines := &machinev1alpha1.MachineList{}
	g.Expect(p.Seed.List(p.ctx, machines, client.InNamespace(p.Namespace))).To(Succeed())
	own := slices.DeleteFunc(machines.Items, func(m machinev1alpha1.Machine) bool {
		return m.Spec.NodeTemplateSpec.Labels[poolLabel] != p.name
	})
	slices.SortFunc(own, func(a, b machinev1alpha1.Machine) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return own
}

// running waits for the given number of machines in phase Running with a Node, and returns them.
func (p *Pool) running(count int) []*machinev1alpha1.Machine {
	p.t.Helper()
	var running []*machinev1alpha1.Machine
	p.Eventually(func(g Gomega) {
		running = nil
		for _, m := range p.machines(g) {
			if m.DeletionTimestamp == nil && m.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning {
				running = append(running, &m)
				g.Expect(p.node(g, &m)).NotTo(BeNil())
			}
		}
		g.Expect(running).To(HaveLen(count))
	}).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
	return running
}

// node returns the machine's node.
func (p *Pool) node(g Gomega, machine *machinev1alpha1.Machine) *corev1.Node {
	node := &corev1.Node{}
	g.Expect(p.Shoot.Get(p.ctx, client.ObjectKey{Name: machine.Labels[machinev1alpha1.NodeLabelKey]}, node)).To(Succeed())
	return node
}

// fresh reads the machine once more.
func (p *Pool) fresh(g Gomega, machine *machinev1alpha1.Machine) *machinev1alpha1.Machine {
	fresh := &machinev1alpha1.Machine{}
	g.Expect(p.Seed.Get(p.ctx, client.ObjectKeyFromObject(machine), fresh)).To(Succeed())
	return fresh
}

// fail injects a fault.
func (p *Pool) fail(machine *machinev1alpha1.Machine, fault Fault) {
	p.t.Helper()
	p.t.Logf("Machine %s: fault %q", machine.Name, fault)
	p.Expect(p.Inject(p.ctx, machine, fault)).To(Succeed())
}

// annotate sets annotations of the machine's node; an empty value removes one.
func (p *Pool) annotate(machine *machinev1alpha1.Machine, annotations map[string]string) {
	p.t.Helper()
	p.t.Logf("Node of machine %s: annotations %v", machine.Name, annotations)
	node := p.node(p, machine)
	patch := client.MergeFrom(node.DeepCopy())
	for key, value := range annotations {
		if node.Annotations == nil {
			node.Annotations = map[string]string{}
		}
		if node.Annotations[key] = value; value == "" {
			delete(node.Annotations, key)
		}
	}
	p.Expect(p.Shoot.Patch(p.ctx, node, patch)).To(Succeed())
}

// preserved waits until the machine is in the given sub-phase for the given cause, and returns its expiry.
func (p *Pool) preserved(machine *machinev1alpha1.Machine, phase, cause string) (expiry time.Time) {
	p.t.Helper()
	p.Eventually(func(g Gomega) {
		expiry = p.isPreserved(g, machine, phase, cause)
	}).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
	p.t.Logf("Machine %s: %s until %s (%s)", machine.Name, phase, expiry.Format(time.RFC3339), cause)
	return expiry
}

func (p *Pool) isPreserved(g Gomega, machine *machinev1alpha1.Machine, phase, cause string) time.Time {
	fresh := p.fresh(g, machine)
	g.Expect(fresh.DeletionTimestamp).To(BeNil())
	g.Expect(fresh.Annotations).To(HaveKeyWithValue(prefix+"phase", phase))
	g.Expect(fresh.Annotations).To(HaveKeyWithValue(prefix+"cause", cause))
	expiry, err := time.Parse(time.RFC3339, fresh.Annotations[prefix+"expiry-time"])
	g.Expect(err).NotTo(HaveOccurred())
	return expiry
}

// staysPreserved checks that the machine stays as it is for longer than machine-controller-manager would let it.
func (p *Pool) staysPreserved(machine *machinev1alpha1.Machine, phase, cause string, expiry time.Time) {
	p.t.Helper()
	p.Consistently(func(g Gomega) {
		g.Expect(p.isPreserved(g, machine, phase, cause)).To(BeTemporally("==", expiry))
	}).WithTimeout(endurance).WithPolling(pollInterval).Should(Succeed())
}

// gone waits until the machine is deleted.
func (p *Pool) gone(machine *machinev1alpha1.Machine) {
	p.t.Helper()
	p.Eventually(func() error {
		return p.Seed.Get(p.ctx, client.ObjectKeyFromObject(machine), &machinev1alpha1.Machine{})
	}).WithTimeout(patience).WithPolling(pollInterval).Should(MatchError(apierrors.IsNotFound, "IsNotFound"))
	p.t.Logf("Machine %s: gone", machine.Name)
}

// tainted matches a node with the taint of a machine in Failed:Preserved.
func tainted() types.GomegaMatcher {
	return HaveField("Spec.Taints", ContainElement(And(HaveField("Key", taintPreserved), HaveField("Effect", corev1.TaintEffectNoSchedule))))
}
