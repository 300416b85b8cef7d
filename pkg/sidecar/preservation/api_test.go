// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package preservation_test

import (
	"context"
	"slices"
	"strings"
	"sync"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// api stands between a Reconciler and the objects, and can fail.
type api struct {
	// write, if set, is called for each write instead of it, with its number. It may call do to make the write.
	write func(number int, what string, do func() error) error
	// read, if set, is called before each read and can make it fail.
	read func(cluster string) error
	// readNode, if set, is called before each read of a node by its name, and can make it fail.
	readNode func(name string) error

	mu     sync.Mutex
	writes []string
	reads  int
	// unbounded are the writes that would wait for an answer for ever.
	unbounded []string
}

// written returns what was tried to be written so far, in order: "Machine/m", "Machine/m/status", "Node/m".
func (a *api) written() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.writes)
}

// writtenTo returns how many of the writes were to objects whose kind and name begin with prefix.
func (a *api) writtenTo(prefix string) int {
	count := 0
	for _, what := range a.written() {
		if strings.HasPrefix(what, prefix) {
			count++
		}
	}
	return count
}

func (a *api) onWrite(ctx context.Context, object client.Object, subresource string, do func() error) error {
	what := "Machine/" + object.GetName()
	switch object.(type) {
	case *corev1.Node:
		what = "Node/" + object.GetName()
	case *coordinationv1.Lease:
		what = "Lease/" + object.GetName()
	}
	if subresource != "" {
		what += "/" + subresource
	}
	a.mu.Lock()
	a.writes = append(a.writes, what)
	if _, bounded := ctx.Deadline(); !bounded {
		a.unbounded = append(a.unbounded, what)
	}
	number, write := len(a.writes), a.write
	a.mu.Unlock()
	if write == nil {
		return do()
	}
	return write(number, what, do)
}

func (a *api) onRead(cluster string) error {
	a.mu.Lock()
	a.reads++
	read := a.read
	a.mu.Unlock()
	if read == nil {
		return nil
	}
	return read(cluster)
}

// intercept returns a client of a cluster. Anything but a read, a patch, or a write of a Lease is not foreseen, and fails.
func (a *api) intercept(cluster string, c client.WithWatch) client.WithWatch {
	return interceptor.NewClient(c, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, obj client.Object, opts ...client.GetOption) error {
			if err := a.onRead(cluster); err != nil {
				return err
			}
			if _, isNode := obj.(*corev1.Node); isNode && a.readNode != nil {
				if err := a.readNode(key.Name); err != nil {
					return err
				}
			}
			return c.Get(ctx, key, obj, opts...)
		},
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if err := a.onRead(cluster); err != nil {
				return err
			}
			return c.List(ctx, list, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, obj client.Object, patch client.Patch, opts ...client.PatchOption) error {
			return a.onWrite(ctx, obj, "", func() error { return c.Patch(ctx, obj, patch, opts...) })
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, subresource string, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			return a.onWrite(ctx, obj, subresource, func() error { return builder.PatchStatus(ctx, c, subresource, obj, patch, opts...) })
		},
		Create: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.CreateOption) error {
			if _, isLease := obj.(*coordinationv1.Lease); !isLease {
				panic("nothing else is created")
			}
			return a.onWrite(ctx, obj, "", func() error { return c.Create(ctx, obj, opts...) })
		},
		Update: func(ctx context.Context, c client.WithWatch, obj client.Object, opts ...client.UpdateOption) error {
			if _, isLease := obj.(*coordinationv1.Lease); !isLease {
				panic("nothing else is updated without a patch")
			}
			return a.onWrite(ctx, obj, "", func() error { return c.Update(ctx, obj, opts...) })
		},
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			panic("nothing is deleted")
		},
	})
}
