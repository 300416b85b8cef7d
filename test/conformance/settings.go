// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	machinecontroller "github.com/gardener/machine-controller-manager/pkg/util/provider/app/options"
	"github.com/spf13/pflag"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
)

const (
	machineControllerManager = "machine-controller-manager"
	sidecar                  = "machine-preservation-controller"

	// recheck is how often machine-controller-manager looks at an unhealthy machine.
	recheck = time.Minute
	// takeover is how long a new machine-controller-manager waits for the lease of the one before it.
	takeover = 20 * time.Second
	// hang is how long machine-controller-manager waits for an answer of an API server that has fallen silent, and for
	// another one before it is sure.
	hang = 90 * time.Second
	// awakening is how long after the end of an outage machine-controller-manager looks at each machine, at the latest.
	awakening = 2*time.Minute + 30*time.Second
)

// settings are those of machine-controller-manager on which it depends how long things take, and what makes a machine
// unhealthy.
type settings struct {
	facts.Timeouts
	// outage is how long the shoot's API server has to be away so that machine-controller-manager has stopped all work for
	// certain.
	outage time.Duration
	// conditions are the types of those node conditions that make a machine unhealthy.
	conditions []string
}

// readSettings returns what the Deployment of machine-controller-manager says, and the defaults for the rest.
func readSettings(deployment *appsv1.Deployment) (settings, error) {
	containers := deployment.Spec.Template.Spec.Containers
	if !slices.ContainsFunc(containers, func(c corev1.Container) bool { return c.Name == sidecar }) {
		return settings{}, fmt.Errorf("the Deployment %s has no container %s: the extension is not enabled, or has not injected it yet", deployment.Name, sidecar)
	}
	provider := slices.IndexFunc(containers, func(c corev1.Container) bool { return strings.HasPrefix(c.Name, machineControllerManager+"-") })
	if provider < 0 {
		return settings{}, fmt.Errorf("the Deployment %s has no container %s-<provider>", deployment.Name, machineControllerManager)
	}

	options, flags := machinecontroller.NewMCServer(), pflag.NewFlagSet(machineControllerManager, pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true // those of other versions
	options.AddFlags(flags)
	if err := flags.Parse(slices.Concat(containers[provider].Command, containers[provider].Args)); err != nil {
		return settings{}, fmt.Errorf("could not read the flags of container %s: %w", containers[provider].Name, err)
	}
	return settings{
		Timeouts: facts.Timeouts{
			Health:   options.SafetyOptions.MachineHealthTimeout.Duration,
			Creation: options.SafetyOptions.MachineCreationTimeout.Duration,
			Drain:    options.SafetyOptions.MachineDrainTimeout.Duration,
		},
		outage:     options.SafetyOptions.MachineSafetyAPIServerStatusCheckPeriod.Duration + options.SafetyOptions.MachineSafetyAPIServerStatusCheckTimeout.Duration + hang,
		conditions: strings.Split(options.NodeConditions, ","),
	}, nil
}

// of returns the settings that count for the machines of a MachineDeployment.
func (s settings) of(deployment *machinev1alpha1.MachineDeployment) settings {
	template := deployment.Spec.Template.Spec
	s.Timeouts = s.For(&machinev1alpha1.Machine{Spec: template})
	if template.MachineConfiguration != nil && template.NodeConditions != nil {
		s.conditions = strings.Split(*template.NodeConditions, ",")
	}
	return s
}

// patience is for how long an outcome is waited for: machine-controller-manager replaces one machine after the other,
// and each has to be found unhealthy before, and to join afterwards.
func (s settings) patience() time.Duration { return 5*time.Minute + 2*s.Health + s.Creation }

// margin is how long before its deadline a failing machine is held.
func (s settings) margin() time.Duration { return min(30*time.Second, s.Health/10) }

// endurance is for how long something must hold that machine-controller-manager would else end.
func (s settings) endurance() time.Duration { return s.margin() + recheck + 10*time.Second }

// kubeletConditions are written by kubelets and network plugins again and again.
var kubeletConditions = []corev1.NodeConditionType{
	corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure, corev1.NodeNetworkUnavailable,
}

// condition returns the type of the condition with which a node is made unhealthy: if possible, one that nobody reports
// for this node and so nobody takes back. It is empty if there is none that could be used.
func (s settings) condition(node *corev1.Node) corev1.NodeConditionType {
	var reported corev1.NodeConditionType
	for _, name := range s.conditions {
		condition := corev1.NodeConditionType(name)
		switch {
		case name == "" || slices.Contains(kubeletConditions, condition):
		case !slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == condition }):
			return condition
		default:
			reported = cmp.Or(reported, condition)
		}
	}
	return reported
}
