// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package scheduler_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/events"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	domain "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/maintenance/scheduler"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// cache returns what it has without deep copies, as the caches of the sidecar do, and writes nothing.
type cache struct {
	client.Client
	config       *v1alpha1.MaintenanceOperatorConfig
	maintenances []v1alpha1.NodeMaintenance
	nodes        []corev1.Node
	machines     map[string]*machinev1alpha1.Machine
	sets         []machinev1alpha1.MachineSet
	setsByName   map[string]*machinev1alpha1.MachineSet
	deployments  map[string]*machinev1alpha1.MachineDeployment
}

func (c *cache) Known() bool { return true }

func (c *cache) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	switch list := list.(type) {
	case *v1alpha1.NodeMaintenanceList:
		list.Items = append(list.Items, c.maintenances...)
	case *corev1.NodeList:
		list.Items = append(list.Items, c.nodes...)
	case *machinev1alpha1.MachineSetList:
		list.Items = append(list.Items, c.sets...)
	case *machinev1alpha1.MachineList:
		if fields, ok := opts[0].(client.MatchingFields); ok {
			list.Items = append(list.Items, *c.machines[fields["node"]])
			return nil
		}
		selector := (&client.ListOptions{}).ApplyOptions(opts).LabelSelector
		for _, machine := range c.machines {
			if selector.Matches(labels.Set(machine.Labels)) {
				list.Items = append(list.Items, *machine)
			}
		}
	}
	return nil
}

func (c *cache) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	switch obj := obj.(type) {
	case *v1alpha1.MaintenanceOperatorConfig:
		*obj = *c.config
	case *machinev1alpha1.MachineSet:
		*obj = *c.setsByName[key.Name]
	case *machinev1alpha1.MachineDeployment:
		*obj = *c.deployments[key.Name]
	default: // it is gone meanwhile
		return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
	}
	return nil
}

func (c *cache) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return nil
}

// BenchmarkReconcile is of a round of 4,000 nodes with a pending maintenance each, or 25, in 100 pools with 3 MachineSets each: with
// a free slot, all nodes are candidates.
func BenchmarkReconcile(b *testing.B) {
	for _, each := range []int{1, 25} {
		for _, slots := range []string{"free", "used"} {
			b.Run(fmt.Sprintf("maintenances=%d/slots=%s", 4000*each, slots), func(b *testing.B) { reconcileMany(b, each, slots) })
		}
	}
}

func reconcileMany(b *testing.B, each int, slots string) {
	const nodes, pools = 4000, 100
	c := &cache{machines: map[string]*machinev1alpha1.Machine{}, setsByName: map[string]*machinev1alpha1.MachineSet{}, deployments: map[string]*machinev1alpha1.MachineDeployment{}}
	c.config = &v1alpha1.MaintenanceOperatorConfig{Spec: v1alpha1.MaintenanceOperatorConfigSpec{MaxParallelOperations: new(intstr.FromInt32(1))}}
	for i := range pools {
		deployment := Deployment(fmt.Sprintf("pool-%d", i), Replicas(40))
		deployment.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"name": deployment.Name}}
		c.deployments[deployment.Name] = deployment
		for revision := range 3 {
			set := Set(fmt.Sprintf("%s-%d", deployment.Name, revision), deployment, Revision(fmt.Sprint(revision+1)))
			set.Spec.Replicas, set.Status.Replicas = int32(revision/2*40), int32(revision/2*40)
			c.sets, c.setsByName[set.Name] = append(c.sets, *set), set
		}
	}
	for i := range nodes {
		name := fmt.Sprintf("n%d", i)
		c.nodes = append(c.nodes, *Node(name))
		c.machines[name] = Machine(name, Of(c.setsByName[fmt.Sprintf("pool-%d-2", i%pools)]))
		c.machines[name].Labels["name"] = fmt.Sprintf("pool-%d", i%pools)
		for j := range each {
			of := fmt.Sprintf("%s-%d", name, j)
			nm := v1alpha1.NodeMaintenance{
				ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: of, UID: types.UID(of), CreationTimestamp: metav1.NewTime(Start.Add(time.Duration(i) * time.Second))},
				Spec:       v1alpha1.NodeMaintenanceSpec{RequestorID: "acme.com", NodeName: name},
			}
			phase := v1alpha1.PhasePending
			if i == 0 && j == 0 && slots == "used" {
				phase = v1alpha1.PhaseReady
			}
			domain.SetPhase(&nm.Status, phase, "", 0, Start)
			c.maintenances = append(c.maintenances, nm)
		}
	}
	live := struct{ client.Reader }{c}
	r := &Reconciler{Source: c, Shoot: c, Nodes: c, Live: live, Clock: testclock.NewFakePassiveClock(Start), Recorder: events.NewFakeRecorder(1)}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Reconcile(b.Context(), reconcile.Request{}); err != nil {
			b.Fatal(err)
		}
	}
}
