// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os/exec"
	"path/filepath"

	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	"github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	nodeutil "k8s.io/component-helpers/node/util"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/quarantine"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/hosts/ironcore"
)

const (
	quarantinePool = "quarantine"
	// spares make the fleet so large that one Server of it may be in quarantine.
	spares = 10
)

// quarantine has two machines fail on a Server, one after the other, none of which is kept. No further machine gets it then, until
// somebody lets it out as the documentation says. A metal-operator that knows no quarantine goes on as before, and that is told.
func (l *life) quarantine(kind string) {
	for i := range spares {
		spare := ironcore.NewSpare(kind, fmt.Sprint(i))
		l.Expect(l.Seed.Create(l.ctx, spare)).To(Succeed())
		defer func() { l.Expect(l.Seed.Delete(l.ctx, spare)).To(Succeed()) }()
	}
	first := l.machineOf(quarantinePool)
	server := ironcore.NewServer(client.ObjectKeyFromObject(first))
	lasting := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"true"}}}`, ironcore.AnnotationLasting)
	l.Expect(l.Seed.Patch(l.ctx, server.DeepCopy(), client.RawPatch("application/merge-patch+json", lasting))).To(Succeed())

	pool := &quarantined{life: l, server: server, deployment: first, replicas: 2}

	l.failAndGo(first)
	l.Expect(pool.record().Quarantined).To(BeNil())
	l.Expect(pool.record().Failures).To(HaveExactElements(HaveField("Machine", first.UID)))

	second := pool.next()
	l.Expect(second).NotTo(BeNil())
	l.failAndGo(second)
	l.Expect(pool.record().Failures).To(HaveExactElements(HaveField("Machine", first.UID), HaveField("Machine", second.UID)))
	told := fmt.Sprintf("Machines have failed on host %s 2 times within 24h0m0s.", server.GetName())
	if kind == hosts.IronCore03 {
		l.isTold(second, "HostNotQuarantined", told+" The host was not put into quarantine, because the API server of the hosts refused it: ", `unknown field "spec.unclaimable"`)
		l.Expect(pool.record().Quarantined).To(BeNil())
		l.Expect(pool.next()).NotTo(BeNil())
		return
	}
	l.isTold(second, "HostQuarantined", told+" The host was put into quarantine: no other machine gets it until somebody takes it out.")
	l.Expect(pool.record().Quarantined).To(HaveValue(HaveField("Namespace", l.Namespace)))
	l.Expect(pool.next()).To(BeNil())

	l.kubectl("patch", "server", server.GetName(), "--type=merge", "-p", `{"spec":{"unclaimable":false}}`)
	l.Expect(pool.next()).NotTo(BeNil())
}

// quarantined is a Server, and a MachineDeployment whose machines may get it.
type quarantined struct {
	*life
	server *unstructured.Unstructured
	// deployment is that of this machine.
	deployment *machinev1alpha1.Machine
	replicas   int
}

// record returns what is noted on the Server.
func (q *quarantined) record() quarantine.Record {
	q.t.Helper()
	q.Expect(q.Seed.Get(q.ctx, client.ObjectKeyFromObject(q.server), q.server)).To(Succeed())
	return quarantine.ReadRecord(q.server)
}

// next returns the machine that has the Server after one that is gone: the one that replaces it, or a further one. It is nil if a
// further one gets another Server although this one is free.
func (q *quarantined) next() *machinev1alpha1.Machine {
	q.t.Helper()
	q.eventually(func(g Gomega) {
		if q.holder(q.machines(g)) == nil {
			g.Expect(q.Seed.Get(q.ctx, client.ObjectKeyFromObject(q.server), q.server)).To(Succeed())
			g.Expect(q.server.Object["spec"]).NotTo(HaveKey("serverClaimRef"))
			g.Expect(q.server.Object["status"]).To(And(HaveKeyWithValue("state", "Available"), HaveKeyWithValue("powerState", "Off")))
		}
	})
	if q.holder(q.machines(q)) == nil {
		q.replicas++
		q.patchDeployment(q.deployment, fmt.Sprintf(`{"spec":{"replicas":%d}}`, q.replicas))
	}
	var machines []machinev1alpha1.Machine
	q.eventually(func(g Gomega) {
		machines = q.machines(g)
		g.Expect(machines).To(HaveLen(q.replicas))
		for i := range machines {
			g.Expect(machines[i].Status.CurrentStatus.Phase).To(Equal(machinev1alpha1.MachineRunning))
			g.Expect(q.serverOf(g, &machines[i])).NotTo(BeEmpty())
			_, ready := nodeutil.GetNodeCondition(&q.nodeOf(g, &machines[i]).Status, corev1.NodeReady)
			g.Expect(ready.Status).To(Equal(corev1.ConditionTrue))
		}
	})
	return q.holder(machines)
}

// machines returns those of the MachineDeployment.
func (q *quarantined) machines(g Gomega) []machinev1alpha1.Machine {
	machines := &machinev1alpha1.MachineList{}
	g.Expect(q.Seed.List(q.ctx, machines, client.InNamespace(q.Namespace), client.MatchingLabels{"name": q.deployment.Labels["name"]})).To(Succeed())
	return machines.Items
}

// holder returns the machine whose claim has the Server, nil for none.
func (q *quarantined) holder(machines []machinev1alpha1.Machine) *machinev1alpha1.Machine {
	q.Expect(q.Seed.Get(q.ctx, client.ObjectKeyFromObject(q.server), q.server)).To(Succeed())
	claim, _, _ := unstructured.NestedString(q.server.Object, "spec", "serverClaimRef", "name")
	for i := range machines {
		if machines[i].Name == claim {
			return &machines[i]
		}
	}
	return nil
}

// serverOf returns the Server that the claim of a machine is bound to.
func (l *life) serverOf(g Gomega, machine *machinev1alpha1.Machine) string {
	claim := ironcore.NewServerClaim(client.ObjectKeyFromObject(machine))
	g.Expect(l.Seed.Get(l.ctx, client.ObjectKeyFromObject(claim), claim)).To(Succeed())
	name, _, _ := unstructured.NestedString(claim.Object, "spec", "serverRef", "name")
	return name
}

// isTold waits for an Event on a machine, which may be gone, whose note begins like that, and has all the parts.
func (l *life) isTold(machine *machinev1alpha1.Machine, reason, begin string, parts ...string) {
	l.t.Helper()
	note := []types.GomegaMatcher{HavePrefix(begin)}
	for _, part := range parts {
		note = append(note, ContainSubstring(part))
	}
	l.eventually(func(g Gomega) {
		events := &eventsv1.EventList{}
		g.Expect(l.Seed.List(l.ctx, events, client.InNamespace(l.Namespace), client.MatchingFields{"regarding.name": machine.Name})).To(Succeed())
		g.Expect(events.Items).To(ContainElement(And(HaveField("Reason", reason), HaveField("Note", And(note...)))))
	})
}

// kubectl does in the seed what an operator does.
func (l *life) kubectl(args ...string) {
	l.t.Helper()
	args = append(args, "--kubeconfig="+l.landscape.Directory.SeedKubeconfig())
	output, err := exec.CommandContext(l.ctx, filepath.Join(l.landscape.Directory.Binaries(), "kubectl"), args...).CombinedOutput()
	l.Expect(err).NotTo(HaveOccurred(), string(output))
	l.t.Logf("kubectl %s: %s", args, output)
}
