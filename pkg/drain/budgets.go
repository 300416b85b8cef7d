// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"slices"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// Budgets are the pod selectors of PodDisruptionBudgets by namespace. The pods of a namespace that is not known count as protected.
type Budgets map[string][]labels.Selector

// Know adds budgets of a namespace, none if there are none. It is known from then on: all of them are to be added before it is asked.
func (b Budgets) Know(namespace string, budgets []policyv1.PodDisruptionBudget) {
	selectors := slices.Grow(b[namespace], len(budgets))
	for i := range budgets {
		selector, err := metav1.LabelSelectorAsSelector(budgets[i].Spec.Selector)
		if err != nil {
			selector = labels.Everything() // the API server admits no such selector
		}
		selectors = append(selectors, selector)
	}
	b[namespace] = selectors
}

// protect says whether a budget of the pod's own namespace selects it (D4), and whether that is known.
func (b Budgets) protect(pod Pod) (protected, known bool) {
	selectors, known := b[pod.Namespace]
	for _, selector := range selectors {
		if selector.Matches(pod.Labels) {
			return true, true
		}
	}
	return !known, known
}
