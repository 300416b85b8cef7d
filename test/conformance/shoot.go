// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/controlplane"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// perZone is how many machines a scenario begins with; neverJoined and rollout need one more.
const perZone = 2

// shoot is what the scenarios of a run share.
type shoot struct {
	*Environment

	pools []string
	// zones are the numbers of zones of the pools.
	zones map[string]int32
	// defaults hold for what the MachineDeployments do not say.
	defaults settings
	// version is the tag of machine-controller-manager's image.
	version string

	// mutex guards what follows, and the Extension.
	mutex sync.Mutex
	// replicas are those that the MachineDeployments had at first.
	replicas map[string]int32
	// config is the provider configuration that the Extension had at first.
	config *runtime.RawExtension
}

// discover finds out what there is to run on. The error says what is missing.
func discover(ctx context.Context, e *Environment) (*shoot, error) {
	s := &shoot{Environment: e, zones: map[string]int32{}, replicas: map[string]int32{}}

	pools, err := e.workerPools(ctx)
	if err != nil {
		return nil, err
	}
	for _, pool := range pools {
		if len(e.Pools) > 0 && !slices.Contains(e.Pools, pool.Name) {
			continue
		}
		zones := max(1, int32(len(pool.Zones))) // #nosec G115 -- a pool has a handful of zones
		if err := suitable(pool, zones); err != nil {
			return nil, err
		}
		s.pools, s.zones[pool.Name] = append(s.pools, pool.Name), zones
	}
	if len(s.pools) == 0 {
		return nil, fmt.Errorf("no worker pool %s in namespace %s", strings.Join(e.Pools, ", "), e.Namespace)
	}

	extension, err := s.extension(ctx)
	if err != nil {
		return nil, err
	}
	s.config = extension.Spec.ProviderConfig.DeepCopy()

	deployment := &appsv1.Deployment{}
	if err := e.Seed.Get(ctx, client.ObjectKey{Namespace: e.Namespace, Name: machineControllerManager}, deployment); err != nil {
		return nil, fmt.Errorf("could not read the Deployment of machine-controller-manager: %w", err)
	}
	if s.defaults, err = readSettings(deployment); err != nil {
		return nil, err
	}
	for _, container := range deployment.Spec.Template.Spec.Containers {
		if container.Name == machineControllerManager {
			_, s.version, _ = strings.Cut(container.Image, ":")
		}
	}
	return s, nil
}

// workerPools returns the worker pools of the shoot.
func (e *Environment) workerPools(ctx context.Context) ([]extensionsv1alpha1.WorkerPool, error) {
	workers := &extensionsv1alpha1.WorkerList{}
	if err := e.Seed.List(ctx, workers, client.InNamespace(e.Namespace)); err != nil {
		return nil, fmt.Errorf("could not list the Workers: %w", err)
	}
	if len(workers.Items) != 1 {
		return nil, fmt.Errorf("namespace %s has %d Workers and not one: it is not the control-plane namespace of a shoot with worker pools on this seed", e.Namespace, len(workers.Items))
	}
	return workers.Items[0].Spec.Pools, nil
}

// suitable returns an error if a pool cannot have the machines that scenarios need in its first zone. What Gardener's
// minimum and maximum do not allow would be undone at the next reconciliation of the Worker.
func suitable(pool extensionsv1alpha1.WorkerPool, zones int32) error {
	if pool.Minimum > perZone*zones {
		return fmt.Errorf("worker pool %q has minimum %d in %d zones: at most %d machines in each are needed, so set it to %d or less", pool.Name, pool.Minimum, zones, perZone, perZone*zones)
	}
	// One machine is left for system components by the validation of autoPreserveFailedMax.
	if needed := max(sum(perZone, zones)+1, perZone*zones); pool.Maximum < needed {
		return fmt.Errorf("worker pool %q has maximum %d in %d zones: set it to %d or more", pool.Name, pool.Maximum, zones, needed)
	}
	return nil
}

// sum returns the autoPreserveFailedMax of a pool with which the share is that of its first zone.
func sum(share, zones int32) int32 { return max(0, (share-1)*zones+1) }

func (s *shoot) extension(ctx context.Context) (*extensionsv1alpha1.Extension, error) {
	extension, err := controlplane.FindExtension(ctx, s.Seed, s.Namespace)
	if err == nil && extension == nil {
		err = fmt.Errorf("namespace %s has no Extension of type machine-preservation: enable it in the Shoot", s.Namespace)
	}
	return extension, err
}

// restore gives the Extension and the MachineDeployments back what they had at first, and lets go of all machines that
// the scenarios have left traces on: they are replaced.
func (s *shoot) restore(ctx context.Context) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	extension, err := s.extension(ctx)
	if err != nil {
		return err
	}
	patch := client.MergeFrom(extension.DeepCopy())
	extension.Spec.ProviderConfig = s.config
	errs := []error{s.Seed.Patch(ctx, extension, patch)}
	for name, replicas := range s.replicas {
		errs = append(errs, s.restoreDeployment(ctx, name, replicas))
	}
	return errors.Join(errs...)
}

func (s *shoot) restoreDeployment(ctx context.Context, name string, replicas int32) error {
	deployment := &machinev1alpha1.MachineDeployment{}
	if err := s.Seed.Get(ctx, client.ObjectKey{Namespace: s.Namespace, Name: name}, deployment); err != nil {
		return err
	}
	patch := client.MergeFrom(deployment.DeepCopy())
	deployment.Spec.Replicas = replicas
	if err := s.Seed.Patch(ctx, deployment, patch); err != nil {
		return err
	}
	machines, err := s.machinesOf(ctx, deployment)
	if err != nil {
		return err
	}
	var errs []error
	for i := range machines {
		_, _, err := s.clean(ctx, &machines[i])
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// clean removes what a scenario has left on a machine and its node: it takes a request back, which ends what that has
// begun, and deletes a machine that nothing else helps. It returns what it found, and whether the machine was deleted.
func (s *shoot) clean(ctx context.Context, machine *machinev1alpha1.Machine) (what string, deleted bool, err error) {
	node := &corev1.Node{}
	if name := machine.Labels[machinev1alpha1.NodeLabelKey]; name == "" {
		node = nil
	} else if err := s.Shoot.Get(ctx, client.ObjectKey{Name: name}, node); apierrors.IsNotFound(err) {
		node = nil
	} else if err != nil {
		return "", false, err
	}

	what, broken := leftover(machine, node)
	switch {
	case what == "":
		return "", false, nil
	case broken:
		return what, true, client.IgnoreNotFound(s.Seed.Delete(ctx, machine))
	}
	onNode := map[string]any{v1alpha1.AnnotationPreserve: nil, v1alpha1.AnnotationTimeout: nil, v1alpha1.AnnotationScaleDownDisabled: nil}
	return what, false, errors.Join(
		client.IgnoreNotFound(patchAnnotations(ctx, s.Shoot, node, onNode)),
		client.IgnoreNotFound(patchAnnotations(ctx, s.Seed, machine, map[string]any{v1alpha1.AnnotationPreserve: nil, v1alpha1.AnnotationForbidden: nil, builder.NoteMaintainedSince: ""})),
	)
}

// leftover returns what a scenario has left on a machine and its node, if there is one, and whether nothing but a new
// machine helps. It is empty if another scenario may begin with the machine as soon as it runs.
func leftover(machine *machinev1alpha1.Machine, node *corev1.Node) (what string, broken bool) {
	status, own := machine.Status.CurrentStatus, trace(builder.Noted(machine))
	switch {
	case machine.DeletionTimestamp != nil:
		return "", false
	case status.Phase == machinev1alpha1.MachineUnknown || status.Phase == machinev1alpha1.MachineFailed:
		return "phase " + string(status.Phase), true
	case machine.Annotations[v1alpha1.AnnotationCause] == v1alpha1.CauseAuto:
		return "auto-preserved", true
	case metav1.HasAnnotation(machine.ObjectMeta, v1alpha1.AnnotationPowerCycleRecord):
		return "power-cycled", true // the cycles of a day are remembered
	case metav1.HasAnnotation(machine.ObjectMeta, v1alpha1.AnnotationNeedsRemediation):
		return "annotation " + v1alpha1.AnnotationNeedsRemediation, true
	case node == nil:
		return own, own != ""
	case node.Spec.Unschedulable:
		return "cordon", true
	case own == "" && status.PreserveExpiryTime != nil:
		return "expiry in the status", false
	}
	return cmp.Or(own, trace(node.Annotations)), false
}

// trace returns the first annotation that has to do with preservation, but for the one that stays when it ends (P13).
func trace(annotations map[string]string) string {
	for _, key := range slices.Sorted(maps.Keys(annotations)) {
		if key == builder.NotePreservedSince {
			continue
		}
		if key == v1alpha1.AnnotationPreserve || strings.HasPrefix(key, v1alpha1.GroupName+"/") || strings.HasPrefix(key, v1alpha1.AnnotationScaleDownDisabled) {
			return "annotation " + key
		}
	}
	return ""
}

// patchAnnotations sets annotations; nil removes one.
func patchAnnotations(ctx context.Context, c client.Client, object client.Object, annotations map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return err
	}
	return c.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))
}
