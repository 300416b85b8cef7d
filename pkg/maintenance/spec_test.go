// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
)

var _ = DescribeTable("M9: since when it is ready", func(annotation string, became time.Time, want time.Time) {
	nm := maintenance("a", func(nm *v1alpha1.NodeMaintenance) {
		nm.Annotations = map[string]string{"maintenance.nvidia.com/ready-time": annotation}
	})
	SetPhase(&nm.Status, "Ready", "", 0, became)
	nm.Status.Conditions[0].LastTransitionTime = metav1.NewTime(became)
	nm.Finalizers = nil
	Expect(Bounds{Max: time.Hour}.Ends(nm, begin.Add(time.Hour)).Since).To(BeTemporally("==", want))
},
	Entry("both at once", "2026-03-01T12:00:00Z", begin, begin),
	Entry("anew after the requestor had failed", "2026-03-01T12:00:00Z", begin.Add(time.Minute), begin.Add(time.Minute)),
	Entry("the annotation, if it was written later", "2026-03-01T12:02:00Z", begin.Add(time.Minute), begin.Add(2*time.Minute)),
	Entry("no annotation", "", begin, begin),
	Entry("one that cannot be read", "soon", begin, begin),
	Entry("one that is yet to come", "9999-12-31T23:59:59Z", begin, begin),
	Entry("one of the year 1", "0001-01-01T00:00:00Z", begin, begin),
	Entry("a condition without a time", "2026-03-01T12:00:00Z", time.Time{}, begin),
	Entry("a condition that is yet to come", "2026-03-01T12:00:00Z", begin.Add(1000*time.Hour), begin),
	Entry("nothing that can be used", "9999-12-31T23:59:59Z", time.Time{}, begin.Add(time.Hour)),
	Entry("nothing but what is yet to come", "", begin.Add(1000*time.Hour), begin.Add(time.Hour)),
)

var _ = DescribeTable("M1: what names a requestor", func(id string, valid bool) {
	err := Validate(&v1alpha1.NodeMaintenanceSpec{RequestorID: id, NodeName: "n"})
	if valid {
		Expect(err).NotTo(HaveOccurred())
	} else {
		Expect(err).To(MatchError(ContainSubstring("spec.requestorID")))
	}
},
	Entry("two characters", "ab", true),
	Entry("63", strings.Repeat("a", 63), true),
	Entry("one", "a", false),
	Entry("64", strings.Repeat("a", 64), false),
	Entry("none", "", false),
	Entry("a domain", "Some-one.acme.com", true),
	Entry("no domain", "some.-one", false),
)

var _ = DescribeTable("M1: what names a node, and how many may join", func(node string, additional int, want string) {
	err := Validate(&v1alpha1.NodeMaintenanceSpec{RequestorID: "a.b", NodeName: node, AdditionalRequestors: make([]string, additional)})
	if want == "" {
		Expect(err).NotTo(HaveOccurred())
	} else {
		Expect(err).To(MatchError(ContainSubstring(want)))
	}
},
	Entry("a hundred", "n", 100, ""),
	Entry("one more", "n", 101, "spec.additionalRequestors"),
	Entry("no node", "", 0, "spec.nodeName"),
)
