// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package drain_test

import (
	"testing"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

func TestDrain(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Drain Suite")
}

// shoot is a fake API server that evicts pods.
type shoot struct {
	*fake.Clientset
	// refuse, by name of a pod, is the answer to its eviction.
	refuse map[string]error
	// evicted and deleted are the names of pods in the order of the calls, and options those of all these calls.
	evicted, deleted []string
	options          []metav1.DeleteOptions
}

func newShoot(objects ...runtime.Object) *shoot {
	s := &shoot{Clientset: fake.NewClientset(objects...), refuse: map[string]error{}}

	// What the fake does not do by itself: field selectors and evictions.
	s.PrependReactor("list", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		list, err := s.Tracker().List(action.GetResource(), corev1.SchemeGroupVersion.WithKind("Pod"), action.GetNamespace())
		if err != nil {
			return true, nil, err
		}
		node, _ := action.(clienttesting.ListAction).GetListRestrictions().Fields.RequiresExactMatch("spec.nodeName")
		selected := &corev1.PodList{}
		for _, pod := range list.(*corev1.PodList).Items {
			if pod.Spec.NodeName == node {
				selected.Items = append(selected.Items, pod)
			}
		}
		return true, selected, nil
	})
	s.PrependReactor("create", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.GetSubresource() != "eviction" {
			return false, nil, nil
		}
		eviction := action.(clienttesting.CreateAction).GetObject().(*policyv1.Eviction)
		s.evicted, s.options = append(s.evicted, eviction.Name), append(s.options, *eviction.DeleteOptions)
		return true, nil, s.refuse[eviction.Name]
	})
	s.PrependReactor("delete", "pods", func(action clienttesting.Action) (bool, runtime.Object, error) {
		deletion := action.(clienttesting.DeleteActionImpl)
		s.deleted, s.options = append(s.deleted, deletion.Name), append(s.options, deletion.DeleteOptions)
		return false, nil, nil
	})
	return s
}

type podOption func(*corev1.Pod)

// pod returns a pod of a ReplicaSet on node "n".
func pod(name string, opts ...podOption) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:            name,
			Namespace:       "default",
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "rs", Controller: new(true)}},
		},
		Spec:   corev1.PodSpec{NodeName: "n"},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, opt := range opts {
		opt(pod)
	}
	return pod
}

func inNamespace(namespace string) podOption { return func(p *corev1.Pod) { p.Namespace = namespace } }

func onNode(node string) podOption { return func(p *corev1.Pod) { p.Spec.NodeName = node } }

func ownedBy(kind, name string) podOption {
	return func(p *corev1.Pod) { p.OwnerReferences[0].Kind, p.OwnerReferences[0].Name = kind, name }
}

func orphan(p *corev1.Pod) { p.OwnerReferences = nil }

func mirror(p *corev1.Pod) {
	p.OwnerReferences = nil
	p.Annotations = map[string]string{"kubernetes.io/config.mirror": "hash"}
}

func terminating(p *corev1.Pod) {
	p.DeletionTimestamp = &metav1.Time{}
	p.Finalizers = []string{"example.com/finalizer"}
}

func volume(source corev1.VolumeSource) podOption {
	return func(p *corev1.Pod) {
		p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "v", VolumeSource: source})
	}
}
