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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
)

// group returns a MachineDeployment with its machines that matter, and nil if there are none. If live names any machine, all machines
// are read live, and otherwise from the cache. Also read live are the nodes and the hosts of the named machines, and of all machines
// whose host may be off for us. All other nodes and hosts are read from the cache, and the Others, too, unless countLive says otherwise.
// If group returns both an error and a group, some hosts are not known.
func (r *Reconciler) group(ctx context.Context, req reconcile.Request, observations *observations, live sets.Set[types.UID], countLive bool) (*remediation.Group, error) {
	began := r.Clock.Now()
	call, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	group := &remediation.Group{
		Seed:         r.Seed,
		QuietTime:    r.QuietTime,
		AllowNodes:   r.AllowNodes,
		MaxPerShoot:  r.MaxPerShoot,
		NeedsGrant:   r.NeedsGrant,
		MaxServicing: r.MaxServicing,
		Evidence:     r.Evidence,
		Process:      r.Leading.Since(r.Clock.Now()),
		Uncounted:    live.Len() > 0 && !countLive,
		Timeouts:     r.Timeouts,
		ShootAway:    !r.Nodes.Synced(),
		ShootBack:    r.Nodes.Back(),

		NodeConditions: r.NodeConditions,
	}
	cached := readers{seed: r.Source, shoot: r.Nodes}
	from := cached
	if live.Len() > 0 {
		from = readers{seed: r.SourceReader, shoot: r.Nodes.GetAPIReader(), limit: pageSize}
	}
	machines, err := r.machines(call, req, from.seed, group)
	if err != nil {
		return nil, err
	}
	if group.Settings == nil {
		machines = slices.DeleteFunc(machines, func(m *machinev1alpha1.Machine) bool { return !isMarked(m) })
		if len(machines) == 0 {
			return nil, nil
		}
	}
	// What the shoot does not answer in time counts as unknown, and delays nothing else (P14).
	patient, cancel := context.WithTimeout(ctx, shootTimeout)
	defer cancel()
	var errs []error
	for _, machine := range machines {
		isLive := live.Len() > 0 && (live.Has(machine.UID) || hasFinalizer(machine))
		member := remediation.Member{
			Member:     facts.Member{Machine: machine},
			Live:       isLive,
			NodeDenied: observations.denied(machine.UID, r.Clock.Now()),
		}
		if left := observations.left(machine.UID); left.NodeContents != (remediation.NodeContents{}) { // contents of a safe node must be read again
			member.NodeContents = &left.NodeContents
		}
		if name := machine.Labels[machinev1alpha1.NodeLabelKey]; name != "" {
			if member.NodeUnknown = group.ShootAway; !member.NodeUnknown {
				nodes := client.Reader(r.Nodes)
				if isLive {
					nodes = from.shoot
				}
				if member.Node, err = shoot.ReadNode(patient, nodes, name); err != nil {
					logf.FromContext(ctx).Info("A node is not known", "machine", machine.Name, "reason", err.Error())
					member.NodeUnknown = true
				}
			}
		}
		member.HealthySince, member.Healthy = facts.HealthySince(member.Member, r.NodeConditions)
		if err := r.findHost(call, &member, isLive); err != nil {
			errs = append(errs, err)
		}
		group.Members = append(group.Members, member)
	}
	observations.see(group.Members, began, r.Clock.Now())
	if group.Settings != nil && !group.ShootAway {
		if !countLive {
			from = cached
		}
		listing, cancel := context.WithTimeout(ctx, listTimeout)
		defer cancel()
		if err = r.count(listing, req.Namespace, from, group); err != nil {
			logf.FromContext(ctx).Info("Not known how many nodes are ready", "reason", brief.CutError(err).Error())
		}
	}
	return group, errors.Join(errs...)
}

// readers read the control-plane namespace and the shoot.
type readers struct {
	seed, shoot client.Reader
	// limit is how many nodes are listed at a time, to save memory; 0 for all, from a cache.
	limit int64
}

// count completes the group with the nodes of the shoot that are not those of its members, with how many other machines are being
// power-cycled (X8), and with how many machines fail (X21).
func (r *Reconciler) count(ctx context.Context, namespace string, from readers, group *remediation.Group) error {
	known, ours := sets.New[string](), sets.New[types.UID]()
	for _, member := range group.Members {
		if ours.Insert(member.Machine.UID); member.Node != nil {
			known.Insert(member.Node.Name)
		}
	}
	list := &machinev1alpha1.MachineList{}
	if err := from.seed.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("failed to list the machines: %w", err)
	}
	machines := map[string]*machinev1alpha1.Machine{}
	for i := range list.Items {
		machine := &list.Items[i]
		if remediation.UnderWay(machine) && !ours.Has(machine.UID) {
			group.OtherCycles++
		}
		// A new machine may have the node name of an old machine that is still being deleted.
		if name := machine.Labels[machinev1alpha1.NodeLabelKey]; remediation.IsUnwatched(machines[name]) || remediation.UnderWay(machine) {
			machines[name] = machine
		}
	}
	count, nodes := &remediation.NodeCount{}, map[string]*corev1.Node{}
	for next := ""; ; {
		page := &corev1.NodeList{}
		if err := from.shoot.List(ctx, page, client.Limit(from.limit), client.Continue(next)); err != nil {
			return fmt.Errorf("failed to list the nodes: %w", err)
		}
		for i := range page.Items {
			node := &page.Items[i]
			if !known.Has(node.Name) {
				count.Add(node, machines[node.Name], group.NodeConditions)
			}
			if r.Storm.Enabled() {
				nodes[node.Name] = &corev1.Node{ // all of them at a time, and no more than is counted by
					ObjectMeta: metav1.ObjectMeta{Name: node.Name, CreationTimestamp: node.CreationTimestamp, Annotations: node.Annotations},
					Status:     corev1.NodeStatus{Conditions: node.Status.Conditions},
				}
			}
		}
		if next = page.Continue; next == "" || from.limit == 0 { // a cache does not page, and always says that there are more
			break
		}
	}
	group.Others = count
	if r.Storm.Enabled() {
		members := make([]facts.Member, len(list.Items))
		for i := range list.Items {
			members[i] = facts.Member{Machine: &list.Items[i], Node: nodes[list.Items[i].Labels[machinev1alpha1.NodeLabelKey]]}
		}
		group.Storm = facts.StormOf(members, preservation.FailedSince, r.Storm, r.Timeouts, r.NodeConditions, r.Clock.Now())
	}
	return nil
}

// machines returns the machines of a MachineDeployment, and completes the group with what is known of the MachineDeployment.
func (r *Reconciler) machines(ctx context.Context, req reconcile.Request, reader client.Reader, group *remediation.Group) ([]*machinev1alpha1.Machine, error) {
	if req.Name == "" {
		return r.ofNoDeployment(ctx, req.Namespace, reader)
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
	_, group.Validated = deployment.Annotations[v1alpha1.AnnotationValidation]
	group.Pool = facts.PoolOf(deployment)
	machines, rollout, err := shoot.MachinesOf(ctx, r.Source, reader, deployment)
	group.Rollout = rollout
	return machines, err
}

// ofNoDeployment returns the machines that have something of ours and no MachineDeployment any more. Nothing else would release their
// hosts.
func (r *Reconciler) ofNoDeployment(ctx context.Context, namespace string, reader client.Reader) ([]*machinev1alpha1.Machine, error) {
	list := &machinev1alpha1.MachineList{}
	if err := reader.List(ctx, list, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("failed to list the machines: %w", err)
	}
	var machines []*machinev1alpha1.Machine
	for i := range list.Items {
		if !isMarked(&list.Items[i]) {
			continue
		}
		// A cache may not have the MachineDeployment yet.
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

// findHost completes a member with its host, or with the reason why it has none.
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
	if errors.Is(err, host.ErrNoHost) {
		member.NoHost = fmt.Sprintf("No host can be power-cycled: %s.", err)
		return nil
	}
	if err != nil {
		return fmt.Errorf("failed to read the host of machine %s: %w", member.Machine.Name, err)
	}
	return nil
}

// marks are our annotations on a Machine.
var marks = []string{
	v1alpha1.AnnotationPowerCyclePhase,
	v1alpha1.AnnotationPowerCycleAttempt,
	v1alpha1.AnnotationPowerCycleRecord,
	v1alpha1.AnnotationRemediation,
}

// isMarked says whether a Machine has something of ours.
func isMarked(machine *machinev1alpha1.Machine) bool {
	return hasFinalizer(machine) || slices.ContainsFunc(marks, func(key string) bool { _, ok := machine.Annotations[key]; return ok })
}

func hasFinalizer(machine *machinev1alpha1.Machine) bool {
	return slices.Contains(machine.Finalizers, v1alpha1.FinalizerHost)
}
