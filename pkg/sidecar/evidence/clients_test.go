// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"context"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence/retention"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/evidence"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

var _ = DescribeTable("StoredName is that of the evidence of one failure", func(machine string, since time.Time, name string) {
	incomplete := StoredEvidence("n", Start)
	incomplete.Name = "a-comes-first"
	incomplete.Annotations[retention.AnnotationStoredIncomplete] = stamp(now)
	e := newEnvironment(&corev1.ConfigMap{ObjectMeta: StoredEvidence("m", Start).ObjectMeta},
		&corev1.ConfigMap{ObjectMeta: incomplete.ObjectMeta}, &corev1.ConfigMap{ObjectMeta: StoredEvidence("n", Start).ObjectMeta})
	Expect(ClientsOf(e.seed).StoredName(context.Background(), Namespace, machine, since)).To(Equal(name))
},
	Entry("it is stored", "m", Start, StoredEvidenceName("m")),
	Entry("the complete one, which is not the first to go", "n", Start, StoredEvidenceName("n")),
	Entry("that of another failure is", "m", Start.Add(time.Second), ""),
	Entry("that of other machines is", "x", Start, ""),
)
