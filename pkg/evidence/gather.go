// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

// Package evidence gathers what is known of nodes and their machines at a time, and keeps it in a file.
package evidence

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/panics"
)

// labelMachine is the label of a Node with the name of its Machine.
const labelMachine = "node.gardener.cloud/machine-name"

// How long one question may take.
var (
	callTimeout = 10 * time.Second
	nodeTimeout = 5 * time.Second
	logTimeout  = 15 * time.Second
	// nodeLogsTime is how long all logs of a node may take.
	nodeLogsTime = 30 * time.Second
)

// Sources is where evidence comes from. The readers must ask the API servers: caches know neither of pages nor of field
// selectors.
type Sources struct {
	// Tool is what gathers, with its version.
	Tool  string
	Clock clock.PassiveClock
	// Name is that of a node, or of a machine where Seed is known.
	Name string
	// Shoot is nil where there is no access to the shoot.
	Shoot client.Reader
	// NodeProxy is nil where the kubelet is not to be asked.
	NodeProxy NodeProxy
	// EarlierLogs are taken where they cannot be had of the node any more, nil for none.
	EarlierLogs *NodeLogs
	// MaxLog is how many bytes of each log are kept, its last ones; 0 is 4 MiB.
	MaxLog int
	// Seed is nil where there is no access to the seed.
	Seed          client.Reader
	SeedNamespace string
	// Host returns all objects that the host of a machine consists of. It is nil where there are no hosts.
	Host func(context.Context, *machinev1alpha1.Machine) ([]unstructured.Unstructured, error)
	// Controller is how the preservation controller runs, or nil if nobody knows. Where it is nil, its Deployment is asked for it.
	Controller *observed.Controller
	// PodLogs are those of the seed, which take the Deployment. Where it is nil, neither they nor the provider's Pod of the machine
	// are looked at.
	PodLogs PodLogs
}

// NodeProxy returns what a kubelet answers to a GET through the shoot's API server. If last is more than 0, only so many bytes at
// the end are of interest.
type NodeProxy func(ctx context.Context, node, path string, query url.Values, last int64) (io.ReadCloser, error)

// PodLogs returns the log of a container.
type PodLogs func(ctx context.Context, namespace, pod string, options *corev1.PodLogOptions) (io.ReadCloser, error)

// whatKubelet is noted where a kubelet cannot be asked for anything.
const whatKubelet observed.Thing = "what the kubelet knows: its configuration, statistics and logs of the node"

// errNoSeed is why there are no machines in a cluster without their API.
var errNoSeed = errors.New("it does not have this API: check that this is the seed")

// ErrNotFound says that there is neither a node nor a machine of the name.
var ErrNotFound = errors.New("neither a node nor a machine with this name was found")

// collector gathers one bundle. What cannot be had is noted in it.
type collector struct {
	Sources
	mu       sync.Mutex
	bundle   *Bundle
	redacted counts

	machine     *machinev1alpha1.Machine
	mcm         *appsv1.Deployment
	siblings    sets.Set[string]
	pool        string
	nodeUnknown bool
}

// Collect gathers what is known of a node and its machine, until the context's deadline. What cannot be had is noted in the
// bundle; it is an error only if there is no such node and machine, or if nothing can be asked, or if the context is cancelled.
func Collect(ctx context.Context, sources Sources) (*Bundle, error) {
	c := newCollector(sources)
	c.readMachines(ctx)
	if err := c.find(ctx); err != nil {
		return nil, err
	}

	var wait sync.WaitGroup
	for _, of := range []struct {
		what   observed.Thing
		gather func(context.Context)
	}{
		{observed.WhatShoot, c.shootObjects},
		{observed.WhatMachineEvents, c.seedEvents},
		{observed.WhatHost, c.hostObjects},
		{"logs of the node", c.ofKubelet},
		{"logs of the seed", c.seedLogs},
	} {
		wait.Go(func() {
			if err := panics.Catch(ctx, func() error { of.gather(ctx); return nil }); err != nil {
				c.note(of.what, cutError{err}) // what was had before is kept
			}
		})
	}
	wait.Wait()
	if errors.Is(ctx.Err(), context.Canceled) {
		return nil, ctx.Err()
	}
	c.takeEarlierLogs()
	c.bundle.redacted = c.redacted
	redact(&c.bundle.Snapshot, c.redacted)
	sortSnapshot(&c.bundle.Snapshot)
	slices.SortFunc(c.bundle.files, func(a, b file) int { return cmp.Compare(a.path, b.path) })
	return c.bundle, nil
}

func newCollector(sources Sources) *collector {
	sources.MaxLog = cmp.Or(sources.MaxLog, maxLog)
	c := &collector{Sources: sources, redacted: counts{}, siblings: sets.New[string]()}
	c.bundle = &Bundle{Tool: sources.Tool, Snapshot: observed.Snapshot{Time: sources.Clock.Now().UTC().Truncate(time.Second)}}
	return c
}

// readMachines reads what the seed knows of the machine and of the others of its MachineDeployment, with which it shares places.
func (c *collector) readMachines(ctx context.Context) {
	if c.Seed == nil {
		c.note(observed.WhatSeed, errors.New("there is no access to the seed"))
		return
	}
	s := &c.bundle.Snapshot
	if !c.try(ctx, observed.WhatSeed, func(ctx context.Context) error {
		err := ReadMachines(ctx, c.Seed, c.SeedNamespace, s)
		if err == nil {
			err = ReadMachineSets(ctx, c.Seed, s)
		}
		if errors.Is(err, errNoSeed) {
			return errNoSeed
		}
		return err
	}) {
		s.Seed = nil
		return
	}
	seed := s.Seed
	if c.Controller != nil {
		seed.Controller = new(*c.Controller) // others may be gathering with it
	} else {
		c.try(ctx, observed.WhatController, func(ctx context.Context) (err error) {
			if c.mcm, err = readMCM(ctx, c.Seed, c.SeedNamespace); err == nil {
				seed.Controller = controllerOf(c.mcm)
			}
			return err
		})
	}
	found := seed.Machine(c.Name)
	if found == nil {
		seed.Machines, seed.MachineSets, seed.MachineDeployments = nil, nil, nil
		return
	}
	machine := *found // what is found moves
	c.machine = &machine
	keepGroup(seed, c.machine)
	for i := range seed.Machines {
		if node := seed.Machines[i].Labels[machinev1alpha1.NodeLabelKey]; node != "" {
			c.siblings.Insert(node)
		}
	}
	for i := range seed.MachineDeployments {
		c.pool = seed.MachineDeployments[i].Labels[LabelPool]
		if pool := seed.MachineDeployments[i].Spec.Template.Spec.NodeTemplateSpec.Labels[LabelPool]; pool != "" {
			c.pool = pool
		}
	}
}

// keepGroup leaves the MachineDeployment of a machine, with its sets and machines.
func keepGroup(seed *observed.Seed, machine *machinev1alpha1.Machine) {
	deployment := &machinev1alpha1.MachineDeployment{} // which owns nothing
	if found := facts.DeploymentOf(machine, seed.MachineSets, seed.MachineDeployments); found != nil {
		deployment = new(*found) // what is found moves
	}
	seed.MachineDeployments = slices.DeleteFunc(seed.MachineDeployments, func(d machinev1alpha1.MachineDeployment) bool { return d.UID != deployment.UID })
	seed.MachineSets = slices.DeleteFunc(seed.MachineSets, func(s machinev1alpha1.MachineSet) bool {
		return !metav1.IsControlledBy(machine, &s) && !metav1.IsControlledBy(&s, deployment)
	})
	// A copy, because the bundle would otherwise keep the room for all machines otherwise.
	seed.Machines = slices.Clone(slices.DeleteFunc(seed.Machines, func(m machinev1alpha1.Machine) bool {
		return m.Name != machine.Name && !slices.ContainsFunc(seed.MachineSets, func(s machinev1alpha1.MachineSet) bool { return metav1.IsControlledBy(&m, &s) })
	}))
}

// find learns which node it is about.
func (c *collector) find(ctx context.Context) error {
	c.bundle.Node = c.Name
	if c.machine != nil {
		c.bundle.Machine, c.bundle.Node = c.machine.Name, c.machine.Labels[machinev1alpha1.NodeLabelKey]
	}
	switch {
	case c.Shoot == nil:
		c.note(observed.WhatShoot, errors.New("there is no access to the shoot"))
	case c.bundle.Node == "":
		c.note(observed.Thing("node of machine "+c.bundle.Machine), errors.New("the machine has no node: it has not joined"))
	default:
		node := &corev1.Node{}
		err := c.call(ctx, callTimeout, func(ctx context.Context) error {
			return c.Shoot.Get(ctx, client.ObjectKey{Name: c.bundle.Node}, node)
		})
		switch {
		case err == nil:
			c.bundle.Snapshot.Shoot.Nodes = []corev1.Node{*node}
			if c.bundle.Machine == "" {
				c.bundle.Machine = node.Labels[labelMachine]
			}
			if pool := node.Labels[LabelPool]; pool != "" {
				c.pool = pool
			}
		case apierrors.IsNotFound(err):
			c.note(observed.Thing("node "+c.bundle.Node), errors.New("it is gone, or never joined"))
		default:
			c.nodeUnknown = true
			c.note(observed.WhatNode, err)
		}
		// An API server that does not answer is not asked for all the rest.
		var status apierrors.APIStatus
		if c.nodeUnknown && !errors.As(err, &status) {
			c.note(observed.WhatShoot, err)
			c.note(whatKubelet, err)
			c.Shoot, c.NodeProxy = nil, nil
		}
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		return ctx.Err()
	}
	if c.machine != nil || len(c.bundle.Snapshot.Shoot.Nodes) > 0 {
		return nil
	}
	unasked := c.nodeUnknown || c.Shoot == nil
	switch {
	case unasked && c.bundle.Snapshot.Seed == nil:
		return fmt.Errorf("nothing is known of %q: %s", c.Name, c.reasons())
	case unasked:
		return fmt.Errorf("the seed has no machine %q and no machine with this node, and the shoot cannot be read: %s", c.Name, c.reasons())
	}
	return fmt.Errorf("%w: %q", ErrNotFound, c.Name)
}

// reasons returns why nothing could be had, each reason once.
func (c *collector) reasons() string {
	var reasons []string
	for _, missing := range c.bundle.Snapshot.Missing {
		if !slices.Contains(reasons, missing.Reason) {
			reasons = append(reasons, missing.Reason)
		}
	}
	return strings.Join(reasons, "; ")
}

// shootObjects reads what is on the node, and the other nodes of the MachineDeployment.
func (c *collector) shootObjects(ctx context.Context) {
	if c.Shoot == nil {
		return
	}
	shoot := &c.bundle.Snapshot.Shoot
	if node := c.bundle.Node; node != "" {
		c.try(ctx, observed.WhatPods, func(ctx context.Context) error {
			pods, err := list(ctx, c.Shoot, &corev1.PodList{}, func(l *corev1.PodList) []corev1.Pod { return l.Items }, func(p *corev1.Pod) bool {
				c.set(func() { redactPod(p, c.redacted) })
				return true
			}, client.MatchingFields{"spec.nodeName": node})
			c.set(func() { shoot.Pods = pods })
			return err
		})
		c.try(ctx, "VolumeAttachments of the node", func(ctx context.Context) error {
			attachments, err := list(ctx, c.Shoot, &storagev1.VolumeAttachmentList{}, func(l *storagev1.VolumeAttachmentList) []storagev1.VolumeAttachment { return l.Items },
				func(a *storagev1.VolumeAttachment) bool {
					if a.Spec.NodeName != node {
						return false
					}
					c.set(func() { redactAttachment(a, c.redacted) })
					return true
				})
			c.set(func() { shoot.VolumeAttachments = attachments })
			return err
		})
		c.maintenances(ctx, node)
	}
	if len(shoot.Pods) > 0 {
		c.try(ctx, observed.WhatBudgets, func(ctx context.Context) error { return c.budgets(ctx, shoot) })
	}
	if others := c.siblings.Difference(sets.New(c.bundle.Node)); len(others) > 0 {
		c.try(ctx, observed.WhatNodes, func(ctx context.Context) error {
			var opts []client.ListOption
			if c.pool != "" {
				opts = append(opts, client.MatchingLabels{LabelPool: c.pool})
			}
			nodes, err := list(ctx, c.Shoot, &corev1.NodeList{}, func(l *corev1.NodeList) []corev1.Node { return l.Items }, func(n *corev1.Node) bool {
				if !others.Has(n.Name) {
					return false
				}
				c.set(func() { redactNode(n, c.redacted) })
				return true
			}, opts...)
			c.set(func() { shoot.Nodes = append(shoot.Nodes, nodes...) })
			return err
		})
	}
	c.shootEvents(ctx)
}

// budgets reads the PodDisruptionBudgets of the pods, namespace by namespace: a shoot may have many of others.
func (c *collector) budgets(ctx context.Context, shoot *observed.Shoot) error {
	namespaces := sets.New[string]()
	for i := range shoot.Pods {
		namespaces.Insert(shoot.Pods[i].Namespace)
	}
	size := 0
	for _, namespace := range sets.List(namespaces) {
		budgets, err := list(ctx, c.Shoot, &policyv1.PodDisruptionBudgetList{}, func(l *policyv1.PodDisruptionBudgetList) []policyv1.PodDisruptionBudget { return l.Items },
			func(b *policyv1.PodDisruptionBudget) bool { return covers(b, shoot.Pods) }, client.InNamespace(namespace))
		for i := range budgets {
			if size += budgets[i].Size(); size > maxListed {
				return cutError{fmt.Errorf("there are more than the first %d, which have %d bytes", len(shoot.PodDisruptionBudgets), maxListed)}
			}
			shoot.PodDisruptionBudgets = append(shoot.PodDisruptionBudgets, budgets[i])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) maintenances(ctx context.Context, node string) {
	shoot := &c.bundle.Snapshot.Shoot
	c.try(ctx, observed.WhatMaintenances, func(ctx context.Context) error {
		maintenances, err := list(ctx, c.Shoot, &maintenancev1alpha1.NodeMaintenanceList{}, func(l *maintenancev1alpha1.NodeMaintenanceList) []maintenancev1alpha1.NodeMaintenance { return l.Items },
			func(m *maintenancev1alpha1.NodeMaintenance) bool { return m.Spec.NodeName == node })
		c.set(func() { shoot.HasMaintenances, shoot.Maintenances = !HasNoAPI(err), maintenances })
		if HasNoAPI(err) {
			return nil
		}
		return err
	})
}

// covers says that a budget is one of some pods.
func covers(budget *policyv1.PodDisruptionBudget, pods []corev1.Pod) bool {
	selector, err := metav1.LabelSelectorAsSelector(budget.Spec.Selector)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(pods, func(pod corev1.Pod) bool {
		return pod.Namespace == budget.Namespace && selector.Matches(labels.Set(pod.Labels))
	})
}

// shootEvents reads the Events of the node, of what was on it, and of its maintenances.
func (c *collector) shootEvents(ctx context.Context) {
	node := c.bundle.Node
	if c.Shoot == nil || node == "" {
		return
	}
	var found []eventsv1.Event
	c.try(ctx, observed.WhatNodeEvents, func(ctx context.Context) (err error) {
		found, err = ReadEvents(ctx, c.Shoot, metav1.NamespaceDefault, "Node", node)
		return err
	})
	// Of pods that are gone, the Events tell by the host that reports them, or by what they say.
	on, names := sets.New[types.NamespacedName](), naming(node)
	for i := range c.bundle.Snapshot.Shoot.Pods {
		on.Insert(client.ObjectKeyFromObject(&c.bundle.Snapshot.Shoot.Pods[i]))
	}
	c.try(ctx, "Events of the node's pods", func(ctx context.Context) error {
		events, err := readLast(ctx, c.Shoot, func(e *eventsv1.Event) bool {
			return on.Has(types.NamespacedName{Namespace: e.Regarding.Namespace, Name: e.Regarding.Name}) ||
				e.DeprecatedSource.Host == node || e.ReportingInstance == node || names([]byte(e.Note))
		}, client.MatchingFields{"regarding.kind": "Pod"})
		found = append(found, events...)
		return err
	})
	if maintenances := c.bundle.Snapshot.Shoot.Maintenances; len(maintenances) > 0 {
		c.try(ctx, "Events of the node's maintenances", func(ctx context.Context) error {
			var last lastEvents
			for i := range maintenances {
				events, err := ReadEvents(ctx, c.Shoot, maintenances[i].Namespace, "NodeMaintenance", maintenances[i].Name)
				for i := range events {
					last.add(&events[i])
				}
				if err != nil {
					found = append(found, last.events...)
					return err
				}
			}
			events, err := last.all()
			found = append(found, events...)
			return err
		})
	}
	c.set(func() { c.bundle.Snapshot.Shoot.Events = found })
}

// seedEvents reads the Events of the machine, and of what it belongs to.
func (c *collector) seedEvents(ctx context.Context) {
	seed := c.bundle.Snapshot.Seed
	if c.machine == nil || seed == nil {
		return
	}
	names := sets.New(c.bundle.Machine)
	for i := range seed.MachineSets {
		names.Insert(seed.MachineSets[i].Name)
	}
	for i := range seed.MachineDeployments {
		names.Insert(seed.MachineDeployments[i].Name)
	}
	c.try(ctx, observed.WhatMachineEvents, func(ctx context.Context) error {
		for _, name := range sets.List(names) {
			events, err := ReadEvents(ctx, c.Seed, c.SeedNamespace, "", name)
			c.set(func() { seed.Events = append(seed.Events, events...) })
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// hostObjects reads what the machine runs on.
func (c *collector) hostObjects(ctx context.Context) {
	if c.machine == nil || c.Host == nil {
		return
	}
	c.try(ctx, observed.WhatHost, func(ctx context.Context) error {
		objects, err := c.Host(ctx, c.machine)
		c.set(func() { c.bundle.Snapshot.Seed.Hosts = objects })
		return err
	})
}

// call asks something with the time for it.
func (c *collector) call(ctx context.Context, timeout time.Duration, ask func(context.Context) error) error {
	if err := ctx.Err(); err != nil {
		return errNoTime
	}
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := panics.Catch(ctx, func() error { return ask(limited) })
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return errNoTime
	case limited.Err() != nil:
		return fmt.Errorf("no answer within %s", timeout)
	}
	return err
}

var errNoTime = errors.New("there was no time left")

// try asks something, and notes if it could not be had.
func (c *collector) try(ctx context.Context, what observed.Thing, ask func(context.Context) error) bool {
	err := c.call(ctx, callTimeout, ask)
	c.note(what, err)
	return err == nil
}

// note notes what could not be had, unless the error is nil.
func (c *collector) note(what observed.Thing, err error) {
	if err == nil {
		return
	}
	partial := errors.As(err, new(cutError)) // what was asked for is known
	c.set(func() {
		c.bundle.Snapshot.Missing = append(c.bundle.Snapshot.Missing, observed.Missing{Thing: observed.Thing(line(string(what))), Partial: partial, Reason: line(err.Error())})
	})
}

func (c *collector) set(change func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change()
}

// addFile adds a file with JSON.
func (c *collector) addFile(path string, data []byte) {
	data, n := scrubJSON(data)
	c.set(func() {
		c.redacted.add(redactedCredentials, n)
		c.bundle.files = append(c.bundle.files, file{path: path, data: data})
	})
}

// addLog adds a log without its first bytes, which only tell what the others are the rest of.
func (c *collector) addLog(path string, data []byte, lead int, cut int64, broken bool) {
	data, n := scrubFrom(data, lead)
	c.set(func() {
		c.redacted.add(redactedCredentials, n)
		c.bundle.files = append(c.bundle.files, file{path: path, data: data, log: true, cut: cut, broken: broken, redacted: n})
	})
}
