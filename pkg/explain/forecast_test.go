// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package explain_test

import (
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/explain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
	"github.com/gardener/gardener-extension-machine-preservation/test/golden"
)

type podOption func(*corev1.Pod)

// pod returns a pod of a ReplicaSet that is ready, on node m.
func pod(name string, opts ...podOption) corev1.Pod {
	p := corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: map[string]string{"app": name}},
		Spec:       corev1.PodSpec{NodeName: "m"},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning, Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}},
	}
	of("ReplicaSet")(&p)
	for _, opt := range opts {
		opt(&p)
	}
	return p
}

func of(kind string) podOption {
	return func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: appsv1.SchemeGroupVersion.String(), Kind: kind, Name: p.Name, Controller: new(true)}}
	}
}

func alone(p *corev1.Pod) { p.OwnerReferences = nil }

func mirrored(p *corev1.Pod) {
	p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"}
}

func finished(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }

func notReady(p *corev1.Pod) { p.Status.Conditions[0].Status = corev1.ConditionFalse }

func grace(seconds int64) podOption {
	return func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(seconds) }
}

func claimed(p *corev1.Pod) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}})
}

func scratch(p *corev1.Pod) {
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}})
}

func finalizer(p *corev1.Pod) { p.Finalizers = []string{"example.com/bill"} }

func deletedUntil(t time.Time) podOption {
	return func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{Time: t} }
}

func in(namespace string) podOption { return func(p *corev1.Pod) { p.Namespace = namespace } }

// budget returns a PodDisruptionBudget that selects the pods of a name.
func budget(name, app string, allowed int32) policyv1.PodDisruptionBudget {
	return policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed, CurrentHealthy: 2, DesiredHealthy: 2},
	}
}

var _ = Describe("DrainForecastOf", func() {
	var (
		pods = []corev1.Pod{
			pod("web"), pod("db", claimed, grace(300)), pod("cache", scratch), pod("batch", alone), pod("billed", finalizer),
			pod("strict"), pod("sick", notReady), pod("twice"), pod("going", deletedUntil(now.Add(10*time.Second))),
			pod("stuck", deletedUntil(now.Add(-time.Minute))), pod("done", finished), pod("proxy", of("DaemonSet"), in("kube-system")),
			pod("static", mirrored, in("kube-system")), pod("elsewhere", func(p *corev1.Pod) { p.Spec.NodeName = "other" }), pod("odd", in("closed")),
		}
		budgets = []policyv1.PodDisruptionBudget{
			budget("web", "web", 1), budget("strict", "strict", 0), budget("sick", "sick", 0), budget("one", "twice", 1), budget("two", "twice", 1),
		}
	)
	shop := func(node ...NodeOption) *observed.Snapshot {
		return &observed.Snapshot{
			Time:    now,
			Shoot:   observed.Shoot{Nodes: []corev1.Node{*Node("m", node...)}, Pods: pods, PodDisruptionBudgets: budgets},
			Missing: []observed.Missing{{Thing: MissingBudgets("closed"), Reason: "forbidden"}},
		}
	}
	withSeed := func(snapshot *observed.Snapshot, deployment DeploymentOption, args ...string) *observed.Snapshot {
		snapshot.Seed = situation{deployment: []DeploymentOption{deployment}, args: args}.snapshot("health-timer").Seed
		return snapshot
	}

	DescribeTable("should say what is done, when, and what is in the way", func(name string, snapshot func() *observed.Snapshot, options ForecastOptions) {
		forecast, err := DrainForecastOf(snapshot(), "m", options, now)
		Expect(err).NotTo(HaveOccurred())
		golden.Expect("forecast-"+name+".txt", forecast.String())
	},
		Entry("P7: a node that answers", "answers", func() *observed.Snapshot { return shop() }, ForecastOptions{}),
		Entry("P7: one that does not", "dead", func() *observed.Snapshot { return shop(NotReady) }, ForecastOptions{Timeout: 30 * time.Minute}),
		Entry("P7: one that is assumed not to", "as-if-dead", func() *observed.Snapshot { return shop() }, ForecastOptions{Timeout: 30 * time.Minute, NotAnswering: true}),
		Entry("P7: one where volumes are forced", "forced", func() *observed.Snapshot {
			return withSeed(shop(NotReady), DeploymentAnnotation(v1alpha1.AnnotationForceDeletePodsWithVolumes, "true"), "--machine-drain-timeout=1h")
		}, ForecastOptions{}),
		Entry("P7: a drain that goes on", "going-on", func() *observed.Snapshot { return shop(NotReady, Taint(v1alpha1.TaintPreserved, now.Add(-time.Hour))) }, ForecastOptions{}),
		Entry("D5: with drain strategies", "strategies", func() *observed.Snapshot {
			return withSeed(shop(), Share("1"), "--drain-strategies", "--drain-strategies-timeout=45m", "--expected-drain-time=8m", "--pdb-force-drain-timeout=60m", "--drain-ignored-namespace-pattern=clo.*")
		}, ForecastOptions{}),
		Entry("an empty node", "empty", func() *observed.Snapshot {
			s := shop()
			s.Shoot.Pods = nil
			return s
		}, ForecastOptions{}),
	)

	It("should count from where the controller does: the failure, where the taint says that it was before", func() {
		s := withSeed(shop(NotReady, Taint(v1alpha1.TaintPreserved, now.Add(-100*time.Hour))), Share("1"))
		m := s.Seed.Machine("m")
		Preserved(preservation.PhaseFailedPreserved, v1alpha1.CauseAuto, now.Add(time.Hour))(m)
		m.Annotations[v1alpha1.AnnotationFailedSince] = now.Add(-40 * time.Minute).UTC().Format(time.RFC3339)
		forecast, err := DrainForecastOf(s, "m", ForecastOptions{}, now)
		Expect(err).NotTo(HaveOccurred())
		Expect(forecast.Drains[0].Title).To(ContainSubstring("The drain began 30m ago"))
	})

	It("should count from the condition where the taint has no time", func() {
		s := shop(NotReady, Condition(v1alpha1.ConditionPreserved, corev1.ConditionTrue, "Draining", ""), Taint(v1alpha1.TaintPreserved, now))
		node := &s.Shoot.Nodes[0]
		node.Spec.Taints[0].TimeAdded = nil
		preservation.PreservedCondition(node).LastTransitionTime = metav1.NewTime(now.Add(-20 * time.Minute))
		forecast, err := DrainForecastOf(s, "m", ForecastOptions{}, now)
		Expect(err).NotTo(HaveOccurred())
		Expect(forecast.Drains[0].Title).To(ContainSubstring("The drain began 20m ago"))
	})

	It("M12, X10: should say that nothing is drained while somebody works on the node", func() {
		note := ContainElement(ContainSubstring("The node is not drained now"))
		for _, works := range []NodeOption{NodeAnnotation(v1alpha1.AnnotationMaintenance, "2026-03-01T12:00:00Z"), Condition(v1alpha1.ConditionPowerCycle, corev1.ConditionTrue, "PoweringOff", "")} {
			kept := Condition(v1alpha1.ConditionPreserved, corev1.ConditionTrue, "Preserved", "Machine preserved until 2026-03-09T12:00:00Z.")
			forecast, err := DrainForecastOf(shop(kept, works), "m", ForecastOptions{}, now)
			Expect(err).NotTo(HaveOccurred())
			Expect(forecast.Notes).To(note)
			forecast, err = DrainForecastOf(shop(kept), "m", ForecastOptions{}, now)
			Expect(err).NotTo(HaveOccurred())
			Expect(forecast.Notes).NotTo(note)
		}
	})

	It("should print nothing that a terminal obeys", func() {
		f := &Forecast{Notes: []string{"\x1b[31m"}, Drains: []DrainForecast{{Title: "\x1b[31m", End: "\x1b[31m", Steps: []ForecastStep{{Pod: "\x1b[31m", Action: "\x1b[31m", Outcome: "\x1b[31m"}}}}}
		Expect(f.String()).NotTo(ContainSubstring("\x1b"))
	})

	It("should know that what is known of pods and budgets is not all", func() {
		s := shop()
		s.Missing = []observed.Missing{{Thing: observed.WhatPods, Partial: true, Reason: "too many"}, {Thing: observed.WhatBudgets, Partial: true, Reason: "too many"}}
		s.Shoot.PodDisruptionBudgets = nil
		forecast, err := DrainForecastOf(s, "m", ForecastOptions{}, now)
		Expect(err).NotTo(HaveOccurred())
		Expect(forecast.Notes).To(ContainElement("The other pods of the node are not known and not listed: too many."))
		Expect(forecast.Drains[0].Steps).To(ContainElement(And(HaveField("Pod", "shop/strict"), HaveField("Obstacles", ContainElement(ContainSubstring("too many"))))))
	})

	It("should not find a node that does not exist", func() {
		s := shop()
		_, err := DrainForecastOf(s, "x", ForecastOptions{}, now)
		Expect(err).To(MatchError(`node "x" does not exist`))
		s.Missing = []observed.Missing{{Thing: observed.WhatNode, Reason: "there is no place"}}
		_, err = DrainForecastOf(s, "x", ForecastOptions{}, now)
		Expect(err).To(MatchError(`node "x" is not known: there is no place`))
	})
})
