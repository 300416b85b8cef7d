// SPDX-FileCopyrightText: The gardener-extension-machine-preservation authors
//
// SPDX-License-Identifier: Apache-2.0

package maintenance

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/events"

	"github.com/gardener/gardener-extension-machine-preservation/pkg/brief"
	"github.com/gardener/gardener-extension-machine-preservation/pkg/maintenance"
)

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
	recorder.Eventf(e.Maintenance, nil, eventType, e.Reason, action, "%s", brief.Note(e.Note))
}
