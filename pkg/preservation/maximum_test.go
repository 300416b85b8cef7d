// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = Describe("P2: at the maximum", func() {
	var (
		until   = Start.Add(time.Hour)
		maximum = func(value string) DeploymentOption {
			return DeploymentAnnotation("machine-preservation.extensions.gardener.cloud/maximum", value)
		}
	)

	DescribeTable("should count the machines that take no pods", func(expected int, deployment *machinev1alpha1.MachineDeployment, machines ...*machinev1alpha1.Machine) {
		group := Group{}.Of(deployment)
		for _, machine := range machines {
			group.Members = append(group.Members, facts.Member{Machine: machine})
		}
		Expect(group.FailedAtMaximum()).To(Equal(expected))
	},
		Entry("where none is preserved", 0, Deployment("d", maximum("3")), Machine("m")),
		Entry("where one has failed", 1, Deployment("d", maximum("3")), Machine("m", Preserved("Failed:Preserved", "auto", until)), Machine("n")),
		Entry("whatever the cause", 3, Deployment("d", maximum("3")), Machine("m", Preserved("Failed:Preserved", "auto", until)),
			Machine("n", Preserved("Failed:Preserved", "maintenance", until)), Machine("o", Preserved("Failed:Preserved", "now", until))),
		Entry("not those that have not failed", 0, Deployment("d", maximum("3")), Machine("m", Preserved("Running:Preserved", "now", until))),
		Entry("not those that are about to fail", 0, Deployment("d", maximum("3")), Machine("m", HeldUntil(until, "auto", until))),
		Entry("not those that are being deleted", 0, Deployment("d", maximum("3")), Machine("m", Preserved("Failed:Preserved", "auto", until), Deleted(Start))),
		Entry("while there may be more machines", 0, Deployment("d", maximum("4")), Machine("m", Preserved("Failed:Preserved", "auto", until))),
		Entry("where the cluster-autoscaler changes nothing", 0, Deployment("d"), Machine("m", Preserved("Failed:Preserved", "auto", until))),
	)

	DescribeTable("should say so", func(expected string, maximum DeploymentOption, failed int, labels map[string]string) {
		deployment := Deployment("d", maximum)
		deployment.Spec.Template.Spec.NodeTemplateSpec.Labels = labels
		Expect(AtMaximum(deployment, failed)).To(Equal(expected + " preserved. The cluster-autoscaler adds no machine there until a preserved machine is released or the maximum is raised"))
	},
		Entry("of one machine", "Pool a is at its maximum of 3 machines in zone z because 1 failed machine is", maximum("3"), 1,
			map[string]string{"worker.gardener.cloud/pool": "a", "topology.kubernetes.io/zone": "z"}),
		Entry("of two machines, without a zone", "Pool a is at its maximum of 3 machines in its zone because 2 failed machines are", maximum("3"), 2,
			map[string]string{"worker.gardener.cloud/pool": "a"}),
		Entry("of a single one", "The pool is at its maximum of 1 machine in its zone because 1 failed machine is", maximum("1"), 1, nil),
	)
})
