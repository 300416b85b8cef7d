// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drainer_test

import (
	"errors"
	"fmt"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/drain"
	. "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/drainer"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// budget is the answer of the API server to an eviction that a PodDisruptionBudget does not allow.
func budget(message string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 10)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: message})
	return err
}

var _ = Describe("Step", func() {
	var (
		start       = builder.Start
		reachable   = builder.Node("n")
		unreachable = builder.Node("n", builder.Condition("Ready", corev1.ConditionUnknown, "NodeStatusUnknown", ""))
		daemonSet   = &appsv1.DaemonSet{ObjectMeta: metav1.ObjectMeta{Name: "ds", Namespace: "default"}}
		claim       = volume(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}})
		ephemeral   = volume(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}})
		emptyDir    = volume(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})
	)

	// step takes a step of a drain with a timeout of two hours that began age ago.
	step := func(ctx SpecContext, s *shoot, node *corev1.Node, age time.Duration) (Progress, error) {
		return (&Drainer{Client: s}).Step(ctx, node, Options{Since: start, Timeout: 2 * time.Hour}, start.Add(age))
	}
	// stepWithForce is a step that also forces pods with volumes.
	stepWithForce := func(ctx SpecContext, s *shoot, node *corev1.Node, age time.Duration) (Progress, error) {
		return (&Drainer{Client: s}).Step(ctx, node, Options{Since: start, Timeout: 2 * time.Hour, ForceVolumes: true}, start.Add(age))
	}

	DescribeTable("P7: which pods are evicted", func(ctx SpecContext, pod *corev1.Pod, evicted bool) {
		s := newShoot(pod, daemonSet)
		progress, err := step(ctx, s, reachable, 0)
		Expect(err).NotTo(HaveOccurred())
		if !evicted {
			Expect(s.evicted).To(BeEmpty())
			Expect(s.deleted).To(BeEmpty())
			Expect(progress).To(Equal(Progress{Done: true}))
			return
		}
		Expect(s.evicted).To(ConsistOf(pod.Name))
		Expect(s.deleted).To(BeEmpty())
		Expect(s.options).To(ConsistOf(HaveField("GracePeriodSeconds", BeNil())), "the pod's own grace period holds")
		Expect(progress).To(Equal(Progress{Evicted: 1, Next: time.Second}))
	},
		Entry("a pod of a ReplicaSet", pod("p"), true),
		Entry("a pod that nothing replaces", pod("p", orphan), true),
		Entry("a pod with an emptyDir", pod("p", emptyDir), true),
		Entry("a pod with a volume", pod("p", claim), true),
		Entry("a pod that has ended", pod("p", func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }), true),
		Entry("a pod of a DaemonSet that is gone", pod("p", ownedBy("DaemonSet", "gone")), true),
		Entry("not one of a DaemonSet", pod("p", ownedBy("DaemonSet", "ds")), false),
		Entry("not one of a DaemonSet with an emptyDir", pod("p", ownedBy("DaemonSet", "ds"), emptyDir), false),
		Entry("not a mirror pod", pod("p", mirror), false),
		Entry("not a pod of another node", pod("p", onNode("other")), false),
	)

	DescribeTable("P7: which pods are deleted by force after the timeout", func(ctx SpecContext, pod *corev1.Pod, node *corev1.Node, want Progress) {
		s := newShoot(pod, daemonSet)
		progress, err := step(ctx, s, node, 2*time.Hour)
		Expect(err).NotTo(HaveOccurred())
		progress.Next = 0
		Expect(progress).To(Equal(want))
		Expect(s.evicted).To(BeEmpty())
		if want.Forced == 0 {
			Expect(s.deleted).To(BeEmpty())
			return
		}
		Expect(s.deleted).To(ConsistOf("p"))
		Expect(s.options).To(ConsistOf(HaveField("GracePeriodSeconds", HaveValue(BeZero()))))
	},
		Entry("a pod", pod("p"), reachable, Progress{Forced: 1}),
		Entry("a pod that waits for its grace period", pod("p", terminating), reachable, Progress{Forced: 1}),
		Entry("a pod with a volume, on a node that answers", pod("p", claim), reachable, Progress{Forced: 1}),
		Entry("a pod, on a node that does not answer", pod("p"), unreachable, Progress{Forced: 1}),
		Entry("a pod with an emptyDir, on a node that does not answer", pod("p", emptyDir), unreachable, Progress{Forced: 1}),
		Entry("not one with a volume, on a node that does not answer", pod("p", claim), unreachable, Progress{Kept: 1}),
		Entry("not one with an ephemeral volume, on a node that does not answer", pod("p", ephemeral), unreachable, Progress{Kept: 1}),
		Entry("not one with a volume that terminates, on a node that does not answer", pod("p", claim, terminating), unreachable, Progress{Kept: 1}),
		Entry("not one with a volume, on a node that tells nothing", pod("p", claim), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}}, Progress{Kept: 1}),
		Entry("not one of a DaemonSet", pod("p", ownedBy("DaemonSet", "ds")), reachable, Progress{Done: true}),
		Entry("not a mirror pod", pod("p", mirror), reachable, Progress{Done: true}),
	)

	DescribeTable("P7: pods with volumes after the timeout where these may be deleted by force", func(ctx SpecContext, pod *corev1.Pod, node *corev1.Node, want Progress) {
		s := newShoot(pod, daemonSet)
		progress, err := stepWithForce(ctx, s, node, 2*time.Hour)
		Expect(err).NotTo(HaveOccurred())
		Expect(progress).To(Equal(want))
		Expect(s.evicted).To(BeEmpty())
		if want.Forced == 0 {
			Expect(s.deleted).To(BeEmpty())
			return
		}
		Expect(s.deleted).To(ConsistOf("p"))
		Expect(s.options).To(ConsistOf(HaveField("GracePeriodSeconds", HaveValue(BeZero()))))
		Expect(stepWithForce(ctx, newShoot(), node, 2*time.Hour+progress.Next)).To(Equal(Progress{Done: true}))
	},
		Entry("a pod with a volume, on a node that does not answer", pod("p", claim), unreachable, Progress{Forced: 1, ForcedWithVolumes: 1, Next: 15 * time.Second}),
		Entry("one with an ephemeral volume", pod("p", ephemeral), unreachable, Progress{Forced: 1, ForcedWithVolumes: 1, Next: 15 * time.Second}),
		Entry("one that terminates", pod("p", claim, terminating), unreachable, Progress{Forced: 1, ForcedWithVolumes: 1, Next: 15 * time.Second}),
		Entry("one with an emptyDir, which is no risk", pod("p", emptyDir), unreachable, Progress{Forced: 1, Next: 15 * time.Second}),
		Entry("one with a volume, on a node that answers, which is no risk", pod("p", claim), reachable, Progress{Forced: 1, Next: 15 * time.Second}),
		Entry("not one of a DaemonSet", pod("p", claim, ownedBy("DaemonSet", "ds")), unreachable, Progress{Done: true}),
	)

	DescribeTable("P7: should not delete by force before the timeout even where that is allowed for pods with volumes", func(ctx SpecContext, p *corev1.Pod, want Progress) {
		s := newShoot(p)
		progress, err := stepWithForce(ctx, s, unreachable, 2*time.Hour-time.Nanosecond)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.deleted).To(BeEmpty())
		want.Next = time.Nanosecond
		Expect(progress).To(Equal(want))
	},
		Entry("a pod", pod("p", claim), Progress{Evicted: 1}),
		Entry("one that terminates", pod("p", claim, terminating), Progress{Waiting: 1}),
	)

	It("P7: should not delete by force a nanosecond before the timeout", func(ctx SpecContext) {
		s := newShoot(pod("p"))
		progress, err := step(ctx, s, reachable, 2*time.Hour-time.Nanosecond)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.deleted).To(BeEmpty())
		Expect(progress.Next).To(Equal(time.Nanosecond))
	})

	It("P7: should wait for pods that were evicted, and not evict them again", func(ctx SpecContext) {
		s := newShoot(pod("going", terminating), pod("staying"))
		progress, err := step(ctx, s, reachable, time.Minute)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.evicted).To(ConsistOf("staying"))
		Expect(progress).To(Equal(Progress{Evicted: 1, Waiting: 1, Next: 15 * time.Second}))
	})

	It("P7: should name the PodDisruptionBudgets that hold evictions up, each once, and go on with the others", func(ctx SpecContext) {
		s := newShoot(pod("a"), pod("b"), pod("c"), pod("free"), pod("d", inNamespace("other")))
		s.refuse["a"], s.refuse["b"], s.refuse["c"] = budget("The disruption budget web needs 2 healthy pods and has 2 currently"), budget("The disruption budget web needs 2 healthy pods and has 2 currently"), budget("The disruption budget db needs 1 healthy pods and has 1 currently")
		s.refuse["d"] = budget("The disruption budget web needs 2 healthy pods and has 2 currently")
		progress, err := step(ctx, s, reachable, time.Minute)
		Expect(err).NotTo(HaveOccurred())
		Expect(progress.Evicted).To(Equal(1))
		Expect(progress.BlockedBy).To(ConsistOf(
			"namespace default: The disruption budget web needs 2 healthy pods and has 2 currently",
			"namespace default: The disruption budget db needs 1 healthy pods and has 1 currently",
			"namespace other: The disruption budget web needs 2 healthy pods and has 2 currently",
		))
		Expect(progress.Done).To(BeFalse())
		Expect(s.deleted).To(BeEmpty())
	})

	It("P7: should be blocked, and not fail, when the API server throttles evictions", func(ctx SpecContext) {
		s := newShoot(pod("p"))
		s.refuse["p"] = apierrors.NewTooManyRequests("slow down", 1)
		progress, err := step(ctx, s, reachable, time.Minute)
		Expect(err).NotTo(HaveOccurred())
		Expect(progress.BlockedBy).To(ConsistOf("namespace default: slow down"))
	})

	It("P7: should name what a webhook says that denies evictions", func(ctx SpecContext) {
		s := newShoot(pod("a"), pod("b"))
		s.refuse["a"] = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "a", errors.New("admission webhook denied the request: no"))
		progress, err := step(ctx, s, reachable, time.Minute)
		Expect(err).NotTo(HaveOccurred())
		Expect(progress.Incomplete).To(HaveOccurred())
		Expect(progress.Evicted).To(Equal(1))
		Expect(progress.BlockedBy).To(ConsistOf(`namespace default: pods "a" is forbidden: admission webhook denied the request: no`))
	})

	It("should go on with the other pods when one fails, and say which", func(ctx SpecContext) {
		s := newShoot(pod("a"), pod("b"))
		s.refuse["a"] = errors.New("no connection")
		progress, err := step(ctx, s, reachable, time.Minute)
		Expect(err).NotTo(HaveOccurred())
		Expect(progress.Incomplete).To(MatchError(ContainSubstring("failed to remove pod default/a: no connection")))
		Expect(progress.Evicted).To(Equal(1))
		Expect(progress.Done).To(BeFalse())
		Expect(progress.Next).To(BeNumerically(">=", time.Second))
	})

	It("should take a pod that is gone for one that is evicted", func(ctx SpecContext) {
		s := newShoot(pod("a"))
		s.refuse["a"] = apierrors.NewNotFound(schema.GroupResource{Resource: "pods"}, "a")
		_, err := step(ctx, s, reachable, 0)
		Expect(err).NotTo(HaveOccurred())
	})

	It("should not be done when the pods cannot be listed", func(ctx SpecContext) {
		s := newShoot()
		s.listing = errors.New("no connection")
		progress, err := step(ctx, s, reachable, 0)
		Expect(err).To(MatchError(ContainSubstring("failed to list the pods of node n")))
		Expect(progress).To(Equal(Progress{}))
	})

	It("should be done when nothing is left", func(ctx SpecContext) {
		Expect(step(ctx, newShoot(), reachable, time.Hour)).To(Equal(Progress{Done: true}))
	})

	It("P7: should do nothing but list when nothing can be done", func(ctx SpecContext) {
		s := newShoot(pod("p", terminating))
		_, err := step(ctx, s, unreachable, time.Minute)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.calls).To(ConsistOf("GET"))
	})

	DescribeTable("P7: when to take the next step", func(ctx SpecContext, pod *corev1.Pod, node *corev1.Node, age, want time.Duration) {
		s := newShoot(pod)
		s.refuse["blocked"] = budget("web")
		progress, err := step(ctx, s, node, age)
		Expect(err).NotTo(HaveOccurred())
		Expect(progress.Next).To(Equal(want))
	},
		Entry("soon at first", pod("p"), reachable, time.Duration(0), time.Second),
		Entry("then later", pod("p"), reachable, 40*time.Second, 10*time.Second),
		Entry("at most after 15s", pod("p"), reachable, time.Hour, 15*time.Second),
		Entry("as fast when blocked", pod("blocked"), reachable, time.Hour, 15*time.Second),
		Entry("as fast when pods terminate", pod("p", terminating), reachable, time.Hour, 15*time.Second),
		Entry("rarely when nothing happens as the kubelet is dead", pod("p", terminating), unreachable, time.Hour, time.Minute),
		Entry("not rarely while something is evicted there", pod("p"), unreachable, time.Hour, 15*time.Second),
		Entry("not rarely while something is blocked there", pod("blocked"), unreachable, time.Hour, 15*time.Second),
		Entry("at the timeout", pod("p"), reachable, 2*time.Hour-5*time.Second, 5*time.Second),
		Entry("at the timeout when nothing happens", pod("p", terminating), unreachable, 2*time.Hour-5*time.Second, 5*time.Second),
		Entry("after the timeout", pod("p"), reachable, 3*time.Hour, 15*time.Second),
	)

	It("P7: should never wait beyond the timeout, nor spin, whatever the age", func(ctx SpecContext) {
		for age := time.Duration(0); age < 2*time.Hour; age += 97 * time.Second {
			for _, node := range []*corev1.Node{reachable, unreachable} {
				progress, err := step(ctx, newShoot(pod("p", terminating)), node, age)
				Expect(err).NotTo(HaveOccurred())
				Expect(progress.Next).To(And(BeNumerically(">", 0), BeNumerically("<=", 2*time.Hour-age)))
			}
		}
	})

	DescribeTable("P7: should not remove a pod of the same name that has started elsewhere in the meantime", func(ctx SpecContext, age time.Duration) {
		s := newShoot(pod("web-0", ownedBy("StatefulSet", "web"), func(p *corev1.Pod) { p.UID = "old" }))
		_, err := step(ctx, s, reachable, age)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.options).To(ConsistOf(HaveField("Preconditions", HaveValue(HaveField("UID", HaveValue(BeEquivalentTo("old")))))))
	},
		Entry("when it is evicted", time.Minute),
		Entry("when it is deleted by force", 3*time.Hour),
	)

	It("P7: should list pods in pages, and deal with all of them", func(ctx SpecContext) {
		s := newShoot(daemonSet, pod("p-000-mirror", mirror), pod("p-060-ds", ownedBy("DaemonSet", "ds")))
		s.add("n", nil, names("p", 170)...)
		s.add("n", budget("web"), "p-120-blocked")
		progress, err := step(ctx, s, reachable, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(s.evicted).To(ConsistOf(append(names("p", 170), "p-120-blocked")))
		Expect(progress).To(Equal(Progress{Evicted: 170, BlockedBy: []string{"namespace default: web"}, Next: time.Second}))
		Expect(s.biggest).To(BeNumerically("<=", 50))
	})

	It("P7: should go on after a page that cannot be listed", func(ctx SpecContext) {
		s := newShoot()
		s.add("n", nil, names("p", 70)...)
		s.failPage = 2
		d := &Drainer{Client: s}
		progress, err := d.Step(ctx, reachable, Options{Timeout: time.Hour}, time.Time{})
		Expect(err).NotTo(HaveOccurred())
		Expect(progress.Incomplete).To(MatchError("failed to list the pods of node n: no connection"))
		progress.Incomplete = nil
		Expect(progress).To(Equal(Progress{Evicted: 50, Partial: true, Next: time.Second}))
		s.evicted, s.listing = nil, errors.New("no connection")
		_, err = d.Step(ctx, reachable, Options{Timeout: time.Hour}, time.Time{})
		Expect(err).To(HaveOccurred())
		s.listing, s.calls = nil, nil
		progress, err = d.Step(ctx, reachable, Options{Timeout: time.Hour}, time.Time{})
		Expect(err).NotTo(HaveOccurred())
		Expect(s.evicted).To(ConsistOf(names("p", 70)[50:]))
		Expect(s.calls).To(HaveLen(21), "the first page is not listed once more")
		Expect(progress.Done).To(BeFalse())
	})

	It("P7: should begin anew when a page can never be listed", func(ctx SpecContext) {
		s := newShoot()
		s.add("n", nil, names("p", 70)...)
		s.failPage = 2
		d := &Drainer{Client: s}
		step := func() error {
			s.evicted = nil
			_, err := d.Step(ctx, reachable, Options{Timeout: time.Hour}, time.Time{})
			return err
		}
		Expect(step()).To(Succeed())
		s.listing = errors.New("too large")
		for range 3 {
			Expect(step()).NotTo(Succeed())
		}
		s.listing, s.failPage = nil, 2
		Expect(step()).To(Succeed())
		Expect(s.evicted).To(ConsistOf(names("p", 50)), "the pods of the first page have their turn again")
	})

	It("P7: should not be done with the last pods before it has looked at the first again", func(ctx SpecContext) {
		s := newShoot()
		for _, name := range names("p", 60) {
			s.pods = append(s.pods, pod(name, claim))
		}
		s.failPage = 2
		d := &Drainer{Client: s}
		step := func() Progress {
			progress, err := d.Step(ctx, unreachable, Options{}, time.Time{})
			Expect(err).NotTo(HaveOccurred())
			progress.Incomplete = nil
			return progress
		}
		Expect(step()).To(Equal(Progress{Kept: 50, Partial: true, Next: time.Second}))
		Expect(step()).To(Equal(Progress{Kept: 10, Partial: true, Next: 15 * time.Second}))
		Expect(step()).To(Equal(Progress{Kept: 60, Next: 5 * time.Minute}))

		s.failPage = 2
		Expect(step()).To(Equal(Progress{Kept: 50, Partial: true, Next: time.Second}))
		s.pods = s.pods[:50]
		Expect(step()).To(Equal(Progress{Partial: true, Next: 15 * time.Second}))
	})

	It("P7: should look at a node on which all that is left is kept again, and deal with these pods when they may go", func(ctx SpecContext) {
		s := newShoot(pod("a", claim), pod("b", ephemeral))
		progress, err := step(ctx, s, unreachable, 3*time.Hour)
		Expect(err).NotTo(HaveOccurred())
		Expect(progress).To(Equal(Progress{Kept: 2, Next: 5 * time.Minute}))
		Expect(progress.OnlyKept()).To(BeTrue())

		progress, err = step(ctx, s, reachable, 3*time.Hour)
		Expect(err).NotTo(HaveOccurred())
		Expect(progress.Forced).To(Equal(2))
		progress, err = stepWithForce(ctx, s, unreachable, 3*time.Hour)
		Expect(err).NotTo(HaveOccurred())
		Expect(progress.Forced).To(Equal(2))
	})

	DescribeTable("P7: what is more than kept", func(p Progress) {
		p.Kept = 1
		Expect(p.OnlyKept()).To(BeFalse())
	},
		Entry("evicted", Progress{Evicted: 1}),
		Entry("terminating", Progress{Waiting: 1}),
		Entry("forced", Progress{Forced: 1}),
		Entry("blocked", Progress{BlockedBy: []string{"web"}}),
		Entry("not looked at", Progress{Partial: true}),
	)

	It("P11: should pass on a little of what budgets and webhooks say, and name each once", func(ctx SpecContext) {
		s := newShoot()
		for i, name := range names("p", 130) {
			s.add("n", budget(fmt.Sprintf("web\x1b[31m\n%03d ", i/2*2)+strings.Repeat("ä", 2000)), name)
		}
		s.add("n", apierrors.NewForbidden(schema.GroupResource{}, "", errors.New(strings.Repeat("x", 2000))), names("q", 100)...)
		progress, err := step(ctx, s, reachable, 0)
		Expect(err).NotTo(HaveOccurred())
		Expect(progress.Incomplete).To(MatchError(ContainSubstring("and 95 more")))
		Expect(len(progress.Incomplete.Error())).To(BeNumerically("<", 2048))
		Expect(progress.BlockedBy).To(HaveLen(66))
		Expect(progress.BlockedBy[0]).To(HavePrefix("namespace default: forbidden: xxx"))
		Expect(progress.BlockedBy[1]).To(Equal("namespace default: web[31m 000 " + strings.Repeat("ä", 116)))
		Expect(len(progress.String())).To(BeNumerically("<", 2048))
	})

	It("P7: should drain many nodes with many pods at the same time without waiting", func(ctx SpecContext) {
		var objects []runtime.Object
		for i := range 100 {
			objects = append(objects, pod(fmt.Sprintf("p%d", i), onNode(fmt.Sprintf("n%d", i%10))))
		}
		s := newShoot(objects...)
		for i := range 10 {
			progress, err := step(ctx, s, builder.Node(fmt.Sprintf("n%d", i)), 0)
			Expect(err).NotTo(HaveOccurred())
			Expect(progress.Evicted).To(Equal(10))
		}
		Expect(s.evicted).To(HaveLen(100))
	})
})
