// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gardencorev1beta1 "github.com/gardener/gardener/pkg/apis/core/v1beta1"
	extensionsv1alpha1 "github.com/gardener/gardener/pkg/apis/extensions/v1alpha1"
	kubernetesclient "github.com/gardener/gardener/pkg/client/kubernetes"
	machinev1alpha1 "github.com/gardener/machine-controller-manager/pkg/apis/machine/v1alpha1"
	. "github.com/onsi/gomega"
	gomegatypes "github.com/onsi/gomega/types"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/apis/preservation/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape"
	"github.com/gardener/gardener-extension-machine-preservation/test/landscape/seed"
)

// runGarden goes the way of a shoot owner: from `kubectl apply` of the example Shoot to a machine in Failed:Preserved,
// and to `kubectl delete`.
func runGarden(t *testing.T) {
	inTurn(t)
	g := NewWithT(t)
	started := time.Now()
	l, ctx := startLandscape(t, "garden", landscape.Options{MCM: "0.62", Garden: true})
	t.Logf("The landscape with a garden was up after %s", time.Since(started).Round(time.Second))

	gardenClient, err := client.New(l.Garden.Config, client.Options{Scheme: kubernetesclient.GardenScheme})
	g.Expect(err).NotTo(HaveOccurred())
	seedClient, err := client.New(l.Seed.Config, client.Options{Scheme: kubernetesclient.SeedScheme})
	g.Expect(err).NotTo(HaveOccurred())
	shootClient, err := client.New(l.Shoot.Config, client.Options{Scheme: kubernetesclient.ShootScheme})
	g.Expect(err).NotTo(HaveOccurred())
	example, err := os.ReadFile(filepath.Join("..", "..", "example", "shoot.yaml"))
	g.Expect(err).NotTo(HaveOccurred())

	kubectl := func(kubeconfig, stdin string, args ...string) (string, error) {
		command := exec.CommandContext(ctx, filepath.Join(l.Directory.Binaries(), "kubectl"), append(args, "--kubeconfig="+kubeconfig)...)
		command.Stdin = strings.NewReader(stdin)
		output, err := command.CombinedOutput()
		t.Logf("kubectl %s\n%s", strings.Join(args, " "), output)
		return string(output), err
	}
	owner := func(args ...string) (string, error) {
		return kubectl(l.Directory.GardenKubeconfig(), string(example), append(args, "--namespace=garden-local")...)
	}
	eventually := func(check func(g Gomega)) {
		t.Helper()
		g.Eventually(check).WithTimeout(patience).WithPolling(pollInterval).Should(Succeed())
	}
	shoot := &gardencorev1beta1.Shoot{ObjectMeta: metav1.ObjectMeta{Name: "local", Namespace: "garden-local"}}
	isReconciled := func(g Gomega) {
		g.Expect(gardenClient.Get(ctx, client.ObjectKeyFromObject(shoot), shoot)).To(Succeed())
		g.Expect(shoot.Status.ObservedGeneration).To(Equal(shoot.Generation))
		g.Expect(shoot.Status.LastOperation).To(HaveField("State", gardencorev1beta1.LastOperationStateSucceeded))
	}
	namespace := seed.ControlPlaneNamespace(shoot.Name)
	machines := func(g Gomega) []machinev1alpha1.Machine {
		list := &machinev1alpha1.MachineList{}
		g.Expect(seedClient.List(ctx, list, client.InNamespace(namespace))).To(Succeed())
		return list.Items
	}

	g.Expect(owner("apply", "--filename=-")).To(ContainSubstring("created"))
	eventually(func(g Gomega) {
		isReconciled(g)
		g.Expect(shoot.Status.Conditions).To(And(Not(BeEmpty()), HaveEach(HaveField("Status", gardencorev1beta1.ConditionTrue))))
		g.Expect(shoot.Labels).To(HaveKeyWithValue("shoot.gardener.cloud/status", "healthy"))
	})
	g.Expect(machines(g)).To(And(HaveLen(2), HaveEach(HaveField("Status.CurrentStatus.Phase", machinev1alpha1.MachineRunning))))
	_, _ = owner("get", "shoots")

	example = []byte(strings.ReplaceAll(string(example), "autoPreserveFailedMax: 2", "autoPreserveFailedMax: 7"))
	output, err := owner("apply", "--filename=-")
	g.Expect(err).To(HaveOccurred())
	g.Expect(output).To(ContainSubstring("spec.extensions[0].providerConfig.workers[0].machineControllerManager.autoPreserveFailedMax: Invalid value: 7"))

	// Ten minutes are the default.
	g.Expect(owner("patch", "shoot", shoot.Name, "--type=json",
		`--patch=[{"op":"add","path":"/spec/provider/workers/0/machineControllerManager","value":{"machineHealthTimeout":"20s"}}]`,
	)).To(ContainSubstring("patched"))
	eventually(isReconciled)

	machine := &machines(g)[0]
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: machine.Labels[machinev1alpha1.NodeLabelKey]}}
	g.Expect(kubectl(l.Directory.SeedKubeconfig(), "", "annotate", "pod", "machine-"+machine.Name, "--namespace="+seed.MachineNamespace(shoot.Name),
		"landscape.machine-preservation/failure=kubelet-dead")).To(ContainSubstring("annotated"))
	failed := time.Now()
	eventually(func(g Gomega) {
		g.Expect(seedClient.Get(ctx, client.ObjectKeyFromObject(machine), machine)).To(Succeed())
		g.Expect(machine.Annotations).To(And(
			HaveKeyWithValue(v1alpha1.AnnotationPhase, preservation.PhaseFailedPreserved),
			HaveKeyWithValue(v1alpha1.AnnotationCause, v1alpha1.CauseAuto),
		))
		g.Expect(shootClient.Get(ctx, client.ObjectKeyFromObject(node), node)).To(Succeed())
		g.Expect(node.Spec.Taints).To(ContainElement(HaveField("Key", v1alpha1.TaintPreserved)))
		g.Expect(preservation.PreservedCondition(node)).To(HaveField("Status", corev1.ConditionTrue))
	})
	t.Logf("Machine %s was in %s after %s", machine.Name, preservation.PhaseFailedPreserved, time.Since(failed).Round(time.Second))

	condition := func(conditionType gardencorev1beta1.ConditionType, message string) gomegatypes.GomegaMatcher {
		return ContainElement(And(HaveField("Type", conditionType), HaveField("Status", gardencorev1beta1.ConditionFalse), HaveField("Message", ContainSubstring(message))))
	}
	eventually(func(g Gomega) {
		g.Expect(gardenClient.Get(ctx, client.ObjectKeyFromObject(shoot), shoot)).To(Succeed())
		g.Expect(shoot.Status.Conditions).To(condition(gardencorev1beta1.ShootEveryNodeReady, "preserved by MCM"))
		g.Expect(shoot.Status.Constraints).To(condition(gardencorev1beta1.ShootPreservedFailedMachinesAbsent, "1 preserved failed machine"))
	})
	t.Logf("The Shoot told of it after %s", time.Since(failed).Round(time.Second))

	_, err = owner("delete", "shoot", shoot.Name)
	g.Expect(err).To(HaveOccurred(), "a deletion is to be confirmed")
	g.Expect(machines(g)).To(ContainElement(HaveField("UID", machine.UID)))
	g.Expect(owner("annotate", "shoot", shoot.Name, "confirmation.gardener.cloud/deletion=true")).To(ContainSubstring("annotated"))
	deleted := time.Now()
	g.Expect(owner("delete", "shoot", shoot.Name, "--timeout=10m")).To(ContainSubstring("deleted"))
	t.Logf("The Shoot was gone after %s", time.Since(deleted).Round(time.Second))

	g.Expect(machines(g)).To(BeEmpty())
	for _, name := range []string{namespace, seed.MachineNamespace(shoot.Name)} {
		g.Expect(seedClient.Get(ctx, client.ObjectKey{Name: name}, &corev1.Namespace{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	}
	g.Expect(seedClient.Get(ctx, client.ObjectKey{Name: namespace}, &extensionsv1alpha1.Cluster{})).To(MatchError(apierrors.IsNotFound, "IsNotFound"))
	nodes := &corev1.NodeList{}
	g.Expect(shootClient.List(ctx, nodes)).To(Succeed())
	g.Expect(nodes.Items).To(BeEmpty())
}
