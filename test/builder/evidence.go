// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const evidence = "machine-preservation.extensions.gardener.cloud/evidence"

// StoredEvidenceName returns the name that a ConfigMap with evidence has here: that of its machine, so that it is seen which is which.
func StoredEvidenceName(machine string) string { return "evidence-of-" + machine }

// StoredEvidence returns the metadata of a ConfigMap with the evidence of a failure of a machine, which expires at a time if there is one. It
// does not say how large it is.
func StoredEvidence(machine string, failure time.Time, expires ...time.Time) metav1.PartialObjectMetadata {
	s := metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Namespace: Namespace, Name: StoredEvidenceName(machine), Labels: map[string]string{evidence: "true"},
		Annotations: map[string]string{evidence + "-machine": machine, evidence + "-failed-since": failure.UTC().Format(time.RFC3339)},
	}}
	for _, at := range expires {
		s.Annotations[evidence+"-expires"] = at.UTC().Format(time.RFC3339)
	}
	return s
}

// StoredEvidenceOfOthers returns the metadata of ConfigMaps of so many machines.
func StoredEvidenceOfOthers(n int) []metav1.PartialObjectMetadata {
	var all []metav1.PartialObjectMetadata
	for i := range n {
		all = append(all, StoredEvidence(fmt.Sprintf("other-%d", i), Start))
	}
	return all
}
