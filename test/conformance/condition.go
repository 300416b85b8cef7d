// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// keepCondition gives a node a condition and keeps it there, also if a node-problem-detector takes it back. The returned
// function removes it. It needs nothing but the API, so that it works in every shoot. The node is not there any more when
// its machine has been replaced: then there is nothing left to do.
func keepCondition(ctx context.Context, c client.Client, nodeName string, condition corev1.NodeConditionType) (remove func(context.Context) error, err error) {
	if err := setCondition(ctx, c, nodeName, condition); err != nil {
		return nil, err
	}
	var (
		keeping, cancel = context.WithCancel(ctx)
		ended           = make(chan struct{})
	)
	go func() {
		defer close(ended)
		wait.UntilWithContext(keeping, func(ctx context.Context) {
			if apierrors.IsNotFound(setCondition(ctx, c, nodeName, condition)) {
				cancel()
			}
		}, time.Second)
	}()
	return func(ctx context.Context) error {
		cancel()
		<-ended
		return client.IgnoreNotFound(c.Status().Patch(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}},
			client.RawPatch(types.StrategicMergePatchType, fmt.Appendf(nil, `{"status":{"conditions":[{"type":%q,"$patch":"delete"}]}}`, condition))))
	}, nil
}

// setCondition makes the condition True if it is not.
func setCondition(ctx context.Context, c client.Client, nodeName string, condition corev1.NodeConditionType) error {
	node := &corev1.Node{}
	if err := c.Get(ctx, client.ObjectKey{Name: nodeName}, node); err != nil {
		return err
	}
	before := node.DeepCopy()
	i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == condition })
	if i < 0 {
		i = len(node.Status.Conditions)
		node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{Type: condition})
	}
	if node.Status.Conditions[i].Status == corev1.ConditionTrue {
		return nil
	}
	now := metav1.Now()
	node.Status.Conditions[i] = corev1.NodeCondition{
		Type: condition, Status: corev1.ConditionTrue, LastHeartbeatTime: now, LastTransitionTime: now,
		Reason: "Conformance", Message: "The node is made unhealthy to try the rules of machine preservation.",
	}
	return c.Status().Patch(ctx, node, client.StrategicMergeFrom(before))
}
