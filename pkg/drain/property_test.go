// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
)

// TestMain makes every run the same. Run with -rapid.seed=0 to look further.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"checks": "20000", "seed": "1", "nofailfile": "true"} {
		if err := flag.Set("rapid."+name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// TestPlan looks at drains at two times between which nothing changes.
func TestPlan(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		minute := rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(0, 120).Draw(t, "minutes")) * time.Minute
		})
		strategies := Strategies{
			Disabled:             rapid.Bool().Draw(t, "disabled"),
			Timeout:              minute.Draw(t, "timeout"),
			ExpectedDrainTime:    minute.Draw(t, "expected"),
			PDBForceDrainTimeout: minute.Draw(t, "PDB"),
		}
		known := both(budgets("shop", &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}), budgets("free"))
		var pods []Pod
		for i := range rapid.IntRange(0, 6).Draw(t, "pods") {
			pod := Pod{
				Namespace: rapid.SampledFrom([]string{"shop", "free", "unknown"}).Draw(t, "namespace"),
				Name:      fmt.Sprintf("p-%d", i),
				AtRisk:    rapid.Bool().Draw(t, "at risk"),
				Ignored:   rapid.Bool().Draw(t, "ignored"),
			}
			if rapid.Bool().Draw(t, "selected") {
				pod.Labels = map[string]string{"app": "web"}
			}
			if rapid.Bool().Draw(t, "terminating") {
				pod = going(pod, begin.Add(minute.Draw(t, "grace")), rapid.Bool().Draw(t, "finalizers"))
			}
			pods = append(pods, pod)
		}
		now := begin.Add(minute.Draw(t, "age") * 3)
		policy := strategies.Policy()
		actions, next, failed := Plan(now, begin, pods, known, nil, policy)

		shuffled := slices.Clone(pods)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if a, n, f := Plan(now, begin, shuffled, known, nil, policy); !reflect.DeepEqual(a, actions) || n != next || f != failed {
			t.Fatalf("D12: the order of the pods matters")
		}

		if len(actions) != len(pods) {
			t.Fatalf("D12: %d actions for %d pods", len(actions), len(pods))
		}
		for _, action := range actions {
			acts := action.Verb != Wait && action.Verb != Keep
			isProtected := action.Pod.Namespace == "unknown" || action.Pod.Namespace == "shop" && action.Pod.Labels != nil
			switch {
			case acts && (strategies.Disabled || action.Pod.Ignored || action.Pod.AtRisk):
				t.Fatalf("D3, D9, D10: %+v", action)
			case acts && isProtected && now.Before(begin.Add(strategies.PDBDeadline())):
				t.Fatalf("D5: protected and acted upon before its time: %+v", action)
			case acts && !isProtected && now.Before(begin.Add(strategies.Timeout)):
				t.Fatalf("D5: acted upon before its time: %+v", action)
			case acts && action.Pod.GraceEnds.After(now):
				t.Fatalf("D5: acted upon in its grace period: %+v", action)
			case action.Verb == RemoveFinalizers && action.Pod.GraceEnds.IsZero():
				t.Fatalf("D5: finalizers of a pod that is not terminating: %+v", action)
			}
		}

		if !next.IsZero() && !next.After(now) {
			t.Fatalf("D12: next is not in the future")
		}
		later := now.Add(minute.Draw(t, "later"))
		laterActions, _, laterFailed := Plan(later, begin, pods, known, nil, policy)
		if failed && !laterFailed {
			t.Fatalf("D7: failed no more")
		}
		if (next.IsZero() || later.Before(next)) && (failed != laterFailed || !reflect.DeepEqual(actions, laterActions)) {
			t.Fatalf("D12: there was something to be done before next")
		}
	})
}
