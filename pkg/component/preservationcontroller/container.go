// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservationcontroller

import (
	"fmt"
	"strings"
	"time"

	gardenerutils "github.com/gardener/gardener/pkg/utils/gardener"
	"github.com/gardener/gardener/pkg/utils/secrets"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"
	vpaautoscalingv1 "k8s.io/autoscaler/vertical-pod-autoscaler/pkg/apis/autoscaling.k8s.io/v1"

	configv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/config/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation"
)

const (
	// HolderPreserveExpiry holds machines where machine-controller-manager knows preservation itself.
	HolderPreserveExpiry = "preserve-expiry"
	// HolderHealthTimer holds machines where it does not.
	HolderHealthTimer = "health-timer"

	// FlagHolder is the flag that says which of the two holds machines.
	FlagHolder = "--holder"

	// FlagMaxMachinePreserveTimeout is the flag that comes from the extension's own configuration.
	FlagMaxMachinePreserveTimeout = "--max-machine-preserve-timeout"
	// FlagMaxMachineHours is the flag that comes from there as well.
	FlagMaxMachineHours = "--max-machine-hours"

	// FlagStormMaxFailing is the flag with how many machines of the shoot may fail at the same time. It and the next
	// two come from the extension's own configuration.
	FlagStormMaxFailing = "--storm-max-failing"
	// FlagStormMaxFailingPercent is the flag with the same as a percentage.
	FlagStormMaxFailingPercent = FlagStormMaxFailing + "-percent"
	// FlagStormSettlingTime is the flag with the delay afterwards.
	FlagStormSettlingTime = "--storm-settling-time"

	// FlagNodeMaintenance is the flag with which the container takes care of NodeMaintenances.
	FlagNodeMaintenance = "--node-maintenance"
	// FlagNodeMaintenanceMaxOvertime is the flag with the overtime of NodeMaintenances. It comes from the extension's own
	// configuration.
	FlagNodeMaintenanceMaxOvertime = FlagNodeMaintenance + "-max-overtime"

	// FlagEvidenceRetention is the flag with the time for which evidence is kept, which operators limit.
	FlagEvidenceRetention = "--evidence-retention"
	// FlagEvidenceBudget is the flag with the number of bytes of evidence that are stored. It comes from the extension's own configuration.
	FlagEvidenceBudget = "--evidence-budget"

	// FlagPowerCycle is the flag with which the container power-cycles hosts.
	FlagPowerCycle = "--power-cycle"
	// FlagPowerCycleShootRequests is the flag with which those in the shoot may ask for it. It comes from the extension's own
	// configuration.
	FlagPowerCycleShootRequests = FlagPowerCycle + "-shoot-requests"
	// FlagPowerCycleMaxPerShoot is the flag with how many machines of the shoot are power-cycled at a time. Like the next two it comes from the
	// extension's own configuration.
	FlagPowerCycleMaxPerShoot = FlagPowerCycle + "-max-per-shoot"
	// FlagPowerCycleGrants is the flag with which the extension has a say in that.
	FlagPowerCycleGrants = FlagPowerCycle + "-grants"
	// FlagPowerCycleMaxServicing is the flag with for how long hosts may be serviced meanwhile.
	FlagPowerCycleMaxServicing = FlagPowerCycle + "-max-servicing"
	// FlagQuarantineFailures is the flag with how many machines fail on a host until no other one gets it. It comes from the extension's
	// own configuration as well.
	FlagQuarantineFailures = "--quarantine-failures"
	// FlagQuarantinePeriod is the flag with the time within which they do.
	FlagQuarantinePeriod = "--quarantine-period"

	// HostVolumeName is the name of the volume with the kubeconfig for the hosts.
	HostVolumeName = "kubeconfig-machine-preservation-hosts"
	hostVolumePath = "/var/run/secrets/gardener.cloud/machine-preservation-hosts"

	// VolumeName is the name of the volume with the kubeconfig for the shoot and our own token.
	VolumeName = "kubeconfig-machine-preservation"

	portMetrics int32 = 10260
	portHealth  int32 = 10261
)

// ContainerValues are what the container depends on.
type ContainerValues struct {
	// Image is the image of the container.
	Image string
	// Namespace is the namespace of the Machines.
	Namespace string
	// Holder is one of the Holder constants.
	Holder string
	// MaxMachinePreserveTimeout is the longest time for which a machine is preserved (P13).
	MaxMachinePreserveTimeout time.Duration
	// Storm says when too many machines of the shoot fail at the same time, valid and with its defaults, nil for never.
	Storm *configv1alpha1.Storm
	// MaxMachineHours is how many machine-hours of a month machines are preserved for, nil for any number (P18).
	MaxMachineHours *int32
	// ProviderFlags are flags as the provider's machine controller has them. Those that are missing have the same defaults
	// there and here.
	ProviderFlags []string
	// DrainStrategies are those of the Shoot, valid and with their defaults, nil for none.
	DrainStrategies *preservation.DrainStrategies
	// DrainConditions says that nodes show in conditions that they are drained.
	DrainConditions bool
	// MaintenanceFlags are those with which the container takes care of NodeMaintenances, none if it does not.
	MaintenanceFlags []string
	// Evidence is how evidence is stored, valid and with its defaults, nil for none.
	Evidence *preservation.Evidence
	// EvidenceBudget is how many bytes of it are stored.
	EvidenceBudget int64
	// Failures says that the container tells of failures.
	Failures bool
	// Hosts are what the container power-cycles, valid and with their defaults, nil for nothing, and Seed the name by which they know this seed.
	Hosts *configv1alpha1.Hosts
	Seed  string
}

// Container returns the container.
func Container(values ContainerValues) corev1.Container {
	args := []string{
		"--namespace=" + values.Namespace,
		"--control-kubeconfig=inClusterConfig",
		"--target-kubeconfig=" + gardenerutils.PathGenericKubeconfig,
		FlagHolder + "=" + values.Holder,
		FlagMaxMachinePreserveTimeout + "=" + values.MaxMachinePreserveTimeout.String(),
	}
	args = append(args, stormFlags(values.Storm)...)
	if values.MaxMachineHours != nil {
		args = append(args, fmt.Sprintf("%s=%d", FlagMaxMachineHours, *values.MaxMachineHours))
	}
	args = append(args, values.ProviderFlags...)
	args = append(args, drainFlags(values.DrainStrategies)...)
	if values.DrainConditions {
		args = append(args, "--drain-conditions")
	}
	args = append(args, values.MaintenanceFlags...)
	args = append(args, evidenceFlags(values.Evidence, values.EvidenceBudget)...)
	if values.Failures {
		args = append(args, "--failures")
	}
	args = append(args, powerCycleFlags(values.Hosts, values.Seed)...)
	args = append(args,
		fmt.Sprintf("--metrics-bind-address=:%d", portMetrics),
		fmt.Sprintf("--health-probe-bind-address=:%d", portHealth),
	)

	// The path is the usual one although the volume is not: the kubeconfig names the token's file by it.
	mounts := []corev1.VolumeMount{
		gardenerutils.GenerateGenericKubeconfigVolumeMount(VolumeName, gardenerutils.VolumeMountPathGenericKubeconfig),
	}
	if values.Hosts != nil && values.Hosts.KubeconfigSecretName != "" {
		mounts = append(mounts, corev1.VolumeMount{Name: HostVolumeName, MountPath: hostVolumePath, ReadOnly: true})
	}

	return corev1.Container{
		Name:            Name,
		Image:           values.Image,
		ImagePullPolicy: corev1.PullIfNotPresent,
		Args:            args,
		Ports: []corev1.ContainerPort{
			{Name: "preservemetrics", ContainerPort: portMetrics, Protocol: corev1.ProtocolTCP},
			{Name: "preservehealth", ContainerPort: portHealth, Protocol: corev1.ProtocolTCP},
		},
		LivenessProbe:  probe("/healthz", 30),
		ReadinessProbe: probe("/readyz", 0),
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU:    resource.MustParse("5m"),
			corev1.ResourceMemory: resource.MustParse("32Mi"),
		}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: new(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			ReadOnlyRootFilesystem:   new(true),
			RunAsNonRoot:             new(true),
			SeccompProfile:           &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		},
		VolumeMounts: mounts,
	}
}

func stormFlags(storm *configv1alpha1.Storm) []string {
	if storm == nil {
		return nil
	}
	var flags []string
	if storm.MaxFailing != nil {
		flags = append(flags, fmt.Sprintf("%s=%d", FlagStormMaxFailing, *storm.MaxFailing))
	}
	if storm.MaxFailingPercent != nil {
		flags = append(flags, fmt.Sprintf("%s=%d", FlagStormMaxFailingPercent, *storm.MaxFailingPercent))
	}
	return append(flags, FlagStormSettlingTime+"="+storm.SettlingTime.Duration.String())
}

func drainFlags(strategies *preservation.DrainStrategies) []string {
	if strategies == nil {
		return nil
	}
	flags := []string{
		"--drain-strategies",
		"--drain-strategies-timeout=" + strategies.Timeout.Duration.String(),
		"--expected-drain-time=" + strategies.ExpectedDrainTime.Duration.String(),
		"--pdb-force-drain-timeout=" + strategies.PDBForceDrainTimeout.Duration.String(),
	}
	if *strategies.Disabled {
		flags = append(flags, "--drain-strategies-disabled")
	}
	for _, pattern := range strategies.IgnoredNamespacePatterns {
		flags = append(flags, "--drain-ignored-namespace-pattern="+pattern)
	}
	return flags
}

// MaintenanceFlags returns the flags for the settings of the Shoot, which must be valid and have their defaults, and for the
// overtime that operators allow; none for nil. The limits are not among them: those are in the shoot. All begin with
// FlagNodeMaintenance.
func MaintenanceFlags(maintenance *preservation.NodeMaintenance, maxOvertime time.Duration) []string {
	if maintenance == nil {
		return nil
	}
	flags := []string{FlagNodeMaintenance, "--node-maintenance-max-hold-time=" + maintenance.MaxHoldTime.Duration.String(), FlagNodeMaintenanceMaxOvertime + "=" + maxOvertime.String()}
	if len(maintenance.Namespaces) > 0 {
		flags = append(flags, "--node-maintenance-namespaces="+strings.Join(maintenance.Namespaces, ","))
	}
	return flags
}

func evidenceFlags(evidence *preservation.Evidence, budget int64) []string {
	if evidence == nil {
		return nil
	}
	flags := []string{"--evidence", FlagEvidenceRetention + "=" + evidence.Retention.Duration.String(), fmt.Sprintf("%s=%d", FlagEvidenceBudget, budget)}
	if *evidence.NodeLogs {
		flags = append(flags, "--evidence-node-logs")
	}
	return flags
}

func powerCycleFlags(hosts *configv1alpha1.Hosts, seed string) []string {
	if hosts == nil {
		return nil
	}
	flags := []string{FlagPowerCycle, "--host-kind=" + string(hosts.Kind), "--seed-name=" + seed, FlagPowerCycleMaxServicing + "=" + hosts.MaxServicing.Duration.String()}
	if hosts.MaxPerShoot != nil {
		flags = append(flags, fmt.Sprintf("%s=%d", FlagPowerCycleMaxPerShoot, *hosts.MaxPerShoot))
	}
	if hosts.MaxPerSeed != nil {
		flags = append(flags, FlagPowerCycleGrants)
	}
	if q := hosts.Quarantine; q != nil {
		flags = append(flags, fmt.Sprintf("%s=%d", FlagQuarantineFailures, *q.Failures), FlagQuarantinePeriod+"="+q.Period.Duration.String())
	}
	if hosts.KubeconfigSecretName != "" {
		flags = append(flags, "--host-kubeconfig="+hostVolumePath+"/"+secrets.DataKeyKubeconfig)
	}
	if hosts.ShootRequests {
		flags = append(flags, FlagPowerCycleShootRequests)
	}
	return flags
}

func probe(path string, initialDelaySeconds int32) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
			Path:   path,
			Port:   intstr.FromInt32(portHealth),
			Scheme: corev1.URISchemeHTTP,
		}},
		InitialDelaySeconds: initialDelaySeconds,
		PeriodSeconds:       10,
		TimeoutSeconds:      5,
		SuccessThreshold:    1,
		FailureThreshold:    3,
	}
}

// Volume returns the volume that the container mounts. kubeconfigSecretName is the name of the Secret with the generic
// kubeconfig of the shoot. Whatever becomes of the Secrets, the pod of machine-controller-manager starts without them.
func Volume(kubeconfigSecretName string) corev1.Volume {
	volume := gardenerutils.GenerateGenericKubeconfigVolume(kubeconfigSecretName, AccessSecretName, VolumeName)
	for i := range volume.Projected.Sources {
		volume.Projected.Sources[i].Secret.Optional = new(true)
	}
	return volume
}

// HostVolume returns the volume with the kubeconfig for the hosts, from the Secret of that name. The pod starts without it.
func HostVolume(secretName string) corev1.Volume {
	return corev1.Volume{
		Name: HostVolumeName,
		VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{
			SecretName: secretName,
			Items:      []corev1.KeyToPath{{Key: secrets.DataKeyKubeconfig, Path: secrets.DataKeyKubeconfig}},
			Optional:   new(true),
		}},
	}
}

// VPAContainerPolicy returns how the container is scaled.
func VPAContainerPolicy() vpaautoscalingv1.ContainerResourcePolicy {
	return vpaautoscalingv1.ContainerResourcePolicy{
		ContainerName:    Name,
		ControlledValues: new(vpaautoscalingv1.ContainerControlledValuesRequestsOnly),
	}
}
