// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

const (
	// seedName is the name by which hosts know the seed.
	seedName = "seed-1"
	// powerTime is how long a host takes to switch its power.
	powerTime = 20 * time.Second
	// stepTime is how long each step of a power cycle may take, settledTime for how long a node is ready that is settled.
	stepTime, settledTime = 10 * time.Minute, 5 * time.Minute

	bmo = "bmo"
	// rebootPrefix is what all annotations begin with that ask for a host to be off.
	rebootPrefix = "reboot.metal3.io/"
	rebootOther  = rebootPrefix + "somebody-else"
)

func init() {
	resources["baremetalhosts"] = resource{
		GroupVersionKind: schema.GroupVersionKind{Group: "metal3.io", Version: "v1alpha1", Kind: "BareMetalHost"}, dropsStatus: true,
	}
}

func hostKey(name string) key { return key{"baremetalhosts", namespace, name} }

// host is what a VM runs on. It outlives it, and is given to the next one. Its object says what it is to be, and is.
type host struct {
	name string
	// machine is whose it is, empty for nobody's. Then it is off.
	machine string
	on      bool
	// since is since when its power is to be switched; zero if it is as it is to be.
	since time.Time
	// stubborn is until when it does not obey.
	stubborn time.Time
}

// provision gives a machine a host, and returns what its VM has as the beginning of its id.
func (c *Cloud) provision(machine string) string {
	i := slices.IndexFunc(c.hosts, func(h *host) bool { return h.machine == "" && !h.on })
	if i < 0 {
		i = len(c.hosts)
		c.hosts = append(c.hosts, &host{name: fmt.Sprintf("host-%d", i+1)})
		object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"online": true}}}
		if _, err := c.seed.Create(bmo, hostKey(c.hosts[i].name), object); err != nil {
			panic(err) // nobody else makes such names
		}
	}
	h := c.hosts[i]
	h.machine = machine
	c.editHost(h, "spec", map[string]any{"online": true, "consumerRef": map[string]any{
		"apiVersion": machineGroup.String(), "kind": "Machine", "namespace": namespace, "name": machine,
	}})
	c.reportHost(h)
	return "baremetalhost:///" + namespace + "/" + h.name
}

// deprovision takes the host from a machine.
func (c *Cloud) deprovision(machine string) {
	for _, h := range c.hosts {
		if h.machine == machine {
			h.machine = ""
			c.editHost(h, "spec", map[string]any{"online": true})
			c.reportHost(h)
		}
	}
}

func (c *Cloud) reportHost(h *host) {
	state := "provisioned"
	if h.machine == "" {
		state = "available"
	}
	c.editHost(h, "status", map[string]any{"poweredOn": h.on, "operationalStatus": "OK", "provisioning": map[string]any{"state": state}})
}

func (c *Cloud) editHost(h *host, field string, value map[string]any) {
	_, _ = c.seed.Update(bmo, hostKey(h.name), field == "status", func(object *unstructured.Unstructured) (*unstructured.Unstructured, error) {
		object = object.DeepCopy()
		object.Object[field] = value
		return object, nil
	})
}

// tickHosts switches the power of hosts as their objects say, each after some time.
func (c *Cloud) tickHosts() {
	now := time.Now()
	for _, h := range c.hosts {
		want := h.machine != ""
		if change := c.seed.Last(hostKey(h.name)); want && change != nil {
			for annotation := range change.Object.GetAnnotations() {
				want = want && !strings.HasPrefix(annotation, rebootPrefix)
			}
		}
		switch {
		case want == h.on:
			h.since = time.Time{}
		case h.since.IsZero():
			h.since = now
		case now.Before(h.stubborn) || now.Sub(h.since) < powerTime:
		default:
			h.on, h.since = want, time.Time{}
			if vm := c.find(h.machine); vm != nil {
				vm.power(h.on)
			}
			c.reportHost(h)
		}
	}
}

// power switches the VM off, or on: then it boots, and what was wrong with it is over, except if it never booted before.
func (v *vm) power(on bool) {
	if v.off = !on; !on {
		return
	}
	if v.boot++; v.boot > 1 {
		v.condition = Healthy
	}
	v.boots = time.Now().Add(bootTime)
}

// bootID returns that of a VM since it was booted last.
func (v *vm) bootID() string { return fmt.Sprintf("%08x-0000-4000-8000-%012x", v.number, v.boot) }

// stubborn has the host of a machine not obey for some time.
func (c *Cloud) stubborn(machine string, d time.Duration) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, h := range c.hosts {
		if h.machine == machine {
			h.stubborn = time.Now().Add(d)
		}
	}
}

// hostOf returns the name of the host of a machine, empty for none.
func (c *Cloud) hostOf(machine string) string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for _, h := range c.hosts {
		if h.machine == machine {
			return h.name
		}
	}
	return ""
}

// powerCycleSettings are those of the pool.
func powerCycleSettings(automatic bool) string {
	value := v1alpha1.AutomaticFalse
	if automatic {
		value = v1alpha1.AutomaticTrue
	}
	settings, err := json.Marshal(&v1alpha1.PowerCycle{Automatic: &value})
	if err != nil {
		panic(err)
	}
	return string(settings)
}
