// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package builder

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	failuresv1alpha1 "github.com/gardener/gardener-extension-machine-preservation/pkg/apis/failures/v1alpha1"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/preservation"
)

// FailureOption changes an entry of the ledger of failures.
type FailureOption func(*failuresv1alpha1.MachineFailure)

// EntryOf returns the entry of a machine of pool a whose kubelet fell silent ten minutes before it failed, and which was not kept, as
// the share was used up.
func EntryOf(machine string, failedAt time.Time, opts ...FailureOption) *failuresv1alpha1.MachineFailure {
	since := metav1.NewTime(failedAt.Add(-10 * time.Minute))
	f := &failuresv1alpha1.MachineFailure{
		ObjectMeta: metav1.ObjectMeta{Name: machine + "-" + failedAt.UTC().Format("20060102t150405")},
		Spec: failuresv1alpha1.MachineFailureSpec{
			Machine: machine, MachineUID: "machine-" + machine, Node: machine, Pool: "a", Zone: "z1", ProviderID: "local:///" + machine,
			Reason: string(corev1.NodeReady),
			Condition: &failuresv1alpha1.BadCondition{Type: string(corev1.NodeReady), Status: corev1.ConditionUnknown,
				Reason: "NodeStatusUnknown", Message: "Kubelet stopped posting node status.", Since: since},
			FailedSince: since, FailedAt: metav1.NewTime(failedAt),
			BootID: "3f2a", KubeletVersion: "v1.36.1", OSImage: "Garden Linux 2150", KernelVersion: "6.12.30",
			Pods:     []failuresv1alpha1.Pod{{Namespace: "shop", Name: "db-0", Owner: "StatefulSet/db"}, {Namespace: "shop", Name: "once"}},
			Decision: failuresv1alpha1.Decision{Reason: preservation.WhyNoPlace.ID, Text: preservation.WhyNoPlace.Text},
		},
	}
	for _, opt := range opts {
		opt(f)
	}
	return f
}

// Bad makes another condition the first bad one.
func Bad(condition corev1.NodeConditionType, reason, message string) FailureOption {
	return func(f *failuresv1alpha1.MachineFailure) {
		f.Spec.Reason = string(condition)
		f.Spec.Condition = &failuresv1alpha1.BadCondition{Type: string(condition), Status: corev1.ConditionTrue, Reason: reason, Message: message, Since: f.Spec.FailedSince}
	}
}

// NoNode makes it the failure of a machine that never joined.
func NoNode(f *failuresv1alpha1.MachineFailure) {
	s := &f.Spec
	s.Reason, s.Node, s.Condition, s.Pods = "NeverJoined", "", nil, nil
	s.BootID, s.KubeletVersion, s.OSImage, s.KernelVersion = "", "", "", ""
}

// OnHost sets the host.
func OnHost(host string) FailureOption {
	return func(f *failuresv1alpha1.MachineFailure) { f.Spec.Host = host }
}

// WasKept has the machine kept for a cause.
func WasKept(cause string) FailureOption {
	return func(f *failuresv1alpha1.MachineFailure) {
		why := preservation.WhyBegun(cause)
		f.Spec.Decision = failuresv1alpha1.Decision{Kept: true, Cause: cause, Reason: why.ID, Text: why.Text}
	}
}

// Ended says how it ended.
func Ended(outcome failuresv1alpha1.Outcome, at time.Time, text string) FailureOption {
	return func(f *failuresv1alpha1.MachineFailure) {
		f.Status = &failuresv1alpha1.MachineFailureStatus{Outcome: outcome, Text: text, EndedAt: metav1.NewTime(at)}
	}
}

// WithEvidence names the evidence that was stored of one that ended.
func WithEvidence(name string) FailureOption {
	return func(f *failuresv1alpha1.MachineFailure) { f.Status.Evidence = name }
}
