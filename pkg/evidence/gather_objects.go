// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

// shootObjects reads what is on the node, and the other nodes of the MachineDeployment.
func (c *collector) shootObjects(ctx context.Context) {
	if c.Shoot == nil {
		return
	}
	shoot := &c.bundle.Snapshot.Shoot
	if node := c.bundle.Node; node != "" {
		c.try(ctx, observed.WhatPods, func(ctx context.Context) error {
			pods, err := list(ctx, c.Shoot, &corev1.PodList{}, func(l *corev1.PodList) []corev1.Pod { return l.Items }, func(p *corev1.Pod) bool {
				c.set(func() { redactPod(p, c.redacted) })
				return true
			}, client.MatchingFields{"spec.nodeName": node})
			c.set(func() { shoot.Pods = pods })
			return err
		})
		c.try(ctx, "VolumeAttachments of the node", func(ctx context.Context) error {
			attachments, err := list(ctx, c.Shoot, &storagev1.VolumeAttachmentList{}, func(l *storagev1.VolumeAttachmentList) []storagev1.VolumeAttachment { return l.Items },
				func(a *storagev1.VolumeAttachment) bool {
					if a.Spec.NodeName != node {
						return false
					}
					c.set(func() { redactAttachment(a, c.redacted) })
					return true
				})
			c.set(func() { shoot.VolumeAttachments = attachments })
			return err
		})
		c.maintenances(ctx, node)
	}
	if len(shoot.Pods) > 0 {
		c.try(ctx, observed.WhatBudgets, func(ctx context.Context) error { return c.budgets(ctx, shoot) })
	}
	if others := c.siblings.Difference(sets.New(c.bundle.Node)); len(others) > 0 {
		c.try(ctx, observed.WhatNodes, func(ctx context.Context) error {
			var opts []client.ListOption
			if c.pool != "" {
				opts = append(opts, client.MatchingLabels{facts.LabelPool: c.pool})
			}
			nodes, err := list(ctx, c.Shoot, &corev1.NodeList{}, func(l *corev1.NodeList) []corev1.Node { return l.Items }, func(n *corev1.Node) bool {
				if !others.Has(n.Name) {
					return false
				}
				c.set(func() { redactNode(n, c.redacted) })
				return true
			}, opts...)
			c.set(func() { shoot.Nodes = append(shoot.Nodes, nodes...) })
			return err
		})
	}
	c.shootEvents(ctx)
}

// budgets reads the PodDisruptionBudgets of the pods, namespace by namespace: a shoot may have many of others.
func (c *collector) budgets(ctx context.Context, shoot *observed.Shoot) error {
	namespaces := sets.New[string]()
	for i := range shoot.Pods {
		namespaces.Insert(shoot.Pods[i].Namespace)
	}
	size := 0
	for _, namespace := range sets.List(namespaces) {
		budgets, err := list(ctx, c.Shoot, &policyv1.PodDisruptionBudgetList{}, func(l *policyv1.PodDisruptionBudgetList) []policyv1.PodDisruptionBudget { return l.Items },
			func(b *policyv1.PodDisruptionBudget) bool { return covers(b, shoot.Pods) }, client.InNamespace(namespace))
		for i := range budgets {
			if size += budgets[i].Size(); size > maxListed {
				return cutError{fmt.Errorf("there are more than the first %d, which have %d bytes", len(shoot.PodDisruptionBudgets), maxListed)}
			}
			shoot.PodDisruptionBudgets = append(shoot.PodDisruptionBudgets, budgets[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) maintenances(ctx context.Context, node string) {
	shoot := &c.bundle.Snapshot.Shoot
	c.try(ctx, observed.WhatMaintenances, func(ctx context.Context) error {
		maintenances, err := list(ctx, c.Shoot, &maintenancev1alpha1.NodeMaintenanceList{}, func(l *maintenancev1alpha1.NodeMaintenanceList) []maintenancev1alpha1.NodeMaintenance { return l.Items },
			func(m *maintenancev1alpha1.NodeMaintenance) bool { return m.Spec.NodeName == node })
		c.set(func() { shoot.HasMaintenances, shoot.Maintenances = !HasNoAPI(err), maintenances })
		if HasNoAPI(err) {
			return nil
		}
		return err
	})
}

// covers says that a budget is one of some pods.
func covers(budget *policyv1.PodDisruptionBudget, pods []corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		return pod.Namespace == budget.Namespace && selector.Matches(labels.Set(pod.Labels))
	})
}

// shootEvents reads the Events of the node, of what was on it, and of its maintenances.
func (c *collector) shootEvents(ctx context.Context) {
	node := c.bundle.Node
	if c.Shoot == nil || node == "" {
		return
	}
	var found []eventsv1.Event
	c.try(ctx, observed.WhatNodeEvents, func(ctx context.Context) (err error) {
		found, err = ReadEvents(ctx, c.Shoot, metav1.NamespaceDefault, "Node", node)
		return err
	})
	// Of pods that are gone, the Events tell by the host that reports them, or by what they say.
	on, names := sets.New[types.NamespacedName](), naming(node)
	for i := range c.bundle.Snapshot.Shoot.Pods {
		on.Insert(client.ObjectKeyFromObject(&c.bundle.Snapshot.Shoot.Pods[i]))
	}
	c.try(ctx, "Events of the node's pods", func(ctx context.Context) error {
		events, err := readLast(ctx, c.Shoot, func(e *eventsv1.Event) bool {
			return on.Has(types.NamespacedName{Namespace: e.Regarding.Namespace, Name: e.Regarding.Name}) ||
				e.DeprecatedSource.Host == node || e.ReportingInstance == node || names([]byte(e.Note))
		}, client.MatchingFields{"regarding.kind": "Pod"})
		found = append(found, events...)
		return err
	})
	if maintenances := c.bundle.Snapshot.Shoot.Maintenances; len(maintenances) > 0 {
		c.try(ctx, "Events of the node's maintenances", func(ctx context.Context) error {
			var last lastEvents
			for i := range maintenances {
				events, err := ReadEvents(ctx, c.Shoot, maintenances[i].Namespace, "NodeMaintenance", maintenances[i].Name)
				for i := range events {
					last.add(&events[i])
				}
				if err != nil {
					found = append(found, last.events...)
					return err
				}
			}
			events, err := last.all()
			found = append(found, events...)
			return err
		})
	}
	c.set(func() { c.bundle.Snapshot.Shoot.Events = found })
}

// seedEvents reads the Events of the machine, and of what it belongs to.
func (c *collector) seedEvents(ctx context.Context) {
	seed := c.bundle.Snapshot.Seed
	if c.machine == nil || seed == nil {
		return
	}
	names := sets.New(c.bundle.Machine)
	for i := range seed.MachineSets {
		names.Insert(seed.MachineSets[i].Name)
	}
	for i := range seed.MachineDeployments {
		names.Insert(seed.MachineDeployments[i].Name)
	}
	c.try(ctx, observed.WhatMachineEvents, func(ctx context.Context) error {
		for _, name := range sets.List(names) {
			events, err := ReadEvents(ctx, c.Seed, c.SeedNamespace, "", name)
			c.set(func() { seed.Events = append(seed.Events, events...) })
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// hostObjects reads what the machine runs on.
func (c *collector) hostObjects(ctx context.Context) {
	if c.machine == nil || c.Host == nil {
		return
	}
	c.try(ctx, observed.WhatHost, func(ctx context.Context) error {
		objects, err := c.Host(ctx, c.machine)
		c.set(func() { c.bundle.Snapshot.Seed.Hosts = objects })
		return err
	})
}
