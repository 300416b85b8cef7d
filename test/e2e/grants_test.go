// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"

	. "github.com/onsi/gomega"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
)

// usedGrants: the scenarios have needed each permission that the sidecar has been given.
func (l *life) usedGrants() {
	clusterRole, role := &rbacv1.ClusterRole{}, &rbacv1.Role{}
	l.Expect(l.Shoot.Get(l.ctx, client.ObjectKey{Name: "extensions.gardener.cloud:extension-machine-preservation:" + preservationcontroller.Name}, clusterRole)).To(Succeed())
	l.Expect(l.Seed.Get(l.ctx, client.ObjectKey{Namespace: l.Namespace, Name: preservationcontroller.Name}, role)).To(Succeed())

	// Volumes that are attached outlive no pod here: test/integration/remediation has such. Nor are there more failures than a shoot may have.
	l.Expect(l.unused(clusterRole.Rules, l.landscape.Shoot.AuditLog).Delete("get persistentvolumes", "delete machinefailures")).To(BeEmpty())
	// Where the API server streams lists, there is only a watch. No evidence may be deleted in a run, if none is replaced, and none grows old:
	// test/integration/evidence has such.
	l.Expect(l.unused(role.Rules, l.landscape.Seed.AuditLog).Delete("list baremetalhosts", "delete configmaps")).To(BeEmpty())
}

// unused returns what rules allow that the sidecar has not asked an API server for.
func (l *life) unused(rules []rbacv1.PolicyRule, auditLog string) sets.Set[string] {
	granted := sets.New[string]()
	for _, rule := range rules {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				granted.Insert(verb + " " + resource)
			}
		}
	}
	l.Expect(granted).NotTo(BeEmpty())
	for event := range l.audited(auditLog) {
		if strings.HasPrefix(event.UserAgent, preservationcontroller.Name+"/") {
			what := event.Verb + " " + event.ObjectRef.Resource
			if event.ObjectRef.Subresource != "" {
				what += "/" + event.ObjectRef.Subresource
			}
			granted.Delete(what)
		}
	}
	return granted
}
