// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package remediation

import (
	"context"
	"errors"
	"fmt"
	"slices"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// group returns a MachineDeployment with those of its machines that matter, as a reader has them, and nil if there are none.
// The hosts of the live ones, and of all that may be kept off, are read from the API server if there are live ones. With an
// error and a group, some hosts are not known.
func (r *Reconciler) group(ctx context.Context, req reconcile.Request, memory *memory, reader client.Reader, live sets.Set[types.UID]) (*remediation.Group, error) {
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	group := &remediation.Group{
		Seed:           r.Seed,
		AllowAutomatic: true, // the settings say only what operators allow
		AllowNodes:     r.AllowNodes,
		Timeouts:       r.Timeouts,
		ShootAway:      !r.Nodes.Synced(),
		ShootBack:      r.Nodes.Back(),
	}
	machines, err := r.machines(call, req, reader, group)
	if err != nil {
		return nil, err
	}
	if group.Settings == nil {
		machines = slices.DeleteFunc(machines, func(m *machinev1alpha1.Machine) bool { return !isMarked(m) })
		if len(machines) == 0 {
			return nil, nil
		}
	}
	var errs []error
	for _, machine := range machines {
		member := remediation.Member{Member: preservation.Member{Machine: machine}, NodeDenied: memory.denied(machine.UID, r.Clock.Now())}
		if left := memory.left(machine.UID); left.Remains != (remediation.Remains{}) { // a node that was safe must be read anew
			member.Remains = &left.Remains
		}
		if name := machine.Labels[machinev1alpha1.NodeLabelKey]; name != "" {
			if member.NodeUnknown = group.ShootAway; !member.NodeUnknown {
				if member.Node, err = r.node(call, name); err != nil {
					return nil, err
				}
			}
		}
		member.Healthy = preservation.IsHealthy(member.Member, r.NodeConditions)
		if err := r.findHost(ctx, &member, live != nil && (live.Has(machine.UID) || hasFinalizer(machine))); err != nil {
			errs = append(errs, err)
		}
		group.Members = append(group.Members, member)
	}
	return group, errors.Join(errs...)
}

// machines returns the machines of a MachineDeployment, and completes the group with what is known of that.
func (r *Reconciler) machines(ctx context.Context, req reconcile.Request, reader client.Reader, group *remediation.Group) ([]*machinev1alpha1.Machine, error) {
	if req.Name == "" {
		return r.homeless(ctx, req.Namespace)
	}
	deployment := &machinev1alpha1.MachineDeployment{}
	if err := r.Source.Get(ctx, req.NamespacedName, deployment); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("failed to read the MachineDeployment: %w", err)
	}
	var err error
	if group.Settings, err = remediation.ReadSettings(deployment); err != nil {
		logf.FromContext(ctx).Error(err, "Hosts are not touched")
	}
	group.Replicas = deployment.Spec.Replicas
	group.InPlace = deployment.Spec.Strategy.Type == machinev1alpha1.InPlaceUpdateMachineDeploymentStrategyType
	machines, rollout, err := shoot.MachinesOf(ctx, r.Source, reader, deployment)
	group.Rollout = rollout
	return machines, err
}

// homeless returns the machines with something of ours that belong to no MachineDeployment any more: nobody would let them go
// otherwise.
func (r *Reconciler) homeless(ctx context.Context, namespace string) ([]*machinev1alpha1.Machine, error) {
	list := &machinev1alpha1.MachineList{}
	if err := r.Source.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("failed to list the machines: %w", err)
	}
	var machines []*machinev1alpha1.Machine
	for i := range list.Items {
		if !isMarked(&list.Items[i]) {
			continue
		}
		// A cache may not know it yet.
		deployment, err := shoot.DeploymentOf(ctx, r.SourceReader, &list.Items[i])
		if err != nil {
			return nil, err
		}
		if deployment == nil {
			machines = append(machines, &list.Items[i])
		}
	}
	return machines, nil
}

func (r *Reconciler) node(ctx context.Context, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	if err := r.Nodes.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("failed to read node %s: %w", name, err)
	}
	return node, nil
}

// findHost completes a member with its host, or with why it has none.
func (r *Reconciler) findHost(ctx context.Context, member *remediation.Member, live bool) error {
	driver := r.Driver()
	if driver == nil {
		return nil
	}
	read := driver.Of
	if live {
		read = driver.Live
	}
	var err error
	member.Host, err = read(ctx, member.Machine)
	if errors.Is(err, host.ErrNoHost) || errors.Is(err, host.ErrForeign) {
		member.NoHost = fmt.Sprintf("No host can be power-cycled: %s.", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("failed to read the host of machine %s: %w", member.Machine.Name, err)
	}
	return nil
}

// marks are the annotations of ours on a Machine.
var marks = []string{
	v1alpha1.AnnotationPowerCyclePhase,
	v1alpha1.AnnotationPowerCycleAttempt,
	v1alpha1.AnnotationPowerCycleRecord,
	v1alpha1.AnnotationRemediation,
}

// isMarked says that there is something of ours on a Machine.
func isMarked(machine *machinev1alpha1.Machine) bool {
	return hasFinalizer(machine) || slices.ContainsFunc(marks, func(key string) bool { _, ok := machine.Annotations[key]; return ok })
}

func hasFinalizer(machine *machinev1alpha1.Machine) bool {
	return slices.Contains(machine.Finalizers, v1alpha1.FinalizerHost)
}
