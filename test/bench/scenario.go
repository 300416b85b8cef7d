// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
)

const (
	// fewMachines is the size of a small shoot, of which a seed has many.
	fewMachines = 10
	// idlePeriod is longer than the two minutes after which Go's runtime collects what is left of a busier time.
	idlePeriod = 150 * time.Second
	// preservedWhileIdle is the number of machines that are preserved in the meantime.
	preservedWhileIdle = 5
	burst              = 5
	// releasedMachines is the number of running machines whose preservations are counted from beginning to end.
	releasedMachines = 10
	// releasedAfter is for how long they are preserved.
	releasedAfter = 30 * time.Second
	drainedPods   = 30
	podGrace      = 5
	// afterDeadline is for how long the holds of failed machines are waited for once their deadline has passed.
	afterDeadline = 90 * time.Second
	// endTimeout is for how long the end of a failed machine's preservation is waited for, from its failure on.
	endTimeout = 4 * time.Minute
	// trailing is for how long writes may follow what was waited for.
	trailing = 3 * time.Second

	// failingCondition is one for which machine-controller-manager takes a machine for unhealthy while its kubelet lives.
	failingCondition = "KernelDeadlock"
)

// measurement is what is measured on one landscape.
type measurement struct {
	*bench
	*results
	seen *sightings
	// idleFrom is when the idle time began.
	idleFrom time.Time
	episodes []*episode
	// control is of a machine that fails and is not preserved.
	control *episode
}

// episode is the preservation of one machine.
type episode struct {
	cause   string
	machine *machinev1alpha1.Machine
	// from is when it was asked for, or when the machine failed.
	from time.Time
	// ended says that its end was seen.
	ended bool
}

// measure takes all measures, those that could disturb each other one after the other.
func (b *bench) measure(ctx context.Context) (*results, error) {
	m := &measurement{bench: b, results: &results{machines: b.machines, writes: map[string]lifetime{}}, seen: newSightings(!b.sidecar)}
	if err := b.populate(ctx, fewMachines); err != nil {
		return nil, err
	}
	if err := m.measureFew(ctx); err != nil {
		return nil, err
	}
	if err := b.populate(ctx, b.machines); err != nil {
		return nil, err
	}
	if err := m.seen.observe(ctx, b); err != nil {
		return nil, err
	}
	many, err := b.machinesOf(ctx, poolMany)
	if err != nil {
		return nil, err
	}
	few, err := b.machinesOf(ctx, poolFew)
	if err != nil {
		return nil, err
	}
	take := func(count int) []machinev1alpha1.Machine {
		taken := many[:count]
		many = many[count:]
		return taken
	}

	if err := m.measureIdle(ctx, take(preservedWhileIdle)); err != nil {
		return nil, err
	}
	if err := m.measureProtection(ctx, take(sampleOf(b.machines))); err != nil {
		return nil, err
	}
	if err := m.measureFailures(ctx, few, take(sampleOf(b.machines)), take(releasedMachines)); err != nil {
		return nil, err
	}
	if err := m.countWrites(); err != nil {
		return nil, err
	}
	if err := m.measureMemory(&m.atEnd); err != nil || !m.sidecar {
		return m.results, err
	}
	return m.results, m.measureMaintenances(ctx, take(sampleOf(b.machines)))
}

// measureFew measures the memory that a small shoot takes.
func (m *measurement) measureFew(ctx context.Context) error {
	landscape.Say("Nothing happens for %s", idlePeriod)
	if err := pause(ctx, idlePeriod); err != nil {
		return err
	}
	if err := m.measureMemory(&m.few); err != nil {
		return err
	}
	for _, name := range m.containers() {
		landscape.Say("%s: resident, of which anonymous: %s", name, m.few[name])
	}
	return nil
}

// measureIdle measures what it costs that a few machines are preserved and nothing happens.
func (m *measurement) measureIdle(ctx context.Context, preserved []machinev1alpha1.Machine) error {
	names, err := m.names(ctx)
	if err != nil {
		return err
	}
	if _, err := m.protect(ctx, preserved); err != nil {
		return err
	}
	if err := m.quiet(ctx, 10*time.Second); err != nil {
		return err
	}

	landscape.Say("Nothing happens for %s while %d machines are preserved", idlePeriod, len(preserved))
	before, err := m.cpu()
	if err != nil {
		return err
	}
	m.idleFrom = time.Now()
	if err := pause(ctx, idlePeriod); err != nil {
		return err
	}
	after, err := m.cpu()
	if err != nil {
		return err
	}
	m.idle.cpu = map[string]time.Duration{}
	for name := range after {
		m.idle.cpu[name] = after[name] - before[name]
	}
	if err := m.measureMemory(&m.idle.memory); err != nil {
		return err
	}
	for _, name := range m.containers() {
		memory := m.idle.memory[name]
		landscape.Say("%s: resident, of which anonymous: %s, %s at its peak, %s on a core", name, memory, mebibytes(memory.peak), m.idle.cpu[name])
	}
	return m.unchanged(ctx, names)
}

// measureProtection measures how long it takes until a Node is protected from the cluster-autoscaler: half of them one by
// one, the others in small bursts. In the end all are as they were.
func (m *measurement) measureProtection(ctx context.Context, machines []machinev1alpha1.Machine) error {
	landscape.Say("%d machines are asked for", len(machines))
	for rest, size := machines, 1; len(rest) > 0; rest = rest[min(size, len(rest)):] {
		if len(rest) <= len(machines)/2 {
			size = burst
		}
		protected, err := m.protect(ctx, rest[:min(size, len(rest))])
		if err != nil {
			return err
		}
		m.protections = append(m.protections, protected...)
	}
	landscape.Say("Their nodes were protected after %s (p50), %s (p99)", milliseconds(percentile(m.protections.took(), 50)), milliseconds(percentile(m.protections.took(), 99)))

	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range machines {
		group.Go(func() error {
			return m.annotate(groupCtx, &machines[i], map[string]any{v1alpha1.AnnotationPreserve: nil})
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for i := range machines {
		if err := m.untilReleased(ctx, &machines[i]); err != nil {
			return err
		}
	}
	return m.quiet(ctx, 5*time.Second)
}

// protect asks for machines at the same time, and returns for each how long it took until its Node was seen to be
// protected, from the moment in which the annotation was sent.
func (m *measurement) protect(ctx context.Context, machines []machinev1alpha1.Machine) (protections, error) {
	all := make(protections, len(machines))
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range machines {
		protected := m.seen.expectProtection(nodeOf(&machines[i]))
		group.Go(func() error {
			sent := time.Now()
			if err := m.ask(groupCtx, &machines[i], v1alpha1.RequestNow); err != nil {
				return err
			}
			select {
			case sighting := <-protected:
				all[i] = protection{took: sighting.at.Sub(sent), agent: sighting.agent}
				return nil
			case <-groupCtx.Done():
				return groupCtx.Err()
			case <-time.After(patience):
				return fmt.Errorf("node %s was not protected within %s", nodeOf(&machines[i]), patience)
			}
		})
	}
	return all, group.Wait()
}

// measureFailures lets machines fail: a few one by one, and many at the same time. While their deadlines are waited for,
// running machines are preserved and released.
func (m *measurement) measureFailures(ctx context.Context, few, many, running []machinev1alpha1.Machine) error {
	if len(few) < 4 {
		return fmt.Errorf("pool %s has %d machines only", poolFew, len(few))
	}
	var (
		auto       = &episode{cause: v1alpha1.CauseAuto, machine: &few[0]}
		whenFailed = &episode{cause: v1alpha1.CauseWhenFailed, machine: &few[1]}
		drained    = &few[2]
	)
	m.control = &episode{machine: &few[3]}
	m.episodes = append(m.episodes, auto, whenFailed)

	if err := m.startPods(ctx, drained); err != nil {
		return err
	}
	whenFailed.from = time.Now()
	ask := m.ask
	if !m.sidecar {
		// When it is asked on a Node for a machine that fails, machine-controller-manager looks at it within ten minutes
		// only, and its controllers undo each other's annotations while a place for another machine is free.
		ask = m.askOnMachine
	}
	if err := errors.Join(
		ask(ctx, whenFailed.machine, v1alpha1.RequestWhenFailed),
		ask(ctx, m.control.machine, v1alpha1.RequestFalse),
	); err != nil {
		return err
	}
	if err := m.quiet(ctx, trailing); err != nil {
		return err
	}

	landscape.Say("%d machines fail, and %d at once", len(few), len(many))
	auto.from, m.control.from = time.Now(), time.Now()
	for _, machines := range [][]machinev1alpha1.Machine{few, many} {
		if err := m.fail(ctx, machines); err != nil {
			return err
		}
	}
	group, groupCtx := errgroup.WithContext(ctx)
	for _, failed := range []*episode{auto, whenFailed, m.control} {
		group.Go(func() error { return m.untilGone(groupCtx, failed) })
	}
	group.Go(func() error { return m.measureDrain(groupCtx, drained) })
	group.Go(func() error { return m.measureHolds(groupCtx, many) })
	for i := range running {
		released := &episode{cause: v1alpha1.CauseNow, machine: &running[i]}
		m.episodes = append(m.episodes, released)
		group.Go(func() error { return m.preserveAndRelease(groupCtx, released) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return pause(ctx, trailing)
}

// fail makes the nodes of machines unhealthy, as many as possible at the same time.
func (m *measurement) fail(ctx context.Context, machines []machinev1alpha1.Machine) error {
	now := metav1.Now().UTC().Format(time.RFC3339)
	patch := fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"status":"True","reason":"Bench","message":"the kernel is stuck","lastHeartbeatTime":%q,"lastTransitionTime":%q}]}}`,
		failingCondition, now, now)
	group, groupCtx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i := range machines {
		m.seen.expectFailure(machines[i].Name)
		group.Go(func() error {
			node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeOf(&machines[i])}}
			return m.shoot.Status().Patch(groupCtx, node, client.RawPatch(types.StrategicMergePatchType, patch))
		})
	}
	return group.Wait()
}

// measureHolds measures how long before their deadlines machines were held that failed at once.
func (m *measurement) measureHolds(ctx context.Context, machines []machinev1alpha1.Machine) error {
	if err := until(ctx, "machine-controller-manager has noticed all failures", patience, func(context.Context) (bool, error) {
		for i := range machines {
			if m.seen.failure(machines[i].Name).deadline.IsZero() {
				return false, nil
			}
		}
		return true, nil
	}); err != nil {
		return err
	}
	var last time.Time
	for i := range machines {
		if deadline := m.seen.failure(machines[i].Name).deadline; deadline.After(last) {
			last = deadline
		}
	}

	for m.held(machines) < len(machines) && time.Since(last) < afterDeadline {
		if err := pause(ctx, time.Second); err != nil {
			return err
		}
	}
	for i := range machines {
		if failure := m.seen.failure(machines[i].Name); failure.held.IsZero() {
			m.notHeld++
		} else {
			m.leads = append(m.leads, failure.deadline.Sub(failure.held))
		}
	}
	landscape.Say("Of %d machines that failed at once %d were held: %s before the deadline (min), %s (p50)", len(machines), len(m.leads), seconds(percentile(m.leads, 0)), seconds(percentile(m.leads, 50)))
	return nil
}

func (m *measurement) held(machines []machinev1alpha1.Machine) int {
	held := 0
	for i := range machines {
		if !m.seen.failure(machines[i].Name).held.IsZero() {
			held++
		}
	}
	return held
}

// startPods starts Pods on the node of a machine.
func (m *measurement) startPods(ctx context.Context, machine *machinev1alpha1.Machine) error {
	group, groupCtx := errgroup.WithContext(ctx)
	for i := range drainedPods {
		group.Go(func() error {
			return m.shoot.Create(groupCtx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("bench-%d", i), Namespace: metav1.NamespaceDefault},
				Spec: corev1.PodSpec{
					Containers:                    []corev1.Container{{Name: "pause", Image: "registry.k8s.io/pause:3.10"}},
					NodeName:                      nodeOf(machine),
					TerminationGracePeriodSeconds: new(int64(podGrace)),
				},
			})
		})
	}
	if err := group.Wait(); err != nil {
		return fmt.Errorf("could not start pods: %w", err)
	}
	return until(ctx, fmt.Sprintf("%d pods run on node %s", drainedPods, nodeOf(machine)), patience, func(ctx context.Context) (bool, error) {
		pods := &corev1.PodList{}
		err := m.shootCache.List(ctx, pods)
		running := 0
		for i := range pods.Items {
			if pods.Items[i].Status.Phase == corev1.PodRunning {
				running++
			}
		}
		return running == drainedPods, err
	})
}

// measureDrain measures how long after the deadline the last Pod of the machine is gone.
func (m *measurement) measureDrain(ctx context.Context, machine *machinev1alpha1.Machine) error {
	if err := until(ctx, fmt.Sprintf("node %s is drained", nodeOf(machine)), patience, func(context.Context) (bool, error) {
		pods, _ := m.seen.podsOf(nodeOf(machine))
		return pods == 0, nil
	}); err != nil {
		return err
	}
	_, last := m.seen.podsOf(nodeOf(machine))
	m.drain = last.Sub(m.seen.failure(machine.Name).deadline)
	landscape.Say("The last of %d pods was gone %s after the deadline of its machine", drainedPods, seconds(m.drain))
	return nil
}

// preserveAndRelease asks for a running machine, withdraws the request and waits until the preservation has ended.
func (m *measurement) preserveAndRelease(ctx context.Context, e *episode) error {
	e.from = time.Now()
	if err := m.ask(ctx, e.machine, v1alpha1.RequestNow); err != nil {
		return err
	}
	if err := pause(ctx, releasedAfter); err != nil {
		return err
	}
	if err := m.annotate(ctx, e.machine, map[string]any{v1alpha1.AnnotationPreserve: nil}); err != nil {
		return err
	}
	if err := m.untilReleased(ctx, e.machine); err != nil {
		return err
	}
	e.ended = true
	return nil
}

// untilGone waits until a failed machine is deleted. That machine-controller-manager does not do it in time is no error.
func (m *measurement) untilGone(ctx context.Context, e *episode) error {
	err := until(ctx, fmt.Sprintf("machine %s is deleted", e.machine.Name), endTimeout, func(context.Context) (bool, error) {
		e.ended = !m.seen.failure(e.machine.Name).gone.IsZero()
		return e.ended, nil
	})
	if ctx.Err() == nil && !m.sidecar {
		return nil
	}
	return err
}

// untilReleased waits until neither the Machine nor its Node shows that it is preserved.
func (m *measurement) untilReleased(ctx context.Context, machine *machinev1alpha1.Machine) error {
	return until(ctx, fmt.Sprintf("machine %s is released", machine.Name), patience, func(ctx context.Context) (bool, error) {
		fresh, node := &machinev1alpha1.Machine{}, &corev1.Node{}
		err := errors.Join(
			m.seedCache.Get(ctx, client.ObjectKeyFromObject(machine), fresh),
			m.shootCache.Get(ctx, client.ObjectKey{Name: nodeOf(machine)}, node),
		)
		return fresh.Status.CurrentStatus.PreserveExpiryTime == nil && fresh.Annotations[v1alpha1.AnnotationPhase] == "" && !isProtected(node), err
	})
}

// ask requests the preservation of a machine on its Node.
func (b *bench) ask(ctx context.Context, machine *machinev1alpha1.Machine, request string) error {
	return b.annotate(ctx, machine, map[string]any{v1alpha1.AnnotationPreserve: request})
}

// askOnMachine requests the preservation of a machine on the Machine itself.
func (b *bench) askOnMachine(ctx context.Context, machine *machinev1alpha1.Machine, request string) error {
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q}}}`, v1alpha1.AnnotationPreserve, request)
	if err := b.seed.Patch(ctx, machine.DeepCopy(), client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("could not annotate machine %s: %w", machine.Name, err)
	}
	return nil
}

// annotate sets annotations of the machine's Node; nil removes one.
func (b *bench) annotate(ctx context.Context, machine *machinev1alpha1.Machine, annotations map[string]any) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return err
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeOf(machine)}}
	if err := b.shoot.Patch(ctx, node, client.RawPatch(types.MergePatchType, patch)); err != nil {
		return fmt.Errorf("could not annotate node %s: %w", node.Name, err)
	}
	return nil
}
