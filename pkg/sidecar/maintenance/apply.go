// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/sidecar/shoot"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/text"
)

// Apply carries a write out, and returns the object as it is then.
func Apply(ctx context.Context, c client.Client, write maintenance.Write) (client.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, shoot.WriteTimeout)
	defer cancel()
	var (
		before = write.Before.(client.Object)
		after  = write.After.DeepCopyObject().(client.Object)
		patch  client.Patch
	)
	switch _, isNode := before.(*corev1.Node); {
	case isNode && write.Status: // conditions are merged by type
		patch = client.StrategicMergeFrom(before)
	case isNode:
		patch = client.StrategicMergeFrom(before, client.MergeFromWithOptimisticLock{})
	default:
		patch = client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	}
	if write.Status {
		return after, c.Status().Patch(ctx, after, patch)
	}
	return after, c.Patch(ctx, after, patch)
}

// Tell tells an Event.
func Tell(recorder events.EventRecorder, e maintenance.Event) {
	eventType := corev1.EventTypeNormal
	if e.Warning {
		eventType = corev1.EventTypeWarning
	}
	// The action tells them apart: Events that differ in nothing but their notes become one, with the first note.
	action := e.Reason
	if e.Reason == maintenance.EventConditionChanged {
		action = e.Note
	}
	recorder.Eventf(e.Maintenance, nil, eventType, e.Reason, action, "%s", text.Note(e.Note))
}
