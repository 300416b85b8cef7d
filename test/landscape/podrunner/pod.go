// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package podrunner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed/node"
)

// gracePeriodAtEnd is what containers get when the landscape ends.
const gracePeriodAtEnd = 2 * time.Second

// podReconciler runs the containers of pods and writes the status of the pods.
type podReconciler struct {
	client   client.Client
	recorder events.EventRecorder
	dir      string
	binaries func() map[string]string
	// environment is what all pods have in common.
	environment environment
	// changes tells of pods whose processes have started or ended.
	changes chan event.GenericEvent

	lock    sync.Mutex
	running map[types.NamespacedName]*runningPod
	ended   bool
}

// runningPod is a pod with processes.
type runningPod struct {
	uid        types.UID
	dir        string
	volumes    *volumes
	containers []*container
	started    bool
	stop       func(grace time.Duration)
}

// Reconcile implements reconcile.Reconciler.
func (r *podReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	pod := &corev1.Pod{}
	if err := r.client.Get(ctx, request.NamespacedName, pod); err != nil {
		if apierrors.IsNotFound(err) {
			return reconcile.Result{}, r.end(request.NamespacedName, 0)
		}
		return reconcile.Result{}, fmt.Errorf("could not read the pod: %w", err)
	}

	present := r.get(request.NamespacedName)
	if present != nil && present.uid != pod.UID {
		if err := r.end(request.NamespacedName, 0); err != nil {
			return reconcile.Result{}, err
		}
		present = nil
	}
	if pod.DeletionTimestamp != nil {
		if err := r.end(request.NamespacedName, time.Duration(ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, 30))*time.Second); err != nil {
			return reconcile.Result{}, err
		}
		if err := r.client.Delete(ctx, pod, client.GracePeriodSeconds(0), client.Preconditions{UID: &pod.UID}); client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("could not delete the pod: %w", err)
		}
		return reconcile.Result{}, nil
	}

	if present == nil {
		var err error
		if present, err = r.prepare(ctx, pod); err != nil {
			return reconcile.Result{}, err
		}
	}
	refresh, err := present.volumes.sync(ctx, pod)
	if err != nil {
		// The objects that are missing are watched.
		logf.FromContext(ctx).Info("Volumes of the pod could not be written", "reason", err.Error())
		r.recorder.Eventf(pod, nil, corev1.EventTypeWarning, "FailedMount", "Mount", "%v", err)
		return reconcile.Result{}, r.writeStatus(ctx, pod, nil)
	}
	if !r.start(pod, present) {
		return reconcile.Result{}, nil
	}
	if err := r.writeStatus(ctx, pod, present.containers); err != nil {
		return reconcile.Result{}, err
	}
	if refresh.IsZero() {
		return reconcile.Result{}, nil
	}
	return reconcile.Result{RequeueAfter: max(time.Until(refresh), time.Second)}, nil
}

func (r *podReconciler) get(name types.NamespacedName) *runningPod {
	r.lock.Lock()
	defer r.lock.Unlock()
	return r.running[name]
}

// prepare makes what the pod needs before its volumes are written.
func (r *podReconciler) prepare(ctx context.Context, pod *corev1.Pod) (*runningPod, error) {
	environment := r.environment
	environment.binaries = r.binaries()
	ports, err := freePorts(pod)
	if err != nil {
		return nil, err
	}
	environment.ports = ports
	podDir := filepath.Join(r.dir, "pods", string(pod.UID))
	environment.volumesDir = filepath.Join(podDir, "volumes")

	encoded, err := json.Marshal(ports)
	if err != nil {
		return nil, fmt.Errorf("could not encode the ports: %w", err)
	}
	before := pod.DeepCopy()
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, PortsAnnotation, string(encoded))
	if err := r.client.Patch(ctx, pod, client.MergeFrom(before)); err != nil {
		return nil, fmt.Errorf("could not annotate the ports: %w", err)
	}

	present := &runningPod{
		uid:     pod.UID,
		dir:     podDir,
		volumes: &volumes{client: r.client, dir: environment.volumesDir, tokens: map[string]token{}},
		stop:    func(time.Duration) {},
	}
	for i := range pod.Spec.Containers {
		spec := &pod.Spec.Containers[i]
		container := &container{name: spec.Name, image: spec.Image, logFile: r.logFile(pod, spec.Name)}
		container.restarts = restartsSoFar(pod, spec.Name)
		container.command, err = environment.command(pod, spec)
		if err != nil {
			reason := "CreateContainerConfigError"
			if errors.Is(err, errUnknownImage) {
				reason = "ErrImageNeverPull"
			}
			logf.FromContext(ctx).Error(err, "Container cannot be started", "container", spec.Name)
			r.recorder.Eventf(pod, nil, corev1.EventTypeWarning, reason, "Start", "Container %s cannot be started: %v", spec.Name, err)
			container.fail(reason, err)
		}
		present.containers = append(present.containers, container)
	}

	r.lock.Lock()
	defer r.lock.Unlock()
	r.running[client.ObjectKeyFromObject(pod)] = present
	return present, nil
}

// restartsSoFar counts the lives that a container had before this process.
func restartsSoFar(pod *corev1.Pod, container string) int32 {
	for _, status := range pod.Status.ContainerStatuses {
		if status.Name == container && status.State.Running != nil {
			return status.RestartCount + 1
		}
	}
	return 0
}

func (r *podReconciler) logFile(pod *corev1.Pod, container string) string {
	name := pod.Name
	if owner := metav1.GetControllerOf(pod); owner != nil {
		name = owner.Name
	}
	return filepath.Join(r.dir, "log", name+"-"+container+".log")
}

// start starts the containers if this has not been done. It returns false if the runner ends.
func (r *podReconciler) start(pod *corev1.Pod, present *runningPod) bool {
	r.lock.Lock()
	defer r.lock.Unlock()
	if r.ended {
		return false
	}
	if present.started {
		return true
	}
	present.started = true

	var (
		ctx, cancel = context.WithCancel(context.Background())
		grace       time.Duration
		group       sync.WaitGroup
		subject     = &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID}, TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}}
	)
	present.stop = func(period time.Duration) {
		grace = period
		cancel()
		group.Wait()
	}
	for _, container := range present.containers {
		if container.broken {
			continue
		}
		group.Go(func() {
			container.run(ctx, &grace, func(message string) {
				if message != "" {
					r.recorder.Eventf(subject, nil, corev1.EventTypeWarning, "BackOff", "Restart", "%s", message)
				}
				select {
				case r.changes <- event.GenericEvent{Object: subject}:
				case <-ctx.Done():
				}
			})
		})
	}
	return true
}

// end stops the processes of a pod and forgets it.
func (r *podReconciler) end(name types.NamespacedName, grace time.Duration) error {
	r.lock.Lock()
	present := r.running[name]
	delete(r.running, name)
	r.lock.Unlock()
	if present == nil {
		return nil
	}
	present.stop(grace)
	if err := os.RemoveAll(present.dir); err != nil {
		return fmt.Errorf("could not remove the volumes: %w", err)
	}
	return nil
}

// stopAllAtEnd waits for the end of the manager and stops all processes.
func (r *podReconciler) stopAllAtEnd(ctx context.Context) error {
	<-ctx.Done()
	r.lock.Lock()
	r.ended = true
	all := maps.Clone(r.running)
	r.lock.Unlock()

	var group sync.WaitGroup
	for _, present := range all {
		group.Go(func() { present.stop(gracePeriodAtEnd) })
	}
	group.Wait()
	if err := os.RemoveAll(filepath.Join(r.dir, "pods")); err != nil {
		return fmt.Errorf("could not remove the volumes: %w", err)
	}
	return nil
}

func (r *podReconciler) writeStatus(ctx context.Context, pod *corev1.Pod, containers []*container) error {
	before := pod.DeepCopy()
	pod.Status = podStatus(pod, containers)
	if err := r.client.Status().Patch(ctx, pod, client.MergeFrom(before)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("could not write the status of the pod: %w", err)
	}
	return nil
}

// podStatus returns the status of a pod. Without containers it is one that waits for its volumes.
func podStatus(pod *corev1.Pod, containers []*container) corev1.PodStatus {
	status := corev1.PodStatus{
		Phase:     corev1.PodPending,
		HostIP:    node.Address,
		HostIPs:   []corev1.HostIP{{IP: node.Address}},
		PodIP:     loopback,
		PodIPs:    []corev1.PodIP{{IP: loopback}},
		StartTime: pod.Status.StartTime,
		QOSClass:  pod.Status.QOSClass,
	}
	if status.StartTime == nil {
		status.StartTime = new(metav1.Now())
	}
	ready := len(containers) > 0
	for _, container := range containers {
		containerStatus := container.status()
		status.ContainerStatuses = append(status.ContainerStatuses, containerStatus)
		ready = ready && containerStatus.Ready
		if containerStatus.State.Waiting == nil || containerStatus.RestartCount > 0 {
			status.Phase = corev1.PodRunning
		}
	}
	for _, condition := range []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
		{Type: corev1.ContainersReady, Status: conditionStatus(ready)},
		{Type: corev1.PodReady, Status: conditionStatus(ready)},
	} {
		condition.LastTransitionTime = metav1.Now()
		for _, present := range pod.Status.Conditions {
			if present.Type == condition.Type && present.Status == condition.Status {
				condition.LastTransitionTime = present.LastTransitionTime
			}
		}
		status.Conditions = append(status.Conditions, condition)
	}
	return status
}

func conditionStatus(value bool) corev1.ConditionStatus {
	if value {
		return corev1.ConditionTrue
	}
	return corev1.ConditionFalse
}
