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
	"strings"
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
				pod.Forced = len(pod.Finalizers) > 0 && rapid.Bool().Draw(t, "forced")
			}
			pod.Owner = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "owner")
			pod.Created = begin.Add(minute.Draw(t, "created"))
			pods = append(pods, pod)
		}
		now := begin.Add(minute.Draw(t, "age") * 3)
		policy := strategies.Policy()
		if !strategies.Disabled && rapid.Bool().Draw(t, "failed machine") {
			policy = Options{Timeout: strategies.Timeout}.Policy()
			policy.Stages = policy.Stages[1:] // the other one respects budgets
			strategies.PDBForceDrainTimeout, strategies.ExpectedDrainTime = strategies.Timeout, 0
		}
		deletions := Deletions{}
		if rapid.Bool().Draw(t, "deleted before") {
			deletions["a"] = Deletion{First: begin.Add(minute.Draw(t, "first")), Last: now.Add(-minute.Draw(t, "last") / 10), Returns: rapid.IntRange(0, 100).Draw(t, "returns")}
		}
		actions, next, failed := Plan(now, begin, pods, known, deletions, policy)

		shuffled := slices.Clone(pods)
		random := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 0))
		random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
		if a, n, f := Plan(now, begin, shuffled, known, deletions, policy); !reflect.DeepEqual(a, actions) || n != next || f != failed {
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
			case acts && action.Pod.GraceEnds.After(now) && (action.Returned || len(policy.Stages) > 1):
				t.Fatalf("D5, D6: acted upon in its grace period: %+v", action)
			case action.Verb == Delete && (action.Pod.Forced || action.Returned && action.Pod.GraceEnds.IsZero()):
				t.Fatalf("D6: deleted by force in vain, or without its grace period: %+v", action)
			case action.Verb == Terminate && (!action.Returned || action.Pod.Owner != "a" || now.Before(deletions["a"].Last.Add(min(time.Second<<min(deletions["a"].Returns, 10), 5*time.Minute)))):
				t.Fatalf("D6: deleted again before its back-off is over: %+v", action)
			case action.Verb == RemoveFinalizers && action.Pod.GraceEnds.IsZero():
				t.Fatalf("D5: finalizers of a pod that is not terminating: %+v", action)
			}
		}

		if !next.IsZero() && !next.After(now) {
			t.Fatalf("D12: next is not in the future")
		}
		later := now.Add(minute.Draw(t, "later"))
		laterActions, _, laterFailed := Plan(later, begin, pods, known, deletions, policy)
		if failed && !laterFailed {
			t.Fatalf("D7: failed no more")
		}
		if (next.IsZero() || later.Before(next)) && (failed != laterFailed || !reflect.DeepEqual(actions, laterActions)) {
			t.Fatalf("D12: there was something to be done before next")
		}
	})
}

// TestReturns lets owners put pods on a node anew at once, for an hour of a drain by force.
func TestReturns(t *testing.T) {
	defer func(checks string) { _ = flag.Set("rapid.checks", checks) }(flag.Lookup("rapid.checks").Value.String())
	if err := flag.Set("rapid.checks", "500"); err != nil { // each is an hour
		t.Fatal(err)
	}
	// most is how often that can be: after 1, 2, 4 ... 256 seconds, which are 511, and every 300 from then on.
	const most = 9 + (3600-511)/300
	rapid.Check(t, func(t *rapid.T) {
		policy := Options{}.Policy()
		if rapid.Bool().Draw(t, "strategies") {
			policy = (&Strategies{}).Policy()
		}
		var (
			grace     = time.Duration(rapid.IntRange(0, 120).Draw(t, "grace")) * time.Second
			finalizer = rapid.Bool().Draw(t, "finalizer")
			// denied says that nobody can remove finalizers, stops how long a pod takes at most.
			denied    = rapid.Bool().Draw(t, "denied")
			stops     = time.Duration(rapid.IntRange(0, 240).Draw(t, "stops")) * time.Second
			polls     = time.Duration(rapid.IntRange(0, 15).Draw(t, "polls")) * time.Second
			behind    = time.Duration(rapid.IntRange(-50, 50).Draw(t, "clock")) * time.Second
			deletions = Deletions{}
			known     = both(budgets("shop"), Budgets{})
			pods      []Pod
			asked     []time.Time
			number    int
			forced    = map[string]int{}
			returns   = map[string]int{}
		)
		start := func(i int, now time.Time) {
			number++
			pods[i] = Pod{Namespace: "shop", Name: fmt.Sprint(number), Owner: fmt.Sprint(i % 2), Created: now.Add(-behind).Truncate(time.Second)}
			if asked[i] = (time.Time{}); finalizer {
				pods[i].Finalizers = []string{"acme.com/keep"}
			}
		}
		for i := range rapid.IntRange(1, 4).Draw(t, "pods") {
			pods, asked = append(pods, Pod{}), append(asked, time.Time{})
			start(i, begin.Add(-time.Hour))
		}
		for now := begin; now.Before(begin.Add(time.Hour)); {
			for i, pod := range pods {
				if !asked[i].IsZero() && len(pod.Finalizers) == 0 && !now.Before(asked[i].Add(stops)) {
					start(i, now)
				}
			}
			actions, next, _ := Plan(now, begin, pods, known, deletions, policy)
			forcedNow, askedNow := map[string]bool{}, map[string]bool{}
			for _, action := range actions {
				i := slices.IndexFunc(pods, func(p Pod) bool { return p.Name == action.Pod.Name })
				switch action.Verb {
				case Delete:
					forcedNow[pods[i].Owner] = true
					forced["pod "+pods[i].Name]++
					if pods[i].GraceEnds, pods[i].Forced = now, finalizer; len(pods[i].Finalizers) == 0 {
						start(i, now)
					}
				case Terminate:
					askedNow[pods[i].Owner] = true
					if grace == 0 && !finalizer {
						start(i, now)
					} else {
						pods[i].GraceEnds, asked[i] = now.Add(grace), now
						pods[i].Forced = grace == 0
					}
				case RemoveFinalizers:
					if !denied {
						if pods[i].Finalizers = nil; pods[i].Forced {
							start(i, now)
						}
					}
				}
			}
			for owner := range forcedNow {
				forced[owner]++
			}
			for owner := range askedNow {
				returns[owner]++
			}
			deletions.Note(actions, now)
			if now = now.Add(max(polls, time.Second)); polls == 0 && next.After(now) {
				now = next
			}
		}
		for owner, count := range forced {
			limit := 1 + len(pods)*most
			if strings.HasPrefix(owner, "pod ") {
				limit = 1
			}
			if count > limit || returns[owner] > most {
				t.Fatalf("D6: %d of %s were deleted by force, and %d times they were asked to go", count, owner, returns[owner])
			}
		}
	})
}
