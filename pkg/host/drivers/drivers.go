// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package drivers has the kinds of hosts that there are drivers for.
package drivers

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/host"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/ironcore"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/metal3"
)

// Kind is what is known of a kind of hosts.
type Kind struct {
	// New returns the driver.
	New func(host.Access) host.Driver
	// ByObject is what a cache keeps of the hosts, and Mapper knows their kinds without asking an API server.
	ByObject map[client.Object]cache.ByObject
	Mapper   meta.RESTMapper
	// PolicyRules are what is needed in the namespaces of the hosts, and ClusterPolicyRules what is needed of objects without one.
	PolicyRules, ClusterPolicyRules []rbacv1.PolicyRule
}

var kinds = map[string]func() Kind{
	metal3.Kind: func() Kind {
		return Kind{
			New:         func(access host.Access) host.Driver { return &metal3.Driver{Access: access} },
			ByObject:    metal3.ByObject(),
			Mapper:      metal3.Mapper(),
			PolicyRules: metal3.PolicyRules(),
		}
	},
	ironcore.Kind: func() Kind {
		return Kind{
			New:                func(access host.Access) host.Driver { return &ironcore.Driver{Access: access} },
			ByObject:           ironcore.ByObject(),
			Mapper:             ironcore.Mapper(),
			PolicyRules:        ironcore.PolicyRules(),
			ClusterPolicyRules: ironcore.ClusterPolicyRules(),
		}
	},
}

// For returns what is known of a kind of hosts. It returns an error if there is no driver for it.
func For(kind string) (Kind, error) {
	if known, ok := kinds[kind]; ok {
		return known(), nil
	}
	return Kind{}, fmt.Errorf("there is no driver for hosts of kind %q, but for %s", kind, strings.Join(slices.Sorted(maps.Keys(kinds)), " and "))
}
