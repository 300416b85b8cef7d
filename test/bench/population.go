// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/gardener/machine-controller-manager/pkg/util/provider/machineutils"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/kwok"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/simulator"
)

// populate brings the shoot to a number of machines. provider-local would create a few in a second. Hence, while
// machine-controller-manager is away, copies of a machine are made as it would have left them. Its processes are new ones
// then: their memory is that of so many machines.
func (b *bench) populate(ctx context.Context, machines int) error {
	landscape.Say("Making %d machines", machines)
	var many, few []machinev1alpha1.Machine
	if err := until(ctx, "there are machines to make copies of", patience, func(ctx context.Context) (bool, error) {
		var err error
		if many, err = b.machinesOf(ctx, poolMany); err != nil {
			return false, err
		}
		if few, err = b.machinesOf(ctx, poolFew); err != nil || len(many) == 0 {
			return false, err
		}
		return b.complete(ctx, len(many)+len(few))
	}); err != nil {
		return err
	}

	if err := b.scaleManager(ctx, 0); err != nil {
		return err
	}
	// Kubelets that show their life every two seconds, as the node lifecycle controller of the landscape wants it, would keep
	// the API server busier than what is measured.
	if err := b.landscape.Shoot.ControllerManager.Stop(ctx); err != nil {
		return err
	}
	if err := b.copyMachine(ctx, &many[0], len(many), machines-len(few)); err != nil {
		return err
	}
	if err := b.setReplicas(ctx, &many[0], machines-len(few)); err != nil {
		return err
	}
	names, err := b.names(ctx)
	if err != nil {
		return err
	}
	if err := b.scaleManager(ctx, 1); err != nil {
		return err
	}

	landscape.Say("Waiting until machine-controller-manager has taken them over")
	if err := until(ctx, "machine-controller-manager knows all machines and nodes", patience, func(ctx context.Context) (bool, error) {
		return b.complete(ctx, machines)
	}); err != nil {
		return err
	}
	if err := b.quiet(ctx, 10*time.Second); err != nil {
		return err
	}
	return b.unchanged(ctx, names)
}

// scaleManager starts or stops the pod of machine-controller-manager, with all its containers.
func (b *bench) scaleManager(ctx context.Context, replicas int) error {
	deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: v1beta1constants.DeploymentNameMachineControllerManager, Namespace: b.namespace}}
	if err := b.seed.Patch(ctx, deployment, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))); err != nil {
		return fmt.Errorf("could not scale machine-controller-manager: %w", err)
	}
	return until(ctx, fmt.Sprintf("machine-controller-manager has %d pods", replicas), patience, func(ctx context.Context) (bool, error) {
		pods := &corev1.PodList{}
		err := b.seedCache.List(ctx, pods, client.InNamespace(b.namespace))
		return len(pods.Items) == replicas, err
	})
}

// copyMachine makes copies of a machine, of its VM and of its Node, so that there are a number of machines in the end.
func (b *bench) copyMachine(ctx context.Context, original *machinev1alpha1.Machine, there, wanted int) error {
	vm, node := &corev1.Pod{}, &corev1.Node{}
	if err := errors.Join(
		b.seed.Get(ctx, client.ObjectKey{Namespace: seed.MachineNamespace(b.shootName), Name: vmOf(original.Name)}, vm),
		b.shoot.Get(ctx, client.ObjectKey{Name: nodeOf(original)}, node),
	); err != nil {
		return fmt.Errorf("could not read the VM and the Node of machine %s: %w", original.Name, err)
	}

	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := there; i < wanted; i++ {
		group.Go(func() error {
			machine, vm, node := copyOf(original, vm, node, fmt.Sprintf("%s-%05d", metav1.GetControllerOf(original).Name, i))
			status := machine.Status
			if err := b.seed.Create(groupCtx, machine); err != nil {
				return fmt.Errorf("could not create machine %s: %w", machine.Name, err)
			}
			machine.Status = status
			if err := b.seed.Status().Update(groupCtx, machine); err != nil {
				return fmt.Errorf("could not write the status of machine %s: %w", machine.Name, err)
			}
			if err := b.seed.Create(groupCtx, vm); err != nil {
				return fmt.Errorf("could not create the VM of machine %s: %w", machine.Name, err)
			}
			if err := b.shoot.Create(groupCtx, node); err != nil {
				return fmt.Errorf("could not create the Node of machine %s: %w", machine.Name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// vmOf returns the name of the Pod that stands for the VM, which also is the name of the Node.
func vmOf(machine string) string { return "machine-" + machine }

// copyOf returns another machine of the same MachineSet that runs, its VM, and its Node. The Node is healthy, but has no
// kubelet: the simulator is told so, and neither registers it nor lets it be served.
func copyOf(machine *machinev1alpha1.Machine, vm *corev1.Pod, node *corev1.Node, name string) (*machinev1alpha1.Machine, *corev1.Pod, *corev1.Node) {
	machine, vm, node = machine.DeepCopy(), vm.DeepCopy(), node.DeepCopy()

	machine.ObjectMeta = metav1.ObjectMeta{
		Name:            name,
		Namespace:       machine.Namespace,
		Labels:          machine.Labels,
		Annotations:     machine.Annotations,
		Finalizers:      machine.Finalizers,
		OwnerReferences: machine.OwnerReferences,
	}
	machine.Labels[machinev1alpha1.NodeLabelKey] = vmOf(name)
	machine.Spec.ProviderID = vmOf(name)

	vm.ObjectMeta = metav1.ObjectMeta{
		Name:        vmOf(name),
		Namespace:   vm.Namespace,
		Labels:      vm.Labels,
		Annotations: map[string]string{simulator.FailureAnnotation: string(simulator.KubeletDead)},
	}
	vm.Labels["machine"] = name
	vm.Spec.NodeName = ""
	vm.Status = corev1.PodStatus{}

	node.ObjectMeta = metav1.ObjectMeta{
		Name:        vmOf(name),
		Labels:      node.Labels,
		Annotations: node.Annotations,
		Finalizers:  node.Finalizers,
	}
	node.Labels[corev1.LabelHostname] = vmOf(name)
	node.Labels[machineutils.MachineLabelKey] = name
	delete(node.Labels, kwok.LabelKubelet)
	node.Spec.ProviderID = vmOf(name)
	return machine, vm, node
}

// setReplicas makes the copies wanted.
func (b *bench) setReplicas(ctx context.Context, machine *machinev1alpha1.Machine, replicas int) error {
	set := &machinev1alpha1.MachineSet{ObjectMeta: metav1.ObjectMeta{Name: metav1.GetControllerOf(machine).Name, Namespace: b.namespace}}
	if err := b.seed.Get(ctx, client.ObjectKeyFromObject(set), set); err != nil {
		return fmt.Errorf("could not read the MachineSet: %w", err)
	}
	deployment := &machinev1alpha1.MachineDeployment{ObjectMeta: metav1.ObjectMeta{Name: metav1.GetControllerOf(set).Name, Namespace: b.namespace}}
	for _, object := range []client.Object{deployment, set} {
		if err := b.seed.Patch(ctx, object, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas))); err != nil {
			return fmt.Errorf("could not scale %s: %w", object.GetName(), err)
		}
	}
	return nil
}

// complete says that there is a number of machines, and that machine-controller-manager has taken them and their nodes for
// its own.
func (b *bench) complete(ctx context.Context, count int) (bool, error) {
	machines, nodes, deployments := &machinev1alpha1.MachineList{}, &corev1.NodeList{}, &machinev1alpha1.MachineDeploymentList{}
	if err := errors.Join(b.seedCache.List(ctx, machines), b.shootCache.List(ctx, nodes), b.seedCache.List(ctx, deployments)); err != nil {
		return false, err
	}
	for i := range machines.Items {
		if machines.Items[i].Status.CurrentStatus.Phase != machinev1alpha1.MachineRunning {
			return false, nil
		}
	}
	for i := range nodes.Items {
		if node := &nodes.Items[i]; node.Labels[machineutils.MachineLabelKey] == "" || !isReady(node) {
			return false, nil
		}
	}
	ready := 0
	for i := range deployments.Items {
		ready += int(deployments.Items[i].Status.ReadyReplicas)
	}
	return ready == count && len(machines.Items) == count && len(nodes.Items) == count, nil
}

// names returns the names of all machines.
func (b *bench) names(ctx context.Context) (sets.Set[string], error) {
	machines := &machinev1alpha1.MachineList{}
	if err := b.seedCache.List(ctx, machines); err != nil {
		return nil, err
	}
	names := sets.New[string]()
	for i := range machines.Items {
		names.Insert(machines.Items[i].Name)
	}
	return names, nil
}

// unchanged returns an error if machine-controller-manager has replaced, added or removed a machine.
func (b *bench) unchanged(ctx context.Context, before sets.Set[string]) error {
	after, err := b.names(ctx)
	if err != nil {
		return err
	}
	if !after.Equal(before) {
		return fmt.Errorf("machines were replaced: %d are gone, %d are new", before.Difference(after).Len(), after.Difference(before).Len())
	}
	return nil
}

func isReady(node *corev1.Node) bool {
	for _, condition := range node.Status.Conditions {
		if condition.Type == corev1.NodeReady {
			return condition.Status == corev1.ConditionTrue
		}
	}
	return false
}
