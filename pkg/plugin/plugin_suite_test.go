// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/cli-runtime/pkg/genericiooptions"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	. "github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

func TestPlugin(t *testing.T) {
	RegisterFailHandler(Fail)
	RunSpecs(t, "Plugin Suite")
}

var now = Start.Add(time.Hour)

// person is somebody who runs kubectl preserve.
type person struct {
	options     *Options
	in          bytes.Buffer
	out, errOut *lockedBuffer
	// calls are those to the API servers.
	calls []string
}

// lockedBuffer is what was written so far, for tests that read while a command runs.
type lockedBuffer struct {
	mutex sync.Mutex
	bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.Buffer.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	return b.Buffer.String()
}

func newPerson(shoot, seed []client.Object) *person {
	p := &person{out: &lockedBuffer{}, errOut: &lockedBuffer{}}
	p.options = newOptions(genericiooptions.IOStreams{In: &p.in, Out: p.out, ErrOut: p.errOut})
	p.options.Clock = testclock.NewFakeClock(now)
	p.options.isTerminal = func(any) bool { return false }
	p.options.shoot = p.client(shoot)
	if seed != nil {
		p.options.seed, p.options.SeedNamespace = p.client(seed), Namespace
	}
	return p
}

// apiServer begins a fake one that has objects, and knows the field selectors that it is asked with.
func apiServer(objects ...client.Object) *fakeclient.ClientBuilder {
	return fakeclient.NewClientBuilder().WithScheme(scheme).WithObjects(objects...).
		WithIndex(&corev1.Node{}, "metadata.name", func(o client.Object) []string { return []string{o.GetName()} }).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithIndex(&eventsv1.Event{}, "regarding.kind", func(o client.Object) []string { return []string{o.(*eventsv1.Event).Regarding.Kind} }).
		WithIndex(&eventsv1.Event{}, "regarding.name", func(o client.Object) []string { return []string{o.(*eventsv1.Event).Regarding.Name} })
}

func (p *person) client(objects []client.Object) client.WithWatch {
	count := func(verb string, object any) { p.calls = append(p.calls, fmt.Sprintf("%s %T", verb, object)) }
	return apiServer(objects...).WithStatusSubresource(&machinev1alpha1.Machine{}, &corev1.Node{}).
		WithInterceptorFuncs(interceptor.Funcs{
			List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
				count("list", list)
				return c.List(ctx, list, opts...)
			},
			Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
				count("get", object)
				return c.Get(ctx, key, object, opts...)
			},
		}).Build()
}

// runs executes a command line and returns its error.
func (p *person) runs(args string) error {
	return p.runsIn(context.Background(), args)
}

func (p *person) runsIn(ctx context.Context, args string) error {
	cmd := newCommand(p.options)
	cmd.SetOut(p.out)
	cmd.SetErr(p.errOut)
	cmd.SetArgs(strings.Fields(args))
	return cmd.ExecuteContext(ctx)
}

func (p *person) node(name string) *corev1.Node {
	GinkgoHelper()
	node := &corev1.Node{}
	Expect(p.options.shoot.Get(context.Background(), client.ObjectKey{Name: name}, node)).To(Succeed())
	return node
}
