// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package seed

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	v1beta1helper "github.com/gardener/gardener/pkg/api/core/v1beta1/helper"
	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	resourcesv1alpha1 "github.com/gardener/gardener/pkg/apis/resources/v1alpha1"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	"github.com/gardener/gardener/pkg/component"
	"github.com/gardener/gardener/pkg/component/extensions/extension"
	"github.com/gardener/gardener/pkg/component/extensions/operatingsystemconfig"
	"github.com/gardener/gardener/pkg/component/extensions/worker"
	"github.com/gardener/gardener/pkg/component/gardener/access"
	"github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"
	"github.com/gardener/gardener/pkg/controllerutils"
	"github.com/gardener/gardener/pkg/extensions"
	"github.com/gardener/gardener/pkg/provider-local/local"
	"github.com/gardener/gardener/pkg/utils/flow"
	"github.com/gardener/gardener/pkg/utils/gardener/tokenrequest"
	kubernetesutils "github.com/gardener/gardener/pkg/utils/kubernetes"
	secretsutils "github.com/gardener/gardener/pkg/utils/secrets"
	secretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager"
	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	clientcmdlatest "k8s.io/client-go/tools/clientcmd/api/latest"
	clientcmdv1 "k8s.io/client-go/tools/clientcmd/api/v1"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"
)

const (
	waitInterval        = 500 * time.Millisecond
	waitSevereThreshold = 30 * time.Second
	waitTimeout         = 15 * time.Minute
	// retryTimeout is how long a deployment is tried again.
	retryTimeout = time.Minute
	// takeTimeout is how long a controller may need to take notice of an Extension, on a busy machine. It is thought not to exist then.
	takeTimeout = 30 * time.Second

	mcmRepository = "europe-docker.pkg.dev/gardener-project/releases/gardener/machine-controller-manager"
)

// operation is what gardenlet calls a botanist: everything that is needed to work on the control plane of one Shoot.
type operation struct {
	log       logr.Logger
	config    *rest.Config
	client    client.Client
	landscape *landscape
	namespace string
	// shoot is nil as long as the Shoot does not exist, and what it refers to as well.
	shoot          *gardencorev1beta1.Shoot
	cloudProfile   *gardencorev1beta1.CloudProfile
	seed           *gardencorev1beta1.Seed
	secretsManager secretsmanager.Interface
	// shootState is what the control plane is restored from; it is nil if there is no migration.
	shootState *gardencorev1beta1.ShootState
}

func newOperation(ctx context.Context, seedConfig *rest.Config, shootName string) (*operation, error) {
	seedConfig = unlimited(seedConfig)
	seedConfig.WarningHandler = rest.NoWarnings{}
	c, err := client.New(seedConfig, client.Options{Scheme: kubernetesclient.SeedScheme})
	if err != nil {
		return nil, fmt.Errorf("could not make a client of the seed: %w", err)
	}
	landscape, err := readLandscape(ctx, c)
	if err != nil {
		return nil, err
	}
	o := &operation{
		// The components tell of each look at an object that is not yet ready.
		log:       logf.FromContext(ctx).WithName("shoot").WithValues("shoot", shootName).V(1),
		config:    seedConfig,
		client:    c,
		landscape: landscape,
		namespace: ControlPlaneNamespace(shootName),
	}

	cluster, err := extensions.GetCluster(ctx, c, o.namespace)
	if err != nil {
		if apierrors.IsNotFound(err) {
			return o, nil
		}
		return nil, fmt.Errorf("could not read the Cluster: %w", err)
	}
	o.shoot, o.cloudProfile, o.seed = cluster.Shoot, cluster.CloudProfile, cluster.Seed
	return o, nil
}

// step is a named part of an operation.
type step struct {
	name string
	do   flow.TaskFn
}

func (o *operation) run(ctx context.Context, steps ...step) error {
	for _, step := range steps {
		o.log.Info("Next step", "step", step.name)
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("could not %s: %w", step.name, err)
		}
	}
	return nil
}

func retried(do flow.TaskFn) flow.TaskFn { return do.RetryUntilTimeout(waitInterval, retryTimeout) }

func (o *operation) reconcile(ctx context.Context) error {
	return o.run(ctx,
		step{"write the Cluster", o.syncCluster},
		step{"prepare the namespaces", o.deployNamespaces},
		step{"deploy the secrets", o.deploySecrets},
		step{"deploy gardenlet's access to the shoot", o.deployAccess},
		step{"deploy the Extensions", retried(o.deployExtensions)},
		step{"wait for the Extensions", o.waitForExtensions},
		step{"delete the Extensions that are no longer wanted", retried(o.extensions().DeleteStaleResources)},
		step{"deploy machine-controller-manager", retried(o.deployMachineControllerManager)},
		step{"deploy the Worker", retried(o.deployWorker)},
		step{"wait for the end of the Extensions that are no longer wanted", o.extensions().WaitCleanupStaleResources},
		step{"clean up the secrets", func(ctx context.Context) error { return o.secretsManager.Cleanup(ctx) }},
	)
}

func (o *operation) finish(ctx context.Context) error {
	return o.run(ctx,
		// A machine that machine-controller-manager could not drain for a moment is an error of the Worker. gardenlet begins again then.
		step{"wait for the Worker", flow.TaskFn(func(ctx context.Context) error { return o.worker(nil).Wait(ctx) }).RetryUntilTimeout(waitInterval, waitTimeout)},
		step{"write the Cluster", func(ctx context.Context) error {
			o.shoot.Status.IsHibernated = v1beta1helper.HibernationIsEnabled(o.shoot)
			setLastOperation(o.shoot, o.shoot.Status.LastOperation.Type, gardencorev1beta1.LastOperationStateSucceeded)
			return o.syncCluster(ctx)
		}},
	)
}

func (o *operation) delete(ctx context.Context) error {
	if o.shoot == nil {
		return nil
	}
	o.shoot.DeletionTimestamp = new(metav1.Now())
	setLastOperation(o.shoot, gardencorev1beta1.LastOperationTypeDelete, gardencorev1beta1.LastOperationStateProcessing)
	return o.run(ctx,
		step{"write the Cluster", o.syncCluster},
		step{"deploy the secrets", o.deploySecrets},
		step{"deploy machine-controller-manager", retried(o.deployMachineControllerManager)},
		step{"delete the Worker", o.worker(nil).Destroy},
		step{"wait for the end of the Worker", o.worker(nil).WaitCleanup},
		step{"delete machine-controller-manager", component.OpDestroyAndWait(o.machineControllerManager(0)).Destroy},
		step{"delete the Extensions", o.extensions().Destroy},
		step{"wait for the end of the Extensions", o.extensions().WaitCleanup},
		step{"delete gardenlet's access to the shoot", component.OpDestroyAndWait(o.access()).Destroy},
		step{"wait for the end of the ManagedResources", o.waitForManagedResources},
		step{"delete the namespaces", func(ctx context.Context) error {
			return o.deleteNamespaces(ctx, o.namespace, MachineNamespace(o.shoot.Name))
		}},
		step{"delete the Cluster", o.deleteCluster},
	)
}

func (o *operation) syncCluster(ctx context.Context) error {
	shoot := o.shoot.DeepCopy()
	shoot.Status.AdvertisedAddresses = []gardencorev1beta1.ShootAdvertisedAddress{{Name: v1beta1constants.AdvertisedAddressExternal, URL: o.landscape.shootServer}}
	return extensions.SyncClusterResourceToSeed(ctx, o.client, o.namespace, shoot, o.cloudProfile, o.seed)
}

func (o *operation) deleteCluster(ctx context.Context) error {
	return kubernetesutils.DeleteObject(ctx, o.client, &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: o.namespace}})
}

func (o *operation) deployNamespaces(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.namespace}}
	if _, err := controllerutils.GetAndCreateOrMergePatch(ctx, o.client, namespace, func() error {
		metav1.SetMetaDataAnnotation(&namespace.ObjectMeta, v1beta1constants.ShootUID, string(o.shoot.Status.UID))
		namespace.Labels = namespaceLabels(o.shoot, namespace.Labels)
		return nil
	}); err != nil {
		return fmt.Errorf("could not write namespace %s: %w", namespace.Name, err)
	}
	if err := o.publishRootCA(ctx); err != nil {
		return err
	}

	machineNamespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: MachineNamespace(o.shoot.Name)}}
	if _, err := controllerutils.GetAndCreateOrMergePatch(ctx, o.client, machineNamespace, func() error {
		metav1.SetMetaDataLabel(&machineNamespace.ObjectMeta, v1beta1constants.GardenRole, local.GardenRoleInfra)
		return nil
	}); err != nil {
		return fmt.Errorf("could not write namespace %s: %w", machineNamespace.Name, err)
	}
	return nil
}

// namespaceLabels returns the labels of a control-plane namespace. Labels of extensions that are no longer enabled
// disappear.
func namespaceLabels(shoot *gardencorev1beta1.Shoot, present map[string]string) map[string]string {
	labels := map[string]string{}
	for key, value := range present {
		if !strings.HasPrefix(key, v1beta1constants.LabelExtensionPrefix) {
			labels[key] = value
		}
	}
	labels[v1beta1constants.GardenRole] = v1beta1constants.GardenRoleShoot
	labels[v1beta1constants.LabelSeedProvider] = local.Type
	labels[v1beta1constants.LabelShootProvider] = shoot.Spec.Provider.Type
	labels[v1beta1constants.LabelBackupProvider] = local.Type
	labels[resourcesv1alpha1.HighAvailabilityConfigConsider] = "true"
	for extensionType := range enabledExtensions(shoot) {
		labels[v1beta1constants.LabelExtensionPrefix+extensionType] = "true"
	}
	return labels
}

// publishRootCA creates the config map that kube-controller-manager publishes in all namespaces.
func (o *operation) publishRootCA(ctx context.Context) error {
	ca, err := caBundle(o.config)
	if err != nil {
		return err
	}
	configMap := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kube-root-ca.crt", Namespace: o.namespace}}
	if _, err := controllerutils.GetAndCreateOrMergePatch(ctx, o.client, configMap, func() error {
		configMap.Data = map[string]string{"ca.crt": string(ca)}
		return nil
	}); err != nil {
		return fmt.Errorf("could not publish the certificate authority: %w", err)
	}
	return nil
}

// deploySecrets deploys the cloud provider's secret, with which provider-local creates machine pods, and the kubeconfig
// that control plane components mount together with a token of their own.
func (o *operation) deploySecrets(ctx context.Context) error {
	kubeconfig, err := kubeconfigFor(o.config, o.namespace)
	if err != nil {
		return err
	}
	cloudProvider := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: v1beta1constants.SecretNameCloudProvider, Namespace: o.namespace}}
	if _, err := controllerutils.GetAndCreateOrMergePatch(ctx, o.client, cloudProvider, func() error {
		metav1.SetMetaDataLabel(&cloudProvider.ObjectMeta, v1beta1constants.GardenerPurpose, v1beta1constants.SecretNameCloudProvider)
		cloudProvider.Type = corev1.SecretTypeOpaque
		cloudProvider.Data = map[string][]byte{kubernetesclient.KubeConfig: kubeconfig}
		return nil
	}); err != nil {
		return fmt.Errorf("could not write secret %s: %w", cloudProvider.Name, err)
	}

	manager, err := secretsmanager.New(ctx, o.log, clock.RealClock{}, o.client, v1beta1constants.SecretManagerIdentityGardenlet, secretsmanager.WithNamespaces(o.namespace))
	if err != nil {
		return fmt.Errorf("could not make a secrets manager: %w", err)
	}
	o.secretsManager = &shootSecretsManager{Interface: manager, clusterCA: o.landscape.shootCA}
	genericKubeconfig, err := tokenrequest.GenerateGenericTokenKubeconfig(ctx, o.secretsManager, o.namespace, o.landscape.shootServer)
	if err != nil {
		return fmt.Errorf("could not generate the generic kubeconfig: %w", err)
	}

	cluster := &extensionsv1alpha1.Cluster{ObjectMeta: metav1.ObjectMeta{Name: o.namespace}}
	_, err = controllerutils.GetAndCreateOrMergePatch(ctx, o.client, cluster, func() error {
		metav1.SetMetaDataAnnotation(&cluster.ObjectMeta, v1beta1constants.AnnotationKeyGenericTokenKubeconfigSecretName, genericKubeconfig.Name)
		return nil
	})
	return err
}

// shootSecretsManager is a secrets manager that knows the certificate authority of the shoot, although it was made by
// somebody else.
type shootSecretsManager struct {
	secretsmanager.Interface
	clusterCA []byte
}

// Get implements secretsmanager.Interface.
func (s *shootSecretsManager) Get(name string, options ...secretsmanager.GetOption) (*corev1.Secret, bool) {
	if name == v1beta1constants.SecretNameCACluster {
		return &corev1.Secret{Data: map[string][]byte{secretsutils.DataKeyCertificateBundle: s.clusterCA}}, true
	}
	return s.Interface.Get(name, options...)
}

// kubeconfigFor returns a kubeconfig that contains all that is needed.
func kubeconfigFor(config *rest.Config, name string) ([]byte, error) {
	config = rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(config); err != nil {
		return nil, fmt.Errorf("could not read the certificates of %s: %w", config.Host, err)
	}
	kubeconfig, err := runtime.Encode(clientcmdlatest.Codec, kubernetesutils.NewKubeconfig(name,
		clientcmdv1.Cluster{Server: config.Host, CertificateAuthorityData: config.CAData},
		clientcmdv1.AuthInfo{Token: config.BearerToken, ClientCertificateData: config.CertData, ClientKeyData: config.KeyData},
	))
	if err != nil {
		return nil, fmt.Errorf("could not encode the kubeconfig: %w", err)
	}
	return kubeconfig, nil
}

func (o *operation) access() component.DeployWaiter {
	return access.New(o.client, o.namespace, o.secretsManager, access.Values{
		ServerOutOfCluster: o.landscape.shootServer,
		ServerInCluster:    o.landscape.shootServer,
	})
}

func (o *operation) deployAccess(ctx context.Context) error { return o.access().Deploy(ctx) }

// enabledExtensions returns the extensions of the Shoot by type.
func enabledExtensions(shoot *gardencorev1beta1.Shoot) map[string]extension.Extension {
	enabled := map[string]extension.Extension{}
	for _, shootExtension := range shoot.Spec.Extensions {
		if ptr.Deref(shootExtension.Disabled, false) {
			continue
		}
		enabled[shootExtension.Type] = extension.Extension{
			Extension: extensionsv1alpha1.Extension{
				ObjectMeta: metav1.ObjectMeta{Name: shootExtension.Type, Namespace: shoot.Status.TechnicalID},
				Spec: extensionsv1alpha1.ExtensionSpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{
					Type:           shootExtension.Type,
					ProviderConfig: shootExtension.ProviderConfig,
				}},
			},
			Timeout: extension.DefaultTimeout,
		}
	}
	return enabled
}

func (o *operation) extensions() extension.Interface {
	return o.extensionsOf(enabledExtensions(o.shoot))
}

func (o *operation) extensionsOf(wanted map[string]extension.Extension) extension.Interface {
	return extension.New(o.log, o.client, &extension.Values{Namespace: o.namespace, Extensions: wanted},
		waitInterval, waitSevereThreshold, extension.DefaultTimeout)
}

func (o *operation) deployExtensions(ctx context.Context) error {
	if o.shootState != nil {
		return o.extensions().RestoreAfterKubeAPIServer(ctx, o.shootState)
	}
	return o.extensions().Deploy(ctx)
}

// waitForExtensions waits for those Extensions that a controller takes care of. A controller takes away the annotation
// with the operation first of all, but for a restoration: then it writes the status first, and the annotation stays
// until the end.
func (o *operation) waitForExtensions(ctx context.Context) error {
	var (
		enabled = enabledExtensions(o.shoot)
		waiting = slices.Collect(maps.Keys(enabled))
	)
	if err := wait.PollUntilContextTimeout(ctx, waitInterval/5, takeTimeout, true, func(ctx context.Context) (bool, error) {
		var err error
		waiting = slices.DeleteFunc(waiting, func(extensionType string) bool {
			object := &extensionsv1alpha1.Extension{}
			if getErr := o.client.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: extensionType}, object); getErr != nil {
				err = getErr
				return false
			}
			return object.Annotations[v1beta1constants.GardenerOperation] == "" || o.shootState != nil && object.Status.LastOperation != nil
		})
		return len(waiting) == 0, err
	}); err != nil && !wait.Interrupted(err) {
		return err
	}
	for _, extensionType := range waiting {
		logf.FromContext(ctx).Info("No controller takes care of the Extension", "type", extensionType)
		delete(enabled, extensionType)
	}
	return o.extensionsOf(enabled).Wait(ctx)
}

func (o *operation) machineControllerManager(replicas int32) machinecontrollermanager.Interface {
	return machinecontrollermanager.New(o.client, o.namespace, o.secretsManager, machinecontrollermanager.Values{
		Image:    mcmRepository + ":" + o.landscape.mcmVersion,
		Replicas: replicas,
	})
}

func (o *operation) deployMachineControllerManager(ctx context.Context) error {
	replicas := int32(1)
	switch {
	// The worker controller starts machine-controller-manager when the Machines are back.
	case o.shootState != nil:
		replicas = 0
	// A hibernated shoot does not need machine-controller-manager, the worker controller has scaled it down.
	case o.shoot.DeletionTimestamp == nil && v1beta1helper.HibernationIsEnabled(o.shoot) && o.shoot.Status.IsHibernated:
		deployment := &appsv1.Deployment{}
		if err := o.client.Get(ctx, client.ObjectKey{Namespace: o.namespace, Name: v1beta1constants.DeploymentNameMachineControllerManager}, deployment); client.IgnoreNotFound(err) != nil {
			return err
		}
		replicas = ptr.Deref(deployment.Spec.Replicas, 0)
	}
	return o.machineControllerManager(replicas).Deploy(ctx)
}

func (o *operation) worker(values *worker.Values) worker.Interface {
	if values == nil {
		values = &worker.Values{}
	}
	values.Namespace = o.namespace
	values.Name = o.shoot.Name
	return worker.New(o.log, o.client, values, waitInterval, waitSevereThreshold, waitTimeout)
}

func (o *operation) deployWorker(ctx context.Context) error {
	values, err := o.workerValues(ctx)
	if err != nil {
		return err
	}
	if o.shootState != nil {
		return o.worker(values).Restore(ctx, o.shootState)
	}
	return o.worker(values).Deploy(ctx)
}

// workerValues returns what gardenlet would pass to its component, after having written the user data of the machines.
func (o *operation) workerValues(ctx context.Context) (*worker.Values, error) {
	version, err := semver.NewVersion(o.shoot.Spec.Kubernetes.Version)
	if err != nil {
		return nil, fmt.Errorf("could not parse spec.kubernetes.version of the Shoot: %w", err)
	}
	values := &worker.Values{
		Type:                o.shoot.Spec.Provider.Type,
		Region:              o.shoot.Spec.Region,
		Workers:             o.shoot.Spec.Provider.Workers,
		KubernetesVersion:   version,
		KubeletConfig:       o.shoot.Spec.Kubernetes.Kubelet,
		MachineTypes:        o.cloudProfile.Spec.MachineTypes,
		NodeLocalDNSEnabled: v1beta1helper.IsNodeLocalDNSEnabled(o.shoot.Spec.SystemComponents),
		WorkerPoolNameToOperatingSystemConfigsMap: map[string]*operatingsystemconfig.OperatingSystemConfigs{},
	}
	for i := range o.shoot.Spec.Provider.Workers {
		pool := &o.shoot.Spec.Provider.Workers[i]
		config, err := operatingSystemConfig(o.shoot, version, pool)
		if err != nil {
			return nil, err
		}
		userData := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: *config.Init.SecretName, Namespace: o.namespace}}
		if _, err := controllerutils.GetAndCreateOrMergePatch(ctx, o.client, userData, func() error {
			userData.Data = map[string][]byte{extensionsv1alpha1.OperatingSystemConfigSecretDataKey: []byte("#cloud-config\n")}
			return nil
		}); err != nil {
			return nil, fmt.Errorf("could not write the user data of pool %s: %w", pool.Name, err)
		}
		values.WorkerPoolNameToOperatingSystemConfigsMap[pool.Name] = config
	}
	return values, nil
}

// operatingSystemConfig returns the names that gardenlet's operating system configuration of a pool would have. They
// change, and so machines are rolled, with what rolls machines in Gardener.
func operatingSystemConfig(shoot *gardencorev1beta1.Shoot, version *semver.Version, pool *gardencorev1beta1.Worker) (*operatingsystemconfig.OperatingSystemConfigs, error) {
	poolVersion, err := v1beta1helper.CalculateEffectiveKubernetesVersion(version, pool.Kubernetes)
	if err != nil {
		return nil, fmt.Errorf("could not find the Kubernetes version of pool %s: %w", pool.Name, err)
	}
	key := operatingsystemconfig.Key(poolVersion, nil, pool,
		v1beta1helper.IsNodeLocalDNSEnabled(shoot.Spec.SystemComponents),
		v1beta1helper.CalculateEffectiveKubeletConfiguration(shoot.Spec.Kubernetes.Kubelet, pool.Kubernetes),
		shoot.Spec.Kubernetes.KubeProxy)
	return &operatingsystemconfig.OperatingSystemConfigs{
		Init: operatingsystemconfig.Data{GardenerNodeAgentSecretName: key, SecretName: new("osc-result-" + key + "-init")},
	}, nil
}

func (o *operation) waitForManagedResources(ctx context.Context) error {
	return wait.PollUntilContextTimeout(ctx, waitInterval, waitTimeout, true, func(ctx context.Context) (bool, error) {
		list := &resourcesv1alpha1.ManagedResourceList{}
		err := o.client.List(ctx, list, client.InNamespace(o.namespace))
		return len(list.Items) == 0, err
	})
}
