// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

func newPowerCycleCommand(o *Options) *cobra.Command {
	w := &writeFlags{}
	cmd := &cobra.Command{
		Use:   "power-cycle NODE",
		Short: "Power the host of a node off and on again",
		Long: `Power the host of a node off and on again. Its machine is preserved meanwhile, and its pods start elsewhere while the host is off.
This needs bare-metal hosts, powerCycle of the pool in the Shoot's providerConfig, and operators who allow shoots to request power cycles.`,
		Example:           "  kubectl preserve power-cycle node-1 --wait --timeout 30m",
		Args:              named("power-cycle NODE", 1),
		ValidArgsFunction: o.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := w.validate(cmd.Flags()); err != nil {
				return err
			}
			return o.powerCycle(cmd.Context(), w, args[0])
		},
	}
	w.add(cmd.Flags(), "the power cycle has ended", true)
	return cmd
}

var errNoPowerCycle = errors.New(`the request was withdrawn, because nothing answered it. Power cycles need
- the extension machine-preservation in the Shoot, with powerCycle for the pool of this node,
- a landscape with hosts that can be power-cycled, whose operators allow shoots to request power cycles (shootRequests)`)

// refusals are what the Events say with which a request is taken away that is not acted upon (X6, X11, X16).
var refusals = map[string]string{
	remediation.EventRefused:       "the operators do not allow shoots to request power cycles (shootRequests)",
	remediation.EventOutOfAttempts: "its host has already been power-cycled maxAttempts times since the node was last ready for some minutes",
	remediation.EventRecovered:     "the node has just recovered, or it is not known since when it has been healthy. The host of a healthy node is powered off only if that is certain. Request it again in a minute",
}

// powerCycle asks on the node, and looks for an answer: a request that nobody knows must not lie there until somebody does.
func (o *Options) powerCycle(ctx context.Context, w *writeFlags, name string) error {
	shoot, _, err := o.shootClient()
	if err != nil {
		return err
	}
	before := map[string]sets.Set[string]{}
	for reason := range refusals {
		if before[reason], err = told(ctx, shoot, name, reason); err != nil {
			return fmt.Errorf("node %s: failed to list its Events, which say whether the request is refused: %w", name, err)
		}
	}
	asked, err := o.askPowerCycle(ctx, shoot, w, name)
	if err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	if err := write(o.Out, fmt.Sprintf("node/%s power cycle requested%s\n  Its machine is preserved meanwhile, even if no place for failed machines is free, and takes none of them.\n", name, w.suffix())); err != nil || w.dry() {
		return err
	}

	taken := false
	answer, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	err = await(answer, shoot, name, func(node *corev1.Node) (bool, error) {
		if node == nil {
			return false, errors.New("it is gone")
		}
		return isNewer(node, asked), nil
	})
	// The request must not stay, also if the command is interrupted.
	after, cancelAfter := context.WithTimeout(context.WithoutCancel(ctx), o.patience)
	defer cancelAfter()
	if isTimeout(err) {
		node, failed := getNode(after, shoot, name)
		taken = failed == nil && node.Annotations[v1alpha1.AnnotationPowerCycle] == ""
	}
	switch {
	case isTimeout(err) && taken:
		// It is taken away whether it is refused or remembered until the node has settled (X4).
		for reason, refusal := range refusals {
			now, err := told(ctx, shoot, name, reason)
			if err != nil {
				return fmt.Errorf("node %s: the request was removed, and it is not known whether it was refused: %w", name, err)
			}
			if len(now.Difference(before[reason])) > 0 {
				return fmt.Errorf("node %s: %s", name, refusal)
			}
		}
		if err := write(o.Out, fmt.Sprintf("node/%s: the request was accepted. The power cycle begins as soon as nothing is in the way. To see what it waits for, run 'kubectl -n default events --for node/%s'\n", name, name)); err != nil || !w.wait {
			return err
		}
	case err != nil:
		if withdrawn := annotate(after, w.writer(shoot), name, "", map[string]string{v1alpha1.AnnotationPowerCycle: ""}); client.IgnoreNotFound(withdrawn) != nil {
			return fmt.Errorf("node %s: the request could not be withdrawn: %w", name, errors.Join(err, withdrawn))
		}
		switch {
		case ctx.Err() != nil:
			err = fmt.Errorf("the request was withdrawn: %w", ctx.Err())
		case isTimeout(err):
			err = errNoPowerCycle
		}
		return fmt.Errorf("node %s: %w", name, err)
	}
	return o.waitForPowerCycle(ctx, shoot, w, name, asked)
}

// askPowerCycle writes the request, and returns the condition that there was before.
func (o *Options) askPowerCycle(ctx context.Context, shoot client.Client, w *writeFlags, name string) (before *corev1.NodeCondition, err error) {
	confirmed := false
	err = retryOnConflict(func() error { // whether to ask a person hangs on the node
		node, err := getNode(ctx, shoot, name)
		if err != nil {
			return err
		}
		if facts.IsReady(node) && !confirmed {
			if err := o.confirm(ctx, fmt.Sprintf("Node %s is ready. Power off its host, and all pods that run on it?", name), w); err != nil {
				return err
			}
			confirmed = true
		}
		before = v1alpha1.ConditionOf(node, v1alpha1.ConditionPowerCycle)
		if w.dryRun == "client" {
			return nil
		}
		return annotate(ctx, w.writer(shoot), name, node.ResourceVersion, map[string]string{v1alpha1.AnnotationPowerCycle: v1alpha1.PowerCycleNow})
	})
	return before, err
}

// isNewer says that the node shows a power cycle that is under way, or that has come to its end since.
func isNewer(node *corev1.Node, before *corev1.NodeCondition) bool {
	c := v1alpha1.ConditionOf(node, v1alpha1.ConditionPowerCycle)
	switch {
	case c == nil:
		return false
	case c.Status == corev1.ConditionTrue || before == nil:
		return true
	}
	return c.LastHeartbeatTime != before.LastHeartbeatTime
}

// waitForPowerCycle says how the power cycle goes that comes after another one: at once, or with --wait at its end.
func (o *Options) waitForPowerCycle(ctx context.Context, shoot client.WithWatch, w *writeFlags, name string, before *corev1.NodeCondition) error {
	ctx, cancel := limit(ctx, w.timeout)
	defer cancel()
	var (
		phase string
		begun bool
	)
	err := await(ctx, shoot, name, func(node *corev1.Node) (bool, error) {
		c := &corev1.NodeCondition{}
		if node != nil {
			c = v1alpha1.ConditionOf(node, v1alpha1.ConditionPowerCycle)
		}
		if begun = begun || node != nil && isNewer(node, before); !begun && node != nil {
			return false, nil
		}
		if node == nil || c == nil {
			return false, errors.New("the node or its power cycle is gone, because the machine was not preserved")
		}
		if c.Reason != phase {
			phase = c.Reason
			if err := write(o.Out, fmt.Sprintf("node/%s %s\n", name, strings.TrimSpace(brief.Printable(phase+" "+c.Message)))); err != nil {
				return false, err
			}
		}
		return !w.wait || c.Status != corev1.ConditionTrue && c.Reason != v1alpha1.PowerCycleWaiting, nil
	})
	switch {
	case err != nil:
		return fmt.Errorf("node %s: %w", name, w.inVain(ctx, err, "the power cycle has ended: it is "+cmp.Or(brief.Printable(phase), "yet to begin")))
	case w.wait && phase != v1alpha1.PowerCycleSucceeded:
		return fmt.Errorf("node %s: the power cycle ended in phase %s. See 'kubectl -n default events --for node/%s'", name, brief.Printable(phase), name)
	}
	return nil
}
