// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
)

// usedGrants: the scenarios have needed each permission that the sidecar has been given.
func (l *life) usedGrants() {
	clusterRole, role := &rbacv1.ClusterRole{}, &rbacv1.Role{}
	l.Expect(l.Shoot.Get(l.ctx, client.ObjectKey{Name: "extensions.gardener.cloud:extension-machine-preservation:" + preservationcontroller.Name}, clusterRole)).To(Succeed())
	l.Expect(l.Seed.Get(l.ctx, client.ObjectKey{Namespace: l.Namespace, Name: preservationcontroller.Name}, role)).To(Succeed())

	l.evidenceGrowsOld()
	// Where the API server streams lists, there is only a watch.
	l.Expect(l.unused(role.Rules, l.landscape.Seed.AuditLog).Delete("list baremetalhosts")).To(BeEmpty())
	// Volumes that are attached outlive no pod here: test/integration/remediation has such. Nor are there more failures than a shoot may have.
	l.Expect(l.unused(clusterRole.Rules, l.landscape.Shoot.AuditLog).Delete("get persistentvolumes", "delete machinefailures")).To(BeEmpty())
}

// evidenceGrowsOld: evidence of a machine that is gone is deleted when its time is over. Whether any is during the scenarios, because
// there is too much of it, nobody knows.
func (l *life) evidenceGrowsOld() {
	l.t.Helper()
	var old *corev1.ConfigMap
	l.eventually(func(g Gomega) {
		stored := &corev1.ConfigMapList{}
		g.Expect(l.Seed.List(l.ctx, stored, client.InNamespace(l.Namespace), client.MatchingLabels{retention.LabelStored: "true"})).To(Succeed())
		i := slices.IndexFunc(stored.Items, func(c corev1.ConfigMap) bool { return !retention.StoredExpiry(&c).IsZero() })
		g.Expect(i).NotTo(Equal(-1), "no machine is gone that there is evidence of")
		old = &stored.Items[i]
	})
	expired := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, retention.AnnotationStoredExpires, time.Now().Add(-time.Minute).UTC().Format(time.RFC3339))
	l.Expect(l.Seed.Patch(l.ctx, old, client.RawPatch(types.MergePatchType, expired))).To(Succeed())

	machines := &machinev1alpha1.MachineList{}
	l.Expect(l.Seed.List(l.ctx, machines, client.InNamespace(l.Namespace))).To(Succeed())
	l.Expect(machines.Items).NotTo(BeEmpty())
	l.Expect(l.Seed.Delete(l.ctx, &machines.Items[0])).To(Succeed()) // the sidecar looks when machines come and go
	l.eventually(func(g Gomega) {
		now := &corev1.ConfigMap{}
		err := l.Seed.Get(l.ctx, client.ObjectKeyFromObject(old), now)
		g.Expect(apierrors.IsNotFound(err) || err == nil && now.UID != old.UID).To(BeTrue(), "%s is still there: %v", old.Name, err)
	})
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
