// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"testing"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestPreservation(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Preservation Suite")
}

func duration(d time.Duration) *metav1.Duration { return &metav1.Duration{Duration: d} }

func equal(a, b any) bool { return apiequality.Semantic.DeepEqual(a, b) }
