// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package retention_test

import (
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
)

var _ = DescribeTable("#StoredMachine", func(annotations map[string]string, want string) {
	Expect(StoredMachine(&metav1.ObjectMeta{Name: "evidence-01", Annotations: annotations})).To(Equal(want))
},
	Entry("as the annotation says", map[string]string{AnnotationStoredMachine: "m", AnnotationStoredNode: "n"}, "m"),
	Entry("no annotations", nil, "evidence-01"),
	Entry("only the node", map[string]string{AnnotationStoredNode: "n"}, "evidence-01"),
	Entry("an empty annotation", map[string]string{AnnotationStoredMachine: ""}, "evidence-01"),
)
