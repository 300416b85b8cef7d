// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"encoding/json"
	"iter"
	"net/http"
	"net/url"
	"os"
	"regexp"
	"strings"
	"time"

	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// drainCalls looks at all that the sidecar has asked the shoot for: pods were watched by node and budgets listed by
// namespace, each permission that there is because of drain strategies was needed, and none was missing. What the
// strategies did was done at its time, which is counted from the deletion of the machine.
func (l *life) drainCalls() {
	started := map[string]time.Time{}
	for event := range l.audited(l.landscape.Seed.AuditLog) {
		if event.Verb != "delete" || event.ObjectRef.Resource != "machines" || event.ResponseStatus == nil || event.ResponseStatus.Code != http.StatusOK {
			continue
		}
		// As precise as a deletion timestamp is. Machine-controller-manager deletes machines again that are terminating.
		if _, again := started[event.ObjectRef.Name]; !again {
			started[event.ObjectRef.Name] = event.RequestReceivedTimestamp.Truncate(time.Second)
		}
	}
	acted := l.strategiesThatActed()

	used, late := sets.New[string](), map[string][]time.Duration{}
	for event := range l.audited(l.landscape.Shoot.AuditLog) {
		if event.User.Username != "system:serviceaccount:kube-system:machine-preservation-controller" {
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
		case "delete pods", "patch pods":
			// What was held back while the strategies were disabled has no deadline.
			if a, ok := acted[event.ObjectRef.Namespace+"/"+event.ObjectRef.Name]; ok && event.ObjectRef.Name != "drain-disabled" {
				l.Expect(started).To(HaveKey(a.machine))
				lag := event.RequestReceivedTimestamp.Sub(started[a.machine].Add(a.deadline()))
				l.Expect(lag).To(And(BeNumerically(">=", 0), BeNumerically("<", 5*time.Second)), "%s: %s", a.strategy, event.RequestURI)
				late[a.strategy] = append(late[a.strategy], lag.Round(time.Millisecond))
			}
		}
	}
	l.Expect(sets.List(used)).To(ContainElements("watch pods", "patch pods", "delete pods", "list poddisruptionbudgets"))
	l.Expect(used.Has("watch poddisruptionbudgets")).To(BeFalse())
	l.t.Logf("So long after its deadline each strategy asked: %v", late)
	l.Expect(late).To(And(HaveKey("finalizers"), HaveKey("stuck"), HaveKey("PDB delete")))
}

// action is what a strategy did with a pod, and how long after the begin of the drain it says that it did so.
type action struct {
	strategy, machine string
	after             time.Duration
}

// deadline returns how long after the begin of the drain the strategy is to act.
func (a action) deadline() time.Duration {
	if strings.HasPrefix(a.strategy, "PDB ") {
		return pdbDeadline
	}
	return drainTimeout
}

// acted finds in the note of an Event which strategy acted, and how long after the begin of the drain.
var acted = regexp.MustCompile(`^Drain strategy "(.+?)" .+ (\S+) after machine-controller-manager began`)

// strategiesThatActed returns by the pods, as namespace and name, which strategies have told of them first.
func (l *life) strategiesThatActed() map[string]action {
	list, actions := &eventsv1.EventList{}, map[string]action{}
	l.Expect(l.Shoot.List(l.ctx, list, client.InNamespace(metav1.NamespaceDefault))).To(Succeed())
	for _, event := range list.Items {
		if event.Reason != "DrainStrategyActed" {
			continue
		}
		note := acted.FindStringSubmatch(event.Note)
		l.Expect(note).To(HaveLen(3), event.Note)
		after, err := time.ParseDuration(note[2])
		l.Expect(err).NotTo(HaveOccurred(), event.Note)
		a := action{strategy: note[1], machine: strings.TrimPrefix(event.Regarding.Name, "machine-"), after: after}
		for _, word := range strings.FieldsFunc(event.Note, func(r rune) bool { return strings.ContainsRune(" ,;.", r) }) {
			if known, ok := actions[word]; strings.HasPrefix(word, metav1.NamespaceDefault+"/") && (!ok || a.after < known.after) {
				actions[word] = a
			}
		}
	}
	return actions
}

// audited goes through what an API server has been asked for about objects.
func (l *life) audited(path string) iter.Seq[*auditv1.Event] {
	return func(yield func(*auditv1.Event) bool) {
		file, err := os.Open(path)
		l.Expect(err).NotTo(HaveOccurred())
		defer file.Close()
		lines := bufio.NewScanner(file)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			event := &auditv1.Event{}
			if json.Unmarshal(lines.Bytes(), event) == nil && event.ObjectRef != nil && !yield(event) {
				return
			}
		}
		l.Expect(lines.Err()).NotTo(HaveOccurred())
	}
}
