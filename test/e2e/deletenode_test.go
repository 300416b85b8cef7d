// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"testing"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	machinecontroller "github.com/gardener/machine-controller-manager/pkg/util/provider/machinecontroller"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machineutils"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/uuid"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	nodeutil "k8s.io/component-helpers/node/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/conformance"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

const (
	deleteNodePool     = "delete-node"
	deleteNodeMachines = 4
	// noticeTime is for how long machine-controller-manager is given time to see that a Node is not its own any more.
	noticeTime = 30 * time.Second
	// eventTime is how long it takes at most until machine-controller-manager has a change of a Node in its cache.
	eventTime = 5 * time.Second
	// bootTime is for how long there is no Node: a host is faster hardly ever. Who was cut off has connected again by then.
	bootTime = 45 * time.Second
)

// These are why no node is made safe by the deletion of its Node: as long as machines are lost by it, in the one case that is
// expected here, that is not offered. When machine-controller-manager loses none any more, they fail.

func TestLongDeleteNode061(t *testing.T) { runDeleteNode(t, "0.61") }
func TestLongDeleteNode062(t *testing.T) { runDeleteNode(t, "0.62") }

// gap is when something happens between the writes by which the Nodes of preserved machines are deleted.
type gap int

const (
	beforeNotice gap = iota
	afterNotice
	beforeFinalizer
	afterFinalizer
	afterDeletion
)

var gaps = []string{"before the annotation", "after the annotation", "before the finalizer is dropped", "after the finalizer was dropped", "after the deletion"}

// interference is what befalls machine-controller-manager while Nodes are deleted.
type interference struct {
	kill, cut, mend gap
	// forgotten says that it is cut off for longer than the API server of the shoot remembers what has changed.
	forgotten bool
}

const never gap = -1

func (i interference) String() string {
	switch {
	case i.kill != never:
		return "killed " + gaps[i.kill]
	case i.cut == i.mend:
		return "connections ended " + gaps[i.cut]
	case i.forgotten:
		return fmt.Sprintf("cut off %s, for longer than the API server remembers", gaps[i.cut])
	}
	return fmt.Sprintf("cut off %s, until %s", gaps[i.cut], gaps[i.mend])
}

func interferences() []interference {
	var all []interference
	for cut := beforeNotice; cut <= afterDeletion; cut++ {
		all = append(all, interference{kill: cut, cut: never, mend: never})
		for _, mend := range slices.Compact([]gap{cut, afterDeletion}) {
			all = append(all, interference{kill: never, cut: cut, mend: mend})
		}
	}
	for _, cut := range []gap{beforeNotice, afterNotice} {
		all = append(all, interference{kill: never, cut: cut, mend: afterDeletion, forgotten: true})
	}
	return all
}

func runDeleteNode(t *testing.T, generation string) {
	inTurn(t)
	g := NewWithT(t)
	l, ctx := startLandscape(t, "delete-node-"+generation, landscape.Options{MCM: generation})
	environment := environmentOf(g, l)
	link, err := newLink(ctx, t, environment.Seed, l.Shoot.Config.Host)
	g.Expect(err).NotTo(HaveOccurred())
	shoot := shootFor(g, []conformance.Scenario{{Name: deleteNodePool}})
	shoot.Spec.Provider.Workers[0].Minimum, shoot.Spec.Provider.Workers[0].Maximum = deleteNodeMachines, deleteNodeMachines
	g.Expect(seed.ApplyShoot(ctx, l.Seed.Config, shoot)).To(Succeed())
	g.Expect(seed.WaitForShoot(ctx, l.Seed.Config, shootName)).To(Succeed())

	d := &deleting{kept: sets.New[types.UID](), life: &life{Environment: environment, WithT: g, t: t, ctx: ctx, landscape: l, shoot: shoot}, link: link}
	for _, i := range interferences() {
		lost := d.cycle(i)
		t.Logf("Machine-controller-manager %s, %s: %d of %d machines lost", generation, i, lost, deleteNodeMachines)
		if expected := i.forgotten && i.cut == beforeNotice; lost > 0 != expected {
			t.Errorf("%d machines were lost, %s", lost, i)
		}
	}
}

// deleting deletes the Nodes of preserved machines as is safest for the Machines, and has them come back.
type deleting struct {
	*life
	link *link
	// kept are the machines that have outlived the cycle before.
	kept sets.Set[types.UID]
}

// cycle does it once with all machines of the pool, and returns how many of them are lost.
func (d *deleting) cycle(i interference) int {
	d.t.Helper()
	machines := d.preserved()
	nodes := make([]*corev1.Node, len(machines))
	for n, machine := range machines {
		d.Expect(d.Inject(d.ctx, machine, conformance.KubeletDead)).To(Succeed())
		nodes[n] = d.nodeOf(d, machine)
	}
	d.eventually(func(g Gomega) {
		for _, machine := range machines {
			_, ready := nodeutil.GetNodeCondition(&d.nodeOf(g, machine).Status, corev1.NodeReady)
			g.Expect(ready.Status).NotTo(Equal(corev1.ConditionTrue))
		}
	})
	version := ""
	happens := func(at gap) {
		if i.kill == at {
			d.Expect(killContainer(d.ctx, d.Seed, "machine-controller-manager-provider-local")).To(Succeed())
		}
		if i.cut == at {
			d.link.Cut()
			version = d.versionOfNodes()
		}
		if i.mend == at {
			if i.forgotten {
				d.outlive(version)
			}
			d.link.Mend()
		}
	}
	d.delete(nodes, happens)
	time.Sleep(bootTime)
	for n, machine := range machines {
		if !d.isLost(d, machine) {
			d.comeBack(machine, nodes[n])
		}
	}
	d.kept = sets.New[types.UID]()
	for _, machine := range machines {
		d.eventually(func(g Gomega) {
			if d.isLost(g, machine) {
				return
			}
			g.Expect(machine.Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachineRunning))
			g.Expect(d.nodeOf(g, machine).Finalizers).To(ContainElement(machinecontroller.NodeFinalizerName))
			d.kept.Insert(machine.UID)
		})
	}
	return len(machines) - d.kept.Len()
}

// isLost reads a machine anew, and says that it is gone, or about to go.
func (d *deleting) isLost(g Gomega, machine *machinev1alpha1.Machine) bool {
	err := d.Seed.Get(d.ctx, client.ObjectKeyFromObject(machine), machine)
	if apierrors.IsNotFound(err) {
		return true
	}
	g.Expect(err).NotTo(HaveOccurred())
	return machine.DeletionTimestamp != nil
}

// preserved waits until all machines of the pool are running, and preserved as it is asked for on them.
func (d *deleting) preserved() []*machinev1alpha1.Machine {
	d.t.Helper()
	var machines []*machinev1alpha1.Machine
	d.eventually(func(g Gomega) {
		machines = nil
		list := &machinev1alpha1.MachineList{}
		g.Expect(d.Seed.List(d.ctx, list, client.InNamespace(d.Namespace))).To(Succeed())
		for _, machine := range list.Items {
			if machine.DeletionTimestamp == nil && machine.Annotations[v1alpha1.AnnotationPreserve] == "" {
				g.Expect(d.Seed.Patch(d.ctx, &machine, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"now"}}}`, v1alpha1.AnnotationPreserve)))).To(Succeed())
			}
			if machine.DeletionTimestamp == nil && machine.Annotations[v1alpha1.AnnotationPhase] == runningPreserved {
				machines = append(machines, &machine)
			}
		}
		g.Expect(machines).To(HaveLen(deleteNodeMachines))
		known := sets.New[types.UID]()
		for _, machine := range machines {
			known.Insert(machine.UID)
		}
		g.Expect(known.IsSuperset(d.kept)).To(BeTrue(), "nothing was lost since")
	})
	return machines
}

// delete deletes Nodes without machine-controller-manager being told that they were its own. It begins again with those that
// machine-controller-manager has made its own meanwhile, without anything else happening then.
func (d *deleting) delete(nodes []*corev1.Node, happens func(gap)) {
	d.t.Helper()
	happens(beforeNotice)
	for left, during := nodes, happens; len(left) > 0; during = func(gap) {} {
		for _, node := range left {
			d.disown(node)
		}
		// Who is cut off after the annotation must have seen all of them, the last one as well.
		time.Sleep(eventTime)
		during(afterNotice)
		time.Sleep(noticeTime)
		during(beforeFinalizer)
		dropped := sets.New[types.UID]()
		for _, node := range left {
			if d.dropFinalizer(node) {
				dropped.Insert(node.UID)
			}
		}
		during(afterFinalizer)
		left = slices.DeleteFunc(slices.Clone(left), func(node *corev1.Node) bool { return dropped.Has(node.UID) && d.deleteVersion(node) })
		if len(left) > 0 {
			d.t.Logf("%d Nodes are machine-controller-manager's again", len(left))
		}
	}
	happens(afterDeletion)
}

// deleteVersion deletes the very version of a Node, and says whether it was still there.
func (d *deleting) deleteVersion(node *corev1.Node) bool {
	d.t.Helper()
	err := d.Shoot.Delete(d.ctx, node, client.Preconditions{UID: &node.UID, ResourceVersion: &node.ResourceVersion})
	if !apierrors.IsConflict(err) {
		d.Expect(err).NotTo(HaveOccurred())
	}
	return err == nil
}

func (d *deleting) disown(node *corev1.Node) {
	d.t.Helper()
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"1"}}}`, machineutils.NotManagedByMCM)
	d.Expect(d.Shoot.Patch(d.ctx, node.DeepCopy(), client.RawPatch(types.MergePatchType, patch))).To(Succeed())
}

// dropFinalizer removes machine-controller-manager's finalizer, and says whether the Node still was not its own then.
func (d *deleting) dropFinalizer(node *corev1.Node) bool {
	d.t.Helper()
	d.Expect(d.Shoot.Get(d.ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
	if !metav1.HasAnnotation(node.ObjectMeta, machineutils.NotManagedByMCM) {
		return false
	}
	before := node.DeepCopy()
	node.Finalizers = slices.DeleteFunc(node.Finalizers, func(f string) bool { return f == machinecontroller.NodeFinalizerName })
	err := d.Shoot.Patch(d.ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
	if apierrors.IsConflict(err) {
		return false
	}
	d.Expect(err).NotTo(HaveOccurred())
	return true
}

func (d *deleting) versionOfNodes() string {
	d.t.Helper()
	nodes := &corev1.NodeList{}
	d.Expect(d.Shoot.List(d.ctx, nodes)).To(Succeed())
	return nodes.ResourceVersion
}

// outlive changes Nodes until the API server has forgotten how they have changed since a version.
func (d *deleting) outlive(version string) {
	d.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "changes"}}
	d.Expect(d.Shoot.Create(d.ctx, node)).To(Succeed())
	defer func() { d.Expect(d.Shoot.Delete(d.ctx, node)).To(Succeed()) }()
	changes, started := 0, time.Now()
	d.eventually(func(g Gomega) {
		for range 20 {
			changes++
			patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"e2e.example.org/change":"%d"}}}`, changes)
			g.Expect(d.Shoot.Patch(d.ctx, node, client.RawPatch(types.MergePatchType, patch))).To(Succeed())
		}
		watch, err := d.Shoot.Watch(d.ctx, &corev1.NodeList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: version}})
		g.Expect(err).NotTo(HaveOccurred())
		defer watch.Stop()
		g.Expect((<-watch.ResultChan()).Type).To(Equal(apiwatch.Error))
	})
	d.t.Logf("The API server has forgotten version %s after %s and %d changes", version, time.Since(started).Round(time.Second), changes)
}

// comeBack registers the Node of a machine again, as the kubelet of one that was powered on does.
func (d *deleting) comeBack(machine *machinev1alpha1.Machine, node *corev1.Node) {
	d.t.Helper()
	back := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: node.Name, Labels: node.Labels}, Spec: corev1.NodeSpec{ProviderID: node.Spec.ProviderID}, Status: node.Status}
	back.Status.NodeInfo.BootID = string(uuid.NewUUID())
	back.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionFalse, Reason: "KubeletNotReady", LastTransitionTime: metav1.Now()}}
	d.Expect(d.Shoot.Create(d.ctx, back)).To(Succeed())
	d.Expect(d.Inject(d.ctx, machine, conformance.NoFault)).To(Succeed())
}
