// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package app_test

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	fakeclient "sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllertest"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	. "github.com/gardener/gardener-extension-machine-preservation/cmd/machine-preservation-controller/app"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/facts"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	sidecar "github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	"github.com/gardener/gardener-extension-machine-preservation/test/builder"
)

// churned is a node that somebody changes all the time, with the caches around it.
type churned struct {
	cluster.Cluster
	cache  *informertest.FakeInformers
	client client.Client

	mutex sync.Mutex
	node  *corev1.Node

	rounds, writes atomic.Int64
}

func (c *churned) GetCache() cache.Cache                        { return c.cache }
func (c *churned) GetClient() client.Client                     { return c.client }
func (c *churned) GetAPIReader() client.Reader                  { return c.client }
func (c *churned) GetEventRecorder(string) events.EventRecorder { return &events.FakeRecorder{} }

// churnedManager is a manager of that cluster, which has no API server.
type churnedManager struct {
	manager.Manager
	cluster *churned
}

func (m churnedManager) GetAPIReader() client.Reader { return m.cluster.client }
func (m churnedManager) GetEventRecorder(name string) events.EventRecorder {
	return m.cluster.GetEventRecorder(name)
}

// change changes the node, and has the watch tell of it.
func (c *churned) change(informer *controllertest.FakeInformer, edit func(*corev1.Node)) {
	c.mutex.Lock()
	before, after := c.node, c.node.DeepCopy()
	if after.Annotations == nil {
		after.Annotations = map[string]string{}
	}
	edit(after)
	stripped, _ := StripNode(true)(after)
	c.node = stripped.(*corev1.Node)
	c.mutex.Unlock()
	informer.Update(before, c.node)
}

// BenchmarkChurn measures what the sidecar of a shoot with 500 machines takes for a minute in which somebody changes one
// node a hundred times a second (P14). Each operation is that minute:
//
//	go test -run '^$' -bench Churn -benchtime 1x ./cmd/machine-preservation-controller/app
func BenchmarkChurn(b *testing.B) {
	const preserve, protection = "node.machine.sapcloud.io/preserve", "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	for _, attack := range []struct {
		name string
		edit func(i int, node *corev1.Node)
	}{
		{"none", nil},
		{"foreign annotation", func(i int, node *corev1.Node) { builder.NodeAnnotation("evil", fmt.Sprint(i))(node) }},
		{"invalid request", func(i int, node *corev1.Node) { builder.NodeAnnotation(preserve, fmt.Sprint(i))(node) }},
		{"request that comes and goes", func(i int, node *corev1.Node) {
			builder.NodeAnnotation(preserve, []string{"now", "false"}[i/100%2])(node)
		}},
		{"protection taken away", func(_ int, node *corev1.Node) {
			builder.NodeAnnotation(preserve, "now")(node)
			delete(node.Annotations, protection)
		}},
	} {
		b.Run(attack.name, func(b *testing.B) {
			for b.Loop() {
				churn(b, attack.edit)
			}
		})
	}
}

func churn(b *testing.B, edit func(int, *corev1.Node)) {
	scheme := builder.Scheme()
	deployment := builder.Deployment("pool", builder.Share("1"))
	set := builder.Set("set", deployment)
	machines := map[string]*machinev1alpha1.Machine{}
	for i := range 500 {
		machine := builder.Machine(fmt.Sprintf("m-%d", i), builder.Of(set))
		machines[machine.Name] = machine
	}
	c := &churned{cache: &informertest.FakeInformers{Scheme: scheme}, node: builder.Node("m-0")}
	informer, err := c.cache.FakeInformerFor(b.Context(), &corev1.Node{})
	if err != nil {
		b.Fatal(err)
	}

	// What is read is shared, as in the caches; what is written is kept.
	write := func(obj client.Object) error {
		c.writes.Add(1)
		if node, ok := obj.(*corev1.Node); ok {
			c.change(informer, func(n *corev1.Node) { *n = *node.DeepCopy() })
			return nil
		}
		c.mutex.Lock()
		defer c.mutex.Unlock()
		machines[obj.GetName()] = obj.(*machinev1alpha1.Machine).DeepCopy()
		return nil
	}
	c.client = interceptor.NewClient(fakeclient.NewClientBuilder().WithScheme(scheme).Build(), interceptor.Funcs{
		Get: func(_ context.Context, _ client.WithWatch, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
			c.mutex.Lock()
			defer c.mutex.Unlock()
			switch obj := obj.(type) {
			case *machinev1alpha1.MachineDeployment:
				*obj = *deployment
			case *machinev1alpha1.MachineSet:
				*obj = *set
			case *machinev1alpha1.Machine:
				*obj = *machines[key.Name]
			case *corev1.Node:
				if *obj = *c.node; key.Name != obj.Name {
					*obj = *builder.Node(key.Name)
				}
			}
			return nil
		},
		List: func(_ context.Context, _ client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			c.mutex.Lock()
			defer c.mutex.Unlock()
			switch list := list.(type) {
			case *machinev1alpha1.MachineSetList:
				list.Items = append(list.Items, *set)
			case *machinev1alpha1.MachineList:
				options := (&client.ListOptions{}).ApplyOptions(opts)
				if options.FieldSelector != nil { // the machine of the node
					list.Items = append(list.Items, *machines["m-0"])
					return nil
				}
				c.rounds.Add(1)
				for _, machine := range machines {
					list.Items = append(list.Items, *machine)
				}
			}
			return nil
		},
		Patch: func(_ context.Context, _ client.WithWatch, obj client.Object, _ client.Patch, _ ...client.PatchOption) error {
			return write(obj)
		},
		SubResourcePatch: func(_ context.Context, _ client.Client, _ string, obj client.Object, _ client.Patch, _ ...client.SubResourcePatchOption) error {
			return write(obj)
		},
	})

	mgr, err := manager.New(&rest.Config{}, manager.Options{
		Logger:         logr.Discard(),
		Scheme:         scheme,
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) { return c.client.RESTMapper(), nil },
		NewCache:       func(*rest.Config, cache.Options) (cache.Cache, error) { return c.cache, nil },
		NewClient:      func(*rest.Config, client.Options) (client.Client, error) { return c.client, nil },
		Metrics:        metricsserver.Options{BindAddress: "0"},
		Controller:     config.Controller{SkipNameValidation: new(true)},
	})
	if err != nil {
		b.Fatal(err)
	}
	nodes, err := shoot.NewNodes(b.Context(), c)
	if err != nil {
		b.Fatal(err)
	}
	reconciler := &sidecar.Reconciler{
		Holder:     preservation.HealthTimer{},
		MaxTimeout: v1alpha1.DefaultMaxMachinePreserveTimeout,
		Timeouts:   facts.DefaultTimeouts,
	}
	if err := reconciler.AddToManager(churnedManager{mgr, c}, nodes); err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	defer cancel()
	go func() { _ = mgr.Start(ctx) }()
	time.Sleep(time.Second)

	begin, rounds, writes := cpu(b), c.rounds.Load(), c.writes.Load()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for i := range 60 * 100 {
		<-ticker.C
		if edit != nil {
			c.change(informer, func(node *corev1.Node) { edit(i, node) })
		}
	}
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(float64((cpu(b) - begin).Milliseconds()), "cpu-ms/min")
	b.ReportMetric(float64(c.rounds.Load()-rounds), "rounds/min")
	b.ReportMetric(float64(c.writes.Load()-writes), "writes/min")
}

// cpu returns the time for which the process has run.
func cpu(b *testing.B) time.Duration {
	usage := &syscall.Rusage{}
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
