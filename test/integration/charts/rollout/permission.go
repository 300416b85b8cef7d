// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package rollout

import (
	"cmp"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
)

// Permission is to do one thing, or a request to do it.
type Permission struct {
	// Namespace is empty for all, and where there is none.
	Namespace string
	Verb      string
	Group     string
	// Resource has the subresource behind a slash.
	Resource string
	// Name is empty for all, and where there is none.
	Name string
}

// String implements fmt.Stringer.
func (p Permission) String() string {
	resource := p.Resource
	if p.Group != "" {
		resource += "." + p.Group
	}
	return fmt.Sprintf("%s %s %s in %s", p.Verb, resource, cmp.Or(p.Name, "(all)"), cmp.Or(p.Namespace, "(all)"))
}

// Permissions returns what rules allow.
func Permissions(namespace string, rules []rbacv1.PolicyRule) []Permission {
	var permissions []Permission
	for _, rule := range rules {
		names := rule.ResourceNames
		if len(names) == 0 {
			names = []string{""}
		}
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					for _, name := range names {
						permissions = append(permissions, Permission{namespace, verb, group, resource, name})
					}
				}
			}
		}
	}
	return permissions
}

// Unused returns the permissions that no request needs. Of several that allow a request, it needs the narrowest.
func Unused(permissions, requests []Permission) []Permission {
	needed := map[Permission]bool{}
	for _, request := range requests {
		var narrowest *Permission
		for _, permission := range permissions {
			if permission.allows(request) && (narrowest == nil || narrowest.allows(permission)) {
				narrowest = &permission
			}
		}
		if narrowest != nil {
			needed[*narrowest] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(permissions), func(permission Permission) bool { return needed[permission] })
}

// allows says whether a permission allows a request, or includes another permission.
func (p Permission) allows(request Permission) bool {
	return p.Verb == request.Verb && p.Group == request.Group && p.Resource == request.Resource &&
		(p.Namespace == "" || p.Namespace == request.Namespace) &&
		(p.Name == "" || p.Name == request.Name)
}
