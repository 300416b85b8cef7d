// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// MissingBudgets names the PodDisruptionBudgets of a namespace that could not be read.
func MissingBudgets(namespace string) observed.Thing {
	return observed.Thing("PodDisruptionBudgets of namespace " + namespace)
}

// ForecastOptions say what to assume.
type ForecastOptions struct {
	// Timeout is the drain timeout. 0 stands for the machine's, or 2h if that is not known.
	Timeout time.Duration
	// NotAnswering assumes that the node does not answer.
	NotAnswering bool
}

// Forecast is what drains of a node would do with its pods.
type Forecast struct {
	Drains []DrainForecast `json:"drains"`
	// Notes say what is assumed, and what is not known.
	Notes []string `json:"notes,omitempty"`
}

// DrainForecast is what one kind of drain would do.
type DrainForecast struct {
	Title string         `json:"title"`
	Rule  string         `json:"rule"`
	Steps []ForecastStep `json:"steps"`
	// End says how it ends.
	End string `json:"end"`
}

// ForecastStep is what would be done with a pod, and its outcome.
type ForecastStep struct {
	// After is the time since the start of the drain; nil for a pod that nothing is done with.
	After   *metav1.Duration `json:"after,omitempty"`
	Pod     string           `json:"pod"`
	Action  string           `json:"action"`
	Outcome string           `json:"outcome"`
	// Obstacles are what is in the way, and what is lost.
	Obstacles []string `json:"obstacles,omitempty"`
}

// DrainForecastOf says what a drain of a node would do if it began now, or what the drain that has begun will do: the drain of a failed
// machine (P7), and the drain of an update with drain strategies (D5), if the seed has any. It assumes that a pod that may be evicted
// stops within its grace period if the node answers, that a budget without allowed disruptions stays so, and that a budget with some
// allows more as its pods are replaced. The snapshot must have the node, its pods, and the PodDisruptionBudgets of their namespaces; with
// the seed, the machine's MachineDeployment.
func DrainForecastOf(known *observed.Snapshot, name string, options ForecastOptions, now time.Time) (*Forecast, error) {
	node := known.Shoot.Node(name)
	if node == nil {
		return nil, noNode(known, name)
	}
	var (
		forecast = &Forecast{}
		began    = now
		timeout  = cmp.Or(options.Timeout, facts.DefaultTimeouts.Drain)
		force    bool
	)
	settings, err := settingsOf(nil)
	record, failed := preservation.ReadRecord(preservation.Shown(node, now)), time.Time{}
	if seed := known.Seed; seed != nil {
		settings, err = settingsOf(seed.Controller)
		if machine := seed.Machine(name); machine != nil {
			timeout = cmp.Or(options.Timeout, settings.group.Timeouts.For(machine).Drain)
			if record = preservation.ReadRecord(machine); record != nil {
				failed = record.FailedAt(machine, settings.group.Timeouts)
			}
			if deployment := facts.DeploymentOf(machine, seed.MachineSets, seed.MachineDeployments); deployment != nil {
				force = deployment.Annotations[v1alpha1.AnnotationForceDeletePodsWithVolumes] == "true"
			}
		}
	} else {
		if options.Timeout == 0 {
			forecast.note("The drain timeout of the pool is only known in the seed: %s is assumed. Pass --timeout to assume another.", brief.Duration(timeout))
		}
		forecast.note("The shoot does not know whether the Shoot's providerConfig sets drainStrategies and forceDeletePodsWithVolumes: the forecast assumes that it sets neither. With --seed-namespace, operators see a forecast that knows both.")
	}
	if _, tainted := preservation.TaintedSince(node); tainted && !preservation.AwaitsValidation(node) {
		began = preservation.DrainBegan(node, failed, now)
	}
	if record != nil {
		if ahead := *record; !ahead.Drains() {
			ahead.Failed = true
			if !ahead.Drains() {
				forecast.note("The node is not drained now, because it is under maintenance or its host is power-cycled.")
			}
		}
	}
	if err != nil {
		forecast.note("Some arguments of the preservation controller could not be read: their defaults are assumed, because %s.", printable(err.Error()))
	}

	for _, missing := range known.Missing {
		switch {
		case missing.Thing == observed.WhatPods && missing.Partial:
			forecast.note("The other pods of the node are not known and not listed: %s.", printable(missing.Reason))
		case missing.Thing == observed.WhatPods:
			return nil, fmt.Errorf("the %s are not known: %s", missing.What(), printable(missing.Reason))
		case missing.Thing == observed.WhatController:
			forecast.note("The %s are not known: no drain strategies are assumed. %s", missing.What(), printable(missing.Reason))
		}
	}

	answers := facts.IsReady(node) && !options.NotAnswering
	situation := "answers"
	if !answers {
		situation = "does not answer"
	}
	base := simulation{snapshot: known, answers: answers, began: began, now: now}
	title := "What the drain of a failed machine would do if the node " + situation
	if began.Before(now) {
		title = "What the drain of the failed machine does if the node " + situation + ". The drain began " + duration.HumanDuration(now.Sub(began)) + " ago."
	}

	failure := base
	failure.title, failure.rule = title, "P7"
	failure.policy = drain.Options{Since: began, Timeout: timeout, ForceVolumes: force}.Policy()
	failure.force = force
	failure.stays = func(p drain.Pod) bool { return p.Mirror || p.DaemonSet != "" && !p.Finished }
	forecast.Drains = append(forecast.Drains, failure.run(name))

	if strategies := settings.strategies; strategies != nil {
		update := base
		update.began = now
		update.title, update.rule = "What the drain of an update would do if the node "+situation, "D5"
		update.policy = strategies.Policy()
		// machine-controller-manager evicts from the beginning.
		update.policy.Stages = append([]drain.Stage{{Name: "evict", Selector: drain.Selector{State: drain.NotTerminating}, Verb: drain.Evict}}, update.policy.Stages...)
		update.force = force
		update.named = true
		update.stays = drain.Pod.Belongs
		update.ignores = strategies.Ignores
		forecast.Drains = append(forecast.Drains, update.run(name))
		forecast.note("machine-controller-manager deletes by force the pods that the drain of an update has left after %s.", brief.Duration(timeout))
	}
	forecast.note("Assumptions: if the node answers, pods stop within their grace period. A PodDisruptionBudget that allows no disruption now allows none later. One that allows disruptions now allows more as soon as evicted pods run elsewhere.")
	return forecast, nil
}

func (f *Forecast) note(format string, args ...any) {
	f.Notes = append(f.Notes, fmt.Sprintf(format, args...))
}

// simulation runs a drain in advance.
type simulation struct {
	title, rule string
	snapshot    *observed.Snapshot
	policy      drain.Policy
	answers     bool
	// force says that pods with volumes are deleted by force from a node that does not answer.
	force bool
	// named says that people know the names of the stages.
	named      bool
	began, now time.Time
	// stays says that a pod stays with its node, ignores that nothing is done with the pods of a namespace.
	stays   func(drain.Pod) bool
	ignores func(namespace string) bool

	budgets drain.Budgets
	pods    []*simulatedPod
	steps   []ForecastStep
}

// simulatedPod is a pod at some time of the simulation.
type simulatedPod struct {
	drain.Pod
	object *corev1.Pod
	// goesAt is when it is gone if nothing more is done; zero for never.
	goesAt time.Time
	// verb is what was done last.
	verb drain.Verb
}

func (s *simulation) run(node string) DrainForecast {
	s.load(node)
	end := s.play()
	never := metav1.Duration{Duration: math.MaxInt64}
	slices.SortStableFunc(s.steps, func(a, b ForecastStep) int {
		return cmp.Or(cmp.Compare(ptr.Deref(a.After, never).Duration, ptr.Deref(b.After, never).Duration), cmp.Compare(a.Pod, b.Pod))
	})
	return DrainForecast{Title: s.title, Rule: s.rule, Steps: s.steps, End: end}
}

// load reads the pods of the node and their budgets.
func (s *simulation) load(node string) {
	s.budgets = drain.Budgets{}
	for i := range s.snapshot.Shoot.Pods {
		object := &s.snapshot.Shoot.Pods[i]
		if object.Spec.NodeName != node {
			continue
		}
		pod := &simulatedPod{Pod: drain.NewPod(object), object: object, verb: -1}
		if s.stays(pod.Pod) {
			s.steps = append(s.steps, ForecastStep{Pod: pod.Key(), Action: "none", Outcome: "stays", Obstacles: []string{s.whyStays(pod.Pod)}})
			continue
		}
		if s.ignores != nil && s.ignores(pod.Namespace) {
			pod.Ignored = true
			s.steps = append(s.steps, ForecastStep{Pod: pod.Key(), Action: "none", Outcome: "is waited for", Obstacles: []string{"the drain waits for it, because the drain strategies ignore its namespace"}})
		}
		pod.AtRisk = pod.Volumes && !s.answers && !s.force
		if !pod.GraceEnds.IsZero() && s.answers && len(pod.Finalizers) == 0 && pod.GraceEnds.After(s.now) {
			pod.goesAt = pod.GraceEnds
		}
		s.pods = append(s.pods, pod)
		if _, known := s.budgets[pod.Namespace]; !known && s.unknown(pod.Namespace) == "" {
			var budgets []policyv1.PodDisruptionBudget
			for _, budget := range s.snapshot.Shoot.PodDisruptionBudgets {
				if budget.Namespace == pod.Namespace {
					budgets = append(budgets, budget)
				}
			}
			s.budgets.Know(pod.Namespace, budgets)
		}
	}
}

func (s *simulation) whyStays(p drain.Pod) string {
	switch {
	case p.Mirror:
		return "a static pod of the node"
	case p.DaemonSet != "" && !p.Finished && s.rule == "P7":
		return "a pod of DaemonSet " + p.DaemonSet + " (if that no longer exists, the pod is evicted)"
	case p.DaemonSet != "" && !p.Finished:
		return "a pod of DaemonSet " + p.DaemonSet
	}
	return "it has finished"
}

// unknown returns why the budgets of a namespace are not known, empty if they are.
func (s *simulation) unknown(namespace string) string {
	for _, missing := range s.snapshot.Unknown(MissingBudgets(namespace), observed.WhatBudgets) {
		return cmp.Or(missing.Reason, "no reason is given")
	}
	return ""
}

// play goes from one look at the pods to the next until nothing more happens, and returns how it ends.
func (s *simulation) play() string {
	at := s.now
	for {
		s.pods = slices.DeleteFunc(s.pods, func(p *simulatedPod) bool { return !p.goesAt.IsZero() && !p.goesAt.After(at) })
		if len(s.pods) == 0 {
			if at.Equal(s.now) && len(s.steps) == 0 {
				return "The node has no pods to drain."
			}
			return fmt.Sprintf("The node is drained %s after the drain began.", s.after(at))
		}
		pods := make([]drain.Pod, len(s.pods))
		for i, p := range s.pods {
			pods[i] = p.Pod
		}
		actions, next, _ := drain.Plan(at, s.began, pods, s.budgets, nil, s.policy)
		for _, action := range actions {
			i := slices.IndexFunc(s.pods, func(p *simulatedPod) bool { return p.Key() == action.Pod.Key() })
			s.act(s.pods[i], action, at)
		}
		for _, p := range s.pods {
			if !p.goesAt.IsZero() && (next.IsZero() || p.goesAt.Before(next)) {
				next = p.goesAt
			}
		}
		if next.IsZero() {
			var names []string
			for _, p := range s.pods {
				names = append(names, p.Key())
			}
			slices.Sort(names)
			return fmt.Sprintf("The drain does not end, because these pods do not leave the node: %s.", strings.Join(names, ", "))
		}
		at = next
	}
}

// act does to a pod what is planned, and notes it if it is new.
func (s *simulation) act(p *simulatedPod, action drain.Action, at time.Time) {
	news := p.verb != action.Verb && !p.Ignored
	p.verb = action.Verb
	step := ForecastStep{After: &metav1.Duration{Duration: at.Sub(s.began).Truncate(time.Second)}, Pod: p.Key()}
	switch action.Verb {
	case drain.Wait:
		// Of what was evicted, and waits for its grace period, all is said.
		news = news && !p.GraceEnds.IsZero() && !slices.ContainsFunc(s.steps, func(step ForecastStep) bool { return step.Pod == p.Key() })
		step.Action = "none"
		s.terminating(p, &step)
	case drain.Keep:
		step.Action, step.Outcome = "none", "stays"
		step.Obstacles = []string{"it has volumes, the node does not answer, and the VM may still write to them"}
	case drain.Evict:
		step.Action = "evict"
		refused, obstacles := s.refused(p.object)
		step.Obstacles = obstacles
		if refused {
			step.Outcome = "refused"
			break
		}
		p.GraceEnds = at.Add(graceOf(p.object))
		if s.answers && len(p.Finalizers) == 0 {
			p.goesAt = p.GraceEnds
		}
		step.Obstacles = append(step.Obstacles, losses(p.Pod)...)
		s.terminating(p, &step)
	case drain.Delete:
		step.Action = "delete by force"
		p.GraceEnds = at
		if p.Forced = len(p.Finalizers) > 0; !p.Forced {
			p.goesAt = at.Add(time.Nanosecond)
			step.Outcome = "gone"
			step.Obstacles = losses(p.Pod)
			break
		}
		s.terminating(p, &step)
	case drain.RemoveFinalizers:
		step.Action, step.Outcome = "remove finalizers", "gone"
		p.Finalizers = nil
		p.goesAt = at.Add(time.Nanosecond)
	}
	if s.named && action.Stage != nil && step.Action != "none" && step.Action != "evict" {
		step.Action += " (" + action.Stage.Name + ")"
	}
	if news {
		s.steps = append(s.steps, step)
	}
}

// terminating says what becomes of a pod that is terminating.
func (s *simulation) terminating(p *simulatedPod, step *ForecastStep) {
	switch {
	case len(p.Finalizers) > 0:
		step.Outcome = "terminating"
		step.Obstacles = append(step.Obstacles, "finalizer "+strings.Join(p.object.Finalizers, ", "))
	case !s.answers:
		step.Outcome = "terminating"
		step.Obstacles = append(step.Obstacles, "the node does not answer")
	case p.goesAt.IsZero():
		step.Outcome = "terminating"
		step.Obstacles = append(step.Obstacles, "it has not stopped in its grace period")
	default:
		step.Outcome = "gone by " + s.after(p.goesAt)
	}
}

// losses are what is lost with a pod.
func losses(p drain.Pod) []string {
	var losses []string
	if !p.Managed {
		losses = append(losses, "no controller starts it again")
	}
	if p.EmptyDir {
		losses = append(losses, "the data of its emptyDir are lost")
	}
	return losses
}

func graceOf(pod *corev1.Pod) time.Duration {
	return time.Duration(ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)) * time.Second
}

// refused says whether the API server refuses to evict a pod, and what its budgets allow.
func (s *simulation) refused(pod *corev1.Pod) (bool, []string) {
	if reason := s.unknown(pod.Namespace); reason != "" {
		return false, []string{"its PodDisruptionBudgets cannot be read: " + printable(reason)}
	}
	switch pod.Status.Phase {
	case corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed: // no budget counts them
		return false, nil
	}
	var selecting []*policyv1.PodDisruptionBudget
	for i := range s.snapshot.Shoot.PodDisruptionBudgets {
		budget := &s.snapshot.Shoot.PodDisruptionBudgets[i]
		if budget.Namespace != pod.Namespace {
			continue
		}
		if selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector); err != nil || selector.Matches(labels.Set(pod.Labels)) {
			selecting = append(selecting, budget)
		}
	}
	if len(selecting) == 0 {
		return false, nil
	}
	budget := selecting[0]
	if len(selecting) > 1 {
		return true, []string{fmt.Sprintf("the eviction API refuses it, because budgets %s and %s both select it", budget.Name, selecting[1].Name)}
	}
	allowed := budget.Status.DisruptionsAllowed
	switch {
	case !isReady(pod) && (ptr.Deref(budget.Spec.UnhealthyPodEvictionPolicy, policyv1.IfHealthyBudget) == policyv1.AlwaysAllow ||
		budget.Status.CurrentHealthy >= budget.Status.DesiredHealthy && budget.Status.DesiredHealthy > 0):
		return false, []string{fmt.Sprintf("budget %s does not count it because it is not ready", budget.Name)}
	case allowed <= 0:
		return true, []string{fmt.Sprintf("budget %s allows 0 disruptions (%d pods are healthy, it needs %d)", budget.Name, budget.Status.CurrentHealthy, budget.Status.DesiredHealthy)}
	}
	return false, []string{fmt.Sprintf("budget %s allows %d at a time", budget.Name, allowed)}
}

func isReady(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

func (s *simulation) after(t time.Time) string {
	return duration.HumanDuration(t.Sub(s.began).Truncate(time.Second))
}

// String returns tables, sorted by time.
func (f *Forecast) String() string {
	var w strings.Builder
	table := tabwriter.NewWriter(&w, 0, 8, 3, ' ', 0)
	for i, d := range f.Drains {
		if i > 0 {
			fmt.Fprintln(table)
		}
		fmt.Fprintf(table, "%s [%s]\n", printable(d.Title), printable(d.Rule))
		if len(d.Steps) > 0 {
			fmt.Fprintln(table, "AFTER\tPOD\tACTION\tOUTCOME\tIN THE WAY OR LOST")
		}
		for _, step := range d.Steps {
			after := "-"
			if step.After != nil {
				after = duration.HumanDuration(step.After.Duration)
			}
			fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\n", after, printable(step.Pod), printable(step.Action), printable(step.Outcome), printable(strings.Join(step.Obstacles, "; ")))
		}
		fmt.Fprintln(table, brief.Printable(d.End))
		_ = table.Flush()
	}
	for i, note := range f.Notes {
		if i == 0 {
			fmt.Fprintln(table)
		}
		fmt.Fprintln(table, brief.Printable(note))
	}
	_ = table.Flush()
	return trailing.ReplaceAllString(w.String(), "")
}

// trailing is what pads the last cell of a line.
var trailing = regexp.MustCompile(`(?m) +$`)
