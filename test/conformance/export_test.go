// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
)

// What the tests look at beside the exported names.
var (
	Distribute    = distribute
	KeepCondition = keepCondition
	Leftover      = leftover
	Suitable      = suitable
	Sum           = sum
)

// Settings returns the timeouts that count for a MachineDeployment, and the condition that makes a node unhealthy.
func Settings(mcm *appsv1.Deployment, deployment *machinev1alpha1.MachineDeployment, node *corev1.Node) (facts.Timeouts, corev1.NodeConditionType, error) {
	s, err := readSettings(mcm)
	s = s.of(deployment)
	return s.Timeouts, s.condition(node), err
}

// EnvironmentOf returns the Environment of the flags with clients.
func (f *Flags) EnvironmentOf(ctx context.Context, seed, shoot client.WithWatch) (*Environment, error) {
	return f.environment(ctx, seed, shoot)
}

// Record takes down how a scenario came out.
func (r *Report) Record(scenario string, outcome Outcome, reason string, rules ...string) {
	r.results = append(r.results, result{scenario, rules, outcome, reason})
}

// Failing returns gomega for a test whose failures the report takes down.
func (r *Report) Failing(t types.GomegaTestingT, name string) *gomega.WithT {
	return gomega.NewWithT(failing{t, name, r})
}

// Reason returns why the test with the name failed.
func (r *Report) Reason(name string) string { return r.reasons[name] }
