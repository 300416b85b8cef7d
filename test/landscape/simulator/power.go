// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/gardener/gardener/pkg/provider-local/controller/infrastructure"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// PowerAnnotation is the annotation of a machine's Pod that says what its host does: a Power in JSON. Machines without a
// host do not have it.
const PowerAnnotation = "landscape.machine-preservation/power"

// BootTime is how long a machine has power before its kubelet lives.
const BootTime = 3 * time.Second

// Power is what a host gives its machine.
type Power struct {
	// On is whether the machine has power.
	On bool `json:"on"`
	// Since is when the host was switched. Zero if it never was.
	Since time.Time `json:"since"`
	// BootID is that of the kernel that runs, or ran last.
	BootID string `json:"bootID"`
}

// PowerOf returns what the host of the machine that the Pod is has been switched to, and an error if the annotation cannot
// be read. A machine whose host never was switched has power, and the Pod's UID is its boot id.
func PowerOf(pod *corev1.Pod) (Power, error) {
	power := Power{On: true, BootID: string(pod.UID)}
	value, ok := pod.Annotations[PowerAnnotation]
	if !ok {
		return power, nil
	}
	if err := json.Unmarshal([]byte(value), &power); err != nil {
		return power, fmt.Errorf("could not read annotation %s: %w", PowerAnnotation, err)
	}
	return power, nil
}

// Apply changes the Pod of a machine, whose host is switched. A kernel that hangs does so until it has no power.
func (p Power) Apply(pod *corev1.Pod) error {
	value, err := json.Marshal(p)
	if err != nil {
		return err
	}
	metav1.SetMetaDataAnnotation(&pod.ObjectMeta, PowerAnnotation, string(value))
	if !p.On && Hangs(pod) {
		delete(pod.Annotations, FailureAnnotation)
	}
	return nil
}

// Hangs returns whether the kernel of a machine hangs.
func Hangs(pod *corev1.Pod) bool { return pod.Annotations[FailureAnnotation] == string(KernelHang) }

// boots returns for how long the machine is not up yet, although it has power.
func (p Power) boots(now time.Time) time.Duration { return max(0, p.Since.Add(BootTime).Sub(now)) }

// PodKey returns which Pod a machine is.
func PodKey(machine client.ObjectKey) client.ObjectKey {
	return client.ObjectKey{Namespace: infrastructure.NamespaceName(machine.Namespace), Name: podPrefix + machine.Name}
}

// MachineKey returns which machine a Pod is, and false if it is none.
func MachineKey(pod client.Object) (client.ObjectKey, bool) {
	return client.ObjectKey{Namespace: controlPlaneNamespace(pod), Name: pod.GetLabels()[labelMachine]}, isMachinePod(pod)
}
