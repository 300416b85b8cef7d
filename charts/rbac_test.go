// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package charts_test

import (
	"regexp"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/gardener/gardener-extension-machine-preservation/charts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
)

// That these are all permissions that the processes use is shown by test/integration/charts.
var _ = Describe("Permissions", func() {
	for _, chart := range charts.All {
		Describe(string(chart), func() {
			var cluster, namespaced []rbacv1.PolicyRule

			BeforeEach(func() {
				objects := render(chart, everything(chart))
				cluster, namespaced = nil, nil
				for _, role := range all[*rbacv1.ClusterRole](objects) {
					cluster = append(cluster, role.Rules...)
				}
				for _, role := range all[*rbacv1.Role](objects) {
					namespaced = append(namespaced, role.Rules...)
				}
			})

			It("should name what they are about", func() {
				for _, rule := range slices.Concat(cluster, namespaced) {
					Expect(rule.APIGroups).To(HaveLen(1))
					Expect(rule.Resources).NotTo(BeEmpty())
					Expect(rule.Verbs).NotTo(BeEmpty())
					Expect(rule.NonResourceURLs).To(BeEmpty())
					for _, word := range slices.Concat(rule.APIGroups, rule.Resources, rule.Verbs, rule.ResourceNames) {
						Expect(word).NotTo(ContainSubstring("*"))
					}
				}
			})

			It("should not lead to others", func() {
				for _, rule := range slices.Concat(cluster, namespaced) {
					Expect(rule.Verbs).NotTo(ContainElements(BeElementOf("escalate", "bind", "impersonate", "deletecollection")))
					Expect(rule.Resources).NotTo(ContainElements(BeElementOf("clusterroles", "clusterrolebindings", "serviceaccounts", "serviceaccounts/token", "pods/exec", "nodes", "nodes/proxy")))
				}
			})

			It("should give access to no other Secrets outside of the own namespace than those of the sidecar", func() {
				for _, rule := range cluster {
					if !slices.Contains(rule.Resources, "secrets") {
						continue
					}
					if slices.Equal(rule.Verbs, []string{"create"}) {
						continue // names cannot restrict it
					}
					Expect(rule.ResourceNames).NotTo(BeEmpty())
					allowed := []string{"shoot-access-machine-preservation-controller"}
					if !sets.New(rule.Verbs...).HasAny("list", "watch") {
						allowed = append(allowed, "managedresource-extension-machine-preservation-shoot", "managedresource-extension-machine-preservation-node-maintenance", "managedresource-extension-machine-preservation-failures", "managedresource-extension-machine-preservation-evidence", "metal")
					}
					Expect(allowed).To(ContainElements(rule.ResourceNames))
				}
			})

			It("should be bound to nobody else", func() {
				objects := render(chart, nil)
				subject := rbacv1.Subject{Kind: "ServiceAccount", Name: "extension-admission-machine-preservation", Namespace: "kube-system"}
				if chart != charts.AdmissionApplication {
					subject = rbacv1.Subject{Kind: "ServiceAccount", Name: one[*corev1.ServiceAccount](objects).Name, Namespace: namespace}
				}
				for _, binding := range all[*rbacv1.ClusterRoleBinding](objects) {
					Expect(binding.Subjects).To(ConsistOf(subject))
					Expect(binding.RoleRef.Name).To(Equal(one[*rbacv1.ClusterRole](objects).Name))
				}
				for _, binding := range all[*rbacv1.RoleBinding](objects) {
					Expect(binding.Subjects).To(ConsistOf(subject))
					Expect(binding.RoleRef.Name).To(Equal(one[*rbacv1.Role](objects).Name))
				}
			})
		})
	}

	// Rows of a table: what is before the first | of their ends, and after it.
	rows := func(file string) [][]string {
		return regexp.MustCompile(`(?m)^\| (.+?) \| (.+?) \|`).FindAllStringSubmatch(read(file), -1)
	}

	It("should tell all that the extension may do in all namespaces by any name", func() {
		allowed := map[string]sets.Set[string]{}
		for _, hosts := range []map[string]any{{"kind": "BareMetalHost"}, {"kind": "BareMetalHost", "kubeconfigSecretName": "metal"}} {
			values := everything(charts.Extension)
			values["config"].(map[string]any)["hosts"] = hosts
			for _, role := range all[*rbacv1.ClusterRole](render(charts.Extension, values)) {
				for _, rule := range role.Rules {
					for _, verb := range rule.Verbs {
						if len(rule.ResourceNames) == 0 {
							allowed[verb] = allowed[verb].Union(sets.New(rule.Resources...))
						}
					}
				}
			}
		}
		told := map[string]sets.Set[string]{}
		for _, row := range rows("../docs/operations/security.md") {
			if _, ok := allowed[row[1]]; ok {
				told[row[1]] = sets.New(strings.Split(row[2], ", ")...)
			}
		}
		Expect(told).To(Equal(allowed))
	})

	It("should tell each permission of the extension, and what for", func() {
		for _, role := range all[*rbacv1.ClusterRole](render(charts.Extension, everything(charts.Extension))) {
			for _, rule := range role.Rules {
				for _, resource := range rule.Resources {
					for _, verb := range rule.Verbs {
						Expect(rows("../docs/operations/deployment.md")).To(ContainElement(HaveExactElements(Not(BeEmpty()),
							MatchRegexp(`\b`+resource+`\b`), MatchRegexp(`\b`+verb+`\b`))), verb+" "+resource)
					}
				}
			}
		}
	})

	It("should allow the extension only to list pods", func() {
		for _, role := range all[*rbacv1.ClusterRole](render(charts.Extension, nil)) {
			for _, rule := range role.Rules {
				if slices.Contains(rule.Resources, "pods") {
					Expect(rule.Verbs).To(Equal([]string{"list"}))
				}
			}
		}
	})

	It("X11: should allow the extension to change hosts only where they are in the seed", func() {
		verbs := func(hosts map[string]any) []string {
			var verbs []string
			for _, role := range all[*rbacv1.ClusterRole](render(charts.Extension, map[string]any{"config": map[string]any{"hosts": hosts}})) {
				for _, rule := range role.Rules {
					if slices.Contains(rule.Resources, "baremetalhosts") {
						Expect(rule.APIGroups).To(Equal([]string{"metal3.io"}))
						verbs = append(verbs, rule.Verbs...)
					}
				}
			}
			return verbs
		}
		Expect(verbs(nil)).To(BeEmpty())
		Expect(verbs(map[string]any{"kind": "BareMetalHost"})).To(ConsistOf("get", "list", "watch", "patch"))
		Expect(verbs(map[string]any{"kind": "BareMetalHost", "kubeconfigSecretName": "metal"})).To(BeEmpty())
	})

	It("X19: should allow the extension to watch Machines only where there are hosts", func() {
		verbs := func(config map[string]any) []string {
			var verbs []string
			for _, role := range all[*rbacv1.ClusterRole](render(charts.Extension, map[string]any{"config": config})) {
				for _, rule := range role.Rules {
					if slices.Contains(rule.Resources, "machines") {
						verbs = append(verbs, rule.Verbs...)
					}
				}
			}
			return verbs
		}
		Expect(verbs(nil)).To(ConsistOf("list", "patch"))
		for _, hosts := range []map[string]any{{"kind": "BareMetalHost"}, {"kind": "BareMetalHost", "kubeconfigSecretName": "metal"}} {
			Expect(verbs(map[string]any{"hosts": hosts})).To(ConsistOf("list", "watch", "patch"))
		}
	})

	It("should allow the extension to see ConfigMaps of all names, and to change stored evidence, only where it is stored, or was", func() {
		verbs := func(config map[string]any, names ...string) []string {
			var verbs []string
			for _, role := range all[*rbacv1.ClusterRole](render(charts.Extension, map[string]any{"config": map[string]any{"evidence": config}})) {
				for _, rule := range role.Rules {
					if slices.Contains(rule.Resources, "configmaps") && slices.Equal(rule.ResourceNames, names) {
						verbs = append(verbs, rule.Verbs...)
					}
				}
			}
			return verbs
		}
		names := append(retention.StoredNames(), retention.StoredCapName)
		Expect(verbs(nil)).To(ConsistOf("create"), "for the dashboards")
		Expect(verbs(nil, names...)).To(BeEmpty())
		Expect(verbs(map[string]any{"enabled": false})).To(ConsistOf("create", "list"))
		Expect(verbs(map[string]any{"enabled": false}, names...)).To(ConsistOf("delete"))
		Expect(verbs(map[string]any{"enabled": true})).To(ConsistOf("create", "list"))
		Expect(verbs(map[string]any{"enabled": true}, names...)).To(ConsistOf("delete", "patch"))
	})

	// The changes that names cannot be given for are those that create, and these.
	It("should allow the extension to change by name what it changes in all namespaces", func() {
		nameless := func(values map[string]any) []string {
			var nameless []string
			for _, role := range all[*rbacv1.ClusterRole](render(charts.Extension, values)) {
				for _, rule := range role.Rules {
					if len(rule.ResourceNames) == 0 && sets.New(rule.Verbs...).HasAny("update", "patch", "delete") {
						nameless = append(nameless, rule.Resources...)
					}
				}
			}
			return nameless
		}
		always := []string{"extensions", "extensions/status", "machinedeployments", "machines", "machines/status", "events"}
		Expect(nameless(nil)).To(ConsistOf(always))
		Expect(nameless(map[string]any{"config": map[string]any{"evidence": map[string]any{"enabled": true}}})).To(ConsistOf(always))
	})
})
