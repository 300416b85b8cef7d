// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/gardener/gardener-extension-machine-preservation/test/simulation/mcm"
)

const (
	// creationTime is how long it takes to create a VM, bootTime until its kubelet runs.
	creationTime, bootTime = 20 * time.Second, time.Minute
	// heartbeat is how often a kubelet writes the status of its node although nothing has changed: less often than a real
	// one, as most of the simulation's time would go into it.
	heartbeat = 15 * time.Minute
	// grace is after which time a node is Unknown that nothing was heard of.
	grace = 40 * time.Second
	// nodeTick is how often kubelets and the node lifecycle look.
	nodeTick = 10 * time.Second
)

// Condition is how a VM is.
type Condition string

// How a VM may be.
const (
	// Healthy is a VM whose kubelet says that it is ready.
	Healthy Condition = "healthy"
	// Dead is one that nothing is heard of.
	Dead Condition = "dead"
	// NotReady is one whose kubelet says that it is not ready.
	NotReady Condition = "not ready"
	// Deadlocked is one that is ready and has a condition that machine-controller-manager minds.
	Deadlocked Condition = "deadlocked"
)

// Cloud has the VMs, with their kubelets, and the node lifecycle.
type Cloud struct {
	seed, shoot *APIServer
	mutex       sync.Mutex
	vms         map[string]*vm // by the names of their machines
	count       int
	hosts       []*host
	// away says that it cannot be asked.
	away bool
	// shootAway says that no kubelet reaches the shoot, and neither does the node lifecycle.
	shootAway bool
	// stillborn is how many of the next VMs never boot.
	stillborn int
}

type vm struct {
	machine, id string
	number      int
	condition   Condition
	// off says that its host is, boot is how often that was powered on, and boots when it is up since.
	off   bool
	boot  int
	boots time.Time
	// joined says that the kubelet has registered its node, heard when it could last have written, and written when it has.
	joined         bool
	heard, written time.Time
	// reported is the condition that the node shows, and reportedBoot since which boot.
	reported     Condition
	reportedBoot int
	// gone says that there is only its node any more.
	gone bool
}

func newCloud(seed, shoot *APIServer) *Cloud {
	return &Cloud{seed: seed, shoot: shoot, vms: map[string]*vm{}}
}

var errCloud = errors.New("the cloud cannot be reached")

// Set makes the VM of a machine be in a condition; one that is not there stays away.
func (c *Cloud) Set(machine string, condition Condition) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if vm := c.find(machine); vm != nil {
		vm.condition = condition
	}
}

// find returns the VM of a machine, nil if there is none.
func (c *Cloud) find(machine string) *vm {
	if vm := c.vms[machine]; vm != nil && !vm.gone {
		return vm
	}
	return nil
}

// Remove removes a VM behind everybody's back.
func (c *Cloud) Remove(machine string) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if vm := c.vms[machine]; vm != nil {
		vm.condition, vm.gone = Dead, true
		c.deprovision(machine)
	}
}

// bear says how many of the next VMs will not boot.
func (c *Cloud) bear(stillborn int) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.stillborn = stillborn
}

func (c *Cloud) setAway(away bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.away = away
}

func (c *Cloud) setShootAway(away bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.shootAway = away
}

func (c *Cloud) isShootAway() bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.shootAway
}

// Machines returns the machines that have VMs.
func (c *Cloud) Machines() []string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(c.vms)), func(machine string) bool { return c.find(machine) == nil })
}

// tick lets all kubelets, the node lifecycle and the cloud's controller of nodes look at what is due.
func (c *Cloud) tick() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.tickHosts()
	if c.shootAway {
		return
	}
	now := time.Now()
	for _, name := range slices.Sorted(maps.Keys(c.vms)) {
		vm := c.vms[name]
		switch {
		case vm.gone && c.shoot.Last(nodeKey(name)) == nil:
			delete(c.vms, name)
		case vm.gone && vm.reported == Dead:
			// That, too, which joined while its VM was being deleted: machine-controller-manager leaves it.
			_, _ = c.shoot.Delete("cloud-controller", nodeKey(name), "", "")
		case vm.condition != Dead && !vm.off && !now.Before(vm.boots):
			if !vm.joined {
				vm.joined = true
				_, _ = c.shoot.Create("kubelet", nodeKey(name), toUnstructured(&corev1.Node{
					ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/hostname": name}},
					Spec:       corev1.NodeSpec{ProviderID: vm.id},
				}))
			}
			if vm.heard = now; vm.condition != vm.reported || vm.boot != vm.reportedBoot || now.Sub(vm.written) >= heartbeat {
				vm.written = now
				vm.reportedBoot = vm.boot
				c.report(vm, vm.condition, "kubelet")
			}
		case vm.joined && vm.reported != Dead && now.Sub(vm.heard) >= grace:
			c.report(vm, Dead, "node-lifecycle")
		}
	}
}

// report writes the conditions of the node.
func (c *Cloud) report(vm *vm, condition Condition, by string) {
	vm.reported = condition
	ready, deadlock := corev1.ConditionTrue, corev1.ConditionFalse
	switch condition {
	case NotReady:
		ready = corev1.ConditionFalse
	case Deadlocked:
		deadlock = corev1.ConditionTrue
	case Dead:
		ready = corev1.ConditionUnknown
	}
	_, _ = c.shoot.Update(by, nodeKey(vm.machine), true, func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		node := fromUnstructured[corev1.Node](object)
		setCondition(node, corev1.NodeReady, ready)
		if condition != Dead { // nobody else knows of it
			setCondition(node, kernelDeadlock, deadlock)
			node.Status.NodeInfo.BootID = vm.bootID()
		}
		return toUnstructured(node), nil
	})
	taint := map[Condition]string{NotReady: corev1.TaintNodeNotReady, Dead: corev1.TaintNodeUnreachable}[condition]
	_, _ = c.shoot.Update("node-lifecycle", nodeKey(vm.machine), false, func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		node := fromUnstructured[corev1.Node](object)
		node.Spec.Taints = slices.DeleteFunc(node.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable
		})
		if taint != "" {
			node.Spec.Taints = append(node.Spec.Taints,
				corev1.Taint{Key: taint, Effect: corev1.TaintEffectNoSchedule}, corev1.Taint{Key: taint, Effect: corev1.TaintEffectNoExecute, TimeAdded: new(metav1.Now())})
		}
		return toUnstructured(node), nil
	})
}

const kernelDeadlock corev1.NodeConditionType = "KernelDeadlock"

func setCondition(node *corev1.Node, conditionType corev1.NodeConditionType, status corev1.ConditionStatus) {
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == conditionType })
	if i < 0 {
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: conditionType})
		i = len(node.Status.Conditions) - 1
	}
	c := &node.Status.Conditions[i]
	if c.Status != status {
		c.Status, c.LastTransitionTime = status, metav1.Now()
	}
	c.LastHeartbeatTime = metav1.Now()
}

func nodeKey(name string) key { return key{resource: "nodes", name: name} }

func toUnstructured(object any) *unstructured.Unstructured {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		panic(err)
	}
	return &unstructured.Unstructured{Object: fields}
}

func fromUnstructured[T any](object *unstructured.Unstructured) *T {
	typed := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed); err != nil {
		panic(err)
	}
	return typed
}

// account is the cloud as one life of a process uses it.
type account struct {
	*Cloud

	life *Life
}

func (a account) call(duration time.Duration) error {
	time.Sleep(duration)
	a.mutex.Lock()
	defer a.mutex.Unlock()
	switch {
	case a.life.ctx.Err() != nil:
		return errDead
	case a.away:
		return errCloud
	}
	return nil
}

// CreateVM implements mcm.Cloud.
func (a account) CreateVM(machine string) (id, node string, err error) {
	if err := a.call(creationTime); err != nil {
		return "", "", err
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if a.find(machine) == nil {
		a.count++
		id := fmt.Sprintf("%s/%d", a.provision(machine), a.count)
		created := &vm{machine: machine, id: id, number: a.count, condition: Healthy, off: true} // its host is about to be powered on
		if a.stillborn > 0 {
			a.stillborn--
			created.condition = Dead
		}
		a.vms[machine] = created
	}
	return a.vms[machine].id, machine, nil
}

// FindVM implements mcm.Cloud.
func (a account) FindVM(machine string) (id, node string, err error) {
	if err := a.call(latency); err != nil {
		return "", "", err
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	if found := a.find(machine); found != nil {
		return found.id, machine, nil
	}
	return "", "", mcm.ErrNoVM
}

// DeleteVM implements mcm.Cloud.
func (a account) DeleteVM(machine string) error {
	if err := a.call(latency); err != nil {
		return err
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	found := a.find(machine)
	if found := a.vms[machine]; found != nil {
		found.condition, found.gone = Dead, true
		a.deprovision(machine)
	}
	if found == nil {
		return mcm.ErrNoVM
	}
	return nil
}

// ListVMs implements mcm.Cloud.
func (a account) ListVMs() (map[string]string, error) {
	if err := a.call(latency); err != nil {
		return nil, err
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	machines := map[string]string{}
	for machine, vm := range a.vms {
		if !vm.gone {
			machines[vm.id] = machine
		}
	}
	return machines, nil
}
