// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	v1beta1constants "github.com/gardener/gardener/pkg/apis/core/v1beta1/constants"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	"github.com/gardener/gardener/pkg/component/nodemanagement/machinecontrollermanager"
	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"
	fakesecretsmanager "github.com/gardener/gardener/pkg/utils/secrets/manager/fake"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
)

const (
	poolsPerShoot = 6
	// writers is how many objects are written at the same time.
	writers = 20

	providerType  = "aws"
	region        = "eu-west-1"
	machineType   = "m5.xlarge"
	extensionType = "machine-preservation"
	labelEnabled  = "extensions.gardener.cloud/" + extensionType
)

// otherExtensions are those that a shoot usually has: the cache of the extension has all Extensions.
var otherExtensions = []string{"shoot-cert-service", "shoot-dns-service", "shoot-networking-filter", "shoot-networking-problemdetector", "shoot-oidc-service"}

// zones are those of the region.
var zones = []string{region + "a", region + "b", region + "c"}

func namespaceOf(shoot int) string { return fmt.Sprintf("shoot--bench--s%04d", shoot) }
func poolName(pool int) string     { return fmt.Sprintf("worker-%d", pool+1) }

func deploymentName(shoot, pool int) string {
	return fmt.Sprintf("%s-%s-z1", namespaceOf(shoot), poolName(pool))
}

// populate creates what Gardener creates for each shoot in the seed, as far as the extension looks at it or at objects of
// the same kind. It returns the mean size of a Cluster in bytes, as the API server returns it.
func populate(ctx context.Context, c client.Client, shoots int, manager *appsv1.Deployment) (int, error) {
	cluster, err := newCluster()
	if err != nil {
		return 0, err
	}
	if err := parallel(ctx, shoots, func(ctx context.Context, shoot int) error {
		for _, object := range objectsOf(shoot, cluster, manager) {
			if err := c.Create(ctx, object); err != nil {
				return fmt.Errorf("could not create %T %s: %w", object, object.GetName(), err)
			}
		}
		return nil
	}); err != nil {
		return 0, err
	}

	if err := c.Get(ctx, client.ObjectKey{Name: namespaceOf(0)}, cluster); err != nil {
		return 0, err
	}
	encoded, err := json.Marshal(cluster)
	return len(encoded), err
}

// parallel calls a function for each of a number of things, some at the same time.
func parallel(ctx context.Context, n int, f func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range n {
		group.Go(func() error { return f(ctx, i) })
	}
	return group.Wait()
}

func objectsOf(shoot int, cluster *extensionsv1alpha1.Cluster, manager *appsv1.Deployment) []client.Object {
	namespace := namespaceOf(shoot)
	cluster, manager = cluster.DeepCopy(), manager.DeepCopy()
	cluster.Name, manager.Namespace = namespace, namespace

	objects := []client.Object{
		&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: map[string]string{
			v1beta1constants.GardenRole:         v1beta1constants.GardenRoleShoot,
			v1beta1constants.LabelShootProvider: providerType,
		}}},
		cluster,
		newWorker(namespace),
		manager,
	}
	for _, extension := range otherExtensions {
		objects = append(objects, newExtension(namespace, extension, "spec: some configuration of that extension"))
	}
	for pool := range poolsPerShoot {
		name := deploymentName(shoot, pool)
		className := name + "-4c9f1"
		objects = append(objects,
			&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: className, Namespace: namespace}, Data: map[string][]byte{"userData": bytes.Repeat([]byte("#cloud-config "), 300)}},
			newMachineClass(namespace, className, zones[pool%len(zones)]),
			newMachineDeployment(namespace, name, className, pool),
		)
	}
	return objects
}

func newExtension(namespace, extension, config string) *extensionsv1alpha1.Extension {
	return &extensionsv1alpha1.Extension{
		ObjectMeta: metav1.ObjectMeta{Name: extension, Namespace: namespace, Annotations: map[string]string{
			v1beta1constants.GardenerOperation: v1beta1constants.GardenerOperationReconcile,
			v1beta1constants.GardenerTimestamp: time.Now().UTC().Format(time.RFC3339Nano),
		}},
		Spec: extensionsv1alpha1.ExtensionSpec{DefaultSpec: extensionsv1alpha1.DefaultSpec{Type: extension, ProviderConfig: raw(map[string]any{
			"apiVersion": "service." + extension + ".extensions.gardener.cloud/v1alpha1", "kind": "Config", "config": config,
		})}},
	}
}

// newOwnExtension enables preservation, for all pools the same.
func newOwnExtension(namespace string, maximum int) *extensionsv1alpha1.Extension {
	extension := newExtension(namespace, extensionType, "")
	extension.Spec.ProviderConfig = ownConfig(maximum)
	return extension
}

func ownConfig(maximum int) *runtime.RawExtension {
	return raw(map[string]any{
		"apiVersion":               extensionType + ".extensions.gardener.cloud/v1alpha1",
		"kind":                     "MachinePreservationConfig",
		"machineControllerManager": map[string]any{"autoPreserveFailedMax": maximum, "machinePreserveTimeout": "24h"},
	})
}

func nodeLabels(pool int) map[string]string {
	return map[string]string{
		"node.kubernetes.io/role":                               "node",
		"kubernetes.io/arch":                                    "amd64",
		"networking.gardener.cloud/node-local-dns-enabled":      "true",
		"worker.garden.sapcloud.io/group":                       poolName(pool),
		"worker.gardener.cloud/cri-name":                        "containerd",
		"worker.gardener.cloud/gardener-node-agent-secret-name": "gardener-node-agent-" + poolName(pool) + "-77ac3",
		v1beta1constants.LabelWorkerPool:                        poolName(pool),
		v1beta1constants.LabelWorkerPoolSystemComponents:        "true",
		"topology.ebs.csi.aws.com/zone":                         zones[pool%len(zones)],
	}
}

func capacity() corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), "gpu": resource.MustParse("0"), corev1.ResourceMemory: resource.MustParse("16Gi")}
}

func newWorker(namespace string) *extensionsv1alpha1.Worker {
	subnets := make([]map[string]any, 0, 2*len(zones))
	for _, zone := range zones {
		for _, purpose := range []string{"nodes", "public"} {
			subnets = append(subnets, map[string]any{"purpose": purpose, "zone": zone, "id": fmt.Sprintf("subnet-%s-%s-0f9c5c3b", purpose, zone)})
		}
	}
	worker := &extensionsv1alpha1.Worker{
		ObjectMeta: metav1.ObjectMeta{Name: "bench", Namespace: namespace},
		Spec: extensionsv1alpha1.WorkerSpec{
			DefaultSpec:  extensionsv1alpha1.DefaultSpec{Type: providerType},
			Region:       region,
			SecretRef:    corev1.SecretReference{Name: v1beta1constants.SecretNameCloudProvider, Namespace: namespace},
			SSHPublicKey: bytes.Repeat([]byte("ssh-rsa "), 90),
			InfrastructureProviderStatus: raw(map[string]any{
				"apiVersion": "aws.provider.extensions.gardener.cloud/v1alpha1",
				"kind":       "InfrastructureStatus",
				"ec2":        map[string]any{"keyName": namespace + "-ssh-publickey"},
				"iam":        map[string]any{"instanceProfiles": []any{map[string]any{"name": namespace + "-nodes", "purpose": "nodes"}}},
				"vpc":        map[string]any{"id": "vpc-0f9c5c3b", "subnets": subnets, "securityGroups": []any{map[string]any{"id": "sg-0f9c5c3b", "purpose": "nodes"}}},
			}),
		},
	}
	for pool := range poolsPerShoot {
		worker.Spec.Pools = append(worker.Spec.Pools, extensionsv1alpha1.WorkerPool{
			Name:                poolName(pool),
			MachineType:         machineType,
			MachineImage:        extensionsv1alpha1.MachineImage{Name: "gardenlinux", Version: "2150.1.0"},
			Minimum:             2,
			Maximum:             10,
			MaxSurge:            intstr.FromInt32(1),
			Zones:               []string{zones[pool%len(zones)]},
			Labels:              nodeLabels(pool),
			Architecture:        new("amd64"),
			KubernetesVersion:   new("1.36.3"),
			NodeAgentSecretName: new("gardener-node-agent-" + poolName(pool) + "-77ac3"),
			NodeTemplate:        &extensionsv1alpha1.NodeTemplate{Capacity: capacity()},
			UserDataSecretRef:   corev1.SecretKeySelector{LocalObjectReference: corev1.LocalObjectReference{Name: "gardener-node-init-" + poolName(pool)}, Key: "cloud_config"},
			Volume:              &extensionsv1alpha1.Volume{Size: "50Gi", Type: new("gp3")},
			ProviderConfig: raw(map[string]any{
				"apiVersion": "aws.provider.extensions.gardener.cloud/v1alpha1",
				"kind":       "WorkerConfig",
				"volume":     map[string]any{"iops": 3000, "throughput": 200},
			}),
		})
	}
	return worker
}

func newMachineClass(namespace, name, zone string) *machinev1alpha1.MachineClass {
	return &machinev1alpha1.MachineClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{
			corev1.LabelZoneFailureDomain: zone, "operatingSystemName": "gardenlinux", "operatingSystemVersion": "2150.1.0",
		}},
		Provider:             "AWS",
		SecretRef:            &corev1.SecretReference{Name: name, Namespace: namespace},
		CredentialsSecretRef: &corev1.SecretReference{Name: v1beta1constants.SecretNameCloudProvider, Namespace: namespace},
		NodeTemplate: &machinev1alpha1.NodeTemplate{
			Capacity: capacity(), InstanceType: machineType, Region: region, Zone: zone, Architecture: new("amd64"),
		},
		ProviderSpec: *raw(map[string]any{
			"ami":                     "ami-0c9f1e5d7a8b6c4d3",
			"region":                  region,
			"machineType":             machineType,
			"keyName":                 namespace + "-ssh-publickey",
			"iam":                     map[string]any{"name": namespace + "-nodes"},
			"srcAndDstChecksEnabled":  false,
			"blockDevices":            []any{map[string]any{"deviceName": "/root", "ebs": map[string]any{"volumeSize": 50, "volumeType": "gp3", "iops": 3000, "encrypted": true, "deleteOnTermination": true}}},
			"networkInterfaces":       []any{map[string]any{"subnetID": "subnet-nodes-" + zone + "-0f9c5c3b", "securityGroupIDs": []any{"sg-0f9c5c3b"}}},
			"instanceMetadataOptions": map[string]any{"httpTokens": "required", "httpPutResponseHopLimit": 2},
			"tags":                    map[string]any{"kubernetes.io/cluster/" + namespace: "1", "kubernetes.io/role/node": "1"},
		}),
	}
}

func newMachineDeployment(namespace, name, className string, pool int) *machinev1alpha1.MachineDeployment {
	labels := map[string]string{"name": name}
	return &machinev1alpha1.MachineDeployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{v1beta1constants.LabelWorkerPool: poolName(pool)}},
		Spec: machinev1alpha1.MachineDeploymentSpec{
			Replicas:             2,
			MinReadySeconds:      500,
			RevisionHistoryLimit: new(int32(0)),
			Selector:             &metav1.LabelSelector{MatchLabels: labels},
			Strategy: machinev1alpha1.MachineDeploymentStrategy{
				Type: machinev1alpha1.RollingUpdateMachineDeploymentStrategyType,
				RollingUpdate: &machinev1alpha1.RollingUpdateMachineDeployment{UpdateConfiguration: machinev1alpha1.UpdateConfiguration{
					MaxSurge: new(intstr.FromInt32(1)), MaxUnavailable: new(intstr.FromInt32(0)),
				}},
			},
			Template: machinev1alpha1.MachineTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: machinev1alpha1.MachineSpec{
					Class:            machinev1alpha1.ClassSpec{Kind: "MachineClass", Name: className},
					NodeTemplateSpec: machinev1alpha1.NodeTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: nodeLabels(pool)}},
					MachineConfiguration: &machinev1alpha1.MachineConfiguration{
						MachineDrainTimeout: &metav1.Duration{Duration: 2 * time.Hour}, MachineHealthTimeout: &metav1.Duration{Duration: 10 * time.Minute},
					},
				},
			},
		},
	}
}

// newManagerDeployment returns the Deployment of machine-controller-manager as gardenlet and the provider extension make
// it.
func newManagerDeployment(ctx context.Context) (*appsv1.Deployment, error) {
	const namespace = "any"
	c := fakeclient.NewClientBuilder().WithScheme(kubernetesclient.SeedScheme).WithObjects(
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "generic-token-kubeconfig", Namespace: namespace}},
	).Build()
	values := machinecontrollermanager.Values{Image: "machine-controller-manager", Replicas: 1}
	if err := machinecontrollermanager.New(c, namespace, fakesecretsmanager.New(c, namespace), values).Deploy(ctx); err != nil {
		return nil, fmt.Errorf("could not make the Deployment of machine-controller-manager: %w", err)
	}
	deployment := &appsv1.Deployment{}
	if err := c.Get(ctx, client.ObjectKey{Namespace: namespace, Name: v1beta1constants.DeploymentNameMachineControllerManager}, deployment); err != nil {
		return nil, err
	}
	deployment.ResourceVersion = ""
	pod := &deployment.Spec.Template.Spec
	pod.Containers = append(pod.Containers, machinecontrollermanager.ProviderSidecarContainer(&gardencorev1beta1.Shoot{}, namespace, "provider-aws", "machine-controller-manager-provider-aws"))
	return deployment, nil
}

// newCluster returns a Cluster as large as those of a public cloud are.
func newCluster() (*extensionsv1alpha1.Cluster, error) {
	const (
		regions, machineTypes, images, versions = 12, 120, 3, 14
	)
	typeMeta := func(kind string) metav1.TypeMeta {
		return metav1.TypeMeta{APIVersion: gardencorev1beta1.SchemeGroupVersion.String(), Kind: kind}
	}

	profile := &gardencorev1beta1.CloudProfile{TypeMeta: typeMeta("CloudProfile"), ObjectMeta: metav1.ObjectMeta{Name: providerType}}
	profile.Spec.Type = providerType
	for i := range regions {
		r := gardencorev1beta1.Region{Name: fmt.Sprintf("region-%d", i)}
		for _, zone := range []string{"a", "b", "c"} {
			r.Zones = append(r.Zones, gardencorev1beta1.AvailabilityZone{Name: r.Name + zone})
		}
		profile.Spec.Regions = append(profile.Spec.Regions, r)
	}
	for i := range machineTypes {
		profile.Spec.MachineTypes = append(profile.Spec.MachineTypes, gardencorev1beta1.MachineType{
			Name: fmt.Sprintf("m%d.%dxlarge", i%8, i), CPU: resource.MustParse("4"), GPU: resource.MustParse("0"), Memory: resource.MustParse("16Gi"),
			Usable: new(true), Architecture: new("amd64"),
			Storage: &gardencorev1beta1.MachineTypeStorage{Class: "standard", Type: "gp3", MinSize: new(resource.MustParse("20Gi"))},
		})
	}
	for i := range 30 {
		profile.Spec.Kubernetes.Versions = append(profile.Spec.Kubernetes.Versions, expirable(fmt.Sprintf("1.%d.%d", 33+i%4, i)))
	}
	var amis []any
	for i := range images {
		image := gardencorev1beta1.MachineImage{Name: fmt.Sprintf("image-%d", i)}
		var providerVersions []any
		for v := range versions {
			version := fmt.Sprintf("2%d.%d.0", 100+v, i)
			image.Versions = append(image.Versions, gardencorev1beta1.MachineImageVersion{
				ExpirableVersion: expirable(version),
				CRI:              []gardencorev1beta1.CRI{{Name: "containerd", ContainerRuntimes: []gardencorev1beta1.ContainerRuntime{{Type: "gvisor"}}}},
				Architectures:    []string{"amd64", "arm64"},
			})
			var regional []any
			for _, r := range profile.Spec.Regions {
				regional = append(regional, map[string]any{"name": r.Name, "architecture": "amd64", "ami": fmt.Sprintf("ami-%017x", i*versions+v)})
			}
			providerVersions = append(providerVersions, map[string]any{"version": version, "regions": regional})
		}
		profile.Spec.MachineImages = append(profile.Spec.MachineImages, image)
		amis = append(amis, map[string]any{"name": image.Name, "versions": providerVersions})
	}
	profile.Spec.ProviderConfig = raw(map[string]any{"apiVersion": "aws.provider.extensions.gardener.cloud/v1alpha1", "kind": "CloudProfileConfig", "machineImages": amis})

	s := &gardencorev1beta1.Seed{TypeMeta: typeMeta("Seed"), ObjectMeta: metav1.ObjectMeta{Name: "bench"}}
	s.Spec.Provider = gardencorev1beta1.SeedProvider{Type: providerType, Region: region, Zones: zones}

	shoot := &gardencorev1beta1.Shoot{TypeMeta: typeMeta("Shoot"), ObjectMeta: metav1.ObjectMeta{Name: "bench", Namespace: "garden-bench", UID: uuid.NewUUID()}}
	shoot.Spec.Region = region
	shoot.Spec.Kubernetes.Version = "1.36.3"
	for _, extension := range otherExtensions {
		shoot.Spec.Extensions = append(shoot.Spec.Extensions, gardencorev1beta1.Extension{Type: extension})
	}
	shoot.Spec.Provider.Type = providerType
	for pool := range poolsPerShoot {
		shoot.Spec.Provider.Workers = append(shoot.Spec.Provider.Workers, gardencorev1beta1.Worker{
			Name: poolName(pool), Minimum: 2, Maximum: 10, Zones: []string{zones[pool%len(zones)]},
			Machine: gardencorev1beta1.Machine{Type: machineType, Image: &gardencorev1beta1.ShootMachineImage{Name: "gardenlinux", Version: new("2150.1.0")}, Architecture: new("amd64")},
			Volume:  &gardencorev1beta1.Volume{Type: new("gp3"), VolumeSize: "50Gi"},
			CRI:     &gardencorev1beta1.CRI{Name: "containerd"},
		})
	}
	gardencorev1beta1.SetObjectDefaults_Shoot(shoot)
	shoot.Status.LastOperation = &gardencorev1beta1.LastOperation{Type: gardencorev1beta1.LastOperationTypeReconcile, State: gardencorev1beta1.LastOperationStateSucceeded, Progress: 100}
	for _, condition := range gardenerutils.GetShootConditionTypes(false) {
		shoot.Status.Conditions = append(shoot.Status.Conditions, gardencorev1beta1.Condition{Type: condition, Status: gardencorev1beta1.ConditionTrue, Reason: "Succeeded", Message: "All of it is as it should be."})
	}

	cluster := &extensionsv1alpha1.Cluster{}
	cluster.Spec.CloudProfile = *raw(profile)
	cluster.Spec.Seed = raw(s)
	cluster.Spec.Shoot = *raw(shoot)
	return cluster, nil
}

func expirable(version string) gardencorev1beta1.ExpirableVersion {
	at := func(year int) *metav1.Time {
		return &metav1.Time{Time: time.Date(year, time.June, 30, 0, 0, 0, 0, time.UTC)}
	}
	return gardencorev1beta1.ExpirableVersion{Version: version, Lifecycle: []gardencorev1beta1.LifecycleStage{
		{Classification: gardencorev1beta1.ClassificationSupported},
		{Classification: gardencorev1beta1.ClassificationDeprecated, StartTime: at(2027)},
		{Classification: gardencorev1beta1.ClassificationExpired, StartTime: at(2028)},
	}}
}

// raw encodes what can always be encoded.
func raw(object any) *runtime.RawExtension {
	encoded, err := json.Marshal(object)
	if err != nil {
		panic(err)
	}
	return &runtime.RawExtension{Raw: encoded}
}
