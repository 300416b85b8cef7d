// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

func TestPreservation(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Preservation Suite")
}

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func equal(a, b any) bool { return apiequality.Semantic.DeepEqual(a, b) }

// stamp returns a time as it is written.
func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// conditionTrue says that a node shows that its machine is preserved.
func conditionTrue(node *corev1.Node) bool {
	condition := PreservedCondition(node)
	return condition != nil && condition.Status == corev1.ConditionTrue
}
