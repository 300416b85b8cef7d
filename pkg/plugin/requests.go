// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// fieldOwner is who has written what the plugin writes.
const fieldOwner = client.FieldOwner("kubectl-preserve")

// facts are what a request is decided on.
type facts struct {
	node *corev1.Node
	// kept is nil if the machine is not preserved.
	kept *kept
	// machine and deployment are nil without access to the seed.
	machine    *machinev1alpha1.Machine
	deployment *machinev1alpha1.MachineDeployment
	// places are those of the deployment.
	places *places
	now    time.Time
}

// factsOf returns what a snapshot says of a node.
func factsOf(s *evidence.Snapshot, node *corev1.Node) facts {
	f := facts{node: node, now: s.Time}
	if s.Seed == nil {
		if k, ok := keptNode(node, requestorsOf(s)); ok {
			f.kept = &k
		}
		return f
	}
	for i := range s.Seed.Machines {
		if machine := &s.Seed.Machines[i]; machine.Labels[machinev1alpha1.NodeLabelKey] == node.Name && (f.machine == nil || machine.DeletionTimestamp == nil) {
			f.machine = machine
		}
	}
	if f.machine == nil {
		return f
	}
	if k, ok := keptMachine(f.machine, node, requestorsOf(s)); ok {
		f.kept = &k
	}
	for i := range s.Seed.MachineDeployments {
		if deployment := &s.Seed.MachineDeployments[i]; belongs(f.machine, deployment) {
			f.deployment, f.places = deployment, new(placesOf(deployment, s, map[string]*corev1.Node{node.Name: node}))
		}
	}
	return f
}

// failed says that the machine is kept after it failed: it is gone when it is let go of (T8).
func (f *facts) failed() bool { return f.kept != nil && f.kept.failed() }

// personal says that the claim of a person stands, which asking again does not change (P6).
func (f *facts) personal() bool {
	return f.kept != nil && (f.kept.Cause == v1alpha1.CauseNow || f.kept.Cause == v1alpha1.CauseWhenFailed)
}

// forbidden says that operators forbid it (R6), as far as that is known.
func (f *facts) forbidden() bool {
	return f.machine != nil && f.machine.Annotations[v1alpha1.AnnotationForbidden] == "true" ||
		f.deployment != nil && f.deployment.Annotations[v1alpha1.AnnotationForbidden] == "true"
}

// templated says that the request is that of the pool, which comes back as often as it is changed on the node.
func (f *facts) templated() bool {
	return f.machine != nil && f.machine.Spec.NodeTemplateSpec.Annotations[v1alpha1.AnnotationPreserve] != ""
}

// lasts says for how long a machine is kept that is asked for.
func (f *facts) lasts(timeout time.Duration) string {
	switch {
	case timeout > 0:
		return brief(timeout)
	case f.deployment == nil:
		return "as long as its pool is set to (machinePreserveTimeout)"
	}
	if set, err := time.ParseDuration(f.deployment.Annotations[v1alpha1.AnnotationMachinePreserveTimeout]); err == nil && set > 0 {
		timeout = set
	} else {
		timeout = v1alpha1.DefaultMachinePreserveTimeout
	}
	return brief(timeout) + ", as its pool is set to"
}

// costs says what it takes of the share (P1).
func (f *facts) costs() string {
	text := "It takes none of the places for failed machines until it fails. Then it is kept in any case, and takes one."
	switch {
	case f.failed() && f.machine != nil && !preservation.ReadRecord(f.machine).HasPlace(f.now):
		text = "It takes one of the places for failed machines from now on: so far, it is only kept as somebody works on it."
	case f.failed():
		text = "It keeps the place among the failed machines that it has."
	}
	if p := f.places; p != nil && p.Share != nil {
		text += fmt.Sprintf(" Of %s, %d of %d are taken.", inZone(p), p.Used, *p.Share)
	}
	return text
}

func inZone(p *places) string {
	if p.Zone == "" {
		return "pool " + p.Pool
	}
	return fmt.Sprintf("pool %s in zone %s", p.Pool, p.Zone)
}

func (f *facts) since() string { return "until " + stamp(f.kept.until()) }

// brief returns a duration without what is zero in the end.
func brief(d time.Duration) string {
	text := d.String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

// change is what is written because of a request, and what is said of it.
type change struct {
	// annotations are set on the node, or removed if empty.
	annotations map[string]string
	// expiry is written on the Machine instead, unless it is zero.
	expiry time.Time
	// anew says that what is asked for on the node is withdrawn first.
	anew bool
	done string
	says []string
	// asks is what has to be confirmed.
	asks string
}

func asking(request string, timeout time.Duration) map[string]string {
	annotations := map[string]string{v1alpha1.AnnotationPreserve: request, v1alpha1.AnnotationTimeout: ""}
	if timeout > 0 {
		annotations[v1alpha1.AnnotationTimeout] = timeout.String()
	}
	return annotations
}

// verb is a command that asks for something on nodes.
type verb struct {
	use, short, long, example string
	takesFor, takesUntil      bool
	// decide is pure.
	decide func(f facts, r *requestFlags) (change, error)
	// waits says until what --wait waits, and arrived whether a node, or nil for one that is gone, is like that.
	waits   string
	arrived func(*corev1.Node) (bool, error)
}

var verbs = []verb{{
	use: "now NODE...", short: "Keep machines from now on",
	long: `Keep machines from now on, for --for or for as long as their pool is set to. The cluster-autoscaler leaves them alone.
One that fails is drained and kept, and not replaced. A machine that has failed before it is asked for is replaced all the
same, and so is one that fails while its pool is updated. No machine is kept for longer than operators allow.`,
	example:  "  kubectl preserve now node-1 --for 6h --wait",
	takesFor: true, decide: decideNow, waits: "they are kept", arrived: isHeld,
}, {
	use: "when-failed NODE...", short: "Keep machines when they fail",
	long: `Keep machines when they fail, for --for or for as long as their pool is set to, also where there is no place for
failed machines any more. Nothing happens until then.`,
	example:  "  kubectl preserve when-failed node-1 node-2",
	takesFor: true, decide: decideWhenFailed, waits: "they have failed and are kept (see --timeout)", arrived: isHeld,
}, {
	use: "release NODE...", short: "Let go of machines",
	long: `Let go of machines: what was asked for on their nodes is withdrawn, and they are kept no longer. A machine that has
failed is terminated then, with all that is on it. After 'forbid', it allows them to be kept again.`,
	example: "  kubectl preserve release node-1 --yes --wait",
	decide:  decideRelease, waits: "they are kept no longer, or gone", arrived: isReleased,
}, {
	use: "forbid NODE...", short: "Never keep machines",
	long: `Never keep machines: they are replaced when they fail, as if there was no preservation. One that is kept is let go of.
'release' takes it back.`,
	example: "  kubectl preserve forbid node-1",
	decide:  decideForbid, waits: "they are kept no longer, or gone", arrived: isReleased,
}, {
	use: "extend NODE... (--for DURATION | --until TIME)", short: "Keep machines longer that are kept",
	long: `Keep machines for --for longer than they are kept now, or --until a time. With access to the seed, the end is written on
the Machine. Without, asking is all there is, and what was asked for once keeps its end. So
- a machine that nobody asked for on its node is asked for now, which adds to the time that it has;
- a machine that was asked for and has not failed is let go of and asked for anew;
- a machine that was asked for and has failed would be gone if it was let go of: only operators can keep it longer.`,
	example: `  kubectl preserve extend node-1 --for 24h
  kubectl preserve extend node-1 --until 2026-01-31T18:00:00Z --seed-namespace shoot--my--shoot`,
	takesFor: true, takesUntil: true, decide: decideExtend,
}}

func decideNow(f facts, r *requestFlags) (change, error) {
	switch {
	case f.forbidden():
		return change{}, errForbidden
	case f.personal() && r.duration > 0:
		return change{}, fmt.Errorf("its machine was asked for before and is kept %s: asking again does not change that. Use 'kubectl preserve extend %s'", f.since(), f.node.Name)
	}
	c := change{annotations: asking(v1alpha1.RequestNow, r.duration), done: "is asked for"}
	switch {
	case f.personal():
		c.says = append(c.says, fmt.Sprintf("Its machine was asked for before, and is kept %s as it was.", f.since()))
	case f.kept != nil:
		c.says = append(c.says, fmt.Sprintf("Its machine is kept %s already. Now it is kept for %s from now on, if that is longer.", f.since(), f.lasts(r.duration)))
	default:
		c.says = append(c.says, fmt.Sprintf("Its machine is kept from now on, for %s. The cluster-autoscaler leaves it alone.", f.lasts(r.duration)))
	}
	c.says = append(c.says, f.costs())
	return c, nil
}

func decideWhenFailed(f facts, r *requestFlags) (change, error) {
	if f.forbidden() {
		return change{}, errForbidden
	}
	if f.personal() && r.duration > 0 && (f.failed() || f.kept.Cause == v1alpha1.CauseWhenFailed) {
		return change{}, fmt.Errorf("its machine was asked for before and is kept %s: asking again does not change that. Use 'kubectl preserve extend %s'", f.since(), f.node.Name)
	}
	c := change{annotations: asking(v1alpha1.RequestWhenFailed, r.duration), done: "is asked for in case it fails"}
	switch {
	case f.failed():
		c.says = append(c.says, fmt.Sprintf("Its machine has failed and is kept %s.", f.since()))
	case f.personal() && f.kept.Cause == v1alpha1.CauseNow:
		c.says = append(c.says, fmt.Sprintf("Its machine is kept %s as it was asked for: that ends now.", f.since()),
			fmt.Sprintf("When it fails, it is kept for %s from then on.", f.lasts(r.duration)))
	default:
		c.says = append(c.says, fmt.Sprintf("Nothing happens until its machine fails. Then it is kept for %s.", f.lasts(r.duration)))
	}
	c.says = append(c.says, f.costs())
	return c, nil
}

func decideRelease(f facts, _ *requestFlags) (change, error) {
	request, written := f.node.Annotations[v1alpha1.AnnotationPreserve]
	c := change{done: "is let go of"}
	switch {
	case f.failed():
		c = f.letGo(c)
	case f.kept != nil && f.kept.Cause == v1alpha1.CauseMaintenance:
		return change{}, fmt.Errorf("its machine is kept as %s works on it: end that with 'kubectl preserve maintenance done %s', or use 'kubectl preserve forbid %s'",
			cmp.Or(f.kept.AskedBy, "somebody"), f.node.Name, f.node.Name)
	case f.kept != nil && !(f.personal() && f.kept.AskedBy == askedOnNode):
		c.annotations = asking(v1alpha1.RequestFalse, 0)
		c.says = append(c.says, "Its machine is kept no longer, and not when it fails either: nobody asked for it on the node, so nothing could be withdrawn there.",
			fmt.Sprintf("To allow that again, run 'kubectl preserve release %s' once more.", f.node.Name))
	case written:
		c.annotations = map[string]string{v1alpha1.AnnotationPreserve: "", v1alpha1.AnnotationTimeout: ""}
		if c.says = []string{"What was asked for is withdrawn. If nothing else keeps its machine, it is like any other from now on."}; request == v1alpha1.RequestFalse {
			c.done, c.says = "may be kept again", []string{"Its machine is like any other from now on: it may be kept when it fails."}
		}
	default:
		c.done, c.says = "is not kept", []string{"Its machine is not kept, and nothing is asked for: there is nothing to be done."}
	}
	return c, nil
}

// letGo is the end of a machine that has failed.
func (f *facts) letGo(c change) change {
	c.annotations = asking(v1alpha1.RequestFalse, 0)
	c.asks = fmt.Sprintf("The machine of node %s has failed and is kept %s. Let go of it? It is terminated, with all that is on it.", f.node.Name, f.since())
	c.says = append(c.says, "Its machine is terminated and replaced. The place that it had is free for the next one that fails.")
	return c
}

func decideForbid(f facts, _ *requestFlags) (change, error) {
	c := change{annotations: asking(v1alpha1.RequestFalse, 0), done: "is not to be kept"}
	if f.failed() {
		return f.letGo(c), nil
	}
	if f.kept != nil {
		c.says = append(c.says, "Its machine is kept no longer.")
	}
	c.says = append(c.says, fmt.Sprintf("When its machine fails, it is replaced as ever. It takes no place. 'kubectl preserve release %s' takes this back.", f.node.Name))
	return c, nil
}

func decideExtend(f facts, r *requestFlags) (change, error) {
	if f.kept == nil {
		return change{}, fmt.Errorf("its machine is not kept: ask for it with 'kubectl preserve now %s --for DURATION'", f.node.Name)
	}
	is := f.kept.until()
	if is.IsZero() {
		return change{}, errors.New("its machine is kept, but the node does not say until when: operators can see that in the seed")
	}
	to := r.untilTime
	if r.duration > 0 {
		to = is.Add(r.duration)
	}
	if !to.After(is) {
		return change{}, fmt.Errorf("--until=%s: must be later than %s, until when its machine is kept", r.until, stamp(is))
	}
	c := change{done: "is kept longer", says: []string{fmt.Sprintf("Its machine is kept until %s instead of %s.", stamp(to), stamp(is))}}
	if f.machine != nil {
		c.expiry = to
		return c, nil
	}
	timeout := to.Sub(f.now).Round(time.Second)
	switch {
	case timeout > v1alpha1.DefaultMaxMachinePreserveTimeout:
		return change{}, fmt.Errorf("%s: must not keep its machine for longer than %s from now on, until %s would be %s. Operators can (--seed-namespace)",
			r.given(), brief(v1alpha1.DefaultMaxMachinePreserveTimeout), stamp(to), brief(timeout))
	case f.personal() && (f.failed() || !isReady(f.node)):
		return change{}, fmt.Errorf("its machine has failed and is kept %s as it was asked for. That end cannot be moved from the shoot: to ask anew, it would have to be let go of, and it would be gone. Operators can move it: 'kubectl preserve extend %s --seed-namespace NAMESPACE'",
			f.since(), f.node.Name)
	case f.personal():
		c.anew = true
		c.says = append(c.says, "It is let go of for some seconds and asked for anew: an end that was asked for cannot be moved from the shoot.")
	default:
		c.says = append(c.says, "It is asked for now, beside what keeps it already.")
	}
	c.annotations = asking(v1alpha1.RequestNow, timeout)
	c.says = append(c.says, f.costs())
	return c, nil
}

var errForbidden = errors.New("operators forbid to keep its machine: ask them to remove " + v1alpha1.AnnotationForbidden + " from the Machine or MachineDeployment")

// isHeld says that the preservation controller has told until when the machine is kept: machine-controller-manager 0.62 tells
// another time before.
func isHeld(node *corev1.Node) (bool, error) {
	if node == nil {
		return false, errors.New("it is gone")
	}
	k := kept{}
	return k.readCondition(node) && k.Until != nil, nil
}

func isReleased(node *corev1.Node) (bool, error) {
	return node == nil || !isConditionTrue(node, v1alpha1.ConditionPreserved), nil
}

// writeFlags are those of all commands that write.
type writeFlags struct {
	dryRun string
	wait   bool
	// timeout is for how long is waited, 0 for as long as it takes.
	timeout time.Duration
	yes     bool
}

func (w *writeFlags) add(flags *pflag.FlagSet, waits string) {
	flags.StringVar(&w.dryRun, "dry-run", "none", `Must be "none", "server" or "client": with client, only say what would be written; with server, have it checked by the API server as well`)
	flags.Lookup("dry-run").NoOptDefVal = "unchanged"
	flags.BoolVarP(&w.yes, "yes", "y", false, "Do not ask before something is lost")
	if waits != "" {
		flags.BoolVar(&w.wait, "wait", false, "Wait until "+waits)
		flags.DurationVar(&w.timeout, "timeout", time.Minute, "How long to wait, 0 for as long as it takes. It ends with an error")
	}
}

func (w *writeFlags) validate() error {
	if w.timeout < 0 {
		return fmt.Errorf("--timeout=%s: must not be negative, for example 10m", w.timeout)
	}
	if w.dryRun == "unchanged" {
		return errors.New("--dry-run: must be followed by =none, =server or =client")
	}
	return oneOf("--dry-run", w.dryRun, "none", "server", "client")
}

// dry says that nothing is to be changed.
func (w *writeFlags) dry() bool { return w.dryRun != "none" }

// suffix is put behind what is said of a write, as kubectl has it.
func (w *writeFlags) suffix() string {
	switch w.dryRun {
	case "server":
		return " (server dry run)"
	case "client":
		return " (dry run)"
	}
	return ""
}

func (w *writeFlags) options() *client.PatchOptions {
	options := (&client.PatchOptions{}).ApplyOptions([]client.PatchOption{fieldOwner})
	if w.dryRun == "server" {
		client.DryRunAll.ApplyToPatch(options)
	}
	return options
}

// limit returns a context that ends when it has been waited for long enough: 0 is never.
func limit(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}

// confirm asks a person. Where nobody sits at a terminal, --yes says it.
func (o *Options) confirm(question string, w *writeFlags) error {
	if w.yes || w.dry() {
		return nil
	}
	if !o.isTerminal(o.In) {
		return fmt.Errorf("nobody can be asked, as this is not a terminal: %s Pass --yes to say so", question)
	}
	if err := write(o.ErrOut, question+" [y/N] "); err != nil {
		return err
	}
	answer, err := bufio.NewReader(o.In).ReadString('\n')
	if answer = strings.ToLower(strings.TrimSpace(answer)); answer != "y" && answer != "yes" {
		return errors.Join(errors.New("not confirmed, nothing was changed"), err)
	}
	return nil
}

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

// parse fills in duration and untilTime (R5).
func (r *requestFlags) parse(takesUntil bool) error {
	if err := r.validate(); err != nil {
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
	if r.forText != "" {
		d, err := time.ParseDuration(r.forText)
		if err != nil || d < v1alpha1.MinMachinePreserveTimeout || d > v1alpha1.DefaultMaxMachinePreserveTimeout {
			return fmt.Errorf("--for=%s: must be a duration from %s to %s, for example 6h or 90m", r.forText,
				v1alpha1.MinMachinePreserveTimeout, brief(v1alpha1.DefaultMaxMachinePreserveTimeout))
		}
		r.duration = d
	}
	return nil
}

func newRequestCommand(o *Options, v *verb) *cobra.Command {
	r := &requestFlags{}
	cmd := &cobra.Command{
		Use: v.use, Short: v.short, Long: v.long, Example: v.example,
		Args: named(v.use, 1, -1),
		RunE: func(cmd *cobra.Command, nodes []string) error {
			if err := r.parse(v.takesUntil); err != nil {
				return err
			}
			return o.request(cmd.Context(), v, r, nodes)
		},
		ValidArgsFunction: o.completeNodes,
	}
	if v.takesFor {
		cmd.Flags().StringVar(&r.forText, "for", "", "How long, from 10s to 336h, for example 6h")
	}
	if v.takesUntil {
		cmd.Flags().StringVar(&r.until, "until", "", "Until when, for example 2026-01-31T18:00:00Z")
	}
	r.add(cmd.Flags(), v.waits)
	return cmd
}

// request carries out a verb for nodes. What fails for one of them is no reason not to go on with the others.
func (o *Options) request(ctx context.Context, v *verb, r *requestFlags, names []string) error {
	shoot, seed, err := o.clients()
	if err != nil {
		return err
	}
	s := &evidence.Snapshot{}
	if seed != nil {
		if err := evidence.ReadMachines(ctx, seed, o.SeedNamespace, s); err != nil {
			return err
		}
	}
	var (
		errs    []error
		waitFor []string
	)
	for _, name := range names {
		if err := o.requestOne(ctx, shoot, seed, s, v, r, name); err != nil {
			errs = append(errs, fmt.Errorf("node %s: %w", name, err))
			continue
		}
		waitFor = append(waitFor, name)
	}
	if !r.wait || r.dry() {
		return errors.Join(errs...)
	}

	ctx, cancel := limit(ctx, r.timeout)
	defer cancel()
	for _, name := range waitFor {
		errs = append(errs, o.waitForOne(ctx, shoot, v, r, name))
	}
	return errors.Join(errs...)
}

func (o *Options) requestOne(ctx context.Context, shoot, seed client.WithWatch, s *evidence.Snapshot, v *verb, r *requestFlags, name string) error {
	confirmed := ""
	for {
		node, err := getNode(ctx, shoot, name)
		if err != nil {
			return err
		}
		s.Time = o.Clock.Now()
		f := factsOf(s, node)
		c, err := v.decide(f, r)
		if err != nil {
			return err
		}
		if c.asks != confirmed && c.asks != "" {
			if err := o.confirm(c.asks, &r.writeFlags); err != nil {
				return err
			}
			confirmed = c.asks
		}
		switch err := o.carryOut(ctx, shoot, seed, f, c, r); {
		case apierrors.IsConflict(err): // it was decided on something else than there is now
			if seed != nil {
				if err := evidence.ReadMachines(ctx, seed, o.SeedNamespace, s); err != nil {
					return err
				}
			}
			continue
		case err != nil:
			return err
		}
		if f.templated() && len(c.annotations) > 0 {
			c.says = append(c.says, "Mind that the pool's annotations carry a request, too: it comes back.")
		}
		if err := write(o.Out, fmt.Sprintf("node/%s %s%s\n", name, c.done, r.suffix())); err != nil {
			return err
		}
		for _, sentence := range c.says {
			if err := write(o.Out, "  "+sentence+"\n"); err != nil {
				return err
			}
		}
		if v.takesUntil && c.expiry.IsZero() && !r.dry() {
			return o.isLater(ctx, shoot, f)
		}
		return nil
	}
}

// carryOut writes a change.
func (o *Options) carryOut(ctx context.Context, shoot, seed client.WithWatch, f facts, c change, r *requestFlags) error {
	if r.dryRun == "client" {
		return nil
	}
	if !c.expiry.IsZero() {
		return extendMachine(ctx, seed, f.machine, c.expiry, r.options())
	}
	if c.anew && !r.dry() {
		node := f.node.DeepCopy()
		before, _ := endings(ctx, shoot, node.Name)
		if err := annotate(ctx, shoot, node, map[string]string{v1alpha1.AnnotationPreserve: "", v1alpha1.AnnotationTimeout: ""}, r.options()); err != nil {
			return err
		}
		return o.askAnew(ctx, shoot, node.Name, before, c, r)
	}
	return annotate(ctx, shoot, f.node, c.annotations, r.options())
}

// askAnew asks for a machine again, once it is seen to be let go of. It asks whatever happens meanwhile, also if the command
// is interrupted: the machine must not be left without its request.
func (o *Options) askAnew(ctx context.Context, shoot client.WithWatch, name string, before sets.Set[string], c change, r *requestFlags) error {
	waiting, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	_ = await(waiting, shoot, name, isReleased) // what else keeps it lasts, and asking adds to that
	// machine-controller-manager 0.62 takes the condition back at once. What is asked for again before the preservation controller
	// has seen that it was withdrawn, has never been withdrawn.
	_ = wait.PollUntilContextCancel(waiting, o.patience/40, true, func(ctx context.Context) (bool, error) {
		now, err := endings(ctx, shoot, name)
		return len(now.Difference(before)) > 0, err
	})
	for {
		node := &corev1.Node{}
		err := shoot.Get(context.WithoutCancel(ctx), client.ObjectKey{Name: name}, node)
		if err == nil {
			err = annotate(context.WithoutCancel(ctx), shoot, node, c.annotations, r.options())
		}
		switch {
		case apierrors.IsConflict(err):
			continue
		case err != nil:
			return fmt.Errorf("what was asked for was withdrawn, but it could not be asked for anew, run 'kubectl preserve now %s --for %s': %w", name, c.annotations[v1alpha1.AnnotationTimeout], err)
		}
		return nil
	}
}

// endings returns the Events that tell that a preservation of a node's machine ended.
func endings(ctx context.Context, shoot client.Reader, name string) (sets.Set[string], error) {
	events, err := evidence.ReadEvents(ctx, shoot, metav1.NamespaceDefault, "Node", name)
	found := sets.New[string]()
	for i := range events {
		if events[i].Reason == "MachinePreservationEnded" {
			found.Insert(string(events[i].UID) + "/" + events[i].ResourceVersion)
		}
	}
	return found, err
}

// isLater returns when the node says that its machine is kept for longer than it was.
func (o *Options) isLater(ctx context.Context, shoot client.WithWatch, was facts) error {
	ctx, cancel := context.WithTimeout(ctx, o.patience)
	defer cancel()
	err := await(ctx, shoot, was.node.Name, func(node *corev1.Node) (bool, error) {
		if held, err := isHeld(node); !held || err != nil {
			return false, err
		}
		_, until := preservation.ReadCondition(preservation.PreservedCondition(node))
		return until.After(was.kept.until()), nil
	})
	if isTimeout(err) {
		return fmt.Errorf("after %s, its machine is still kept %s: an operator asked for it, or it has been kept for as long as operators allow (see 'kubectl preserve explain %s')", o.patience, was.since(), was.node.Name)
	}
	return err
}

// waitForOne returns when what was asked for has happened.
func (o *Options) waitForOne(ctx context.Context, shoot client.WithWatch, v *verb, r *requestFlags, name string) error {
	var last *corev1.Node
	err := await(ctx, shoot, name, func(node *corev1.Node) (bool, error) {
		last = node
		return v.arrived(node)
	})
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case isTimeout(err):
		return fmt.Errorf("node %s: waited for %s in vain until %s: is machine preservation enabled for the shoot? 'kubectl preserve explain %s' says more", name, r.timeout, v.waits, name)
	case err != nil:
		return fmt.Errorf("node %s: %w", name, err)
	case last == nil:
		return write(o.Out, fmt.Sprintf("node/%s is gone\n", name))
	case !isConditionTrue(last, v1alpha1.ConditionPreserved):
		return write(o.Out, fmt.Sprintf("node/%s is kept no longer\n", name))
	}
	_, until := preservation.ReadCondition(preservation.PreservedCondition(last))
	return write(o.Out, fmt.Sprintf("node/%s is kept until %s\n", name, stamp(until)))
}

// getNode returns a node.
func getNode(ctx context.Context, shoot client.Reader, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	if err := shoot.Get(ctx, client.ObjectKey{Name: name}, node); apierrors.IsNotFound(err) {
		return nil, errors.New("it does not exist, see 'kubectl get nodes'")
	} else if err != nil {
		return nil, err
	}
	return node, nil
}

// annotate sets the annotations of a node, and removes those that are empty, in one patch that fails if the node is not the
// one that was read.
func annotate(ctx context.Context, c client.Client, node *corev1.Node, annotations map[string]string, options client.PatchOption) error {
	before := node.DeepCopy()
	if node.Annotations == nil {
		node.Annotations = map[string]string{}
	}
	for key, value := range annotations {
		if value == "" {
			delete(node.Annotations, key)
			continue
		}
		node.Annotations[key] = value
	}
	if maps.Equal(before.Annotations, node.Annotations) {
		return nil
	}
	return c.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}), options)
}

// extendMachine moves the end of a preservation where operators do: in the status of the Machine if it is there, else in its
// annotation (P6).
func extendMachine(ctx context.Context, seed client.Client, machine *machinev1alpha1.Machine, expiry time.Time, options *client.PatchOptions) error {
	before := machine.DeepCopy()
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if status := &machine.Status.CurrentStatus; status.PreserveExpiryTime != nil && machine.Annotations[v1alpha1.AnnotationExpiryInStatus] == string(machine.UID) {
		status.PreserveExpiryTime.Time = expiry
		return seed.Status().Patch(ctx, machine, patch, &client.SubResourcePatchOptions{PatchOptions: *options})
	}
	machine.Annotations[v1alpha1.AnnotationExpiryTime] = stamp(expiry)
	return seed.Patch(ctx, machine, patch, options)
}

// completeNodes completes the names of nodes.
func (o *Options) completeNodes(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	shoot, _, err := o.shootClient()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
	defer cancel()
	nodes := &corev1.NodeList{}
	if err := shoot.List(ctx, nodes); err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	var names []string
	for i := range nodes.Items {
		if name := nodes.Items[i].Name; strings.HasPrefix(name, prefix) && !slices.Contains(args, name) {
			names = append(names, name)
		}
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// completeNode completes the name of one node.
func (o *Options) completeNode(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.completeNodes(cmd, args, prefix)
}
