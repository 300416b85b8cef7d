// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/prometheus/common/model"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/explain"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// verb is a command that asks for something on nodes.
type verb struct {
	use, short, long, example string
	// loses says that it may have to be confirmed.
	takesFor, takesUntil, loses bool
	// decide is pure.
	decide func(f situation, r *requestFlags) (change, error)
	// waits says until what --wait waits.
	waits string
}

var verbs = []verb{{
	use: "now NODE...", short: "Preserve machines from now on",
	long: `Preserve machines from now on, for the duration of --for, or else for machinePreserveTimeout of their pool. The cluster-autoscaler
does not remove them. If such a machine fails, its node is drained and the machine is preserved instead of replaced.

Machines are still replaced if they fail during an update of their pool, or if machine-controller-manager marked them Failed before
they were preserved. No machine is preserved for longer than the operators allow.`,
	example:  "  kubectl preserve now node-1 --for 6h --wait",
	takesFor: true, decide: ask(v1alpha1.RequestNow, "preservation requested"), waits: "they are preserved",
}, {
	use: "when-failed NODE...", short: "Preserve machines when they fail",
	long: `Preserve machines when they fail, for the duration of --for, or else for machinePreserveTimeout of their pool, even if no place for
failed machines is free. Until they fail, nothing happens.`,
	example:  "  kubectl preserve when-failed node-1 node-2",
	takesFor: true, decide: ask(v1alpha1.RequestWhenFailed, "preservation requested for when it fails"), waits: "they have failed and are preserved (see --timeout)",
}, {
	use: "release NODE...", short: "Release machines",
	long: `Release machines: withdraw the requests on their nodes and end their preservation. A machine that has failed is then terminated
with everything on it. After 'forbid', this command allows preserving the machines again.`,
	example: "  kubectl preserve release node-1 --yes --wait",
	loses:   true, decide: decideRelease, waits: "they are no longer preserved, or gone",
}, {
	use: "forbid NODE...", short: "Forbid preserving machines",
	long: `Forbid preserving machines: they are replaced when they fail, as without machine preservation. A machine that is already
preserved is released. To allow preserving the machines again, use 'release'.`,
	example: "  kubectl preserve forbid node-1",
	loses:   true, decide: decideForbid, waits: "they are no longer preserved, or gone",
}, {
	use: "extend NODE... (--for DURATION | --until TIME)", short: "Extend the preservation of machines",
	long: `Move the expiry of preserved machines: by --for a duration, or to --until a time. With access to the seed, the new expiry is
written on the Machine. Without it, only a request is possible, and the expiry of a request cannot be moved:
- If the node has no request, the command makes one, which ends later.
- If it has one, and the machine has not failed and is not under maintenance, the command withdraws the request and makes a new one.
- Any other machine might be lost in between: only operators can extend its preservation.`,
	example: `  kubectl preserve extend node-1 --for 24h
  kubectl preserve extend node-1 --until 2026-01-31T18:00:00Z --seed-kubeconfig seed.yaml --seed-namespace shoot--my--shoot`,
	takesFor: true, takesUntil: true, decide: decideExtend,
}}

type requestFlags struct {
	writeFlags
	forText, until string

	duration  time.Duration
	untilTime time.Time
}

// given returns the flag that says how long.
func (r *requestFlags) given() string {
	if r.until != "" {
		return "--until=" + r.until
	}
	return "--for=" + r.forText
}

// parse fills in duration and untilTime (R5). What is to be added to an end may be longer than what can be asked for.
func (r *requestFlags) parse(flags *pflag.FlagSet, takesUntil bool) error {
	if err := r.validate(flags); err != nil {
		return err
	}
	if takesUntil && (r.forText == "") == (r.until == "") {
		return errors.New("one of --for and --until must be set, for example --for=6h or --until=2026-01-31T18:00:00Z")
	}
	if r.until != "" {
		t, err := time.Parse(time.RFC3339, r.until)
		if err != nil {
			return fmt.Errorf("--until=%s: must be a time in RFC 3339, for example 2026-01-31T18:00:00Z", r.until)
		}
		r.untilTime = t.Truncate(time.Second)
	}
	if r.forText == "" {
		return nil
	}
	d, err := parseDuration(r.forText)
	r.duration = d
	switch {
	case err != nil, d < v1alpha1.MinMachinePreserveTimeout, d > v1alpha1.DefaultMaxMachinePreserveTimeout && !takesUntil:
		return fmt.Errorf("--for=%s: must be a duration %s, for example 6h, 90m, 3d or 1d12h", r.forText, howLong(takesUntil))
	}
	return nil
}

// parseDuration reads a duration of Go's, or one with weeks and days.
func parseDuration(text string) (time.Duration, error) {
	if d, err := time.ParseDuration(text); err == nil {
		return d, nil
	}
	d, err := model.ParseDuration(text)
	return time.Duration(d), err
}

// howLong says which durations are valid.
func howLong(takesUntil bool) string {
	if takesUntil {
		return fmt.Sprintf("of at least %s", v1alpha1.MinMachinePreserveTimeout)
	}
	return fmt.Sprintf("from %s to %s", v1alpha1.MinMachinePreserveTimeout, brief.Duration(v1alpha1.DefaultMaxMachinePreserveTimeout))
}

func newRequestCommand(o *Options, v *verb) *cobra.Command {
	r := &requestFlags{}
	cmd := &cobra.Command{
		Use: v.use, Short: v.short, Long: v.long, Example: v.example,
		Args: named(v.use, -1),
		RunE: func(cmd *cobra.Command, nodes []string) error {
			if err := r.parse(cmd.Flags(), v.takesUntil); err != nil {
				return err
			}
			return o.request(cmd.Context(), v, r, nodes)
		},
		ValidArgsFunction: o.completeNodes,
	}
	if v.takesFor {
		how := "How long, " + howLong(false)
		if v.takesUntil {
			how = fmt.Sprintf("By how long, at least %s", v1alpha1.MinMachinePreserveTimeout)
		}
		cmd.Flags().StringVar(&r.forText, "for", "", how+", for example 6h or 3d")
	}
	if v.takesUntil {
		cmd.Flags().StringVar(&r.until, "until", "", "Until when, for example 2026-01-31T18:00:00Z")
	}
	r.add(cmd.Flags(), v.waits, v.loses)
	return cmd
}

// request carries out a verb for nodes. What fails for one of them is no reason not to go on with the others.
func (o *Options) request(ctx context.Context, v *verb, r *requestFlags, names []string) error {
	shoot, seed, err := o.clients()
	if err != nil {
		return err
	}
	var (
		errs    []error
		arrived = map[string]func(*corev1.Node) (bool, error){}
	)
	for _, name := range names {
		c, err := o.requestOne(ctx, shoot, seed, v, r, name)
		if err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", name, err))
		} else if r.wait && !r.dry() {
			arrived[name] = c.arrived
		}
	}

	ctx, cancel := limit(ctx, r.timeout)
	defer cancel()
	var (
		waiting sync.WaitGroup
		writing sync.Mutex
		vain    = make([]error, len(names))
	)
	for i, name := range names {
		if done := arrived[name]; done != nil {
			waiting.Go(func() {
				says, err := waitForOne(ctx, shoot, v, r, name, done)
				writing.Lock()
				defer writing.Unlock()
				vain[i] = err
				if err == nil {
					vain[i] = write(o.Out, says)
				}
			})
		}
	}
	waiting.Wait()
	return errors.Join(append(errs, vain...)...)
}

func (o *Options) requestOne(ctx context.Context, shoot, seed client.WithWatch, v *verb, r *requestFlags, name string) (change, error) {
	c, err := o.settle(ctx, shoot, seed, v, r, name)
	if err != nil {
		return change{}, err
	}
	said := append([]string{fmt.Sprintf("node/%s %s%s", name, c.done, r.suffix())}, c.says...)
	return c, write(o.Out, strings.Join(said, "\n  ")+"\n")
}

// settle decides on a request and carries it out, and sees to it that no end gets an earlier one.
func (o *Options) settle(ctx context.Context, shoot, seed client.WithWatch, v *verb, r *requestFlags, name string) (c change, err error) {
	confirmed := ""
	err = retryOnConflict(func() error { // it was decided on something else than there is now
		s, err := o.known(ctx, "", name, readExplained)
		if err != nil {
			return err
		}
		f, err := situationOf(s, name)
		if err != nil {
			return err
		}
		if c, err = v.decide(f, r); err != nil {
			return err
		}
		if c.asks != confirmed && c.asks != "" {
			if err := o.confirm(ctx, c.asks, &r.writeFlags); err != nil {
				return err
			}
			confirmed = c.asks
		}
		return o.carryOut(ctx, shoot, seed, f, c, r)
	})
	if err != nil || c.was.IsZero() || r.dry() {
		return c, err
	}
	shown, err := o.ensure(ctx, shoot, name, c)
	c.says[0] = fmt.Sprintf("Its machine is preserved until %s instead of %s.", stamp(shown), stamp(c.was))
	if err == nil || !c.anew || shown.IsZero() || !shown.Before(c.was) {
		return c, err
	}
	// More than the operators' limit counts for nothing (R5), so that the machine has got its pool's time. What was left is less.
	again := &requestFlags{writeFlags: r.writeFlags, until: stamp(c.was), untilTime: c.was}
	if _, failed := o.settle(ctx, shoot, seed, v, again, name); failed != nil {
		return c, errors.Join(err, failed)
	}
	return c, fmt.Errorf("the operators allow less: its machine would have been preserved until %s instead of %s, so its preservation was requested again with the previous expiry", stamp(shown), stamp(c.was))
}

// carryOut writes a change.
func (o *Options) carryOut(ctx context.Context, shoot, seed client.WithWatch, f situation, c change, r *requestFlags) error {
	switch {
	case r.dryRun == "client":
		return nil
	case !c.expiry.IsZero():
		return extendMachine(ctx, r.writer(seed), f.as.Machine, c.expiry)
	case c.ask == nil:
		return nil
	case c.anew && !r.dry():
		before, err := told(ctx, shoot, f.node.Name, preservation.EventReleased)
		if err != nil {
			return fmt.Errorf("failed to list its Events, which say when it is released: %w", err)
		}
		if err := annotate(ctx, r.writer(shoot), f.node.Name, f.node.ResourceVersion, explain.Ask{}.Annotations()); err != nil {
			return err
		}
		return o.askAnew(ctx, shoot, f.node.Name, before, *c.ask, r)
	}
	return annotate(ctx, r.writer(shoot), f.node.Name, f.node.ResourceVersion, c.ask.Annotations())
}

// askAnew requests a machine again, once it is seen to be released. It asks whatever has changed meanwhile, also if the command
// is interrupted: the machine must not be left without its request.
func (o *Options) askAnew(ctx context.Context, shoot client.WithWatch, name string, before sets.Set[string], ask explain.Ask, r *requestFlags) error {
	waiting, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	_ = await(waiting, shoot, name, isReleased) // what else keeps it lasts, and asking adds to that
	// machine-controller-manager 0.62 takes the condition back at once. What is asked for again before the preservation controller
	// has seen that it was withdrawn, has never been withdrawn.
	_ = wait.PollUntilContextCancel(waiting, o.patience/40, true, func(ctx context.Context) (bool, error) {
		now, err := told(ctx, shoot, name, preservation.EventReleased)
		return err == nil && len(now.Difference(before)) > 0, nil
	})
	if err := annotate(context.WithoutCancel(ctx), r.writer(shoot), name, "", ask.Annotations()); err != nil {
		return fmt.Errorf("the request was withdrawn, but a new request could not be made. Run 'kubectl preserve now %s --for %s': %w", name, ask.Timeout, err)
	}
	return nil
}

// told returns the Events of a node for some reason. One that is told again is another one.
func told(ctx context.Context, shoot client.Reader, name, reason string) (sets.Set[string], error) {
	events, err := evidence.ReadEvents(ctx, shoot, metav1.NamespaceDefault, "Node", name)
	found := sets.New[string]()
	for i := range events {
		if events[i].Reason == reason {
			found.Insert(string(events[i].UID) + "/" + events[i].ResourceVersion)
		}
	}
	return found, err
}

// ensure returns the expiry that the node shows once that is the effect of what was written. It fails if that does not happen: operators
// may allow less than was requested.
func (o *Options) ensure(ctx context.Context, shoot client.WithWatch, name string, c change) (shown time.Time, err error) {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	look := func(node *corev1.Node) (bool, error) {
		shown = time.Time{}
		if node != nil && isPreserved(node) {
			shown = shownUntil(node)
		}
		return c.arrived(node)
	}
	err = await(ctx, shoot, name, look)
	if isTimeout(err) {
		if node, failed := getNode(context.WithoutCancel(ctx), shoot, name); failed == nil {
			if arrived, _ := look(node); arrived {
				err = nil
			}
		}
	}
	switch {
	case !isTimeout(err):
		return shown, err
	case !c.expiry.IsZero():
		err = fmt.Errorf("%s is written on its Machine, but %s later its node still shows %s (see 'kubectl preserve explain %s')", stamp(c.expiry), o.patience, stamp(shown), name)
	case shown.IsZero():
		err = fmt.Errorf("its preservation was requested, but %s later its node does not show that it is preserved (see 'kubectl preserve explain %s')", o.patience, name)
	case !shown.Equal(c.was):
		err = fmt.Errorf("its preservation was requested, but the operators allow less: its machine is preserved until %s instead of %s", stamp(shown), stamp(c.was))
	default:
		err = fmt.Errorf("its preservation was requested, but %s later its expiry is still %s: an operator requested it, or it has been preserved for as long as the operators allow (see 'kubectl preserve explain %s')", o.patience, stamp(shown), name)
	}
	return shown, err
}

// waitForOne returns when what was asked for has happened, and says what has.
func waitForOne(ctx context.Context, shoot client.WithWatch, v *verb, r *requestFlags, name string, arrived func(*corev1.Node) (bool, error)) (string, error) {
	var last *corev1.Node
	err := await(ctx, shoot, name, func(node *corev1.Node) (bool, error) {
		last = node
		return arrived(node)
	})
	switch {
	case err != nil:
		return "", fmt.Errorf("node %s: %w", name, r.inVain(ctx, err, fmt.Sprintf("%s. Is machine preservation enabled for the shoot? To find out more, run 'kubectl preserve explain %s'", v.waits, name)))
	case last == nil:
		return fmt.Sprintf("node/%s is gone\n", name), nil
	case !isPreserved(last):
		return fmt.Sprintf("node/%s is no longer preserved\n", name), nil
	}
	return fmt.Sprintf("node/%s is preserved until %s\n", name, stamp(shownUntil(last))), nil
}

// extendMachine moves the end of a preservation where operators do: in the status of the Machine if it is there, else in its
// annotation (P6).
func extendMachine(ctx context.Context, seed client.Client, machine *machinev1alpha1.Machine, expiry time.Time) error {
	before := machine.DeepCopy()
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if status := &machine.Status.CurrentStatus; status.PreserveExpiryTime != nil && preservation.IsExpiryInStatus(machine) {
		status.PreserveExpiryTime.Time = expiry
		return seed.Status().Patch(ctx, machine, patch)
	}
	machine.Annotations[v1alpha1.AnnotationExpiryTime] = stamp(expiry)
	return seed.Patch(ctx, machine, patch)
}
