// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/spf13/cobra"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/explain"
)

// readBundle reads a bundle of evidence. Nil: there is no way to.
var readBundle func(io.Reader) (*evidence.Snapshot, error)

// newExplainCommand returns kubectl preserve explain.
func newExplainCommand(o *Options) *cobra.Command {
	var from, output string
	cmd := &cobra.Command{
		Use:   "explain NODE",
		Short: "Say why a machine is kept, or why it is not",
		Long: `Say why the machine of a node is kept, or why it is not, until when, what the drain of the node waits for, and what would
change that. Each sentence names the rule that it rests on.

The rights of a viewer of nodes are enough. With --seed-namespace, operators are told what only the seed knows, and can name a
machine that has no node.`,
		Example: `  kubectl preserve explain shoot--foo--bar-worker-z1-abcde
  kubectl preserve explain shoot--foo--bar-worker-z1-abcde --seed-kubeconfig seed.yaml --seed-namespace shoot--foo--bar
  kubectl preserve explain shoot--foo--bar-worker-z1-abcde --from evidence.tar.gz`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			snapshot, err := o.known(cmd.Context(), from, args[0], readExplained)
			if err != nil {
				return err
			}
			sentences, err := explain.Explain(snapshot, args[0], snapshot.Time)
			if err != nil {
				return err
			}
			return printAs(o.Out, output, sentences, func() error { return explain.Write(o.Out, sentences) })
		},
	}
	addFromFlag(cmd, &from)
	addOutputFlag(cmd, &output)
	return cmd
}

func addFromFlag(cmd *cobra.Command, from *string) {
	cmd.Flags().StringVar(from, "from", "", "File with evidence to look at, instead of at the shoot")
}

func addOutputFlag(cmd *cobra.Command, output *string) {
	cmd.Flags().StringVarP(output, "output", "o", "", "How to show it: json or yaml")
}

// printAs prints an object in a format, or as a text if there is none.
func printAs(out io.Writer, format string, object any, text func() error) error {
	switch format {
	case "":
		return text()
	case "json":
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return encoder.Encode(object)
	case "yaml":
		data, err := yaml.Marshal(object)
		if err != nil {
			return err
		}
		_, err = out.Write(data)
		return err
	}
	return fmt.Errorf("--output=%s: must be json, yaml, or not set", format)
}

// sources are where a snapshot is read from. Seed is nil without access to it.
type sources struct {
	shoot, seed client.Reader
	namespace   string
	now         time.Time
}

// known returns what is known of a node: what a file says, or else what read reads.
func (o *Options) known(ctx context.Context, from, node string, read func(context.Context, sources, string) (*evidence.Snapshot, error)) (*evidence.Snapshot, error) {
	if from != "" {
		if readBundle == nil {
			return nil, errors.New("--from: this kubectl preserve reads no evidence")
		}
		file, err := os.Open(from) // #nosec G304 -- the user's own
		if err != nil {
			return nil, err
		}
		defer file.Close() // #nosec G307 -- only read
		snapshot, err := readBundle(file)
		if err != nil {
			return nil, fmt.Errorf("--from=%s: %w", from, err)
		}
		return snapshot, nil
	}
	s := sources{namespace: o.SeedNamespace, now: o.Clock.Now()}
	shoot, _, err := o.shootClient()
	if err != nil {
		return nil, err
	}
	s.shoot = shoot
	if o.SeedNamespace != "" || o.SeedKubeconfig != "" || o.SeedContext != "" {
		seed, _, err := o.seedClient()
		if err != nil {
			return nil, err
		}
		s.seed = seed
	}
	return read(ctx, s, node)
}

// readExplained reads what explains the machine of a node: the node, its Events, and the maintenances, with three calls. With the
// seed, all nodes, since those of a pool share its places, and what is there of machines. What could not be had is noted, but the
// node without the seed, and the machines with it.
func readExplained(ctx context.Context, from sources, name string) (*evidence.Snapshot, error) {
	s := &evidence.Snapshot{Time: from.now}
	note := func(what string, err error) {
		if err != nil {
			s.Missing = append(s.Missing, evidence.Missing{What: what, Reason: err.Error()})
		}
	}
	machine := name
	if from.seed == nil {
		node := corev1.Node{}
		if err := from.shoot.Get(ctx, client.ObjectKey{Name: name}, &node); err != nil {
			return nil, fmt.Errorf("failed to read the node: %w", err)
		}
		s.Shoot.Nodes = []corev1.Node{node}
	} else {
		seed, err := readSeed(ctx, from)
		if err != nil {
			return nil, err
		}
		s.Seed = seed
		nodes := &corev1.NodeList{}
		note(explain.MissingNodes, from.shoot.List(ctx, nodes))
		s.Shoot.Nodes = nodes.Items
		note(explain.MissingController, readController(ctx, from, seed))
		for _, m := range seed.Machines {
			if m.Labels[machinev1alpha1.NodeLabelKey] == name {
				machine = m.Name
			}
		}
		seed.Events, err = eventsOf(ctx, from.seed, from.namespace, "Machine", machine)
		note(explain.MissingMachineEvents, err)
	}

	var err error
	s.Shoot.Events, err = eventsOf(ctx, from.shoot, metav1.NamespaceDefault, "Node", name)
	note(explain.MissingNodeEvents, err)

	maintenances := &maintenancev1alpha1.NodeMaintenanceList{}
	if err := from.shoot.List(ctx, maintenances); !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err) {
		note(explain.MissingMaintenances, err)
		s.Shoot.HasMaintenances, s.Shoot.Maintenances = err == nil, maintenances.Items
	}
	return s, nil
}

// eventsOf returns the Events of an object. Those of a node are in namespace default.
func eventsOf(ctx context.Context, reader client.Reader, namespace, kind, name string) ([]eventsv1.Event, error) {
	list := &eventsv1.EventList{}
	err := reader.List(ctx, list, client.InNamespace(namespace), client.MatchingFields{"regarding.kind": kind, "regarding.name": name})
	return list.Items, err
}

// readSeed reads the machines and what owns them.
func readSeed(ctx context.Context, from sources) (*evidence.Seed, error) {
	var (
		machines    = &machinev1alpha1.MachineList{}
		sets        = &machinev1alpha1.MachineSetList{}
		deployments = &machinev1alpha1.MachineDeploymentList{}
	)
	for _, list := range []client.ObjectList{machines, sets, deployments} {
		if err := from.seed.List(ctx, list, client.InNamespace(from.namespace)); err != nil {
			return nil, fmt.Errorf("failed to read the machines of namespace %s of the seed: %w", from.namespace, err)
		}
	}
	return &evidence.Seed{Namespace: from.namespace, Machines: machines.Items, MachineSets: sets.Items, MachineDeployments: deployments.Items}, nil
}

const (
	deploymentMCM       = "machine-controller-manager"
	containerController = "machine-preservation-controller"
)

// readController reads how the preservation controller runs.
func readController(ctx context.Context, from sources, seed *evidence.Seed) error {
	deployment := &appsv1.Deployment{}
	if err := from.seed.Get(ctx, client.ObjectKey{Namespace: from.namespace, Name: deploymentMCM}, deployment); err != nil {
		return err
	}
	pod := deployment.Spec.Template.Spec
	seed.Controller = &evidence.Controller{}
	for _, containers := range [][]corev1.Container{pod.Containers, pod.InitContainers} {
		for _, c := range containers {
			if c.Name == containerController {
				seed.Controller = &evidence.Controller{Injected: true, Args: c.Args}
			}
		}
	}
	return nil
}
