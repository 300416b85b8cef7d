// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package injection_test

import (
	"fmt"
	"slices"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/component/machinecontrollermanager"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/controller/injection"
)

var _ = Describe("#Decide", func() {
	var now = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)

	many := func(count int, rollout Rollout) []Rollout {
		rollouts := make([]Rollout, 0, count)
		for i := range count {
			rollout.Namespace = fmt.Sprintf("shoot-%03d", i)
			rollouts = append(rollouts, rollout)
		}
		return rollouts
	}
	outdated := func(count int) []Rollout {
		return many(count, Rollout{Difference: Difference{Kind: Outdated}, Complete: true})
	}
	missing := func(count int) []Rollout {
		return many(count, Rollout{Difference: Difference{Kind: Missing}, Complete: true})
	}
	in := func(sidecar Sidecar) func(int, time.Duration) []Rollout {
		return func(count int, ago time.Duration) []Rollout {
			return many(count, Rollout{Sidecar: sidecar, Since: now.Add(-ago)})
		}
	}
	ready, notReady, unknown := in(SidecarReady), in(SidecarNotReady), in(SidecarUnknown)

	DescribeTable("should replace in waves, and halt",
		func(replaced int, halted bool, rollouts ...[]Rollout) {
			config := &configv1alpha1.ControllerConfiguration{}
			configv1alpha1.SetObjectDefaults_ControllerConfiguration(config)
			decision := Decide(slices.Concat(rollouts...), config, now)
			Expect(decision.Replace).To(HaveLen(replaced))
			Expect(decision.Halted).To(Equal(halted))
		},
		Entry("nothing", 0, false),
		Entry("nothing is outdated", 0, false, ready(50, time.Hour)),
		Entry("nothing is outdated, and much has failed", 0, false, notReady(50, time.Hour)),

		Entry("the first", 1, false, outdated(50)),
		Entry("the first is under way", 0, false, notReady(1, 5*time.Minute-time.Second), outdated(49)),
		Entry("the first is ready", 0, false, ready(1, 5*time.Minute-time.Second), outdated(49)),
		Entry("the first has failed", 0, true, notReady(1, 5*time.Minute), outdated(49)),
		Entry("the first has failed for longer than is known", 0, true, many(1, Rollout{Sidecar: SidecarNotReady}), outdated(49)),
		Entry("gardenlet was faster with a few", 0, false, notReady(3, time.Minute), outdated(47)),

		Entry("nothing is known about the first", 0, false, unknown(1, 5*time.Minute-time.Second), outdated(49)),
		Entry("nothing is known about the first for long, and so nothing is proved", 0, true, unknown(1, 5*time.Minute), outdated(49)),
		Entry("nothing is known about several for long", 0, true, unknown(9, time.Hour), outdated(41)),
		Entry("nothing is known about one for long, and another has proved itself", 5, false, unknown(1, time.Hour), ready(1, 5*time.Minute), outdated(41)),

		Entry("the first has proved itself", 5, false, ready(1, 5*time.Minute), outdated(49)),
		Entry("the second wave is under way", 0, false, ready(1, time.Hour), notReady(5, time.Minute), outdated(44)),
		Entry("the second wave is under way, with one that gardenlet has replaced", 1, false, ready(1, time.Hour), notReady(4, time.Minute), outdated(45)),
		Entry("the second wave has not proved itself", 0, false, ready(5, time.Hour), ready(1, time.Second), outdated(44)),
		Entry("one of the second wave has failed", 0, true, ready(5, time.Hour), notReady(1, 5*time.Minute), outdated(44)),

		Entry("the second wave has been ready for a while", 0, false, ready(1, time.Hour), ready(5, 5*time.Minute-time.Second), outdated(44)),
		Entry("the second wave has proved itself", 30, false, ready(6, 5*time.Minute), outdated(44)),
		Entry("some of the third wave have been ready for a minute", 20, false, ready(6, time.Hour), ready(20, time.Minute), ready(10, time.Second), outdated(44)),
		Entry("thirty are under way", 0, false, ready(6, time.Hour), notReady(20, time.Minute), ready(10, time.Second), outdated(44)),
		Entry("some of thirty have proved themselves", 12, false, ready(18, time.Hour), notReady(18, time.Minute), outdated(44)),
		Entry("fewer than thirty are left", 4, false, ready(400, time.Hour), outdated(4)),

		Entry("a tenth of a few has failed", 30, false, ready(18, time.Hour), notReady(2, time.Hour), outdated(44)),
		Entry("more than a tenth of a few has failed", 0, true, ready(17, time.Hour), notReady(2, time.Hour), outdated(44)),
		Entry("three of many have failed", 30, false, ready(400, time.Hour), notReady(3, time.Hour), outdated(44)),
		Entry("four of many have failed", 0, true, ready(400, time.Hour), notReady(4, time.Hour), outdated(44)),
		Entry("of many it is not known why they do not start", 30, false, ready(400, time.Hour), unknown(40, time.Hour), outdated(44)),
		Entry("what is not known does not count as replaced", 0, true, ready(17, time.Hour), unknown(400, time.Hour), notReady(2, time.Hour), outdated(44)),
		Entry("they have recovered", 30, false, ready(400, time.Hour), ready(1, time.Minute), notReady(3, time.Hour), outdated(44)),
		Entry("some are missing", 4, false, missing(4), ready(50, time.Hour)),
		Entry("some are missing while the first is under way", 4, false, missing(4), notReady(1, time.Minute), outdated(45)),
		Entry("many are missing", 30, false, missing(100), ready(50, time.Hour)),
		Entry("many are missing while some are under way", 12, false, missing(100), ready(50, time.Hour), notReady(18, time.Minute)),
		Entry("some are missing, and others are outdated", 30, false, missing(4), ready(50, time.Hour), outdated(45)),
		Entry("many are missing, and others are outdated", 30, false, missing(100), ready(50, time.Hour), outdated(45)),
		Entry("some are missing while the waves are halted", 1, true, missing(4), notReady(1, time.Hour), outdated(45)),
		Entry("some are missing while the waves are halted, and one is under way", 0, true, missing(4), notReady(1, time.Hour), notReady(1, time.Minute), outdated(45)),
		Entry("some are scaled down while the waves are halted", 50, true, many(50, Rollout{Difference: Difference{Kind: Outdated}, ScaledDown: true}), notReady(1, time.Hour), outdated(45)),
		Entry("a newer version has come", 1, false, many(50, Rollout{Difference: Difference{Kind: Broken}})),
	)

	It("should obey the configuration", func() {
		config := &configv1alpha1.ControllerConfiguration{InjectionMaxFailed: new(int32(5)), InjectionMaxFailedPercent: new(int32(100))}
		Expect(Decide(slices.Concat(notReady(5, time.Hour), outdated(9)), config, now).Halted).To(BeFalse())
		Expect(Decide(slices.Concat(notReady(6, time.Hour), outdated(9)), config, now).Halted).To(BeTrue())
		config = &configv1alpha1.ControllerConfiguration{InjectionMaxFailed: new(int32(0)), InjectionMaxFailedPercent: new(int32(100))}
		Expect(Decide(slices.Concat(ready(99, time.Hour), notReady(1, time.Hour), outdated(9)), config, now).Halted).To(BeTrue())
	})

	It("should begin with what nobody runs and the healthy ones, and leave out what is postponed", func() {
		rollouts := []Rollout{
			{Namespace: "a", Difference: Difference{Kind: Outdated}},
			{Namespace: "b", Difference: Difference{Kind: Outdated}, Complete: true, Postponed: time.Second},
			{Namespace: "d", Difference: Difference{Kind: Broken}, Complete: true},
			{Namespace: "c", Difference: Difference{Kind: Outdated}, Complete: true},
			{Namespace: "e", Difference: Difference{Kind: Missing}, Postponed: time.Second},
			{Namespace: "f", Difference: Difference{Kind: Missing}},
			{Namespace: "g", Difference: Difference{Kind: Outdated}, ScaledDown: true},
		}
		decision := Decide(append(rollouts, ready(1, time.Hour)...), &configv1alpha1.ControllerConfiguration{}, now)
		Expect(namespacesOf(decision)).To(Equal([]string{"g", "f", "c", "d", "a"}))
		Expect(decision.Outdated).To(Equal(4))
	})

	It("should choose the same again as long as the caches lag behind", func() {
		rollouts := slices.Concat(ready(1, time.Hour), outdated(49)[:9])
		for i := range rollouts {
			rollouts[i].Namespace = fmt.Sprintf("shoot-%03d", i)
		}
		chosen := namespacesOf(Decide(rollouts, &configv1alpha1.ControllerConfiguration{}, now))
		Expect(chosen).To(HaveLen(5))
		rollouts[1] = Rollout{Namespace: rollouts[1].Namespace, Since: now}
		Expect(namespacesOf(Decide(rollouts, &configv1alpha1.ControllerConfiguration{}, now))).To(Equal(chosen[1:]))
	})

	DescribeTable("should tell when to look again",
		func(after time.Duration, rollouts ...[]Rollout) {
			Expect(Decide(slices.Concat(rollouts...), &configv1alpha1.ControllerConfiguration{}, now).After).To(Equal(after))
		},
		Entry("nothing is outdated", time.Duration(0), ready(3, time.Second), notReady(3, time.Second), unknown(3, time.Second)),
		Entry("all the others have settled", time.Duration(0), ready(3, time.Hour), unknown(3, time.Hour), outdated(1)),
		Entry("one will have proved itself", time.Minute, ready(1, 4*time.Minute), ready(1, 10*time.Second), notReady(1, time.Minute), outdated(9)),
		Entry("one more will have proved itself", 20*time.Second, ready(6, time.Hour), ready(1, 40*time.Second), ready(1, 10*time.Second), notReady(1, time.Minute), outdated(9)),
		Entry("one will have failed", 2*time.Minute, notReady(1, 3*time.Minute), unknown(1, time.Minute), outdated(9)),
		Entry("nothing will be known about one", 2*time.Minute, unknown(1, 3*time.Minute), outdated(9)),
		Entry("many are missing", 20*time.Second, many(100, Rollout{Difference: Difference{Kind: Missing}}), ready(50, time.Hour), ready(30, 40*time.Second)),
		Entry("halted", time.Minute, notReady(1, time.Hour), outdated(9)),
		Entry("postponed", 7*time.Second, many(1, Rollout{Difference: Difference{Kind: Missing}, Postponed: 7 * time.Second}), ready(1, 59*time.Second)),
	)
})

var _ = Describe("#SidecarOf", func() {
	const name = "machine-preservation-controller"

	var (
		now       = time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
		past      = func(ago time.Duration) metav1.Time { return metav1.NewTime(now.Add(-ago)) }
		container = &corev1.Container{Name: name, Image: "registry/sidecar:v1", Args: []string{"--holder=health-timer"}}
		running   = corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: past(time.Minute)}}
		waiting   = func(reason string) corev1.ContainerState {
			return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
		}
	)

	// newPod returns one that is an hour old and got to a node half an hour ago.
	newPod := func(ready bool, state corev1.ContainerState, change ...func(*corev1.Pod)) corev1.Pod {
		pod := corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: past(time.Hour)}}
		pod.Spec.Containers = []corev1.Container{{Name: "machine-controller-manager"}, *container.DeepCopy()}
		pod.Status.StartTime = new(past(30 * time.Minute))
		pod.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "machine-controller-manager"}, {Name: name, Ready: ready, State: state}}
		for _, f := range change {
			f(&pod)
		}
		return pod
	}
	restarted := func(pod *corev1.Pod) {
		status := &pod.Status.ContainerStatuses[1]
		status.RestartCount, status.LastTerminationState.Terminated = 1, &corev1.ContainerStateTerminated{ExitCode: 1}
	}
	newer := func(pod *corev1.Pod) { pod.CreationTimestamp = past(10 * time.Minute) }

	DescribeTable("should tell by our container in the newest pod that has it",
		func(sidecar Sidecar, since time.Time, pods ...corev1.Pod) {
			actual, at := SidecarOf(container, pods, now)
			Expect(actual).To(Equal(sidecar))
			Expect(at).To(Equal(since))
		},
		Entry("ready, whatever the others are", SidecarReady, now.Add(-time.Minute), newPod(true, running)),
		Entry("restarted", SidecarNotReady, now.Add(-30*time.Minute), newPod(true, running, restarted)),
		Entry("restarted long ago", SidecarReady, now.Add(-5*time.Minute), newPod(true, running, restarted, func(pod *corev1.Pod) {
			pod.Status.ContainerStatuses[1].State.Running = &corev1.ContainerStateRunning{StartedAt: past(5 * time.Minute)}
		})),
		Entry("its probe fails", SidecarNotReady, now.Add(-30*time.Minute), newPod(false, running)),
		Entry("crashing", SidecarNotReady, now.Add(-30*time.Minute), newPod(false, waiting("CrashLoopBackOff"))),
		Entry("no image", SidecarNotReady, now.Add(-30*time.Minute), newPod(false, waiting("ImagePullBackOff"))),
		Entry("ended", SidecarNotReady, now.Add(-30*time.Minute), newPod(false, corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{}})),
		Entry("no volume, no network", SidecarUnknown, time.Time{}, newPod(false, waiting("ContainerCreating"))),
		Entry("no node", SidecarUnknown, time.Time{}, newPod(false, running, func(pod *corev1.Pod) { pod.Status = corev1.PodStatus{} })),
		Entry("no pod", SidecarUnknown, time.Time{}),
		Entry("evicted", SidecarUnknown, time.Time{}, newPod(false, running, func(pod *corev1.Pod) { pod.Status.Phase = corev1.PodFailed })),
		Entry("being deleted", SidecarUnknown, time.Time{}, newPod(false, running, func(pod *corev1.Pod) { pod.DeletionTimestamp = new(past(0)) })),

		Entry("a newer one is not ready", SidecarNotReady, now.Add(-30*time.Minute), newPod(true, running), newPod(false, running, newer)),
		Entry("a newer one is ready", SidecarReady, now.Add(-time.Minute), newPod(true, running, newer), newPod(false, running)),
		Entry("a newer one of another version is ready", SidecarNotReady, now.Add(-30*time.Minute), newPod(false, running), newPod(true, running, newer, func(pod *corev1.Pod) {
			pod.Spec.Containers[1].Image = "registry/sidecar:v0"
		})),
		Entry("a newer one with other arguments is ready", SidecarNotReady, now.Add(-30*time.Minute), newPod(false, running), newPod(true, running, newer, func(pod *corev1.Pod) {
			pod.Spec.Containers[1].Args = nil
		})),
		Entry("the image is pulled from elsewhere", SidecarNotReady, now.Add(-30*time.Minute), newPod(false, running, func(pod *corev1.Pod) {
			pod.Spec.Containers[1].Image = "mirror/of/sidecar:v1"
		})),
	)
})

func namespacesOf(decision Decision) []string {
	var namespaces []string
	for _, rollout := range decision.Replace {
		namespaces = append(namespaces, rollout.Namespace)
	}
	return namespaces
}
