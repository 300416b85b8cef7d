// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/share"
)

const (
	preserve       = "node.machine.sapcloud.io/preserve"
	lastApplied    = "node.machine.sapcloud.io/last-applied-node-preserve-value"
	prefix         = "machine-preservation.extensions.gardener.cloud/"
	scaleDown      = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	taintPreserved = "node.machine.sapcloud.io/preserved"

	failedPreserved  = "Failed:Preserved"
	runningPreserved = "Running:Preserved"

	// preserveTimeout is the machinePreserveTimeout of all pools, unless a scenario changes it.
	preserveTimeout = 72 * time.Hour

	pollInterval = time.Second
	// shortly is for how long something is watched that would happen at once if it happened.
	shortly = 5 * time.Second
)

// Pool is the worker pool of one scenario, or rather the MachineDeployment of its first zone.
type Pool struct {
	*shoot
	*WithT

	t        *testing.T
	ctx      context.Context
	report   *Report
	name     string
	scenario string
	settings settings
	// deploymentName is the name of the MachineDeployment, empty until it was chosen.
	deploymentName string
	// prefersNew has the pool prefer new failures, from when it is configured next.
	prefersNew bool
	// validation has the pool want a proof that machines work that are back, from when it is configured next.
	validation *v1alpha1.Validation
	// shared has all zones of the pool use the same places, from when it is configured next.
	shared bool
	// heals undo the faults of machines, by their names.
	heals map[string]func(context.Context) error
}

// prepare makes the pool ready: the share and the timeout are set, and there are two machines without any trace of an
// earlier scenario.
func (p *Pool) prepare(share int32) {
	p.t.Helper()
	p.configure(share, preserveTimeout)
	deployment := p.deployment(p)
	p.settings = p.defaults.of(deployment)
	p.mutex.Lock()
	if _, ok := p.replicas[deployment.Name]; !ok {
		p.replicas[deployment.Name] = deployment.Spec.Replicas
	}
	p.mutex.Unlock()

	p.scale(perZone)
	p.eventually(func(g Gomega) {
		machines := p.machines(g)
		found := map[string]string{}
		for i := range machines {
			what, deleted, err := p.clean(p.ctx, &machines[i])
			g.Expect(err).NotTo(HaveOccurred())
			if deleted {
				p.t.Logf("Machine %s is replaced: %s", machines[i].Name, what)
			}
			if what != "" {
				found[machines[i].Name] = what
			}
		}
		g.Expect(found).To(BeEmpty())
		g.Expect(machines).To(HaveLen(perZone))
		for i := range machines {
			g.Expect(machines[i].DeletionTimestamp).To(BeNil())
			g.Expect(machines[i].Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachineRunning))
			g.Expect(p.node(g, &machines[i])).To(withCondition(corev1.NodeReady, corev1.ConditionTrue))
		}
	})
}

// configure sets autoPreserveFailedMax such that the number is the share of the first zone, or that of all zones if these share it, and machinePreserveTimeout, and
// waits until the MachineDeployments have got them.
func (p *Pool) configure(number int32, timeout time.Duration) {
	p.t.Helper()
	total, sharedIn := sum(number, p.zones[p.name]), ""
	if p.shared {
		total, sharedIn = number, p.name
	}
	p.t.Logf("Pool %s: autoPreserveFailedMax %d, machinePreserveTimeout %s", p.name, total, timeout)
	p.eventually(func(g Gomega) { g.Expect(p.writeConfig(total, timeout)).To(Succeed()) })
	p.eventually(func(g Gomega) {
		placed, chosen := int32(0), p.deploymentName
		for _, deployment := range p.deployments(g) {
			s, ok := share.Of(&deployment)
			g.Expect(ok).To(BeTrue(), "MachineDeployment %s has no share, see the Events of the Extension and the Worker", deployment.Name)
			g.Expect(s.MachinePreserveTimeout).To(Equal(timeout))
			g.Expect(s.PreferNewFailures).To(Equal(p.prefersNew))
			g.Expect(s.SharedIn).To(Equal(sharedIn))
			settings, err := v1alpha1.PowerCycleOf(&deployment)
			g.Expect(err).NotTo(HaveOccurred())
			g.Expect(settings).To(Equal(p.powerCycle()))
			g.Expect(s.Validation).To(Equal(p.validation))
			if placed += s.AutoPreserveFailedMax; p.shared {
				placed = s.AutoPreserveFailedMax
			}
			if chosen == "" && s.AutoPreserveFailedMax == number {
				chosen = deployment.Name
			}
			if chosen == deployment.Name {
				g.Expect(s.AutoPreserveFailedMax).To(Equal(number))
			}
		}
		g.Expect(placed).To(Equal(total))
		p.deploymentName = chosen
	})
}

// writeConfig writes the settings of the pool into the provider configuration.
func (p *Pool) writeConfig(total int32, timeout time.Duration) error {
	return p.editConfig(func(config *v1alpha1.MachinePreservationConfig) {
		config.Workers = append(slices.DeleteFunc(config.Workers, func(w v1alpha1.Worker) bool { return w.Name == p.name }), v1alpha1.Worker{
			Name: p.name,
			MachineControllerManager: &v1alpha1.MachineControllerManagerSettings{
				AutoPreserveFailedMax:  &total,
				MachinePreserveTimeout: &metav1.Duration{Duration: timeout},
				PreferNewFailures:      &p.prefersNew,
			},
			PowerCycle: p.powerCycle(),
			Validation: p.validation,
		})
		if p.shared {
			config.Workers[len(config.Workers)-1].MachineControllerManager.Distribution = new(v1alpha1.DistributionPool)
		}
	})
}

// editConfig edits the provider configuration, which all pools share.
func (p *Pool) editConfig(edit func(*v1alpha1.MachinePreservationConfig)) error {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	extension, err := p.extension(p.ctx)
	if err != nil {
		return err
	}
	config := &v1alpha1.MachinePreservationConfig{}
	if extension.Spec.ProviderConfig != nil {
		if err := json.Unmarshal(extension.Spec.ProviderConfig.Raw, config); err != nil {
			return fmt.Errorf("could not decode the provider configuration: %w", err)
		}
	}
	config.TypeMeta = metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: "MachinePreservationConfig"}
	edit(config)
	raw, err := json.Marshal(config)
	if err != nil {
		return err
	}
	patch := client.MergeFromWithOptions(extension.DeepCopy(), client.MergeFromWithOptimisticLock{})
	extension.Spec.ProviderConfig = &runtime.RawExtension{Raw: raw}
	return p.Seed.Patch(p.ctx, extension, patch)
}

// deployments returns the MachineDeployments of all zones of the pool, in the order of their names.
func (p *Pool) deployments(g Gomega) []machinev1alpha1.MachineDeployment {
	deployments := &machinev1alpha1.MachineDeploymentList{}
	g.Expect(p.Seed.List(p.ctx, deployments, client.InNamespace(p.Namespace))).To(Succeed())
	own := slices.DeleteFunc(deployments.Items, func(d machinev1alpha1.MachineDeployment) bool { return share.PoolOf(&d) != p.name })
	g.Expect(own).NotTo(BeEmpty())
	return slices.SortedFunc(slices.Values(own), func(a, b machinev1alpha1.MachineDeployment) int { return cmp.Compare(a.Name, b.Name) })
}

// deployment returns the MachineDeployment that the scenario has for itself.
func (p *Pool) deployment(g Gomega) *machinev1alpha1.MachineDeployment {
	deployment := &machinev1alpha1.MachineDeployment{}
	g.Expect(p.Seed.Get(p.ctx, client.ObjectKey{Namespace: p.Namespace, Name: p.deploymentName}, deployment)).To(Succeed())
	return deployment
}

// scale sets the number of machines.
func (p *Pool) scale(replicas int32) {
	p.t.Helper()
	p.t.Logf("MachineDeployment %s: %d replicas", p.deploymentName, replicas)
	deployment := p.deployment(p)
	patch := client.MergeFrom(deployment.DeepCopy())
	deployment.Spec.Replicas = replicas
	p.Expect(p.Seed.Patch(p.ctx, deployment, patch)).To(Succeed())
}

// machines returns the machines, the oldest first.
func (p *Pool) machines(g Gomega) []machinev1alpha1.Machine {
	machines, err := p.machinesOf(p.ctx, p.deployment(g))
	g.Expect(err).NotTo(HaveOccurred())
	return machines
}

// elsewhere returns a machine of another zone of the pool that runs, nil if there is none.
func (p *Pool) elsewhere(g Gomega) *machinev1alpha1.Machine {
	for _, deployment := range p.deployments(g) {
		if deployment.Name == p.deploymentName {
			continue
		}
		machines, err := p.machinesOf(p.ctx, &deployment)
		g.Expect(err).NotTo(HaveOccurred())
		for i := range machines {
			if machines[i].DeletionTimestamp == nil && machines[i].Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning {
				return &machines[i]
			}
		}
	}
	return nil
}

func (s *shoot) machinesOf(ctx context.Context, deployment *machinev1alpha1.MachineDeployment) ([]machinev1alpha1.Machine, error) {
	selector, err := metav1.LabelSelectorAsSelector(deployment.Spec.Selector)
	if err != nil {
		return nil, err
	}
	machines := &machinev1alpha1.MachineList{}
	if err := s.Seed.List(ctx, machines, client.InNamespace(s.Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
		return nil, err
	}
	slices.SortFunc(machines.Items, func(a, b machinev1alpha1.Machine) int {
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
	return machines.Items, nil
}

// running waits for the given number of machines in phase Running with a Node, and returns them, the oldest first.
func (p *Pool) running(count int) []*machinev1alpha1.Machine {
	p.t.Helper()
	var running []*machinev1alpha1.Machine
	p.eventually(func(g Gomega) {
		running = nil
		for _, m := range p.machines(g) {
			if m.DeletionTimestamp == nil && m.Status.CurrentStatus.Phase == machinev1alpha1.MachineRunning {
				running = append(running, &m)
				g.Expect(p.node(g, &m)).NotTo(BeNil())
			}
		}
		g.Expect(running).To(HaveLen(count))
	})
	return running
}

// node returns the machine's node.
func (p *Pool) node(g Gomega, machine *machinev1alpha1.Machine) *corev1.Node {
	node := &corev1.Node{}
	g.Expect(p.Shoot.Get(p.ctx, client.ObjectKey{Name: machine.Labels[machinev1alpha1.NodeLabelKey]}, node)).To(Succeed())
	return node
}

// fresh reads the machine once more.
func (p *Pool) fresh(g Gomega, machine *machinev1alpha1.Machine) *machinev1alpha1.Machine {
	fresh := &machinev1alpha1.Machine{}
	g.Expect(p.Seed.Get(p.ctx, client.ObjectKeyFromObject(machine), fresh)).To(Succeed())
	return fresh
}

// fail makes a machine fail, or recover with NoFault.
func (p *Pool) fail(machine *machinev1alpha1.Machine, fault Fault) {
	p.t.Helper()
	if fault == KubeletDead && p.Inject == nil {
		fault = NodeCondition
	}
	p.t.Logf("Machine %s: fault %q", machine.Name, fault)
	switch fault {
	case NoFault:
		p.Expect(p.heals[machine.Name](p.ctx)).To(Succeed())
		delete(p.heals, machine.Name)
	case NodeCondition:
		node := p.node(p, machine)
		condition := p.settings.condition(node)
		if condition == "" {
			p.report.NotApplicable(p.t, fmt.Sprintf("of the node conditions that machine-controller-manager heeds (%s), none is without a writer of its own", strings.Join(p.settings.conditions, ", ")))
		}
		remove, err := keepCondition(p.ctx, p.Shoot, node.Name, condition)
		p.Expect(err).NotTo(HaveOccurred())
		p.toHeal(machine, remove)
	default:
		p.Expect(p.Inject(p.ctx, machine, fault)).To(Succeed())
		p.toHeal(machine, func(ctx context.Context) error { return client.IgnoreNotFound(p.Inject(ctx, machine, NoFault)) })
	}
}

// oneThatNeverJoins adds a machine that gets no node.
func (p *Pool) oneThatNeverJoins() *machinev1alpha1.Machine {
	p.t.Helper()
	return p.nextNeverJoins(1, func() { p.scale(perZone + 1) })
}

// nextNeverJoins returns the first of the machines that are added, so many at most, and get no node.
func (p *Pool) nextNeverJoins(most int, add func()) *machinev1alpha1.Machine {
	p.t.Helper()
	known := p.running(perZone)
	p.Expect(p.InjectNext(p.ctx, p.deploymentName, NeverJoins)).To(Succeed())
	add()
	var machines []machinev1alpha1.Machine
	p.eventually(func(g Gomega) {
		machines = slices.DeleteFunc(p.machines(g), func(m machinev1alpha1.Machine) bool {
			return slices.ContainsFunc(known, func(k *machinev1alpha1.Machine) bool { return k.Name == m.Name })
		})
		g.Expect(len(machines)).To(And(BeNumerically(">", 0), BeNumerically("<=", most)))
	})
	for i := range machines {
		p.toHeal(&machines[i], func(ctx context.Context) error { return client.IgnoreNotFound(p.Inject(ctx, &machines[i], NoFault)) })
	}
	return new(slices.MinFunc(machines, func(a, b machinev1alpha1.Machine) int { return a.CreationTimestamp.Compare(b.CreationTimestamp.Time) }))
}

func (p *Pool) toHeal(machine *machinev1alpha1.Machine, heal func(context.Context) error) {
	if p.heals == nil {
		p.heals = map[string]func(context.Context) error{}
	}
	p.heals[machine.Name] = heal
}

// heal undoes all faults: what is left of the machines is drained sooner by a kubelet that lives.
func (p *Pool) heal() {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(p.ctx), restoreTimeout)
	defer cancel()
	for machine, heal := range p.heals {
		if err := heal(ctx); err != nil {
			p.t.Errorf("Machine %s could not be healed: %v", machine, err)
		}
	}
}

// annotate sets annotations of the machine's node; nil removes one.
func (p *Pool) annotate(machine *machinev1alpha1.Machine, annotations map[string]any) {
	p.t.Helper()
	p.t.Logf("Node of machine %s: annotations %v", machine.Name, annotations)
	p.Expect(patchAnnotations(p.ctx, p.Shoot, p.node(p, machine), annotations)).To(Succeed())
}

// request writes a request on the machine's node.
func (p *Pool) request(machine *machinev1alpha1.Machine, value string) {
	p.t.Helper()
	p.annotate(machine, map[string]any{preserve: value})
}

// withdraw removes the request from the machine's node.
func (p *Pool) withdraw(machine *machinev1alpha1.Machine) {
	p.t.Helper()
	p.annotate(machine, map[string]any{preserve: nil})
}

// requestOnMachine writes a request on the Machine, as an operator does.
func (p *Pool) requestOnMachine(machine *machinev1alpha1.Machine, value string) {
	p.t.Helper()
	p.annotateMachine(machine, preserve, value)
}

// annotateMachine sets an annotation of the Machine, as an operator does; nil removes it.
func (p *Pool) annotateMachine(machine *machinev1alpha1.Machine, key string, value any) {
	p.t.Helper()
	p.t.Logf("Machine %s: annotation %s=%v", machine.Name, key, value)
	p.Expect(patchAnnotations(p.ctx, p.Seed, machine.DeepCopy(), map[string]any{key: value})).To(Succeed())
}

// preserved waits until the machine is in the given sub-phase for the given cause, and returns its expiry.
func (p *Pool) preserved(machine *machinev1alpha1.Machine, phase, cause string) (expiry time.Time) {
	p.t.Helper()
	p.eventually(func(g Gomega) { expiry = p.isPreserved(g, machine, phase, cause) })
	p.t.Logf("Machine %s: %s until %s (%s)", machine.Name, phase, expiry.Format(time.RFC3339), cause)
	return expiry
}

func (p *Pool) isPreserved(g Gomega, machine *machinev1alpha1.Machine, phase, cause string) time.Time {
	fresh := p.fresh(g, machine)
	g.Expect(fresh.DeletionTimestamp).To(BeNil())
	g.Expect(fresh.Annotations).To(And(HaveKeyWithValue(prefix+"phase", phase), HaveKeyWithValue(prefix+"cause", cause)), func() string {
		node := &corev1.Node{}
		_ = p.Shoot.Get(p.ctx, client.ObjectKey{Name: machine.Labels[machinev1alpha1.NodeLabelKey]}, node) // a machine may have none
		return fmt.Sprintf("The machine is %s (%s), and Ready of its node is %v", fresh.Status.CurrentStatus.Phase, fresh.Status.LastOperation.Description,
			v1alpha1.ConditionOf(node, corev1.NodeReady))
	})
	expiry, err := time.Parse(time.RFC3339, fresh.Annotations[prefix+"expiry-time"])
	g.Expect(err).NotTo(HaveOccurred())
	return expiry
}

// staysPreserved checks that the machine stays as it is for longer than machine-controller-manager would let it.
func (p *Pool) staysPreserved(machine *machinev1alpha1.Machine, phase, cause string, expiry time.Time) {
	p.t.Helper()
	p.consistently(p.settings.endurance(), func(g Gomega) {
		g.Expect(p.isPreserved(g, machine, phase, cause)).To(BeTemporally("==", expiry))
	})
}

// ordinary waits until the machine is not preserved any more, and checks that it is left alone.
func (p *Pool) ordinary(machine *machinev1alpha1.Machine) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		g.Expect(p.fresh(g, machine).Annotations).NotTo(HaveKey(prefix + "cause"))
		g.Expect(p.node(g, machine).Annotations).NotTo(HaveKey(scaleDown + "-by-mcm"))
	})
	p.consistently(shortly, func(g Gomega) {
		fresh := p.fresh(g, machine)
		g.Expect(fresh.DeletionTimestamp).To(BeNil())
		g.Expect(fresh.Annotations).NotTo(HaveKey(prefix + "cause"))
	})
	p.t.Logf("Machine %s: not preserved any more", machine.Name)
}

// synced waits until the request of the machine's node is on the Machine.
func (p *Pool) synced(machine *machinev1alpha1.Machine, value string) {
	p.t.Helper()
	p.eventually(func(g Gomega) { g.Expect(p.fresh(g, machine).Annotations).To(HaveKeyWithValue(lastApplied, value)) })
}

// gone waits until the machine is deleted.
func (p *Pool) gone(machine *machinev1alpha1.Machine) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		g.Expect(p.Seed.Get(p.ctx, client.ObjectKeyFromObject(machine), &machinev1alpha1.Machine{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	})
	p.t.Logf("Machine %s: gone", machine.Name)
}

// almostFailed waits until the machine is about to be held: nobody knows of its failure yet, and all will in a moment.
func (p *Pool) almostFailed(machine *machinev1alpha1.Machine) {
	p.t.Helper()
	var heldAt time.Time
	p.eventually(func(g Gomega) {
		status := p.fresh(g, machine).Status.CurrentStatus
		g.Expect(status.Phase).To(Equal(machinev1alpha1.MachineUnknown))
		heldAt = status.LastUpdateTime.Add(p.settings.Health - p.settings.margin())
	})
	select {
	case <-time.After(time.Until(heldAt.Add(-shortly))):
	case <-p.ctx.Done():
	}
}

// shootAway takes the shoot's API server away until the returned function is called, or the scenario ends.
func (p *Pool) shootAway() (back func()) {
	p.t.Helper()
	p.t.Log("The shoot's API server goes away")
	undo, err := p.ShootAway()
	p.Expect(err).NotTo(HaveOccurred())
	once := sync.OnceFunc(func() {
		p.t.Log("The shoot's API server comes back")
		if err := undo(); err != nil {
			p.t.Errorf("The shoot's API server did not come back: %v", err)
		}
	})
	p.t.Cleanup(once)
	return once
}

// told waits for an Event on the machine and on its node.
func (p *Pool) told(machine *machinev1alpha1.Machine, reason, text string) {
	p.t.Helper()
	p.event(machine, reason, text)
	p.nodeEvent(machine, reason, text)
}

// event waits for an Event on the machine.
func (p *Pool) event(machine *machinev1alpha1.Machine, reason, text string) {
	p.t.Helper()
	p.waitForEvent(p.Seed, p.Namespace, machine.Name, reason, text)
}

// nodeEvent waits for an Event on the machine's node.
func (p *Pool) nodeEvent(machine *machinev1alpha1.Machine, reason, text string) {
	p.t.Helper()
	p.waitForEvent(p.Shoot, metav1.NamespaceDefault, machine.Labels[machinev1alpha1.NodeLabelKey], reason, text)
}

func (p *Pool) waitForEvent(c client.Reader, namespace, regarding, reason, text string) {
	p.t.Helper()
	p.eventually(func(g Gomega) {
		events := &eventsv1.EventList{}
		g.Expect(c.List(p.ctx, events, client.InNamespace(namespace), client.MatchingFields{"regarding.name": regarding})).To(Succeed())
		told := make([]string, 0, len(events.Items)) // whole Events would be cut off when they are shown
		for _, e := range events.Items {
			told = append(told, e.Reason+": "+e.Note)
		}
		g.Expect(told).To(ContainElement(And(HavePrefix(reason+": "), ContainSubstring(text))))
	})
}

// eventually waits until the check holds.
func (p *Pool) eventually(check func(g Gomega)) {
	p.t.Helper()
	p.Eventually(check).WithContext(p.ctx).WithTimeout(p.settings.patience()).WithPolling(pollInterval).Should(Succeed())
}

// consistently checks that something holds for a while, which may have passed on a busy machine.
func (p *Pool) consistently(duration time.Duration, check func(g Gomega)) {
	p.t.Helper()
	if duration <= 0 {
		p.t.Logf("What was to be watched has been over for %s", -duration.Round(time.Second))
		return
	}
	p.Consistently(check).WithContext(p.ctx).WithTimeout(duration).WithPolling(pollInterval).Should(Succeed())
}

// tainted matches a node with the taint of a machine in Failed:Preserved.
func tainted() types.GomegaMatcher {
	return HaveField("Spec.Taints", ContainElement(And(HaveField("Key", taintPreserved), HaveField("Effect", corev1.TaintEffectNoSchedule))))
}

// withCondition matches a node with a condition.
func withCondition(condition corev1.NodeConditionType, status corev1.ConditionStatus, more ...types.GomegaMatcher) types.GomegaMatcher {
	return HaveField("Status.Conditions", ContainElement(And(append(more, HaveField("Type", condition), HaveField("Status", status))...)))
}
