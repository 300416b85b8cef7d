// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"encoding/json"
	"slices"
	"time"

	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
)

// The scenarios in which people change things under way.

// loweredShare: of two auto-preserved machines the older one goes.
func loweredShare(p *Pool) {
	machines := p.running(2)
	for _, machine := range machines {
		p.fail(machine, KubeletDead)
	}
	for _, machine := range machines {
		p.preserved(machine, failedPreserved, "auto")
	}
	p.setShare(1)
	p.gone(machines[0])
	expiry := p.isPreserved(p, machines[1], failedPreserved, "auto")
	p.staysPreserved(machines[1], failedPreserved, "auto", expiry)
}

// deletion: who deletes a preserved machine gets what they want.
func deletion(p *Pool) {
	machine := p.running(2)[0]
	p.fail(machine, KubeletDead)
	p.preserved(machine, failedPreserved, "auto")
	p.Expect(p.Seed.Delete(p.ctx, machine)).To(Succeed())
	p.gone(machine)
	p.running(2)
}

// neverJoined: a machine that gets no node in time is held all the same, and may still join.
func neverJoined(p *Pool) {
	known := p.running(2)
	deployment := p.deployment()
	p.Expect(p.InjectNext(p.ctx, deployment.Name, NeverJoins)).To(Succeed())
	p.scale(deployment, 3)

	var machine *machinev1alpha1.Machine
	p.Eventually(func(g Gomega) {
		machines := slices.DeleteFunc(p.machines(g), func(m machinev1alpha1.Machine) bool {
			return slices.ContainsFunc(known, func(k *machinev1alpha1.Machine) bool { return k.Name == m.Name })
		})
		g.Expect(machines).To(HaveLen(1))
		machine = &machines[0]
	}).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
	expiry := p.preserved(machine, failedPreserved, "auto")
	p.staysPreserved(machine, failedPreserved, "auto", expiry)

	p.fail(machine, NoFault)
	p.Expect(p.preserved(machine, runningPreserved, "auto")).To(BeTemporally("==", expiry))
}

// rollout: a preserved machine does not keep a rolling update from ending, and one that fails meanwhile is replaced.
func rollout(p *Pool) {
	machines := p.running(2)
	p.fail(machines[0], KubeletDead)
	p.preserved(machines[0], failedPreserved, "auto")

	deployment := p.deployment()
	patch := client.MergeFrom(deployment.DeepCopy())
	metav1.SetMetaDataAnnotation(&deployment.Spec.Template.ObjectMeta, "conformance", "rollout")
	p.Expect(p.Seed.Patch(p.ctx, deployment, patch)).To(Succeed())
	p.fail(machines[1], KubeletDead)

	p.gone(machines[0])
	p.gone(machines[1])
	for _, machine := range p.running(2) {
		p.Expect(machine.Annotations).NotTo(HaveKey(prefix + "cause"))
	}
}

// editedExpiry: an operator moves the end of a preservation, and it is obeyed to the second.
func editedExpiry(p *Pool) {
	machine := p.running(2)[0]
	p.annotate(machine, map[string]string{preserve: "now"})
	p.preserved(machine, runningPreserved, "now")

	expiry := time.Now().Add(15 * time.Second).Truncate(time.Second)
	fresh := p.fresh(p, machine)
	patch := client.MergeFrom(fresh.DeepCopy())
	if fresh.Status.CurrentStatus.PreserveExpiryTime != nil {
		fresh.Status.CurrentStatus.PreserveExpiryTime = &metav1.Time{Time: expiry}
		p.Expect(p.Seed.Status().Patch(p.ctx, fresh, patch)).To(Succeed())
	} else {
		fresh.Annotations[prefix+"expiry-time"] = expiry.UTC().Format(time.RFC3339)
		p.Expect(p.Seed.Patch(p.ctx, fresh, patch)).To(Succeed())
	}
	p.Eventually(func(g Gomega) {
		g.Expect(p.isPreserved(g, machine, runningPreserved, "now")).To(BeTemporally("==", expiry))
	}).WithTimeout(10 * time.Second).WithPolling(pollInterval).Should(Succeed())

	p.Eventually(func(g Gomega) {
		g.Expect(p.fresh(g, machine).Annotations).NotTo(HaveKey(prefix + "cause"))
	}).WithTimeout(time.Until(expiry) + 5*time.Second).WithPolling(100 * time.Millisecond).Should(Succeed())
	p.Expect(time.Now()).To(BeTemporally(">=", expiry))
}

// invalidRequests: typos start nothing, and are told to who made them.
func invalidRequests(p *Pool) {
	machines := p.running(2)
	p.annotate(machines[0], map[string]string{preserve: "yes"})
	p.annotate(machines[1], map[string]string{preserve: "now", prefix + "timeout": "tomorrow"})
	p.nodeEvent(machines[0], "InvalidPreserveRequest", `"yes" is ignored, valid are "now", "when-failed", "false" and "true"`)
	p.nodeEvent(machines[1], "InvalidPreserveTimeout", `"tomorrow" is ignored`)
	p.Expect(p.preserved(machines[1], runningPreserved, "now")).To(BeTemporally("~", time.Now().Add(72*time.Hour), time.Minute))
	p.Expect(p.fresh(p, machines[0]).Annotations).NotTo(HaveKey(prefix + "cause"))
}

func (p *Pool) scale(deployment *machinev1alpha1.MachineDeployment, replicas int32) {
	p.t.Helper()
	p.t.Logf("MachineDeployment %s: %d replicas", deployment.Name, replicas)
	patch := client.MergeFrom(deployment.DeepCopy())
	deployment.Spec.Replicas = replicas
	p.Expect(p.Seed.Patch(p.ctx, deployment, patch)).To(Succeed())
}

// setShare changes the pool's autoPreserveFailedMax in the provider configuration.
func (p *Pool) setShare(share int32) {
	p.t.Helper()
	extensions := &extensionsv1alpha1.ExtensionList{}
	p.Expect(p.Seed.List(p.ctx, extensions, client.InNamespace(p.Namespace))).To(Succeed())
	extensions.Items = slices.DeleteFunc(extensions.Items, func(e extensionsv1alpha1.Extension) bool { return e.Spec.Type != v1alpha1.ExtensionType })
	p.Expect(extensions.Items).To(HaveLen(1))
	extension := &extensions.Items[0]

	config := &v1alpha1.MachinePreservationConfig{}
	p.Expect(json.Unmarshal(extension.Spec.ProviderConfig.Raw, config)).To(Succeed())
	for _, worker := range config.Workers {
		if worker.Name == p.name {
			worker.MachineControllerManager.AutoPreserveFailedMax = &share
		}
	}
	raw, err := json.Marshal(config)
	p.Expect(err).NotTo(HaveOccurred())
	patch := client.MergeFrom(extension.DeepCopy())
	extension.Spec.ProviderConfig.Raw = raw
	p.Expect(p.Seed.Patch(p.ctx, extension, patch)).To(Succeed())
}

// nodeEvent waits for an Event on the machine's node.
func (p *Pool) nodeEvent(machine *machinev1alpha1.Machine, reason, text string) {
	p.t.Helper()
	p.waitForEvent(p.Shoot, metav1.NamespaceDefault, machine.Labels[machinev1alpha1.NodeLabelKey], reason, text)
}

// event waits for an Event on the machine.
func (p *Pool) event(machine *machinev1alpha1.Machine, reason, text string) {
	p.t.Helper()
	p.waitForEvent(p.Seed, p.Namespace, machine.Name, reason, text)
}

func (p *Pool) waitForEvent(c client.Reader, namespace, regarding, reason, text string) {
	p.t.Helper()
	p.Eventually(func(g Gomega) {
		events := &eventsv1.EventList{}
		g.Expect(c.List(p.ctx, events, client.InNamespace(namespace))).To(Succeed())
		g.Expect(events.Items).To(ContainElement(And(
			HaveField("Regarding.Name", regarding),
			HaveField("Reason", reason),
			HaveField("Note", ContainSubstring(text)),
		)))
	}).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
}
