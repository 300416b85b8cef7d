// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation

import (
	"context"
	"errors"
	"fmt"
	"strings"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// End ends all preservations in a namespace, for a shoot that is to do without them (P10). Nobody else may be carrying
// out decisions at the same time. It returns the errors of all machines, which do not keep others waiting (P12): some are
// left then, and it may be called again. A machine whose node cannot be read is left as it is: the record of what is on the
// node goes after that, and until then the machine's expiry ends the hold (P10). Where the nodes are not known at all, because
// they are not to be waited for any longer, it goes on without them (P14).
func (r *Reconciler) End(ctx context.Context, namespace string) error {
	deployments := &machinev1alpha1.MachineDeploymentList{}
	if err := r.SourceReader.List(ctx, deployments, client.InNamespace(namespace)); err != nil {
		return fmt.Errorf("failed to list the MachineDeployments: %w", err)
	}
	var errs []error
	for i := range deployments.Items {
		errs = append(errs, r.end(ctx, &deployments.Items[i]))
	}
	return errors.Join(errs...)
}

func (r *Reconciler) end(ctx context.Context, deployment *machinev1alpha1.MachineDeployment) error {
	group, err := r.group(ctx, r.SourceReader, deployment, IsMarked)
	if err != nil {
		return err
	}
	unread := r.readNodes(ctx, group.Members)
	group.Disabled = true
	now := r.Clock.Now()
	decisions := preservation.Decide(group, now)
	for i := range decisions {
		decisions[i].NodeDenied = decisions[i].NodeUnknown && !r.Nodes.Known()
	}
	tasks, _ := r.pending(decisions, poolOf(deployment), false, now)
	backlog := &backlog{}
	r.carryOut(ctx, backlog, backlog.begin(tasks, nil, now), func() {})

	errs := []error{unread, ctx.Err()}
	for _, task := range tasks {
		<-task.ended
		errs = append(errs, task.writes.Err())
	}
	return errors.Join(errs...)
}

// IsMarked says that there may be something to end on a machine. An end that was interrupted leaves the mark of a release.
func IsMarked(machine *machinev1alpha1.Machine) bool {
	for key := range machine.Annotations {
		if strings.HasPrefix(key, v1alpha1.GroupName+"/") {
			return true
		}
	}
	return false
}
