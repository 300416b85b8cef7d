// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldOwner is the field owner of what the plugin writes.
const fieldOwner = "kubectl-preserve"

// writeFlags are those of all commands that write.
type writeFlags struct {
	dryRun string
	wait   bool
	// timeout is for how long is waited, 0 for as long as it takes.
	timeout time.Duration
	yes     bool
}

// add adds the flags: those for what has to be confirmed if it loses something, and those to wait if there is something to wait for.
func (w *writeFlags) add(flags *pflag.FlagSet, waits string, loses bool) {
	flags.StringVar(&w.dryRun, "dry-run", "none", `Must be "none", "server" or "client": with client, only print what would be written; with server, let the API server check it too`)
	flags.Lookup("dry-run").NoOptDefVal = "unchanged"
	if loses {
		flags.BoolVarP(&w.yes, "yes", "y", false, "Do not ask for confirmation before something is lost")
	}
	if waits != "" {
		flags.BoolVar(&w.wait, "wait", false, "Wait until "+waits)
		flags.DurationVar(&w.timeout, "timeout", time.Minute, "How long to wait before the command ends with an error, 0 for no limit")
	}
}

func (w *writeFlags) validate(flags *pflag.FlagSet) error {
	switch {
	case flags.Changed("timeout") && !w.wait:
		return fmt.Errorf("--timeout=%s: must be set with --wait only", w.timeout)
	case w.timeout < 0:
		return fmt.Errorf("--timeout=%s: must not be negative, for example 10m", w.timeout)
	case w.dryRun == "unchanged":
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

// writer returns a client whose writes are ours, and change nothing if they are only to be checked. With client, there are none.
func (w *writeFlags) writer(c client.Client) client.Client {
	if w.dryRun == "server" {
		c = client.NewDryRunClient(c)
	}
	return client.WithFieldOwner(c, fieldOwner)
}

// limit returns a context that ends when it has been waited for long enough: 0 is never.
func limit(ctx context.Context, timeout time.Duration) (context.Context, context.CancelFunc) {
	if timeout == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, timeout)
}

// inVain says what was waited for if it has not happened in time, and by what else a wait was ended.
func (w *writeFlags) inVain(ctx context.Context, err error, until string) error {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ctx.Err()
	case isTimeout(err):
		return fmt.Errorf("after %s, still waiting until %s", w.timeout, until)
	}
	return err
}

// confirm asks a person. Where nobody sits at a terminal, --yes says it.
func (o *Options) confirm(ctx context.Context, question string, w *writeFlags) error {
	if w.yes || w.dry() {
		return nil
	}
	if !o.isTerminal(o.In) {
		return fmt.Errorf("this is not a terminal, so that you cannot be asked: %s Pass --yes to confirm", question)
	}
	if err := write(o.ErrOut, question+" [y/N] "); err != nil {
		return err
	}
	answered := make(chan error, 1)
	go func() { // reading does not end with the context
		answer, err := bufio.NewReader(o.In).ReadString('\n')
		if answer = strings.ToLower(strings.TrimSpace(answer)); answer == "y" || answer == "yes" {
			answered <- nil
			return
		}
		answered <- errors.Join(errNotConfirmed, err)
	}()
	select {
	case err := <-answered:
		return err
	case <-ctx.Done():
		return errors.Join(errNotConfirmed, ctx.Err())
	}
}

var errNotConfirmed = errors.New("not confirmed, nothing was changed")

// retryOnConflict tries again while what is written was read too early. It returns the error of the last try, also if that is one of
// a context, which package retry takes for its own.
func retryOnConflict(try func() error) (err error) {
	_ = retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		err = try()
		return err
	})
	return err
}

// getNode returns a node.
func getNode(ctx context.Context, c client.Reader, name string) (*corev1.Node, error) {
	node := &corev1.Node{}
	err := c.Get(ctx, client.ObjectKey{Name: name}, node)
	switch {
	case apierrors.IsNotFound(err):
		err = errNoNode(name)
	case err != nil:
		err = fmt.Errorf("failed to read the node: %w", err)
	}
	return node, err
}

// errGone is in errors about what does not exist.
var errGone = errors.New("does not exist")

// errNoNode says where the names of nodes are to be found.
func errNoNode(name string) error {
	return fmt.Errorf("node %q %w: see 'kubectl get nodes', and 'kubectl preserve list' for nodes of preserved machines. For a node that is gone, use 'kubectl preserve why'", name, errGone)
}

// annotate sets the annotations of a node, and removes those that are empty, in one patch. It fails if the node is of another
// version than the given one, if any.
func annotate(ctx context.Context, c client.Client, name, version string, annotations map[string]string) error {
	values := map[string]any{}
	for key, value := range annotations {
		values[key] = value
		if value == "" {
			values[key] = nil
		}
	}
	metadata := map[string]any{"annotations": values}
	if version != "" {
		metadata["resourceVersion"] = version
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	return c.Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch(types.MergePatchType, patch))
}

// completeNodes completes the names of nodes.
func (o *Options) completeNodes(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return o.complete(cmd, args, prefix, namesOfNodes)
}

// completeNode completes the name of one node.
func (o *Options) completeNode(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.completeNodes(cmd, args, prefix)
}

// completeFailed completes the name of one node, or of a node or machine in the failure history.
func (o *Options) completeFailed(cmd *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return o.complete(cmd, args, prefix, func(ctx context.Context, shoot client.Reader) []string {
		names := namesOfNodes(ctx, shoot)
		for _, entry := range readLedger(ctx, shoot).Entries {
			names = append(names, entry.Spec.Node, entry.Spec.Machine)
		}
		slices.Sort(names)
		return slices.Compact(names)
	})
}

// complete returns those names that begin with the prefix and are not among the arguments yet.
func (o *Options) complete(cmd *cobra.Command, args []string, prefix string, namesOf func(context.Context, client.Reader) []string) ([]string, cobra.ShellCompDirective) {
	shoot, _, err := o.shootClient()
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	ctx, cancel := context.WithTimeout(cmd.Context(), 3*time.Second)
	defer cancel()
	names := slices.DeleteFunc(namesOf(ctx, shoot), func(name string) bool {
		return name == "" || !strings.HasPrefix(name, prefix) || slices.Contains(args, name)
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

func namesOfNodes(ctx context.Context, shoot client.Reader) []string {
	nodes := &corev1.NodeList{}
	if err := shoot.List(ctx, nodes); err != nil {
		return nil
	}
	var names []string
	for i := range nodes.Items {
		names = append(names, nodes.Items[i].Name)
	}
	return names
}
