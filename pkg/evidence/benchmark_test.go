// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package evidence_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	testclock "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	. "github.com/gardener/gardener-extension-machine-preservation/pkg/evidence"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/observed"
)

// lists answers with what it has, in pages, and with nothing of all else. Copies stand for what is decoded.
type lists struct {
	machines    []machinev1alpha1.Machine
	sets        []machinev1alpha1.MachineSet
	deployments []machinev1alpha1.MachineDeployment
	nodes       []corev1.Node
}

func (l *lists) Get(_ context.Context, key client.ObjectKey, obj client.Object, _ ...client.GetOption) error {
	i := slices.IndexFunc(l.nodes, func(n corev1.Node) bool { return n.Name == key.Name })
	l.nodes[i].DeepCopyInto(obj.(*corev1.Node))
	return nil
}

func (l *lists) List(_ context.Context, list client.ObjectList, opts ...client.ListOption) error {
	options := (&client.ListOptions{}).ApplyOptions(opts)
	switch list := list.(type) {
	case *machinev1alpha1.MachineList:
		list.Items = page(l.machines, list, options)
	case *machinev1alpha1.MachineSetList:
		list.Items = page(l.sets, list, options)
	case *machinev1alpha1.MachineDeploymentList:
		list.Items = page(l.deployments, list, options)
	case *corev1.NodeList:
		list.Items = page(l.nodes, list, options)
	}
	return nil
}

func page[T any, P interface {
	*T
	DeepCopyInto(*T)
}](items []T, list client.ObjectList, options *client.ListOptions) []T {
	start, _ := strconv.Atoi(options.Continue)
	end := len(items)
	list.SetContinue("")
	if limit := int(options.Limit); limit > 0 && start+limit < end {
		end = start + limit
		list.SetContinue(strconv.Itoa(end))
	}
	copies := make([]T, end-start)
	for i := range copies {
		P(&items[start+i]).DeepCopyInto(&copies[i])
	}
	return copies
}

// many returns the API servers of a shoot with 1,000 machines in as many MachineDeployments as are asked for.
func many(groups int) (shoot, seed *lists) {
	shoot, seed = &lists{}, &lists{}
	fields := []metav1.ManagedFieldsEntry{{Manager: "machine-controller", FieldsV1: metav1.NewFieldsV1(strings.Repeat("x", 3000))}}
	for i := range groups {
		deployment, set := fmt.Sprintf("d-%d", i), fmt.Sprintf("s-%d", i)
		seed.deployments = append(seed.deployments, machinev1alpha1.MachineDeployment{ObjectMeta: named(deployment)})
		s := machinev1alpha1.MachineSet{ObjectMeta: named(set)}
		owned(&s, "MachineDeployment", deployment)
		seed.sets = append(seed.sets, s)
	}
	for i := range 1000 {
		name := fmt.Sprintf("m-%d", i)
		m := machine(name, fmt.Sprintf("s-%d", i%groups), "node-"+name).(*machinev1alpha1.Machine)
		m.ManagedFields = fields
		node := corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-" + name, ManagedFields: fields}}
		for j := range 10 {
			condition := corev1.NodeCondition{Type: corev1.NodeConditionType(fmt.Sprintf("Condition%d", j)), Status: corev1.ConditionTrue, Reason: "KubeletReady", Message: "kubelet is posting ready status"}
			m.Status.Conditions = append(m.Status.Conditions, condition)
			node.Status.Conditions = append(node.Status.Conditions, condition)
			metav1.SetMetaDataLabel(&node.ObjectMeta, fmt.Sprintf("label-%d", j), "value")
		}
		for j := range 50 {
			node.Status.Images = append(node.Status.Images, corev1.ContainerImage{Names: []string{fmt.Sprintf("registry.example.com/image-%d:v1.2.3", j)}, SizeBytes: 1})
		}
		m.Spec.NodeTemplateSpec.Labels = node.Labels
		seed.machines, shoot.nodes = append(seed.machines, *m), append(shoot.nodes, node)
	}
	return shoot, seed
}

// BenchmarkCollect measures how evidence of one of 1,000 machines is gathered and written. Of what was read of all machines, held-B
// is what is in use between the two.
func BenchmarkCollect(b *testing.B) {
	for _, groups := range []int{1, 20} {
		b.Run(fmt.Sprintf("of-%d-deployments", groups), func(b *testing.B) {
			shoot, seed := many(groups)
			inUse := func() int64 {
				runtime.GC()
				var stats runtime.MemStats
				runtime.ReadMemStats(&stats)
				return int64(stats.HeapAlloc)
			}
			var held int64
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				before := inUse()
				b.StartTimer()
				bundle, err := Collect(b.Context(), Sources{
					Tool: "test", Clock: testclock.NewFakePassiveClock(time.Unix(0, 0)), Name: "m-7", Controller: &observed.Controller{},
					Shoot: shoot, Seed: seed, SeedNamespace: namespace,
				})
				if err != nil || len(bundle.Snapshot.Missing) > 0 || len(bundle.Snapshot.Seed.Machines) != 1000/groups || len(bundle.Snapshot.Shoot.Nodes) != 1000/groups {
					b.Fatal(err, bundle)
				}
				b.StopTimer()
				held = inUse() - before
				b.StartTimer()
				if _, err := bundle.WriteTo(&bytes.Buffer{}, 900<<10); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(held), "held-B")
		})
	}
}

// logs are 1 MiB of what is in logs, and of what takes the longest to look for credentials in.
var logs = map[string]string{
	"usual": `I1123 19:45:34.123456    1234 kubelet_node_status.go:123] "Setting node condition" node="shoot--core--local-worker-1-5d4f7-abcde" condition="Ready"
E1123 19:45:35.123456    1234 pod_workers.go:1301] "Error syncing pod, skipping" err="failed to \"StartContainer\" for \"app\" with ImagePullBackOff" pod="default/app-6c9d7-x2x4k" podUID="4f6dcd3e-2b1a-4c8e-9f5e-0c1d2e3f4a5b"
{"level":"info","ts":"2026-11-23T19:45:34.123Z","logger":"drain","msg":"Evicting pod","machine":"shoot--core--local-worker-1-5d4f7-abcde","pod":"app-6c9d7-x2x4k"}
time="2026-11-23T19:45:34.123456789Z" level=info msg="PullImage \"registry.example.com/app@sha256:0c8f5e2f6b6f4d0b9f7a3b0d1e2c3b4a5968778695a4b3c2d1e0f9e8d7c6b5a4\" returns image reference"
`,
	"credentials": `I1123 19:45:34.123456    1234 x.go:1] token=hunter2 password: hunter2 "secret":"hunter2" https://a:b@c --token x Bearer 0123456789abcdef0123
`,
	"names":    "name: token\n",
	"values":   "value: x\nname: token\n",
	"blocks":   "token: |\n x\n",
	"one line": "token",
	"URLs":     "://a:b",
	"keys":     "-----BEGIN PRIVATE KEY-----",
	"base64":   "LS0tLS1CRUdJTi ",
	"commands": "curl mysql login ",
	"fields":   "Name:token,Value: value=x,",
	"spared":   "auth=ok password is v1 ",
	"nested":   strings.Repeat(`volume "token" : {`, 12) + "}\n",
}

// BenchmarkScrub measures how long it takes to look for credentials in 1 MiB.
// BenchmarkWriteForShoot tells what a copy for the shoot takes of a bundle of a large MachineDeployment.
func BenchmarkWriteForShoot(b *testing.B) {
	shoot, seed := many(1)
	bundle, err := Collect(b.Context(), Sources{
		Tool: "test", Clock: testclock.NewFakePassiveClock(time.Unix(0, 0)), Name: "m-7", Controller: &observed.Controller{},
		Shoot: shoot, Seed: seed, SeedNamespace: namespace,
	})
	if err != nil {
		b.Fatal(err)
	}
	var archive bytes.Buffer
	if _, err := bundle.WriteTo(&archive, 900<<10); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		var written bytes.Buffer
		if _, err := WriteForShoot(&written, bytes.NewReader(archive.Bytes()), int64(archive.Len())); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(float64(written.Len()), "bytes-written")
	}
}

func BenchmarkScrub(b *testing.B) {
	for name, text := range logs {
		b.Run(name, func(b *testing.B) {
			text := strings.Repeat(text, 1<<20/len(text))
			b.SetBytes(int64(len(text)))
			b.ReportAllocs()
			for b.Loop() {
				Scrub(text)
			}
		})
	}
}
