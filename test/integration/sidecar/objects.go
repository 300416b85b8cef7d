// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package sidecar

import (
	"context"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// Pool creates a MachineDeployment with a MachineSet, whose UIDs are those of the API server.
func Pool(ctx context.Context, c client.Client, name string, opts ...builder.DeploymentOption) *machinev1alpha1.MachineSet {
	GinkgoHelper()
	deployment := builder.Deployment(name, opts...)
	deployment.UID = ""
	deployment.Spec.Selector.MatchLabels = map[string]string{"name": name}
	Expect(c.Create(ctx, deployment)).To(Succeed())
	set := builder.Set(name, deployment)
	set.UID, set.Labels = "", map[string]string{"name": name}
	Expect(c.Create(ctx, set)).To(Succeed())
	return set
}

// NewMachine returns a machine to be created that belongs to a MachineSet.
func NewMachine(name, node string, set *machinev1alpha1.MachineSet, opts ...builder.MachineOption) *machinev1alpha1.Machine {
	machine := builder.Machine(name, append(opts, builder.Of(set))...)
	machine.UID = ""
	machine.Labels = map[string]string{"name": set.Name, "node": node}
	return machine
}

// NewNode returns a node to be created.
func NewNode(name string, opts ...builder.NodeOption) *corev1.Node {
	node := builder.Node(name, opts...)
	node.UID = ""
	return node
}
