// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package landscape

import (
	"context"
	"fmt"
	"os"

	"sigs.k8s.io/controller-runtime/pkg/manager"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/binaries"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts/baremetalhost"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts/ironcore"
)

const metalOperatorPath = "github.com/ironcore-dev/metal-operator"

// metalOperators maps kinds of hosts to the tools modules of what switches them.
var metalOperators = map[string]string{
	hosts.IronCore03: binaries.MetalOperator03,
	hosts.IronCore07: binaries.MetalOperator07,
}

// hosts returns what the seed needs so that machines run on hosts of that kind: custom resource definitions, and controllers.
func (l *Landscape) hosts(ctx context.Context, kind string) (crds []string, add []func(manager.Manager) error, err error) {
	switch kind {
	case hosts.BareMetalHost:
		crds, add = []string{baremetalhost.CRD}, []func(manager.Manager) error{baremetalhost.AddToManager}
	case hosts.IronCore03, hosts.IronCore07:
		operator, err := binaries.Source(ctx, metalOperators[kind], metalOperatorPath)
		if err != nil {
			return nil, nil, err
		}
		if crds, err = ironcore.CRDs(operator.Dir); err != nil {
			return nil, nil, err
		}
		add = []func(manager.Manager) error{func(mgr manager.Manager) error {
			return ironcore.AddToManager(mgr, kind, (*l.binaries.Load())[binaries.Redfish], l.Directory.Log(binaries.Redfish))
		}}
	default:
		return nil, nil, nil
	}
	if err := os.WriteFile(l.Directory.hostsFile(), []byte(kind), 0o644); err != nil {
		return nil, nil, fmt.Errorf("could not write the kind of hosts: %w", err)
	}
	return crds, add, nil
}

// extensionValues returns the values of the extension's chart for hosts of that kind. All is allowed that can be.
func extensionValues(kind string, maxMachineHours int) map[string]any {
	config := map[string]any{"evidence": map[string]any{"enabled": true}}
	if maxMachineHours > 0 {
		config["maxMachineHours"] = maxMachineHours
	}
	values := map[string]any{"automatic": true, "shootRequests": true, "maxPerShoot": 20, "maxPerSeed": 40}
	switch kind {
	case hosts.BareMetalHost:
		values["kind"] = configv1alpha1.HostKindBareMetalHost
	case hosts.IronCore03, hosts.IronCore07:
		values["kind"] = configv1alpha1.HostKindServerClaim
		values["kubeconfigSecretName"] = ironcore.SecretName
		values["pxeBootKeepsDisks"], values["powerOffEnforced"] = true, true
		values["quarantine"] = map[string]any{"failures": 2, "period": "24h"}
	default:
		values = nil
	}
	if values != nil {
		config["hosts"] = values
	}
	return map[string]any{"config": config}
}

// startHosts starts what switches hosts of that kind and is no controller of the seed.
func (l *Landscape) startHosts(ctx context.Context, kind string, paths map[string]string) error {
	module, ok := metalOperators[kind]
	if !ok {
		return nil
	}
	operator, err := binaries.Source(ctx, module, metalOperatorPath)
	if err != nil {
		return err
	}
	return l.superviseStarted(ironcore.Start(ctx, ironcore.Operator{
		Kind: kind, Dir: operator.Dir, Path: paths[binaries.MetalOperator], LogFile: l.Directory.Log(binaries.MetalOperator),
	}, l.Directory.SeedKubeconfig()))
}
