// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gardener/gardener/pkg/provider-local/controller/infrastructure"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/kwok"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed/node"
)

// reconciler brings one machine to the state that its Pod asks for.
type reconciler struct {
	seed           client.Client
	shoot          client.Client
	recorder       events.EventRecorder
	kubeletVersion string
	kubelets       *kubelets
	clock          clock.PassiveClock
}

func (r *reconciler) now() metav1.Time { return metav1.NewTime(r.clock.Now()) }

// Reconcile implements reconcile.Reconciler.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := r.seed.Get(ctx, request.NamespacedName, pod); err != nil {
		if apierrors.IsNotFound(err) {
			r.kubelets.forget(request.Name)
			return reconcile.Result{}, r.killKubelet(ctx, request.Name)
		}
		return reconcile.Result{}, fmt.Errorf("could not read the pod: %w", err)
	}
	if pod.DeletionTimestamp != nil {
		return reconcile.Result{}, r.remove(ctx, pod)
	}
	if pod.Spec.NodeName == "" {
		if err := r.schedule(ctx, pod); err != nil {
			return reconcile.Result{}, err
		}
		// No event is waited for: the driver looks whether the pod runs within milliseconds, then after seconds only.
		return reconcile.Result{}, r.writeStatus(ctx, pod, false)
	}
	if pod.Status.Phase != corev1.PodRunning {
		return reconcile.Result{}, r.writeStatus(ctx, pod, false)
	}

	power, err := PowerOf(pod)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(err)
	}
	if boots := power.boots(r.clock.Now()); !power.On || boots > 0 {
		if err := r.killKubelet(ctx, pod.Name); err != nil {
			return reconcile.Result{}, err
		}
		again, err := r.silence(ctx, pod.Name)
		return reconcile.Result{RequeueAfter: cmp.Or(boots, again)}, err
	}
	failure, err := parseFailure(pod.Annotations)
	if err != nil {
		r.recorder.Eventf(pod, nil, corev1.EventTypeWarning, "UnknownFailure", "Fail", "%v", err)
		return reconcile.Result{}, nil
	}
	if !hasJoined(pod) {
		if !failure.joins() {
			return reconcile.Result{}, nil
		}
		return reconcile.Result{}, r.join(ctx, pod, failure, power.BootID)
	}
	if failure == NeverJoins {
		r.recorder.Eventf(pod, nil, corev1.EventTypeWarning, "FailureTooLate", "Fail", "The machine has joined, %s has no effect", NeverJoins)
		return reconcile.Result{}, nil
	}
	if err := r.affectNode(ctx, pod.Name, failure, power.BootID); err != nil || failure.joins() {
		return reconcile.Result{}, err
	}
	again, err := r.silence(ctx, pod.Name)
	return reconcile.Result{RequeueAfter: again}, err
}

// schedule gives the Pod the default failure, and the only node of the seed.
func (r *reconciler) schedule(ctx context.Context, pod *corev1.Pod) error {
	namespace := &corev1.Namespace{}
	if err := r.seed.Get(ctx, client.ObjectKey{Name: controlPlaneNamespace(pod)}, namespace); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("could not read the control-plane namespace: %w", err)
	}
	if failure := namespace.Annotations[FailureAnnotation]; failure != "" && pod.Annotations[FailureAnnotation] == "" {
		before := pod.DeepCopy()
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, FailureAnnotation, failure)
		if err := r.seed.Patch(ctx, pod, client.MergeFrom(before)); err != nil {
			return fmt.Errorf("could not annotate the pod: %w", err)
		}
	}
	binding := &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: node.Name}}
	if err := r.seed.SubResource("binding").Create(ctx, pod, binding); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("could not bind the pod: %w", err)
	}
	return nil
}

func controlPlaneNamespace(pod client.Object) string {
	return strings.TrimPrefix(pod.GetNamespace(), infrastructure.NamespaceName(""))
}

// remove takes the Pod away, and what the garbage collector would take away after it. The node is no longer served
// before: what has gone cannot report anything.
func (r *reconciler) remove(ctx context.Context, pod *corev1.Pod) error {
	if err := r.killKubelet(ctx, pod.Name); err != nil {
		return err
	}
	for _, dependent := range []client.Object{
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name + "-userdata"}},
		&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name}},
	} {
		if err := r.seed.Delete(ctx, dependent); client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("could not delete %s: %w", dependent.GetName(), err)
		}
	}
	if err := r.seed.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("could not delete the pod: %w", err)
	}
	return nil
}

// join registers the Node, if machine-controller-manager is ready for it, and marks the Pod ready.
func (r *reconciler) join(ctx context.Context, pod *corev1.Pod, failure Failure, bootID string) error {
	machine := &machinev1alpha1.Machine{}
	if err := r.seed.Get(ctx, client.ObjectKey{Namespace: controlPlaneNamespace(pod), Name: pod.Labels[labelMachine]}, machine); err != nil {
		return client.IgnoreNotFound(err)
	}
	if !isNodeAssigned(machine) {
		return nil
	}
	class := &machinev1alpha1.MachineClass{}
	if err := r.seed.Get(ctx, client.ObjectKey{Namespace: machine.Namespace, Name: machine.Spec.Class.Name}, class); err != nil {
		return fmt.Errorf("could not read the machine class: %w", err)
	}
	port, err := r.kubelets.start(pod.Name, bootID, r.clock.Now())
	if err != nil {
		return err
	}
	if err := r.shoot.Create(ctx, newNode(pod, machine, class, failure, bootID, r.kubeletVersion, port)); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("could not register the node: %w", err)
	}
	return r.writeStatus(ctx, pod, true)
}

// killKubelet ends all that the Node does by itself, if there is one.
func (r *reconciler) killKubelet(ctx context.Context, name string) error {
	return r.affectNode(ctx, name, KubeletDead, "")
}

// silence looks whether kwok still reports for the Node of a kubelet that does not run, and returns when to look again. kwok 0.8.0 does so for
// ever if the Node left its selector while kwok could not watch Nodes. So it sees the Node once more, as one that it is to report for.
func (r *reconciler) silence(ctx context.Context, name string) (time.Duration, error) {
	lease := &coordinationv1.Lease{}
	if err := r.shoot.Get(ctx, client.ObjectKey{Namespace: corev1.NamespaceNodeLease, Name: name}, lease); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("could not read the lease of the node: %w", err)
	}
	if !r.kubelets.reported(name, ptr.Deref(lease.Spec.RenewTime, metav1.MicroTime{}).Time, r.clock.Now()) {
		return 2 * silentTime, nil
	}
	served := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, kwok.LabelKubelet, kwok.KubeletAlive)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := r.shoot.Patch(ctx, node, client.RawPatch(types.MergePatchType, served)); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("could not mark the node: %w", err)
	}
	return time.Second, nil
}

// affectNode makes the failure take effect on the Node, if there is one. A kubelet that lives reports the boot id, and its port.
func (r *reconciler) affectNode(ctx context.Context, name string, failure Failure, bootID string) error {
	if !failure.joins() {
		r.kubelets.stop(name)
	}
	node := &corev1.Node{}
	if err := r.shoot.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("could not read the node: %w", err)
	}
	if failure.joins() {
		port, err := r.kubelets.start(name, bootID, r.clock.Now())
		if err != nil {
			return err
		}
		if err := r.startKubelet(ctx, node, bootID, port); err != nil {
			return err
		}
	}
	before := node.DeepCopy()
	failure.affect(node)
	if maps.Equal(node.Labels, before.Labels) && maps.Equal(node.Annotations, before.Annotations) {
		return nil
	}
	if err := r.shoot.Patch(ctx, node, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("could not mark the node: %w", err)
	}
	return nil
}

func hasJoined(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(condition corev1.PodCondition) bool {
		return condition.Type == corev1.PodReady && condition.Status == corev1.ConditionTrue
	})
}

func (r *reconciler) writeStatus(ctx context.Context, pod *corev1.Pod, joined bool) error {
	before := pod.DeepCopy()
	pod.Status = podStatus(pod, joined)
	if err := r.seed.Status().Patch(ctx, pod, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("could not write the status of the pod: %w", err)
	}
	return nil
}
