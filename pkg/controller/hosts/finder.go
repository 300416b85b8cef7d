// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package hosts

import (
	"context"
	"fmt"
	"slices"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/component/preservationcontroller"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/remediation"
)

// grace is how much longer than it may be a host is off until that is told, and until it is released where nobody else does so: a
// preservation controller that is replaced comes back within it.
const grace = time.Minute

// Finder finds the hosts that are off because of the power cycles of a control plane.
type Finder struct {
	// Reader should be backed by a cache. Of Machines, it needs those with LabelPowerCycle only.
	Reader client.Reader
	// APIReader should not: it tells which Machines there still are.
	APIReader client.Reader
	// Driver reaches the hosts.
	Driver DriverOf
	// MaxServicing is how much longer a host may be off that its own controller works on (X18).
	MaxServicing time.Duration
	Clock        clock.PassiveClock
}

// Found is what was found in a control plane.
type Found struct {
	// Driver releases the hosts. It is nil where there are none, and while they cannot be read.
	Driver Driver
	// Off are the hosts that are off.
	Off []Off
	// Unreachable is why the hosts could not be read, also beside another error. Off are those then that may be off, without a name.
	// It can have the address of their cluster, so it is for operators only.
	Unreachable error
}

// Off is a host that is off, or asked to be, because of a power cycle.
type Off struct {
	remediation.Host
	// Until is by when it must be so no longer, and Overdue from when on it is so for too long.
	Until, Overdue time.Time
}

// String names the host, and the machine that it is off for.
func (o *Off) String() string {
	if o.Name == "" {
		return fmt.Sprintf("that of machine %s", o.Owner.Machine)
	}
	return fmt.Sprintf("%s/%s of machine %s", o.Namespace, o.Name, o.Owner.Machine)
}

// IsOverdue says that it is off for too long. One whose request somebody else has taken back is not off for us.
func (o *Off) IsOverdue(now time.Time) bool {
	return o.Requested && !now.Before(o.Overdue)
}

// Overdue returns the hosts that are off for too long.
func (f *Found) Overdue(now time.Time) []Off {
	return slices.DeleteFunc(slices.Clone(f.Off), func(o Off) bool { return !o.IsOverdue(now) })
}

// HasMachines says that there are machines in a control plane whose host may be off.
func (f *Finder) HasMachines(ctx context.Context, namespace string) (bool, error) {
	list := newMachineList()
	if err := f.Reader.List(ctx, list, client.InNamespace(namespace), client.HasLabels{v1alpha1.LabelPowerCycle}); err != nil {
		return false, fmt.Errorf("failed to list Machines: %w", err)
	}
	return len(list.Items) > 0, nil
}

// Find returns the hosts that are off because of the power cycles of a control plane. There are none where power cycles were never
// switched on, or have come to their end.
func (f *Finder) Find(ctx context.Context, namespace string) (Found, error) {
	seed, err := f.seedOf(ctx, namespace)
	if err != nil || seed == "" {
		return Found{}, err
	}
	var (
		found Found
		owned []remediation.Host
	)
	// The hosts are read before the Machines: what is written on a Machine comes before the request for its host.
	if found.Driver, owned, found.Unreachable = f.Driver.Owned(ctx, namespace, seed); len(owned) == 0 && found.Unreachable == nil {
		return found, nil
	}
	machines := newMachineList()
	if err := f.APIReader.List(ctx, machines, client.InNamespace(namespace)); err != nil {
		return found, fmt.Errorf("failed to list Machines: %w", err)
	}
	settings, err := f.settings(ctx, namespace)
	if err != nil {
		return found, err
	}
	if found.Unreachable != nil {
		found.Off = mayBeOff(machines.Items, settings)
		return found, nil
	}
	for _, h := range owned {
		off := Off{Host: h, Until: until(&h, machines.Items, settings)}
		off.Overdue = off.Until.Add(grace)
		if h.Servicing != "" {
			off.Overdue = off.Overdue.Add(f.MaxServicing)
		}
		found.Off = append(found.Off, off)
	}
	return found, nil
}

// seedOf returns the name by which hosts know this seed, empty where nothing was power-cycled since all hosts were released. As the
// lifecycle controller does, it is read from the access secret, which has it as long as a host may be off.
func (f *Finder) seedOf(ctx context.Context, namespace string) (string, error) {
	secret := &metav1.PartialObjectMetadata{}
	secret.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
	key := client.ObjectKey{Namespace: namespace, Name: preservationcontroller.AccessSecretName}
	if err := f.Reader.Get(ctx, key, secret); client.IgnoreNotFound(err) != nil {
		return "", fmt.Errorf("failed to get Secret %q: %w", key, err)
	}
	return secret.Annotations[preservationcontroller.AnnotationPowerCycleSeed], nil
}

// settings returns how the hosts of machines are power-cycled, by the metadata of a Machine.
func (f *Finder) settings(ctx context.Context, namespace string) (settingsOf, error) {
	sets := &metav1.PartialObjectMetadataList{}
	sets.SetGroupVersionKind(machinev1alpha1.SchemeGroupVersion.WithKind("MachineSetList"))
	if err := f.APIReader.List(ctx, sets, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("failed to list MachineSets: %w", err)
	}
	deployments := &machinev1alpha1.MachineDeploymentList{}
	if err := f.Reader.List(ctx, deployments, client.InNamespace(namespace)); err != nil {
		return nil, fmt.Errorf("failed to list MachineDeployments: %w", err)
	}
	known := map[types.UID]*remediation.Settings{}
	for i := range deployments.Items {
		settings, err := remediation.ReadSettings(&deployments.Items[i])
		if err != nil { // there are none for the preservation controller either
			logf.FromContext(ctx).Info("The power cycles of a MachineDeployment end", "machineDeployment", deployments.Items[i].Name, "reason", err.Error())
		}
		known[deployments.Items[i].UID] = settings
	}
	owners := map[types.UID]types.UID{}
	for i := range sets.Items {
		owners[sets.Items[i].UID] = controllerOf(&sets.Items[i])
	}
	return func(machine metav1.Object) *remediation.Settings { return known[owners[controllerOf(machine)]] }, nil
}

type settingsOf func(machine metav1.Object) *remediation.Settings

func controllerOf(object metav1.Object) types.UID {
	if ref := metav1.GetControllerOf(object); ref != nil {
		return ref.UID
	}
	return ""
}

// until returns by when a host must be off no longer. Where its machine is gone or being deleted, has no cycle under way, or has no
// settings any more, that is since it was asked for: a preservation controller would release it as soon as it comes back (X2, X15).
func until(h *remediation.Host, machines []metav1.PartialObjectMetadata, settings settingsOf) time.Time {
	i := slices.IndexFunc(machines, func(m metav1.PartialObjectMetadata) bool { return m.UID == h.Owner.UID })
	if i >= 0 && machines[i].DeletionTimestamp == nil {
		if at := offUntil(&machines[i], settings); !at.IsZero() {
			return at
		}
	}
	return h.Owner.Time
}

func offUntil(machine *metav1.PartialObjectMetadata, settings settingsOf) time.Time {
	return remediation.OffUntil(&machinev1alpha1.Machine{ObjectMeta: machine.ObjectMeta}, settings(machine))
}

// mayBeOff returns the hosts that are off if what is on the Machines is all that is known.
func mayBeOff(machines []metav1.PartialObjectMetadata, settings settingsOf) []Off {
	var off []Off
	for i := range machines {
		m := &machines[i]
		at := offUntil(m, settings)
		if at.IsZero() || m.Annotations[v1alpha1.AnnotationPowerCyclePhase] == v1alpha1.PowerCycleStarting { // that one was seen on
			continue
		}
		off = append(off, Off{Until: at, Overdue: at.Add(grace), Host: remediation.Host{
			Requested: true, Owner: &remediation.Owner{Namespace: m.Namespace, Machine: m.Name, UID: m.UID},
		}})
	}
	return off
}

func newMachineList() *metav1.PartialObjectMetadataList {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(machinev1alpha1.SchemeGroupVersion.WithKind("MachineList"))
	return list
}
