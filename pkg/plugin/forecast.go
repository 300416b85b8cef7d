// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/explain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

// newForecastCommand returns kubectl preserve drain-forecast.
func newForecastCommand(o *Options) *cobra.Command {
	var (
		from, output string
		options      explain.ForecastOptions
	)
	cmd := &cobra.Command{
		Use:   "drain-forecast NODE",
		Short: "Forecast what a drain of a node would do",
		Long: `Forecast what a drain of a node would do with its pods and when, what would be in the way (a PodDisruptionBudget, a finalizer,
a volume on a node that does not answer), and what would be lost. Nothing is changed.

The forecast is for the drain of a failed machine. Operators who pass --seed-namespace also get a forecast for the drain of an update,
if the Shoot has drainStrategies. Without it, the drain timeout of the pool is not known either.`,
		Example: `  kubectl preserve drain-forecast shoot--foo--bar-worker-z1-abcde
  kubectl preserve drain-forecast shoot--foo--bar-worker-z1-abcde --not-answering --timeout 30m
  kubectl preserve drain-forecast shoot--foo--bar-worker-z1-abcde --from evidence.tar.gz`,
		Args:              named("drain-forecast NODE", 1),
		ValidArgsFunction: o.completeNode,
		RunE: func(cmd *cobra.Command, args []string) error {
			if err := validateOutput(output, outputJSON, outputYAML); err != nil {
				return err
			}
			if options.Timeout < 0 {
				return fmt.Errorf("--timeout=%s: must be greater than 0, or not set", options.Timeout)
			}
			return o.look(cmd.Context(), from, args[0], readForecast, func(s *observed.Snapshot) error {
				forecast, err := explain.DrainForecastOf(s, args[0], options, s.Time)
				if err != nil {
					return missesIn(from, err)
				}
				return o.printEither(output, forecast, forecast.String(), func(l string) bool {
					return strings.HasPrefix(l, "What the drain of ") || strings.HasPrefix(l, "AFTER ")
				})
			})
		},
	}
	addFromFlag(cmd, &from)
	addOutputFlag(cmd, &output)
	cmd.Flags().DurationVar(&options.Timeout, "timeout", 0, "Drain timeout of the machine, after which pods are deleted by force; by default the pool's if it is known, or "+brief.Duration(facts.DefaultTimeouts.Drain))
	cmd.Flags().BoolVar(&options.NotAnswering, "not-answering", false, "Assume that the node does not answer, like most nodes of failed machines")
	return cmd
}

// readForecast reads a node, its pods, and the PodDisruptionBudgets of their namespaces; with the seed, the machines.
func readForecast(ctx context.Context, from evidence.Sources) (*observed.Snapshot, error) {
	s := &observed.Snapshot{Time: from.Clock.Now()}
	if err := readNode(ctx, from, s); err != nil {
		return nil, err
	}
	pods := &corev1.PodList{}
	if err := from.Shoot.List(ctx, pods, client.MatchingFields{"spec.nodeName": from.Name}); err != nil {
		return nil, fmt.Errorf("failed to read the pods of the node: %w", err)
	}
	s.Shoot.Pods = pods.Items
	namespaces := sets.New[string]()
	for _, pod := range pods.Items {
		namespaces.Insert(pod.Namespace)
	}
	for _, namespace := range sets.List(namespaces) {
		budgets := &policyv1.PodDisruptionBudgetList{}
		s.Note(explain.MissingBudgets(namespace), from.Shoot.List(ctx, budgets, client.InNamespace(namespace)))
		s.Shoot.PodDisruptionBudgets = append(s.Shoot.PodDisruptionBudgets, budgets.Items...)
	}
	if from.Seed == nil {
		return s, nil
	}
	return s, readSeed(ctx, from, s)
}
