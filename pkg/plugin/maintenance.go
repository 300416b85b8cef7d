// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
)

var errNoMaintenance = errors.New("the shoot has no node maintenance. To enable it, set nodeMaintenance in the configuration of the extension machine-preservation in the Shoot")

func newMaintenanceCommand(o *Options) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "maintenance",
		Short: "Request nodes to work on, and give them back",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newMaintenanceListCommand(o), newMaintenanceStartCommand(o), newMaintenanceDoneCommand(o))
	return cmd
}

func newMaintenanceListCommand(o *Options) *cobra.Command {
	return &cobra.Command{
		Use:               "list",
		Short:             "Show who works on which node, and who waits for a node",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			shoot, _, err := o.shootClient()
			if err != nil {
				return err
			}
			list, err := listMaintenances(cmd.Context(), shoot)
			if err != nil {
				return err
			}
			if len(list) == 0 {
				return write(o.Out, "Nobody works on a node or waits for a node.\n")
			}
			slices.SortFunc(list, func(a, b v1alpha1.NodeMaintenance) int {
				return cmp.Or(cmp.Compare(a.Spec.NodeName, b.Spec.NodeName), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
			})
			lines := []line{head("NODE", "PHASE", "REQUESTOR", "AGE", "NAMESPACE", "NAME", "MESSAGE")}
			for i := range list {
				nm := &list[i]
				lines = append(lines, line{cells: []string{nm.Spec.NodeName, maintenance.PhaseOf(nm), nm.Spec.RequestorID,
					left(o.Clock.Now(), nm.CreationTimestamp.Time), nm.Namespace, nm.Name, messageOf(nm)}})
			}
			return write(o.Out, o.table(lines...))
		},
	}
}

type maintenanceFlags struct {
	writeFlags
	requestor string
	spec      v1alpha1.NodeMaintenanceSpec
	drain     v1alpha1.DrainSpec
	noDrain   bool
}

func (m *maintenanceFlags) addRequestor(cmd *cobra.Command) {
	cmd.Flags().StringVar(&m.requestor, "requestor", "kubectl-preserve", "Who works on the node. Others see this name, and Events name it")
}

func newMaintenanceStartCommand(o *Options) *cobra.Command {
	m := &maintenanceFlags{}
	cordon := true
	cmd := &cobra.Command{
		Use:   "start NODE",
		Short: "Request a node to work on, cordoned and drained",
		Long: `Request a node to work on. As soon as the node has a slot, it is cordoned, and drained as its PodDisruptionBudgets allow. Its machine
is preserved while you work, even if the node reboots, for as long as the Shoot allows (maxHoldTime). The command creates a
NodeMaintenance in the namespace of your context, or of -n. To give the node back, use 'done'.`,
		Example:           "  kubectl preserve maintenance start node-1 -n operators --wait --timeout 2h",
		Args:              named("maintenance start NODE", 1),
		ValidArgsFunction: o.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.validate(cmd.Flags()); err != nil {
				return err
			}
			m.spec.NodeName, m.spec.RequestorID, m.spec.Cordon = args[0], m.requestor, &cordon
			if !m.noDrain {
				m.spec.DrainSpec = &m.drain
			}
			return o.startMaintenance(cmd.Context(), m)
		},
	}
	m.addRequestor(cmd)
	cmd.Flags().BoolVar(&cordon, "cordon", true, "Cordon the node, so that no new pods come to it")
	cmd.Flags().BoolVar(&m.noDrain, "no-drain", false, "Do not drain the node")
	cmd.Flags().BoolVar(&m.drain.Force, "force", false, "Evict pods without a controller too, although nothing starts them again")
	cmd.Flags().BoolVar(&m.drain.DeleteEmptyDir, "delete-emptydir-data", false, "Evict pods with emptyDir volumes too, although the content of these volumes is lost")
	if o.Shoot.Namespace != nil {
		cmd.Flags().StringVarP(o.Shoot.Namespace, "namespace", "n", *o.Shoot.Namespace, "Namespace to create the NodeMaintenance in")
		_ = cmd.RegisterFlagCompletionFunc("namespace", cobra.NoFileCompletions)
	}
	m.add(cmd.Flags(), "the node is ready to be worked on", false)
	return cmd
}

func (o *Options) startMaintenance(ctx context.Context, m *maintenanceFlags) error {
	shoot, _, err := o.shootClient()
	if err != nil {
		return err
	}
	if _, err := getNode(ctx, shoot, m.spec.NodeName); err != nil {
		return err
	}
	namespace, _, err := o.Shoot.ToRawKubeConfigLoader().Namespace()
	if err != nil {
		return err
	}
	nm := &v1alpha1.NodeMaintenance{
		ObjectMeta: metav1.ObjectMeta{Name: strings.ToLower(m.requestor) + "-" + m.spec.NodeName, Namespace: namespace},
		Spec:       m.spec,
	}
	if m.dryRun != "client" {
		switch err := m.writer(shoot).Create(ctx, nm); {
		case evidence.HasNoAPI(err) && !isNamespace(err):
			return errNoMaintenance
		case apierrors.IsAlreadyExists(err):
			return fmt.Errorf("%s already works on node %s, or waits for it. See 'kubectl preserve maintenance list', or set another --requestor", m.requestor, m.spec.NodeName)
		case err != nil:
			return err
		}
	}
	if err := write(o.Out, fmt.Sprintf("node/%s maintenance requested: nodemaintenance/%s in namespace %s%s\n"+
		"  The node is made ready for you as soon as it has a slot. From then on, its machine is preserved, and takes none of the places for failed machines.\n"+
		"  To see what it waits for, run 'kubectl preserve maintenance list'. To give the node back, run 'kubectl preserve maintenance done %s%s'.\n",
		m.spec.NodeName, nm.Name, namespace, m.suffix(), m.spec.NodeName, m.requestorFlag())); err != nil || !m.wait || m.dry() {
		return err
	}
	return o.awaitMaintenance(ctx, shoot, m, nm, "the node is ready to be worked on", func(nm *v1alpha1.NodeMaintenance) (bool, error) {
		if nm == nil {
			return false, errors.New("the NodeMaintenance is gone")
		}
		return maintenance.PhaseOf(nm) == v1alpha1.PhaseReady, nil
	})
}

// isNamespace says that an API server does not know a namespace.
func isNamespace(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Details != nil && status.Status().Details.Kind == "namespaces"
}

func (m *maintenanceFlags) requestorFlag() string {
	if m.requestor == "kubectl-preserve" {
		return ""
	}
	return " --requestor " + m.requestor
}

func newMaintenanceDoneCommand(o *Options) *cobra.Command {
	m := &maintenanceFlags{}
	cmd := &cobra.Command{
		Use:               "done NODE",
		Short:             "Give a node back after you have worked on it",
		Example:           "  kubectl preserve maintenance done node-1 --wait",
		Args:              named("maintenance done NODE", 1),
		ValidArgsFunction: o.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := m.validate(cmd.Flags()); err != nil {
				return err
			}
			m.spec.NodeName = args[0]
			return o.endMaintenance(cmd.Context(), m, cmd.Flags().Changed("requestor"))
		},
	}
	m.addRequestor(cmd)
	m.add(cmd.Flags(), "the node is given back", true)
	return cmd
}

// endMaintenance deletes what a requestor asked for. What nobody named may be somebody else's, as all have the same default.
func (o *Options) endMaintenance(ctx context.Context, m *maintenanceFlags, named bool) error {
	shoot, _, err := o.shootClient()
	if err != nil {
		return err
	}
	list, err := listMaintenances(ctx, shoot)
	if err != nil {
		return err
	}
	node := m.spec.NodeName
	list = slices.DeleteFunc(list, func(nm v1alpha1.NodeMaintenance) bool { return nm.Spec.NodeName != node })
	var others []string
	for i := range list {
		others = append(others, list[i].Spec.RequestorID)
	}
	list = slices.DeleteFunc(list, func(nm v1alpha1.NodeMaintenance) bool { return nm.Spec.RequestorID != m.requestor })
	switch {
	case len(list) == 0 && len(others) == 0:
		return fmt.Errorf("there is nothing to do, because nobody works on node %s or waits for it", node)
	case len(list) == 0:
		return fmt.Errorf("--requestor=%s: does not work on node %s, but %s does. End only your own maintenances", m.requestor, node, strings.Join(others, ", "))
	}
	for i := range list {
		nm := &list[i]
		if !named {
			if err := o.confirm(ctx, fmt.Sprintf("Requestor %s requested node %s %s ago, and may be somebody else than you (nodemaintenance/%s in namespace %s, see --requestor). Give the node back?",
				nm.Spec.RequestorID, node, left(o.Clock.Now(), nm.CreationTimestamp.Time), nm.Name, nm.Namespace), &m.writeFlags); err != nil {
				return err
			}
		}
		if m.dryRun != "client" {
			if err := m.writer(shoot).Delete(ctx, nm, client.Preconditions{UID: &nm.UID}); client.IgnoreNotFound(err) != nil {
				return err
			}
		}
		done, says := "given back", "The node takes pods again, unless it was cordoned before. Its machine is preserved until it is healthy, for one health timeout at most."
		if phase := maintenance.PhaseOf(nm); phase == "" || phase == v1alpha1.PhasePending {
			done, says = "no longer waited for", "Nothing had been done to the node yet."
		}
		if err := write(o.Out, fmt.Sprintf("node/%s is %s: nodemaintenance/%s in namespace %s deleted%s\n  %s\n", node, done, nm.Name, nm.Namespace, m.suffix(), says)); err != nil {
			return err
		}
		if m.wait && !m.dry() {
			if err := o.awaitMaintenance(ctx, shoot, m, nm, "the node is given back", func(nm *v1alpha1.NodeMaintenance) (bool, error) { return nm == nil, nil }); err != nil {
				return err
			}
		}
	}
	return nil
}

// awaitMaintenance returns when a NodeMaintenance, nil for one that is gone, is as it is waited for, and tells its phases.
func (o *Options) awaitMaintenance(ctx context.Context, c client.WithWatch, m *maintenanceFlags, nm *v1alpha1.NodeMaintenance, what string, done func(*v1alpha1.NodeMaintenance) (bool, error)) error {
	ctx, cancel := limit(ctx, m.timeout)
	defer cancel()
	var told string
	err := awaitObject(ctx, c, nm.Namespace+"/"+nm.Name, &v1alpha1.NodeMaintenance{}, &v1alpha1.NodeMaintenanceList{}, func(is *v1alpha1.NodeMaintenance) (bool, error) {
		if is == nil {
			return done(nil)
		}
		if tells := strings.TrimSpace(maintenance.PhaseOf(is) + " " + brief.Printable(messageOf(is))); tells != told && tells != "" {
			told = tells
			if err := write(o.Out, fmt.Sprintf("node/%s %s\n", is.Spec.NodeName, told)); err != nil {
				return false, err
			}
		}
		return done(is)
	}, client.InNamespace(nm.Namespace))
	return m.inVain(ctx, err, what+": "+or(told))
}

func listMaintenances(ctx context.Context, c client.Client) ([]v1alpha1.NodeMaintenance, error) {
	list := &v1alpha1.NodeMaintenanceList{}
	if err := c.List(ctx, list); evidence.HasNoAPI(err) {
		return nil, errNoMaintenance
	} else if err != nil {
		return nil, fmt.Errorf("failed to list the node maintenances: %w", err)
	}
	return list.Items, nil
}

// messageOf returns what a NodeMaintenance waits for.
func messageOf(nm *v1alpha1.NodeMaintenance) string {
	if c := meta.FindStatusCondition(nm.Status.Conditions, v1alpha1.ConditionReady); c != nil {
		return c.Message
	}
	return ""
}
