// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance_test

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// FuzzFilters looks for anything in the resources of pods (M5, M17).
func FuzzFilters(f *testing.F) {
	f.Add("", "nvidia.com/rdma*", "nvidia.com/gpu", "nvidia.com/rdma_shared,cpu,memory", uint8(1), uint16(2))
	f.Add("app in (web,db),!old", slow, "a|b", "example.com/a", uint8(32), uint16(110))
	f.Add("app=web", "(a", "", ",,", uint8(33), uint16(0))
	f.Fuzz(func(t *testing.T, selector, one, other, names string, times uint8, pods uint16) {
		spec := filtersOf(slices.Repeat([]string{one, other}, int(times%40))...)
		spec.PodSelector = selector
		resources := strings.Split(names, ",")
		var all []drain.Pod
		for i := range int(pods % 200) {
			pod := drain.Pod{Namespace: "shop", Name: strings.Repeat("p", i+1), UID: types.UID(resources[i%len(resources)]), Labels: map[string]string{"app": resources[0]}, Managed: i%2 == 0}
			for _, name := range resources[i%len(resources):] {
				pod.Resources = append(pod.Resources, corev1.ResourceName(name), corev1.ResourceName(name+pod.Name))
			}
			all = append(all, pod)
		}
		nm := maintenance("a", draining(spec))
		if Validate(&nm.Spec) == nil {
			if _, steps := Work(spec, all); steps > MaxSteps || steps < 0 {
				t.Errorf("it takes %d steps", steps)
			}
		}
		nm.Annotations = map[string]string{"machine-preservation.extensions.gardener.cloud/drain-start-time": "2026-03-01T12:00:00Z/2026-03-01T12:00:00Z", "maintenance.nvidia.com/node-initial-state.unschedulable": "false"}
		checkDecision(t, Facts{Node: builder.Node("n"), Maintenances: []*v1alpha1.NodeMaintenance{nm}, Pods: all, PodsKnown: true}, "Draining")
	})
}

// FuzzNodeMaintenance has a NodeMaintenance say anything, in each phase (M1, M17).
func FuzzNodeMaintenance(f *testing.F) {
	for _, nm := range []*v1alpha1.NodeMaintenance{
		maintenance("a"),
		maintenance("a", draining(filtersOf("nvidia.com/gpu", "(")), uncordoned),
		maintenance("a", waiting(v1alpha1.WaitForPodCompletionSpec{PodSelector: "app in (a,b)", TimeoutSeconds: 2147483647})),
		maintenance("a", draining(v1alpha1.DrainSpec{PodSelector: "=", TimeoutSeconds: new(int32(-1))}), func(nm *v1alpha1.NodeMaintenance) {
			nm.Spec.AdditionalRequestors = []string{"\x1b[2J", "b"}
			nm.Finalizers = []string{finalizer}
			nm.Annotations = map[string]string{"maintenance.nvidia.com/ready-time": "9999-12-31T23:59:59Z", "machine-preservation.extensions.gardener.cloud/drain-start-time": "0001-01-01T00:00:00Z/x"}
		}),
	} {
		data, err := json.Marshal(nm)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	for _, document := range []string{
		`{"metadata":{"uid":"u","deletionTimestamp":"0001-01-01T00:00:00Z","finalizers":["a","maintenance.nvidia.com/finalizer"]},"spec":{"requestorID":"a.b","nodeName":"n","drainSpec":{}},"status":{"drain":{"totalPods":-1,"evictionPods":-2147483648,"drainProgress":2147483647}}}`,
		`{"metadata":{"uid":"u","ownerReferences":[{"kind":"Node","apiVersion":"v1","uid":"x"}]},"spec":{"waitForPodCompletion":{"podSelector":"!"}},"status":{"conditions":[{"type":"RequestorFailed","status":"True"}]}}`,
		`{}`, `null`, `{"spec":null}`,
	} {
		f.Add([]byte(document))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 16<<10 {
			return // much of it is copied as it is, and checked as long as it was
		}
		nm := &v1alpha1.NodeMaintenance{}
		if json.Unmarshal(data, nm) != nil {
			return
		}
		err := Validate(&nm.Spec)
		if err != nil && len(err.Error()) > 4<<10 {
			t.Errorf("an error of %d bytes: %.200q", len(err.Error()), err)
		}
		request := NewRequest(nm, nil)
		chosen, _ := Schedule([]ScheduledNode{{Name: nm.Spec.NodeName}}, []Request{request}, Limits{})
		if err != nil && len(chosen) > 0 {
			t.Errorf("one is scheduled that is not valid: %s", err)
		}
		pods := []drain.Pod{asking("a", "nvidia.com/gpu"), asking("b", resourceNames("a", 100)...), {Namespace: "shop", Name: "c", Labels: map[string]string{"app": "a"}, GraceEnds: begin, Finalizers: []string{"x"}}}
		for _, phase := range append(slices.Clone(Phases), "", "Unknown") {
			for _, node := range []*corev1.Node{nil, builder.Node("n"), builder.Node("n", func(n *corev1.Node) {
				n.Spec.Unschedulable = true
				n.Annotations = map[string]string{markKey: string(nm.UID), recordKey: string(nm.UID)}
			})} {
				checkDecision(t, Facts{Node: node, Maintenances: []*v1alpha1.NodeMaintenance{nm.DeepCopy(), maintenance("z")}, Pods: pods, PodsKnown: true}, phase)
			}
		}
	})
}

// checkDecision says that a decision is taken alike, and that what is written and told of it is bounded.
func checkDecision(t *testing.T, facts Facts, phase string) {
	t.Helper()
	nm := facts.Maintenances[0]
	if phase != "" {
		SetPhase(&nm.Status, phase, "", 0, begin)
	}
	length, _ := json.Marshal(nm)
	_ = Bounds{Max: time.Hour, Overtime: time.Hour}.Ends(nm, begin)
	outcome := Decide(facts, begin)
	if !reflect.DeepEqual(outcome, Decide(facts, begin)) {
		t.Errorf("%s: it is not decided alike", phase)
	}
	if !outcome.Next.IsZero() && outcome.Next.Before(begin) {
		t.Errorf("%s: it is to be looked at again at %s", phase, outcome.Next)
	}
	for _, e := range outcome.Events {
		if len(e.Note) > 4<<10 {
			t.Errorf("%s: it is told %d bytes: %.200q", phase, len(e.Note), e.Note)
		}
	}
	for _, write := range outcome.Writes {
		if written, _ := json.Marshal(write.After); len(written) > len(length)+16<<10 {
			t.Errorf("%s: what had %d bytes has %d: %.200q", phase, len(length), len(written), written)
		}
		if after, ok := write.After.(*v1alpha1.NodeMaintenance); ok && write.Status {
			if drained := after.Status.Drain; drained != nil && len(drained.WaitForEviction) > 100 && !reflect.DeepEqual(drained, nm.Status.Drain) {
				t.Errorf("%s: %d pods are named", phase, len(drained.WaitForEviction))
			}
		}
	}
}
