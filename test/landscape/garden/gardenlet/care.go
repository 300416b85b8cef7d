// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package gardenlet

import (
	"context"
	"fmt"
	"time"

	"github.com/Masterminds/semver/v3"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health"
	"github.com/gardener/gardener/pkg/utils/kubernetes/health/checker"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

const carePeriod = 5 * time.Second

// CareReconciler writes the conditions of Shoots, and the constraint that tells of preserved failed machines.
type CareReconciler struct {
	Client      client.Client
	SeedClient  client.Client
	ShootClient client.Client
	Clock       clock.Clock
}

// AddToManager adds the controller to the manager of the garden.
func (r *CareReconciler) AddToManager(mgr manager.Manager) error {
	return builder.
		ControllerManagedBy(mgr).
		Named("shoot-care").
		For(&gardencorev1beta1.Shoot{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrentSyncs}).
		Complete(r)
}

// Reconcile implements reconcile.Reconciler.
func (r *CareReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	shoot := &gardencorev1beta1.Shoot{}
	if err := r.Client.Get(ctx, request.NamespacedName, shoot); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if shoot.DeletionTimestamp != nil {
		return reconcile.Result{}, nil
	}
	// As long as a Shoot is created, nothing in it is expected to be healthy.
	if v1beta1helper.ComputeOperationType(shoot.ObjectMeta, shoot.Status.LastOperation) != gardencorev1beta1.LastOperationTypeCreate {
		if err := r.care(ctx, shoot); err != nil {
			return reconcile.Result{}, fmt.Errorf("could not check the Shoot: %w", err)
		}
	}
	return reconcile.Result{RequeueAfter: carePeriod}, nil
}

func (r *CareReconciler) care(ctx context.Context, shoot *gardencorev1beta1.Shoot) error {
	conditions, err := r.conditions(ctx, shoot)
	if err != nil {
		return err
	}
	constraints, err := r.constraints(ctx, shoot)
	if err != nil {
		return err
	}
	before := shoot.DeepCopy()
	shoot.Status.Conditions, shoot.Status.Constraints = conditions, constraints
	if apiequality.Semantic.DeepEqual(before.Status, shoot.Status) {
		return nil
	}
	return r.Client.Status().Patch(ctx, shoot, client.MergeFrom(before))
}

// conditions are those of gardenlet but for that of the observability components, of which there are none.
func (r *CareReconciler) conditions(ctx context.Context, shoot *gardencorev1beta1.Shoot) ([]gardencorev1beta1.Condition, error) {
	reports, err := r.reports(ctx, shoot.Status.TechnicalID)
	if err != nil {
		return nil, err
	}
	resources := &resourcesv1alpha1.ManagedResourceList{}
	if err := r.SeedClient.List(ctx, resources, client.InNamespace(shoot.Status.TechnicalID)); err != nil {
		return nil, err
	}
	nodes := &corev1.NodeList{}
	if err := r.ShootClient.List(ctx, nodes); err != nil {
		return nil, err
	}

	healthChecker := checker.NewHealthChecker(logf.FromContext(ctx), r.SeedClient, r.Clock, checker.WithLastOperation(shoot.Status.LastOperation))
	var conditions []gardencorev1beta1.Condition
	check := func(conditionType gardencorev1beta1.ConditionType, reason, message string, failure func(gardencorev1beta1.Condition) *gardencorev1beta1.Condition) {
		condition := v1beta1helper.GetOrInitConditionWithClock(r.Clock, shoot.Status.Conditions, conditionType)
		var failed *gardencorev1beta1.Condition
		if v1beta1helper.HibernationIsEnabled(shoot) || shoot.Status.IsHibernated {
			reason, message = "ConditionNotChecked", "Shoot cluster has been hibernated."
		} else if failed = healthChecker.CheckExtensionCondition(condition, reports[conditionType], nil); failed == nil {
			failed = failure(condition)
		}
		if failed == nil {
			failed = new(v1beta1helper.UpdatedConditionWithClock(r.Clock, condition, gardencorev1beta1.ConditionTrue, reason, message))
		}
		conditions = append(conditions, *failed)
	}
	check(gardencorev1beta1.ShootControlPlaneHealthy, "ControlPlaneRunning", "All control plane components are healthy.",
		func(condition gardencorev1beta1.Condition) *gardencorev1beta1.Condition {
			return healthChecker.CheckManagedResources(condition, resources.Items, isInSeed, nil, isHealthy)
		})
	check(gardencorev1beta1.ShootSystemComponentsHealthy, "SystemComponentsRunning", "All system components are healthy.",
		func(condition gardencorev1beta1.Condition) *gardencorev1beta1.Condition {
			return healthChecker.CheckManagedResources(condition, resources.Items, isInShoot, nil, isHealthy)
		})
	check(gardencorev1beta1.ShootEveryNodeReady, "EveryNodeReady", "All nodes are ready.",
		func(condition gardencorev1beta1.Condition) *gardencorev1beta1.Condition {
			return r.nodeFailure(shoot, nodes.Items, healthChecker, condition)
		})
	return conditions, nil
}

// isHealthy does without the condition about progress: the controller that writes it does not run in the landscape.
func isHealthy(resource *resourcesv1alpha1.ManagedResource) bool {
	return health.CheckManagedResource(resource) == nil
}

func isInSeed(resource resourcesv1alpha1.ManagedResource) bool  { return resource.Spec.Class != nil }
func isInShoot(resource resourcesv1alpha1.ManagedResource) bool { return resource.Spec.Class == nil }

// reports are the conditions that extensions have written.
func (r *CareReconciler) reports(ctx context.Context, namespace string) (map[gardencorev1beta1.ConditionType][]checker.ExtensionCondition, error) {
	extensions, workers := &extensionsv1alpha1.ExtensionList{}, &extensionsv1alpha1.WorkerList{}
	for _, list := range []client.ObjectList{extensions, workers} {
		if err := r.SeedClient.List(ctx, list, client.InNamespace(namespace)); err != nil {
			return nil, err
		}
	}
	reports := map[gardencorev1beta1.ConditionType][]checker.ExtensionCondition{}
	add := func(kind, name string, conditions []gardencorev1beta1.Condition) {
		for _, condition := range conditions {
			reports[condition.Type] = append(reports[condition.Type], checker.ExtensionCondition{
				Condition: condition, ExtensionType: kind, ExtensionName: name, ExtensionNamespace: namespace,
			})
		}
	}
	for _, extension := range extensions.Items {
		add(extensionsv1alpha1.ExtensionResource, extension.Name, extension.Status.Conditions)
	}
	for _, worker := range workers.Items {
		add(extensionsv1alpha1.WorkerResource, worker.Name, worker.Status.Conditions)
	}
	return reports, nil
}

// nodeFailure returns what is wrong with the nodes. As in gardenlet, those that are preserved are told of only when
// there is nothing worse to tell of.
func (r *CareReconciler) nodeFailure(shoot *gardencorev1beta1.Shoot, nodes []corev1.Node, healthChecker *checker.HealthChecker, condition gardencorev1beta1.Condition) *gardencorev1beta1.Condition {
	pools, preserved := map[string][]corev1.Node{}, sets.New[string]()
	for _, node := range nodes {
		pool := node.Labels[v1beta1constants.LabelWorkerPool]
		pools[pool] = append(pools[pool], node)
		if health.IsNodePreservedAndUnhealthy(node) {
			preserved.Insert(node.Name)
		}
	}
	failed := func(reason, message string) *gardencorev1beta1.Condition {
		return new(v1beta1helper.FailedCondition(r.Clock, shoot.Status.LastOperation, nil, condition, reason, message))
	}

	var ofPreserved *gardencorev1beta1.Condition
	for _, pool := range shoot.Spec.Provider.Workers {
		version, err := poolVersion(shoot, pool)
		if err != nil {
			return failed("VersionParseError", err.Error())
		}
		failure, onlyPreserved := healthChecker.CheckNodes(condition, pools[pool.Name], pool.Name, version, preserved)
		switch {
		case failure != nil && !onlyPreserved:
			return failure
		case len(pools[pool.Name]) < int(pool.Minimum):
			return failed("MissingNodes", fmt.Sprintf("Worker pool %q has %d of at least %d nodes.", pool.Name, len(pools[pool.Name]), pool.Minimum))
		case ofPreserved == nil:
			ofPreserved = failure
		}
	}
	return ofPreserved
}

func poolVersion(shoot *gardencorev1beta1.Shoot, pool gardencorev1beta1.Worker) (*semver.Version, error) {
	version, err := semver.NewVersion(shoot.Spec.Kubernetes.Version)
	if err != nil {
		return nil, err
	}
	return v1beta1helper.CalculateEffectiveKubernetesVersion(version, pool.Kubernetes)
}

// constraints has one element as long as failed machines are preserved, as counted by machine-controller-manager.
func (r *CareReconciler) constraints(ctx context.Context, shoot *gardencorev1beta1.Shoot) ([]gardencorev1beta1.Condition, error) {
	deployments := &machinev1alpha1.MachineDeploymentList{}
	if err := r.SeedClient.List(ctx, deployments, client.InNamespace(shoot.Status.TechnicalID)); err != nil {
		return nil, err
	}
	var preserved int32
	for _, deployment := range deployments.Items {
		preserved += deployment.Status.PreservedFailedReplicas
	}
	if preserved == 0 {
		return nil, nil
	}
	constraint := v1beta1helper.GetOrInitConditionWithClock(r.Clock, shoot.Status.Constraints, gardencorev1beta1.ShootPreservedFailedMachinesAbsent)
	return []gardencorev1beta1.Condition{v1beta1helper.UpdatedConditionWithClock(r.Clock, constraint, gardencorev1beta1.ConditionFalse,
		"FailedMachinesPreserved", fmt.Sprintf("Cluster has %d preserved failed machine(s).", preserved))}, nil
}
