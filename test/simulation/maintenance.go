// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes/scheme"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

const (
	// maxParallel is how many nodes may be under maintenance at a time, maxReady for how long a requestor may have a node.
	maxParallel, maxReady = 1, time.Hour
	// maxHoldTime is for how long a machine is kept because of maintenances, whatever they say.
	maxHoldTime = 3 * time.Hour

	requestor = "requestor"
)

// The sidecar adds them to the scheme of all clients only where they are not known: others read it when the sidecar is started again.
func init() {
	if err := maintenancev1alpha1.AddToScheme(scheme.Scheme); err != nil {
		panic(err)
	}
	group := maintenancev1alpha1.SchemeGroupVersion
	resources["nodemaintenances"] = resource{GroupVersionKind: group.WithKind("NodeMaintenance"), dropsStatus: true}
	resources["maintenanceoperatorconfigs"] = resource{GroupVersionKind: group.WithKind("MaintenanceOperatorConfig"), dropsStatus: true}
}

// requestors ask for nodes, work on them, and give them back. They are where the kubelets are: they look when these do.
type requestors struct {
	world *World
	mutex sync.Mutex
	jobs  []*job
	count int
}

type job struct {
	Maintain

	key     key
	machine string
	// ready is since when the node is, or was, ready for it.
	ready time.Time
}

func newRequestors(w *World) *requestors { return &requestors{world: w} }

// configure writes the limits, with what the definition of the resource defaults.
func (r *requestors) configure() {
	config := &maintenancev1alpha1.MaintenanceOperatorConfig{
		ObjectMeta: metav1.ObjectMeta{Namespace: maintenancev1alpha1.ConfigNamespace, Name: maintenancev1alpha1.ConfigName},
		Spec: maintenancev1alpha1.MaintenanceOperatorConfigSpec{
			MaxParallelOperations: new(intstr.FromInt32(maxParallel)), MaxNodeMaintenanceTimeSeconds: new(int32(maxReady / time.Second)),
			LogLevel: maintenancev1alpha1.LogLevelError,
		},
	}
	k := key{"maintenanceoperatorconfigs", config.Namespace, config.Name}
	if _, err := r.world.shoot.Create(user, k, toUnstructured(config)); err != nil {
		panic(err) // there is nothing yet
	}
}

func (r *requestors) begin(machine string, a Maintain) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.count++
	j := &job{Maintain: a, machine: machine, key: key{"nodemaintenances", "default", fmt.Sprintf("maintenance-%d", r.count)}}
	nm := &maintenancev1alpha1.NodeMaintenance{
		ObjectMeta: metav1.ObjectMeta{Namespace: j.key.namespace, Name: j.key.name},
		Spec: maintenancev1alpha1.NodeMaintenanceSpec{
			RequestorID: fmt.Sprintf("requestor-%d", r.count%2), NodeName: machine, Cordon: new(true),
			WaitForPodCompletion: &maintenancev1alpha1.WaitForPodCompletionSpec{TimeoutSeconds: 120},
			DrainSpec: &maintenancev1alpha1.DrainSpec{
				Force: true, DeleteEmptyDir: true, TimeoutSeconds: new(int32(maintenancev1alpha1.DefaultDrainTimeoutSeconds)),
			},
		},
	}
	if a.Exempt {
		metav1.SetMetaDataAnnotation(&nm.ObjectMeta, maintenancev1alpha1.AnnotationIgnoreGarbageCollector, "true")
	}
	if _, err := r.world.shoot.Create(requestor, j.key, toUnstructured(nm)); err != nil {
		panic(err) // nobody else makes such names
	}
	r.jobs = append(r.jobs, j)
}

// tick lets all requestors look at what they asked for, and the garbage collector of the shoot.
func (r *requestors) tick() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.world.cloud.isShootAway() {
		return
	}
	r.jobs = slices.DeleteFunc(r.jobs, func(j *job) bool {
		change := r.world.shoot.Last(j.key)
		if change == nil {
			return true
		}
		r.goOn(j, fromUnstructured[maintenancev1alpha1.NodeMaintenance](change.Object))
		return false
	})
}

func (r *requestors) goOn(j *job, nm *maintenancev1alpha1.NodeMaintenance) {
	var (
		node     = r.world.shoot.Last(nodeKey(nm.Spec.NodeName))
		orphaned = slices.ContainsFunc(nm.OwnerReferences, func(o metav1.OwnerReference) bool {
			return node == nil || o.UID != node.Object.GetUID()
		})
	)
	switch {
	case nm.DeletionTimestamp != nil:
	case orphaned:
		r.remove("garbage-collector", j)
	case node == nil: // nobody has taken note of it before its node was gone
		r.remove(requestor, j)
	case rules.PhaseOf(nm) != maintenancev1alpha1.PhaseReady:
		j.ready = time.Time{} // it may have been taken back
	case j.ready.IsZero():
		if j.ready = time.Now(); j.Off > 0 {
			r.world.cloud.Set(j.machine, Dead)
			time.AfterFunc(j.Off, func() { r.world.cloud.Set(j.machine, Healthy) })
		}
	case !j.Forgets && time.Since(j.ready) >= max(j.For, j.Off):
		r.remove(requestor, j)
	}
}

// mend has the requestors give up. What is forgotten has to end by itself.
func (r *requestors) mend() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	for _, j := range r.jobs {
		if !j.Forgets || j.Exempt || j.ready.IsZero() {
			r.remove(requestor, j)
		}
	}
}

func (r *requestors) remove(by string, j *job) { _, _ = r.world.shoot.Delete(by, j.key, "", "") }
