// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
	logf "sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

// listWatch lists and then watches, which all API servers can do.
type listWatch struct{ *toolscache.ListWatch }

// IsWatchListSemanticsUnSupported implements what reflectors look for.
func (listWatch) IsWatchListSemanticsUnSupported() bool { return true }

// await returns when done says so of a node, or an error if that cannot happen any more. The node is nil once it is gone.
func await(ctx context.Context, c client.WithWatch, name string, done func(*corev1.Node) (bool, error)) error {
	return awaitObject(ctx, c, name, &corev1.Node{}, &corev1.NodeList{}, done,
		client.MatchingFieldsSelector{Selector: fields.OneTermEqualSelector(metav1.ObjectNameField, name)})
}

// awaitObject does it for the object of a key, of a kind that has such lists. It is in one with the options.
func awaitObject[T any](ctx context.Context, c client.WithWatch, key string, kind runtime.Object, empty client.ObjectList, done func(*T) (bool, error), opts ...client.ListOption) error {
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	refused := func(err error) error {
		if isRefused(err) {
			end(err)
		}
		return err
	}
	with := func(raw metav1.ListOptions) []client.ListOption {
		raw.FieldSelector = "" // opts has it
		return append(slices.Clone(opts), &client.ListOptions{Raw: &raw, Limit: raw.Limit, Continue: raw.Continue})
	}
	lw := listWatch{&toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, raw metav1.ListOptions) (runtime.Object, error) {
			list := empty.DeepCopyObject().(client.ObjectList)
			return list, refused(c.List(ctx, list, with(raw)...))
		},
		WatchFuncWithContext: func(ctx context.Context, raw metav1.ListOptions) (watch.Interface, error) {
			events, err := c.Watch(ctx, empty.DeepCopyObject().(client.ObjectList), with(raw)...)
			return events, refused(err)
		},
	}}
	_, err := watchtools.UntilWithSync(ctx, lw, kind, func(store toolscache.Store) (bool, error) {
		_, there, err := store.GetByKey(key)
		if err != nil || there {
			return false, err // the Event that it is there is still to come, and those after it
		}
		return done(nil)
	}, func(event watch.Event) (bool, error) {
		is, err := toolscache.MetaNamespaceKeyFunc(event.Object)
		switch {
		case err != nil || is != key:
			return false, err
		case event.Type == watch.Deleted:
			return done(nil)
		}
		return done(any(event.Object).(*T))
	})
	if refusal := context.Cause(ctx); err != nil && isRefused(refusal) {
		return fmt.Errorf("failed to watch: %w", refusal)
	}
	return err
}

// isRefused says that asking again does not help: a reflector would ask for ever.
func isRefused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) || apierrors.IsMethodNotSupported(err)
}

// isTimeout says that a wait ended without success.
func isTimeout(err error) bool {
	return wait.Interrupted(err) || errors.Is(err, context.DeadlineExceeded)
}

// follow calls show with all that is known, now and every second, until the context is done.
func (o *Options) follow(ctx context.Context, show func(*observed.Snapshot) error) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	from := evidence.Sources{Clock: o.Clock, SeedNamespace: o.SeedNamespace}
	shoot, config, err := o.shootClient()
	if err == nil {
		from.Shoot, err = watching(ctx, shoot, config, nil)
	}
	if err == nil && o.wantsSeed() {
		var seed client.Client
		if seed, config, err = o.seedClient(); err == nil {
			from.Seed, err = watching(ctx, seed, config, map[string]cache.Config{o.SeedNamespace: {}})
		}
	}
	if err != nil {
		return err
	}

	ticker := o.Clock.NewTicker(time.Second)
	defer ticker.Stop()
	for {
		s, err := evidence.ReadAll(ctx, from)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			err = show(s)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C():
		}
	}
}

// watcher reads what is watched from there, and the rest, which may not be there or not be allowed, with each call.
type watcher struct {
	client.Reader
	cache cache.Cache
	// refused has the errors of watches that are not allowed, by their kinds: what was listed before them never changes.
	refused *sync.Map
}

// watching returns a reader of what a client reads in all namespaces, or in some. A client without a config is read itself.
func watching(ctx context.Context, c client.Client, config *rest.Config, namespaces map[string]cache.Config) (client.Reader, error) {
	if config == nil {
		return c, nil
	}
	logf.SetLogger(logr.Discard())
	refused := &sync.Map{}
	watched, err := cache.New(config, cache.Options{
		Scheme: scheme, Mapper: mapper(), DefaultNamespaces: namespaces,
		DefaultWatchErrorHandler: func(_ context.Context, r *toolscache.Reflector, err error) { // the calls say what is wrong
			if isRefused(err) {
				refused.Store(r.TypeDescription(), err)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	go func() { _ = watched.Start(ctx) }()
	return watcher{c, watched, refused}, nil
}

// List implements client.Reader.
func (w watcher) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	kind, err := apiutil.GVKForObject(list, scheme)
	if err != nil {
		return err
	}
	kind.Kind = strings.TrimSuffix(kind.Kind, "List")
	if informer, err := w.cache.GetInformerForKind(ctx, kind, cache.BlockUntilSynced(false)); err == nil && informer.HasSynced() {
		if err, is := w.refused.Load(w.describe(kind)); is {
			return fmt.Errorf("failed to watch: %w", err.(error))
		}
		return w.cache.List(ctx, list, opts...)
	}
	return w.Reader.List(ctx, list, opts...)
}

// describe returns what reflectors call a kind.
func (watcher) describe(kind schema.GroupVersionKind) string {
	object, err := scheme.New(kind)
	if err != nil {
		return kind.String()
	}
	return fmt.Sprintf("%T", object)
}

// errReached ends watching as what was waited for has happened.
var errReached = errors.New("it has happened")

// watchList shows the list and its changes: redrawn on a terminal, else with a line for each change. It ends without an error when what
// --until waits for has happened, or if it is interrupted without --until.
func (o *Options) watchList(ctx context.Context, l *listFlags) error {
	limited, cancel := limit(ctx, l.timeout)
	defer cancel()
	var (
		last   string
		headed bool
		widest = listHead(l.wide())
	)
	shown := map[string]kept{}
	err := o.follow(limited, func(s *observed.Snapshot) error {
		v := overviewOf(s)
		v.only(l.names)
		text := o.text(&v, l.wide())
		first, terminal := last == "", o.isTerminal(o.Out)
		if first {
			if err := allExist(s, l.names); err != nil {
				return err
			}
		}
		switch {
		case terminal && text == last:
			text = ""
		case terminal:
			last, text = text, redraw+text
		default:
			last, text = text, o.changes(&v, shown, &widest, !headed, l.wide())
			headed = headed || text != ""
		}
		if err := write(o.Out, text); err != nil {
			return err
		}
		reached, err := l.reached(s, &v)
		if reached {
			err = errReached
		}
		return err
	})
	switch {
	case errors.Is(err, errReached):
		return nil
	case errors.Is(limited.Err(), context.DeadlineExceeded) && l.until == "":
		return fmt.Errorf("--timeout=%s has passed", brief.Duration(l.timeout))
	case errors.Is(limited.Err(), context.DeadlineExceeded):
		return fmt.Errorf("--timeout=%s has passed, and not all of %s are %s. 'kubectl preserve explain NODE' says why", brief.Duration(l.timeout), strings.Join(l.names, ", "), l.until)
	case err == nil && l.until != "":
		return ctx.Err()
	}
	return err
}

// changes returns the lines of those machines that are shown otherwise than before, and remembers how they are.
func (o *Options) changes(v *overview, shown map[string]kept, widest *line, first, wide bool) string {
	var lines []line
	before := maps.Clone(shown)
	clear(shown)
	for _, k := range v.Machines {
		id := cmp.Or(k.Machine, k.Node) // which node it has may be told later
		was, there := before[id]
		delete(before, id)
		shown[id] = k
		if !there || !same(&was, &k) {
			lines = append(lines, k.line(wide, v.Time.Time))
		}
	}
	for _, id := range slices.Sorted(maps.Keys(before)) {
		k := before[id]
		k.Phase, k.Drain, k.Until, k.Message = "Released", "", nil, ""
		lines = append(lines, k.line(wide, v.Time.Time))
	}
	if len(lines) == 0 {
		return ""
	}
	// A line with the widest cells so far is the first of each of these tables, so that the columns are those of the last one.
	for _, l := range lines {
		for i, cell := range l.cells {
			if cell = brief.Printable(cell); len([]rune(cell)) > len([]rune(widest.cells[i])) {
				widest.cells[i] = cell
			}
		}
	}
	heads := []line{*widest}
	if first {
		heads = append(heads, listHead(wide))
	}
	_, text, _ := strings.Cut(o.table(append(heads, lines...)...), "\n")
	return text
}

func same(a, b *kept) bool {
	x, y := *a, *b
	equal := a.until().Equal(b.until())
	x.Until, y.Until = nil, nil
	return equal && x == y
}

func write(w io.Writer, text string) error {
	_, err := fmt.Fprint(w, text)
	return err
}
