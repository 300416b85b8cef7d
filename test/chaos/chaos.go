// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	apiwatch "k8s.io/apimachinery/pkg/watch"
	kubernetesscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	toolswatch "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	maintenancev1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/maintenance/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
	rules "github.com/gardener/gardener-extension-machine-preservation/test/oracle"
)

const (
	// callTimeout is less than anybody waits for: the shoot's API server may be away.
	callTimeout = 5 * time.Second
	// restTimeout is for the last machines that never join, and for machine-controller-manager, which replaces one machine
	// of a MachineDeployment after the other and can be blind to a new Node for three minutes. A power cycle is forgotten when
	// the node was ready for five minutes after it (X6).
	restTimeout  = 15 * time.Minute
	pollInterval = time.Second
)

// shootScheme has the kinds that are of interest in the shoot.
var shootScheme = func() *runtime.Scheme {
	scheme := runtime.NewScheme()
	utilruntime.Must(kubernetesscheme.AddToScheme(scheme))
	utilruntime.Must(maintenancev1alpha1.AddToScheme(scheme))
	return scheme
}()

// chaos is a landscape to which things happen.
type chaos struct {
	landscape *landscape.Landscape
	seed      client.WithWatch
	shoot     client.WithWatch
	// namespace is that of the control plane, machineNamespace that of the machines' pods.
	namespace, machineNamespace string
	out                         io.Writer
	oracle                      *oracle
	begin                       time.Time

	mutex sync.Mutex
	// broken are the machines that were made to fail.
	broken map[string]bool
	// killed are when containers were killed.
	killed map[string]time.Time
	// back ends the outage of the shoot's API server; nil if there is none.
	back func()
}

// newChaos returns what a run needs. Its clients read from the API servers.
func newChaos(l *landscape.Landscape, shootName string, out io.Writer) (*chaos, error) {
	unlimited := func(config *rest.Config) *rest.Config {
		config = rest.CopyConfig(config)
		config.QPS = -1
		return config
	}
	seedClient, err := client.NewWithWatch(unlimited(l.Seed.Config), client.Options{Scheme: kubernetesclient.SeedScheme})
	if err != nil {
		return nil, err
	}
	shootClient, err := client.NewWithWatch(unlimited(l.Shoot.Config), client.Options{Scheme: shootScheme})
	if err != nil {
		return nil, err
	}
	c := &chaos{
		landscape: l,
		seed:      seedClient,
		shoot:     shootClient,
		namespace: seed.ControlPlaneNamespace(shootName),
		out:       out,
		begin:     time.Now(),
		broken:    map[string]bool{},
		killed:    map[string]time.Time{},

		machineNamespace: seed.MachineNamespace(shootName),
	}
	c.oracle = newOracle(c.say)
	return c, nil
}

func (c *chaos) say(text string) {
	fmt.Fprintf(c.out, "%7.1fs  %s\n", time.Since(c.begin).Seconds(), text)
}

// run watches, lets the events happen, brings everything to rest, and returns an error if anything was seen that the rules
// do not allow.
func (c *chaos) run(ctx context.Context, events []event, length time.Duration) error {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	if err := c.deploy(ctx); err != nil {
		return err
	}
	for _, list := range []client.ObjectList{&machinev1alpha1.MachineDeploymentList{}, &machinev1alpha1.MachineList{}, newHostList()} {
		if err := c.watch(watching, c.seed, list, client.InNamespace(c.namespace)); err != nil {
			return err
		}
	}
	for _, list := range []client.ObjectList{&corev1.NodeList{}, &maintenancev1alpha1.NodeMaintenanceList{}} {
		if err := c.watch(watching, c.shoot, list); err != nil {
			return err
		}
	}
	go func() {
		for {
			select {
			case now := <-time.After(pollInterval):
				c.oracle.tick(now)
			case <-watching.Done():
				return
			}
		}
	}()

	c.begin = time.Now()
	done := map[string]int{}
	for _, event := range append(events, event{at: length}) {
		select {
		case <-time.After(time.Until(c.begin.Add(event.at))):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
		if i := slices.IndexFunc(actions, func(a action) bool { return a.name == event.action }); i >= 0 {
			text, err := actions[i].do(ctx, c, event)
			switch {
			case err != nil:
				c.say(fmt.Sprintf("- %s: could not be done: %v", event.action, err))
			case text == "":
				c.say(fmt.Sprintf("- %s: nothing to do it to", event.action))
			default:
				done[event.action]++
				c.say(fmt.Sprintf("- %s: %s", event.action, text))
			}
		}
	}
	restErr := c.rest(ctx)
	c.summarize(done, restErr)
	if restErr != nil || len(c.oracle.violations) > 0 {
		return errors.New("the rules were not kept")
	}
	return nil
}

// watch shows the oracle each state of the objects, in the order in which they are written. Where the watch ends because the
// API server was away for too long, what was written meanwhile is not seen.
func (c *chaos) watch(ctx context.Context, in client.WithWatch, list client.ObjectList, options ...client.ListOption) error {
	known := map[string]runtime.Object{}
	begin := func() (*toolswatch.RetryWatcher, error) {
		listing, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		list := list.DeepCopyObject().(client.ObjectList)
		if err := in.List(listing, list, options...); err != nil {
			return nil, err
		}
		before := known
		known = map[string]runtime.Object{}
		if err := meta.EachListItem(list, func(object runtime.Object) error {
			known[keyOf(object)] = object
			c.see(object, false)
			return nil
		}); err != nil {
			return nil, err
		}
		for key, object := range before {
			if known[key] == nil {
				c.see(object, true)
			}
		}
		return toolswatch.NewRetryWatcherWithContext(ctx, list.GetResourceVersion(), &toolscache.ListWatch{
			WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (apiwatch.Interface, error) {
				return in.Watch(ctx, list, append(slices.Clone(options), &client.ListOptions{Raw: &raw})...)
			},
		})
	}
	watch, err := begin()
	if err != nil {
		return err
	}
	go func() {
		for ctx.Err() == nil {
			for event := range watch.ResultChan() {
				switch event.Type {
				case apiwatch.Added, apiwatch.Modified:
					known[keyOf(event.Object)] = event.Object
					c.see(event.Object, false)
				case apiwatch.Deleted:
					delete(known, keyOf(event.Object))
					c.see(event.Object, true)
				}
			}
			for ctx.Err() == nil {
				time.Sleep(pollInterval)
				if again, err := begin(); err == nil {
					watch = again
					break
				}
			}
		}
	}()
	return nil
}

func keyOf(object runtime.Object) string {
	return client.ObjectKeyFromObject(object.(client.Object)).String()
}

func (c *chaos) see(object runtime.Object, gone bool) {
	switch object := object.(type) {
	case *machinev1alpha1.Machine:
		c.oracle.saw(object, gone, time.Now())
	case *machinev1alpha1.MachineDeployment:
		c.oracle.sawDeployment(object, time.Now())
	case *corev1.Node:
		c.oracle.sawNode(object, gone, time.Now())
	case *maintenancev1alpha1.NodeMaintenance:
		c.oracle.sawMaintenance(object, gone, time.Now())
	case *unstructured.Unstructured:
		c.oracle.sawHost(object, time.Now())
	}
}

// machines returns those that are not going, in the order of their names.
func (c *chaos) machines(ctx context.Context) ([]machinev1alpha1.Machine, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	list := &machinev1alpha1.MachineList{}
	if err := c.seed.List(ctx, list, client.InNamespace(c.namespace)); err != nil {
		return nil, err
	}
	slices.SortFunc(list.Items, func(a, b machinev1alpha1.Machine) int { return cmp.Compare(a.Name, b.Name) })
	return slices.DeleteFunc(list.Items, func(m machinev1alpha1.Machine) bool { return m.DeletionTimestamp != nil }), nil
}

// node returns the machine's node; nil if there is none.
func (c *chaos) node(ctx context.Context, m *machinev1alpha1.Machine) (*corev1.Node, error) {
	name := m.Labels[machinev1alpha1.NodeLabelKey]
	if name == "" {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	node := &corev1.Node{}
	if err := c.shoot.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return node, nil
}

// annotate sets annotations; nil removes one.
func (c *chaos) annotate(ctx context.Context, in client.Client, object client.Object, annotations map[string]any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": annotations}})
	if err != nil {
		return err
	}
	return in.Patch(ctx, object, client.RawPatch("application/merge-patch+json", patch))
}

// rest takes back all that was done, waits until nothing happens any more, and returns an error that says what is left.
func (c *chaos) rest(ctx context.Context) error {
	c.say("At rest from here on: faults are healed, requests withdrawn, auto-preserved machines told to go, nodes given back.")
	c.endOutage()
	if err := c.neverJoin(ctx, false); err != nil {
		return err
	}
	var left map[string][]string
	for deadline := time.Now().Add(restTimeout); time.Now().Before(deadline); {
		var err error
		if left, err = c.settle(ctx); err != nil {
			left = map[string][]string{"": {err.Error()}}
		}
		if len(left) == 0 {
			c.say("Nothing is left.")
			return nil
		}
		select {
		case <-time.After(pollInterval):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(left)) {
		c.oracle.mutex.Lock()
		c.oracle.blame(name, &rules.Violation{Rule: "rest", Text: strings.Join(left[name], "; ")}, time.Now())
		c.oracle.mutex.Unlock()
	}
	return errors.New("something is left")
}

// settle takes a step towards rest, and returns what is left on machines and nodes.
func (c *chaos) settle(ctx context.Context) (map[string][]string, error) {
	if err := c.healAll(ctx); err != nil {
		return nil, err
	}
	all := &machinev1alpha1.MachineList{}
	if err := c.seed.List(ctx, all, client.InNamespace(c.namespace)); err != nil {
		return nil, err
	}
	left := map[string][]string{}
	for i := range all.Items {
		m := &all.Items[i]
		node, err := c.node(ctx, m)
		if err != nil {
			return nil, err
		}
		if found := rules.Leftovers(m, node); len(found) > 0 {
			left[m.Name] = found
		}
		var request any // none
		if m.Annotations[v1alpha1.AnnotationCause] == v1alpha1.CauseAuto {
			request = v1alpha1.RequestFalse
		}
		if err := c.ask(ctx, m, node, request); err != nil {
			return nil, err
		}
		if err := c.withdrawPowerCycle(ctx, m, node); err != nil {
			return nil, err
		}
	}
	if err := c.endMaintenances(ctx, left); err != nil {
		return nil, err
	}
	if err := c.settleHosts(ctx, left); err != nil {
		return nil, err
	}
	deployments := &machinev1alpha1.MachineDeploymentList{}
	if err := c.seed.List(ctx, deployments, client.InNamespace(c.namespace)); err != nil {
		return nil, err
	}
	for _, d := range deployments.Items {
		if s := d.Status; s.Replicas != d.Spec.Replicas || s.UpdatedReplicas != d.Spec.Replicas || s.AvailableReplicas != d.Spec.Replicas {
			left[""] = append(left[""], fmt.Sprintf("MachineDeployment %s: %d machines are wanted, %d are there, %d updated, %d available", d.Name, d.Spec.Replicas, s.Replicas, s.UpdatedReplicas, s.AvailableReplicas))
		}
	}
	return left, nil
}

// ask writes a request where it counts, or nil for none, if it is not there.
func (c *chaos) ask(ctx context.Context, m *machinev1alpha1.Machine, node *corev1.Node, request any) error {
	wants := func(present map[string]string) bool {
		value, ok := present[v1alpha1.AnnotationPreserve]
		_, timeout := present[v1alpha1.AnnotationTimeout]
		return timeout || ok != (request != nil) || ok && value != request
	}
	wish := map[string]any{v1alpha1.AnnotationPreserve: request, v1alpha1.AnnotationTimeout: nil}
	switch none := map[string]any{v1alpha1.AnnotationPreserve: nil, v1alpha1.AnnotationTimeout: nil}; {
	case node != nil && wants(node.Annotations):
		c.oracle.did(m.Name, rules.Requested, fmt.Sprintf("request %v on the Node", request), time.Now())
		return client.IgnoreNotFound(c.annotate(ctx, c.shoot, node, wish))
	case node == nil && wants(m.Annotations):
		c.oracle.did(m.Name, rules.Requested, fmt.Sprintf("request %v on the Machine", request), time.Now())
		return client.IgnoreNotFound(c.annotate(ctx, c.seed, m, wish))
	// Machine-controller-manager >= 0.62 keeps requests of its own there as long as something is kept.
	case node != nil && request == nil && m.Annotations[v1alpha1.AnnotationCause] == "" && wants(m.Annotations):
		return client.IgnoreNotFound(c.annotate(ctx, c.seed, m, none))
	}
	return nil
}

// healAll lets all machines recover.
func (c *chaos) healAll(ctx context.Context) error {
	c.mutex.Lock()
	broken := slices.Sorted(maps.Keys(c.broken))
	c.mutex.Unlock()
	for _, name := range broken {
		if err := c.heal(ctx, name); client.IgnoreNotFound(err) != nil {
			return err
		}
	}
	return nil
}

// summarize tells what was done and seen, and the whole history of each machine that is blamed.
func (c *chaos) summarize(done map[string]int, rest error) {
	c.oracle.mutex.Lock()
	defer c.oracle.mutex.Unlock()
	counts := func(title string, counts map[string]int) {
		fmt.Fprintf(c.out, "\n%s:\n", title)
		for _, what := range slices.Sorted(maps.Keys(counts)) {
			fmt.Fprintf(c.out, "  %4d  %s\n", counts[what], what)
		}
	}
	counts("Done", done)
	counts("Seen", c.oracle.counts)
	fmt.Fprintf(c.out, "\n%d machines, %d violations", len(c.oracle.machines), len(c.oracle.violations))
	if rest == nil {
		fmt.Fprint(c.out, ", nothing left at rest")
	}
	fmt.Fprintln(c.out)
	for _, v := range c.oracle.violations {
		fmt.Fprintf(c.out, "\n%s %s\n", v.machine, v.text)
		for _, line := range c.oracle.machines[v.machine].lines {
			fmt.Fprintln(c.out, "  "+line)
		}
	}
}
