// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package preservationcontroller deploys what the machine-preservation-controller needs: its identity in the shoot, its
// permissions and its monitoring. The container itself is injected into the Deployment of machine-controller-manager by
// a webhook.
package preservationcontroller

import (
	"context"
	"fmt"
	"time"

	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	"github.com/gardener/gardener/pkg/component"
	"github.com/gardener/gardener/pkg/controllerutils"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"
	kubernetesutils "github.com/gardener/gardener/pkg/utils/kubernetes"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	failuresv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/failures/v1alpha1"
	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/machinefailures"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/nodemaintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/shootresources"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/host/drivers"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/hours"
)

const (
	// Name is the name of the container, of its ServiceAccount in the shoot, and of its Role and Lease in the seed.
	Name = "machine-preservation-controller"
	// AccessSecretName is the name of the Secret with the token for the shoot.
	AccessSecretName = gardenerutils.SecretNamePrefixShootAccess + Name
	// ManagedResourceName is the name of the ManagedResource with the permissions in the shoot.
	ManagedResourceName = "extension-machine-preservation-shoot"
	// AnnotationNodeMaintenance on the access secret is "true" if the container takes care of NodeMaintenances.
	AnnotationNodeMaintenance = v1alpha1.GroupName + "/node-maintenance"

	// AnnotationEvidence on the access secret is "true" if the container stores evidence, and "left" if it does not, and evidence
	// from before could not be deleted.
	AnnotationEvidence = v1alpha1.GroupName + "/evidence"

	// AnnotationFailures on the access secret is "true" if the container writes the failure history.
	AnnotationFailures = v1alpha1.GroupName + "/failures"

	// AnnotationMachineHours on the access secret is "true" if the container counts machine-hours.
	AnnotationMachineHours = v1alpha1.GroupName + "/machine-hours"

	// AnnotationPowerCycle on the access secret is "true" if the container power-cycles hosts.
	AnnotationPowerCycle = v1alpha1.GroupName + "/power-cycle"
	// AnnotationPowerCycleSeed on the access secret is the name by which hosts know this seed. It is there until all hosts
	// are released.
	AnnotationPowerCycleSeed = v1alpha1.GroupName + "/power-cycle-seed"

	clusterRoleName = "extensions.gardener.cloud:extension-machine-preservation:" + Name
)

// Marks are those of the annotations that say what the container does.
var Marks = []string{AnnotationNodeMaintenance, AnnotationEvidence, AnnotationFailures, AnnotationMachineHours, AnnotationPowerCycle}

// MaintenanceStage is what the container, and who acts with its identity, has to do with NodeMaintenances.
type MaintenanceStage string

const (
	// MaintenanceOff is nothing.
	MaintenanceOff MaintenanceStage = ""
	// MaintenanceBeginning is to see whether somebody else takes care of them.
	MaintenanceBeginning MaintenanceStage = "Beginning"
	// MaintenanceOn is to take care of them.
	MaintenanceOn MaintenanceStage = "On"
	// MaintenanceEnding is to set back those in progress.
	MaintenanceEnding MaintenanceStage = "Ending"
)

// Values are what the component depends on.
type Values struct {
	// DrainStrategies are those of the Shoot, valid and with their defaults, nil for none.
	DrainStrategies *preservation.DrainStrategies
	// NodeMaintenance is what is done about NodeMaintenances.
	NodeMaintenance MaintenanceStage
	// PowerCycle is what is done about hosts, nil for nothing.
	PowerCycle *PowerCycle
	// Evidence says that evidence is stored. Without it, what was stored is deleted.
	Evidence bool
	// NodeLogs says that logs of nodes are part of it.
	NodeLogs bool
	// Failures says that failures are told of.
	Failures bool
	// MachineHours says that machine-hours are counted.
	MachineHours bool
	// Now is the time: what was stored is deleted when its own is over.
	Now time.Time
}

// PowerCycle is what the container, and who acts for it, has to do with hosts.
type PowerCycle struct {
	// Hosts are those of the component configuration, and Seed is the name by which they know this seed.
	Hosts *configv1alpha1.Hosts
	Seed  string
	// Ending is to release those that are left, without the container.
	Ending bool
}

// New returns the component for the control plane of a shoot.
func New(c client.Client, namespace string, values Values) component.Deployer {
	return &preservationController{client: c, namespace: namespace, values: values}
}

type preservationController struct {
	client    client.Client
	namespace string
	values    Values
}

// Deploy creates or updates all resources. The access secret comes last: it lets the webhook inject the container.
func (p *preservationController) Deploy(ctx context.Context) error {
	if err := p.deployRole(ctx); err != nil {
		return err
	}

	if err := Resources(p.client, p.namespace).Deploy(ctx, p.shootResources()...); err != nil {
		return err
	}
	if err := p.deployMonitoring(ctx); err != nil {
		return err
	}
	evidence, err := p.leaveEvidence(ctx)
	if err != nil {
		return err
	}
	return p.deployAccessSecret(ctx, evidence)
}

// Destroy deletes all resources, the access secret first: whoever still finds it can rely on the permissions in the shoot.
// It does not wait. A container that is still there loses its identity by that. The Lease is the container's own, which could
// write it anew as long as it has the Role.
func (p *preservationController) Destroy(ctx context.Context) error {
	if err := kubernetesutils.DeleteObject(ctx, p.client, p.accessSecret().Secret); err != nil {
		return fmt.Errorf("failed to delete access secret: %w", err)
	}
	if err := Resources(p.client, p.namespace).Destroy(ctx); err != nil {
		return err
	}
	if err := kubernetesutils.DeleteObjects(ctx, p.client,
		&rbacv1.RoleBinding{ObjectMeta: p.meta()}, &rbacv1.Role{ObjectMeta: p.meta()}, &coordinationv1.Lease{ObjectMeta: p.meta()},
		&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.PlacesLease, Namespace: p.namespace}},
		p.dashboards(), p.prometheusRule(), p.serviceMonitor(), &corev1.Service{ObjectMeta: p.meta()},
	); err != nil {
		return err
	}
	if p.values.MachineHours { // else there is no account, or only the namespace takes it along
		account := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: p.namespace, Name: hours.ConfigMapName}}
		if err := kubernetesutils.DeleteObject(ctx, p.client, account); err != nil {
			return fmt.Errorf("failed to delete the account of machine-hours: %w", err)
		}
	}
	// Where operators do not allow evidence, there is none, or only the namespace takes it along.
	if err := p.deleteEvidence(ctx, allEvidence); !apierrors.IsForbidden(err) {
		return err
	}
	return nil
}

// deployRole allows what the Role of machine-controller-manager, whose ServiceAccount the container runs with, does not:
// leader election with a Lease of our own, another one for places that the zones of a pool share, hosts that are in its namespace, stored
// evidence, and the account of machine-hours.
func (p *preservationController) deployRole(ctx context.Context) error {
	role := &rbacv1.Role{ObjectMeta: p.meta()}
	if _, err := controllerutils.GetAndCreateOrMergePatch(ctx, p.client, role, func() error {
		role.Rules = []rbacv1.PolicyRule{
			allow(coordinationv1.GroupName, "leases", "create"),
			// The places Lease is always part of it. The MachineDeployments learn that zones share places as soon as the Extension says so,
			// and go on sharing them while its configuration is not valid. Without the permission, no machine would get a place (P20).
			allowNamed(coordinationv1.GroupName, "leases", []string{Name, v1alpha1.PlacesLease}, "get", "update"),
		}
		rules, err := hostRules(p.values.PowerCycle)
		role.Rules = append(role.Rules, rules...)
		role.Rules = append(role.Rules, evidenceRules(p.values.Evidence)...)
		if p.values.MachineHours {
			role.Rules = append(role.Rules,
				allow(corev1.GroupName, "configmaps", "create"),
				allowNamed(corev1.GroupName, "configmaps", []string{hours.ConfigMapName}, "get", "update"),
			)
		}
		return err
	}); err != nil {
		return fmt.Errorf("failed to deploy Role: %w", err)
	}

	roleBinding := &rbacv1.RoleBinding{ObjectMeta: p.meta()}
	if _, err := controllerutils.GetAndCreateOrMergePatch(ctx, p.client, roleBinding, func() error {
		roleBinding.RoleRef = rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: role.Name}
		roleBinding.Subjects = []rbacv1.Subject{{
			Kind:      rbacv1.ServiceAccountKind,
			Name:      v1beta1constants.DeploymentNameMachineControllerManager,
			Namespace: p.namespace,
		}}
		return nil
	}); err != nil {
		return fmt.Errorf("failed to deploy RoleBinding: %w", err)
	}
	return nil
}

// Resources are what has the permissions in the shoot.
func Resources(c client.Client, namespace string) shootresources.Resources {
	return shootresources.Resources{Client: c, Namespace: namespace, Name: ManagedResourceName}
}

// deployAccessSecret has gardener-resource-manager write a token into the Secret for the container, and the CA bundle for
// processes without a kubeconfig of the shoot. The webhook learns from it whether the container takes care of NodeMaintenances,
// power-cycles hosts, stores evidence, and tells of failures.
func (p *preservationController) deployAccessSecret(ctx context.Context, evidence string) error {
	access := p.accessSecret()
	if err := access.Reconcile(ctx, p.client); err != nil {
		return fmt.Errorf("failed to deploy access secret: %w", err)
	}
	patch := client.MergeFrom(access.Secret.DeepCopy())
	mark := func(annotation, value string, wanted bool) {
		if delete(access.Secret.Annotations, annotation); wanted {
			metav1.SetMetaDataAnnotation(&access.Secret.ObjectMeta, annotation, value)
		}
	}
	powerCycle := ptr.Deref(p.values.PowerCycle, PowerCycle{})
	mark(resourcesv1alpha1.ServiceAccountInjectCABundle, "true", true)
	mark(AnnotationNodeMaintenance, "true", p.values.NodeMaintenance == MaintenanceOn)
	mark(AnnotationEvidence, evidence, evidence != "")
	mark(AnnotationFailures, "true", p.values.Failures)
	mark(AnnotationMachineHours, "true", p.values.MachineHours)
	mark(AnnotationPowerCycle, "true", p.values.PowerCycle != nil && !powerCycle.Ending)
	mark(AnnotationPowerCycleSeed, powerCycle.Seed, p.values.PowerCycle != nil)
	if err := p.client.Patch(ctx, access.Secret, patch); err != nil {
		return fmt.Errorf("failed to annotate the access secret: %w", err)
	}
	return nil
}

func (p *preservationController) shootResources() []client.Object {
	clusterRole := &rbacv1.ClusterRole{
		ObjectMeta: metav1.ObjectMeta{Name: clusterRoleName},
		Rules: []rbacv1.PolicyRule{
			allow(corev1.GroupName, "nodes", "get", "list", "watch", "patch"),
			allow(corev1.GroupName, "nodes/status", "patch"),
			// They are listed while a node is drained, never all of them: a shoot has too many.
			allow(corev1.GroupName, "pods", "list", "delete"),
			allow(corev1.GroupName, "pods/eviction", "create"),
			allow(appsv1.GroupName, "daemonsets", "get"),
			allow(eventsv1.GroupName, "events", "create", "patch"),
		},
	}
	if strategies := p.values.DrainStrategies; strategies != nil {
		// They are watched for one node, while it is drained because of an update.
		verbs := []string{"watch"}
		if !*strategies.Disabled {
			verbs = append(verbs, "patch") // to remove finalizers
		}
		clusterRole.Rules = append(clusterRole.Rules,
			allow(corev1.GroupName, "pods", verbs...),
			allow(policyv1.GroupName, "poddisruptionbudgets", "list"),
		)
	}
	clusterRole.Rules = append(clusterRole.Rules, maintenanceRules(p.values.NodeMaintenance)...)
	clusterRole.Rules = append(clusterRole.Rules, shootEvidenceRules(p.values.Evidence, p.values.NodeLogs)...)
	if p.values.Failures {
		clusterRole.Rules = append(clusterRole.Rules, allow(failuresv1alpha1.GroupName, machinefailures.Resource, "get", "list", "create", "patch", "delete"))
	}
	if p.values.PowerCycle != nil {
		clusterRole.Rules = append(clusterRole.Rules,
			// A node is safe when none of them names it.
			allow(storagev1.GroupName, "volumeattachments", "list"),
			// They tell which of these are of pods that stay.
			allow(corev1.GroupName, "persistentvolumes", "get"),
		)
	}
	clusterRoleBinding := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: clusterRoleName},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: clusterRole.Name},
		Subjects: []rbacv1.Subject{{
			Kind:      rbacv1.ServiceAccountKind,
			Name:      p.accessSecret().ServiceAccountName,
			Namespace: metav1.NamespaceSystem,
		}},
	}
	objects := []client.Object{clusterRole, clusterRoleBinding}
	if p.values.NodeMaintenance == MaintenanceOn {
		objects = append(objects, nodemaintenance.Policy()...)
	}
	return objects
}

// maintenanceRules returns what NodeMaintenances take beyond what everybody has. They are aggregated into no other role: who
// may create one has power over every node (M17).
func maintenanceRules(stage MaintenanceStage) []rbacv1.PolicyRule {
	switch stage {
	case MaintenanceBeginning:
		return []rbacv1.PolicyRule{allowNamed(apiextensionsv1.GroupName, "customresourcedefinitions", nodemaintenance.DefinitionNames(), "get")}
	case MaintenanceOn, MaintenanceEnding:
		return []rbacv1.PolicyRule{
			allow(maintenancev1alpha1.GroupName, "nodemaintenances", "get", "list", "watch", "patch", "delete"),
			allow(maintenancev1alpha1.GroupName, "nodemaintenances/status", "patch"),
			allow(maintenancev1alpha1.GroupName, "maintenanceoperatorconfigs", "get", "list", "watch"),
			// Each says whether its limits count.
			allow(maintenancev1alpha1.GroupName, "maintenanceoperatorconfigs/status", "patch"),
			// Who schedules writes which round it is.
			allowNamed(maintenancev1alpha1.GroupName, "maintenanceoperatorconfigs", []string{maintenancev1alpha1.ConfigName}, "patch"),
			// They are watched for one node, while it waits for them or is drained.
			allow(corev1.GroupName, "pods", "watch"),
		}
	}
	return nil
}

func allow(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: verbs}
}

func allowNamed(group, resource string, names []string, verbs ...string) rbacv1.PolicyRule {
	rule := allow(group, resource, verbs...)
	rule.ResourceNames = names
	return rule
}

// hostRules returns what hosts in the control-plane namespace take. Those that take more than a Role are never there.
func hostRules(powerCycle *PowerCycle) ([]rbacv1.PolicyRule, error) {
	if powerCycle == nil || powerCycle.Hosts.KubeconfigSecretName != "" {
		return nil, nil
	}
	kind, err := drivers.For(powerCycle.Hosts.Kind)
	return kind.PolicyRules, err
}

// meta is that of the objects in the control plane that have no name of their own.
func (p *preservationController) meta() metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: Name, Namespace: p.namespace}
}

func (p *preservationController) accessSecret() *gardenerutils.AccessSecret {
	return gardenerutils.NewShootAccessSecret(Name, p.namespace)
}
