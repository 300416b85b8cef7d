// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package drivers has the kinds of hosts that there are drivers for.
package drivers

import (
	"fmt"
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/ironcore"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/metal3"
)

// Kind is what is known of a kind of hosts.
type Kind struct {
	host.Kind
	// ByObject is what a cache keeps of the hosts, and Mapper knows their kinds without asking an API server.
	ByObject map[client.Object]cache.ByObject
	Mapper   meta.RESTMapper
	// PolicyRules are what is needed in the namespaces of the hosts, and ClusterPolicyRules what is needed of objects without one.
	PolicyRules, ClusterPolicyRules []rbacv1.PolicyRule
}

// New returns the driver.
func (k Kind) New(access host.Access) *host.Driver {
	return &host.Driver{Access: access, Kind: k.Kind}
}

var kinds = map[configv1alpha1.HostKind]func() Kind{
	configv1alpha1.HostKindBareMetalHost: func() Kind {
		return Kind{
			Kind:        metal3.Kind{},
			ByObject:    metal3.ByObject(),
			Mapper:      metal3.Mapper(),
			PolicyRules: metal3.PolicyRules(),
		}
	},
	configv1alpha1.HostKindServerClaim: func() Kind {
		return Kind{
			Kind:               ironcore.Kind{},
			ByObject:           ironcore.ByObject(),
			Mapper:             ironcore.Mapper(),
			PolicyRules:        ironcore.PolicyRules(),
			ClusterPolicyRules: ironcore.ClusterPolicyRules(),
		}
	},
}

// For returns what is known of a kind of hosts. It returns an error if there is no driver for it.
func For(kind configv1alpha1.HostKind) (Kind, error) {
	if known, ok := kinds[kind]; ok {
		return known(), nil
	}
	return Kind{}, fmt.Errorf("there is no driver for hosts of kind %q, valid are %q", kind, slices.Sorted(maps.Keys(kinds)))
}
