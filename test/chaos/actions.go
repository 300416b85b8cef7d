// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/simulator"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

const (
	kubeletDies = "kubelet dies"
	kernelHangs = "kernel hangs"
	nodeWanted  = "node asked for"
	nodeReboots = "node reboots under maintenance"
	cycleWanted = "power cycle asked for"
	longOutage  = "the shoot's API server is away for minutes"
	// calm is how long a container must have run before it is killed again: else it would be started with a delay.
	calm = 70 * time.Second
	// leastReplicas and mostReplicas are those of each pool.
	leastReplicas, mostReplicas = 2, 4
)

// action is a way in which something happens. do returns what was done, in words, or nothing if there was nothing to do
// it to.
type action struct {
	name   string
	weight int
	do     func(ctx context.Context, c *chaos, e event) (string, error)
}

var actions []action

func init() {
	actions = []action{
		{kubeletDies, 10, fail(simulator.KubeletDead)},
		{"node gets not ready", 4, fail(simulator.NodeNotReady)},
		{kernelHangs, 5, fail(simulator.KernelHang)},
		{"recovers", 18, recoverOne},
		{"request on the Node", 16, requestOnNode},
		{"request on the Machine", 4, requestOnMachine},
		{"expiry edited", 5, editExpiry},
		{"Node deleted", 1, deleteNode},
		{"Machine deleted", 1, deleteMachine},
		{"share changed", 3, changeShare},
		{"scaled", 3, scale},
		{"rolling update", 1, rollOut},
		{"new machine never joins", 2, addOneThatNeverJoins},
		{"kill -9 of the sidecar", 3, kill("machine-preservation-controller")},
		{"kill -9 of machine-controller-manager", 1, kill("machine-controller-manager")},
		{"kill -9 of the machine controller", 2, kill("machine-controller-manager-provider-local")},
		{"the shoot's API server is away for seconds", 2, shootAway(3*time.Second, 15*time.Second)},
		{nodeWanted, 16, askForNode},
		{"requestor is done", 8, deleteMaintenance},
		{"requestor joins or leaves", 3, shareMaintenance},
		{"requestor fails or goes on", 3, failRequestor},
		{nodeReboots, 12, rebootMaintained},
		{"somebody uncordons", 3, uncordon},
		{cycleWanted, 16, askForPowerCycle},
		{"power cycle withdrawn", 2, withdrawOnePowerCycle},
		{"host misbehaves or obeys", 6, misbehave},
		// Once, see schedule: longer than machine-controller-manager's safety timeout (30s, looked at once a minute).
		{longOutage, 0, shootAway(150*time.Second, 200*time.Second)},
	}
}

// one chooses a machine for which it holds.
func (c *chaos) one(ctx context.Context, e event, holds func(*machinev1alpha1.Machine) bool) (*machinev1alpha1.Machine, error) {
	machines, err := c.machines(ctx)
	if err != nil {
		return nil, err
	}
	var suitable []*machinev1alpha1.Machine
	for i := range machines {
		if holds(&machines[i]) {
			suitable = append(suitable, &machines[i])
		}
	}
	if len(suitable) == 0 {
		return nil, nil
	}
	return suitable[e.of(len(suitable))], nil
}

func (c *chaos) isBroken(name string) bool {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	return c.broken[name]
}

func hasNode(m *machinev1alpha1.Machine) bool {
	return m.Labels[machinev1alpha1.NodeLabelKey] != "" && m.Status.CurrentStatus.Phase != machinev1alpha1.MachinePending && m.Status.CurrentStatus.Phase != ""
}

func kept(m *machinev1alpha1.Machine) bool { return m.Annotations[v1alpha1.AnnotationCause] != "" }

// inject makes a machine fail, or recover with nil.
func (c *chaos) inject(ctx context.Context, machine string, failure any) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "machine-" + machine, Namespace: c.machineNamespace}}
	return c.annotate(ctx, c.seed, pod, map[string]any{simulator.FailureAnnotation: failure})
}

func fail(failure simulator.Failure) func(context.Context, *chaos, event) (string, error) {
	return func(ctx context.Context, c *chaos, e event) (string, error) {
		m, err := c.one(ctx, e, func(m *machinev1alpha1.Machine) bool { return hasNode(m) && !c.isBroken(m.Name) })
		if m == nil {
			return "", err
		}
		return m.Name, c.hurt(ctx, m.Name, failure)
	}
}

// hurt makes a machine fail.
func (c *chaos) hurt(ctx context.Context, machine string, failure simulator.Failure) error {
	c.oracle.breaks(machine, string(failure), time.Now())
	c.mutex.Lock()
	c.broken[machine] = true
	c.mutex.Unlock()
	return c.inject(ctx, machine, string(failure))
}

func recoverOne(ctx context.Context, c *chaos, e event) (string, error) {
	m, err := c.one(ctx, e, func(m *machinev1alpha1.Machine) bool { return c.isBroken(m.Name) })
	if m == nil {
		return "", err
	}
	return m.Name, c.heal(ctx, m.Name)
}

// heal lets a machine recover. The power of its host it does not switch.
func (c *chaos) heal(ctx context.Context, machine string) error {
	c.oracle.breaks(machine, "", time.Now())
	err := c.inject(ctx, machine, nil)
	if client.IgnoreNotFound(err) == nil {
		c.mutex.Lock()
		delete(c.broken, machine)
		c.mutex.Unlock()
	}
	return err
}

// requests are those that people make, with a timeout or none, nil for none at all. Most are good ones.
var requests = [][2]any{
	{"now", nil}, {"now", nil}, {"now", "20s"}, {"now", "90s"}, {"now", "soon"}, {"true", nil},
	{"when-failed", nil}, {"when-failed", "8m"}, {"when-failed", "45s"}, {"when-failed", "-1h"},
	{"false", nil}, {"false", nil}, {nil, nil}, {nil, nil}, {nil, nil}, {"", nil}, {"nwo", nil}, {"when failed", "5m"},
}

func requestOnNode(ctx context.Context, c *chaos, e event) (string, error) {
	m, err := c.one(ctx, e, hasNode)
	if m == nil {
		return "", err
	}
	node, err := c.node(ctx, m)
	if node == nil {
		return "", err
	}
	return c.request(ctx, c.shoot, m, node, e)
}

func requestOnMachine(ctx context.Context, c *chaos, e event) (string, error) {
	m, err := c.one(ctx, e, func(*machinev1alpha1.Machine) bool { return true })
	if m == nil {
		return "", err
	}
	return c.request(ctx, c.seed, m, m, e)
}

func (c *chaos) request(ctx context.Context, in client.Client, m *machinev1alpha1.Machine, object client.Object, e event) (string, error) {
	request := requests[(e.which>>16)%uint64(len(requests))]
	text := fmt.Sprintf("request %v, timeout %v on %T", request[0], request[1], object)
	// Also `now` may end what `when-failed` has begun, and the other way round.
	c.oracle.did(m.Name, rules.Requested, text, time.Now())
	return m.Name + " " + text, c.annotate(ctx, in, object, map[string]any{v1alpha1.AnnotationPreserve: request[0], v1alpha1.AnnotationTimeout: request[1]})
}

// editExpiry does what operators do, where the expiry counts.
func editExpiry(ctx context.Context, c *chaos, e event) (string, error) {
	m, err := c.one(ctx, e, kept)
	if m == nil {
		return "", err
	}
	expiry := time.Now().Add(e.between(5*time.Second, 2*time.Minute)).Truncate(time.Second)
	text := "expiry " + expiry.UTC().Format(time.RFC3339)
	c.oracle.did(m.Name, rules.ExpiryEdited, text, time.Now())
	if m.Status.CurrentStatus.PreserveExpiryTime == nil {
		return m.Name + " " + text, c.annotate(ctx, c.seed, m, map[string]any{v1alpha1.AnnotationExpiryTime: expiry.UTC().Format(time.RFC3339)})
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	patch := client.MergeFrom(m.DeepCopy())
	m.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: expiry}
	return m.Name + " " + text, c.seed.Status().Patch(ctx, m, patch)
}

func deleteNode(ctx context.Context, c *chaos, e event) (string, error) {
	m, err := c.one(ctx, e, hasNode)
	if m == nil {
		return "", err
	}
	node, err := c.node(ctx, m)
	if node == nil {
		return "", err
	}
	c.oracle.did(m.Name, rules.Orphaned, string(rules.Orphaned), time.Now())
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return m.Name, c.shoot.Delete(ctx, node)
}

func deleteMachine(ctx context.Context, c *chaos, e event) (string, error) {
	m, err := c.one(ctx, e, func(*machinev1alpha1.Machine) bool { return true })
	if m == nil {
		return "", err
	}
	c.oracle.did(m.Name, rules.Deleted, string(rules.Deleted), time.Now())
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return m.Name, c.seed.Delete(ctx, m)
}

// changeShare writes autoPreserveFailedMax of a pool into the provider configuration.
func changeShare(ctx context.Context, c *chaos, e event) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	extension := &extensionsv1alpha1.Extension{}
	if err := c.seed.Get(ctx, client.ObjectKey{Namespace: c.namespace, Name: v1alpha1.ExtensionType}, extension); err != nil {
		return "", err
	}
	config := &v1alpha1.MachinePreservationConfig{}
	if err := json.Unmarshal(extension.Spec.ProviderConfig.Raw, config); err != nil {
		return "", err
	}
	pool := &config.Workers[e.of(len(config.Workers))]
	pool.MachineControllerManager.AutoPreserveFailedMax = new(int32((e.which >> 16) % 3)) // #nosec G115 -- below 3
	raw, err := json.Marshal(config)
	if err != nil {
		return "", err
	}
	patch := client.MergeFrom(extension.DeepCopy())
	extension.Spec.ProviderConfig = &runtime.RawExtension{Raw: raw}
	return fmt.Sprintf("%s to %d", pool.Name, *pool.MachineControllerManager.AutoPreserveFailedMax), c.seed.Patch(ctx, extension, patch)
}

// changeDeployment changes a MachineDeployment. change returns what it does.
func (c *chaos) changeDeployment(ctx context.Context, e event, change func(*machinev1alpha1.MachineDeployment) string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list := &machinev1alpha1.MachineDeploymentList{}
	if err := c.seed.List(ctx, list, client.InNamespace(c.namespace)); err != nil {
		return "", err
	}
	d := &list.Items[e.of(len(list.Items))]
	patch := client.MergeFrom(d.DeepCopy())
	text := change(d)
	return d.Name + text, c.seed.Patch(ctx, d, patch)
}

func scale(ctx context.Context, c *chaos, e event) (string, error) {
	return c.changeDeployment(ctx, e, func(d *machinev1alpha1.MachineDeployment) string {
		d.Spec.Replicas = leastReplicas + int32((e.which>>16)%(mostReplicas-leastReplicas+1)) // #nosec G115 -- at most mostReplicas
		return fmt.Sprintf(" to %d", d.Spec.Replicas)
	})
}

// rollOut rolls one MachineDeployment at a time: nothing is preserved there meanwhile.
func rollOut(ctx context.Context, c *chaos, e event) (string, error) {
	if c.oracle.rolling() {
		return "", nil
	}
	return c.changeDeployment(ctx, e, func(d *machinev1alpha1.MachineDeployment) string {
		c.oracle.rollsOut(d.Name, time.Now())
		metav1.SetMetaDataAnnotation(&d.Spec.Template.ObjectMeta, "chaos", strconv.FormatUint(e.which, 16))
		return ""
	})
}

// addOneThatNeverJoins scales a pool up while no new machine joins.
func addOneThatNeverJoins(ctx context.Context, c *chaos, e event) (string, error) {
	if err := c.neverJoin(ctx, true); err != nil {
		return "", err
	}
	time.AfterFunc(10*time.Second, func() {
		if err := c.neverJoin(context.WithoutCancel(ctx), false); err != nil {
			c.say(fmt.Sprintf("- new machines cannot join: %v", err))
		}
	})
	return c.changeDeployment(ctx, e, func(d *machinev1alpha1.MachineDeployment) string {
		d.Spec.Replicas = min(d.Spec.Replicas+1, mostReplicas)
		return ""
	})
}

func (c *chaos) neverJoin(ctx context.Context, never bool) error {
	var value any
	if never {
		value = string(simulator.NeverJoins)
	}
	return c.annotate(ctx, c.seed, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: c.namespace}}, map[string]any{simulator.FailureAnnotation: value})
}

// kill ends a container as a crash does. The process runner starts it again.
func kill(container string) func(context.Context, *chaos, event) (string, error) {
	return func(ctx context.Context, c *chaos, _ event) (string, error) {
		if time.Since(c.killed[container]) < calm {
			return "", nil
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		pods := &corev1.PodList{}
		if err := c.seed.List(ctx, pods, client.InNamespace(c.namespace)); err != nil {
			return "", err
		}
		for _, pod := range pods.Items {
			for _, status := range pod.Status.ContainerStatuses {
				_, id, ok := strings.Cut(status.ContainerID, "://")
				if status.Name != container || !ok || status.State.Running == nil {
					continue
				}
				pid, err := strconv.Atoi(id)
				if err != nil {
					return "", fmt.Errorf("container %s of pod %s has id %q: %w", container, pod.Name, status.ContainerID, err)
				}
				c.killed[container] = time.Now()
				if container == "machine-preservation-controller" {
					c.oracle.killedSidecar(time.Now())
				}
				return "process " + id, syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		return "", nil
	}
}

func shootAway(least, most time.Duration) func(context.Context, *chaos, event) (string, error) {
	return func(_ context.Context, c *chaos, e event) (string, error) {
		c.mutex.Lock()
		defer c.mutex.Unlock()
		if c.back != nil {
			return "", nil
		}
		duration := e.between(least, most).Round(time.Second)
		c.oracle.shootAway(true, time.Now())
		thaw, err := c.landscape.FreezeShoot()
		if err != nil {
			return "", err
		}
		c.back = func() {
			if err := thaw(); err != nil {
				c.say(fmt.Sprintf("- the shoot's API server does not come back: %v", err))
			}
			c.oracle.shootAway(false, time.Now())
			c.say("- the shoot's API server is back")
		}
		time.AfterFunc(duration, c.endOutage)
		return duration.String(), nil
	}
}

// endOutage brings the shoot's API server back if it is away.
func (c *chaos) endOutage() {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	if c.back != nil {
		c.back()
		c.back = nil
	}
}
