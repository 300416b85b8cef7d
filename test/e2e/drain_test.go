// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"net/http"
	"net/url"
	"os"

	. "github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
)

// drainCalls looks at all that the sidecar has asked the shoot for: pods were watched by node and budgets listed by
// namespace, each permission that there is because of drain strategies was needed, and none was missing.
func (l *life) drainCalls() {
	file, err := os.Open(l.landscape.Shoot.AuditLog)
	l.Expect(err).NotTo(HaveOccurred())
	defer file.Close()
	used, lines := sets.New[string](), bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		event := &auditv1.Event{}
		if json.Unmarshal(lines.Bytes(), event) != nil || event.User.Username != "system:serviceaccount:kube-system:machine-preservation-controller" || event.ObjectRef == nil {
			continue
		}
		if event.ResponseStatus != nil {
			l.Expect(event.ResponseStatus.Code).NotTo(BeEquivalentTo(http.StatusForbidden), event.RequestURI)
		}
		what := event.Verb + " " + event.ObjectRef.Resource
		used.Insert(what)
		uri, err := url.Parse(event.RequestURI)
		l.Expect(err).NotTo(HaveOccurred())
		switch what {
		case "list pods", "watch pods":
			l.Expect(uri.Query().Get("fieldSelector")).To(HavePrefix("spec.nodeName="), event.RequestURI)
		case "list poddisruptionbudgets":
			l.Expect(event.ObjectRef.Namespace).NotTo(BeEmpty(), event.RequestURI)
		}
	}
	l.Expect(lines.Err()).NotTo(HaveOccurred())
	l.Expect(sets.List(used)).To(ContainElements("watch pods", "patch pods", "delete pods", "list poddisruptionbudgets"))
	l.Expect(used.Has("watch poddisruptionbudgets")).To(BeFalse())
}
