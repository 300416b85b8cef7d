// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"hash/fnv"
	"maps"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed/node"
)

// podStatus returns the status of the Pod of a machine that runs.
func podStatus(pod *corev1.Pod, joined bool) corev1.PodStatus {
	var (
		now     = metav1.Now()
		address = ipAddress(pod)
		status  = corev1.PodStatus{
			Phase:     corev1.PodRunning,
			StartTime: pod.Status.StartTime,
			QOSClass:  pod.Status.QOSClass,
			HostIP:    node.Address,
			HostIPs:   []corev1.HostIP{{IP: node.Address}},
			PodIP:     address,
			PodIPs:    []corev1.PodIP{{IP: address}},
		}
		ready = corev1.ConditionFalse
	)
	if status.StartTime == nil {
		status.StartTime = &now
	}
	if joined {
		ready = corev1.ConditionTrue
	}
	for _, condition := range []corev1.PodCondition{
		{Type: corev1.PodScheduled, Status: corev1.ConditionTrue},
		{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
		{Type: corev1.ContainersReady, Status: ready},
		{Type: corev1.PodReady, Status: ready},
	} {
		condition.LastTransitionTime = now
		status.Conditions = append(status.Conditions, condition)
	}
	for _, container := range pod.Spec.Containers {
		status.ContainerStatuses = append(status.ContainerStatuses, corev1.ContainerStatus{
			Name:    container.Name,
			Image:   container.Image,
			State:   corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: *status.StartTime}},
			Started: new(true),
			Ready:   joined,
		})
	}
	return status
}

// ipAddress returns an address that always is the same for a Pod, and hardly ever that of another one.
func ipAddress(pod *corev1.Pod) string {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(pod.Namespace + "/" + pod.Name))
	sum := hash.Sum32()
	return fmt.Sprintf("10.%d.%d.%d", byte(sum>>16), byte(sum>>8), byte(sum))
}

// newNode returns the Node as a kubelet and a cloud-controller-manager register it. Labels, annotations and taints of the
// worker pool are added by machine-controller-manager.
func newNode(pod *corev1.Pod, machine *machinev1alpha1.Machine, class *machinev1alpha1.MachineClass, failure Failure, bootID, kubeletVersion string, port int32) *corev1.Node {
	template := class.NodeTemplate
	if template == nil {
		template = &machinev1alpha1.NodeTemplate{}
	}
	var (
		now          = metav1.Now()
		name         = machine.Labels[machinev1alpha1.NodeLabelKey]
		architecture = ptr.Deref(template.Architecture, "amd64")
		capacity     = corev1.ResourceList{
			corev1.ResourcePods:             resource.MustParse("110"),
			corev1.ResourceEphemeralStorage: resource.MustParse("50Gi"),
		}
	)
	maps.Copy(capacity, template.Capacity)
	maps.DeleteFunc(capacity, func(_ corev1.ResourceName, quantity resource.Quantity) bool { return quantity.IsZero() })

	registered := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: name,
			Labels: map[string]string{
				corev1.LabelArchStable:         architecture,
				corev1.LabelOSStable:           "linux",
				corev1.LabelHostname:           name,
				corev1.LabelInstanceTypeStable: template.InstanceType,
				corev1.LabelTopologyRegion:     template.Region,
				corev1.LabelTopologyZone:       template.Zone,
			},
		},
		Spec: corev1.NodeSpec{ProviderID: machine.Spec.ProviderID},
		Status: corev1.NodeStatus{
			Capacity:    capacity,
			Allocatable: capacity,
			Addresses: []corev1.NodeAddress{
				{Type: corev1.NodeInternalIP, Address: ipAddress(pod)},
				{Type: corev1.NodeHostName, Address: name},
			},
			DaemonEndpoints: corev1.NodeDaemonEndpoints{KubeletEndpoint: corev1.DaemonEndpoint{Port: port}},
			NodeInfo: corev1.NodeSystemInfo{
				Architecture:            architecture,
				ContainerRuntimeVersion: "simulated://1.0.0",
				KernelVersion:           "6.12.0",
				KubeletVersion:          kubeletVersion,
				MachineID:               string(pod.UID),
				OperatingSystem:         "linux",
				OSImage:                 "simulated",
				SystemUUID:              string(pod.UID),
				BootID:                  bootID,
			},
			Conditions: []corev1.NodeCondition{kubeletStarts(now)},
		},
	}
	failure.affect(registered)
	return registered
}

func serverVersion(config *rest.Config) (string, error) {
	discoveryClient, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", fmt.Errorf("could not make a discovery client of the shoot: %w", err)
	}
	version, err := discoveryClient.ServerVersion()
	if err != nil {
		return "", fmt.Errorf("could not read the version of the shoot: %w", err)
	}
	return version.GitVersion, nil
}
